"""The twenty-two invariants, checked on the simulator's own state and never on what the engine believes.

Safety invariants hold at every instant, the others within a stated bound. A violation stops the run with the seed, the
instant and the objects, so that it can be replayed. Each check is in the module of its subject: capacity, money,
deadlines, plans, workloads, services, purchases, idle nodes, starts of pods, thrash, promises, reported money.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import chain

from tidemill.engine.loop import Tick
from tidemill.model.purchases import PurchaseState
from tidemill.sim.invariants.bought import Bought
from tidemill.sim.invariants.capacity import ForeignInstances, check_blocks, check_limits
from tidemill.sim.invariants.could_run import CouldRun
from tidemill.sim.invariants.deadlines import Deadlines
from tidemill.sim.invariants.hourly_nodes import HourlyNodes
from tidemill.sim.invariants.idle_nodes import IdleNodes
from tidemill.sim.invariants.left_waiting import LeftWaiting
from tidemill.sim.invariants.money import Overflow
from tidemill.sim.invariants.namespace_limits import NamespaceLimits
from tidemill.sim.invariants.plans import Plans
from tidemill.sim.invariants.promises import Promises
from tidemill.sim.invariants.reported_money import ReportedMoney, check_found
from tidemill.sim.invariants.services import check_replicas, check_services
from tidemill.sim.invariants.starts import Starts
from tidemill.sim.invariants.stops import Stops
from tidemill.sim.invariants.thrash import Thrash
from tidemill.sim.invariants.told_ends import ToldEnds
from tidemill.sim.invariants.truth import Findings, Truth, Violation
from tidemill.sim.invariants.usable_purchases import UsablePurchases
from tidemill.sim.invariants.workloads import Gangs, Orphans
from tidemill.store.memory import MemoryLedger

__all__ = ["Invariants", "SENTENCES", "Truth", "still_unknown"]

SENTENCES = {
    1: "more instances run on a block than it holds",
    2: "a pool is over its limits",
    3: "money was spent twice, without approval or over a ceiling",
    4: "a pod still runs on a node at its deadline",
    5: "a pod lost grace although no deadline forced it",
    6: "the same spec and world gave two different plans",
    7: "an instance of ours runs without being or becoming a working node",
    8: "a gang is neither whole nor absent",
    9: "a service promised zero downtime is below its minimum",
    10: "the plan never becomes empty although nothing new happens",
    11: "something without our owner tag was modified or terminated",
    12: "a block is bought that its pool cannot use",
    13: "a prepaid node stands idle while a pod that it could take waits",
    14: "nodes of a pool are launched and ended again without having taken work",
    15: "what a person was told did not come true",
    16: "money that is shown does not add up",
    17: "a job was started where it may not run, or has no time",
    18: "work was stopped for nothing, or without having been asked to save",
    19: "a pod waits although a node for it could be launched",
    20: "a pod or a node was not told when it ends",
    21: "a node by the hour is kept without work",
    22: "a namespace uses more GPUs than it may",
}
# What is true for minutes, or costs by the hour, need not be looked at every second.
LOOK_EVERY = timedelta(minutes=1)
# Orphans are dated by their own records, so a rare check misses none; their bound is longer by this. Idle nodes are
# dated by these looks.
LOOK_FOR_ORPHANS_EVERY = timedelta(minutes=5)
# What was spent in a month stays spent: a check an hour is enough.
LOOK_AT_MONEY_EVERY = timedelta(hours=1)
# Reports are made for people: twice a day.
LOOK_AT_VIEWS_EVERY = timedelta(hours=12)


class Invariants:
    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._cloud_seen: object = None
        self._looked_at = self._looked_for_orphans_at = self._looked_at_money_at = truth.now()
        self._foreign_instances, self._endings, self._plans = ForeignInstances(), Deadlines(), Plans()
        self._gangs, self._orphans, self._overflow = Gangs(), Orphans(), Overflow()
        self._usable, self._idle_nodes, self._thrash = UsablePurchases(), IdleNodes(), Thrash()
        self._promises, self._could_run, self._reported = Promises(), CouldRun(), ReportedMoney()
        self._bought, self._starts, self._stops = Bought(), Starts(), Stops()
        self._left_waiting, self._told, self._hourly = LeftWaiting(), ToldEnds(), HourlyNodes()
        self._namespaces, self._looked_at_views_at = NamespaceLimits(), truth.now()

    def check(self, now: datetime) -> Violation | None:
        """After every instant at which anything happened."""
        return next(
            (Violation(number, now, SENTENCES[number], objects) for number, objects in self._all(now)), None
        )

    def check_tick(self, tick: Tick) -> Violation | None:
        """After every tick."""
        for number, objects in chain(
            self._plans.check(self._truth, tick),
            self._promises.check(self._truth, tick),
            self._could_run.check(self._truth, tick),
        ):
            return Violation(number, tick.world.now, SENTENCES[number], objects)
        if tick.world.now >= self._looked_at_views_at + LOOK_AT_VIEWS_EVERY:
            self._looked_at_views_at = tick.world.now
            for number, objects in self._reported.check(self._truth, tick):
                return Violation(number, tick.world.now, SENTENCES[number], objects)
        return None

    def _all(self, now: datetime) -> Findings:
        truth = self._truth
        yield from self._endings.check(truth)
        yield from check_services(truth)
        yield from self._starts.check(truth)
        yield from self._namespaces.check(truth)
        yield from self._stops.check(truth)
        cloud_changed = truth.cloud.changes != self._cloud_seen
        if cloud_changed:
            self._cloud_seen = truth.cloud.changes
            yield from check_blocks(truth)
            yield from check_limits(truth)
            yield from self._foreign_instances.check(truth)
            yield from self._thrash.check(truth)
        yield from self._bought.check(truth)
        yield from self._usable.check(truth)
        yield from self._bounded(now, cloud_changed)

    def _bounded(self, now: datetime, cloud_changed: bool) -> Findings:
        if cloud_changed or now >= self._looked_at + LOOK_EVERY:
            self._looked_at = now
            yield from self._gangs.check(self._truth)
        if cloud_changed or now >= self._looked_at_money_at + LOOK_AT_MONEY_EVERY:
            self._looked_at_money_at = now
            yield from self._overflow.check(self._truth)
            yield from check_found(self._truth)
        if now >= self._looked_for_orphans_at + LOOK_FOR_ORPHANS_EVERY:
            self._looked_for_orphans_at = now
            yield from self._orphans.check(self._truth)
            yield from check_replicas(self._truth)
            yield from self._idle_nodes.check(self._truth)
            yield from self._left_waiting.check(self._truth)
            yield from self._hourly.check(self._truth)
            yield from self._told.check(self._truth)


def still_unknown(ledger: MemoryLedger) -> tuple[str, ...]:
    """Purchases whose outcome nobody knows at the end of a run: a person must look."""
    return tuple(purchase.id for purchase in ledger.purchases() if purchase.state is PurchaseState.UNKNOWN)
