"""Runs the purchase planner: when a round is due and its queries are answered, the world gets a dated result.

The planner takes seconds and a tick may not. In a rehearsal it runs at once, in virtual time, so that the same seed
gives the same result; in a live loop it runs in a thread, and a later tick finds the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from tidemill.decide.read_models import (
    learned_gpus,
    next_round_at,
    planning_basis,
    planning_round,
    plans_with_calendar,
    run_planner,
    solver_installed,
)
from tidemill.model.planner_result import PlannerFailure, PlannerResult
from tidemill.model.world import World
from tidemill.spec import Spec


class PlannerExecutor(Protocol):
    """Where the planner runs: one piece of work at a time."""

    @property
    def busy(self) -> bool: ...

    def begin(self, work: Callable[[], PlannerResult], otherwise: PlannerResult) -> None:
        """`otherwise` is the result if the work fails: drains and admissions must go on."""
        ...

    def take(self) -> PlannerResult | None:
        """The result, once; None: there is none yet."""
        ...


class InlineExecutor:
    """Runs in the caller's thread: the caller waits, and gets the exceptions."""

    busy = False

    def __init__(self) -> None:
        self._done: PlannerResult | None = None

    def begin(self, work: Callable[[], PlannerResult], otherwise: PlannerResult) -> None:
        self._done = work()

    def take(self) -> PlannerResult | None:
        done, self._done = self._done, None
        return done


class PlannerRunner:
    """The result is lost in a restart, and then computed again."""

    def __init__(self, spec: Spec, executor: PlannerExecutor | None = None) -> None:
        self._spec, self._executor = spec, executor or InlineExecutor()
        self._no_solver = bool(plans_with_calendar(spec)) and not solver_installed()
        self._result: PlannerResult | None = None

    @property
    def busy(self) -> bool:
        return self._executor.busy

    def with_result(self, world: World) -> World:
        """The world with the newest result in it. Starts the planner if a round is due and every query is answered."""
        if not plans_with_calendar(self._spec):
            return world
        self._result = self._executor.take() or self._result
        world = replace(world, planner_result=self._result)
        due = next_round_at(self._spec, world)
        if (
            due is None
            or world.now < due
            or self.busy
            or not (world.cloud_ok and world.ledger_ok)
            or world.pause
        ):
            return world
        self._begin(world)
        self._result = self._executor.take() or self._result
        return replace(world, planner_result=self._result)

    def _begin(self, world: World) -> None:
        if self._no_solver:
            failure = PlannerFailure.NO_SOLVER
            self._result = PlannerResult(world.now, planning_basis(self._spec, world), failure=failure)
            return
        learned = learned_gpus(self._spec, world)
        wanted = planning_round(self._spec, world, learned)
        if not wanted.unanswered(world):
            failed = PlannerResult(
                world.now, planning_basis(self._spec, world), failure=PlannerFailure.CRASHED
            )
            self._executor.begin(lambda: run_planner(self._spec, world, wanted, learned), failed)
