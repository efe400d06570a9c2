"""Loss, each kind of it with time left and without: what is lost is replaced only where that is still of use."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import BLOCK_END, actions_done, after, journal_lines, scenario_with
from tidemill.model.plan import Launch, Recreate, StartDrain
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("PE-17")

SAVED = given.job("saved", lasts="9h", checkpointEvery="10m", grace="1m", at=("0s", "0s"))
PAIR = given.job("pair", nodes=2, lasts="9h", checkpointEvery="10m", grace="1m")
EARLY, LATE = "1h", "3h10m"  # the drain begins at 3h20m
DRAIN = BLOCK_END - timedelta(minutes=40)


def struck(kind: str, at: str, *jobs: Any, **more: Any) -> Rehearsal:
    faults = [given.fault(at, kind, target=more.pop("target", ""), duration="2h")]
    return scenario_with(reservations=[given.block()], jobs=list(jobs), faults=faults, **more).run()


def launched_after(rehearsal: Rehearsal, at: str) -> int:
    return sum(one.intent.count for when, one in actions_done(rehearsal, Launch) if when >= after(at))


def last_start(rehearsal: Rehearsal, name: str) -> datetime:
    return rehearsal.cluster.jobs[name].stints[-1].since


# --- one node ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["node-dies", "gpu-fails"])
def test_a_lost_node_is_replaced_in_its_slot_while_there_is_time(kind: str) -> None:
    rehearsal = struck(kind, EARLY, SAVED)
    assert launched_after(rehearsal, EARLY) == 1
    assert sorted(len(one.stints) for one in rehearsal.cluster.jobs.values()) == [1, 2]
    for one in rehearsal.cluster.jobs.values():  # both worked on until the drain
        last = one.stints[-1]
        assert last.kept is not None
        assert last.since + last.kept > DRAIN - timedelta(minutes=10)


@pytest.mark.parametrize("kind", ["node-dies", "gpu-fails"])
def test_a_node_lost_just_before_the_drain_is_not_replaced(kind: str) -> None:
    rehearsal = struck(kind, LATE, SAVED)
    assert launched_after(rehearsal, LATE) == 0
    held = [unmet for unmet in rehearsal.plan.unmet if "saved" in unmet.name]
    assert held
    assert all(sentence(unmet.reason) for unmet in held)


def test_a_broken_gpu_moves_a_job_to_a_free_node_that_lasts() -> None:
    rehearsal = scenario_with(
        reservations=[given.block(), given.block("b", zone="us-east-1b", duration="28h", count=1)],
        jobs=[given.job("saved", lasts="6h", checkpointEvery="10m", grace="1m", at=("0s", "0s"))],
        faults=[given.fault(LATE, "gpu-fails", target="a")],
        duration="12h",
    ).run()
    assert {one.state for one in rehearsal.cluster.jobs.values()} == {"finished"}
    assert launched_after(rehearsal, LATE) == 0


# --- a gang --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["node-dies", "gpu-fails"])
def test_a_gang_that_loses_a_member_comes_back_whole_on_its_block(kind: str) -> None:
    rehearsal = struck(kind, EARLY, PAIR)
    pair = rehearsal.cluster.jobs["pair-1"]
    assert pair.restarts >= 2  # the loss, and the end of the block
    assert len(pair.stints) == 2
    assert after(EARLY) + timedelta(minutes=8) < last_start(rehearsal, "pair-1") < after("2h")
    assert actions_done(rehearsal, Recreate) or journal_lines(rehearsal, "pod-evicted")


@pytest.mark.parametrize("kind", ["node-dies", "gpu-fails"])
def test_a_gang_that_loses_a_member_too_late_is_held_whole_with_the_reason(kind: str) -> None:
    rehearsal = struck(kind, LATE, PAIR)
    pair = rehearsal.cluster.jobs["pair-1"]
    assert len(pair.stints) == 1
    assert launched_after(rehearsal, LATE) == 0
    assert all(rehearsal.cluster.pods[uid].gated for uid in pair.uids)
    reasons = {sentence(unmet.reason) for unmet in rehearsal.plan.unmet if unmet.pod in pair.uids}
    assert len(reasons) == 1


def test_a_gang_whose_node_is_to_be_retired_moves_before_that_and_comes_back_whole() -> None:
    """Told two hours ahead: asked for a checkpoint, stopped as a whole, its other node kept."""
    rehearsal = scenario_with(
        reservations=[given.block(duration="28h")], jobs=[{**PAIR, "duration": {"fixed": "5h"}}],
        faults=[given.fault(EARLY, "retirement", duration="2h")], duration="9h",
    ).run()  # fmt: skip
    pair = rehearsal.cluster.jobs["pair-1"]
    assert pair.state == "finished"
    assert not rehearsal.cluster.kills
    assert len(rehearsal.cloud.instance_histories) == 3


# --- notice --------------------------------------------------------------------------------------------


def test_an_interrupted_spot_node_costs_at_most_the_work_since_the_last_checkpoint() -> None:
    spot = given.pool(sources=[{"type": "spot"}])
    work = given.job("saved", lasts="2h", checkpointEvery="10m", grace="30s")
    rehearsal = scenario_with(
        spot, jobs=[work], faults=[given.fault(EARLY, "spot-interruption")], duration="5h"
    ).run()
    saved = rehearsal.cluster.jobs["saved-1"]
    assert saved.state == "finished"
    assert saved.lost_work <= timedelta(minutes=10)


def test_a_job_that_would_start_over_is_evicted_from_an_interrupted_node_at_once() -> None:
    spot = given.pool(sources=[{"type": "spot"}])
    work = given.job("whole", lasts="2h", grace="30s")
    rehearsal = scenario_with(
        spot, jobs=[work], faults=[given.fault(EARLY, "spot-interruption")], duration="5h"
    ).run()
    assert not rehearsal.cluster.kills
    assert rehearsal.cluster.jobs["whole-1"].state == "finished"


def test_a_node_to_be_retired_after_its_block_ends_is_drained_for_the_block() -> None:
    rehearsal = scenario_with(
        reservations=[given.block()], jobs=[SAVED], faults=[given.fault(LATE, "retirement", duration="5h")]
    ).run()
    assert {
        "must be empty by 2026-11-17T11:00:00Z" in sentence(one.reason)
        for _, one in actions_done(rehearsal, StartDrain)
    } == {True}


# --- delivery ------------------------------------------------------------------------------------------


def test_a_short_delivery_sends_the_gang_to_the_block_that_can_hold_it() -> None:
    rehearsal = scenario_with(
        reservations=[
            given.block("a", **{"from": "1h"}, duration="3h"),
            given.block("b", zone="us-east-1b", **{"from": "2h"}, duration="26h"),
        ],
        jobs=[given.job("pair", nodes=2, lasts="1h", at=("1h",))],
        faults=[given.fault("10m", "short-delivery", target="a")],
        duration="6h",
    ).run()  # fmt: skip
    pair = rehearsal.cluster.jobs["pair-1"]
    assert pair.state == "finished"
    assert pair.sources == {rehearsal.cloud.names["b"]}
