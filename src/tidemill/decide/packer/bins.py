"""Bins: nodes that are being filled, existing ones and new ones, and an index that finds bins with room.

A bin knows what is free on it, how its pods count for rules on its host, and how many more of a pod group it takes.
A new bin is on a rung of its size ladder and may move up; that costs the difference in price.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from tidemill.decide.packer.pod_counters import Thresholds
from tidemill.decide.packer.pod_groups import UNLIMITED, PodGroup
from tidemill.decide.packer.supply import OptionGroup, Site, SizeLadder
from tidemill.decide.scheduler_rules import ports_clash

Free = tuple[int, ...]  # by dimension
Requests = tuple[tuple[int, int], ...]  # (dimension, amount)
Dimensions = tuple[int, ...]


class Bin:
    __slots__ = (
        "blocked", "counts", "eligibilities", "existing_limits", "free", "group", "ladder", "limits", "node_index",
        "number", "option_group", "pods", "ports", "rung", "site",
    )  # fmt: skip

    def __init__(self, number: int, site: Site, free: Iterable[int]) -> None:
        self.number = number
        self.site = site
        self.free: Free = tuple(free)
        self.pods: list[int] = []
        self.counts: dict[int, int] = {}  # host counter -> pods here
        self.limits: dict[int, int] = {}  # host counter -> most pods that the rules of the pods here allow
        self.existing_limits: dict[int, int] = {}  # the same for existing pods only
        self.blocked = 0  # bits of the pods that it keeps out, see `pod_counters.Thresholds`
        self.ports: set[tuple[str, int, str]] | None = None
        self.node_index = -1  # in Problem.nodes; -1: a new node
        self.group: int | str = -1  # of an existing node: nodes of one group take the same pods
        self.option_group: OptionGroup | None = None
        self.ladder: SizeLadder | None = None
        self.rung = 0
        self.eligibilities: frozenset[int] = frozenset()  # of the pods on a new bin

    @property
    def used(self) -> list[int]:
        """By the pods on a new bin."""
        assert self.ladder is not None
        return [a - b for a, b in zip(self.ladder.capacities[self.rung], self.free, strict=True)]

    def fit_count(self, requests: Requests) -> int:
        """How many pods fit into what is free."""
        return fit_count(self.free, requests)

    def max_more(self, group: PodGroup) -> int:
        """How many more pods of a group the host rules allow: those of the pods here, and the group's own."""
        if not group.has_host_rules:
            return UNLIMITED
        if self.blocked & group.blocked_by:
            return 0
        most = UNLIMITED
        counts = self.counts
        for counter, limit, own in group.host_limits:
            if own:
                most = min(most, limit - counts.get(counter, 0))
        limits = self.limits
        if limits:
            for counter in group.host_counted_by:
                if counter in limits:
                    most = min(most, limits[counter] - counts.get(counter, 0))
        for counter, own_match in group.host_affinity:
            if not counts.get(counter) and not own_match:
                return 0
        if group.ports:
            most = min(most, int(self.ports_free(group)))
        return most

    def add_pods(self, group: PodGroup, pods: list[int]) -> None:
        self.pods += pods
        self.free = free_after(self.free, group.requests, len(pods))
        if group.has_host_rules:
            self.count_pods(group, len(pods))

    def count_pods(self, group: PodGroup, pod_count: int) -> None:
        """Count pods of a group among those here, and set the bits of the pods that they keep out."""
        counts, limits, blocked = self.counts, self.limits, self.blocked
        for counter, bit_of_counter, thresholds in group.counter_bits:
            here = counts[counter] = counts.get(counter, 0) + pod_count
            for most, bit in thresholds:
                if here > most:
                    blocked |= bit
            if limits and here >= limits.get(counter, UNLIMITED):
                blocked |= bit_of_counter
        for counter, limit, _ in group.host_limits:
            if limit < limits.get(counter, UNLIMITED):
                limits[counter] = limit
                if counts.get(counter, 0) >= limit:
                    blocked |= 1 << counter
        self.blocked = blocked
        if group.ports:
            self.ports = (self.ports or set()) | set(group.ports)

    def copy_with(self, number: int, pods: list[int]) -> Bin:
        """Another new bin like this one, with as many pods of the same group."""
        other = Bin(number, self.site, self.free)
        other.pods, other.counts, other.limits = pods, self.counts.copy(), self.limits.copy()
        other.blocked, other.ports = self.blocked, self.ports and set(self.ports)
        other.option_group, other.ladder, other.rung = self.option_group, self.ladder, self.rung
        other.eligibilities = self.eligibilities
        return other

    def ports_free(self, group: PodGroup) -> bool:
        return not (
            group.ports and self.ports and any(ports_clash(a, b) for a in group.ports for b in self.ports)
        )

    def remove_pod(self, group: PodGroup, pod: int, staying: Sequence[PodGroup | None]) -> None:
        """Remove one pod of a group; `staying` are the groups of the pods that remain."""
        self.pods.remove(pod)
        self.free = free_after(self.free, group.requests, -1)
        for counter in group.host_counted_by:
            self.counts[counter] -= 1
        if group.host_limits:
            self.limits = self.existing_limits.copy()
            for other in staying:
                for counter, limit, _ in other.host_limits if other is not None else ():
                    self.limits[counter] = min(limit, self.limits.get(counter, limit))
        if group.ports and self.ports:
            self.ports -= set(group.ports)

    def move_to(self, rung: int) -> None:
        """Become a larger or smaller type: what is free changes by the difference in capacity."""
        assert self.ladder is not None
        before, after = self.ladder.capacities[self.rung], self.ladder.capacities[rung]
        self.rung = rung
        self.free = tuple([free + b - a for free, a, b in zip(self.free, before, after, strict=True)])


