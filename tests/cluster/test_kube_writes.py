"""What the contract cannot say for every cluster: how the adapter writes to a real API server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from controlplane.api import APPLY
from controlplane.start import ControlPlane
from tests.cluster.custom_resources import define_custom_resources
from tests.cluster.kube_stage import KubeStage, pod_template
from tests.contracts.cluster_contract import SOURCE
from tidemill.kube.admit import TOLERATED
from tidemill.kube.events import EventRecorder, Subject
from tidemill.model.errors import Gone, Refused, Retryable
from tidemill.model.reasons import DrainKind, DrainReason
from tidemill.spec import names


@pytest.fixture
def stage(cluster: ControlPlane, namespace: str) -> Iterator[KubeStage]:
    stage = KubeStage(cluster, namespace)
    yield stage
    stage.close()


def noted(found: dict[str, Any] | None) -> dict[str, str]:
    assert found is not None
    notes: dict[str, str] = found["metadata"].get("annotations") or {}
    return notes


# --- who is meant --------------------------------------------------------------------------------------


def test_a_pod_made_again_under_its_name_is_another_pod(stage: KubeStage) -> None:
    old = stage.gated_pod("solo")
    stage.cluster.stop()  # a watch that is far behind
    stage.api.delete(stage.path(old), gracePeriodSeconds=0)
    stage.until(lambda: stage.raw(old) is None)
    made = pod_template(schedulingGates=[{"name": names.GATE}])
    made["metadata"] |= {"name": "solo"}
    new = stage.api.create(f"/api/v1/namespaces/{stage.namespace}/pods", made)
    cluster = stage.cluster
    cluster.reader.forget = lambda kind, uid: None  # type: ignore[method-assign] # it stays behind
    for write in (
        lambda: cluster.announce_end(old.uid, stage.now()),
        lambda: cluster.admit([old.uid], SOURCE, None),
        lambda: cluster.request_checkpoint(old.uid),
        lambda: cluster.evict(old.uid),
        lambda: cluster.delete(old.uid, 0, disruption=True),
    ):
        with pytest.raises(Gone):
            write()
    now = stage.raw(old)
    assert now is not None
    assert now["metadata"]["uid"] == new["metadata"]["uid"]
    assert now["metadata"]["resourceVersion"] == new["metadata"]["resourceVersion"], "nobody wrote to it"


def test_of_pods_without_a_job_those_before_the_one_that_is_gone_are_admitted(stage: KubeStage) -> None:
    one, lost, other = (stage.gated_pod(name) for name in ("one", "lost", "other"))
    stage.cluster.stop()
    stage.api.delete(stage.path(lost), gracePeriodSeconds=0)
    stage.until(lambda: stage.raw(lost) is None)
    with pytest.raises(Gone):
        stage.cluster.admit([one.uid, lost.uid, other.uid], SOURCE, None)
    assert [stage.pod(pod.uid).gated for pod in (one, other)] == [False, True], "the next decision sees it"


# --- jobs ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("PE-3")
def test_from_admission_to_the_bind_one_pod_is_shown_at_every_moment(stage: KubeStage) -> None:
    stage.ready_node()
    pod = stage.gated_job_pod()
    seen: list[tuple[int, bool]] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            pods = stage.pods_of(pod.workload)
            seen.append((len(pods), bool(pods and pods[0].pinned_to)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    stage.cluster.admit([pod.uid], SOURCE, None)
    stage.until(lambda: any(each.node for each in stage.pods_of(pod.workload)))
    time.sleep(0.5)
    done.set()
    watcher.join()
    assert {count for count, _ in seen} == {1}
    pinned = [is_pinned for _, is_pinned in seen]
    assert pinned == sorted(pinned), "once admitted it stays so"


@pytest.mark.requirement("PE-17")
def test_a_gang_that_loses_a_member_stops_and_is_held_and_admitted_again_elsewhere(stage: KubeStage) -> None:
    gang = stage.gated_gang()
    stage.cluster.admit([pod.uid for pod in gang], SOURCE, stage.now() + timedelta(hours=5), "p5")
    stage.settle(timedelta(minutes=1))
    first, second = stage.pods_of(gang[0].workload)
    assert first.node
    assert second.node
    stage.cluster.delete(first.uid, 5, disruption=True)
    stage.settle(timedelta(minutes=2))
    held = stage.pods_of(gang[0].workload)
    assert [(pod.gated, pod.pinned_to, pod.ends_at) for pod in held] == [(True, "", None)] * 2
    assert held[0].shape.node_selector == gang[0].shape.node_selector, "the old pins do not bind it"
    assert stage.failures(gang[0]) == 0
    for _ in range(50):  # the Job controller has to see that the last pod is gone
        try:
            stage.cluster.admit([pod.uid for pod in held], "spot", None)
            break
        except Retryable:
            time.sleep(0.2)
    _, namespace, name = gang[0].workload.split("/")
    template = stage.api.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}")["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {names.LABEL_SOURCE: "spot"}
    assert names.ENDS_AT not in template["metadata"].get("annotations", {})
    tolerated = [each for each in template["spec"]["tolerations"] if each["key"] == names.TAINT_HELD]
    assert len(tolerated) == 1


def test_an_admitted_job_whose_pods_were_never_made_is_taken_back(stage: KubeStage) -> None:
    (pod,) = stage.pods_of(stage.job(pods=1))
    stage.cluster.delete(pod.uid, None, disruption=True)  # it is held already
    assert [each.gated for each in stage.pods_of(pod.workload)] == [True]
    stage.cluster.admit([pod.uid], SOURCE, None)
    shown = stage.pods_of(pod.workload)[0]
    assert stage.cluster.evict(shown.uid)
    stage.settle(timedelta(seconds=61))
    # A pod that had no node yet is taken away by the pod garbage collector, within a minute.
    left = [each for each in stage.pods_of(pod.workload) if each.deleting_until is None]
    assert [each.gated for each in left] == [True]


def test_a_job_that_somebody_else_suspended_is_left_alone(stage: KubeStage) -> None:
    stage.job("theirs", held=False, suspend=True)
    workload = f"Job/{stage.namespace}/theirs"
    stage.until(lambda: stage.pods_of(workload))
    (pod,) = stage.pods_of(workload)
    assert (pod.gated, pod.held_by_others) == (False, True)
    with pytest.raises(Refused) as refused:
        stage.cluster.admit([pod.uid], SOURCE, None)
    assert refused.value.code == "held-by-others"


def test_job_sets_and_pytorch_jobs_are_admitted_and_held_by_one_patch(
    cluster: ControlPlane, namespace: str
) -> None:
    admin = cluster.admin()
    define_custom_resources(admin)
    replica = {"replicas": 2, "restartPolicy": "Never", "template": pod_template()}
    replica["template"]["spec"]["containers"][0]["name"] = "pytorch"  # type: ignore[index]
    job = {"parallelism": 1, "completions": 1, "template": pod_template(restartPolicy="Never")}
    made = {
        "jobset.x-k8s.io/v1alpha2/jobsets": {
            "kind": "JobSet",
            "spec": {"suspend": True, "replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": job}}]},
        },
        "kubeflow.org/v1/pytorchjobs": {
            "kind": "PyTorchJob",
            "spec": {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Worker": replica}},
        },
    }  # fmt: skip
    for place, content in made.items():
        group, version, plural = place.split("/")
        meta = {"name": "gang", "labels": {names.HELD_BY: names.HELD_BY_US}}
        body = {"apiVersion": f"{group}/{version}", "metadata": meta, **content}
        admin.create(f"/apis/{group}/{version}/namespaces/{namespace}/{plural}", body)
    stage = KubeStage(cluster, namespace)
    try:
        for place, content in made.items():
            group, version, plural = place.split("/")
            path = f"/apis/{group}/{version}/namespaces/{namespace}/{plural}/gang"
            workload = f"{content['kind']}/{namespace}/gang"
            pods = stage.pods_of(workload)
            assert [(pod.gated, pod.gang and pod.gang.size) for pod in pods] == [(True, 2)] * 2
            stage.cluster.admit([pod.uid for pod in pods], SOURCE, stage.now(), "p5")
            found = admin.get(path)
            assert names.HELD_BY not in found["metadata"].get("labels", {})
            text = str(found["spec"])
            assert "'suspend': False" in text
            assert f"'{names.LABEL_SOURCE}': '{SOURCE}'" in text
            assert names.TAINT_HELD in text
            assert [(pod.gated, pod.pinned_to) for pod in stage.pods_of(workload)] == [(False, SOURCE)] * 2
            stage.cluster.delete(stage.pods_of(workload)[0].uid, None, disruption=True)
            assert "'suspend': True" in str(admin.get(path)["spec"])
            assert [pod.gated for pod in stage.pods_of(workload)] == [True] * 2
    finally:
        stage.close()


# --- how pods leave ------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-12")
def test_a_forced_deletion_says_first_that_it_is_a_disruption(stage: KubeStage) -> None:
    pod = stage.running_job_pod()
    stage.api.patch(stage.path(pod), {"metadata": {"finalizers": ["tests.tidemill.dev/keep"]}})
    order: list[str] = []
    send = stage.kube_api.send

    def recorded(method: str, path: str, *args: Any, **kwargs: Any) -> bytes:
        order.append(f"{method} {path.rpartition('/')[2]}")
        return send(method, path, *args, **kwargs)

    stage.kube_api.send = recorded  # type: ignore[method-assign]
    stage.cluster.delete(pod.uid, 7, disruption=True)
    assert order[:2] == ["PATCH status", f"DELETE {pod.name}"]
    found = stage.raw(pod)
    assert found is not None
    (condition,) = [each for each in found["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert (condition["status"], condition["reason"]) == ("True", "DeletionByTidemill")
    assert found["metadata"]["deletionGracePeriodSeconds"] == 7
    stage.api.patch(stage.path(pod), {"metadata": {"finalizers": None}})


def test_a_removed_nodes_pods_failed_by_a_disruption(stage: KubeStage) -> None:
    pod = stage.running_job_pod()
    stage.cluster.remove_node(pod.node)
    stage.settle(timedelta(minutes=1))
    assert stage.failures(pod) == 0, "their Job does not count it"


# --- other writers -------------------------------------------------------------------------------------


def test_a_field_that_another_manager_applies_is_refused_and_left_alone(stage: KubeStage) -> None:
    node, pod = stage.ready_node(), stage.gated_pod("solo")
    for kind, path in (("Node", f"/api/v1/nodes/{node.name}"), ("Pod", stage.path(pod))):
        theirs = {
            "apiVersion": "v1", "kind": kind,
            "metadata": {"name": path.rpartition("/")[2], "annotations": {names.ENDS_AT: "2030-01-01T00:00:00Z"}},
        }  # fmt: skip
        stage.api.patch(path, theirs, APPLY, fieldManager="gitops")
    for write in (
        lambda: stage.cluster.announce_node_end(node.name, stage.now()),
        lambda: stage.cluster.announce_end(pod.uid, stage.now()),
    ):
        with pytest.raises(Refused, match="gitops") as refused:
            write()
        assert refused.value.code == "field-conflict"
    assert noted(stage.raw(pod))[names.ENDS_AT] == "2030-01-01T00:00:00Z"


@pytest.mark.parametrize("rival", ["gitops", "scaler"])
def test_replicas_that_somebody_else_minds_are_refused(stage: KubeStage, rival: str) -> None:
    stage.ready_node()
    workload = stage.service("chat", 1)
    path = f"/apis/apps/v1/namespaces/{stage.namespace}/deployments/chat"
    if rival == "scaler":
        stage.api.patch(f"{path}/scale", {"spec": {"replicas": 2}}, fieldManager="scaler")
    else:
        theirs = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat"}}
        stage.api.patch(path, {**theirs, "spec": {"replicas": 2}}, APPLY, fieldManager="gitops", force="true")
    with pytest.raises(Refused, match=rival) as refused:
        stage.cluster.scale(workload, 4, 2, ())
    assert refused.value.code == "field-conflict"
    assert stage.api.get(path)["spec"]["replicas"] == 2
    stage.cluster.restart(workload, "cr-1@noon")  # the template is another matter


def test_writes_go_through_while_others_write_to_the_same_object(stage: KubeStage) -> None:
    node = stage.fresh_node()
    done = threading.Event()

    def disturb() -> None:
        other = stage.api
        for number in range(10_000):
            if done.is_set():
                return
            labels = {"metadata": {"labels": {"disturbed": str(number)}}}
            other.patch(f"/api/v1/nodes/{node.name}", labels)
            time.sleep(0.02)

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        for _ in range(5):
            stage.cluster.start_drain(node.name, DrainReason(DrainKind.EMPTY))
            stage.cluster.cancel_drain(node.name)
        stage.cluster.mark_ready(node.name)
    finally:
        done.set()
        disturber.join()
    taints = stage.api.get(f"/api/v1/nodes/{node.name}")["spec"].get("taints", [])
    assert not [taint for taint in taints if taint["key"].startswith(names.GROUP)]


def test_the_taints_and_tolerations_of_others_stay(stage: KubeStage) -> None:
    node = stage.fresh_node()
    theirs = {"key": "maintenance", "value": "x", "effect": "NoSchedule"}
    taints = stage.api.get(f"/api/v1/nodes/{node.name}")["spec"]["taints"]
    stage.api.patch(f"/api/v1/nodes/{node.name}", {"spec": {"taints": [*taints, theirs]}})
    stage.cluster.mark_ready(node.name)
    stage.cluster.start_drain(node.name, DrainReason(DrainKind.EMPTY))
    stage.cluster.cancel_drain(node.name)
    assert stage.api.get(f"/api/v1/nodes/{node.name}")["spec"]["taints"] == [theirs]
    pod = stage.gated_pod("solo")
    before = stage.raw(pod)
    stage.cluster.admit([pod.uid], SOURCE, None)
    after = stage.raw(pod)
    assert before is not None
    assert after is not None
    ours = len(TOLERATED)
    assert after["spec"]["tolerations"][:-ours] == before["spec"]["tolerations"]


# --- events --------------------------------------------------------------------------------------------


def test_events_are_on_the_objects_they_are_about(stage: KubeStage) -> None:
    node, pod = stage.ready_node(), stage.gated_pod("solo")
    now = [0.0]
    recorder = EventRecorder(stage.kube_api, instance="engine-0", monotonic=lambda: now[0])
    node_uid = stage.api.get(f"/api/v1/nodes/{node.name}")["metadata"]["uid"]
    subjects = (Subject("Pod", pod.name, pod.namespace, pod.uid), Subject("Node", node.name, uid=node_uid))
    for _ in range(2):
        for subject in subjects:
            recorder.tell(subject, "Held", "no room before noon", action="Admit")
        recorder.start()
        recorder.stop()
        now[0] += 601
    assert (recorder.sent, recorder.dropped) == (4, 0)
    for namespace, kind in ((pod.namespace, "Pod"), ("default", "Node")):
        found = stage.api.items(
            f"/api/v1/namespaces/{namespace}/events", fieldSelector=f"involvedObject.kind={kind}"
        )
        (event,) = [each for each in found if each["reason"] == "Held"]
        assert (event["message"], event["series"]["count"]) == ("no room before noon", 2)


def test_what_was_decided_of_a_node_is_not_done_to_the_next_one_with_its_name(stage: KubeStage) -> None:
    """A name follows from an address, and the address of an instance that is gone may be the next one's."""
    pod = stage.running_job_pod()
    before = next(node for node in stage.cluster.view().nodes if node.name == pod.node)
    found = stage.api.get(f"/api/v1/nodes/{pod.node}")
    provider_id = found["spec"]["providerID"].replace(before.instance_id, "i-0123456789abcdef0")
    meta = {"name": pod.node, "labels": found["metadata"]["labels"]}
    stage.api.delete(f"/api/v1/nodes/{pod.node}")
    stage.api.create("/api/v1/nodes", {"metadata": meta, "spec": {"providerID": provider_id}})
    time.sleep(0.5)  # the reader knows; what was decided was decided before
    ends = DrainReason(DrainKind.SOURCE_ENDS, at=stage.now(), name="cr-1")
    for write in (
        lambda: stage.cluster.remove_node(pod.node),
        lambda: stage.cluster.start_drain(pod.node, ends),
        lambda: stage.cluster.announce_node_end(pod.node, stage.now()),
    ):
        with pytest.raises(Gone, match="i-0123456789abcdef0 now"):
            write()
    left = stage.api.get(f"/api/v1/nodes/{pod.node}")
    assert "taints" not in left["spec"] or all(
        taint["key"] != names.TAINT_DRAINING for taint in left["spec"]["taints"]
    )
    stage.cluster.view()
    stage.cluster.remove_node(pod.node)  # decided anew
