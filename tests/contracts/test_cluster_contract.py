"""What every implementation of `ports.Cluster` must do.

A `Backend` is a cluster plus the few things a test must be able to bring about in it. Another implementation
joins by adding its backend to `BACKENDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

import pytest

from tests.sim.simulated_cluster import BLOCK, SimulatedCluster
from tidemill.model.errors import Gone
from tidemill.model.nodes import KubeNode
from tidemill.model.pods import Pod, Workload
from tidemill.model.reasons import DrainKind, DrainReason
from tidemill.ports import Cluster
from tidemill.spec import names


class Backend(Protocol):
    @property
    def cluster(self) -> Cluster: ...

    def fresh_node(self) -> KubeNode:
        """A node that joined, registered and passed its check, not opened yet."""
        ...

    def gated_job_pod(self) -> Pod: ...

    def running_job_pod(self) -> Pod:
        """Of a Job that is re-created when lost, with a grace of 60 s."""
        ...

    def service_at_its_minimum(self) -> Pod: ...

    def rolling_service(self) -> str:
        """A ready service of two replicas that may surge by one, with room for as many more: its workload."""
        ...

    def settle(self, duration: timedelta) -> None: ...


class SimBackend:
    def __init__(self) -> None:
        self._stage = SimulatedCluster()
        self.cluster: Cluster = self._stage.cluster

    def fresh_node(self) -> KubeNode:
        self._stage.launch("i-fresh")
        self._stage.pass_time("10m")
        return self._stage.node("i-fresh")

    def gated_job_pod(self) -> Pod:
        return self._stage.submit("gated")[0]

    def running_job_pod(self) -> Pod:
        self._stage.ready_nodes("i-run")
        return self._stage.run_job("run", grace="60s")[0]

    def service_at_its_minimum(self) -> Pod:
        self._stage.ready_nodes("i-serve")
        self._stage.serve(replicas=1, minAvailable=1)
        self.settle(timedelta(minutes=1))
        return self._stage.pods_of("Deployment/chat")[0]

    def rolling_service(self) -> str:
        self._stage.ready_nodes("i-old", "i-new")
        self._stage.serve(
            "roll", replicas=2, handover={"method": "rollout", "maxSurge": 1, "maxUnavailable": 0}
        )
        self.settle(timedelta(minutes=1))
        return "Deployment/roll"

    def settle(self, duration: timedelta) -> None:
        self._stage.timeline.advance(self._stage.now + duration)


BACKENDS: dict[str, Callable[[], Backend]] = {"simulated": SimBackend}


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest) -> Backend:
    return BACKENDS[request.param]()


def pod_now(backend: Backend, uid: str) -> Pod:
    return next(pod for pod in backend.cluster.view().pods if pod.uid == uid)


def test_unchanged_objects_keep_their_identity_between_readings(backend: Backend) -> None:
    backend.running_job_pod()
    before, after = backend.cluster.view(), backend.cluster.view()
    assert all(one is other for one, other in zip(before.nodes, after.nodes, strict=True))
    assert all(one is other for one, other in zip(before.pods, after.pods, strict=True))
    backend.gated_job_pod()
    grown = backend.cluster.view()
    assert grown.pods[: len(after.pods)] == after.pods
    assert all(one is other for one, other in zip(after.pods, grown.pods, strict=False))


def test_nodes_come_by_name_and_pods_by_age(backend: Backend) -> None:
    backend.running_job_pod()
    backend.fresh_node()
    backend.gated_job_pod()
    view = backend.cluster.view()
    assert [node.name for node in view.nodes] == sorted(node.name for node in view.nodes)
    assert [pod.created_at for pod in view.pods] == sorted(pod.created_at for pod in view.pods)


def test_admission_takes_the_gate_off_pins_the_source_and_announces_the_end_in_one_step(
    backend: Backend,
) -> None:
    pod = backend.gated_job_pod()
    ends_at = pod.created_at + timedelta(hours=5)
    backend.cluster.admit(pod.uid, BLOCK.label, ends_at)
    admitted = pod_now(backend, pod.uid)
    assert (admitted.gated, admitted.pinned_to, admitted.ends_at) == (False, BLOCK.label, ends_at)
    assert admitted.shape == pod.shape
    backend.cluster.admit(pod.uid, BLOCK.label, ends_at)
    assert pod_now(backend, pod.uid).pinned_to == BLOCK.label


def test_marking_ready_removes_the_startup_taint_once_and_for_all(backend: Backend) -> None:
    node = backend.fresh_node()
    assert names.TAINT_STARTUP in {taint.key for taint in node.taints}
    for _ in range(2):
        backend.cluster.mark_ready(node.name)
        (now,) = [each for each in backend.cluster.view().nodes if each.name == node.name]
        assert names.TAINT_STARTUP not in {taint.key for taint in now.taints}


def test_the_first_instant_and_reason_of_a_drain_stay(backend: Backend) -> None:
    name = backend.fresh_node().name

    def draining() -> KubeNode:
        return next(node for node in backend.cluster.view().nodes if node.name == name)

    reason = DrainReason(DrainKind.SOURCE_ENDS, at=datetime(2026, 11, 17, 11, tzinfo=UTC), name="cr-1")
    backend.cluster.start_drain(name, reason)
    first = draining()
    backend.settle(timedelta(minutes=5))
    backend.cluster.start_drain(name, DrainReason(DrainKind.EMPTY, idle=timedelta(hours=1)))
    assert draining() == first
    assert first.draining_since is not None
    assert first.drain_reason == reason
    (taint,) = [taint for taint in first.taints if taint.key == names.TAINT_DRAINING]
    assert (taint.effect, taint.value) == ("NoSchedule", "source-ends")


def test_an_announced_end_can_move(backend: Backend) -> None:
    pod = backend.running_job_pod()
    for hours in (5, 29):
        ends_at = pod.created_at + timedelta(hours=hours)
        backend.cluster.announce_end(pod.uid, ends_at)
        assert pod_now(backend, pod.uid).ends_at == ends_at


def test_the_announced_end_of_a_node_can_move(backend: Backend) -> None:
    node = backend.fresh_node()
    for hours in (5, 29):
        ends_at = node.joined_at + timedelta(hours=hours)
        backend.cluster.announce_node_end(node.name, ends_at)
        (now,) = [each for each in backend.cluster.view().nodes if each.name == node.name]
        assert now.ends_at == ends_at


def test_an_open_checkpoint_request_keeps_its_instant(backend: Backend) -> None:
    pod = backend.running_job_pod()
    backend.cluster.request_checkpoint(pod.uid)
    first = pod_now(backend, pod.uid).checkpoint_requested_at
    backend.settle(timedelta(seconds=10))
    backend.cluster.request_checkpoint(pod.uid)
    assert pod_now(backend, pod.uid).checkpoint_requested_at == first is not None


def test_an_eviction_gives_the_pods_own_grace_and_its_controller_makes_another(backend: Backend) -> None:
    pod = backend.running_job_pod()
    assert backend.cluster.evict(pod.uid)
    assert backend.cluster.evict(pod.uid), "asking again changes nothing"
    assert pod_now(backend, pod.uid).deleting_until is not None
    backend.settle(timedelta(seconds=61))
    (successor,) = [each for each in backend.cluster.view().pods if each.workload == pod.workload]
    assert successor.uid != pod.uid
    assert successor.gated


def test_a_disruption_budget_holds_an_eviction_back_but_not_a_deletion(backend: Backend) -> None:
    pod = backend.service_at_its_minimum()
    (budget,) = backend.cluster.view().budgets
    assert (budget.workload, budget.allowed) == (pod.workload, 0)
    assert not backend.cluster.evict(pod.uid)
    assert pod_now(backend, pod.uid).deleting_until is None
    backend.cluster.delete(pod.uid, 5, disruption=True)
    backend.settle(timedelta(seconds=6))
    assert all(each.uid != pod.uid for each in backend.cluster.view().pods)


def test_a_removed_node_is_gone_with_its_pods(backend: Backend) -> None:
    pod = backend.running_job_pod()
    backend.cluster.remove_node(pod.node)
    view = backend.cluster.view()
    assert all(node.name != pod.node for node in view.nodes)
    assert all(each.node != pod.node for each in view.pods)


@pytest.mark.parametrize(
    "write",
    [
        lambda cluster: cluster.admit("no-such-uid", "cr-1", None),
        lambda cluster: cluster.mark_ready("no-such-node"),
        lambda cluster: cluster.start_drain("no-such-node", "why"),
        lambda cluster: cluster.announce_end("no-such-uid", None),
        lambda cluster: cluster.announce_node_end("no-such-node", None),
        lambda cluster: cluster.request_checkpoint("no-such-uid"),
        lambda cluster: cluster.evict("no-such-uid"),
        lambda cluster: cluster.delete("no-such-uid", None, disruption=False),
        lambda cluster: cluster.remove_node("no-such-node"),
    ],
)
def test_every_write_to_what_is_not_there_says_gone(
    backend: Backend, write: Callable[[Cluster], object]
) -> None:
    with pytest.raises(Gone):
        write(backend.cluster)


def workload_now(backend: Backend, name: str) -> Workload:
    return next(workload for workload in backend.cluster.view().workloads if workload.name == name)


def pods_of(backend: Backend, name: str) -> set[str]:
    return {
        pod.uid for pod in backend.cluster.view().pods if pod.workload == name and pod.deleting_until is None
    }


def test_a_restart_replaces_every_pod_once_for_each_token(backend: Backend) -> None:
    name = backend.rolling_service()
    before = pods_of(backend, name)
    backend.cluster.restart(name, "cr-1@noon")
    assert workload_now(backend, name).restarted_for == "cr-1@noon"
    backend.settle(timedelta(minutes=5))
    after = pods_of(backend, name)
    assert len(after) == 2
    assert not before & after
    backend.cluster.restart(name, "cr-1@noon")
    backend.settle(timedelta(minutes=5))
    assert pods_of(backend, name) == after


def test_scaling_notes_what_was_added_and_takes_the_named_pods_first(backend: Backend) -> None:
    name = backend.rolling_service()
    before = pods_of(backend, name)
    for _ in range(2):
        backend.cluster.scale(name, 4, 2, ())
    backend.settle(timedelta(minutes=5))
    assert (workload_now(backend, name).ready, workload_now(backend, name).added) == (4, 2)
    for _ in range(2):
        backend.cluster.scale(name, 2, 0, sorted(before))
    backend.settle(timedelta(minutes=5))
    assert (workload_now(backend, name).replicas, workload_now(backend, name).added) == (2, 0)
    assert len(pods_of(backend, name)) == 2
    assert not pods_of(backend, name) & before


def test_a_missing_workload_can_be_neither_restarted_nor_scaled(backend: Backend) -> None:
    with pytest.raises(Gone):
        backend.cluster.restart("Deployment/nobody", "x")
    with pytest.raises(Gone):
        backend.cluster.scale("Deployment/nobody", 1, 0, ())
