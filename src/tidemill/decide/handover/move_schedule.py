"""The move of one service, replica by replica: when each begins, when it is Ready elsewhere, what that leaves short.

It follows the engine's own steps: a method that makes replicas first does so for all at once or a surge at a time;
evictions go within the budget, each when the one before is Ready, or, where the budget never allows one, one by one;
and at the last safe moment whatever is still there is deleted and made again together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.model.pods import Method


@dataclass(frozen=True, slots=True)
class Room:
    """For one replica. `boot` set: on a node that is launched when a replica asks for it, not before `since`; all rooms
    of one node (`node`) wait for the same launch."""

    since: datetime
    boot: timedelta = timedelta(0)
    node: int = 0


@dataclass(frozen=True, slots=True)
class Short:
    """Below its minimum from an instant on; `lasts` None: for an unknown time."""

    since: datetime
    lasts: timedelta | None


@dataclass(frozen=True, slots=True)
class ReplicaMove:
    begins: datetime  # the old replica is told to go, or the new one is made
    ready: datetime
    room: Room


@dataclass(frozen=True, slots=True)
class Move:
    method: Method
    replicas: int
    leaving: int
    enough: int  # how many of those that leave must be Ready elsewhere to keep the minimum
    at_once: int
    never_allowed: bool  # the minimum is all replicas, and the method creates none before it evicts
    step: timedelta  # from creation to a Ready replica
    drain_from: datetime
    turn: datetime  # replicas that are still there are evicted, whether or not there is room for them
    last_moment: datetime  # replicas that are still there are deleted
    rooms: tuple[Room, ...]  # at most one for each replica that leaves, the earliest first
    all_or_none: bool = False  # it begins only with room for all that leave

    @property
    def done_at(self) -> datetime | None:
        """When the last replica is Ready elsewhere; None: that is not known."""
        moves = self._moves()
        return max(move.ready for move in moves) if len(moves) >= self.leaving else None

    @property
    def moved_in_time(self) -> int:
        """How many replicas are Ready elsewhere before the last safe moment."""
        return sum(move.ready <= self.last_moment for move in self._moves())

    def short(self) -> Short | None:
        if self.enough <= 0:
            return None
        moves = self._moves()[: self.enough]
        since = self.last_moment
        if self.never_allowed and self.replicas > 1:
            since = min(moves[0].begins if moves else self.turn, self.last_moment)
        if len(moves) < self.enough:
            return Short(since, None)
        up = max(move.ready for move in moves)
        return Short(since, up - since) if up > since else None

    def _moves(self) -> list[ReplicaMove]:
        """In the order in which they are Ready."""
        moves = list(self._in_waves())
        late = [move for move in moves if move.begins >= self.last_moment]
        if late:  # they are all deleted then, and made again together
            opened: dict[int, datetime] = {}
            kept = [move for move in moves if move.begins < self.last_moment]
            moves = kept + [self._moved(move.room, self.last_moment, opened) for move in late]
        return sorted(moves, key=lambda move: move.ready)

    def _in_waves(self) -> Iterator[ReplicaMove]:
        """A rollout replaces replicas that stay, too, and perhaps first: they find room where they were."""
        stays = self.replicas - self.leaving if self.method is Method.ROLLOUT else 0
        free_at = self.drain_from + -(-stays // self.at_once) * self.step
        if self.never_allowed and self.replicas == 1:
            free_at = max(free_at, self.last_moment)  # nobody evicts it before
        if self.all_or_none and len(self.rooms) < self.leaving:
            free_at = max(free_at, self.last_moment)
        opened: dict[int, datetime] = {}
        rooms = list(self.rooms)
        while rooms:
            wave, rooms = rooms[: self.at_once], rooms[self.at_once :]
            # Until their turn replicas stay where they are if there is no room yet.
            begins = max(free_at, min(wave[-1].since, max(free_at, self.turn)))
            moved = [self._moved(room, begins, opened) for room in wave]
            yield from moved
            free_at = max(move.ready for move in moved)

    def _moved(self, room: Room, begins: datetime, opened: dict[int, datetime]) -> ReplicaMove:
        up = max(begins, room.since)
        if room.boot:
            up = max(begins, opened.setdefault(room.node, up + room.boot))
        return ReplicaMove(begins, up + self.step, room)
