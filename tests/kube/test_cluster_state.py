"""The view is cheap and steady: what did not change is the same object, and what depends on others follows them."""

from __future__ import annotations

import json
import random
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kube import manifests as m
from tests.kube.test_translation import CODECS, Cluster
from tidemill.engine.clock import WallClock
from tidemill.kube.volumes import NO_ZONE
from tidemill.model.pods import Pod
from tidemill.model.resources import amount
from tidemill.ports import ClusterView
from tidemill.spec import names


def test_unchanged_objects_keep_their_identity():
    cluster = Cluster().put("Pod", m.pod("a"), m.pod("b")).put("Node", m.node())
    before = cluster.view
    assert cluster.view is before
    heartbeat = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-16T06:02:00Z",
                                 "lastHeartbeatTime": "2026-11-16T07:00:00Z"}]}  # fmt: skip
    cluster.put("Node", m.node(status=heartbeat)).put("Pod", m.pod("a"))
    assert cluster.view is before
    cluster.put("Pod", m.pod("a", metadata={"annotations": {names.ENDS_AT: "2026-11-16T09:00:00Z"}}))
    after = cluster.view
    assert after.nodes is before.nodes
    assert after.pods[1] is before.pods[1]
    assert after.pods[0] is not before.pods[0]


def test_pods_by_node_keeps_the_tuples_of_quiet_nodes():
    cluster = Cluster().put("Pod", m.pod("a"), m.pod("b", spec={"nodeName": "node-2"}))
    before = cluster.view.pods_by_node
    cluster.put("Pod", m.pod("c"))
    after = cluster.view.pods_by_node
    assert after["node-2"] is before["node-2"]
    assert [pod.name for pod in after["node-1"]] == ["a", "c"]
    assert [pod.name for pod in before["node-1"]] == ["a"]  # what was given out does not change
    cluster.remove("Pod", "uid-b")
    assert "node-2" not in cluster.view.pods_by_node


def test_pods_are_ordered_by_age_then_uid_and_nodes_by_name():
    late = {"creationTimestamp": "2026-11-16T07:00:00Z"}
    cluster = Cluster().put("Pod", m.pod("z"), m.pod("a", metadata=late), m.pod("b"))
    assert [pod.name for pod in cluster.view.pods] == ["b", "z", "a"]
    cluster.put("Node", m.node("n2"), m.node("n1"))
    assert [node.name for node in cluster.view.nodes] == ["n1", "n2"]


def test_daemon_sets_say_what_their_pods_will_ask_for():
    cluster = Cluster().put("DaemonSet", m.deployment("agent"), m.deployment("cni"))
    before = cluster.view
    assert [amount(shape.requests, "cpu") for shape in before.daemons] == [4000, 4000]
    assert cluster.view is before
    assert [shape.labels for shape in cluster.remove("DaemonSet", "uid-agent").view.daemons] == [
        (("app", "cni"),)
    ]


def test_pods_of_one_template_share_shape_and_terms():
    jobs = [
        m.pending(
            f"train-{number}",
            metadata={
                "labels": {"job-name": f"train-{number}", "batch.kubernetes.io/controller-uid": str(number)},
                "ownerReferences": m.owner("Job", f"train-{number}"),
            },
        )
        for number in range(50)
    ]
    cluster = Cluster().put("Pod", *jobs)
    assert len({id(pod.shape) for pod in cluster.view.pods}) == 1
    assert len({id(pod.terms) for pod in cluster.view.pods}) == 1


def test_a_label_of_each_pod_counts_once_a_selector_speaks_of_it():
    labels = {"labels": {"job-name": "one"}}
    cluster = Cluster().put("Pod", m.pod("a", metadata=labels))
    assert dict(cluster.view.pods[0].shape.labels) == {"app": "web"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "h", "labelSelector": {"matchLabels": {"job-name": "one"}}}]}}  # fmt: skip
    cluster.put("Pod", m.pending("b", spec={"affinity": apart}))
    shapes = {pod.name: dict(pod.shape.labels) for pod in cluster.view.pods}
    assert shapes["a"] == {"app": "web", "job-name": "one"}


def volume(name: str, *zones: str, key: str = "topology.kubernetes.io/zone") -> dict[str, Any]:
    rule = {"key": key, "operator": "In", "values": list(zones)}
    terms = {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}
    return {"metadata": m.meta(name, ""), "spec": {"nodeAffinity": terms} if zones else {}}


def claim(name: str, of: str = "") -> dict[str, Any]:
    return {"metadata": m.meta(name), "spec": {"volumeName": of} if of else {}}


