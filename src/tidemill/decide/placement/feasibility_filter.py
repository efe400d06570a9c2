"""Which queued items could fit on any node at all, by amounts alone: the packer is not asked about the others.

A long queue mostly waits for capacity that does not exist. This errs on the side of letting an item through: an item
that is filtered out no packer could place. What is free is added up by group of nodes, and once for all who ask.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemill.decide.packer.problem import NodeOption
from tidemill.decide.placement.backfill import CapacityHold, capacity_holds, unclaimed
from tidemill.decide.placement.candidate_nodes import CandidateGroup, Candidates
from tidemill.decide.queue_item import QueueItem
from tidemill.model.pods import PodShape
from tidemill.model.resources import Resources

UNLIMITED = 1 << 60


class GroupRoom:
    """What is free on the nodes of one group."""

    __slots__ = ("_counts", "_free", "largest")

    def __init__(self, free: list[Resources]) -> None:
        self._free = free
        self._counts: dict[int, int] = {}  # by identity of the shape
        self.largest = Resources()  # of each resource, on any of them
        for one in free:
            self.largest.raise_to(one.items())

    def pods_that_fit(self, shape: PodShape) -> int:
        known = self._counts.get(id(shape))
        if known is None:
            requests = shape.requests
            known = self._counts[id(shape)] = sum([free.count_fitting(requests) for free in self._free])
        return known


class CandidateRoom:
    """What is free in every group, and what is left of it beside holds. For one packing: placing pods changes it."""

    def __init__(self, candidates: Candidates) -> None:
        self.groups: list[CandidateGroup] = [*candidates.ordered(), *candidates.returning]
        self.names = {id(group): f"g{number}" for number, group in enumerate(self.groups)}
        self.holds: list[CapacityHold] = capacity_holds(candidates)
        held = {name for group in self.groups for node in group.nodes for name in node.claimed}
        self.held_resources = tuple(sorted(held))
        self.with_nodes = [group for group in self.groups if group.nodes]
        numbers = {(hold.since, id(hold.beyond)): number for number, hold in enumerate(self.holds)}
        self._held: dict[int, set[int]] = {}  # by group: the holds on its nodes
        for group in self.with_nodes if numbers else ():
            for node in group.nodes:
                if node.claimed_from is not None:
                    number = numbers[node.claimed_from, id(node.claimed_by)]
                    self._held.setdefault(id(group), set()).add(number)
        self._known: dict[tuple[int, tuple[int, ...]], GroupRoom] = {}

    def of(self, group: CandidateGroup, holds: tuple[int, ...]) -> GroupRoom:
        """For pods that must leave room for these holds, by number."""
        if holds:
            here = self._held.get(id(group), ())
            holds = tuple([number for number in holds if number in here])
        known = self._known.get((id(group), holds))
        if known is None:
            held = [self.holds[number] for number in holds]
            free = [unclaimed(node, held) for node in group.nodes]
            known = self._known[id(group), holds] = GroupRoom(free)
        return known


class FeasibilityFilter:
    """For items that may use the same groups and options. Ignores rules between pods."""

    def __init__(
        self, rooms: Iterable[tuple[CandidateGroup, GroupRoom]], options: Iterable[NodeOption]
    ) -> None:
        self._by_source: dict[tuple[object, str], list[GroupRoom]] = {}
        self._largest = Resources()
        for group, room in rooms:
            self._by_source.setdefault((group.source, group.zone), []).append(room)
            self._largest.raise_to(room.largest.items())
        self._has_options = False
        for option in options:
            self._has_options = True
            self._largest.raise_to(option.capacity.items())
        self._most: dict[tuple[int, int], int] = {}  # by shape and number of pods

    def most(self, item: QueueItem) -> int:
        """How many such items could fit at most: an item behind so many equal ones does not fit."""
        if not item.alike:
            return self._most_of(item)
        equal = (id(item.shape), len(item.pods))
        known = self._most.get(equal)
        if known is None:
            known = self._most[equal] = self._most_of(item)
        return known

    def _most_of(self, item: QueueItem) -> int:
        largest = self._largest
        for pod in item.pods if not item.alike else item.pods[:1]:
            for name, amount in pod.shape.requests:
                if amount and largest.get(name, 0) < amount:
                    return 0
        if self._has_options or item.shape.sociable or not item.alike:
            return UNLIMITED
        counts = [
            sum([room.pods_that_fit(item.shape) for room in rooms]) for rooms in self._by_source.values()
        ]
        return sum(counts) // len(item.pods) if max(counts, default=0) >= len(item.pods) else 0
