"""Objects of real shape -> the engine's words."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.kube import manifests as m
from tidemill.engine.clock import FasterClock, WallClock
from tidemill.kube.cluster_state import ClusterState
from tidemill.kube.cluster_view import KINDS, has_accelerators
from tidemill.kube.selectors import NO_NAMESPACE
from tidemill.model.labels import Expression, Taint
from tidemill.model.nodes import KubeNode
from tidemill.model.pods import DisruptionBudget, Gang, Method, Pod, PodPhase
from tidemill.model.reasons import DrainKind
from tidemill.model.resources import amount
from tidemill.ports import ClusterView
from tidemill.spec import names

CODECS = {kind.name: kind.codec for kind in KINDS}


def instant(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-16T{text}+00:00")


class Cluster:
    """A state that is fed JSON."""

    def __init__(self, clock: Any = None) -> None:
        self.woken: list[str] = []
        self.state = ClusterState(
            clock or WallClock(), wake=self.woken.append, has_accelerators=has_accelerators
        )

    def put(self, kind: str, *objects: dict[str, Any], listed: bool = False) -> Cluster:
        read = [CODECS[kind].one(json.dumps(one).encode()) for one in objects]
        self.state.apply(kind, read, (), listed=listed)
        return self

    def remove(self, kind: str, *uids: str) -> Cluster:
        self.state.apply(kind, (), uids, listed=False)
        return self

    @property
    def view(self) -> ClusterView:
        return self.state.view()


def the_pod(*objects: dict[str, Any], clock: Any = None) -> Pod:
    (pod,) = Cluster(clock).put("Pod", *objects).view.pods
    return pod


def the_node(one: dict[str, Any], clock: Any = None) -> KubeNode:
    (node,) = Cluster(clock).put("Node", one).view.nodes
    return node


# --- pods -----------------------------------------------------------------------------------------------


def test_a_running_pod():
    pod = the_pod(m.pod())
    assert (pod.uid, pod.full_name, pod.phase, pod.node) == (
        "uid-web-1",
        "team/web-1",
        PodPhase.RUNNING,
        "node-1",
    )
    assert amount(pod.shape.requests, "nvidia.com/gpu") == 8
    assert amount(pod.shape.requests, "cpu") == 2000
    assert pod.shape.labels == (("app", "web"),)
    assert pod.bound_at == instant("06:00:04")
    assert pod.started_at == instant("06:00:30")
    assert (pod.ready, pod.ready_at) == (True, instant("06:01:00"))
    assert (pod.workload, pod.daemon, pod.gated, pod.held_by_others, pod.message) == (
        "",
        False,
        False,
        False,
        "",
    )


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pods_are_left_out(phase):
    cluster = Cluster().put("Pod", m.pod())
    assert cluster.view.pods
    cluster.put("Pod", m.pod(status={"phase": phase}))
    assert not cluster.view.pods
    assert not cluster.view.pods_by_node


@pytest.mark.parametrize(
    ("labels", "owner", "workload"),
    [
        ({"pod-template-hash": "5d4f"}, m.owner("ReplicaSet", "chat-5d4f"), "Deployment/team/chat"),
        ({}, m.owner("ReplicaSet", "bare"), "ReplicaSet/team/bare"),
        ({}, m.owner("StatefulSet", "db"), "StatefulSet/team/db"),
        ({}, m.owner("Job", "train"), "Job/team/train"),
        ({"jobset.sigs.k8s.io/jobset-name": "big"}, m.owner("Job", "big-w-0"), "JobSet/team/big"),
        ({}, m.owner("PyTorchJob", "llm"), "PyTorchJob/team/llm"),
        ({}, m.owner("Node", "node-1"), ""),
        ({}, [], ""),
    ],
)
def test_the_workload_that_would_make_it_again(labels, owner, workload):
    assert the_pod(m.pod(metadata={"labels": labels, "ownerReferences": owner})).workload == workload


def test_daemon_and_static_pods_come_with_their_node():
    assert the_pod(m.pod(metadata={"ownerReferences": m.owner("DaemonSet", "ds")})).daemon
    assert the_pod(m.pod(metadata={"ownerReferences": m.owner("Node", "node-1")})).daemon
    assert the_pod(m.pod(metadata={"annotations": {"kubernetes.io/config.mirror": "x"}})).daemon
    assert not the_pod(m.pod()).daemon


def test_our_gate_and_the_gates_of_others():
    ours, theirs = {"name": names.GATE}, {"name": "kueue.x-k8s.io/admission"}
    gated = the_pod(m.pending(spec={"schedulingGates": [ours]}))
    assert (gated.gated, gated.held_by_others) == (True, False)
    both = the_pod(m.pending(spec={"schedulingGates": [ours, theirs]}))
    assert (both.gated, both.held_by_others) == (True, True)
    other = the_pod(m.pending(spec={"schedulingGates": [theirs]}))
    assert (other.gated, other.held_by_others) == (False, True)


def test_an_admitted_pod_is_pinned():
    selector, admitted = {names.LABEL_SOURCE: "cr-1"}, [{"key": names.TAINT_HELD, "operator": "Exists"}]
    pinned = m.pending(spec={"nodeSelector": selector, "tolerations": admitted})
    assert the_pod(pinned).pinned_to == "cr-1"
    by_hand = m.pending(spec={"nodeSelector": selector})
    assert the_pod(by_hand).pinned_to == "", "nobody admitted it, and nobody takes its pin back"


def test_where_it_may_run():
    pod = the_pod(
        m.pending(
            spec={
                "nodeSelector": {"zone": "a"},
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "k", "operator": "In", "values": ["x", "y"]}]}
                            ]
                        }
                    },
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "topologyKey": "kubernetes.io/hostname",
                                "labelSelector": {"matchLabels": {"app": "web"}},
                            }
                        ]
                    },
                },
                "topologySpreadConstraints": [
                    {
                        "maxSkew": 2,
                        "topologyKey": "topology.kubernetes.io/zone",
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {"matchLabels": {"app": "web"}},
                    }
                ],
                "containers": [
                    {"name": "c", "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]}
                ],
            }
        )
    )
    shape = pod.shape
    assert shape.node_selector == (("zone", "a"),)
    assert shape.node_terms == ((Expression("k", "In", ("x", "y")),),)
    assert shape.anti_affinity[0].topology_key == "kubernetes.io/hostname"
    assert (shape.spread[0].max_skew, shape.spread[0].hard) == (2, True)
    assert shape.host_ports == (("TCP", 80, ""),)
    assert shape.tolerations[0].key == "node.kubernetes.io/not-ready"


def test_what_it_says_of_its_time():
    said = {
        names.EXPECTED_DURATION: "36h",
        names.CHECKPOINT_TIME: "90s",
        names.CHECKPOINT_EVERY: "30m",
        names.LOAD_TIME: "5m",
        names.OVERFLOW: "true",
        names.TEAM: "nlp",
        names.DO_NOT_DISRUPT: "true",
    }
    terms = the_pod(
        m.pod(metadata={"annotations": said}, spec={"terminationGracePeriodSeconds": 600, "priority": 7})
    ).terms
    assert terms.expected == timedelta(hours=36)
    assert (terms.checkpoint_time, terms.checkpoint_every) == (timedelta(seconds=90), timedelta(minutes=30))
    assert (terms.load, terms.grace, terms.priority) == (timedelta(minutes=5), timedelta(minutes=10), 7)
    assert (terms.overflow, terms.team, terms.do_not_disrupt) == (True, "nlp", True)


def test_a_duration_that_cannot_be_read_is_not_there_except_on_the_safe_side(caplog):
    annotations = {names.EXPECTED_DURATION: "soon", names.DO_NOT_DISRUPT: "1.5h", names.LOAD_TIME: "-3s"}
    for _ in range(3):
        terms = the_pod(m.pod(metadata={"annotations": annotations})).terms
    assert (terms.expected, terms.load, terms.do_not_disrupt) == (None, timedelta(0), True)
    assert "expected-duration" in caplog.text


def test_the_deadline_of_a_pod_is_its_expected_duration():
    assert the_pod(m.pod(spec={"activeDeadlineSeconds": 3600})).terms.expected == timedelta(hours=1)


def test_what_the_scheduler_and_the_kubelet_say():
    waits = {
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
        ]
    }
    assert the_pod(m.pending(status=waits)).message == "0/3 nodes"
    gated = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}
    assert the_pod(m.pending(status=gated)).message == ""
    pulls = {
        "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no image"}}}]
    }
    assert the_pod(m.pod(status={"phase": "Pending", **pulls})).message == "ImagePullBackOff: no image"
    starts = {"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}
    assert the_pod(m.pod(status={"phase": "Pending", **starts})).message == ""
    assert the_pod(m.pod(status={"reason": "NodeLost", "message": "gone"})).message == "NodeLost: gone"


def test_deletion_maps_the_request_and_keeps_the_grace():
    """At speed 60 a grace of 120 s is two seconds of wall time, and the API server stamps the request plus 120 s."""
    wall = instant("06:00:00")
    clock = FasterClock(instant("12:00:00"), wall, 60, lambda: wall)
    deleting = {"deletionTimestamp": "2026-11-16T06:03:00Z", "deletionGracePeriodSeconds": 120}
    pod = the_pod(m.pod(metadata=deleting), clock=clock)
    assert pod.deleting_until == instant("13:02:00")  # asked for at 06:01 of wall time: an hour after 12:00
    assert the_pod(m.pod(metadata=deleting)).deleting_until == instant("06:03:00")


def test_instants_in_annotations_are_wall_time():
    wall = instant("06:00:00")
    clock = FasterClock(instant("12:00:00"), wall, 60, lambda: wall)
    notes = {
        names.ENDS_AT: "2026-11-16T06:10:00.500000Z",
        names.CHECKPOINT_REQUESTED: "2026-11-16T06:01:00Z",
        names.CHECKPOINT_DONE: "yesterday",
    }
    pod = the_pod(m.pod(metadata={"annotations": notes}), clock=clock)
    assert pod.ends_at == datetime(2026, 11, 16, 22, 0, 30, tzinfo=UTC)
    assert pod.checkpoint_requested_at == instant("13:00:00")
    assert pod.checkpoint_done_at is None
    assert pod.created_at == instant("12:00:00")


def test_gangs_by_label():
    gang = {"labels": {names.GANG: "g", names.GANG_SIZE: "4"}}
    assert the_pod(m.pending(metadata=gang)).gang == Gang("g", 4)
    assert the_pod(m.pending(metadata={"labels": {names.GANG: "g", names.GANG_SIZE: "four"}})).gang is None


# --- what cannot be read --------------------------------------------------------------------------------


def test_a_bound_pod_whose_quantity_cannot_be_read_keeps_its_node_busy(caplog):
    bad = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "lots"}}}]}
    cluster = Cluster().put("Pod", m.pod("bad", spec=bad), m.pod("good"))
    pods = {pod.name: pod for pod in cluster.view.pods_by_node["node-1"]}
    assert pods.keys() == {"bad", "good"}
    assert "requests cannot be read" in pods["bad"].message
    assert caplog.text.count("requests cannot be read") == 1


def test_a_pending_pod_with_an_unknown_rule_is_nobodys_demand_and_says_why():
    odd = {"tolerations": [{"key": "cores", "operator": "Gt", "value": "8"}]}
    pod = the_pod(m.pending(spec=odd))
    assert pod.held_by_others
    assert "where it may run cannot be read" in pod.message
    assert amount(pod.shape.requests, "nvidia.com/gpu") == 8


def test_affinity_selects_namespaces_by_their_labels():
    def term(selector: Any, **more: Any) -> Any:
        return {"topologyKey": "z", "labelSelector": {}, "namespaceSelector": selector, **more}

    rules = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term({})]},
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                term({"matchLabels": {"t": "a"}}, namespaces=["x"])
            ],
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 5, "podAffinityTerm": term({"matchLabels": {"t": "none"}})}
            ],
        },
    }
    cluster = Cluster().put("Pod", m.pending(spec={"affinity": rules}))

    def namespaces() -> Any:
        (pod,) = cluster.view.pods
        shape = pod.shape
        terms = (
            *shape.anti_affinity,
            *shape.affinity,
            *(preferred for _, preferred in shape.preferred_affinity),
        )
        return [one.namespaces for one in terms]

    assert namespaces() == [(NO_NAMESPACE,), ("x",), (NO_NAMESPACE,)]
    cluster.put(
        "Namespace", {"metadata": m.meta("one", "", labels={"t": "a"})}, {"metadata": m.meta("two", "")}
    )
    assert namespaces() == [("one", "two"), ("one", "x"), (NO_NAMESPACE,)]
    cluster.remove("Namespace", "uid-one")
    assert namespaces() == [("two",), ("x",), (NO_NAMESPACE,)]
    before = cluster.view
    cluster.put("Namespace", {"metadata": m.meta("two", "")})
    assert cluster.view is before


def test_an_object_that_does_not_decode_counts_as_there():
    cluster = Cluster().put("Pod", m.pod("bad", spec={"priority": "high"}), m.pod("good"))
    pods = {pod.name: pod for pod in cluster.view.pods}
    assert pods["bad"].node == "node-1"
    assert pods["bad"].terms.do_not_disrupt is True
    assert [kind for kind, _ in cluster.state.unreadable()] == ["Pod"]
    cluster.remove("Pod", "uid-bad")
    assert [pod.name for pod in cluster.view.pods] == ["good"]
    assert not cluster.state.unreadable()


def test_what_was_read_before_stays_when_it_cannot_be_read_any_more():
    cluster = Cluster().put("Pod", m.pod("p"))
    before = cluster.view.pods
    cluster.put("Pod", m.pod("p", spec={"priority": "high"}))
    assert cluster.view.pods is before


def test_a_node_that_cannot_be_read_has_joined():
    node = the_node(m.node(spec={"unschedulable": "perhaps"}))
    assert (node.instance_id, node.ready, node.unschedulable) == ("i-0123456789abcdef0", True, True)


def test_megabytes_of_annotations_and_two_hundred_containers():
    big = {"annotations": {"other/blob": "x" * 5_000_000, names.TEAM: "nlp"}}
    many = {"containers": [{"name": f"c{i}", "resources": {"requests": {"cpu": "10m"}}} for i in range(200)]}
    cluster = Cluster().put("Pod", m.pod("big", metadata=big), m.pod("many", spec=many))
    pods = {pod.name: pod for pod in cluster.view.pods}
    assert pods["big"].terms.team == "nlp"
    assert amount(pods["many"].shape.requests, "cpu") == 2000
    held = cluster.state.pod("uid-big")
    assert held is not None
    assert held.metadata.annotations == {names.TEAM: "nlp"}


# --- nodes ----------------------------------------------------------------------------------------------


def test_a_node():
    node = the_node(m.node())
    assert (node.name, node.instance_id, node.ready) == ("node-1", "i-0123456789abcdef0", True)
    assert amount(node.allocatable, "cpu") == 191450
    assert amount(node.allocatable, "memory") == 2062607904 * 1024
    assert node.ready_changed_at == instant("06:02:00")
    assert node.accelerators_registered_at == instant("06:02:00")
    assert node.check == "passed"


@pytest.mark.parametrize(
    "provider", ["", "kind://docker/kind/node-1", "aws:///us-east-1a/fargate-ip", "aws:///z/i-1x"]
)
def test_a_node_without_an_ec2_instance(provider):
    assert the_node(m.node(spec={"providerID": provider})).instance_id == ""


def test_accelerators_register_late():
    cluster = Cluster()
    late = {"allocatable": {"cpu": "1", "nvidia.com/gpu": "0"}}
    cluster.put("Node", m.node(status=late), listed=True)
    (node,) = cluster.view.nodes
    assert node.accelerators_registered_at is None
    assert amount(node.allocatable, "nvidia.com/gpu") == 0
    cluster.put("Node", m.node())
    (node,) = cluster.view.nodes
    assert node.accelerators_registered_at is not None
    assert abs(node.accelerators_registered_at - datetime.now(UTC)) < timedelta(minutes=1)
    assert cluster.woken[-1] == "node-1 registered its accelerators"


def test_a_type_without_accelerators_is_registered_when_it_joins():
    cpu = m.node(
        metadata={"labels": {names.LABEL_TYPE: "m5.large"}}, status={"allocatable": {"nvidia.com/gpu": "0"}}
    )
    assert the_node(cpu).accelerators_registered_at == instant("06:00:00")


@pytest.mark.parametrize(("status", "check"), [("True", "passed"), ("False", "failed"), ("Unknown", "")])
def test_the_verdict_of_the_node_check(status, check):
    conditions = [{"type": names.CONDITION_GPUS_VERIFIED, "status": status, "message": "GPU 3 is dead"}]
    node = the_node(m.node(status={"conditions": conditions}))
    assert node.check == check
    assert node.check_message == ("GPU 3 is dead" if check == "failed" else "")


def test_a_node_that_announces_a_check_waits_for_it():
    assert the_node(m.node(metadata={"labels": {names.NODE_CHECK: "required"}})).check == ""


def test_a_drain_with_its_reason():
    notes = {
        names.DRAINING_SINCE: "2026-11-16T06:20:00Z",
        f"{names.DRAIN_REASON}at": "2026-11-16T11:00:00+00:00",
        f"{names.DRAIN_REASON}name": "cr-1",
        names.ENDS_AT: "2026-11-16T11:00:00Z",
        names.OPENED_AT: "2026-11-16T06:03:00Z",
    }
    taints = [{"key": names.TAINT_DRAINING, "value": "source-ends", "effect": "NoSchedule"}]
    node = the_node(m.node(metadata={"annotations": notes}, spec={"taints": taints}))
    assert node.draining_since == instant("06:20:00")
    assert node.drain_reason is not None
    assert (node.drain_reason.kind, node.drain_reason.at) == (DrainKind.SOURCE_ENDS, instant("11:00:00"))
    assert node.drain_reason.name == "cr-1"
    assert node.taints == (Taint(names.TAINT_DRAINING, "source-ends", "NoSchedule"),)
    assert (node.ends_at, node.opened_at) == (instant("11:00:00"), instant("06:03:00"))


def test_a_drain_taint_that_somebody_put_there_by_hand():
    cluster = Cluster()
    tainted = m.node(
        spec={"taints": [{"key": names.TAINT_DRAINING, "value": "because", "effect": "NoSchedule"}]}
    )
    cluster.put("Node", tainted)
    (first,) = cluster.view.nodes
    assert first.draining_since is not None
    assert first.drain_reason is None
    cluster.put("Node", tainted)
    assert cluster.view.nodes == (first,)
    cluster.put("Node", m.node(spec={"taints": []}))
    (node,) = cluster.view.nodes
    assert node.draining_since is None


# --- services and budgets -------------------------------------------------------------------------------


def test_a_deployment():
    said = {
        names.HANDOVER: "rollout",
        names.MAY_SCALE: "true",
        names.MIN_AVAILABLE: "3",
        names.RESTARTED_FOR: "x",
    }
    one = m.deployment(
        metadata={"annotations": {names.ADDED_REPLICAS: "2"}},
        spec={"template": {"metadata": {"annotations": said}}},
    )
    (workload,) = Cluster().put("Deployment", one).view.workloads
    assert (workload.name, workload.replicas, workload.ready) == ("Deployment/team/chat", 4, 4)
    assert (workload.max_surge, workload.max_unavailable) == (1, 1)
    assert (workload.method, workload.min_available, workload.may_scale) == (Method.ROLLOUT, 3, True)
    assert (workload.added, workload.restarted_for, workload.rolling) == (2, "x", False)
    assert amount(workload.shape.requests, "nvidia.com/gpu") == 8


@pytest.mark.parametrize(
    ("strategy", "pace"),
    [
        ({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}}, (2, 0)),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "10%", "maxUnavailable": "10%"}}, (1, 0)),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "10%"}}, (0, 1)),
        ({"type": "Recreate", "rollingUpdate": None}, (0, 4)),
    ],
)
def test_the_pace_of_a_rolling_update(strategy, pace):
    (workload,) = Cluster().put("Deployment", m.deployment(spec={"strategy": strategy})).view.workloads
    assert (workload.max_surge, workload.max_unavailable) == pace


def test_a_rollout_under_way():
    for status in ({"updatedReplicas": 2}, {"observedGeneration": 1}):
        (workload,) = Cluster().put("Deployment", m.deployment(status=status)).view.workloads
        assert workload.rolling


def test_a_paired_stateful_set():
    one = m.deployment(
        "chat-blue",
        spec={"template": {"metadata": {"annotations": {names.HANDOVER_PAIR: "StatefulSet/chat-green"}}}},
    )
    (workload,) = Cluster().put("StatefulSet", one).view.workloads
    assert workload.name == "StatefulSet/team/chat-blue"
    assert workload.pair == "StatefulSet/team/chat-green"
    assert (workload.max_surge, workload.max_unavailable) == (0, 1)


def test_a_budget_is_over_the_workload_its_selector_means():
    of_chat = {
        "labels": {"app": "chat", "pod-template-hash": "h"},
        "ownerReferences": m.owner("ReplicaSet", "chat-h"),
    }
    elsewhere = {**of_chat, "namespace": "other"}
    cluster = Cluster().put("PodDisruptionBudget", m.budget())
    assert cluster.view.budgets == ()
    cluster.put("Pod", m.pod("c1", metadata=of_chat), m.pod("w1"), m.pod("c2", metadata=elsewhere))
    assert cluster.view.budgets == (DisruptionBudget("Deployment/team/chat", 3, 1),)
    before = cluster.view.budgets
    cluster.put("Pod", m.pod("c3", metadata=of_chat))
    assert cluster.view.budgets is before
    cluster.put(
        "PodDisruptionBudget", m.budget("second", status={"disruptionsAllowed": 0, "desiredHealthy": 4})
    )
    assert cluster.view.budgets == (DisruptionBudget("Deployment/team/chat", 4, 0),)
    cluster.remove("Pod", "uid-c1", "uid-c3")
    assert cluster.view.budgets == ()


def test_budget_selectors():
    rules = [{"key": "tier", "operator": "NotIn", "values": ["gold"]}, {"key": "app", "operator": "Exists"}]
    spec = {"selector": {"matchLabels": None, "matchExpressions": rules}}
    of_job = {"ownerReferences": m.owner("Job", "train")}
    cluster = (
        Cluster().put("PodDisruptionBudget", m.budget(spec=spec)).put("Pod", m.pod("a", metadata=of_job))
    )
    assert [one.workload for one in cluster.view.budgets] == ["Job/team/train"]
    cluster.put("Pod", m.pod("a", metadata={**of_job, "labels": {"tier": "gold"}}))
    assert cluster.view.budgets == ()
