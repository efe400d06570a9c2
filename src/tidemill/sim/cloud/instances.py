"""Instances of the simulated account, from the launch call to the record that is forgotten an hour later.

    pending -> running -> shutting-down -> terminated

Whether a launch is possible is decided in `launches`; this only lets what was launched live and die. Each
instance draws its own delays from the seed and its id, so that no other instance changes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidemill.model.capacity import Source, SourceKind
from tidemill.model.labels import Pairs
from tidemill.model.nodes import INSTANCE_UP_STATES, EndKind, EndReason, Instance, InstanceState
from tidemill.sim.timeline import Journal, Timeline, stream
from tidemill.sim.wakes import Wakes
from tidemill.spec import names
from tidemill.spec.units import format_instant

_TERMINATED_LISTED_FOR = timedelta(hours=1)
_MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class _Delays:
    """How long things take for one instance: ranges as seen on accelerated types."""

    seen: timedelta
    boot: timedelta
    stop: timedelta
    reclaim_stop: timedelta
    clean_up: timedelta

    @classmethod
    def of(cls, seed: int, instance_id: str) -> _Delays:
        draw = stream(seed, "delays", instance_id)
        ranges_s = ((0, 5), (20, 60), (30, 90), (60, 180), (180, 480))
        return cls(*(timedelta(seconds=draw.randint(*range_s)) for range_s in ranges_s))


@dataclass(slots=True)
class InstanceLife:
    """The truth about one instance, kept after AWS has forgotten it."""

    now: Instance
    usd_h: float  # 0 on blocks (paid up front) and reservations (billed whole)
    delays: _Delays
    token: str = ""  # of the call that launched it
    tags: Pairs = ()  # all of them; `now` carries those that mean something to the engine
    running_at: datetime | None = None
    shutting_down_at: datetime | None = None
    terminated_at: datetime | None = None
    ended_by: str = ""  # engine, ec2, eks, karpenter, hardware
    ended_why: str = ""

    @property
    def by_the_hour(self) -> bool:
        """On the bill by itself: spot, on-demand, and what outlived its reservation."""
        return self.usd_h > 0 or self.now.source.kind in (SourceKind.SPOT, SourceKind.ON_DEMAND)


class HourMeter:
    """Money spent by the hour, exact to the second and cheap to read however many things are running.

    Integers (micro-dollars per hour times seconds), so that no order of starts and stops changes a sum.
    """

    def __init__(self, origin: datetime) -> None:
        self._origin = origin
        self._rate = 0
        self._weighted = 0  # sum of rate x seconds since the origin at which it began, less what has ended

    def start(self, usd_h: float, at: datetime) -> None:
        self._shift(round(usd_h * _MICRO), at)

    def stop(self, usd_h: float, at: datetime) -> None:
        self._shift(-round(usd_h * _MICRO), at)

    def usd(self, now: datetime) -> float:
        return (self._rate * self._seconds(now) - self._weighted) / 3600 / _MICRO

    def _shift(self, rate: int, at: datetime) -> None:
        self._rate += rate
        self._weighted += rate * self._seconds(at)

    def _seconds(self, at: datetime) -> int:
        return int((at - self._origin).total_seconds())


class Fleet:
    def __init__(self, timeline: Timeline, journal: Journal, wakes: Wakes, *, seed: int) -> None:
        self._timeline = timeline
        self._journal = journal
        self._wakes = wakes
        self._seed = seed
        self._listed: dict[str, Instance] = {}
        self._answer: tuple[Instance, ...] | None = None
        self._live: dict[str, InstanceLife] = {}
        self.version = 0  # counts changes of any instance
        self.lives: dict[str, InstanceLife] = {}
        self.live_at: Counter[tuple[Source, str, str]] = (
            Counter()
        )  # (source, type, zone) -> not yet terminated
        self.meters = {
            kind: HourMeter(timeline.now())
            for kind in (SourceKind.ODCR, SourceKind.SPOT, SourceKind.ON_DEMAND)
        }
        self.on_instance: list[Callable[[Instance], None]] = []
        self.on_ending: list[Callable[[Instance], None]] = []  # AWS has said when and why it will take it
        self.on_slot_clean: list[Callable[[Instance], None]] = []

    # --- reading ------------------------------------------------------------------------------------

    def listed(self) -> tuple[Instance, ...]:
        if self._answer is None:
            self._answer = tuple(self._listed.values())
        return self._answer

    def on(self, source: Source) -> list[InstanceLife]:
        """Not yet terminated, in the order they were launched."""
        return [life for life in self._live.values() if life.now.source == source]

    def alive(self) -> Iterator[InstanceLife]:
        """Pending and running, in the order they were launched."""
        return (life for life in self._live.values() if life.now.state in INSTANCE_UP_STATES)

    def forgotten(self, life: InstanceLife) -> bool:
        return life.terminated_at is not None and life.now.id not in self._listed

    # --- living -------------------------------------------------------------------------------------

    def start(self, instance: Instance, usd_h: float, *, token: str = "", tags: Pairs = ()) -> None:
        life = InstanceLife(instance, usd_h, _Delays.of(self._seed, instance.id), token, tags)
        self.lives[instance.id] = self._live[instance.id] = life
        self.live_at[_place(instance)] += 1
        self.version += 1
        self._journal.add(
            "instance-launched", instance.id, f"{instance.instance_type} on {instance.source.label}"
        )
        if life.delays.seen:
            self._timeline.after(life.delays.seen, lambda: self._list(life))
        else:
            self._list(life)
        self._timeline.after(life.delays.boot, lambda: self._run(life))

    def tag(self, instance_id: str, tags: Pairs) -> None:
        """These are its tags from now on."""
        life = self.lives[instance_id]
        life.tags = tuple(sorted(tags))
        self._change(life, marked(life.now, tags))

    def announce_end(self, instance_id: str, at: datetime, kind: EndKind) -> None:
        why = EndReason(kind)
        """AWS says beforehand that it will take the instance, and then does."""
        life = self._live[instance_id]
        self._change(life, replace(life.now, ends_at=at, ends_why=why))
        for listener in self.on_ending:
            listener(life.now)
        self._journal.add("instance-ending", instance_id, f"{why}: ends {format_instant(at)}")
        self._wakes(f"instance-ending {instance_id}")
        self._timeline.at(at, lambda: self.shut_down(instance_id, by="ec2", why=str(why)))

    def shut_down(self, instance_id: str, *, by: str, why: str) -> None:
        """Nothing happens to one that is on its way already."""
        life = self.lives[instance_id]
        self._shut_down(life, by, why, life.delays.stop)

    def reclaim(self, instance_id: str) -> None:
        life = self.lives[instance_id]
        self._shut_down(life, "ec2", "end of the block", life.delays.reclaim_stop)

    def bill_by_the_hour(self, life: InstanceLife, usd_h: float) -> None:
        """Its reservation ended and it runs on: from here on it is an on-demand instance on the bill."""
        life.usd_h = usd_h
        if life.now.state is InstanceState.RUNNING:
            self._meter(life).start(usd_h, self._timeline.now())

    # --- the steps ----------------------------------------------------------------------------------

    def _run(self, life: InstanceLife) -> None:
        if life.now.state is not InstanceState.PENDING:
            return
        life.running_at = self._timeline.now()
        if life.usd_h:
            self._meter(life).start(life.usd_h, life.running_at)
        self._enter(life, InstanceState.RUNNING, "instance-running", "running")

    def _shut_down(self, life: InstanceLife, by: str, why: str, takes: timedelta) -> None:
        if life.now.state not in INSTANCE_UP_STATES:
            return
        life.shutting_down_at = self._timeline.now()
        life.ended_by, life.ended_why = by, why
        if life.running_at is not None and life.usd_h:
            self._meter(life).stop(life.usd_h, life.shutting_down_at)
        self._enter(life, InstanceState.SHUTTING_DOWN, "instance-shutting-down", f"ended by {by}: {why}")
        self._timeline.after(takes, lambda: self._terminated(life))

    def _terminated(self, life: InstanceLife) -> None:
        life.terminated_at = self._timeline.now()
        del self._live[life.now.id]
        self.live_at[_place(life.now)] -= 1
        self._enter(life, InstanceState.TERMINATED, "instance-terminated", "terminated")
        self._timeline.after(_TERMINATED_LISTED_FOR, lambda: self._forget(life))
        self._timeline.after(life.delays.clean_up, lambda: self._clean(life))

    def _clean(self, life: InstanceLife) -> None:
        for listener in self.on_slot_clean:
            listener(life.now)

    def _enter(self, life: InstanceLife, state: InstanceState, event: str, sentence: str) -> None:
        self._change(life, replace(life.now, state=state))
        self._journal.add(event, life.now.id, sentence)
        self._wakes(f"{event} {life.now.id}")
        for listener in self.on_instance:
            listener(life.now)

    def _change(self, life: InstanceLife, after: Instance) -> None:
        life.now = after
        self.version += 1
        if after.id in self._listed:
            self._listed[after.id] = after
            self._answer = None

    def _list(self, life: InstanceLife) -> None:
        self._listed[life.now.id] = life.now
        self._answer = None
        self._wakes(f"instance-listed {life.now.id}")

    def _forget(self, life: InstanceLife) -> None:
        self._listed.pop(life.now.id, None)
        self._answer = None

    def _meter(self, life: InstanceLife) -> HourMeter:
        kind = life.now.source.kind
        return self.meters[SourceKind.SPOT if kind is SourceKind.SPOT else SourceKind.ON_DEMAND]


def marked(instance: Instance, tags: Pairs) -> Instance:
    """With what these tags say to the engine."""
    tag = dict(tags)
    return replace(
        instance,
        owner=tag.get(names.TAG_OWNER, ""),
        pool=tag.get(names.TAG_POOL, ""),
        intent_id=tag.get(names.TAG_INTENT, ""),
        provisioner=tag.get(names.TAG_PROVISIONER, ""),
    )


def _place(instance: Instance) -> tuple[Source, str, str]:
    return instance.source, instance.instance_type, instance.zone
