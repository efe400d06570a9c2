"""What a Deployment does when its template or its number of replicas changes, as a hand-over needs it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.simulated_cluster import SimulatedCluster
from tidemill.model.errors import Gone
from tidemill.model.pods import Method, Workload
from tidemill.sim.cluster.workloads import resolve_share

CHAT = "Deployment/chat"


def served(simulated: SimulatedCluster | None = None, nodes: int = 3, **fields: Any) -> SimulatedCluster:
    """Four replicas, two a node, all ready."""
    simulated = simulated or SimulatedCluster()
    simulated.ready_nodes(*[f"i-{number}" for number in range(nodes)])
    simulated.serve(**{"replicas": 4, "load": "5m", "grace": "1m", **fields})
    simulated.pass_time("6m")
    return simulated


def workload(simulated: SimulatedCluster, name: str = CHAT) -> Workload:
    return next(one for one in simulated.cluster.view().workloads if one.name == name)


def counts_over(simulated: SimulatedCluster, duration_s: int, step_s: int = 10) -> list[tuple[int, int]]:
    """Live and ready pods, every few seconds."""
    seen = []
    for _ in range(0, duration_s, step_s):
        simulated.pass_time(f"{step_s}s")
        alive = [pod for pod in simulated.pods_of(CHAT) if pod.deleting_until is None]
        seen.append((len(alive), sum(pod.ready for pod in alive)))
    return seen


def test_a_restarted_deployment_starts_new_pods_before_it_deletes_old_ones() -> None:
    simulated = served(handover={"method": "rollout", "maxSurge": 1, "maxUnavailable": 0})
    before = {pod.uid for pod in simulated.pods_of(CHAT)}
    simulated.cluster.restart(CHAT, "cr-a ends")
    assert workload(simulated).rolling
    seen = counts_over(simulated, 30 * 60)
    assert max(alive for alive, _ in seen) == 5
    assert min(ready for _, ready in seen) == 4
    assert not workload(simulated).rolling
    assert not before & {pod.uid for pod in simulated.pods_of(CHAT)}


def test_the_same_token_again_changes_nothing() -> None:
    simulated = served(handover={"method": "rollout", "maxSurge": 1, "maxUnavailable": 0})
    simulated.cluster.restart(CHAT, "cr-a ends")
    simulated.pass_time("30m")
    done = workload(simulated)
    simulated.cluster.restart(CHAT, "cr-a ends")
    assert workload(simulated) is done
    assert done.restarted_for == "cr-a ends"


def test_a_rollout_with_max_unavailable_and_no_surge_deletes_the_old_pod_first() -> None:
    simulated = served(handover={"method": "rollout", "maxSurge": 0, "maxUnavailable": 1})
    simulated.cluster.restart(CHAT, "cr-a ends")
    assert min(ready for _, ready in counts_over(simulated, 30 * 60)) == 3


def test_named_pods_are_deleted_first_when_there_are_too_many() -> None:
    simulated = served()
    going = [simulated.pods_of(CHAT)[0].uid, simulated.pods_of(CHAT)[2].uid]
    simulated.cluster.scale(CHAT, 6, 2, ())
    assert (workload(simulated).replicas, workload(simulated).added) == (6, 2)
    simulated.pass_time("6m")
    assert workload(simulated).ready == 6
    simulated.cluster.scale(CHAT, 4, 0, going)
    left = {pod.uid for pod in simulated.pods_of(CHAT) if pod.deleting_until is None}
    assert len(left) == 4
    assert not left & set(going)
    simulated.cluster.scale(CHAT, 4, 0, going)
    assert len([pod for pod in simulated.pods_of(CHAT) if pod.deleting_until is None]) == 4


def test_pods_that_are_not_ready_are_deleted_before_named_ones() -> None:
    """As in Kubernetes: naming pods is only safe once everybody else is ready."""
    simulated = served()
    ready = {pod.uid for pod in simulated.pods_of(CHAT)}
    simulated.cluster.scale(CHAT, 5, 1, ())
    simulated.pass_time("1m")
    simulated.cluster.scale(CHAT, 4, 0, sorted(ready)[:1])
    assert {pod.uid for pod in simulated.pods_of(CHAT) if pod.deleting_until is None} == ready


def test_a_pair_is_two_sets_of_which_one_has_no_replicas() -> None:
    simulated = served(
        handover={"method": "paired", "kind": "StatefulSet", "pairNodeSelector": {"tier": "train"}},
        minAvailable=3,
    )
    first, second = workload(simulated, "StatefulSet/chat"), workload(simulated, "StatefulSet/chat-pair")
    assert (first.method, first.pair, second.pair) == (Method.PAIRED, second.name, first.name)
    assert (first.ready, second.replicas) == (4, 0)
    assert [budget.workload for budget in simulated.cluster.view().budgets] == ["StatefulSet/chat"]
    simulated.cluster.scale(second.name, 2, 0, ())
    simulated.pass_time("6m")
    assert simulated.cluster.services["chat"].ready == 6


def test_a_stopped_service_cannot_be_restarted_or_scaled() -> None:
    simulated = served()
    simulated.cluster.stop_service("chat")
    for call in (
        lambda: simulated.cluster.restart(CHAT, "x"),
        lambda: simulated.cluster.scale(CHAT, 1, 0, ()),
    ):
        with pytest.raises(Gone):
            call()


def test_how_long_a_pod_loaded_and_when_a_node_was_opened_can_be_read() -> None:
    simulated = served(load="5m", declaredLoad="2m")
    (pod, *_) = simulated.pods_of(CHAT)
    assert pod.started_at is not None
    assert pod.ready_at is not None
    assert (pod.ready_at - pod.started_at).total_seconds() == 300
    assert pod.terms.load.total_seconds() == 120
    assert simulated.node("i-0").opened_at is not None


@pytest.mark.parametrize(
    ("written", "up", "down"), [(2, 2, 2), ("25%", 3, 2), ("0%", 0, 0), ("100%", 10, 10), ("1%", 1, 0)]
)
def test_a_share_of_the_replicas_is_rounded_as_kubernetes_does(written: Any, up: int, down: int) -> None:
    assert (resolve_share(written, 10, up=True), resolve_share(written, 10, up=False)) == (up, down)