def blocked_bits(bin: Bin, thresholds: Thresholds) -> int:
    """Worked out from scratch: what `Bin.count_pods` keeps up to date as pods come."""
    blocked = 0
    for counter, here in bin.counts.items():
        for most, bit in thresholds.get(counter, ()):
            if here > most:
                blocked |= bit
    for counter, limit in bin.limits.items():
        if bin.counts.get(counter, 0) >= limit:
            blocked |= 1 << counter
    return blocked


def fit_count(free: Free, requests: Requests) -> int:
    most = UNLIMITED
    for dimension, amount in requests:
        fit = free[dimension] // amount
        if fit < most:
            if fit <= 0:
                return 0
            most = fit
    return most


def free_after(free: Free, requests: Requests, pod_count: int = 1) -> Free:
    """What is left after so many more pods."""
    left = list(free)
    for dimension, amount in requests:
        left[dimension] -= amount * pod_count
    return tuple(left)


# --- the index -------------------------------------------------------------------------------------------

BITS = 32  # the low bits of a sort key hold the serial number of a class: integers sort fastest
MASK = (1 << BITS) - 1

Variant = dict[int, Bin]  # by number, in the order they were added


class BinClass:
    """Bins with the same free vector, by the pods they keep out (`Bin.blocked`)."""

    __slots__ = ("free", "serial", "variants")

    def __init__(self, free: Free, serial: int) -> None:
        self.free = free
        self.serial = serial
        self.variants: dict[int, Variant] = {}


_BLOCK = 256  # classes; a list that is cut in blocks is changed in the same time however long it is


class _Order:
    """Classes by what is free of some dimensions, least first: blocks of sort keys, and of the classes beside them."""

    __slots__ = ("_classes", "_dimensions", "_firsts", "_keys", "_only", "_unit")

    def __init__(self, dimensions: Dimensions, scale: Sequence[int], classes: Iterable[BinClass]) -> None:
        self._dimensions = [(dimension, scale[dimension]) for dimension in dimensions]
        self._only = dimensions[0] if len(dimensions) == 1 else -1  # most orders are by one dimension
        self._unit = scale[dimensions[0]] if dimensions else 1
        ordered = sorted(classes, key=self._key)
        self._classes = [ordered[at : at + _BLOCK] for at in range(0, len(ordered), _BLOCK)] or [[]]
        self._keys = [[self._key(bin_class) for bin_class in block] for block in self._classes]
        self._firsts = [
            block[0] for block in self._keys if block
        ]  # the least key of every block but an empty one

    def add(self, bin_class: BinClass) -> None:
        key = self._key(bin_class)
        block = self._block_of(key)
        keys, classes = self._keys[block], self._classes[block]
        at = bisect_left(keys, key)
        keys.insert(at, key)
        classes.insert(at, bin_class)
        if at == 0:
            self._firsts[block : block + 1] = [key]
        if len(keys) > 2 * _BLOCK:
            self._keys[block : block + 1] = [keys[:_BLOCK], keys[_BLOCK:]]
            self._classes[block : block + 1] = [classes[:_BLOCK], classes[_BLOCK:]]
            self._firsts.insert(block + 1, keys[_BLOCK])

    def drop(self, bin_class: BinClass) -> None:
        key = self._key(bin_class)
        block = self._block_of(key)
        keys, classes = self._keys[block], self._classes[block]
        at = bisect_left(keys, key)
        del keys[at], classes[at]
        if not keys and len(self._keys) > 1:
            del self._keys[block], self._classes[block]
        if at == 0:
            self._firsts[block : block + 1] = keys[:1]

    def from_amount(self, weighed: int, limit: int) -> list[BinClass]:
        """At most `limit` classes with at least this much, least first."""
        key = weighed << BITS
        block = self._block_of(key)
        start = bisect_left(self._keys[block], key)
        found = self._classes[block][start : start + limit]
        while len(found) < limit and block + 1 < len(self._classes):
            block += 1
            found += self._classes[block][: limit - len(found)]
        return found

    def backwards(self) -> Iterator[BinClass]:
        for block in reversed(self._classes):
            yield from reversed(block)

    def _block_of(self, key: int) -> int:
        return max(bisect_right(self._firsts, key) - 1, 0)

    def _key(self, bin_class: BinClass) -> int:
        free = bin_class.free
        if self._only >= 0:
            return (free[self._only] * self._unit << BITS) | bin_class.serial
        return (
            sum([free[dimension] * unit for dimension, unit in self._dimensions]) << BITS
        ) | bin_class.serial


