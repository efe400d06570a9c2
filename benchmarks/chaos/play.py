"""Plays one story: engines that die and come back, people who decide, an EC2 that sells; then quiet, then the judge.

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

from benchmarks.chaos.fault_injector import Shaken, Sky, Unforeseen
from benchmarks.chaos.judge import Count, judge
from benchmarks.chaos.sales import ByHand
from benchmarks.chaos.story import CALM_LASTS, START, Story, Word, draw
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
MOST_TURNS = 20_000  # ten times what the longest stories take
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
    count: Count
    blocks: int
    extensions: int
    struck: Counter[str]


@dataclass(frozen=True, slots=True)
class Books:
    ledger: Ledger  # as people and the judge have it
    lead: Callable[[], Ledger]  # an engine starts: its own way in
    exclusive: bool  # whether the engine that led before can write nothing from then on


OpensBooks = Callable[[Platform, Timeline], AbstractContextManager[Books]]


@contextmanager
def in_memory(platform: Platform, timeline: Timeline) -> Iterator[Books]:
    """Here the ledger stops no old leader: the rules of each write have to."""
    ledger = MemoryLedger(timeline, platform.spec.deployment, outlives_the_engine=True)
    yield Books(ledger, lambda: ledger, exclusive=False)


Reaches = Callable[[SimCloud, Timeline, Sky, Spec], AbstractContextManager[Callable[[], Cloud]]]


@contextmanager
def in_process(cloud: SimCloud, timeline: Timeline, sky: Sky, spec: Spec) -> Iterator[Callable[[], Cloud]]:
    """How an engine that starts reaches the account: by calling it."""
    yield lambda: cast(Cloud, Shaken(cloud, sky))


class Restless(TidemillError):
    """An engine that always has something to do, and would never let the run end."""


def play(
    seed: int,
    *,
    opens_books: OpensBooks = in_memory,
    makes_engine: MakesEngine = Engine,
    draws: Callable[[int], Story] = draw,
    reaches: Reaches = in_process,
) -> Run:
    """`makes_engine` lets a test play a broken engine, which the judge must catch. Restless: it found no end."""
    story = draws(seed)
    timeline = Timeline(START)
    with opens_books(story.spec.platform, timeline) as books:
        stage = _Stage(story, timeline, books, makes_engine)
        with reaches(stage.cloud, timeline, stage.sky, story.spec) as reach:
            stage.run(reach)
        sold = stage.cloud
        found = judge(story, sold, books.ledger, stage.by_hand)
        found.unapproved += stage.usurped
        ours = [one for one in sold.purchases if one.intent_id]
        return Run(found, len(ours), len(sold.bought_extensions), stage.sky.struck)


class _Stage:
    def __init__(self, story: Story, timeline: Timeline, books: Books, makes_engine: MakesEngine) -> None:
        self.story, self.timeline, self.ledger = story, timeline, books.ledger
        self._books = books
        self.usurped: list[str] = []  # what an engine wrote that no longer led
        self._makes_engine = makes_engine
        self.sky = Sky(story.weather, Random(f"weather/{story.seed}"))
        self.cloud = SimCloud(
            timeline, Journal(timeline.now), story.spec.catalog, seed=story.seed,
            zones=sorted(story.spec.platform.spec.subnets), market=story.market, wake=self._wake,
        )  # fmt: skip
        self.cloud.show_purchases_late(story.shown_late)
        self.by_hand = ByHand()
        self._awake = True
        self._lay_out()

    def _wake(self, reason: str) -> None:
        self._awake = True

    def _lay_out(self) -> None:
        story, timeline = self.story, self.timeline
        for owned in story.owned:
            id_ = self.cloud.add_reservation(owned, owner=story.spec.platform.spec.deployment)
            self.ledger.adopt(Adoption(id_, owned.pool, "ana", START))
        for word in story.words:
            timeline.at(START + word.at, self._say(word))
        for at in story.payment_failures:
            timeline.at(START + at, self.cloud.fail_next_payment)
        for at, lasts in story.hidden:
            timeline.at(START + at, self._hide(lasts))
        calm = START + story.faults_last
        timeline.at(calm, self._calm_down)
        for day in range(CALM_LASTS.days):
            timeline.at(calm + timedelta(days=day, hours=12), self._settle_by_hand)

    def _calm_down(self) -> None:
        self.sky.calm, self._awake = True, True

    def _hide(self, lasts: timedelta) -> Callable[[], None]:
        """EC2's lists lose what was adopted, for a while."""

        def hide() -> None:
            lost = {one.reservation_id for one in self.ledger.adoptions()}
            self.sky.hidden |= lost
            self.timeline.after(lasts, lambda: self.sky.hidden.difference_update(lost))

        return hide

    # --- the engine ---------------------------------------------------------------------------------

    def _start(self) -> Engine:
        ledger, spec = self._books.lead(), self.story.spec
        return self._makes_engine(
            spec,
            self.timeline,
            self._reach(),
            cast(Cluster, _NoCluster()),
            cast(Ledger, Shaken(ledger, self.sky)),
        )

    def run(self, reach: Callable[[], Cloud]) -> None:
        self._reach = reach
        self._other = self._start()  # one that is believed dead
        self._engine = self._start()
        self.sky.second_engine = self._tick_the_other
        tick_at, end = START, START + self.story.faults_last + CALM_LASTS
        for _ in range(MOST_TURNS):
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
                if self.story.hasty and not self.sky.calm:
                    self._settle_hastily()
        raise Restless(f"seed {self.story.seed}: at {self.timeline.now()} the engine still finds no rest")

    def _back_at(self) -> datetime:
        """From when on an engine runs: now, unless it is away."""
        now, away = self.timeline.now(), self.story.away
        return START + away[1] if away and START + away[0] <= now < START + away[1] else now

    def _tick(self, now: datetime) -> datetime:
        try:
            tick = self._engine.tick()
        except (EngineCrashed, Unforeseen):
            self._other, self._engine = self._engine, self._start()
            return now + _BACK_AFTER
        if tick is None:
            return now + AFTER_FAILING
        if tick.outcomes:
            return max(tick.wake_at, now + timedelta(seconds=1))
        return min(tick.plan.wake_at or now + LOOKS_AT_LEAST_EVERY, now + LOOKS_AT_LEAST_EVERY)

    def _tick_the_other(self) -> None:
        before = self.ledger.purchases()
        with suppress(EngineCrashed, Unforeseen, Refused):
            tick = self._other.tick()
            refused = [one for one in tick.outcomes if one.error == "refused"] if tick else []
            self.sky.struck["refused_to_the_old"] += len(refused)
        if self._books.exclusive and self.ledger.purchases() != before:
            self.usurped.append(f"an engine that no longer leads wrote at {self.timeline.now()}")

    # --- people -------------------------------------------------------------------------------------

    def _say(self, word: Word) -> Callable[[], None]:
        def say() -> None:
            self._awake = True
            with suppress(TidemillError):  # EC2's and our own rules also say no to people
                match word.does:
                    case "buy-by-hand":
                        self._buy_by_hand(word)
                    case "extend-by-hand":
                        self._extend_by_hand()
                    case _:
                        self._decide_on_everything(word)

        return say

    def _decide_on_everything(self, word: Word) -> None:
        for intent in self.ledger.purchases():
            if intent.state is PurchaseState.PROPOSED:
                with suppress(TidemillError):
                    record_verdict(
                        self.ledger, self.story.spec.platform, intent, who=word.who,
                        approved=word.does == "approve", at=self.timeline.now(),
                    )  # fmt: skip

    def _buy_by_hand(self, word: Word) -> None:
        """Somebody covers a window in the console and tells nobody, or adopts it an hour later."""
        (plan,) = self.story.spec.plans.values()
        window = self.sky.luck.choice(plan.spec.demand)
        now = self.timeline.now()
        length = timedelta(days=max(1, (window.end - max(now, window.start)).days + 1))
        query = OfferQuery(window.instance_type, window.instances, length, now, window.end + 3 * length)
        fitting = [one for one in self.cloud.search_offers(query) if one.end >= window.end]
        if not fitting:
            return
        (first, *more) = self.cloud.purchase(fitting[0].id, ())
        self.by_hand.bought |= {one.id for one in (first, *more)}
        if self.sky.luck.random() < 0.5:
            adoption = Adoption(first.id, plan.spec.pool, word.who, now)
            later = now + timedelta(hours=1)
            self.timeline.at(later, lambda: self.ledger.adopt(replace(adoption, at=later)))

    def _extend_by_hand(self) -> None:
        for block in self.cloud.reservations():
            self.cloud.extend(block.id, timedelta(days=1))
            self.by_hand.extended.add(self.cloud.bought_extensions[-1].offer_id)

    def _settle_by_hand(self) -> None:
        """A person looks at what the engine warns of and finds nothing in the console: what is still unknown, and what
        EC2 stopped listing while the engine was away. What the engine could see itself is left to it."""
        listed = {one.id for one in self.cloud.reservations()}
        for intent in self.ledger.purchases():
            gone = intent.state is PurchaseState.CONFIRMED and listed.isdisjoint(intent.reservation_ids)
            if (intent.state is PurchaseState.UNKNOWN or gone) and not self._was_made(intent):
                after = replace(intent, state=PurchaseState.FAILED, fee_usd=0, note="nothing in the console")
                with suppress(TidemillError):
                    self.ledger.advance(intent, replace(after, state_at=self.timeline.now()))
        self._awake = True

    def _settle_hastily(self) -> None:
        """Somebody who cannot wait for EC2's lists says "not bought" of whatever is unknown; what was, shows later."""
        for intent in self.ledger.purchases():
            if intent.state is PurchaseState.UNKNOWN:
                after = replace(
                    intent, state=PurchaseState.FAILED, fee_usd=0, note="nothing in the console yet"
                )
                with suppress(TidemillError):
                    self.ledger.advance(intent, replace(after, state_at=self.timeline.now()))
                    self.by_hand.denied[intent.id] = self.timeline.now()
                    self.sky.struck["denied"] += self._was_made(intent)
                    self._awake = True

    def _was_made(self, intent: PurchaseIntent) -> bool:
        """As the console shows it: what was never paid was not bought."""
        sold = [one for one in self.cloud.purchases if one.intent_id == intent.id]
        more = [one for one in self.cloud.bought_extensions if one.offer_id == intent.offer_id]
        return any(one.paid or one.settled_at is None for one in (more if intent.extends else sold))
