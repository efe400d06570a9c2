"""Step a rehearsal: at a watchable pace for `tidemill up`, or straight to an instant for the verbs that look at one."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timedelta

from tidemill.cli.terminal import progress
from tidemill.decide import decide
from tidemill.engine.observe import Observer
from tidemill.model.capacity import UNPAID_STATES, SourceKind
from tidemill.model.errors import PortError
from tidemill.model.plan import Plan
from tidemill.model.world import World
from tidemill.render.display_names import DisplayNames
from tidemill.render.live_view import Frame, Spending
from tidemill.render.narrative import NarrativeLine, Narrator, Weight
from tidemill.report import Status, status
from tidemill.sim.scenario.rehearsal import Rehearsal

# Near an important event the clock runs at an eighth of the pace: ten minutes of a drain take some seconds.
SLOW_FACTOR = 8
# How long after an important event the clock stays slow; the events of one drain follow each other within this.
SLOW_FOR = timedelta(minutes=4)
# At two hours per second a stop would not be seen, so there is none.
_TOO_FAST_TO_STOP = 7200.0
# In the last second of wall time the pace stays as it is.
_MIN_WALL_S = 1.0

_MAX_LINES = 60  # more than a screen can show


class Pace:
    """How fast virtual time passes for a person who watches.

    Without a speed the whole scenario is fitted into the wall time: slow near important events, faster in the quiet
    hours to make up for it. With a speed the pace is constant. Pure arithmetic; the caller owns both clocks.
    """

    def __init__(self, end: datetime, *, wall_s: float, speed: float | None = None) -> None:
        self._end = end
        self._wall_s = wall_s
        self._speed = speed
        self._slow_until: datetime | None = None
        self._even = 1.0  # the constant pace that would end in time
        self.rate = speed or 0.0  # virtual seconds per wall second, as last used

    def slow_down(self, at: datetime) -> bool:
        """An important event happened at `at`. True: stop there for this frame, and go on slowly."""
        self._slow_until = max(self._slow_until or at, at + SLOW_FOR)
        return self._speed is None and self._even < _TOO_FAST_TO_STOP

    def goal(self, now: datetime, *, passed_s: float, elapsed_s: float) -> datetime:
        """Where the virtual clock should be `passed_s` after it showed `now`."""
        self.rate = self._rate(now, elapsed_s)
        return min(self._end, now + timedelta(seconds=self.rate * passed_s))

    def _rate(self, now: datetime, elapsed_s: float) -> float:
        if self._speed is not None:
            return self._speed
        left_s = self._wall_s - elapsed_s
        if left_s < _MIN_WALL_S:
            return self._even  # dividing by ever less time would never arrive
        self._even = max(1.0, (self._end - now).total_seconds() / left_s)
        slow = self._slow_until is not None and now < self._slow_until
        return max(1.0, self._even / SLOW_FACTOR) if slow else self._even


class Playback:
    """A rehearsal that a person watches: advanced frame by frame, with the lines and the frames to show."""

    def __init__(self, rehearsal: Rehearsal, title: str, pace: Pace) -> None:
        self.rehearsal, self.title, self.pace = rehearsal, title, pace
        self.over = False
        self.narrative: list[NarrativeLine] = []
        self._narrator = Narrator(rehearsal)
        self._at = rehearsal.start  # the clock the viewer sees, with fractions of a second

    def advance(self, *, passed_s: float, elapsed_s: float, within_s: float) -> list[NarrativeLine]:
        """Play for `passed_s` of wall time; where that takes longer than `within_s`, the clock lags."""
        goal = self.pace.goal(self._at, passed_s=passed_s, elapsed_s=elapsed_s)
        fresh: list[NarrativeLine] = []
        give_up_at = time.monotonic() + within_s
        while not self.over and self.rehearsal.next_at() <= goal:
            if self.rehearsal.engine.planning:  # wait: seconds of the solver must not pass as virtual hours
                goal = self.rehearsal.timeline.now()
                break
            self.over = not self.rehearsal.step()
            news = self._narrator.news(self.names())
            fresh += news
            important = [line.at for line in news if line.weight is Weight.TURN]
            stop = bool(important) and self.pace.slow_down(max(important))
            if stop or time.monotonic() > give_up_at:
                goal = self.rehearsal.timeline.now()
        self._at = goal
        self.rehearsal.timeline.advance(goal.replace(microsecond=0))
        self.narrative = [*self.narrative, *fresh][-_MAX_LINES:]
        return fresh

    def names(self) -> DisplayNames:
        return DisplayNames(block_names(self.rehearsal))

    def status(self) -> Status:
        """What the engine last observed, at the instant the clock shows."""
        world = self.rehearsal.world
        now = self.rehearsal.timeline.now()
        seen = World(now=now) if world is None else replace(world, now=now)
        return status(
            self.rehearsal.spec, seen, self.rehearsal.plan, block_names=reservation_names(self.rehearsal)
        )

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
            spending=money_paid(rehearsal),
            narrative=tuple(self.narrative),
            names=self.names(),
        )


def money_paid(rehearsal: Rehearsal) -> Spending:
    """Money paid so far. A block's fee is spread over its GPU-hours: used, idle, and still to come."""
    paid = used = idle = 0.0
    now, start = rehearsal.timeline.now(), rehearsal.start
    used_h = rehearsal.recorder.used_hours_until(now)
    for block in rehearsal.cloud.all_reservations():
        if block.kind is not SourceKind.BLOCK or block.end is None or block.state in UNPAID_STATES:
            continue
        if block.owner != rehearsal.spec.platform.spec.deployment:
            continue
        gpus = block.count * rehearsal.spec.catalog.types[block.instance_type].gpus
        hours = gpus * (block.end - block.start).total_seconds() / 3600
        gone_h = gpus * max(0.0, (min(now, block.end) - max(start, block.start)).total_seconds() / 3600)
        work_h = min(gone_h, used_h.get(block.id, 0.0))
        usd_per_hour = block.fee_usd / hours if hours else 0.0
        paid += block.fee_usd
        used += work_h * usd_per_hour
        idle += (gone_h - work_h) * usd_per_hour
    hourly = sum(rehearsal.cloud.hourly_usd().values())
    return Spending(fees_usd=paid, used_usd=used, idle_usd=idle, hourly_usd=hourly)