class BinIndex:
    """The bins of one site by their free vector, sorted by the dimensions that are searched for.

    Where pods are alike, thousands of bins are a few hundred classes. Where no two bins are equal, a class is a bin.
    A bin is removed before it changes and added afterwards. An order over several dimensions is by their sum, in units
    of `scale`: whoever leaves little over in all leaves little over of each.
    """

    __slots__ = ("_orders", "_scale", "_serial", "blocked_counts", "by_serial", "classes")

    def __init__(self, scale: Sequence[int]) -> None:
        self._scale = [each or 1 for each in scale]  # what a unit of each dimension is worth
        self.classes: dict[Free, BinClass] = {}
        self.by_serial: dict[int, BinClass] = {}
        self.blocked_counts: dict[int, int] = {}  # bits that bins here block -> in how many classes
        self._orders: dict[Dimensions, _Order] = {}
        self._serial = 0

    def add(self, bin: Bin) -> None:
        bin_class = self.classes.get(bin.free)
        if bin_class is None:
            bin_class = self.class_of(bin.free)
        variant = bin_class.variants.get(bin.blocked)
        if variant is None:
            variant = self.add_variant(bin_class, bin.blocked)
        variant[bin.number] = bin

    def remove(self, bin: Bin) -> None:
        bin_class = self.classes[bin.free]
        variant = bin_class.variants[bin.blocked]
        del variant[bin.number]
        if not variant:
            self.drop_variant(bin_class, bin.blocked)
            self.drop_if_empty(bin_class)

    def add_variant(self, bin_class: BinClass, blocked: int) -> Variant:
        variant: Variant = {}
        bin_class.variants[blocked] = variant
        self.blocked_counts[blocked] = self.blocked_counts.get(blocked, 0) + 1
        return variant

    def drop_variant(self, bin_class: BinClass, blocked: int) -> None:
        del bin_class.variants[blocked]
        if self.blocked_counts[blocked] == 1:
            del self.blocked_counts[blocked]
        else:
            self.blocked_counts[blocked] -= 1

    def class_of(self, free: Free) -> BinClass:
        known = self.classes.get(free)
        if known is None:
            self._serial += 1
            known = self.classes[free] = self.by_serial[self._serial] = BinClass(free, self._serial)
            for order in self._orders.values():
                order.add(known)
        return known

    def drop_if_empty(self, bin_class: BinClass) -> None:
        if bin_class.variants:
            return
        del self.classes[bin_class.free]
        del self.by_serial[bin_class.serial]
        for order in self._orders.values():
            order.drop(bin_class)

    def has_bin_for(self, blocked_by: int) -> bool:
        """Whether any bin blocks none of these bits."""
        return not blocked_by or any(not blocked & blocked_by for blocked in self.blocked_counts)

    def tightest(self, dimension: int, amount: int, limit: int) -> list[BinClass]:
        """At most `limit` classes with at least this much free of a dimension, those with least of it first."""
        return self._order((dimension,)).from_amount(amount * self._scale[dimension], limit)

    def fullest(self, requests: Requests, limit: int) -> list[BinClass]:
        """At most `limit` classes with as much free as a pod requests, in all, those with least of it first."""
        scale = self._scale
        wanted = sum([amount * scale[dimension] for dimension, amount in requests[:-1]])
        return self._order(tuple(sorted([dimension for dimension, _ in requests[:-1]]))).from_amount(
            wanted, limit
        )

    def roomiest(self, dimension: int) -> Iterator[BinClass]:
        """Those with most free of a dimension first."""
        return self._order((dimension,)).backwards()

    def _order(self, dimensions: Dimensions) -> _Order:
        order = self._orders.get(dimensions)
        if order is None:
            order = self._orders[dimensions] = _Order(dimensions, self._scale, self.classes.values())
        return order
