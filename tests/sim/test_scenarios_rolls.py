"""A new image over a full block, through the whole loop: one node at a time, no job broken off, and in time."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import actions_done, after, journal_lines, scenario_with
from tidemill.model.plan import StartDrain, Terminate
from tidemill.model.reasons import DrainKind
from tidemill.sim.scenario.rehearsal import Rehearsal

ROLL = {"at": "1h", "nodeClass": "gpu", "ami": {"alias": "al2023@v20261201"}}


def rolled(*, count: int = 3, at: str = "1h", duration: str = "12h", **scenario: Any) -> Rehearsal:
    """A warm block that is full, and the image changes after an hour."""
    return scenario_with(
        reservations=[given.block(count=count, duration="28h")],
        rolls=[{**ROLL, "at": at}],
        duration=duration,
        **scenario,
    ).prepare(seed=scenario.pop("seed", 1))


def drifted(rehearsal: Rehearsal) -> list[tuple[datetime, StartDrain]]:
    return [
        one
        for one in actions_done(rehearsal, StartDrain)
        if one[1].reason.kind is DrainKind.DRIFTED_NODE_CLASS
    ]


def ends_of(rehearsal: Rehearsal) -> list[datetime]:
    return [at for at, one in actions_done(rehearsal, Terminate)]


def old_ones(rehearsal: Rehearsal) -> int:
    """Nodes that still run from the image of before."""
    new = rehearsal.cluster.nodes[
        max(rehearsal.cluster.nodes, key=lambda id: _launched(rehearsal, id))
    ].made_from
    return sum(
        node.gone_at is None and node.dead_at is None and node.made_from != new
        for node in rehearsal.cluster.nodes.values()
    )


def _launched(rehearsal: Rehearsal, id: str) -> datetime:
    return rehearsal.cluster.nodes[id].launched_at


def test_idle_nodes_of_a_full_block_are_replaced_one_after_the_other():
    rehearsal = rolled(duration="4h")
    rehearsal.run()
    started = [at for at, _ in drifted(rehearsal)]
    assert len(started) == 3
    # the next goes only when the one before it is back: emptied, stopped, its slot cleaned, a new node booted
    assert all(later - earlier > timedelta(minutes=8) for earlier, later in pairwise(started))
    assert rehearsal.cluster.gpus_ready() == 24
    assert old_ones(rehearsal) == 0


def test_at_most_one_node_of_the_block_is_missing_at_any_time():
    rehearsal = rolled(duration="4h")
    rehearsal.run_until(after("1h"))
    lowest = 3
    while rehearsal.step():
        lowest = min(lowest, rehearsal.cluster.gpus_ready() // 8)
    assert lowest == 2


def test_a_gang_is_not_broken_for_a_new_image():
    """It runs on all three nodes until 5h: the first of them goes then, and nobody was stopped."""
    trio = given.job("trio", nodes=3, lasts="4h30m", checkpointEvery="30m")
    rehearsal = rolled(jobs=[trio], duration="9h")
    rehearsal.run()
    one = rehearsal.cluster.jobs["trio-1"]
    assert (one.state, one.restarts) == ("finished", 0)
    assert ends_of(rehearsal)
    assert min(ends_of(rehearsal)) >= one.finished
    assert old_ones(rehearsal) == 0


def test_a_job_without_checkpoints_is_let_finish_and_one_with_checkpoints_moves():
    rehearsal = rolled(
        jobs=[given.job("whole", lasts="4h"), given.job("saved", lasts="4h", checkpointEvery="15m")], count=2
    )
    rehearsal.run()
    assert rehearsal.cluster.jobs["whole-1"].restarts == 0
    assert rehearsal.cluster.jobs["saved-1"].restarts == 1
    assert {one.state for one in rehearsal.cluster.jobs.values()} == {"finished"}
    assert old_ones(rehearsal) == 0


def test_a_stream_of_jobs_does_not_hold_the_roll_for_ever():
    """There is always another job: the node that is free soonest is closed to new ones, so it does get its turn."""
    busy = given.job("busy", lasts="50m", at=[f"{minutes}m" for minutes in range(0, 540, 20)])
    rehearsal = rolled(jobs=[busy], count=2, duration="12h")
    rehearsal.run()
    assert old_ones(rehearsal) == 0
    assert all(one.restarts == 0 for one in rehearsal.cluster.jobs.values())


def test_a_service_stays_above_its_minimum_while_its_nodes_are_replaced():
    rehearsal = rolled(services=[given.service(replicas=2, minAvailable=1, zeroDowntime=True)], count=3)
    rehearsal.run()
    assert rehearsal.cluster.services["chat"].lowest_ready() >= 1
    assert old_ones(rehearsal) == 0


def test_nothing_is_replaced_when_the_block_is_nearly_over():
    """The drain begins at 10:50. A node that goes at 9:30 is back by 9:48 and of use for an hour; later is too late."""
    rehearsal = scenario_with(reservations=[given.block(count=2)], rolls=[{**ROLL, "at": "2h5m"}]).run()
    assert journal_lines(rehearsal, "image-rolled")
    assert not drifted(rehearsal)
    early = scenario_with(reservations=[given.block(count=2)], rolls=[{**ROLL, "at": "2h"}]).run()
    assert drifted(early)


@pytest.mark.parametrize("seed", range(20))
def test_a_roll_under_mixed_work_and_faults_keeps_every_invariant(seed: int):
    work = [
        given.job("pair", nodes=2, lasts="2h", checkpointEvery="20m", at=("10m", "3h")),
        given.job("whole", lasts="1h10m", at=("0s", "2h", "4h")),
        given.job("small", lasts="40m", gpus=2, cpu="20", memory="100Gi", at=[f"{n}h" for n in range(9)]),
    ]
    rehearsal = scenario_with(
        given.pool(limits={"nodes": 8}),
        reservations=[given.block(count=4, duration="28h")],
        jobs=work,
        services=[
            given.service(replicas=2, minAvailable=1, zeroDowntime=True, gpus=4, cpu="40", memory="300Gi")
        ],
        rolls=[ROLL],
        randomFaults={
            "count": 4,
            "kinds": [
                "node-dies",
                "gpu-fails",
                "late-join",
                "never-joins",
                "engine-crash",
                "throttle",
                "event-lost",
            ],
        },
        faults=[given.fault("5h", "engine-absent", duration="20m")],
        duration="16h",
    ).run(seed)
    assert old_ones(rehearsal) == 0
    assert {one.state for one in rehearsal.cluster.jobs.values()} <= {"finished", "failed"}
