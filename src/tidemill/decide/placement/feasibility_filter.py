"""Which queued items could fit on any node at all, by amounts alone: the packer is not asked about the others.

A long queue mostly waits for capacity that does not exist. This errs on the side of letting an item through: an item
that is filtered out no packer could place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemill.decide.packer.problem import NodeOption
from tidemill.decide.placement.backfill import CapacityHold, unclaimed
from tidemill.decide.placement.candidate_nodes import CandidateGroup
from tidemill.decide.queue_item import QueueItem
from tidemill.model.pods import PodShape
from tidemill.model.resources import Resources


class FeasibilityFilter:
    """For items that refuse the same groups and must leave room for the same holds. Ignores rules between pods."""

    def __init__(
        self, groups: Iterable[CandidateGroup], options: Iterable[NodeOption], held: Sequence[CapacityHold]
    ) -> None:
        self._by_source: dict[tuple[object, str], list[Resources]] = {}
        for group in groups:
            if group.nodes:
                nodes = self._by_source.setdefault((group.source, group.zone), [])
                nodes += [unclaimed(candidate, held) for candidate in group.nodes]
        self._new = [option.capacity for option in options]
        self._largest = Resources()
        for free in (*(free for nodes in self._by_source.values() for free in nodes), *self._new):
            self._largest.raise_to(free.items())
        self._capacity: dict[int, tuple[int, int]] = {}  # by id of the shape
        self._ahead: dict[tuple[int, int], int] = {}  # by shape and number of pods: items let through

    def may_fit(self, item: QueueItem) -> bool:
        """Call in queue order: an item behind as many equal ones as fit at most does not fit."""
        equal = (id(item.shape), len(item.pods))
        ahead = self._ahead.get(equal, 0)
        if not self._fits_behind(item, ahead):
            return False
        self._ahead[equal] = ahead + 1
        return True

    def could_fit(self, item: QueueItem) -> bool:
        """Whether it would if it were the first."""
        return self._fits_behind(item, 0)

    def _fits_behind(self, item: QueueItem, ahead: int) -> bool:
        largest = self._largest
        for pod in item.pods if item.gang is not None else item.pods[:1]:
            for name, amount in pod.shape.requests:
                if amount and largest.get(name, 0) < amount:
                    return False
        if self._new or item.shape.sociable or not item.alike:
            return True
        in_all, in_one_source = self._pods_that_fit(item.shape)
        return len(item.pods) <= in_one_source and (ahead + 1) * len(item.pods) <= in_all

    def _pods_that_fit(self, shape: PodShape) -> tuple[int, int]:
        """At most how many pods of a shape all nodes hold, and those of one source in one zone."""
        known = self._capacity.get(id(shape))
        if known is None:
            counts = [
                sum(free.count_fitting(shape.requests) for free in nodes)
                for nodes in self._by_source.values()
            ]
            known = self._capacity[id(shape)] = (sum(counts), max(counts, default=0))
        return known
