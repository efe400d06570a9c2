"""Who has a chance of a place at all, by amounts alone: the rest of a long queue need not be asked about.

Errs on the side of hope: whoever it turns away no solver could place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemill.decide.packer.problem import Flavour
from tidemill.decide.placement.candidates import CandidateGroup
from tidemill.decide.placement.capacity_holds import CapacityHold, unclaimed
from tidemill.decide.queue_item import QueueItem
from tidemill.model.pods import PodShape
from tidemill.model.resources import Resources


class FeasibilityFilter:
    """A long queue mostly waits for what nobody has: who wants more than there is need not be asked about.

    For those who refuse the same groups and must leave room beside the same promises; rules between pods aside.
    """

    def __init__(
        self, groups: Iterable[CandidateGroup], flavours: Iterable[Flavour], held: Sequence[CapacityHold]
    ) -> None:
        self._by_source: dict[tuple[object, str], list[Resources]] = {}
        for group in groups:
            if group.nodes:
                rooms = self._by_source.setdefault((group.source, group.zone), [])
                rooms += [unclaimed(candidate, held) for candidate in group.nodes]
        self._new = [flavour.capacity for flavour in flavours]
        self._largest = Resources()
        for free in (*(free for rooms in self._by_source.values() for free in rooms), *self._new):
            self._largest.raise_to(free.items())
        self._fitting: dict[int, tuple[int, int]] = {}
        # Of one shape and number of pods: how many were let through.
        self._ahead: dict[tuple[int, int], int] = {}

    def has(self, item: QueueItem) -> bool:
        """Called in the order of the line: behind as many of the same as could fit there is no chance either."""
        largest = self._largest
        for pod in item.pods if item.gang is not None else item.pods[:1]:
            for name, amount in pod.shape.requests:
                if amount and largest.get(name, 0) < amount:
                    return False
        if self._new or item.shape.sociable or not item.alike:
            return True
        together, at_once = self._holds(item.shape)
        like = (id(item.shape), len(item.pods))
        ahead = self._ahead.get(like, 0)
        if len(item.pods) > at_once or (ahead + 1) * len(item.pods) > together:
            return False
        self._ahead[like] = ahead + 1
        return True

    def _holds(self, shape: PodShape) -> tuple[int, int]:
        """At most how many of a shape all the rooms hold, and how many those of one source in one zone."""
        known = self._fitting.get(id(shape))
        if known is None:
            held = [
                sum(free.count_fitting(shape.requests) for free in rooms)
                for rooms in self._by_source.values()
            ]
            known = self._fitting[id(shape)] = (sum(held), max(held, default=0))
        return known
