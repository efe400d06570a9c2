"""One tick: observe, decide, act, report; and when to tick again.

A tick recomputes everything from what is true now. Events only wake it; losing one costs time, not truth.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Protocol

from tidemill.decide import Memory, decide
from tidemill.engine.act import Actor
from tidemill.engine.cost_metering import Meter
from tidemill.engine.observe import Observer
from tidemill.engine.planner_runner import PlannerExecutor, PlannerRunner
from tidemill.model.errors import PortError
from tidemill.model.plan import (
    Action,
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
from tidemill.model.reasons import AdmitKind
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
# While EKS creates or changes a node group that is to launch: it takes a minute or three, and sends no event. Nor does
# a purchaser that is a process of its own.
AFTER_WAITING = timedelta(seconds=20)

# Everything of a world but the clock, the money and the use of blocks, of which a plan says what it read. The index of
# pods follows from the pods.
_COMPARED = tuple(
    field.name for field in fields(World) if field.name not in ("now", "spending", "uses", "pods_by_node")
)

Decide = Callable[[Spec, World], Plan]


class Reconciler(Protocol):
    def reconcile(self, world: World) -> tuple[Warning, ...]:
        """Raises nothing; what people should know of it."""
        ...

    @property
    def waits(self) -> bool:
        """A launch waits for something that tells nobody when it is done."""
        ...


@dataclass(frozen=True, slots=True)
class TickTimes:
    """How long the parts of a tick took, in seconds of the caller's stopwatch."""

    observe_s: float = 0.0
    decide_s: float = 0.0
    act_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Tick:
    world: World
    plan: Plan
    outcomes: tuple[Outcome, ...]
    wake_at: datetime
    kept: tuple[
        Warning, ...
    ] = ()  # what the reconciler says; no part of the plan, which the world alone decides
    times: TickTimes = TickTimes()


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
        go_on: Callable[[], bool] = lambda: True,
        now_s: Callable[[], float] = lambda: 0.0,
        lacks: Callable[[str], Sequence[str]] = lambda pool: (),
        documents_since: datetime | None = None,
        buys: bool = True,
        refused_pools: Callable[[], tuple[tuple[str, str], ...]] = lambda: (),
    ) -> None:
        """`reconciler`: keeps what launches need, such as groups, as the documents want it.

        `go_on`: asked before every action; once it says no, the rest of the plan is left to a later tick. `now_s`: a
        stopwatch, for measuring. `lacks`: what the documents lack, by pool, before it may be bought for.
        `documents_since`: launches that were refused before that say nothing of these documents. `buys`: False where
        another process submits what is approved. `refused_pools`: those that somebody else drains, and who.
        """
        self._spec, self._clock, self._ledger, self._decide = spec, clock, ledger, decide
        self._reconciler, self._go_on, self._now_s = reconciler, go_on, now_s
        self._observer = Observer(
            clock, cloud, cluster, ledger, spec.platform.spec.deployment, documents_since
        )
        self._actor = Actor(spec, clock, cloud, cluster, ledger, lacks, buys=buys)
        self._planner, self._refused_pools = PlannerRunner(spec, executor), refused_pools
        self._meter = Meter(spec, ledger)
        self._last_world: World | None = None
        self._last_plan = Plan()
        self._memory = Memory()
        # Of the tick under way or the last one: what was observed, and the plan once it is made. For a crash report.
        self.seen: tuple[World, Plan | None] | None = None

    @property
    def planning(self) -> bool:
        """The purchase planner is at work beside the ticks."""
        return self._planner.busy

    def tick(self) -> Tick | None:
        """None: the world could not be seen; try again after AFTER_FAILING."""
        # 1 observe: what is true now
        began_s, self.seen = self._now_s(), None
        try:
            actor, buyer = self._actor, self._actor.buyer
            uses = self._meter.uses(self._last_world)
            world = self._observer.look(
                buyer.searches.values(),
                buyer.extension_searches.values(),
                uses,
                actor.taken_back,
                actor.let_go,
            )
        except PortError as error:
            log.warning("cannot observe: %s", error)
            return None
        self._meter.read(world)
        if refused := self._refused_pools():
            world = replace(world, refused_pools=refused)
        world = self._planner.with_result(world)
        self.seen = world, None
        observed_s = self._now_s()
        # 2 decide: what to do about it, unless it is the very world that asked for nothing a while ago
        plan = self._last_plan.told_at(world.now) if self._is_unchanged(world) else self._plan(world)
        self._last_world, self._last_plan, self.seen = world, plan, (world, plan)
        decided_s = self._now_s()
        # 3 act: one outcome per action
        outcomes = self._actor.carry_out(plan, self._go_on)
        kept = () if self._reconciler is None or not self._go_on() else self._reconciler.reconcile(world)
        kept += self._actor.purchaser_warnings()
        # 4 report: what was done and what went wrong
        for outcome in outcomes:
            if outcome.error:
                log.info("%s: %s (%s)", type(outcome.action).__name__, outcome.error, outcome.detail)
        # 5 sleep: until something could be decided differently
        times = TickTimes(observed_s - began_s, decided_s - observed_s, self._now_s() - decided_s)
        return Tick(world, plan, outcomes, self._next(world.now, plan, outcomes), kept, times)

    def _plan(self, world: World) -> Plan:
        if self._decide is decide:
            return decide(self._spec, world, self._memory)
        return self._decide(self._spec, world)

    def _is_unchanged(self, world: World) -> bool:
        """Nothing moved since a plan without actions, and it is not yet when it said things could differ.

        The plan says itself what it read of what moves without an event: money by the hour, use of blocks, the clock.
        """
        last, plan = self._last_world, self._last_plan
        if last is None or plan.actions or self._decide is not decide:
            return False
        if not plan.holds_at(world.now, world.spending, last.spending):
            return False
        if plan.uses_read and world.uses != last.uses:
            return False
        return all(_is_same(getattr(world, name), getattr(last, name)) for name in _COMPARED)

    def _next(self, now: datetime, plan: Plan, outcomes: tuple[Outcome, ...]) -> datetime:
        wake_at = min(now + RESYNC, plan.wake_at or now + RESYNC)
        if self._planner.busy:  # it tells nobody when it is done
            wake_at = min(wake_at, now + AFTER_ACTING)
        if self._actor.waits_for_purchaser or (self._reconciler is not None and self._reconciler.waits):
            wake_at = min(wake_at, now + AFTER_WAITING)
        if self._observer.awaits_listing(now):
            wake_at = min(wake_at, now + AFTER_FAILING)
        if (next_try := self._actor.rests.next_try) is not None:
            wake_at = min(wake_at, max(next_try, now + AFTER_ACTING))
            outcomes = tuple(one for one in outcomes if not self._actor.rests.rests(one.action))
        if all(_leads_nowhere(outcome.action) and not outcome.error for outcome in outcomes):
            return wake_at
        # A refused launch or purchase was written down: what is decided next is something else, at once.
        failed = all(o.error and not isinstance(o.action, Launch | SubmitPurchase) for o in outcomes)
        return min(wake_at, now + (AFTER_FAILING if failed else AFTER_ACTING))


def _leads_nowhere(action: Action) -> bool:
    """Pods that Karpenter is to launch for are looked at again: its limits follow them."""
    for_karpenter = isinstance(action, Admit) and action.reason.kind is AdmitKind.KARPENTER_LAUNCHES
    return isinstance(action, _LEADS_NOWHERE) and not for_karpenter


def _is_same(one: object, other: object) -> bool:
    return one is other or one == other
