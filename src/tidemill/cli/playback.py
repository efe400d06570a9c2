"""A rehearsal that is watched: stepped along at a pace, with what is told and the frames to show."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timedelta

from tidemill.cli.pace import Pace
from tidemill.decide import decide
from tidemill.engine.observe import Observer
from tidemill.model.capacity import ReservationState, SourceKind
from tidemill.model.errors import PortError
from tidemill.model.plan import Plan
from tidemill.model.world import World
from tidemill.render.actions_text import Weight
from tidemill.render.live_view import Frame, Purse
from tidemill.render.names import Names
from tidemill.render.narrative import Narrator, Told
from tidemill.report import Status, status
from tidemill.sim.scenario.rehearsal import Rehearsal

_KEPT = 60  # told lines a screen could show
_NOT_PAID = (ReservationState.PAYMENT_PENDING, ReservationState.PAYMENT_FAILED, ReservationState.CANCELLED)


class Playback:
    def __init__(self, rehearsal: Rehearsal, title: str, pace: Pace) -> None:
        self.rehearsal, self.title, self.pace = rehearsal, title, pace
        self.over = False
        self.told: list[Told] = []
        self._narrator = Narrator(rehearsal)
        self._at = rehearsal.start  # where the watched clock stands, fractions of a second included

    def advance(self, *, passed_s: float, elapsed_s: float, within_s: float) -> list[Told]:
        """Play on for `passed_s` of wall time; where that takes more than `within_s`, the clock lags."""
        goal = self.pace.goal(self._at, passed_s=passed_s, elapsed_s=elapsed_s)
        fresh: list[Told] = []
        give_up_at = time.monotonic() + within_s
        while not self.over and self.rehearsal.next_at() <= goal:
            if self.rehearsal.engine.planning:  # seconds of the solver must not become hours of the story
                goal = self.rehearsal.timeline.now()
                break
            self.over = not self.rehearsal.step()
            news = self._narrator.news(self.names())
            fresh += news
            if self._stops_at(news) or time.monotonic() > give_up_at:
                goal = self.rehearsal.timeline.now()
        self._at = goal
        self.rehearsal.timeline.advance(goal.replace(microsecond=0))
        self.told = [*self.told, *fresh][-_KEPT:]
        return fresh

    def _stops_at(self, news: list[Told]) -> bool:
        turns = [one.at for one in news if one.weight is Weight.TURN]
        return bool(turns) and self.pace.turn(max(turns))

    # --- what there is to see -----------------------------------------------------------------------

    def names(self) -> Names:
        windows = {intent.id: intent.window for intent in self.rehearsal.ledger.purchases()}
        bought = {one.id: windows.get(one.intent_id, "") for one in self.rehearsal.cloud.all_reservations()}
        return Names({**{id_: name for id_, name in bought.items() if name}, **called(self.rehearsal)})

    def status(self) -> Status:
        """As the engine last saw it, at the instant the clock shows."""
        world = self.rehearsal.world
        now = self.rehearsal.timeline.now()
        seen = World(now=now) if world is None else replace(world, now=now)
        return status(self.rehearsal.spec, seen, self.rehearsal.plan, called=called(self.rehearsal))

    def frame(self) -> Frame:
        rehearsal = self.rehearsal
        whole, gone = rehearsal.end - rehearsal.start, rehearsal.timeline.now() - rehearsal.start
        return Frame(
            title=self.title,
            seed=rehearsal.seed,
            now=rehearsal.timeline.now(),
            rate=self.pace.rate,
            share=gone / whole,
            status=self.status(),
            purse=purse(rehearsal),
            told=tuple(self.told),
            names=self.names(),
        )


def called(rehearsal: Rehearsal) -> dict[str, str]:
    """Reservation id -> what the scenario calls it."""
    return {id_: name for name, id_ in rehearsal.cloud.names.items()}


def glimpse(rehearsal: Rehearsal) -> tuple[World, Plan]:
    """The world at this very instant and what the engine would do about it; nothing is done."""
    seen = rehearsal.world
    deployment = rehearsal.spec.platform.spec.deployment
    observer = Observer(
        rehearsal.timeline, rehearsal.account, rehearsal.cluster, rehearsal.ledger, deployment
    )
    try:
        known = seen or World(rehearsal.timeline.now())
        looked = observer.look(known.searches, known.extension_searches, known.uses)
        world = replace(looked, advice=known.advice)
    except PortError:
        if seen is None:
            raise
        # AWS cannot be read just now: like the engine, go on from what was last known.
        world = replace(seen, now=rehearsal.timeline.now(), cloud_ok=False)
    return world, decide(rehearsal.spec, world)


def run_until(rehearsal: Rehearsal, at: datetime) -> None:
    """Up to an instant, at which the world is there and the engine has not looked yet."""
    from tidemill.cli.progress import progress

    whole = max(timedelta(seconds=1), at - rehearsal.start)
    with progress("Rehearsing") as show:
        while rehearsal.next_at() < at and rehearsal.step():
            if show is not None:
                show((rehearsal.timeline.now() - rehearsal.start) / whole)
    rehearsal.timeline.advance(at)


def purse(rehearsal: Rehearsal) -> Purse:
    """Money paid so far. A block's fee is spread over its GPU-hours: used, idle, and still to come."""
    paid = used = idle = 0.0
    now, start = rehearsal.timeline.now(), rehearsal.start
    used_h = rehearsal.recorder.used_hours_until(now)
    for one in rehearsal.cloud.all_reservations():
        if one.kind is not SourceKind.BLOCK or one.end is None or one.state in _NOT_PAID:
            continue
        if one.owner != rehearsal.spec.platform.spec.deployment:
            continue
        gpus = one.count * rehearsal.spec.catalog.types[one.instance_type].gpus
        hours = gpus * (one.end - one.start).total_seconds() / 3600
        gone = gpus * max(0.0, (min(now, one.end) - max(start, one.start)).total_seconds() / 3600)
        work = min(gone, used_h.get(one.id, 0.0))
        usd_per_hour = one.fee_usd / hours if hours else 0.0
        paid += one.fee_usd
        used += work * usd_per_hour
        idle += (gone - work) * usd_per_hour
    hourly = sum(rehearsal.cloud.hourly_usd().values())
    return Purse(fees_usd=paid, used_usd=used, idle_usd=idle, hourly_usd=hourly)