def test_a_pod_can_only_run_where_its_volumes_are():
    uses = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
    cluster = Cluster().put("Pod", m.pending("a", spec=uses))

    def zones() -> Any:
        return cluster.view.pods[0].shape.volume_zones

    assert zones() == ()
    cluster.put("PersistentVolumeClaim", claim("data", "pv-1"))
    assert zones() == ()  # a volume that was not read yet
    cluster.put("PersistentVolume", volume("pv-1", "us-east-1a", key="topology.ebs.csi.aws.com/zone"))
    assert zones() == ("us-east-1a",)
    cluster.put("PersistentVolume", volume("pv-1", "us-east-1a", "us-east-1b"))
    assert zones() == ("us-east-1a", "us-east-1b")
    two = {"volumes": [*uses["volumes"], {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]}
    cluster.remove("Pod", "uid-a").put("Pod", m.pending("a", spec=two))
    cluster.put("PersistentVolume", volume("pv-2", "us-east-1b"))
    cluster.put("PersistentVolumeClaim", claim("a-scratch", "pv-2"))
    assert zones() == ("us-east-1b",)
    cluster.put("PersistentVolume", volume("pv-2", "us-east-1c"))
    assert zones() == NO_ZONE
    cluster.remove("PersistentVolumeClaim", "uid-a-scratch").remove("PersistentVolume", "uid-pv-1")
    assert zones() == ()


def test_idle_timers_begin_when_a_pod_comes_or_goes():
    cluster = Cluster().put("Node", m.node("old"), listed=True).put("Pod", listed=True)
    (old,) = cluster.view.nodes
    assert old.last_pod_event_at is not None  # it was there before us: later than the truth, never earlier
    cluster.put("Node", m.node("new"))
    new = cluster.view.nodes[0]
    assert new.last_pod_event_at is None
    daemon = {"ownerReferences": m.owner("DaemonSet", "ds")}
    cluster.put("Pod", m.pod("d", metadata=daemon, spec={"nodeName": "new"}))
    assert cluster.view.nodes[0].last_pod_event_at is None
    cluster.put("Pod", m.pending("p"))
    cluster.put("Pod", m.pod("p", spec={"nodeName": "new"}))
    came = cluster.view.nodes[0].last_pod_event_at
    assert came is not None
    cluster.remove("Pod", "uid-p")
    left = cluster.view.nodes[0].last_pod_event_at
    assert left is not None
    assert left > came
    cluster.put("Node", m.node("new"))
    assert cluster.view.nodes[0].last_pod_event_at == left


def test_a_node_made_again_under_its_name_is_another():
    cluster = Cluster().put("Node", m.node("n", status={"allocatable": {"nvidia.com/gpu": "0"}}), listed=True)
    cluster.put("Node", m.node("n"))
    assert cluster.view.nodes[0].accelerators_registered_at is not None
    late = {"allocatable": {"nvidia.com/gpu": "0"}}
    cluster.put("Node", m.node("n", metadata={"uid": "second"}, status=late))
    assert cluster.view.nodes[0].accelerators_registered_at is None
    cluster.remove("Node", "uid-n")  # the delete of the first comes late
    assert [node.name for node in cluster.view.nodes] == ["n"]
    cluster.remove("Node", "second")
    assert cluster.view.nodes == ()


@pytest.mark.parametrize(
    ("first", "then", "woken"),
    [
        (None, m.pending("p"), "team/p was created"),
        (m.pod("p"), m.pod("p", status={"phase": "Failed"}), "team/p failed"),
        # A scale-down: it was told to end, and its program exits with 143.
        (m.pod("p", metadata={"deletionTimestamp": m.CREATED}),
         m.pod("p", metadata={"deletionTimestamp": m.CREATED}, status={"phase": "Failed"}), "team/p is gone"),
        (m.pod("p"), m.pod("p", metadata={"annotations": {names.CHECKPOINT_DONE: m.CREATED}}),
         "team/p wrote its checkpoint"),
        (m.pending("p"), m.pod("p"), "team/p was bound to node-1"),
        (m.pod("p", status={"phase": "Pending"}), m.pod("p"), None),  # it merely starts
        (m.pending("p", spec={"schedulingGates": [{"name": "other"}]}), m.pending("p"), "team/p waits for us"),
    ],
)  # fmt: skip
def test_what_wakes_the_engine(first, then, woken):
    cluster = Cluster().put("Pod", *([first] if first else []), listed=True)
    cluster.woken.clear()
    cluster.put("Pod", then)
    assert cluster.woken == ([woken] if woken else [])


def test_a_burst_is_one_wake():
    cluster = Cluster().put("Pod", listed=True)
    cluster.woken.clear()
    cluster.put("Pod", *(m.pending(f"p{number}") for number in range(9)))
    assert cluster.woken == ["team/p0 was created (and 8 more changes)"]


# --- any order leads to the same view -------------------------------------------------------------------

_OBJECTS = [
    ("Pod", "a", lambda v: m.pod("a", metadata={"labels": {"v": str(v)}}, spec={"nodeName": f"n{v % 2}"})),
    ("Pod", "b", lambda v: m.pending("b", metadata={"ownerReferences": m.owner("Job", "j")})),
    ("Pod", "c", lambda v: m.pod("c", spec={"volumes": [{"persistentVolumeClaim": {"claimName": "data"}}]})),
    ("Pod", "e", lambda v: m.pod("e", status={"phase": "Failed" if v % 3 == 0 else "Running"})),
    ("Node", "n0", lambda v: m.node("n0", metadata={"labels": {"v": str(v)}})),
    ("Job", "j", lambda v: m.job("j", metadata={"labels": {names.GANG: "g"}},
                                 spec={"parallelism": 2 + v % 2, "completions": 9, "suspend": v % 2 == 0})),
    ("PersistentVolumeClaim", "data", lambda v: claim("data", f"pv-{v % 2}")),
    ("PersistentVolume", "pv-0", lambda v: volume("pv-0", f"z{v % 2}")),
    ("PriorityClass", "high", lambda v: {"metadata": m.meta("high", ""), "value": v, "globalDefault": True}),
    ("Deployment", "chat", lambda v: m.deployment(status={"readyReplicas": v % 5})),
    ("PodDisruptionBudget", "guard", lambda v: m.budget("guard", status={"disruptionsAllowed": v % 3},
                                                        spec={"selector": {"matchLabels": None}})),
]  # fmt: skip


def plain(view: ClusterView) -> dict[str, Any]:
    """What both readings must agree on: not when the reader saw things."""

    def pod(one: Pod) -> str:
        return repr(one)

    return {
        "pods": [pod(one) for one in view.pods],
        "by_node": {name: [pod(one) for one in on] for name, on in view.pods_by_node.items()},
        "nodes": [(one.name, one.labels, one.allocatable, one.ready) for one in view.nodes],
        "budgets": view.budgets,
        "workloads": view.workloads,
    }


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(_OBJECTS) - 1), st.integers(0, 6)), max_size=40), st.randoms())
def test_any_history_gives_the_view_of_a_fresh_list(
    steps: list[tuple[int, int]], order: random.Random
) -> None:
    """The version 0 is a delete."""
    cluster, there = Cluster(), dict[int, dict[str, Any]]()
    for index, version in steps:
        kind, name, make = _OBJECTS[index]
        if version:
            there[index] = make(version)
            cluster.put(kind, there[index])
        elif there.pop(index, None) is not None:
            cluster.remove(kind, f"uid-{name}")
    fresh = Cluster()
    for index in order.sample(sorted(there), len(there)):
        kind = _OBJECTS[index][0]
        fresh.state.apply(kind, [CODECS[kind].one(json.dumps(there[index]).encode())], (), listed=False)
    assert plain(cluster.view) == plain(fresh.view)


