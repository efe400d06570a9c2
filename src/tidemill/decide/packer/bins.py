"""Nodes being filled: those that are there, and new ones whose type is chosen last.

A bin knows what is free on it, what its pods count as on the host, and at most how many more of a crowd it
takes. A new bin stands on a rung of its ladder and may climb; climbing costs the difference in price.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tidemill.decide.packer.affinity_counters import Steps
from tidemill.decide.packer.pod_groups import Crowd
from tidemill.decide.scheduler_rules import ports_clash

if TYPE_CHECKING:
    from tidemill.decide.packer.supply import Ladder, Site, Stratum

NO_END = 1 << 60


Free = tuple[int, ...]  # by dimension
Wants = tuple[tuple[int, int], ...]  # (dimension, amount)


class Bin:
    __slots__ = (
        "asks", "caps", "counts", "eligibilities", "free", "group", "kept_caps", "ladder", "number", "place",
        "ports", "refuses", "rung", "site", "stratum",
    )  # fmt: skip

    def __init__(self, number: int, site: Site, free: Iterable[int]) -> None:
        self.number = number
        self.site = site
        self.free: Free = tuple(free)
        self.asks: list[int] = []
        self.counts: dict[int, int] = {}  # host counters
        self.caps: dict[int, int] = {}  # host counters somebody here minds -> how many there may be
        self.kept_caps: dict[int, int] = {}  # those of the caps that residents mind, whoever comes and goes
        self.refuses = 0  # bits of whom it has no place for, see `company.Steps`
        self.ports: set[tuple[str, int, str]] | None = None
        self.place = -1  # index of the place, or -1: a new node
        self.group: int | str = -1  # of the place: who may stand on one of a group may stand on all of them
        self.stratum: Stratum | None = None
        self.ladder: Ladder | None = None
        self.rung = 0
        self.eligibilities: frozenset[int] = frozenset()

    @property
    def used(self) -> list[int]:
        """By the pods on a new bin."""
        assert self.ladder is not None
        return [a - b for a, b in zip(self.ladder.capacities[self.rung], self.free, strict=True)]

    def room(self, wants: Wants) -> int:
        """How many fit into what is free."""
        return room(self.free, wants)

    def tolerance(self, crowd: Crowd) -> int:
        """How many more of a crowd the pods here, and the crowd itself, put up with on one host."""
        if not crowd.picky:
            return NO_END
        if self.refuses & crowd.minds:
            return 0
        most = NO_END
        counts = self.counts
        for counter, cap, own in crowd.host_caps:
            if own:
                most = min(most, cap - counts.get(counter, 0))
        caps = self.caps
        if caps:
            for counter in crowd.host_moves:
                if counter in caps:
                    most = min(most, caps[counter] - counts.get(counter, 0))
        for counter, own_match in crowd.host_company:
            if not counts.get(counter) and not own_match:
                return 0
        if crowd.ports:
            most = min(most, int(self.ports_free(crowd)))
        return most

    def take(self, crowd: Crowd, asks: list[int]) -> None:
        self.asks += asks
        self.free = without(self.free, crowd.wants, len(asks))
        if crowd.picky:
            self.meet(crowd, len(asks))

    def meet(self, crowd: Crowd, pods: int) -> None:
        """Count so many pods of a crowd among those here, and note whom that keeps out."""
        counts, caps, refuses = self.counts, self.caps, self.refuses
        for counter, closed, steps in crowd.marks:
            there = counts[counter] = counts.get(counter, 0) + pods
            for most, bit in steps:
                if there > most:
                    refuses |= bit
            if caps and there >= caps.get(counter, NO_END):
                refuses |= closed
        for counter, cap, _ in crowd.host_caps:
            if cap < caps.get(counter, NO_END):
                caps[counter] = cap
                if counts.get(counter, 0) >= cap:
                    refuses |= 1 << counter
        self.refuses = refuses
        if crowd.ports:
            self.ports = (self.ports or set()) | set(crowd.ports)

    def twin(self, number: int, asks: list[int]) -> Bin:
        """Another one just opened like this one, with as many pods of the same crowd."""
        other = Bin(number, self.site, self.free)
        other.asks, other.counts, other.caps = asks, self.counts.copy(), self.caps.copy()
        other.refuses, other.ports = self.refuses, self.ports and set(self.ports)
        other.stratum, other.ladder, other.rung = self.stratum, self.ladder, self.rung
        other.eligibilities = self.eligibilities
        return other

    def ports_free(self, crowd: Crowd) -> bool:
        return not (
            crowd.ports and self.ports and any(ports_clash(a, b) for a in crowd.ports for b in self.ports)
        )

    def drop(self, crowd: Crowd, ask: int, staying: Sequence[Crowd | None]) -> None:
        """Take one pod of a crowd off again; `staying` are the crowds of the pods that remain."""
        self.asks.remove(ask)
        self.free = without(self.free, crowd.wants, -1)
        for counter in crowd.host_moves:
            self.counts[counter] -= 1
        if crowd.host_caps:
            self.caps = self.kept_caps.copy()
            for other in staying:
                for counter, cap, _ in other.host_caps if other is not None else ():
                    self.caps[counter] = min(cap, self.caps.get(counter, cap))
        if crowd.ports and self.ports:
            self.ports -= set(crowd.ports)

    def stand_on(self, rung: int) -> None:
        """Climb: what is free grows by what the new rung holds more."""
        assert self.ladder is not None
        before, after = self.ladder.capacities[self.rung], self.ladder.capacities[rung]
        self.rung = rung
        self.free = tuple([free + b - a for free, a, b in zip(self.free, before, after, strict=True)])


def refused_by(one: Bin, steps: Steps) -> int:
    """From scratch: what `Bin.meet` keeps up to date as pods come."""
    refuses = 0
    for counter, there in one.counts.items():
        for most, bit in steps.get(counter, ()):
            if there > most:
                refuses |= bit
    for counter, cap in one.caps.items():
        if one.counts.get(counter, 0) >= cap:
            refuses |= 1 << counter
    return refuses


def room(free: Free, wants: Wants) -> int:
    most = NO_END
    for place, amount in wants:
        fit = free[place] // amount
        if fit < most:
            if fit <= 0:
                return 0
            most = fit
    return most


def without(free: Free, wants: Wants, pods: int = 1) -> Free:
    """What is left beside so many more."""
    left = list(free)
    for place, amount in wants:
        left[place] -= amount * pods
    return tuple(left)
