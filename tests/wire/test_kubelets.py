"""Simulated kubelets: pods that are bound to a booted node run, end and die as on a real one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.wire.kube_stand_in import StandIn, eventually
from tests.wire.server_builder import OURS, SimulatedAws, on_block, specs
from tests.wire.test_boot import ARCHIVE
from tidemill.sim.wire.data_plane.api_client import KubeApi
from tidemill.sim.wire.data_plane.pod_spec import read_pod
from tidemill.spec import names


@pytest.fixture
def api() -> Iterator[StandIn]:
    made = StandIn()
    yield made
    made.close()


@pytest.fixture
def aws(api: StandIn) -> Iterator[SimulatedAws]:
    made = SimulatedAws(kube=KubeApi(api.url))
    yield made
    made.stop()


@pytest.fixture
def node(aws: SimulatedAws, api: StandIn) -> str:
    """A p5.48xlarge with its eight GPUs."""
    aws.run(**on_block(aws.block().id), UserData=ARCHIVE, TagSpecifications=specs("instance", OURS))
    aws.wait("10m")
    (name,) = api.nodes
    return name


class Pods:
    """Pods as a test looks at them: what their objects say, and what the kubelets recorded."""

    def __init__(self, aws: SimulatedAws, api: StandIn) -> None:
        self._aws, self._api = aws, api

    def seen(self, name: str) -> None:
        """The kubelet knows of the pod."""
        eventually(lambda: [row for row in self.rows() if row["pod"] == f"default/{name}"])

    def told(self, name: str) -> None:
        """The kubelet saw that the pod is to go."""
        eventually(lambda: self.row(name)["toldAt"])

    def rows(self) -> list[dict[str, Any]]:
        pods: list[dict[str, Any]] = self._aws.admin("kubelets")["pods"]
        return pods

    def row(self, name: str) -> dict[str, Any]:
        return [row for row in self.rows() if row["pod"] == f"default/{name}"][-1]

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self._api.pods[f"default/{name}"]["status"]
        return status

    def phase(self, name: str) -> str:
        return str(self.status(name)["phase"])

    def ready(self, name: str) -> bool:
        conditions = self.status(name).get("conditions", [])
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


@pytest.fixture
def pods(aws: SimulatedAws, api: StandIn) -> Pods:
    return Pods(aws, api)


def started(aws: SimulatedAws, api: StandIn, pods: Pods, name: str, node: str, **given: Any) -> None:
    api.add_pod(name, node, **given)
    pods.seen(name)
    aws.wait("20s")


def test_a_pod_starts_within_seconds_and_succeeds_after_its_duration(
    aws: SimulatedAws, api: StandIn, pods: Pods, node: str
):
    started(aws, api, pods, "train", node, gpus=8, duration="10m")
    assert pods.phase("train") == "Running"
    assert pods.ready("train")
    container = pods.status("train")["containerStatuses"][0]
    began = datetime.fromisoformat(container["state"]["running"]["startedAt"])
    assert abs(began - datetime.now(UTC)) < timedelta(seconds=10)  # wall time
    aws.wait("10m")
    assert pods.phase("train") == "Succeeded"
    row = pods.row("train")
    assert (row["end"], row["fullGrace"]) == ("succeeded", True)
    took = datetime.fromisoformat(row["endedAt"]) - datetime.fromisoformat(row["startedAt"])
    assert took == timedelta(minutes=10)  # virtual time


def test_pods_of_other_nodes_are_left_alone(aws: SimulatedAws, api: StandIn, pods: Pods, node: str):
    api.add_pod("stranger", "another-node")
    started(aws, api, pods, "ours", node)
    assert [row["pod"] for row in pods.rows()] == ["default/ours"]
    assert pods.phase("stranger") == "Pending"


def test_a_pod_bound_before_the_gpus_registered_is_refused(aws: SimulatedAws, api: StandIn, pods: Pods):
    aws.run(**on_block(aws.block().id), UserData=ARCHIVE)
    aws.admin("faults", {"fault": "gpus-never-register"})
    aws.wait("6m")
    (name,) = api.nodes
    api.add_pod("early", name, gpus=8)
    eventually(lambda: pods.phase("early") == "Failed")
    assert pods.status("early")["reason"] == "OutOfnvidia.com/gpu"
    assert pods.row("early")["end"] == "refused"


def test_a_pod_for_which_there_is_no_room_is_refused(aws: SimulatedAws, api: StandIn, pods: Pods, node: str):
    started(aws, api, pods, "first", node, gpus=5, duration="10m")
    api.add_pod("second", node, gpus=4)
    eventually(lambda: pods.phase("second") == "Failed")
    assert "requested: 4, used: 5, capacity: 8" in pods.status("second")["message"]
    aws.wait("11m")  # the first is over and its room is free
    started(aws, api, pods, "third", node, gpus=8)
    assert pods.phase("third") == "Running"


def test_a_service_is_ready_when_it_has_loaded(aws: SimulatedAws, api: StandIn, pods: Pods, node: str):
    notes = {names.LOAD_TIME: "5m"}
    started(aws, api, pods, "chat", node, restarts="Always", owner="ReplicaSet/chat", **notes)
    assert pods.phase("chat") == "Running"
    assert not pods.ready("chat")
    aws.wait("5m")
    assert pods.ready("chat")


def test_a_deleted_pod_stops_within_its_grace_and_is_removed(
    aws: SimulatedAws, api: StandIn, pods: Pods, node: str
):
    started(aws, api, pods, "train", node, grace_s=600)
    api.delete_pod("train", 600)
    pods.told("train")
    aws.wait("2m")
    assert pods.phase("train") == "Running"  # no pod takes less than three tenths of it
    aws.wait("8m")
    assert "default/train" not in api.pods
    row = pods.row("train")
    assert (row["end"], row["fullGrace"], row["graceGivenS"]) == ("stopped", True, 600)
    assert 180 <= row["graceHadS"] <= 600


def test_a_second_deletion_hastens_the_first(aws: SimulatedAws, api: StandIn, pods: Pods, node: str):
    started(aws, api, pods, "train", node, grace_s=3600, stops_after="1h")
    api.delete_pod("train", 3600)
    pods.told("train")
    api.delete_pod("train", 60)
    eventually(lambda: pods.row("train")["graceGivenS"] == 60)
    aws.wait("1m")
    assert "default/train" not in api.pods
    row = pods.row("train")
    assert (row["end"], row["fullGrace"]) == ("stopped", False)
    assert [each["pod"] for each in aws.admin("kubelets")["withoutFullGrace"]] == ["default/train"]


def test_a_pod_that_never_ran_goes_at_once(aws: SimulatedAws, api: StandIn, pods: Pods, node: str):
    api.add_pod("train", node, grace_s=600)
    pods.seen("train")
    api.delete_pod("train", 600)
    eventually(lambda: "default/train" not in api.pods)
    assert pods.row("train")["fullGrace"]


def test_a_pod_deleted_by_force_had_no_grace(aws: SimulatedAws, api: StandIn, pods: Pods, node: str):
    started(aws, api, pods, "train", node, grace_s=600)
    api.delete_pod("train", 0)
    eventually(lambda: pods.row("train")["end"] == "removed")
    assert not pods.row("train")["fullGrace"]


@pytest.mark.requirement("CB-10")
def test_pods_of_a_terminated_instance_die_without_a_word_and_are_recorded(
    aws: SimulatedAws, api: StandIn, pods: Pods, node: str
):
    started(aws, api, pods, "train", node, grace_s=600)
    started(aws, api, pods, "agent", node, owner="DaemonSet/agent", restarts="Always")
    started(aws, api, pods, "leaving", node, grace_s=600, stops_after="10m")
    api.delete_pod("leaving", 600)
    pods.told("leaving")
    aws.wait("100s")
    aws.admin("faults", {"fault": "node-dies"})
    aws.wait("2m")
    assert pods.phase("train") == "Running"  # nobody was there to say otherwise
    died = {row["pod"]: row for row in aws.admin("kubelets")["diedWithInstance"]}
    assert set(died) == {"default/train", "default/leaving"}
    assert died["default/train"]["graceHadS"] == 0
    assert died["default/leaving"]["graceHadS"] == 100
    assert not died["default/leaving"]["fullGrace"]
    assert "hardware" in died["default/train"]["why"]


def test_a_failing_job_fails_as_often_as_it_says(aws: SimulatedAws, api: StandIn, pods: Pods, node: str):
    for name in ("one", "two", "three"):
        started(
            aws, api, pods, name, node, owner="Job/train", duration="10m", fails="after=1m,exit=3,times=2"
        )
        aws.wait("10m")
    assert [pods.phase(name) for name in ("one", "two", "three")] == ["Failed", "Failed", "Succeeded"]
    ended = pods.status("one")["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")


def test_a_container_is_restarted_as_its_policy_says(aws: SimulatedAws, api: StandIn, pods: Pods, node: str):
    started(aws, api, pods, "web", node, restarts="OnFailure", duration="5m", fails="after=1m,times=1")
    while pods.ready("web"):
        aws.wait("5s")
    assert pods.status("web")["containerStatuses"][0]["state"] == {"waiting": {"reason": "CrashLoopBackOff"}}
    aws.wait("15s")
    assert pods.ready("web")
    assert pods.status("web")["containerStatuses"][0]["restartCount"] == 1
    aws.wait("5m")
    assert pods.phase("web") == "Succeeded"


@pytest.mark.requirement("CB-11")
def test_a_checkpoint_request_is_acknowledged_after_its_time(
    aws: SimulatedAws, api: StandIn, pods: Pods, node: str
):
    notes = {names.CHECKPOINT_TIME: "2m"}
    started(aws, api, pods, "train", node, acknowledges="true", **notes)
    started(aws, api, pods, "deaf", node, **notes)
    for name in ("train", "deaf"):
        api.annotate(name, names.CHECKPOINT_REQUESTED, "2026-11-16T07:00:00.000000Z")
    time.sleep(0.2)
    aws.wait("1m")
    assert names.CHECKPOINT_DONE not in api.pods["default/train"]["metadata"]["annotations"]
    aws.wait("2m")
    done = api.pods["default/train"]["metadata"]["annotations"][names.CHECKPOINT_DONE]
    assert abs(datetime.fromisoformat(done) - datetime.now(UTC)) < timedelta(seconds=10)
    assert names.CHECKPOINT_DONE not in api.pods["default/deaf"]["metadata"]["annotations"]


def test_a_job_that_writes_checkpoints_goes_on_where_it_was(
    aws: SimulatedAws, api: StandIn, pods: Pods, node: str
):
    given: dict[str, Any] = {"owner": "Job/train", "duration": "1h", names.CHECKPOINT_EVERY: "10m"}
    started(aws, api, pods, "first", node, **given)
    aws.wait("35m")
    api.delete_pod("first", 1)
    pods.told("first")
    aws.wait("5s")
    started(aws, api, pods, "second", node, **given)
    aws.wait("29m")
    assert pods.phase("second") == "Running"
    aws.wait("2m")
    assert pods.phase("second") == "Succeeded"


def test_a_broken_gpu_takes_one_pod_with_it(aws: SimulatedAws, api: StandIn, pods: Pods, node: str):
    started(aws, api, pods, "a-cpu", node)
    started(aws, api, pods, "b-gpu", node, gpus=1)
    started(aws, api, pods, "c-gpu", node, gpus=1)
    aws.admin("faults", {"fault": "gpu-fails"})
    aws.wait("1s")
    assert [pods.phase(name) for name in ("a-cpu", "b-gpu", "c-gpu")] == ["Running", "Failed", "Running"]
    assert "Xid 79" in pods.status("b-gpu")["message"]


@pytest.mark.parametrize("compacted", [False, True], ids=["cut", "compacted"])
def test_a_watch_that_was_cut_misses_no_deletion(
    aws: SimulatedAws, api: StandIn, pods: Pods, node: str, compacted: bool
):
    started(aws, api, pods, "train", node)
    api.cut_watches()
    api.delete_pod("train", 0)
    if compacted:
        api.forget_history()
    started(aws, api, pods, "next", node)
    assert pods.phase("next") == "Running"
    assert pods.row("train")["end"] == "removed"


def test_another_pod_of_the_same_name_is_not_taken_for_the_first(
    aws: SimulatedAws, api: StandIn, pods: Pods, node: str
):
    started(aws, api, pods, "web-0", node, owner="StatefulSet/web", restarts="Always")
    first = pods.row("web-0")["uid"]
    api.delete_pod("web-0", 30)
    pods.told("web-0")
    aws.wait("30s")
    eventually(lambda: "default/web-0" not in api.pods)
    api.add_pod("web-0", node, owner="StatefulSet/web", restarts="Always")
    eventually(lambda: pods.row("web-0")["uid"] != first)
    aws.wait("20s")
    assert pods.phase("web-0") == "Running"


def test_the_same_seed_starts_a_pod_at_the_same_instant(api: StandIn):
    starts = []
    for _ in range(2):
        aws = SimulatedAws(kube=KubeApi(api.url))
        aws.run(**on_block(aws.block().id), UserData=ARCHIVE)
        aws.wait("10m")
        (name,) = api.nodes
        api.add_pod("train", name)
        pods = Pods(aws, api)
        started(aws, api, pods, "other", name)
        starts.append(pods.row("train")["startedAt"])
        aws.stop()
        api.nodes.clear()
        api.pods.clear()
    assert starts[0] == starts[1]


@pytest.mark.parametrize(
    ("written", "says"),
    [("after=soon", None), ("often", None), ("exit=x", None), ("", 1), ("exit=7", 7), ("true", 1)],
)
def test_a_failure_that_cannot_be_read_says_nothing(written: str, says: int | None):
    meta = {"uid": "u", "namespace": "n", "name": "p", "annotations": {"sim.tidemill.dev/fails": written}}
    spec = read_pod({"metadata": meta, "spec": {"containers": [{"name": "c"}]}})
    assert (spec.failure and spec.failure.exit_code) == says


def test_requests_are_counted_as_the_scheduler_counts_them():
    def container(cpu: str, memory: str = "1Gi", **more: Any) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}

    spec = {
        "containers": [container("500m"), container("1")],
        "initContainers": [container("250m", restartPolicy="Always"), container("1", "8Gi")],
        "overhead": {"cpu": "100m"},
    }
    read = read_pod({"metadata": {"uid": "u", "namespace": "n", "name": "p"}, "spec": spec})
    assert read.requests == {"cpu": 1850, "memory": 8 * 2**30}
