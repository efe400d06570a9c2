"""What every implementation of `ports.Cluster` must do.

`test_cluster_contract.py` runs it on the simulated cluster, its namesake in `tests/cluster` on a real API server. A
`Backend` is a cluster plus the few things a test must be able to bring about in it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

import pytest

from tidemill.model.errors import Gone
from tidemill.model.nodes import KubeNode
from tidemill.model.pods import Pod, PodPhase, Workload
from tidemill.model.reasons import DrainKind, DrainReason
from tidemill.ports import Cluster
from tidemill.spec import names

SOURCE = "cr-0a1b2c3d4e5f60718"  # whose nodes the backends have
POOL = "p5"
GRACE = timedelta(seconds=60)


class Backend(Protocol):
    wakes: list[str]

    @property
    def cluster(self) -> Cluster: ...

    def now(self) -> datetime: ...

    def settle(self, duration: timedelta) -> None:
        """Let so much time pass, and whatever is under way come to rest."""
        ...

    # --- nodes ---

    def joined_node(self) -> KubeNode:
        """A node of the pool and the source that has just joined: no accelerator is registered yet."""
        ...

    def register(self, node: KubeNode) -> None:
        """Its device plugin reports, and its check passes."""
        ...

    def fresh_node(self) -> KubeNode:
        """A node that joined, registered and passed its check, not opened yet."""
        ...

    def lose(self, node: str) -> None:
        """It turns NotReady."""
        ...

    # --- pods ---

    def gated_job_pod(self) -> Pod:
        """Of a Job of one pod. Each call is another Job of the same template."""
        ...

    def gated_gang(self) -> list[Pod]:
        """Two pods that start together or not at all, with a ready node each."""
        ...

    def bound_pod(self, ends_at: datetime | None) -> Pod:
        """Of a Job, admitted to the source with this end, bound to a node and not started yet."""
        ...

    def running_job_pod(self) -> Pod:
        """Of a Job that is re-created when lost, with a grace of 60 s. It can write checkpoints."""
        ...

    def acknowledge(self, pod: Pod) -> None:
        """The pod has written the checkpoint it was asked for."""
        ...

    def crash(self, pod: Pod) -> None: ...

    def finish(self, pod: Pod) -> None:
        """Its work is done."""
        ...

    def failures(self, pod: Pod) -> int:
        """How many failures its Job has counted."""
        ...

    # --- services ---

    def service_at_its_minimum(self) -> Pod:
        """One replica, a grace of 60 s, and a disruption budget that needs it."""
        ...

    def rolling_service(self) -> str:
        """A ready service of two replicas that may surge by one, with room for as many more: its workload."""
        ...


def pod_now(backend: Backend, uid: str) -> Pod:
    return next(pod for pod in backend.cluster.view().pods if pod.uid == uid)


def admitted_now(backend: Backend, pod: Pod) -> Pod:
    """The pod; or, where its Job was held and had no pods, the one that the Job made in its place."""
    (found,) = [
        each for each in backend.cluster.view().pods if each.uid == pod.uid or each.workload == pod.workload
    ]
    return found


def node_now(backend: Backend, name: str) -> KubeNode:
    return next(node for node in backend.cluster.view().nodes if node.name == name)


def workload_now(backend: Backend, name: str) -> Workload:
    return next(workload for workload in backend.cluster.view().workloads if workload.name == name)


def pods_of(backend: Backend, name: str) -> set[str]:
    return {
        pod.uid for pod in backend.cluster.view().pods if pod.workload == name and pod.deleting_until is None
    }


def is_there(backend: Backend, uid: str) -> bool:
    return any(pod.uid == uid for pod in backend.cluster.view().pods)


# --- the view ------------------------------------------------------------------------------------------


def test_unchanged_objects_keep_their_identity_between_readings(backend: Backend) -> None:
    backend.running_job_pod()
    before, after = backend.cluster.view(), backend.cluster.view()
    assert all(one is other for one, other in zip(before.nodes, after.nodes, strict=True))
    assert all(one is other for one, other in zip(before.pods, after.pods, strict=True))
    backend.gated_job_pod()
    grown = backend.cluster.view()
    assert grown.pods[: len(after.pods)] == after.pods
    assert all(one is other for one, other in zip(after.pods, grown.pods, strict=False))


def test_pods_by_node_keeps_the_tuples_of_nodes_where_nothing_changed(backend: Backend) -> None:
    pod = backend.running_job_pod()
    before = backend.cluster.view().pods_by_node
    assert [each.uid for each in before[pod.node] if not each.daemon] == [pod.uid]
    other = backend.running_job_pod()
    after = backend.cluster.view().pods_by_node
    assert other.node != pod.node
    assert after[pod.node] is before[pod.node]
    assert other in after[other.node]


def test_nodes_come_by_name_and_pods_by_age(backend: Backend) -> None:
    backend.running_job_pod()
    backend.fresh_node()
    backend.gated_job_pod()
    view = backend.cluster.view()
    assert [node.name for node in view.nodes] == sorted(node.name for node in view.nodes)
    assert [pod.created_at for pod in view.pods] == sorted(pod.created_at for pod in view.pods)


def test_pods_of_one_template_share_one_shape_and_one_terms_object(backend: Backend) -> None:
    one, other = backend.gated_job_pod(), backend.gated_job_pod()
    assert one.uid != other.uid
    assert one.shape is other.shape
    assert one.terms == other.terms
    first, second = backend.gated_gang()
    assert first.shape is second.shape
    assert first.terms is second.terms


def test_finished_pods_are_left_out(backend: Backend) -> None:
    pod = backend.running_job_pod()
    backend.finish(pod)
    assert not is_there(backend, pod.uid)
    assert all(each.workload != pod.workload for each in backend.cluster.view().pods)


# --- what wakes the engine -----------------------------------------------------------------------------


@pytest.fixture
def quiet(backend: Backend) -> Callable[[], None]:
    def begin() -> None:
        backend.settle(timedelta(seconds=30))
        backend.wakes.clear()

    return begin


def test_a_pod_that_is_made_fails_or_goes_wakes(backend: Backend, quiet: Callable[[], None]) -> None:
    quiet()
    backend.gated_job_pod()
    backend.settle(timedelta(seconds=1))
    assert backend.wakes
    crashing, deleted = backend.running_job_pod(), backend.running_job_pod()
    quiet()
    backend.crash(crashing)
    backend.settle(timedelta(seconds=5))
    assert backend.wakes
    quiet()
    backend.cluster.delete(deleted.uid, 1, disruption=True)
    backend.settle(timedelta(seconds=10))
    assert backend.wakes


def test_an_acknowledged_checkpoint_wakes(backend: Backend, quiet: Callable[[], None]) -> None:
    pod = backend.running_job_pod()
    backend.cluster.request_checkpoint(pod.uid)
    quiet()
    backend.acknowledge(pod)
    backend.settle(timedelta(seconds=1))
    assert backend.wakes


def test_a_pod_that_is_bound_wakes_only_if_it_does_not_know_its_end(
    backend: Backend, quiet: Callable[[], None]
) -> None:
    backend.bound_pod(None)
    assert any("bound" in why for why in backend.wakes)
    backend.settle(timedelta(minutes=1))
    backend.wakes.clear()
    backend.bound_pod(backend.now() + timedelta(hours=5))
    assert not any("bound" in why for why in backend.wakes)


def test_a_pod_that_merely_starts_does_not_wake(backend: Backend) -> None:
    pod = backend.bound_pod(backend.now() + timedelta(hours=5))
    backend.wakes.clear()
    backend.settle(timedelta(minutes=1))
    assert pod_now(backend, pod.uid).phase is PodPhase.RUNNING
    assert backend.wakes == []


def test_a_node_that_joins_registers_turns_not_ready_or_goes_wakes(
    backend: Backend, quiet: Callable[[], None]
) -> None:
    quiet()
    node = backend.joined_node()
    backend.settle(timedelta(seconds=1))
    assert backend.wakes
    backend.wakes.clear()
    backend.register(node)
    backend.settle(timedelta(seconds=1))
    assert backend.wakes
    assert node_now(backend, node.name).accelerators_registered_at is not None
    quiet()
    backend.lose(node.name)
    backend.settle(timedelta(seconds=1))
    assert backend.wakes
    assert not node_now(backend, node.name).ready
    quiet()
    backend.cluster.remove_node(node.name)
    backend.settle(timedelta(seconds=1))
    assert backend.wakes


def test_a_changed_ready_count_of_a_service_wakes(backend: Backend, quiet: Callable[[], None]) -> None:
    pod = backend.service_at_its_minimum()
    quiet()
    backend.cluster.delete(pod.uid, 1, disruption=True)
    backend.settle(timedelta(minutes=1))
    assert any("ready" in why for why in backend.wakes), backend.wakes


# --- admission -----------------------------------------------------------------------------------------


@pytest.mark.requirement("PE-3")
def test_admission_takes_the_gate_off_pins_the_source_and_announces_the_end_in_one_step(
    backend: Backend,
) -> None:
    pod = backend.gated_job_pod()
    ends_at = pod.created_at + timedelta(hours=5)
    backend.cluster.admit([pod.uid], SOURCE, ends_at)
    admitted = admitted_now(backend, pod)
    assert (admitted.gated, admitted.pinned_to, admitted.ends_at) == (False, SOURCE, ends_at)
    assert names.TAINT_HELD in {toleration.key for toleration in admitted.shape.tolerations}
    assert admitted.shape.requests == pod.shape.requests
    backend.cluster.admit([admitted.uid], SOURCE, ends_at)
    assert admitted_now(backend, pod).pinned_to == SOURCE


def test_admission_to_a_pool_pins_the_pool_as_well(backend: Backend) -> None:
    pod = backend.gated_job_pod()
    backend.cluster.admit([pod.uid], SOURCE, None, POOL)
    admitted = admitted_now(backend, pod)
    assert (names.LABEL_POOL, POOL) in admitted.shape.node_selector
    assert admitted.ends_at is None


def test_a_pod_without_our_gate_stays_as_it_is(backend: Backend) -> None:
    pod = backend.running_job_pod()
    backend.cluster.admit([pod.uid], "cr-another", pod.created_at + timedelta(hours=1), "another")
    assert pod_now(backend, pod.uid) == pod


def test_a_gang_is_admitted_whole(backend: Backend) -> None:
    gang = backend.gated_gang()
    assert [pod.gang.size for pod in gang if pod.gang is not None] == [2, 2]
    backend.cluster.admit([pod.uid for pod in gang], SOURCE, None)
    assert not any(pod.gated for pod in backend.cluster.view().pods)
    backend.settle(timedelta(minutes=1))
    running = [pod for pod in backend.cluster.view().pods if pod.workload == gang[0].workload]
    assert [pod.phase for pod in running] == [PodPhase.RUNNING] * 2
    assert len({pod.node for pod in running}) == 2
    assert all(pod.gang is not None and pod.gang.size == 2 for pod in running)


def test_where_one_of_a_gang_is_missing_none_is_admitted(backend: Backend) -> None:
    pod = backend.gated_job_pod()
    with pytest.raises(Gone):
        backend.cluster.admit([pod.uid, "no-such-uid"], SOURCE, None)
    assert pod_now(backend, pod.uid) == pod


# --- nodes ---------------------------------------------------------------------------------------------


def test_marking_ready_removes_the_startup_taint_once_and_for_all(backend: Backend) -> None:
    node = backend.fresh_node()
    assert names.TAINT_STARTUP in {taint.key for taint in node.taints}
    assert node.opened_at is None
    opened = set()
    for _ in range(2):
        backend.cluster.mark_ready(node.name)
        now = node_now(backend, node.name)
        assert names.TAINT_STARTUP not in {taint.key for taint in now.taints}
        opened.add(now.opened_at)
        backend.settle(timedelta(minutes=1))
    assert len(opened) == 1
    assert None not in opened


def test_the_first_instant_and_reason_of_a_drain_stay(backend: Backend) -> None:
    name = backend.fresh_node().name
    reason = DrainReason(DrainKind.SOURCE_ENDS, at=datetime(2026, 11, 17, 11, tzinfo=UTC), name="cr-1")
    backend.cluster.start_drain(name, reason)
    first = node_now(backend, name)
    backend.settle(timedelta(minutes=5))
    backend.cluster.start_drain(name, DrainReason(DrainKind.EMPTY, idle=timedelta(hours=1)))
    assert node_now(backend, name) == first
    assert first.draining_since is not None
    assert first.drain_reason == reason
    (taint,) = [taint for taint in first.taints if taint.key == names.TAINT_DRAINING]
    assert (taint.effect, taint.value) == ("NoSchedule", "source-ends")


def test_a_cancelled_drain_leaves_nothing_behind(backend: Backend) -> None:
    before = backend.fresh_node()
    backend.cluster.start_drain(before.name, DrainReason(DrainKind.DRIFTED_LABEL, name="a=b", pool=POOL))
    for _ in range(2):
        backend.cluster.cancel_drain(before.name)
        after = node_now(backend, before.name)
        assert (after.draining_since, after.drain_reason, after.taints) == (None, None, before.taints)
    second = DrainReason(DrainKind.EMPTY, idle=timedelta(hours=1))
    backend.cluster.start_drain(before.name, second)
    assert node_now(backend, before.name).drain_reason == second


def test_a_node_that_services_leave_is_kept_for_jobs_until_that_is_cancelled(backend: Backend) -> None:
    before, end = backend.fresh_node(), datetime(2026, 11, 17, 11, 0, tzinfo=UTC)
    for _ in range(2):
        backend.cluster.keep_for_jobs(before.name, end)
        after = node_now(backend, before.name)
        (taint,) = [taint for taint in after.taints if taint.key == names.TAINT_ENDING]
        assert (taint.effect, taint.value) == ("NoSchedule", "20261117T110000Z")
        assert after.draining_since is None
    backend.cluster.cancel_drain(before.name)
    assert node_now(backend, before.name).taints == before.taints


def test_the_announced_end_of_a_node_can_move(backend: Backend) -> None:
    node = backend.fresh_node()
    for hours in (5, 5, 29):
        ends_at = node.joined_at + timedelta(hours=hours)
        backend.cluster.announce_node_end(node.name, ends_at)
        assert node_now(backend, node.name).ends_at == ends_at


@pytest.mark.requirement("CB-10")
def test_a_node_can_be_ended_when_no_pod_is_bound_and_the_scheduler_has_seen_its_drain(
    backend: Backend,
) -> None:
    fresh, pod = backend.fresh_node(), backend.running_job_pod()
    (busy,) = [node for node in backend.cluster.view().nodes if node.name == pod.node]
    for node in (fresh, busy):
        backend.cluster.start_drain(node.name, DrainReason(DrainKind.EMPTY, idle=timedelta(hours=1)))
    for _ in range(10):
        if not backend.cluster.is_empty(fresh.instance_id):
            backend.settle(timedelta(minutes=1))
    assert backend.cluster.is_empty(fresh.instance_id)
    assert not backend.cluster.is_empty(busy.instance_id), "a pod is bound to it"
    assert backend.cluster.is_empty("i-0nobody"), "an instance without a node"


@pytest.mark.requirement("SM-9")
def test_a_removed_node_is_gone_with_its_pods(backend: Backend) -> None:
    pod = backend.running_job_pod()
    backend.cluster.remove_node(pod.node)
    view = backend.cluster.view()
    assert all(node.name != pod.node for node in view.nodes)
    assert all(each.node != pod.node for each in view.pods)
    with pytest.raises(Gone):
        backend.cluster.remove_node(pod.node)


# --- pods that leave -----------------------------------------------------------------------------------


def test_an_announced_end_can_move(backend: Backend) -> None:
    pod = backend.running_job_pod()
    for hours in (5, 5, 29):
        ends_at = pod.created_at + timedelta(hours=hours)
        backend.cluster.announce_end(pod.uid, ends_at)
        assert pod_now(backend, pod.uid).ends_at == ends_at


def test_an_end_announced_at_admission_can_move(backend: Backend) -> None:
    pod = backend.bound_pod(backend.now() + timedelta(hours=5))
    ends_at = pod.created_at + timedelta(hours=29)
    backend.cluster.announce_end(pod.uid, ends_at)
    assert pod_now(backend, pod.uid).ends_at == ends_at


@pytest.mark.requirement("CB-11")
def test_an_open_checkpoint_request_keeps_its_instant(backend: Backend) -> None:
    pod = backend.running_job_pod()
    backend.cluster.request_checkpoint(pod.uid)
    first = pod_now(backend, pod.uid).checkpoint_requested_at
    backend.settle(timedelta(seconds=10))
    backend.cluster.request_checkpoint(pod.uid)
    assert pod_now(backend, pod.uid).checkpoint_requested_at == first is not None


def test_after_an_acknowledgement_another_checkpoint_can_be_asked_for(backend: Backend) -> None:
    pod = backend.running_job_pod()
    backend.cluster.request_checkpoint(pod.uid)
    first = pod_now(backend, pod.uid).checkpoint_requested_at
    backend.acknowledge(pod)
    done = pod_now(backend, pod.uid)
    assert done.checkpoint_requested_at == first
    assert done.checkpoint_done_at is not None
    backend.settle(timedelta(minutes=1))
    backend.cluster.request_checkpoint(pod.uid)
    again = pod_now(backend, pod.uid)
    assert again.checkpoint_done_at is None
    assert first is not None
    assert again.checkpoint_requested_at is not None
    assert again.checkpoint_requested_at > first


def test_an_eviction_gives_the_pods_own_grace_and_its_controller_makes_another(backend: Backend) -> None:
    pod = backend.running_job_pod()
    began = backend.now()
    assert backend.cluster.evict(pod.uid)
    assert backend.cluster.evict(pod.uid), "asking again changes nothing"
    until = pod_now(backend, pod.uid).deleting_until
    assert until is not None
    # Kubernetes counts in whole seconds of wall time.
    assert began + GRACE - timedelta(minutes=1) <= until <= backend.now() + GRACE
    backend.settle(timedelta(seconds=61))
    (successor,) = [each for each in backend.cluster.view().pods if each.workload == pod.workload]
    assert successor.uid != pod.uid
    assert successor.gated
    assert backend.failures(pod) == 0


@pytest.mark.requirement("CB-12")
def test_a_disruption_budget_holds_an_eviction_back_but_not_a_deletion(backend: Backend) -> None:
    pod = backend.service_at_its_minimum()
    (budget,) = backend.cluster.view().budgets
    assert (budget.workload, budget.min_available, budget.allowed) == (pod.workload, 1, 0)
    assert not backend.cluster.evict(pod.uid)
    assert pod_now(backend, pod.uid).deleting_until is None
    backend.cluster.delete(pod.uid, 5, disruption=True)
    backend.settle(timedelta(seconds=6))
    assert not is_there(backend, pod.uid)


def test_a_forced_deletion_does_not_count_against_the_back_off_limit(backend: Backend) -> None:
    pod = backend.running_job_pod()
    backend.cluster.delete(pod.uid, 5, disruption=True)
    backend.settle(timedelta(seconds=30))
    assert not is_there(backend, pod.uid)
    assert backend.failures(pod) == 0
    (successor,) = [each for each in backend.cluster.view().pods if each.workload == pod.workload]
    assert successor.gated, "it is judged anew before it starts again"


def test_a_grace_can_be_shortened_and_never_extended(backend: Backend) -> None:
    pod = backend.service_at_its_minimum()
    began = backend.now()
    backend.cluster.delete(pod.uid, None, disruption=False)
    own = pod_now(backend, pod.uid).deleting_until
    assert own is not None
    assert began + GRACE - timedelta(minutes=1) <= own <= backend.now() + GRACE, "the pod's own"
    backend.cluster.delete(pod.uid, 600, disruption=False)
    assert pod_now(backend, pod.uid).deleting_until == own
    backend.cluster.delete(pod.uid, 1, disruption=False)
    if is_there(backend, pod.uid):
        short = pod_now(backend, pod.uid).deleting_until
        assert short is not None
        assert short < own


@pytest.mark.parametrize(
    "write",
    [
        lambda cluster: cluster.admit(["no-such-uid"], "cr-1", None),
        lambda cluster: cluster.mark_ready("no-such-node"),
        lambda cluster: cluster.start_drain("no-such-node", DrainReason(DrainKind.EMPTY)),
        lambda cluster: cluster.cancel_drain("no-such-node"),
        lambda cluster: cluster.keep_for_jobs("no-such-node", datetime(2026, 11, 17, tzinfo=UTC)),
        lambda cluster: cluster.announce_end("no-such-uid", datetime(2026, 11, 17, tzinfo=UTC)),
        lambda cluster: cluster.announce_node_end("no-such-node", datetime(2026, 11, 17, tzinfo=UTC)),
        lambda cluster: cluster.request_checkpoint("no-such-uid"),
        lambda cluster: cluster.evict("no-such-uid"),
        lambda cluster: cluster.delete("no-such-uid", None, disruption=False),
        lambda cluster: cluster.restart("Deployment/nobody", "x"),
        lambda cluster: cluster.restart("Deployment/default/nobody", "x"),
        lambda cluster: cluster.scale("Deployment/nobody", 1, 0, ()),
        lambda cluster: cluster.scale("StatefulSet/default/nobody", 1, 0, ()),
        lambda cluster: cluster.remove_node("no-such-node"),
    ],
)
def test_every_write_to_what_is_not_there_says_gone(
    backend: Backend, write: Callable[[Cluster], object]
) -> None:
    with pytest.raises(Gone):
        write(backend.cluster)


def test_a_pod_that_is_gone_is_gone_for_every_write(backend: Backend) -> None:
    pod = backend.service_at_its_minimum()
    backend.cluster.delete(pod.uid, 1, disruption=True)
    backend.settle(timedelta(seconds=10))
    writes: list[Callable[[], object]] = [
        lambda: backend.cluster.evict(pod.uid),
        lambda: backend.cluster.delete(pod.uid, 1, disruption=True),
        lambda: backend.cluster.announce_end(pod.uid, backend.now()),
        lambda: backend.cluster.request_checkpoint(pod.uid),
        lambda: backend.cluster.admit([pod.uid], SOURCE, None),
    ]
    for write in writes:
        with pytest.raises(Gone):
            write()


# --- services ------------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-13")
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
    backend.cluster.restart(name, "cr-2@noon")
    backend.settle(timedelta(minutes=5))
    assert not pods_of(backend, name) & after


def test_scaling_notes_what_was_added_and_takes_the_named_pods_first(backend: Backend) -> None:
    name = backend.rolling_service()
    before = pods_of(backend, name)
    for _ in range(2):
        backend.cluster.scale(name, 4, 2, ())
    assert (workload_now(backend, name).replicas, workload_now(backend, name).added) == (4, 2)
    backend.settle(timedelta(minutes=5))
    assert (workload_now(backend, name).ready, workload_now(backend, name).added) == (4, 2)
    for _ in range(2):
        backend.cluster.scale(name, 2, 0, sorted(before))
    backend.settle(timedelta(minutes=5))
    assert (workload_now(backend, name).replicas, workload_now(backend, name).added) == (2, 0)
    assert len(pods_of(backend, name)) == 2
    assert not pods_of(backend, name) & before


def test_scaling_does_not_touch_the_template_nor_a_restart_the_replicas(backend: Backend) -> None:
    name = backend.rolling_service()
    backend.cluster.restart(name, "cr-1@noon")
    backend.settle(timedelta(minutes=5))
    before = pods_of(backend, name)
    backend.cluster.scale(name, 3, 1, ())
    backend.settle(timedelta(minutes=5))
    assert before < pods_of(backend, name), "nobody was replaced"
    assert workload_now(backend, name).restarted_for == "cr-1@noon"
    backend.cluster.restart(name, "cr-2@noon")
    assert (workload_now(backend, name).replicas, workload_now(backend, name).added) == (3, 1)


def test_pods_that_were_to_go_first_lose_that_mark_when_others_are_named(backend: Backend) -> None:
    name = backend.rolling_service()
    before = pods_of(backend, name)
    backend.cluster.scale(name, 4, 2, sorted(before))
    backend.settle(timedelta(minutes=5))
    added = pods_of(backend, name) - before
    backend.cluster.scale(name, 2, 0, sorted(added))
    backend.settle(timedelta(minutes=5))
    assert pods_of(backend, name) == before
