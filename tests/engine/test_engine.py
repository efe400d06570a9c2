"""A tick is observe, decide, act, report, sleep; what cannot be reached stops only what needs it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.decide.builders import ON_DEMAND, ahead, block, hourly_pool, node, pod, pool, spec
from tests.engine.ports import Outside
from tidemill.engine.loop import Engine
from tidemill.model.capacity import SourceKind
from tidemill.model.errors import NoCapacity, Refused, Retryable
from tidemill.model.nodes import InstanceState
from tidemill.model.plan import Evict, Launch, Plan, RestartWorkload, ScaleWorkload, StartDrain
from tidemill.model.purchases import LaunchState
from tidemill.model.reasons import HandoverKind, HandoverReason, HoldKind
from tidemill.sim.scenario.crash import EngineCrashed


def kinds(tick) -> set[type]:
    return {type(outcome.action) for outcome in tick.outcomes}


def test_a_pending_pod_becomes_an_instance_in_one_tick():
    outside = Outside(spec(hourly_pool("g6", "g6.xlarge")))
    outside.cluster.pods = [pod(gpus=1)]
    tick = outside.engine().tick()
    assert tick is not None
    assert [one.instance_type for one in outside.cloud.running.values()] == ["g6.xlarge"]
    assert tick.wake_at == outside.clock.now() + timedelta(seconds=1)


def test_ticking_on_while_an_instance_boots_launches_no_second_one():
    outside = Outside(spec(hourly_pool("g6", "g6.xlarge")))
    outside.cluster.pods = [pod(gpus=1)]
    engine = outside.engine()
    for _ in range(20):
        engine.tick()
        outside.clock.pass_time(seconds=30)
    assert len(outside.cloud.running) == 1


@pytest.mark.parametrize(
    "step", ["before:launch", "after:launch", "before:write_launch", "after:write_launch"]
)
def test_a_crash_at_any_step_of_a_launch_gives_one_instance_in_the_end(step: str):
    outside = Outside(spec(hourly_pool("g6", "g6.xlarge")))
    outside.cluster.pods = [pod(gpus=1)]
    outside.crashes.arm(step)
    with pytest.raises(EngineCrashed):
        outside.engine().tick()
    for _ in range(20):
        outside.clock.pass_time(seconds=20)
        outside.engine().tick()  # a new engine each time: it has no memory that matters
    assert len(outside.cloud.running) == 1
    assert all(intent.state is not LaunchState.WRITTEN for intent in outside.books.launches())


@pytest.mark.requirement("CB-10")
@pytest.mark.parametrize("port", ["cloud", "books"])
def test_drains_go_on_and_nothing_is_launched_while_aws_or_the_ledger_is_away(port: str):
    outside = Outside(spec(pool(), hourly_pool("g6", "g6.xlarge")))
    outside.cloud.held = [block(ends_in="60m", free=2)]
    outside.has(node("i-1"))
    engine = outside.engine()
    engine.tick()
    getattr(outside, port).away = True
    outside.clock.pass_time(minutes=21)
    outside.cluster.pods = [pod("new", gpus=1)]
    tick = engine.tick()
    assert tick is not None
    assert StartDrain in kinds(tick)
    assert Launch not in kinds(tick)


@pytest.mark.requirement("CB-10")
def test_a_ledger_that_cannot_be_written_does_not_stop_the_drains():
    """An instance paid by the hour appears while the ledger is away: its meter waits, the drain does not."""
    outside = Outside(spec(pool(), hourly_pool("g6", "g6.xlarge")))
    outside.cloud.held = [block(ends_in="60m")]
    leaving = node("i-1", "draining")
    outside.has(leaving)
    outside.cluster.pods = [pod("work", on=leaving)]
    engine = outside.engine()
    engine.tick()
    outside.books.away = True
    outside.clock.pass_time(minutes=21)
    outside.has(node("i-2", source=ON_DEMAND, pool="g6", instance_type="g6.xlarge"))
    tick = engine.tick()
    assert tick is not None
    assert Evict in kinds(tick)


def test_a_cluster_that_cannot_be_seen_means_no_decision():
    outside = Outside(spec())
    engine = outside.engine()
    assert engine.tick() is not None
    outside.cluster.away = True
    assert engine.tick() is None


# --- sleep ----------------------------------------------------------------------------------------------


def test_a_quiet_engine_looks_again_within_ten_minutes_because_events_get_lost():
    outside = Outside(spec())
    tick = outside.engine().tick()
    assert tick is not None
    assert tick.wake_at == outside.clock.now() + timedelta(minutes=10)


def test_it_sleeps_no_longer_than_the_plan_says():
    outside = Outside(spec())
    outside.cloud.held = [block(ends_in="45m")]
    outside.has(node("i-1"))
    tick = outside.engine().tick()
    assert tick is not None
    assert tick.wake_at == ahead("5m")


def test_when_everything_fails_it_waits_longer_before_it_tries_again():
    outside = Outside(spec())
    outside.cloud.held = [block(ends_in="35m")]
    outside.has(node("i-1"))
    outside.cluster.fail("start_drain", Retryable("slow down"))
    tick = outside.engine().tick()
    assert tick is not None
    assert tick.wake_at == outside.clock.now() + timedelta(seconds=5)


def test_new_documents_end_the_back_off_from_what_the_old_ones_did_not_allow():
    outside = Outside(spec(hourly_pool("g6", "g6.xlarge"), subnets={"us-west-2a": ["subnet-1"]}))
    outside.cluster.pods = [pod(gpus=1)]
    outside.cloud.fail("launch", Refused("spec.nodeRole is not set", code="documents"))
    first = outside.engine().tick()
    assert first is not None
    assert [one.error for one in first.outcomes] == ["refused"]
    assert [one.state for one in outside.books.launches()] == [LaunchState.FAILED]
    outside.clock.pass_time(seconds=5)
    same = outside.engine().tick()
    assert same is not None
    assert not same.plan.actions
    assert same.plan.unmet[0].reason.kind is HoldKind.LAUNCH_FAILED
    again = Engine(
        outside.spec, outside.clock, outside.cloud, outside.cluster, outside.books,
        documents_since=outside.clock.now(),
    ).tick()  # fmt: skip
    assert again is not None
    assert kinds(again) == {Launch}
    assert not again.outcomes[0].error


def test_new_documents_do_not_make_capacity():
    outside = Outside(spec(hourly_pool("g6", "g6.xlarge"), subnets={"us-west-2a": ["subnet-1"]}))
    outside.cluster.pods = [pod(gpus=1)]
    outside.cloud.fail("launch", NoCapacity("none"))
    outside.engine().tick()
    outside.clock.pass_time(seconds=5)
    again = Engine(
        outside.spec, outside.clock, outside.cloud, outside.cluster, outside.books,
        documents_since=outside.clock.now(),
    ).tick()  # fmt: skip
    assert again is not None
    assert not again.plan.actions


def test_a_write_that_another_manager_forbids_is_tried_again_later_and_later():
    outside = Outside(spec())
    restart = RestartWorkload("Deployment/ml/chat", "cr-1", HandoverReason(HandoverKind.ROLLOUT))
    engine = Engine(
        outside.spec, outside.clock, outside.cloud, outside.cluster, outside.books,
        decide=lambda spec, world: Plan((restart,)),
    )  # fmt: skip
    tries: list[float] = []
    began = outside.clock.now()
    while (at_s := (outside.clock.now() - began).total_seconds()) < 900:
        outside.cluster.before["restart"] = [Refused("gitops owns it", code="field-conflict")]
        tick = engine.tick()
        assert tick is not None
        if tick.outcomes:
            assert [one.error for one in tick.outcomes] == ["refused"]
            tries.append(at_s)
        # Events wake it meanwhile: that is no reason to ask again.
        outside.clock.at = min(tick.wake_at, outside.clock.now() + timedelta(seconds=3))
    assert tries == [0, 5, 15, 35, 75, 155, 275, 395, 515, 635, 755, 875]
    outside.cluster.before.clear()
    outside.clock.pass_time(minutes=2)
    tick = engine.tick()
    assert tick is not None
    assert [one.error for one in tick.outcomes] == [""]


def test_what_is_refused_for_another_value_is_tried_at_once():
    outside = Outside(spec())
    actor = outside.actor()
    chat, reason = "Deployment/ml/chat", HandoverReason(HandoverKind.SURGE)
    outside.cluster.fail("scale", Refused("gitops owns it", code="field-conflict"))
    assert actor.carry_out(Plan((ScaleWorkload(chat, 4, 2, (), reason),)))[0].failed
    assert actor.carry_out(Plan((ScaleWorkload(chat, 4, 2, (), reason),))) == ()
    assert not actor.carry_out(Plan((ScaleWorkload(chat, 3, 1, (), reason),)))[0].failed


# --- money by the hour ----------------------------------------------------------------------------------


def hourly(outside: Outside) -> float:
    return outside.books.spending(outside.clock.now()).hourly("g6", SourceKind.ON_DEMAND)


@pytest.mark.requirement("PE-18")
def test_what_is_paid_by_the_hour_is_metered_from_launch_to_end():
    outside = Outside(spec(hourly_pool("g6", "g6.xlarge")))
    outside.has(node("i-1", source=ON_DEMAND, pool="g6", instance_type="g6.xlarge", launched="1h"))
    engine = outside.engine()
    engine.tick()
    assert hourly(outside) == pytest.approx(0.8048)
    outside.clock.pass_time(hours=1)
    assert hourly(outside) == pytest.approx(2 * 0.8048)
    outside.cloud.terminate("i-1")
    engine.tick()
    outside.clock.pass_time(hours=5)
    assert hourly(outside) == pytest.approx(2 * 0.8048)


@pytest.mark.requirement("PE-18")
def test_an_instance_that_ended_while_nobody_looked_is_billed_no_further():
    """AWS forgets a terminated instance after an hour: a new engine finds only the ledger's line of it."""
    outside = Outside(spec(hourly_pool("g6", "g6.xlarge")))
    outside.has(node("i-1", source=ON_DEMAND, pool="g6", instance_type="g6.xlarge", launched="1h"))
    outside.engine().tick()
    outside.clock.pass_time(hours=3)
    del outside.cloud.running["i-1"]
    outside.engine().tick()
    outside.clock.pass_time(hours=20)
    assert hourly(outside) == pytest.approx(4 * 0.8048)


@pytest.mark.requirement("PE-18", "PE-23")
def test_neither_prepaid_nor_foreign_instances_are_metered():
    outside = Outside(spec(pool(), hourly_pool("g6", "g6.xlarge")))
    outside.cloud.held = [block()]
    outside.has(
        node("i-1"), node("i-2", source=ON_DEMAND, pool="g6", instance_type="g6.xlarge", owner="somebody")
    )
    outside.engine().tick()
    assert outside.books.spending(outside.clock.now()).total_usd == 0


@pytest.mark.requirement("PE-18")
def test_a_restarted_engine_does_not_bill_an_ended_instance_again():
    outside = Outside(spec(hourly_pool("g6", "g6.xlarge")))
    ended = node("i-1", "launched", source=ON_DEMAND, pool="g6", instance_type="g6.xlarge", launched="1h",
                 state=InstanceState.TERMINATED)  # fmt: skip
    outside.has(ended)
    outside.engine().tick()
    before = hourly(outside)
    outside.clock.pass_time(hours=3)
    outside.engine().tick()
    assert hourly(outside) == before
