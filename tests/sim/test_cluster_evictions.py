"""Services, their budgets, and what a pod gets of its grace when it must go."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.sim.simulated_cluster import SimulatedCluster, seconds
from tidemill.model.pods import DisruptionBudget
from tidemill.model.reasons import DrainKind, DrainReason


def serving(**fields: Any) -> SimulatedCluster:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1", "i-2")
    simulated.serve(**{"replicas": 2, "load": "3m", "minAvailable": 1, "grace": "1m", **fields})
    simulated.pass_time("4m")
    return simulated


def test_a_replica_is_ready_once_it_has_loaded() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1")
    simulated.serve(replicas=1, load="3m")
    simulated.pass_time("20s")
    (pod,) = simulated.pods_of("Deployment/chat")
    assert not pod.gated
    assert pod.started_at
    assert not pod.ready
    simulated.timeline.advance(pod.started_at + timedelta(minutes=3))
    assert simulated.pods_of("Deployment/chat")[0].ready
    assert len(simulated.journal_lines("service-ready")) == 1


def test_a_budget_allows_what_is_ready_above_the_minimum() -> None:
    simulated = serving()
    assert simulated.cluster.view().budgets == (DisruptionBudget("Deployment/chat", 1, 1),)
    first, second = simulated.pods_of("Deployment/chat")
    assert simulated.cluster.evict(first.uid)
    assert simulated.cluster.view().budgets == (DisruptionBudget("Deployment/chat", 1, 0),)
    assert not simulated.cluster.evict(second.uid)
    assert simulated.pod(second.uid) is second
    simulated.pass_time("5m")
    assert simulated.cluster.evict(second.uid), "its replacement is ready by now"
    assert simulated.cluster.services["chat"].downtime_s(simulated.now) == 0


def test_a_replacement_is_created_when_a_replica_is_deleted() -> None:
    simulated = serving()
    first, _ = simulated.pods_of("Deployment/chat")
    simulated.cluster.evict(first.uid)
    assert len(simulated.pods_of("Deployment/chat")) == 3
    terminating = simulated.pod(first.uid)
    assert terminating is not None
    assert terminating.deleting_until == simulated.now + seconds(60)
    assert not terminating.ready


def test_pods_that_are_not_ready_may_go_while_the_budget_is_healthy() -> None:
    simulated = serving(replicas=2, minAvailable=2)
    first, second = simulated.pods_of("Deployment/chat")
    simulated.cluster.delete(first.uid, None, disruption=True)
    replacement = simulated.pods_of("Deployment/chat")[-1]
    assert simulated.cluster.evict(replacement.uid), "it does not run yet"
    assert not simulated.cluster.evict(second.uid)
    simulated.pass_time("2m")
    loading = simulated.pods_of("Deployment/chat")[-1]
    assert loading.started_at
    assert not loading.ready
    assert not simulated.cluster.evict(loading.uid), "only one is ready and two are needed"


def test_counts_the_seconds_a_service_is_below_its_minimum() -> None:
    simulated = serving(minAvailable=2)
    first, _ = simulated.pods_of("Deployment/chat")
    went_at = simulated.now
    simulated.cluster.delete(first.uid, None, disruption=True)
    simulated.pass_time("10m")
    back_at = simulated.journal_lines("service-restored")[0].at
    truth = simulated.cluster.services["chat"]
    assert simulated.journal_lines("service-below-minimum")[0].at == went_at
    assert truth.downtime_s(simulated.now) == (back_at - went_at).total_seconds() > 180
    assert truth.lowest_ready() == 1


def test_a_stopped_service_goes_with_its_grace_and_is_not_replaced() -> None:
    simulated = serving()
    simulated.cluster.stop_service("chat")
    assert simulated.cluster.view().budgets == ()
    assert all(pod.deleting_until for pod in simulated.pods_of("Deployment/chat"))
    simulated.pass_time("1m")
    assert simulated.pods_of("Deployment/chat") == []
    assert simulated.cluster.evictions == []
    assert simulated.cluster.services["chat"].downtime_s(simulated.now) == 0


@pytest.mark.parametrize("grace_s", [30, 600])
def test_an_evicted_pod_exits_within_its_own_grace(grace_s: int) -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1")
    (pod,) = simulated.run_job(grace=f"{grace_s}s")
    told_at = simulated.now
    simulated.cluster.evict(pod.uid)
    while simulated.pod(pod.uid):
        simulated.pass_time("1s")
    assert seconds(grace_s * 0.3) <= simulated.now - told_at <= seconds(grace_s)
    (row,) = simulated.cluster.evictions
    assert (row.forced, row.grace_s, row.pod) == (False, grace_s, "training/train-1-0-0")
    assert f"{grace_s} s" in simulated.journal_lines("pod-evicted")[0].sentence


def test_a_force_delete_gives_the_grace_that_is_left_whatever_the_budget_says() -> None:
    simulated = serving(minAvailable=2)
    first, _ = simulated.pods_of("Deployment/chat")
    assert not simulated.cluster.evict(first.uid)
    simulated.cluster.start_drain(first.node, DrainReason(DrainKind.SOURCE_ENDS, name="cr-1"))
    simulated.cluster.delete(first.uid, 20, disruption=True)
    simulated.pass_time("20s")
    assert simulated.pod(first.uid) is None
    (row,) = simulated.cluster.evictions
    assert (row.forced, row.grace_s, row.reason) == (True, 20, "cr-1 must be empty")
    assert simulated.cluster.cut_short == [row]
    assert len(simulated.journal_lines("pod-force-deleted")) == 1


def test_a_deletion_under_way_can_be_hastened_but_not_slowed() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1")
    (pod,) = simulated.run_job(grace="10m")
    simulated.cluster.evict(pod.uid)
    for grace_s in (5, 60, 5, None):
        simulated.cluster.delete(pod.uid, grace_s, disruption=True)
        assert (now := simulated.pod(pod.uid)) is not None
        assert now.deleting_until == simulated.now + seconds(5)
    assert [row.grace_s for row in simulated.cluster.evictions] == [600, 5], (
        "what changed nothing is not told"
    )
    simulated.pass_time("5s")
    assert simulated.pod(pod.uid) is None


def test_a_pod_that_never_ran_is_removed_at_once() -> None:
    simulated = SimulatedCluster()
    (pod,) = simulated.submit(grace="10m")
    simulated.cluster.delete(pod.uid, None, disruption=False)
    assert simulated.pod(pod.uid) is None
    assert simulated.pods_of("Job/train-1")[0].name == "train-1-0-1"
    assert simulated.cluster.evictions == [], "nobody was disturbed"
    assert simulated.cluster.jobs["train-1"].failures == 0


def test_a_node_that_dies_takes_the_grace_that_was_left() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1")
    simulated.run_job("quiet", gpus=4, grace="10m")
    (told,) = simulated.run_job("told", gpus=4, grace="10m")
    simulated.cluster.evict(told.uid)
    simulated.pass_time("1m")
    simulated.end_instance("i-1")
    assert [(kill.pod, kill.grace_had_s, kill.full_grace) for kill in simulated.cluster.kills] == [
        ("training/quiet-0-0", 0, False),
        ("training/told-0-0", 60, False),
    ]
    assert "after 60 s of its 600 s grace" in simulated.journal_lines("pod-killed")[1].sentence
    assert simulated.cluster.jobs["quiet"].failures == 1
    assert simulated.cluster.jobs["told"].failures == 0, "its eviction had marked it as disrupted"


def test_changes_that_concern_the_engine_wake_it() -> None:
    simulated = serving()
    said = " | ".join(simulated.wakes)
    for words in (
        "was created",
        "joined",
        "registered its devices",
        "passed its check",
        "is bound and does not know its end",
        "2 ready",
    ):
        assert words in said
    simulated.wakes.clear()
    simulated.pass_time("10h")
    assert simulated.wakes == [], "and left alone when nothing happens"
