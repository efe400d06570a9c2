"""The steps of a drain: announce, taint, checkpoint, evict, force at the last safe moment, terminate."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.decide import builders as given
from tests.decide.builders import CHECK_FAILED, SPOT, ago, ahead, of, spec, world
from tidemill.decide import decide
from tidemill.model.plan import (
    Admit,
    Evict,
    ForceDelete,
    Launch,
    Plan,
    RequestCheckpoint,
    StartDrain,
    Terminate,
)
from tidemill.model.pods import DisruptionBudget, Pod
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("CB-10")

LEAVING = given.node(phase="draining")
DEADLINE = "9m"  # of a block that ends in 39 minutes


def draining(*things: Pod | DisruptionBudget, ends_in: str = "39m", pools: Any = (), **fields: Any) -> Plan:
    """What is done for these pods on a node that drains, nine minutes before the deadline."""
    return decide(spec(*pools), world(given.block(ends_in=ends_in), LEAVING, *things, **fields))


def leaving(name: str = "train-1", **fields: Any) -> Pod:
    return given.pod(name, on=LEAVING, **{"ends_at": ahead(DEADLINE), **fields})


def test_a_drain_begins_with_a_taint_that_says_why():
    here = given.node()
    (started,) = of(decide(spec(), world(given.block(ends_in="39m"), here, given.pod(on=here))), StartDrain)
    assert started.reason == replace(given.block_ends(datetime(2026, 11, 16, 12, 9, tzinfo=UTC)), pool="p5")


def test_nobody_is_evicted_before_the_taint_is_there():
    here = given.node()
    assert not of(decide(spec(), world(given.block(ends_in="39m"), here, given.pod(on=here))), Evict)


def test_a_pod_that_cannot_checkpoint_is_evicted():
    plan = draining(leaving())
    assert [evicted.pod for evicted in of(plan, Evict)] == ["uid-train-1"]
    assert not of(plan, ForceDelete)


def test_a_pod_that_can_is_asked_for_a_checkpoint_first():
    resumable = leaving(checkpoint_every="1h", checkpoint_time="8m")
    plan = draining(resumable)
    assert [asked.pod for asked in of(plan, RequestCheckpoint)] == [resumable.uid]
    assert not of(plan, Evict)


def test_a_resumable_job_works_on_until_its_own_turn_comes():
    quick = leaving(checkpoint_every="1h", checkpoint_time="1m", grace="30s")
    plan = draining(quick)
    assert not of(plan, RequestCheckpoint)
    # deadline - (30 s grace + 1 min checkpoint + 90 s signal + 2 min margin)
    assert plan.wake_at == ahead("4m")
    assert of(draining(quick, now=ahead("4m")), RequestCheckpoint)


def test_a_job_that_will_finish_in_time_is_left_to_finish():
    # half an hour ago it started; it needs 33 minutes, and its turn comes in five
    finishing = leaving(expected="33m", grace="30s")
    assert not of(draining(finishing), Evict)
    assert of(draining(leaving(expected="3h", grace="30s")), Evict)


@pytest.mark.requirement("CB-13")
def test_a_job_that_is_later_than_it_said_is_drained_when_its_turn_comes():
    """Its word was 20 minutes and half an hour is over: it may go on until its turn, and its word holds nothing."""
    late = leaving(expected="20m", grace="30s")
    waiting = draining(late)
    assert not of(waiting, Evict)
    assert waiting.wake_at == ahead("5m")  # deadline - (30 s grace + 90 s signal + 2 min margin)
    assert of(draining(late, now=ahead("5m")), Evict)


def test_eviction_waits_for_the_acknowledgement_of_the_checkpoint():
    asked = {"checkpoint_every": "1h", "checkpoint_time": "5m", "checkpoint_requested_at": ago("1m")}
    waiting = draining(leaving(**asked))
    assert not of(waiting, Evict)
    assert not of(waiting, RequestCheckpoint)
    assert of(draining(leaving(**asked, checkpoint_done_at=ago("10s"))), Evict)


def test_a_checkpoint_that_is_never_acknowledged_ends_by_time():
    # 5 min for the checkpoint, 90 s for the signal, half a minute more
    patience = {"checkpoint_every": "1h", "checkpoint_time": "5m", "grace": "1m"}
    almost = draining(leaving(**patience, checkpoint_requested_at=ago("6m59s")))
    assert not of(almost, Evict)
    assert almost.wake_at == ahead("1s")
    assert of(draining(leaving(**patience, checkpoint_requested_at=ago("7m"))), Evict)


def test_a_pool_can_do_without_checkpoints():
    resumable = leaving(checkpoint_every="1h", checkpoint_time="8m", grace="6m")
    plan = draining(resumable, pools=[given.pool(drain={"checkpoint": False})])
    assert of(plan, Evict)
    assert not of(plan, RequestCheckpoint)


@pytest.mark.requirement("CB-9")
@pytest.mark.parametrize(("allowed", "evicted"), [(0, 0), (1, 1), (2, 2), (5, 3)])
def test_no_more_replicas_are_evicted_than_their_budget_allows(allowed: int, evicted: int):
    replicas = [given.replica(f"chat-{place}", on=LEAVING, ends_at=ahead(DEADLINE)) for place in range(3)]
    budget = DisruptionBudget("Deployment/chat", min_available=2, allowed=allowed)
    assert len(of(draining(*replicas, budget), Evict)) == evicted


def test_a_budget_is_counted_down_across_nodes_within_one_plan():
    here, there = given.node("i-1", "draining"), given.node("i-2", "draining")
    replicas = [given.replica("chat-1", on=here), given.replica("chat-2", on=there)]
    budget = DisruptionBudget("Deployment/chat", min_available=1, allowed=1)
    plan = decide(spec(), world(given.block(ends_in="39m"), here, there, replicas, budget))
    assert len(of(plan, Evict)) == 1


def test_a_pod_that_is_already_going_is_not_evicted_again():
    assert not of(draining(leaving(deleting_until=ahead("1m"))), Evict)


def test_a_pod_is_forced_at_the_last_moment_at_which_its_grace_still_fits():
    stuck = given.replica("chat-1", on=LEAVING, grace="3m", ends_at=ahead(DEADLINE))
    budget = DisruptionBudget("Deployment/chat", min_available=1, allowed=0)
    before = draining(stuck, budget, now=ahead("5m") - timedelta(seconds=1))
    assert not of(before, ForceDelete)
    assert before.wake_at == ahead("5m")  # deadline - 3 min grace - 1 min
    (forced,) = of(draining(stuck, budget, now=ahead("5m")), ForceDelete)
    assert (forced.pod, forced.grace_s) == (stuck.uid, 180)
    assert "last safe moment" in sentence(forced.reason)


def test_a_late_force_gives_the_grace_that_is_left():
    # The engine was away: two minutes are left of ten.
    (forced,) = of(draining(leaving(grace="10m"), now=ahead("7m")), ForceDelete)
    assert forced.grace_s == 115


def test_a_pod_that_would_outlast_the_deadline_is_cut_short():
    going = leaving(grace="20m", deleting_until=ahead("15m"))
    (forced,) = of(draining(going), ForceDelete)
    assert forced.grace_s == 9 * 60 - 5


def test_a_pod_whose_grace_is_over_is_not_deleted_again_and_again():
    """Its kubelet is gone: it is let go with its node, and every tick would only ask once more."""
    late = ahead(DEADLINE) + timedelta(minutes=2)
    assert not of(draining(leaving(deleting_until=late), now=late), ForceDelete)


def test_a_checkpoint_does_not_hold_back_the_force():
    writing = leaving(
        checkpoint_every="1h", checkpoint_time="30m", checkpoint_requested_at=ago("1m"), grace="1m"
    )
    assert of(draining(writing, now=ahead("7m")), ForceDelete)


def test_an_empty_node_that_drains_is_terminated():
    (ended,) = of(draining(given.daemon("agent", LEAVING)), Terminate)
    assert ended.instance_id == "i-1"
    assert "drained" in sentence(ended.reason)


def test_a_node_with_a_pod_is_never_terminated_by_a_drain():
    assert not of(draining(leaving(deleting_until=ahead("1m"))), Terminate)


def test_a_node_that_has_not_joined_when_the_drain_starts_is_terminated():
    plan = decide(spec(), world(given.block(ends_in="39m"), given.node(phase="launched", launched="2m")))
    assert [ended.instance_id for ended in of(plan, Terminate)] == ["i-1"]


def test_nothing_is_launched_into_a_block_that_is_about_to_drain():
    # 7 minutes to boot and 15 of use before the drain begins 40 minutes before the end
    almost = world(given.block(ends_in="61m", free=4))
    assert not of(decide(spec(), almost), Launch)
    assert of(decide(spec(), world(given.block(ends_in="63m", free=4))), Launch)


def test_a_drain_goes_on_when_neither_aws_nor_the_ledger_can_be_reached():
    plan = draining(leaving(), cloud_ok=False, ledger_ok=False)
    assert of(plan, Evict)


@pytest.mark.requirement("PE-8")
def test_do_not_disrupt_cannot_hold_back_the_end_and_that_is_said():
    here = given.node()
    marked = given.pod(on=here, do_not_disrupt=True)
    plan = decide(spec(), world(given.block(ends_in="39m"), here, marked))
    assert of(plan, StartDrain)
    (warning,) = plan.warnings
    assert warning.about == "ml/train-1"
    assert "cannot hold back the end of cr-1" in sentence(warning.reason)
    assert of(draining(leaving(do_not_disrupt=True)), Evict)


def test_a_node_that_finishes_its_check_during_the_drain_takes_no_work():
    late = given.node("i-2", "verifying", check="passed", joined="6m")
    plan = decide(spec(), world(given.block(ends_in="39m"), late, given.pod(gpus=8, expected="1m")))
    assert [one.node for one in of(plan, StartDrain)] == ["node-i-2"]
    assert not of(plan, Admit)


@pytest.mark.requirement("PE-17")
def test_a_spot_interruption_drains_at_once_and_forces_within_its_two_minutes():
    documents = spec(given.hourly_pool("g6", "g6.xlarge", sources=[{"type": "spot"}]))
    taken = {"source": SPOT, "pool": "g6", "instance_type": "g6.xlarge", "ends_in": "2m"}
    assert of(
        decide(documents, world(given.node(**taken), given.pod(on=given.node(**taken), gpus=1))), StartDrain
    )
    leaves = given.node(phase="draining", **taken)
    work = given.pod(on=leaves, gpus=1, grace="30s", ends_at=ahead("2m"))
    assert of(decide(documents, world(leaves, work)), Evict)
    (forced,) = of(decide(documents, world(leaves, work, now=ahead("30s"))), ForceDelete)
    assert forced.grace_s == 30


@pytest.mark.requirement("PE-17")
def test_a_failed_node_in_a_full_block_is_ended_before_its_slot_is_filled():
    bad = given.node(phase="draining", drain_reason=CHECK_FAILED, check="failed")
    full = decide(spec(), world(given.block(count=1, free=0), bad, given.pod(gpus=8)))
    assert [type(action) for action in full.actions] == [Terminate]
    (launch,) = of(decide(spec(), world(given.block(count=1, free=1), given.pod(gpus=8))), Launch)
    assert launch.intent.count == 1


def test_a_drain_that_began_early_wakes_up_when_its_time_comes():
    """A replica that went meanwhile makes the lead shorter; the other one still waits for its budget."""
    going = given.node(
        "i-1",
        draining_since=ago("1m"),
        drain_reason=given.block_ends(datetime(2026, 11, 16, 12, 50, tzinfo=UTC)),
    )
    last = given.replica("chat-1", going, gpus=8, grace="1m")
    there = replace(
        world(given.block(ends_in="80m", count=1), going, last),
        budgets=(DisruptionBudget("Deployment/chat", min_available=1, allowed=0),),
    )
    plan = decide(spec(), there)
    assert not of(plan, Evict)
    assert plan.wake_at is not None
    assert plan.wake_at < ahead("50m")


def test_a_drain_for_the_end_goes_on_although_the_last_replicas_would_need_less_time():
    """Fewer replicas need a shorter lead. A drain that paused until then would use up all the time there is."""
    ends = given.block_ends(ahead("1h"))
    here = [given.node(f"i-{n}", "draining", drain_reason=ends) for n in (1, 2)]
    chat = [
        given.replica(f"chat-{n}", on=one, gpus=8, load="8m", ends_at=ahead("1h"))
        for n, one in enumerate(here)
    ]
    never = DisruptionBudget("Deployment/chat", 2, 0)

    def deleted(reason: str) -> list[Any]:
        nodes = [
            replace(one, kube=replace(one.kube, drain_reason=given.block_ends(ahead(reason)))) for one in here
        ]
        return of(decide(spec(), world(given.block(ends_in="90m"), nodes, chat, never)), ForceDelete)

    assert len(deleted("1h")) == 1  # one at a time, and now
    assert not deleted("30m")  # it began for another end
