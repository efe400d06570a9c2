"""Accelerator hours of blocks: sampled, by team, kept in the ledger, and judged only where a plan asks."""

from __future__ import annotations

import pytest

from tests.decide.builders import block, node, plan, pod
from tests.decide.purchases import buying
from tests.engine.ports import Outside
from tidemill.model.purchases import Adoption, BlockHours, BlockUse

pytestmark = pytest.mark.requirement("PE-16")


def running(**extend: object) -> Outside:
    """A block of four nodes of eight GPUs, one of which a team's pod has."""
    outside = Outside(buying(document=plan(extend=extend)))
    outside.cloud.held = [block("cr-1", ends_in="30d", count=4)]
    outside.books.adopt(Adoption("cr-1", "p5", "ana", outside.clock.now()))
    one = node("i-1")
    outside.has(one)
    outside.cluster.pods = [pod("a", on=one, gpus=8, team="vision")]
    return outside


def watch(outside: Outside, *minutes: int) -> None:
    engine = outside.engine()
    engine.tick()
    for more in minutes:
        outside.clock.pass_time(minutes=more)
        engine.tick()


def lines(outside: Outside) -> dict[str, BlockHours]:
    return {block_hour.team: block_hour for block_hour in outside.books.block_hours()}


def test_hours_are_counted_by_team_and_all_a_block_holds_without_one():
    outside = running()
    watch(outside, *[10] * 6)
    assert lines(outside)["vision"].used_h == pytest.approx(8.0)
    assert lines(outside)[""].held_h == pytest.approx(32.0)


def test_a_new_engine_goes_on_where_the_last_one_stopped():
    outside = running()
    watch(outside, *[10] * 3)
    watch(outside, *[10] * 3)
    assert lines(outside)["vision"].used_h == pytest.approx(8.0)


def test_time_nobody_looked_counts_as_neither_used_nor_held():
    outside = running()
    watch(outside, 10, 300, 10)
    assert lines(outside)[""].held_h == pytest.approx(32 / 3)


def test_only_a_plan_that_asks_sees_how_well_a_block_was_used():
    def uses_after(ticks: int, outside: Outside) -> tuple[BlockUse, ...]:
        engine = outside.engine()
        for _ in range(ticks):
            engine.tick()
            outside.clock.pass_time(minutes=10)
        last = engine.tick()
        assert last is not None
        return last.world.uses

    (use,) = uses_after(4, running(minUtilisation=0.5))
    assert (use.accelerators, use.used_h / use.held_h) == (32, pytest.approx(0.25))
    assert uses_after(3, running()) == ()


def test_hours_of_use_that_no_plan_asked_for_make_no_new_plan():
    """Whether a block was used is asked before it is extended: of one that lasts, never."""
    outside = running(minUtilisation=0.5)
    outside.cluster.pods = []
    engine, ticks = outside.engine(), []
    for _ in range(6):
        tick = engine.tick()
        assert tick is not None
        ticks.append(tick)
        outside.clock.pass_time(minutes=10)
    assert len({tick.world.uses for tick in ticks[-3:]}) == 3
    assert len({id(tick.plan) for tick in ticks[-3:]}) == 1
