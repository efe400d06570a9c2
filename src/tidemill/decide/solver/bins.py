"""Nodes being filled: those that are there, and new ones whose type is chosen last.

A bin knows what is free on it, what its pods count as on the host, and at most how many more of a crowd it
takes. A new bin stands on a rung of its ladder and may climb; climbing costs the difference in price.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemill.decide.solver.crowd import Crowd

if TYPE_CHECKING:
    from tidemill.decide.solver.ground import Ladder, Site, Stratum

NO_END = 1 << 60


class Bin:
    __slots__ = (
        "asks", "caps", "counts", "eligibilities", "free", "group", "ladder", "number", "place", "ports", "rung",
        "site", "stratum", "used",
    )  # fmt: skip

    def __init__(self, number: int, site: Site, free: list[int]) -> None:
        self.number = number
        self.site = site
        self.free = free
        self.asks: list[int] = []
        self.counts: dict[int, int] = {}  # host counters
        self.caps: dict[int, int] = {}  # host counters somebody here minds -> how many there may be
        self.ports: set[tuple[str, int, str]] | None = None
        self.place = -1  # index of the place, or -1: a new node
        self.group: int | str = -1  # of the place: who may stand on one of a group may stand on all of them
        self.stratum: Stratum | None = None
        self.ladder: Ladder | None = None
        self.rung = 0
        self.used: list[int] = []
        self.eligibilities: frozenset[int] = frozenset()

    def room(self, wants: tuple[tuple[int, int], ...]) -> int:
        """How many fit into what is free."""
        free = self.free
        most = NO_END
        for place, amount in wants:
            fit = free[place] // amount
            if fit < most:
                if fit <= 0:
                    return 0
                most = fit
        return most

    def tolerance(self, crowd: Crowd) -> int:
        """How many more of a crowd the pods here, and the crowd itself, put up with on one host."""
        most = NO_END
        counts = self.counts
        for counter, cap, own in crowd.host_caps:
            left = cap - counts.get(counter, 0)
            if left < own:
                return 0
            if own and left < most:
                most = left
        caps = self.caps
        if caps:
            for counter in crowd.host_moves:
                most_there = caps.get(counter)
                if most_there is not None:
                    left = most_there - counts.get(counter, 0)
                    if left < most:
                        most = left
        if crowd.host_company:
            for counter, own_match in crowd.host_company:
                if not counts.get(counter) and not own_match:
                    return 0
        if crowd.ports:
            if self.ports and any(_clash(a, b) for a in crowd.ports for b in self.ports):
                return 0
            most = min(most, 1)
        return most if most > 0 else 0

    def take(self, crowd: Crowd, asks: list[int]) -> None:
        count = len(asks)
        self.asks += asks
        free = self.free
        for place, amount in crowd.wants:
            free[place] -= amount * count
        if self.place < 0:
            used = self.used
            for place, amount in crowd.wants:
                used[place] += amount * count
        if crowd.host_moves:
            counts = self.counts
            for counter in crowd.host_moves:
                counts[counter] = counts.get(counter, 0) + count
        if crowd.host_caps:
            caps = self.caps
            for counter, cap, _ in crowd.host_caps:
                known = caps.get(counter)
                if known is None or cap < known:
                    caps[counter] = cap
        if crowd.ports:
            self.ports = (self.ports or set()) | set(crowd.ports)

    def take_one(self, crowd: Crowd, ask: int) -> None:
        """`take` for a single pod: it is called once for most pods there are."""
        self.asks.append(ask)
        free = self.free
        if self.place < 0:
            used = self.used
            for place, amount in crowd.wants:
                free[place] -= amount
                used[place] += amount
        else:
            for place, amount in crowd.wants:
                free[place] -= amount
        if crowd.host_moves:
            counts = self.counts
            for counter in crowd.host_moves:
                counts[counter] = counts.get(counter, 0) + 1
        if crowd.host_caps:
            caps = self.caps
            for counter, cap, _ in crowd.host_caps:
                known = caps.get(counter)
                if known is None or cap < known:
                    caps[counter] = cap
        if crowd.ports:
            self.ports = (self.ports or set()) | set(crowd.ports)

    def ports_free(self, crowd: Crowd) -> bool:
        return not (crowd.ports and self.ports and any(_clash(a, b) for a in crowd.ports for b in self.ports))

    def drop(self, crowd: Crowd, ask: int, staying: Sequence[Crowd | None]) -> None:
        """Take one pod of a crowd off again; `staying` are the crowds of the pods that remain."""
        self.asks.remove(ask)
        for place, amount in crowd.wants:
            self.free[place] += amount
            if self.place < 0:
                self.used[place] -= amount
        for counter in crowd.host_moves:
            self.counts[counter] -= 1
        if crowd.host_caps:
            self.caps = {}
            for other in staying:
                for counter, cap, _ in other.host_caps if other is not None else ():
                    self.caps[counter] = min(cap, self.caps.get(counter, cap))
        if crowd.ports and self.ports:
            self.ports -= set(crowd.ports)

    def stand_on(self, rung: int) -> None:
        """Climb: what is free is what the new rung holds beyond what is used."""
        assert self.ladder is not None
        self.rung = rung
        self.free = [a - b for a, b in zip(self.ladder.capacities[rung], self.used, strict=True)]


def _clash(one: tuple[str, int, str], other: tuple[str, int, str]) -> bool:
    if one[:2] != other[:2]:
        return False
    anywhere = ("", "0.0.0.0")
    return one[2] == other[2] or one[2] in anywhere or other[2] in anywhere
