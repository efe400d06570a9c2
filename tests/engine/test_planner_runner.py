"""The planner beside the ticks: at once in rehearsals, in a thread where people watch; the loop never waits for it."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from tests.decide.builders import NOW
from tidemill.cli.playback import Pace, Playback
from tidemill.engine.planner_runner import InlineExecutor
from tidemill.engine.planner_thread import ThreadExecutor
from tidemill.model.plan import ProposePurchase, SearchOffers
from tidemill.model.planner_result import PlannerFailure, PlannerResult
from tidemill.model.purchases import PurchaseState
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec import Spec
from tidemill.spec.read import load
from tidemill.spec.scenario import Scenario

FAILED = PlannerResult(NOW, (), failure=PlannerFailure.CRASHED)
EXAMPLE = Path(__file__).parents[2] / "examples" / "weekly-calendar.yaml"


def documents(days: int) -> tuple[Spec, Scenario]:
    loaded = load([EXAMPLE])
    scenario = loaded.checked_scenario()
    short = scenario.spec.model_copy(update={"duration": timedelta(days=days), "jobs": ()})
    return loaded.checked_spec(), scenario.model_copy(update={"spec": short})


class WaitingPlanner(ThreadExecutor):
    """Begins to plan when the gate opens."""

    def __init__(self, gate: threading.Event) -> None:
        super().__init__()
        self._gate = gate

    def begin(self, work, otherwise):
        def later():
            self._gate.wait(60)
            return work()

        super().begin(later, otherwise)


def wait_for(executor: ThreadExecutor) -> None:
    assert executor._thread is not None
    executor._thread.join(timeout=60)


def test_the_planner_thread_is_busy_until_it_is_done_and_gives_its_result_once():
    gate, executor = threading.Event(), ThreadExecutor()
    result = PlannerResult(NOW, ())

    def work():
        gate.wait(10)
        return result

    executor.begin(work, FAILED)
    assert executor.busy
    assert executor.take() is None
    gate.set()
    wait_for(executor)
    assert (executor.take(), executor.take()) == (result, None)


def test_a_failure_of_the_planner_is_logged_and_gives_a_result_without_a_plan(caplog):
    def work() -> PlannerResult:
        raise RuntimeError("no plan today")

    executor = ThreadExecutor()
    executor.begin(work, FAILED)
    wait_for(executor)
    assert executor.take() is FAILED
    assert "planning the calendars failed" in caplog.text


def test_the_engine_ticks_while_the_planner_runs_and_proposes_when_it_is_done():
    gate = threading.Event()
    made: list[ThreadExecutor] = []

    def executor() -> ThreadExecutor:
        made.append(WaitingPlanner(gate))
        return made[-1]

    spec, scenario = documents(days=2)
    rehearsal = Rehearsal(spec, scenario, 1, planner_executor=executor)
    rehearsal.run_until(rehearsal.start + timedelta(minutes=2))
    assert made[-1].busy
    assert rehearsal.ticks > 60  # every second, because the planner tells nobody when it is done
    assert not any(isinstance(one.action, ProposePurchase) for one in rehearsal.done)
    gate.set()
    for second in range(1, 61):  # a wave of searches at a time
        wait_for(made[-1])
        rehearsal.run_until(rehearsal.start + timedelta(minutes=2, seconds=second))
    assert any(isinstance(one.action, ProposePurchase) for one in rehearsal.done)


@pytest.mark.requirement("CB-8")
def test_a_calendar_is_bought_in_a_rehearsal_and_the_same_seed_buys_the_same():
    spec, scenario = documents(days=8)
    runs = [Rehearsal(spec, scenario, 3, planner_executor=InlineExecutor) for _ in range(2)]
    for run in runs:
        run.run()
    assert runs[0].done == runs[1].done
    bought = [
        purchase for purchase in runs[0].ledger.purchases() if purchase.state is PurchaseState.CONFIRMED
    ]
    assert len(bought) >= 3
    assert len({one.window for one in bought}) == len(bought)


def test_ticking_every_second_buys_the_same_as_ticking_at_wake_at():
    spec, scenario = documents(days=1)
    seldom, often = Rehearsal(spec, scenario, 2), Rehearsal(spec, scenario, 2, every_second=True)
    for run in (seldom, often):
        run.run_until(run.start + timedelta(hours=7))

    def kept(run: Rehearsal) -> list[object]:
        return [
            (one.at, one.action) for one in run.done if isinstance(one.action, SearchOffers | ProposePurchase)
        ]

    assert kept(seldom) == kept(often)
    assert kept(seldom)


def test_a_restarted_engine_plans_again_and_buys_nothing_twice():
    spec, scenario = documents(days=2)
    rehearsal = Rehearsal(spec, scenario, 1)
    rehearsal.run_until(rehearsal.start + timedelta(hours=1))
    before = {purchase.id for purchase in rehearsal.ledger.purchases()}
    rehearsal.crash_engine("")
    rehearsal.run_until(rehearsal.start + timedelta(hours=12))
    assert before
    assert {purchase.id for purchase in rehearsal.ledger.purchases()} == before


def test_the_clock_of_a_live_rehearsal_stops_while_the_planner_runs():
    gate = threading.Event()
    spec, scenario = documents(days=2)
    rehearsal = Rehearsal(spec, scenario, 1, planner_executor=lambda: WaitingPlanner(gate))
    playback = Playback(rehearsal, "weeks", Pace(rehearsal.end, wall_s=10, speed=3600))
    for second in range(3):
        playback.advance(passed_s=1, elapsed_s=second, within_s=30)
    assert rehearsal.engine.planning
    assert rehearsal.timeline.now() < rehearsal.start + timedelta(seconds=10)
    gate.set()
    for second in range(4, 64):  # a wave of searches at a time
        while rehearsal.engine.planning:
            pass
        playback.advance(passed_s=1, elapsed_s=second, within_s=30)
    assert any(isinstance(one.action, ProposePurchase) for one in rehearsal.done)


def test_a_block_that_starts_now_is_bought_although_cheaper_ones_start_tomorrow():
    loaded = load([EXAMPLE])
    rehearsal = Rehearsal(loaded.checked_spec(), loaded.checked_scenario(), 3)
    rehearsal.run_until(rehearsal.start + timedelta(minutes=5))
    today = [
        one for one in rehearsal.cloud.all_reservations() if one.start < rehearsal.start + timedelta(hours=1)
    ]
    assert [one.count for one in today] == [8]
