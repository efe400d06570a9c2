"""The arithmetic of one service's move: from when there is room, wave by wave, until it is done or time is up.

Instants and lengths only: it knows no node, no pod and no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidemill.model.pods import Method


@dataclass(frozen=True, slots=True)
class Short:
    """Below its minimum, from an instant on; `lasts` None: until something comes that is not known of."""

    since: datetime
    lasts: timedelta | None


@dataclass(frozen=True, slots=True)
class Move:
    """The arithmetic of one service's move."""

    method: Method
    replicas: int
    leaving: int
    enough: int  # of those that leave: so many must be Ready elsewhere, or the minimum is missed
    at_once: int
    never_allowed: bool  # as many must be there as there are, and nothing is made before it is broken
    step: timedelta  # from an order to a Ready replica
    drain_from: datetime
    last_moment: datetime  # who is still there is made to go
    rooms: list[datetime]  # from when there is room for the first, the second, …

    def bridged(self, boot: timedelta) -> Move:
        """By the hour there is room for everybody, a boot after they ask; in waves, after each has asked."""
        asks_anew = self.method in (Method.EVICT, Method.ROLLOUT)
        rooms = [self.drain_from + (timedelta(0) if asks_anew else boot)] * self.leaving
        return replace(self, rooms=rooms, step=self.step + (boot if asks_anew else timedelta(0)))

    @property
    def begins(self) -> datetime | None:
        """Methods that make all at once wait for room for all, the others for the first wave's."""
        wave = min(self.at_once, self.leaving)
        return max(self.drain_from, self.rooms[wave - 1]) if len(self.rooms) >= wave else None

    def done_at(self, count: int) -> datetime | None:
        if self.begins is None or len(self.rooms) < self.leaving:
            return None
        return max(self.begins + count * self.step, self.rooms[-1] + self.step)

    def short(self) -> Short | None:
        if self.enough <= 0:
            return None
        if self.never_allowed:
            return self._one_by_one()
        if len(self.rooms) < self.enough:
            return Short(self.last_moment, None)
        room_for_all = self.rooms[self.enough - 1]
        # Who was made to go is made anew with everybody else, as soon as there is room.
        at_last = max(room_for_all, self.last_moment) + self.step
        if self.begins is None or self.begins >= self.last_moment:
            return self._until(at_last)
        finished = (self.last_moment - self.begins) // self.step
        if finished * self.at_once >= self.enough and room_for_all + self.step <= self.last_moment:
            return None
        if self.enough - finished * self.at_once <= self.at_once:
            return self._until(max(self.begins + (finished + 1) * self.step, room_for_all + self.step))
        return self._until(at_last)

    def _until(self, up: datetime) -> Short | None:
        return Short(self.last_moment, up - self.last_moment) if up > self.last_moment else None

    def _one_by_one(self) -> Short | None:
        """Each is missed while it is made anew. A single one goes at the last moment."""
        if not self.rooms:
            return Short(self.last_moment, None)
        if self.replicas == 1:
            return self._until(max(self.rooms[0], self.last_moment) + self.step)
        begins = self.begins or self.drain_from
        return Short(begins, self.leaving * self.step)
