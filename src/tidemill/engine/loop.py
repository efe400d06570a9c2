"""One tick: observe, decide, act, report; and when to tick again.

A tick recomputes everything from what is true now. Events only wake it; losing one costs time, not truth.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from tidemill.decide import decide
from tidemill.engine.act import Actor
from tidemill.engine.cost_metering import Meter
from tidemill.engine.observe import Observer
from tidemill.engine.planner_runner import PlannerExecutor, PlannerRunner
from tidemill.model.errors import PortError
from tidemill.model.plan import (
    Admit,
    AnnounceEnd,
    AnnounceNodeEnd,
    Launch,
    Outcome,
    Plan,
    SettleLaunch,
    SubmitPurchase,
    Warning,
)
from tidemill.model.world import World
from tidemill.ports import Clock, Cloud, Cluster, Ledger
from tidemill.spec import Spec

log = logging.getLogger("tidemill.engine.loop")

# What was just done may allow the next step without any event telling us.
AFTER_ACTING = timedelta(seconds=1)
# These do not: they only write down or let happen what this very decision reckoned with.
_LEADS_NOWHERE = (Admit, AnnounceEnd, AnnounceNodeEnd, SettleLaunch)
# When AWS or the API server says no to everything, asking every second makes it worse.
AFTER_FAILING = timedelta(seconds=5)
# Even with no event and no wake_at the world is looked at again: events get lost.
RESYNC = timedelta(minutes=10)

Decide = Callable[[Spec, World], Plan]


class Reconciler(Protocol):
    def reconcile(self, world: World) -> tuple[Warning, ...]:
        """Raises nothing; what people should know of it."""
        ...


@dataclass(frozen=True, slots=True)
class Tick:
    world: World
    plan: Plan
    outcomes: tuple[Outcome, ...]
    wake_at: datetime
    kept: tuple[
        Warning, ...
    ] = ()  # what the reconciler says; no part of the plan, which the world alone decides


class Engine:
    """The engine has no memory that matters: kill it anywhere, start another, and nothing is lost or doubled."""

    def __init__(
        self,
        spec: Spec,
        clock: Clock,
        cloud: Cloud,
        cluster: Cluster,
        ledger: Ledger,
        *,
        decide: Decide = decide,
        executor: PlannerExecutor | None = None,
        reconciler: Reconciler | None = None,
    ) -> None:
        """`reconciler`: keeps what launches need, such as groups, as the documents want it."""
        self._spec, self._clock, self._ledger, self._decide = spec, clock, ledger, decide
        self._reconciler = reconciler
        self._observer = Observer(clock, cloud, cluster, ledger, spec.platform.spec.deployment)
        self._actor = Actor(spec, clock, cloud, cluster, ledger)
        self._planner = PlannerRunner(spec, executor)
        self._meter = Meter(spec, ledger)
        self._last_world: World | None = None
        self._last_plan = Plan()

    @property
    def planning(self) -> bool:
        """The purchase planner is at work beside the ticks."""
        return self._planner.busy

    def tick(self) -> Tick | None:
        """None: the world could not be seen; try again after AFTER_FAILING."""
        # 1 observe: what is true now
        try:
            buyer = self._actor.buyer
            uses = self._meter.uses(self._last_world)
            world = self._observer.look(buyer.searches.values(), buyer.extension_searches.values(), uses)
        except PortError as error:
            log.warning("cannot observe: %s", error)
            return None
        self._meter.read(world)
        world = self._planner.with_result(world)
        # 2 decide: what to do about it, unless it is the very world that asked for nothing a while ago
        plan = self._last_plan if self._is_unchanged(world) else self._decide(self._spec, world)
        self._last_world, self._last_plan = world, plan
        # 3 act: one outcome per action
        outcomes = self._actor.carry_out(plan)
        kept = () if self._reconciler is None else self._reconciler.reconcile(world)
        # 4 report: what was done and what went wrong
        for outcome in outcomes:
            if outcome.error:
                log.info("%s: %s (%s)", type(outcome.action).__name__, outcome.error, outcome.detail)
        # 5 sleep: until something could be decided differently
        return Tick(world, plan, outcomes, self._next(world.now, plan, outcomes), kept)

    def _is_unchanged(self, world: World) -> bool:
        """Nothing moved since a plan without actions, and it is not yet when it said things could differ.

        That is what `wake_at` promises, so looking again because events may be lost costs a look and no decision.
        Money by the hour moves by itself, but while the nodes are the same it runs out at the same instant, and what
        could not be afforded cannot be afforded later in the month either.
        """
        last, plan = self._last_world, self._last_plan
        if last is None or plan.actions or self._decide is not decide:
            return False
        if _money_and_month(world) != _money_and_month(last):
            return False
        if any(one.code == "launching" for one in plan.unmet):
            return False  # when such a pod could run is told from now on
        if plan.wake_at is not None and world.now >= plan.wake_at:
            return False
        return (
            world.nodes is last.nodes
            and world.pods is last.pods
            and world.reservations is last.reservations
            and world.budgets is last.budgets
            and world.workloads is last.workloads
            and (world.launches, world.purchases, world.searches, world.extension_searches)
            == (last.launches, last.purchases, last.searches, last.extension_searches)
            and (world.extensions, world.uses) == (last.extensions, last.uses)
            and world.planner_result is last.planner_result
            and (world.ledger_ok, world.cloud_ok) == (last.ledger_ok, last.cloud_ok)
        )

    def _next(self, now: datetime, plan: Plan, outcomes: tuple[Outcome, ...]) -> datetime:
        wake_at = min(now + RESYNC, plan.wake_at or now + RESYNC)
        if self._planner.busy:  # it tells nobody when it is done
            wake_at = min(wake_at, now + AFTER_ACTING)
        if all(isinstance(outcome.action, _LEADS_NOWHERE) and not outcome.error for outcome in outcomes):
            return wake_at
        # A refused launch or purchase was written down: what is decided next is something else, at once.
        failed = all(o.error and not isinstance(o.action, Launch | SubmitPurchase) for o in outcomes)
        return min(wake_at, now + (AFTER_FAILING if failed else AFTER_ACTING))


def _money_and_month(world: World) -> tuple[int, int, int]:
    return world.spending.fees_usd, world.now.year, world.now.month
