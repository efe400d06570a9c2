"""Work that cannot move is not started by the hour where it would keep the nodes of a paid block out (PE-5, CB-11)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.decide import builders as given
from tests.decide.builders import ON_DEMAND, ahead, block, node, of, pool, spec, why, world
from tests.sim import scenario_builder as played
from tidemill.decide import decide
from tidemill.model.capacity import SourceKind
from tidemill.model.plan import Launch
from tidemill.model.pods import Pod
from tidemill.model.reasons import HoldKind
from tidemill.spec import Spec
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("CB-11")
OVERFLOW = [{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 5000, "maxMonthlyUsd": 500_000}]
SOON = block(count=4, starts_in="90m", ends_in="40h")


def documents(nodes: int, **fields: Any) -> Spec:
    return spec(pool(sources=OVERFLOW, limits={"nodes": nodes}, **fields), budget={"monthlyUsd": 1_000_000})


def job(name: str = "long", **fields: Any) -> Pod:
    return given.pod(name, **{"gpus": 8, "expected": "20h", "overflow": True, **fields})


def launched(documents: Spec, *things: Any) -> int:
    return sum(launch.intent.count for launch in of(decide(documents, world(*things)), Launch))


def test_a_long_job_waits_for_the_block_that_it_would_keep_out_and_says_so():
    wants = job()
    plan = decide(documents(4), world(SOON, wants))
    assert not of(plan, Launch)
    told = why(plan, wants)
    assert (told.reason.kind, told.earliest) == (HoldKind.BLOCK_NEEDS_LIMITS, ahead("97m"))
    assert sentence(told.reason) == (
        "cr-1 is paid for and has room for it about 2026-11-16T13:37:00Z; on a node by the hour it would keep nodes of"
        " that block out, because the limits of its pool do not hold both"
    )
    assert plan.wake_at is not None
    assert plan.wake_at <= ahead("97m1s")


def test_what_the_limits_hold_beside_the_block_is_launched():
    assert launched(documents(6), SOON, [job(f"job-{each}") for each in range(4)]) == 2


def test_work_that_runs_and_cannot_move_is_counted():
    on = node(source=ON_DEMAND)
    assert launched(documents(5), SOON, on, given.pod("runs", on=on, gpus=8, expected="20h"), job()) == 0
    done = given.pod("runs", on=on, gpus=8, expected="90m")
    moves = given.pod("runs", on=on, gpus=8, expected="20h", checkpoint_every="10m")
    assert launched(documents(5), SOON, on, done, job()) == 1
    assert launched(documents(5), SOON, on, moves, job()) == 1


@pytest.mark.parametrize(
    ("coming", "wants"),
    [
        (SOON, job(checkpoint_every="10m")),  # it moves when the block is there
        (SOON, job(expected="2h")),  # it would wait longer than it stays after the start
        (block(count=4, starts_in="3h", ends_in="40h"), job()),  # not near
        (block(count=4, starts_in="90m", ends_in="10h"), job()),  # the block does not last for it
        (block(count=4, starts_in="90m", ends_in="40h", owner="others"), job()),
    ],
)
def test_other_work_does_not_wait(coming: Any, wants: Pod):
    assert launched(documents(4), coming, wants) == 1


def test_one_that_must_not_be_disturbed_waits_although_it_could_be_resumed():
    assert launched(documents(4), SOON, job(checkpoint_every="10m", do_not_disrupt=True)) == 0


def test_a_rehearsed_block_is_not_kept_out_by_work_that_came_an_hour_before():
    mixed = played.pool(sources=OVERFLOW, limits={"nodes": 2})
    on = played.platform(budget={"monthlyUsd": 1_000_000})
    coming = played.block(duration="2d", **{"from": "4h"})  # on the grid, at 11:30
    long = played.job(lasts="20h", at=["3h", "3h1m"], overflow=True)
    rehearsal = played.scenario_with(mixed, on=on, reservations=[coming], jobs=[long], duration="30h").run()
    assert rehearsal.cloud.hourly_usd()[SourceKind.ON_DEMAND] == 0
    assert {one.state for one in rehearsal.cluster.jobs.values()} == {"finished"}