# --- one instant of a rehearsal -----------------------------------------------------------------------


def run_until(rehearsal: Rehearsal, at: datetime) -> None:
    """Play up to `at`. The world is at that instant; the engine has not observed it yet."""
    whole = max(timedelta(seconds=1), at - rehearsal.start)
    with progress("Rehearsing") as show:
        while rehearsal.next_at() < at and rehearsal.step():
            if show is not None:
                show((rehearsal.timeline.now() - rehearsal.start) / whole)
    rehearsal.timeline.advance(at)


def observe_and_decide(rehearsal: Rehearsal) -> tuple[World, Plan]:
    """The world at this instant and what the engine would do. Nothing is done."""
    seen = rehearsal.world
    deployment = rehearsal.spec.platform.spec.deployment
    observer = Observer(
        rehearsal.timeline, rehearsal.account, rehearsal.cluster, rehearsal.ledger, deployment
    )
    try:
        known = seen or World(rehearsal.timeline.now())
        looked = observer.look(known.searches, known.extension_searches, known.uses)
        world = replace(looked, planner_result=known.planner_result)
    except PortError:
        if seen is None:
            raise
        # AWS cannot be read now: like the engine, go on with the last known world.
        world = replace(seen, now=rehearsal.timeline.now(), cloud_ok=False)
    return world, decide(rehearsal.spec, world)


def reservation_names(rehearsal: Rehearsal) -> dict[str, str]:
    """Reservation id -> its name in the scenario."""
    return {id_: name for name, id_ in rehearsal.cloud.names.items()}


def block_names(rehearsal: Rehearsal) -> dict[str, str]:
    """Reservation id -> the name that `status` shows: of the scenario, or of the demand window it was bought for."""
    windows = {intent.id: intent.window for intent in rehearsal.ledger.purchases()}
    bought = {
        block.id: windows[block.intent_id]
        for block in rehearsal.cloud.all_reservations()
        if windows.get(block.intent_id)
    }
    return {**bought, **reservation_names(rehearsal)}
