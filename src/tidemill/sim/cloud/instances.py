"""Instances of the simulated account, from the launch call to the record that is forgotten an hour later.

    pending -> running -> shutting-down -> terminated

Whether a launch is possible is decided in `launches`. Each instance draws its own delays from the seed and its id, so
that no other instance changes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidemill.model.capacity import Source, SourceKind
from tidemill.model.labels import Pairs
from tidemill.model.nodes import INSTANCE_UP_STATES, Instance, InstanceState
from tidemill.model.reasons import InstanceEnd, InstanceEndKind
from tidemill.sim.timeline import Journal, Timeline, stream
from tidemill.sim.wakes import Wakes
from tidemill.spec import names
from tidemill.spec.units import format_instant
from tidemill.wording.actions import instance_end_sentence

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
class InstanceHistory:
    """All that happened to one instance, kept after AWS stopped listing it."""

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
        """Billed by itself: spot, on-demand, and instances that outlived their reservation."""
        return self.usd_h > 0 or self.now.source.kind in (SourceKind.SPOT, SourceKind.ON_DEMAND)


class HourMeter:
    """Money spent by the hour, exact to the second, and cheap to read however many instances run.

    Integers (micro-dollars per hour times seconds), so that the order of starts and stops changes no sum.
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


class Instances:
    def __init__(self, timeline: Timeline, journal: Journal, wakes: Wakes, *, seed: int) -> None:
        self._timeline = timeline
        self._journal = journal
        self._wakes = wakes
        self._seed = seed
        self._listed: dict[str, Instance] = {}
        self._answer: tuple[Instance, ...] | None = None
        self._live: dict[str, InstanceHistory] = {}
        self.version = 0  # counts changes of any instance
        self.boot_at_once = False
        self.instance_histories: dict[str, InstanceHistory] = {}
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

    def on(self, source: Source) -> list[InstanceHistory]:
        """Not yet terminated, in the order they were launched."""
        return [history for history in self._live.values() if history.now.source == source]

    def alive(self) -> Iterator[InstanceHistory]:
        """Pending and running, in the order they were launched."""
        return (history for history in self._live.values() if history.now.state in INSTANCE_UP_STATES)

    def forgotten(self, history: InstanceHistory) -> bool:
        return history.terminated_at is not None and history.now.id not in self._listed

    # --- living -------------------------------------------------------------------------------------

    def start(self, instance: Instance, usd_h: float, *, token: str = "", tags: Pairs = ()) -> None:
        history = InstanceHistory(instance, usd_h, _Delays.of(self._seed, instance.id), token, tags)
        self.instance_histories[instance.id] = self._live[instance.id] = history
        self.live_at[_place(instance)] += 1
        self.version += 1
        self._journal.add(
            "instance-launched", instance.id, f"{instance.instance_type} on {instance.source.label}"
        )
        soon = timedelta(seconds=1)  # no node joins before EC2 lists its instance
        seen = min(history.delays.seen, soon) if self.boot_at_once else history.delays.seen
        if seen:
            self._timeline.after(seen, lambda: self._list(history))
        else:
            self._list(history)
        boot = soon if self.boot_at_once else history.delays.boot
        self._timeline.after(boot, lambda: self._run(history))

    def restore(self, instance: Instance, usd_h: float, tags: Pairs) -> None:
        """One that ran before the simulation began; it is paid for from now on."""
        history = InstanceHistory(
            instance, usd_h, _Delays.of(self._seed, instance.id), instance.intent_id, tags,
            running_at=self._timeline.now(),
        )  # fmt: skip
        self.instance_histories[instance.id] = self._live[instance.id] = history
        self.live_at[_place(instance)] += 1
        self.version += 1
        if usd_h:
            self._meter(history).start(usd_h, self._timeline.now())
        self._list(history)

    def tag(self, instance_id: str, tags: Pairs) -> None:
        """These are its tags from now on."""
        history = self.instance_histories[instance_id]
        history.tags = tuple(sorted(tags))
        self._change(history, with_tags(history.now, tags))

    def announce_end(self, instance_id: str, at: datetime, kind: InstanceEndKind) -> None:
        end = InstanceEnd(kind)
        why = instance_end_sentence(end)
        """AWS says beforehand that it will take the instance, and then does."""
        history = self._live[instance_id]
        self._change(history, replace(history.now, ends_at=at, ends_why=end))
        for listener in self.on_ending:
            listener(history.now)
        self._journal.add("instance-ending", instance_id, f"{why}: ends {format_instant(at)}")
        self._wakes(f"instance-ending {instance_id}")
        self._timeline.at(at, lambda: self.shut_down(instance_id, by="ec2", why=why))

    def shut_down(self, instance_id: str, *, by: str, why: str) -> None:
        """Does nothing to an instance that is shutting down already."""
        history = self.instance_histories[instance_id]
        self._shut_down(history, by, why, history.delays.stop)

    def reclaim(self, instance_id: str) -> None:
        history = self.instance_histories[instance_id]
        self._shut_down(history, "ec2", "end of the block", history.delays.reclaim_stop)

    def bill_by_the_hour(self, history: InstanceHistory, usd_h: float) -> None:
        """Its reservation ended and it runs on: from now on it is billed as an on-demand instance."""
        history.usd_h = usd_h
        if history.now.state is InstanceState.RUNNING:
            self._meter(history).start(usd_h, self._timeline.now())

    # --- the steps ----------------------------------------------------------------------------------

    def _run(self, history: InstanceHistory) -> None:
        if history.now.state is not InstanceState.PENDING:
            return
        history.running_at = self._timeline.now()
        if history.usd_h:
            self._meter(history).start(history.usd_h, history.running_at)
        self._enter(history, InstanceState.RUNNING, "instance-running", "running")

    def _shut_down(self, history: InstanceHistory, by: str, why: str, takes: timedelta) -> None:
        if history.now.state not in INSTANCE_UP_STATES:
            return
        history.shutting_down_at = self._timeline.now()
        history.ended_by, history.ended_why = by, why
        if history.running_at is not None and history.usd_h:
            self._meter(history).stop(history.usd_h, history.shutting_down_at)
        self._enter(history, InstanceState.SHUTTING_DOWN, "instance-shutting-down", f"ended by {by}: {why}")
        self._timeline.after(takes, lambda: self._terminated(history))

    def _terminated(self, history: InstanceHistory) -> None:
        history.terminated_at = self._timeline.now()
        del self._live[history.now.id]
        self.live_at[_place(history.now)] -= 1
        self._enter(history, InstanceState.TERMINATED, "instance-terminated", "terminated")
        self._timeline.after(_TERMINATED_LISTED_FOR, lambda: self._forget(history))
        self._timeline.after(history.delays.clean_up, lambda: self._clean(history))

    def _clean(self, history: InstanceHistory) -> None:
        for listener in self.on_slot_clean:
            listener(history.now)

    def _enter(self, history: InstanceHistory, state: InstanceState, event: str, sentence: str) -> None:
        self._change(history, replace(history.now, state=state))
        self._journal.add(event, history.now.id, sentence)
        self._wakes(f"{event} {history.now.id}")
        for listener in self.on_instance:
            listener(history.now)

    def _change(self, history: InstanceHistory, after: Instance) -> None:
        history.now = after
        self.version += 1
        if after.id in self._listed:
            self._listed[after.id] = after
            self._answer = None

    def _list(self, history: InstanceHistory) -> None:
        self._listed[history.now.id] = history.now
        self._answer = None
        self._wakes(f"instance-listed {history.now.id}")

    def _forget(self, history: InstanceHistory) -> None:
        self._listed.pop(history.now.id, None)
        self._answer = None

    def _meter(self, history: InstanceHistory) -> HourMeter:
        kind = history.now.source.kind
        return self.meters[SourceKind.SPOT if kind is SourceKind.SPOT else SourceKind.ON_DEMAND]


def with_tags(instance: Instance, tags: Pairs) -> Instance:
    """With the fields that the engine reads from these tags."""
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
