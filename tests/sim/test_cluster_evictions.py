"""Services, their budgets, and what a pod gets of its grace when it must go."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.sim.rehearsal_builder import Stage, seconds
from tidemill.model.pods import DisruptionBudget
from tidemill.model.reasons import DrainKind, DrainReason


def serving(**fields: Any) -> Stage:
    stage = Stage()
    stage.ready_nodes("i-1", "i-2")
    stage.serve(**{"replicas": 2, "load": "3m", "minAvailable": 1, "grace": "1m", **fields})
    stage.pass_time("4m")
    return stage


def test_a_replica_is_ready_once_it_has_loaded() -> None:
    stage = Stage()
    stage.ready_nodes("i-1")
    stage.serve(replicas=1, load="3m")
    stage.pass_time("20s")
    (pod,) = stage.pods_of("Deployment/chat")
    assert not pod.gated
    assert pod.started_at
    assert not pod.ready
    stage.timeline.advance(pod.started_at + timedelta(minutes=3))
    assert stage.pods_of("Deployment/chat")[0].ready
    assert len(stage.told("service-ready")) == 1


def test_a_budget_allows_what_is_ready_above_the_minimum() -> None:
    stage = serving()
    assert stage.cluster.view().budgets == (DisruptionBudget("Deployment/chat", 1, 1),)
    first, second = stage.pods_of("Deployment/chat")
    assert stage.cluster.evict(first.uid)
    assert stage.cluster.view().budgets == (DisruptionBudget("Deployment/chat", 1, 0),)
    assert not stage.cluster.evict(second.uid)
    assert stage.pod(second.uid) is second
    stage.pass_time("5m")
    assert stage.cluster.evict(second.uid), "its replacement is ready by now"
    assert stage.cluster.services["chat"].downtime_s(stage.now) == 0


def test_a_replacement_is_made_the_moment_a_replica_is_told_to_go() -> None:
    stage = serving()
    first, _ = stage.pods_of("Deployment/chat")
    stage.cluster.evict(first.uid)
    assert len(stage.pods_of("Deployment/chat")) == 3
    terminating = stage.pod(first.uid)
    assert terminating is not None
    assert terminating.deleting_until == stage.now + seconds(60)
    assert not terminating.ready


def test_pods_that_are_not_ready_may_go_while_the_budget_is_healthy() -> None:
    stage = serving(replicas=2, minAvailable=2)
    first, second = stage.pods_of("Deployment/chat")
    stage.cluster.delete(first.uid, None, disruption=True)
    replacement = stage.pods_of("Deployment/chat")[-1]
    assert stage.cluster.evict(replacement.uid), "it does not run yet"
    assert not stage.cluster.evict(second.uid)
    stage.pass_time("2m")
    loading = stage.pods_of("Deployment/chat")[-1]
    assert loading.started_at
    assert not loading.ready
    assert not stage.cluster.evict(loading.uid), "only one is ready and two are needed"


def test_counts_the_seconds_a_service_is_below_its_minimum() -> None:
    stage = serving(minAvailable=2)
    first, _ = stage.pods_of("Deployment/chat")
    went_at = stage.now
    stage.cluster.delete(first.uid, None, disruption=True)
    stage.pass_time("10m")
    back_at = stage.told("service-restored")[0].at
    truth = stage.cluster.services["chat"]
    assert stage.told("service-below-minimum")[0].at == went_at
    assert truth.downtime_s(stage.now) == (back_at - went_at).total_seconds() > 180
    assert truth.lowest_ready() == 1


def test_a_stopped_service_goes_with_its_grace_and_is_not_replaced() -> None:
    stage = serving()
    stage.cluster.stop_service("chat")
    assert stage.cluster.view().budgets == ()
    assert all(pod.deleting_until for pod in stage.pods_of("Deployment/chat"))
    stage.pass_time("1m")
    assert stage.pods_of("Deployment/chat") == []
    assert stage.cluster.evictions == []
    assert stage.cluster.services["chat"].downtime_s(stage.now) == 0


@pytest.mark.parametrize("grace_s", [30, 600])
def test_an_evicted_pod_exits_within_its_own_grace(grace_s: int) -> None:
    stage = Stage()
    stage.ready_nodes("i-1")
    (pod,) = stage.run_job(grace=f"{grace_s}s")
    told_at = stage.now
    stage.cluster.evict(pod.uid)
    while stage.pod(pod.uid):
        stage.pass_time("1s")
    assert seconds(grace_s * 0.3) <= stage.now - told_at <= seconds(grace_s)
    (row,) = stage.cluster.evictions
    assert (row.forced, row.grace_s, row.pod) == (False, grace_s, "training/train-1-0-0")
    assert f"{grace_s} s" in stage.told("pod-evicted")[0].sentence


def test_a_force_delete_gives_the_grace_that_is_left_whatever_the_budget_says() -> None:
    stage = serving(minAvailable=2)
    first, _ = stage.pods_of("Deployment/chat")
    assert not stage.cluster.evict(first.uid)
    stage.cluster.start_drain(first.node, DrainReason(DrainKind.SOURCE_ENDS, name="cr-1"))
    stage.cluster.delete(first.uid, 20, disruption=True)
    stage.pass_time("20s")
    assert stage.pod(first.uid) is None
    (row,) = stage.cluster.evictions
    assert (row.forced, row.grace_s, row.reason) == (True, 20, "cr-1 must be empty")
    assert stage.cluster.cut_short == [row]
    assert len(stage.told("pod-force-deleted")) == 1


def test_a_deletion_under_way_can_be_hastened_but_not_slowed() -> None:
    stage = Stage()
    stage.ready_nodes("i-1")
    (pod,) = stage.run_job(grace="10m")
    stage.cluster.evict(pod.uid)
    for grace_s in (5, 60, 5, None):
        stage.cluster.delete(pod.uid, grace_s, disruption=True)
        assert (now := stage.pod(pod.uid)) is not None
        assert now.deleting_until == stage.now + seconds(5)
    assert [row.grace_s for row in stage.cluster.evictions] == [600, 5], "what changed nothing is not told"
    stage.pass_time("5s")
    assert stage.pod(pod.uid) is None


def test_a_pod_that_never_ran_goes_at_once() -> None:
    stage = Stage()
    (pod,) = stage.submit(grace="10m")
    stage.cluster.delete(pod.uid, None, disruption=False)
    assert stage.pod(pod.uid) is None
    assert stage.pods_of("Job/train-1")[0].name == "train-1-0-1"
    assert stage.cluster.evictions == [], "nobody was disturbed"
    assert stage.cluster.jobs["train-1"].failures == 0


def test_a_node_that_dies_takes_the_grace_that_was_left() -> None:
    stage = Stage()
    stage.ready_nodes("i-1")
    stage.run_job("quiet", gpus=4, grace="10m")
    (told,) = stage.run_job("told", gpus=4, grace="10m")
    stage.cluster.evict(told.uid)
    stage.pass_time("1m")
    stage.lose("i-1")
    assert [(kill.pod, kill.grace_had_s, kill.full_grace) for kill in stage.cluster.kills] == [
        ("training/quiet-0-0", 0, False),
        ("training/told-0-0", 60, False),
    ]
    assert "after 60 s of its 600 s grace" in stage.told("pod-killed")[1].sentence
    assert stage.cluster.jobs["quiet"].failures == 1
    assert stage.cluster.jobs["told"].failures == 0, "its eviction had marked it as disrupted"


def test_the_engine_is_woken_by_what_it_may_care_about() -> None:
    stage = serving()
    said = " | ".join(stage.wakes)
    for words in (
        "was created",
        "joined",
        "registered its devices",
        "passed its check",
        "is bound and does not know its end",
        "2 ready",
    ):
        assert words in said
    stage.wakes.clear()
    stage.pass_time("10h")
    assert stage.wakes == [], "and left alone when nothing happens"
