"""Simulates one run: engines that crash and start again, people who decide, an EC2 that sells; at the end the judge.

Virtual time jumps to whatever is due next, so a run of two weeks takes a fraction of a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random
from typing import Protocol, cast

from benchmarks.chaos.drawn_run import START, WITHOUT_FAULTS, DrawnRun, Intervention, draw
from benchmarks.chaos.fault_injector import FaultInjector, FaultyPort, UndeclaredError
from benchmarks.chaos.judge import Mistakes, judge
from benchmarks.chaos.sales import ManualPurchases
from tidemill.engine.loop import AFTER_FAILING, Engine
from tidemill.model.errors import Refused, TidemillError
from tidemill.model.offers import OfferQuery
from tidemill.model.purchases import Adoption, PurchaseIntent, PurchaseState
from tidemill.ports import Cloud, Cluster, ClusterView, Ledger
from tidemill.sim.cloud.cloud import SimCloud
from tidemill.sim.scenario.crash import EngineCrashed
from tidemill.sim.timeline import Journal, Timeline
from tidemill.spec import Spec
from tidemill.spec.platform import Platform
from tidemill.store.decisions import record_verdict
from tidemill.store.memory import MemoryLedger

# With nothing due the engine still looks; the ten minutes of the real loop would only make the runs longer.
LOOKS_AT_LEAST_EVERY = timedelta(hours=4)
MAX_STEPS = 20_000  # ten times what the longest runs take
_BACK_AFTER = timedelta(seconds=30)
_EMPTY = ClusterView((), (), (), {})


class _NoCluster:
    """Money needs no nodes: an empty cluster keeps these runs short."""

    def view(self) -> ClusterView:
        return _EMPTY


class MakesEngine(Protocol):
    def __call__(
        self, spec: Spec, clock: Timeline, cloud: Cloud, cluster: Cluster, ledger: Ledger
    ) -> Engine: ...


@dataclass(frozen=True, slots=True)
class Run:
    mistakes: Mistakes
    blocks: int
    extensions: int
    struck: Counter[str]


@dataclass(frozen=True, slots=True)
class LedgerAccess:
    ledger: Ledger  # as people and the judge have it
    lead: Callable[[], Ledger]  # an engine starts: its own way in
    exclusive: bool  # whether the engine that led before can write nothing from then on


OpensLedger = Callable[[Platform, Timeline], AbstractContextManager[LedgerAccess]]


@contextmanager
def in_memory(platform: Platform, timeline: Timeline) -> Iterator[LedgerAccess]:
    """This ledger stops no old leader: the rules of each write have to."""
    ledger = MemoryLedger(timeline, platform.spec.deployment, outlives_the_engine=True)
    yield LedgerAccess(ledger, lambda: ledger, exclusive=False)


Reaches = Callable[[SimCloud, Timeline, FaultInjector, Spec], AbstractContextManager[Callable[[], Cloud]]]


@contextmanager
def in_process(
    cloud: SimCloud, timeline: Timeline, injector: FaultInjector, spec: Spec
) -> Iterator[Callable[[], Cloud]]:
    """How an engine that starts reaches the account: by calling it."""
    yield lambda: cast(Cloud, FaultyPort(cloud, injector))


class NeverIdle(TidemillError):
    """The engine always has something to do, and the run would never end."""


def simulate(
    seed: int,
    *,
    opens_ledger: OpensLedger = in_memory,
    makes_engine: MakesEngine = Engine,
    draws: Callable[[int], DrawnRun] = draw,
    reaches: Reaches = in_process,
) -> Run:
    """`makes_engine` lets a test use a broken engine, which the judge must catch. NeverIdle: the run does not end."""
    drawn = draws(seed)
    timeline = Timeline(START)
    with opens_ledger(drawn.spec.platform, timeline) as access:
        simulation = _Simulation(drawn, timeline, access, makes_engine)
        with reaches(simulation.cloud, timeline, simulation.injector, drawn.spec) as reach:
            simulation.run(reach)
        sold = simulation.cloud
        found = judge(drawn, sold, access.ledger, simulation.by_hand)
        found.unapproved += simulation.writes_of_old_leader
        ours = [purchase for purchase in sold.purchases if purchase.intent_id]
        return Run(found, len(ours), len(sold.bought_extensions), simulation.injector.struck)


class _Simulation:
    def __init__(
        self, drawn: DrawnRun, timeline: Timeline, access: LedgerAccess, makes_engine: MakesEngine
    ) -> None:
        self.drawn, self.timeline, self.ledger = drawn, timeline, access.ledger
        self._access = access
        self.writes_of_old_leader: list[str] = []  # what an engine wrote that no longer led
        self._makes_engine = makes_engine
        self.injector = FaultInjector(drawn.fault_rates, Random(f"weather/{drawn.seed}"))
        self.cloud = SimCloud(
            timeline, Journal(timeline.now), drawn.spec.catalog, seed=drawn.seed,
            zones=sorted(drawn.spec.platform.spec.subnets), market=drawn.market, wake=self._wake,
        )  # fmt: skip
        self.cloud.show_purchases_late(drawn.shown_late)
        self.by_hand = ManualPurchases()
        self._awake = True
        self._schedule()

    def _wake(self, reason: str) -> None:
        self._awake = True

    def _schedule(self) -> None:
        drawn, timeline = self.drawn, self.timeline
        for owned in drawn.owned:
            id_ = self.cloud.add_reservation(owned, owner=drawn.spec.platform.spec.deployment)
            self.ledger.adopt(Adoption(id_, owned.pool, "ana", START))
        for intervention in drawn.interventions:
            timeline.at(START + intervention.at, self._intervene(intervention))
        for at in drawn.payment_failures:
            timeline.at(START + at, self.cloud.fail_next_payment)
        for at, lasts in drawn.hidden:
            timeline.at(START + at, self._hide(lasts))
        calm = START + drawn.faults_last
        timeline.at(calm, self._stop_faults)
        for day in range(WITHOUT_FAULTS.days):
            timeline.at(calm + timedelta(days=day, hours=12), self._settle_by_hand)

    def _stop_faults(self) -> None:
        self.injector.off, self._awake = True, True

    def _hide(self, lasts: timedelta) -> Callable[[], None]:
        """EC2's lists lose what was adopted, for a while."""

        def hide() -> None:
            lost = {adoption.reservation_id for adoption in self.ledger.adoptions()}
            self.injector.hidden |= lost
            self.timeline.after(lasts, lambda: self.injector.hidden.difference_update(lost))

        return hide

    # --- the engine ---------------------------------------------------------------------------------

    def _start(self) -> Engine:
        ledger, spec = self._access.lead(), self.drawn.spec
        return self._makes_engine(
            spec,
            self.timeline,
            self._reach(),
            cast(Cluster, _NoCluster()),
            cast(Ledger, FaultyPort(ledger, self.injector)),
        )

    def run(self, reach: Callable[[], Cloud]) -> None:
        self._reach = reach
        self._old_engine = self._start()  # it no longer leads and does not know it
        self._engine = self._start()
        self.injector.second_engine = self._tick_old_engine
        tick_at, end = START, START + self.drawn.faults_last + WITHOUT_FAULTS
        for _ in range(MAX_STEPS):
            if self.timeline.now() >= end:
                return
            due = self.timeline.next_at() or end
            self.timeline.advance(min(end, due, max(tick_at, self._back_at())))
            now = self.timeline.now()
            if self._back_at() > now:
                continue
            if self._awake or now >= tick_at:
                self._awake = False
                tick_at = self._tick(now)
                if self.drawn.hasty and not self.injector.off:
                    self._settle_hastily()
        raise NeverIdle(
            f"seed {self.drawn.seed}: at {self.timeline.now()} the engine still has something to do"
        )

    def _back_at(self) -> datetime:
        """From when on an engine runs: now, unless it is absent."""
        now, away = self.timeline.now(), self.drawn.away
        return START + away[1] if away and START + away[0] <= now < START + away[1] else now

    def _tick(self, now: datetime) -> datetime:
        try:
            tick = self._engine.tick()
        except (EngineCrashed, UndeclaredError):
            self._old_engine, self._engine = self._engine, self._start()
            return now + _BACK_AFTER
        if tick is None:
            return now + AFTER_FAILING
        if tick.outcomes:
            return max(tick.wake_at, now + timedelta(seconds=1))
        return min(tick.plan.wake_at or now + LOOKS_AT_LEAST_EVERY, now + LOOKS_AT_LEAST_EVERY)

    def _tick_old_engine(self) -> None:
        before = self.ledger.purchases()
        with suppress(EngineCrashed, UndeclaredError, Refused):
            tick = self._old_engine.tick()
            refused = [outcome for outcome in tick.outcomes if outcome.error == "refused"] if tick else []
            self.injector.struck["refused_to_the_old"] += len(refused)
        if self._access.exclusive and self.ledger.purchases() != before:
            self.writes_of_old_leader.append(f"an engine that no longer leads wrote at {self.timeline.now()}")

    # --- people -------------------------------------------------------------------------------------

    def _intervene(self, intervention: Intervention) -> Callable[[], None]:
        def act() -> None:
            self._awake = True
            with suppress(TidemillError):  # EC2's and our own rules also say no to people
                match intervention.does:
                    case "buy-by-hand":
                        self._buy_by_hand(intervention)
                    case "extend-by-hand":
                        self._extend_by_hand()
                    case _:
                        self._decide_on_everything(intervention)

        return act

    def _decide_on_everything(self, intervention: Intervention) -> None:
        for intent in self.ledger.purchases():
            if intent.state is PurchaseState.PROPOSED:
                with suppress(TidemillError):
                    record_verdict(
                        self.ledger, self.drawn.spec, intent, who=intervention.who,
                        approved=intervention.does == "approve", at=self.timeline.now(),
                        listed=self.cloud.reservations(),
                    )  # fmt: skip

    def _buy_by_hand(self, intervention: Intervention) -> None:
        """Somebody covers a window in the console and tells nobody, or adopts it an hour later."""
        (plan,) = self.drawn.spec.plans.values()
        window = self.injector.rng.choice(plan.spec.demand)
        now = self.timeline.now()
        length = timedelta(days=max(1, (window.end - max(now, window.start)).days + 1))
        query = OfferQuery(window.instance_type, window.instances, length, now, window.end + 3 * length)
        fitting = [offer for offer in self.cloud.search_offers(query) if offer.end >= window.end]
        if not fitting:
            return
        (first, *more) = self.cloud.purchase(fitting[0].id, ())
        self.by_hand.bought |= {one.id for one in (first, *more)}
        if self.injector.rng.random() < 0.5:
            adoption = Adoption(first.id, plan.spec.pool, intervention.who, now)
            later = now + timedelta(hours=1)
            self.timeline.at(later, lambda: self.ledger.adopt(replace(adoption, at=later)))

    def _extend_by_hand(self) -> None:
        for block in self.cloud.reservations():
            self.cloud.extend(block.id, timedelta(days=1))
            self.by_hand.extended.add(self.cloud.bought_extensions[-1].offer_id)

    def _settle_by_hand(self) -> None:
        """A person looks at what the engine warns of and finds nothing in the console: what is still unknown, and what
        EC2 stopped listing while the engine was away. What the engine could see itself is left to it."""
        listed = {reservation.id for reservation in self.cloud.reservations()}
        for intent in self.ledger.purchases():
            gone = intent.state is PurchaseState.CONFIRMED and listed.isdisjoint(intent.reservation_ids)
            if (intent.state is PurchaseState.UNKNOWN or gone) and not self._was_made(intent):
                after = replace(intent, state=PurchaseState.FAILED, fee_usd=0, note="nothing in the console")
                with suppress(TidemillError):
                    self.ledger.advance(intent, replace(after, state_at=self.timeline.now()))
        self._awake = True

    def _settle_hastily(self) -> None:
        """Somebody who does not wait for EC2's lists says "not bought" of every unknown purchase."""
        for intent in self.ledger.purchases():
            if intent.state is PurchaseState.UNKNOWN:
                after = replace(
                    intent, state=PurchaseState.FAILED, fee_usd=0, note="nothing in the console yet"
                )
                with suppress(TidemillError):
                    self.ledger.advance(intent, replace(after, state_at=self.timeline.now()))
                    self.by_hand.denied[intent.id] = self.timeline.now()
                    self.injector.struck["denied"] += self._was_made(intent)
                    self._awake = True

    def _was_made(self, intent: PurchaseIntent) -> bool:
        """As the console shows it: what was never paid was not bought."""
        sold = [purchase for purchase in self.cloud.purchases if purchase.intent_id == intent.id]
        more = [
            extension for extension in self.cloud.bought_extensions if extension.offer_id == intent.offer_id
        ]
        return any(one.paid or one.settled_at is None for one in (more if intent.extends else sold))
