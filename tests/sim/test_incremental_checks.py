"""Invariants that look only at what changed find what a look at everything finds, at every instant."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from benchmarks import rehearsal as month
from tests.sim import mutants
from tests.sim import scenario_builder as given
from tests.sim import test_mutants_work as work
from tests.sim.scenario_builder import scenario_with, without
from tests.sim.test_mutants import CASES
from tidemill.engine.loop import Tick
from tidemill.model.plan import AnnounceEnd, AnnounceNodeEnd, Terminate
from tidemill.model.reasons import HoldKind
from tidemill.sim.invariants.promises import _ON_ITS_WAY, Promises
from tidemill.sim.invariants.told_ends import ToldEnds
from tidemill.sim.invariants.truth import Finding, Truth, Violation
from tidemill.sim.invariants.workloads import GANG_BOUND, Gangs, Orphans, _is_karpenters, _members, _useless
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec.units import format_instant


class EveryGang:
    """All gangs there ever were, each time."""

    def __init__(self) -> None:
        self.broken: dict[str, datetime] = {}

    def check(self, truth: Truth) -> Iterator[Finding]:
        now = truth.now()
        for job in truth.cluster.jobs.values():
            if job.pods == 1 or job.over:
                self.broken.pop(job.name, None)
                continue
            admitted, started = _members(truth, job)
            whole = started in (0, job.pods) or _is_karpenters(truth, job)
            if admitted in (0, job.pods) and whole:
                self.broken.pop(job.name, None)
                continue
            since = self.broken.setdefault(job.name, now)
            if truth.able_for(since, now) > GANG_BOUND + job.terms.grace:
                sizes = f"{admitted} admitted and {started} started of {job.pods}"
                yield 8, (job.name, f"{sizes} since {format_instant(since)}")


def every_orphan(truth: Truth) -> Iterator[Finding]:
    """All instances, each time."""
    for history in truth.ours():
        why, since, bound = _useless(truth, history)
        if since is not None and truth.able_for(since, truth.now()) > bound:
            yield 7, (history.now.id, f"{why} since {format_instant(since)}")


class EveryWait:
    """All that a plan says of waiting pods, each time."""

    def __init__(self) -> None:
        self.since: dict[str, tuple[tuple[HoldKind, str], datetime]] = {}

    def read(self, tick: Tick) -> dict[str, datetime]:
        before, self.since = self.since, {}
        for unmet in tick.plan.unmet:
            if unmet.reason.kind in _ON_ITS_WAY:
                told = (unmet.reason.kind, unmet.reason.name)
                same, since = before.get(unmet.pod, (told, tick.world.now))
                self.since[unmet.pod] = (told, since if same == told else tick.world.now)
        return {pod: since for pod, (_, since) in self.since.items()}


def compared(rehearsal: Rehearsal) -> tuple[int, int]:
    """Runs to the end, past any violation. How many findings about gangs and orphans there were."""
    truth, gangs, all_gangs, orphans = rehearsal._truth, Gangs(), EveryGang(), Orphans()
    broken_gangs = useless = 0
    rehearsal._stop_on = lambda violation: None  # type: ignore[method-assign]
    while rehearsal.step():
        found = set(gangs.check(truth))
        assert found == set(all_gangs.check(truth))
        assert gangs._broken == all_gangs.broken
        left = list(orphans.check(truth))
        assert left == list(every_orphan(truth))
        broken_gangs, useless = broken_gangs + len(found), useless + len(left)
        cluster = truth.cluster
        assert list(cluster.unbound) == [pod for pod in cluster.pods.values() if not pod.node]
        busy = {pod.node for pod in cluster.pods.values() if not pod.daemon}
        assert cluster.without_work() == [node for node in cluster.view().nodes if node.name not in busy]
    return broken_gangs, useless


WRONG_ABOUT = {
    "admits half a gang": (True, False),
    "lets the rest of a gang run on": (True, False),
    "keeps what never joined": (False, True),
    "keeps what never registered GPUs": (False, True),
    "keeps what it drained": (False, True),
    "removes nodes under their pods": (False, False),
}


@pytest.mark.parametrize("name", WRONG_ABOUT)
def test_a_wrong_engine_is_found_at_the_same_instants_as_by_looking_at_everything(name: str) -> None:
    _, scenario, how = CASES[name]
    gangs, orphans = compared(scenario.prepare(**how))
    assert (bool(gangs), bool(orphans)) == WRONG_ABOUT[name]


TELLS_WRONG_ENDS = {
    "ends ten minutes later": lambda: CASES["believes in ends ten minutes later"][1].prepare(
        decide=mutants.ten_minutes_late
    ),
    "no pod is told": lambda: work.SERVED.prepare(decide=without(AnnounceEnd)),
    "no node is told that its end moved": lambda: work.EXTENDED.prepare(decide=without(AnnounceNodeEnd)),
    "all are told": lambda: Rehearsal(month.spec(8), month.scenario(2, 8, 60), 3),
}


@pytest.mark.parametrize("name", TELLS_WRONG_ENDS)
def test_who_was_not_told_an_end_is_found_as_by_asking_everybody(name: str) -> None:
    rehearsal, changed_only, everybody, found = TELLS_WRONG_ENDS[name](), ToldEnds(), ToldEnds(), 0
    rehearsal._stop_on = lambda violation: None  # type: ignore[method-assign]
    while rehearsal.step():
        everybody._as_of = None
        wrong = list(changed_only.check(rehearsal._truth))
        assert wrong == list(everybody.check(rehearsal._truth))
        assert changed_only._wrong_since == everybody._wrong_since
        found += len(wrong)
    assert bool(found) == (name != "all are told")


def test_a_node_that_worked_and_is_then_kept_although_drained_is_found() -> None:
    """The account last changed while it worked: another instance was launched."""
    scenario = scenario_with(
        given.pool(sources=[{"type": "on-demand"}]),
        jobs=[given.job(lasts="1h"), given.job("late", lasts="1h", at=("20m",))],
        duration="3h",
    )
    _, orphans = compared(scenario.prepare(decide=without(Terminate)))
    assert orphans


def test_since_when_a_pod_is_told_that_its_node_comes_is_known_as_from_reading_every_plan() -> None:
    rehearsal = Rehearsal(month.spec(8), month.scenario(2, 8, 60), 1)
    promises, every, noted = Promises(), EveryWait(), 0
    check = rehearsal.invariants.check_tick

    def checked(tick: Tick) -> Violation | None:
        nonlocal noted
        assert not list(promises._judge_waits(rehearsal._truth, tick))
        told = every.read(tick)
        assert {pod: since for pod, (_, since) in promises._on_its_way.items()} == told
        noted += len(told)
        return check(tick)

    rehearsal.invariants.check_tick = checked  # type: ignore[method-assign]
    rehearsal.run()
    assert noted


@pytest.mark.parametrize(("seed", "more"), [(1, {}), (2, {"suspended_jobs": True})])
def test_a_busy_rehearsal_is_judged_as_by_looking_at_everything(seed: int, more: dict[str, Any]) -> None:
    rehearsal = Rehearsal(month.spec(8), month.scenario(2, 8, 60), seed, **more)
    compared(rehearsal)
    assert rehearsal.ticks > 60
