"""Every step of a drain leaves a line in the journal, in the order in which it happened."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.sim.scenario_builder import BLOCK_END, block, job, journal_lines, scenario_with, service
from tidemill.sim.scenario.rehearsal import Rehearsal

pytestmark = pytest.mark.requirement("CB-10")

DEADLINE = BLOCK_END - timedelta(minutes=30)


def steps(rehearsal: Rehearsal, about: str) -> list[str]:
    """What the journal tells of a pod on its way out; `decided` lines are named by uid."""
    kinds = ("end-announced", "checkpoint-requested", "checkpoint-done", "pod-evicted", "pod-force-deleted")
    return [line.kind for line in rehearsal.journal.lines if line.kind in kinds and about in line.about]


def test_a_job_that_acknowledges_is_told_its_end_checkpoints_and_is_evicted() -> None:
    saved = job(lasts="9h", checkpointEvery="20m", checkpointTime="3m", grace="2m")
    rehearsal = scenario_with(reservations=[block()], jobs=[saved]).run()
    assert steps(rehearsal, "fit-1-0-0") == [
        "end-announced", "checkpoint-requested", "checkpoint-done", "pod-evicted",
    ]  # fmt: skip
    (announced,) = journal_lines(rehearsal, "end-announced", "fit-1-0-0")
    assert announced.at < DEADLINE - timedelta(hours=3)
    assert announced.sentence == "told at its start: 2026-11-17T11:00:00Z"


def test_a_checkpoint_that_nobody_acknowledges_is_said_to_have_timed_out() -> None:
    deaf = job(lasts="9h", checkpointEvery="20m", checkpointTime="3m", grace="2m", acknowledges=False)
    rehearsal = scenario_with(reservations=[block()], jobs=[deaf]).run()
    assert steps(rehearsal, "fit-1-0-0") == ["end-announced", "checkpoint-requested", "pod-evicted"]
    (evicted,) = [line for line in journal_lines(rehearsal, "decided") if line.sentence.startswith("Evict")]
    assert evicted.sentence.endswith("its checkpoint was not acknowledged in time")


def test_an_end_that_moves_is_announced_again() -> None:
    extension = {"at": "1h", "block": "a", "by": "1d"}
    rehearsal = scenario_with(
        reservations=[block()], jobs=[job(lasts="2h")], services=[service(replicas=1, minAvailable=0)],
        extensions=[extension], duration="2h",
    ).run()  # fmt: skip
    for about, first in (("fit-1", "told at its start"), ("chat", "told")):
        lines = journal_lines(rehearsal, "end-announced", about)
        assert [line.sentence for line in lines] == [
            f"{first}: 2026-11-17T11:00:00Z",
            "told that its end moved: 2026-11-18T11:00:00Z",
        ]


def test_an_eviction_that_a_budget_delays_is_reported_with_the_time_of_force_deletion() -> None:
    """Two replicas, one may be away, and there is nowhere to go: the second is made to go at the last safe moment."""
    rehearsal = scenario_with(reservations=[block()], services=[service(grace="2m")]).run()
    warned = journal_lines(rehearsal, "warned", "Deployment/chat")
    (held,) = [line for line in warned if "disruption budget" in line.sentence]
    assert held.sentence == (
        "its disruption budget allows no eviction now; pods that are still there at 2026-11-17T10:57:00Z are deleted"
    )
    (evicted,) = journal_lines(rehearsal, "pod-evicted")
    (forced,) = journal_lines(rehearsal, "pod-force-deleted")
    assert evicted.at <= held.at < forced.at
    assert forced.at == DEADLINE - timedelta(minutes=3)
    assert "with 120 s of its 120 s grace" in forced.sentence