@pytest.mark.parametrize("written", ["²", "²%"])
def test_a_number_that_is_none_is_as_if_it_were_not_written(written):
    """Annotations are any text, and Python calls '²' a digit."""
    notes = {
        "annotations": {names.GANG_SIZE: written, names.MIN_AVAILABLE: written, names.ADDED_REPLICAS: written}
    }
    cluster = Cluster().put("Pod", m.pod("a", metadata=notes), m.pod("b"))
    assert [pod.gang for pod in cluster.view.pods] == [None, None]
    cluster.put("Job", m.job(metadata=notes)).put("Deployment", m.deployment(metadata=notes))
    (workload,) = cluster.view.workloads
    assert (workload.min_available, workload.added) == (0, 0)


class FailsOn(WallClock):
    """Stands for a fault of ours that one object of a list uncovers."""

    def from_wall(self, instant: datetime) -> datetime:
        if instant.year == 2030:
            raise ZeroDivisionError("a fault of ours")
        return instant


def test_one_object_that_is_not_understood_spoils_no_other():
    """Else whoever may create a pod could stop the controller from seeing any other."""
    odd = {"creationTimestamp": "2030-01-01T00:00:00Z"}
    cluster = Cluster(FailsOn()).put("Pod", m.pod("odd", metadata=odd), m.pod("b"), listed=True)
    pods = {pod.name: pod for pod in cluster.view.pods}
    assert (pods["odd"].node, pods["odd"].terms.do_not_disrupt) == ("node-1", True)
    assert "not be read" in pods["odd"].message
    assert pods["b"].message == ""
    cluster.put("Node", m.node("n1", metadata=odd), m.node("n2"), listed=True)
    nodes = {node.name: node for node in cluster.view.nodes}
    assert (nodes["n2"].ready, nodes["n2"].unschedulable) == (True, False)
    assert {kind for kind, _ in cluster.state.unreadable()} == {"Node"}
    cluster.put("Pod", m.pod("odd"))
    assert {pod.message for pod in cluster.view.pods} == {""}
