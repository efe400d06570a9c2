"""Decides again what was decided, from a recording: by the same documents, to prove and explain it, or by others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from tidemill.decide import Memory, decide
from tidemill.model.plan import Plan
from tidemill.recording.reader import RecordedTick
from tidemill.recording.writer import digest
from tidemill.spec import Spec


@dataclass(frozen=True, slots=True)
class ReplayedTick:
    recorded: RecordedTick
    plan: Plan
    same: bool  # as the plan that was made then


def replay(ticks: Iterable[RecordedTick], spec: Spec | None = None) -> Iterator[ReplayedTick]:
    """`spec`: other documents than those recorded; then `same` says whether they decide alike."""
    memory, last = Memory(), None
    for tick in ticks:
        used = spec or tick.spec
        if used is not last:
            memory, last = Memory(), used
        plan = decide(used, tick.world, memory)
        yield ReplayedTick(tick, plan, digest(plan) == tick.plan)


@dataclass(slots=True)
class Agreement:
    """How a replay went."""

    ticks: int = 0
    differ: list[datetime] = field(default_factory=list)
    first: datetime | None = None
    last: datetime | None = None
    versions: set[str] = field(default_factory=set)

    def note(self, tick: ReplayedTick) -> None:
        now = tick.recorded.world.now
        self.ticks += 1
        self.first, self.last = self.first or now, now
        self.versions.add(tick.recorded.version)
        if not tick.same:
            self.differ.append(now)
