"""Best fit: place pods into what is free on a site, each pod where it would leave least behind.

Many equal pods at once look at every class of bins, and look at equal bins once. A few pods among many bins look only
at the classes that have least free in all. So the cost grows with kinds of pods and bins where many are alike, and
with the number of pods where they are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from tidemill.decide.packer.bins import (
    BITS,
    MASK,
    Bin,
    BinClass,
    BinIndex,
    Requests,
    Variant,
    fit_count,
    free_after,
)
from tidemill.decide.packer.packing_state import PackingState
from tidemill.decide.packer.pod_groups import PodGroup
from tidemill.decide.packer.supply import Site

# So few pods among so few classes fill one bin after the other: the rest of the bins stays for larger pods. On existing
# nodes a few pods always do: all of these are tried before a node is opened, and the first with room will do.
FEW_PODS, _FEW_CLASSES = 8, 128
# With one pod to so many classes, looking at all of them at once is cheaper than at a few for each pod.
CLASSES_A_POD = 24
# How many classes a pod tries before a node grows or opens for it, those with least free first.
_FIRST_TRIED = 64
_LAST_TRIED = 512  # ... if none of them has room
_MOST_COMPARED = 16  # of those that take it; the last of many are rarely better

Queue = list[tuple[PodGroup, list[int]]]  # groups with the same requests and eligibility, and their pods


def place_best_fit(packing: PackingState, queue: Queue, site: Site) -> Queue:
    """Place as many as fit into what is free on this site; returns the rest."""
    index = packing.indexes.get(site)
    if index is None or not index.classes or not packing.can_use_site(queue[0][0], site):
        return queue
    total = sum([len(pods) for _, pods in queue])
    existing = packing.by_site[site][0].node_index >= 0
    is_batch = total * CLASSES_A_POD >= len(index.classes)
    if (total < FEW_PODS or not is_batch) and (existing or len(index.classes) <= _FEW_CLASSES):
        return _rest(queue, lambda group, pods: _fill_tightest(packing, index, group, pods))
    if is_batch:
        return _BatchPlacement(packing, index, queue).run()
    return _rest(queue, lambda group, pods: _place_one_by_one(packing, index, group, pods))


def _rest(queue: Queue, place: Callable[[PodGroup, list[int]], list[int]]) -> Queue:
    """The pods of each group that are left when it was placed."""
    left = ((group, place(group, pods)) for group, pods in queue)
    return [(group, pods) for group, pods in left if pods]


def _fill_tightest(packing: PackingState, index: BinIndex, group: PodGroup, pods: list[int]) -> list[int]:
    """Fill one bin after the other, first where least is free of what the pods request most."""
    if not index.has_bin_for(group.blocked_by):
        return pods
    done, total, blocked_by = 0, len(pods), group.blocked_by
    for bin_class in index.tightest(*group.requests[0], len(index.classes)):
        each = fit_count(bin_class.free, group.requests)
        if each == 0:
            continue
        for blocked, variant in list(bin_class.variants.items()):
            if blocked & blocked_by:
                continue
            for bin in list(variant.values()):
                if not packing.may_use(group, bin):
                    continue
                count = min(each, total - done, bin.max_more(group))
                packing.put(bin, group, pods[done : done + count])
                done += count
                if done == total:
                    return []
    return pods[done:] if done else pods


def _place_one_by_one(packing: PackingState, index: BinIndex, group: PodGroup, pods: list[int]) -> list[int]:
    """Each pod looks at the classes that have least free in all, and at more of them if those lack something."""
    if not index.has_bin_for(group.blocked_by):
        return pods
    for done, pod in enumerate(pods):
        bin = _tightest_fit(packing, group, index.fullest(group.requests, _FIRST_TRIED))
        if bin is None:
            bin = _tightest_fit(packing, group, index.fullest(group.requests, _LAST_TRIED)[_FIRST_TRIED:])
        if bin is None:
            return pods[done:]
        packing.put(bin, group, [pod])
    return []


def _tightest_fit(packing: PackingState, group: PodGroup, classes: Sequence[BinClass]) -> Bin | None:
    """Of the first bins that take a pod, the one that would have least left over in the dimension with most of it.

    `classes` are sorted by what is free in all.
    """
    scale, requests = packing.scale, group.requests
    second, less = requests[1] if len(requests) > 1 else requests[0]
    best: Bin | None = None
    least, compared, dimensions = 0, 0, len(requests) - 1
    for bin_class in [one for one in classes if one.free[second] >= less]:  # the others are soon told apart
        free = bin_class.free
        most = total = 0
        for dimension, amount in requests:
            left = free[dimension] - amount
            if left < 0:
                break
            left *= scale[dimension]
            total += left
            if left > most:
                most = left
        else:
            compared += 1
            if best is not None and most >= least:
                if total >= dimensions * least or compared >= _MOST_COMPARED:
                    break  # in all that follow more is left over
                continue
            bin = _first_allowed(packing, group, bin_class)
            if bin is not None:
                best, least = bin, most
    return best


def _first_allowed(packing: PackingState, group: PodGroup, bin_class: BinClass) -> Bin | None:
    """The bins of a class are equal but for the pods that they keep out."""
    blocked_by, eligibility = group.blocked_by, group.eligibility
    for blocked, variant in bin_class.variants.items():
        if blocked & blocked_by:
            continue
        for bin in variant.values():
            if (eligibility in bin.eligibilities or packing.may_use(group, bin)) and (
                not group.has_host_rules or bin.max_more(group)
            ):
                return bin
    return None


class _WaitingGroup:
    """Pods of one group, of which `done` are placed."""

    __slots__ = ("done", "group", "pods")

    def __init__(self, group: PodGroup, pods: list[int]) -> None:
        self.group, self.pods, self.done = group, pods, 0


class _BatchPlacement:
    """One pod to a bin, first where least would be left over; then again, while any still fit."""

    def __init__(self, packing: PackingState, index: BinIndex, queue: Queue) -> None:
        self._packing, self._index = packing, index
        self._waiting = [_WaitingGroup(group, pods) for group, pods in queue]
        self._requests = queue[0][0].requests
        self._common_mask = self._find_common_mask()
        self._mask_is_stale = False  # a group is done since the mask was worked out

    def run(self) -> Queue:
        classes: Iterable[BinClass] = self._index.classes.values()
        while self._waiting:
            reached: dict[int, BinClass] = {}
            for bin_class in _by_leftover(self._packing.scale, self._requests, self._index, classes):
                self._fill_class(bin_class, reached)
                if not self._waiting:
                    return []
            if not reached:
                break
            # The other classes took no pod, and will take none. Where pods request nothing, one may be empty by now.
            classes = [bin_class for bin_class in reached.values() if bin_class.variants]
        return [(waiting.group, waiting.pods[waiting.done :]) for waiting in self._waiting]

    def _fill_class(self, bin_class: BinClass, reached: dict[int, BinClass]) -> None:
        """Bins that get a pod move to the `target` class, which has less free."""
        index, target = self._index, None
        if self._mask_is_stale:
            self._common_mask, self._mask_is_stale = self._find_common_mask(), False
        for blocked, variant in list(bin_class.variants.items()):
            if blocked & self._common_mask:
                continue
            if target is None:
                target = index.class_of(free_after(bin_class.free, self._requests))
            self._fill_variant(blocked, variant, target)
            if not variant:
                index.drop_variant(bin_class, blocked)
            if not self._waiting:
                break
        if target is not None:
            index.drop_if_empty(bin_class)
            if target.variants:
                reached[target.serial] = target
            else:
                index.drop_if_empty(target)

    def _fill_variant(self, blocked: int, variant: Variant, target: BinClass) -> None:
        """One pod for each bin: of the first group in the queue that the bins do not block."""
        queue, at = self._waiting, 0
        bins = iter(list(variant.values()))
        while at < len(queue):
            waiting = queue[at]
            if blocked & waiting.group.blocked_by:
                at += 1
                continue
            self._place_on(waiting, bins, variant, target)
            if waiting.done < len(waiting.pods):
                return  # every bin was tried
            del queue[at]
            self._mask_is_stale = True

    def _place_on(
        self, waiting: _WaitingGroup, bins: Iterator[Bin], variant: Variant, target: BinClass
    ) -> None:
        group, pods, done = waiting.group, waiting.pods, waiting.done
        eligibility, has_host_rules, total = group.eligibility, group.has_host_rules, len(pods)
        variants, free, packing = target.variants, target.free, self._packing
        for bin in bins:
            if eligibility not in bin.eligibilities:
                if not packing.may_use(group, bin):
                    continue
                packing.restrict_to(group, bin)
            del variant[bin.number]
            bin.pods.append(pods[done])
            bin.free = free
            if has_host_rules:
                bin.count_pods(group, 1)
            same = variants.get(bin.blocked)
            if same is None:
                same = self._index.add_variant(target, bin.blocked)
            same[bin.number] = bin
            done += 1
            if done == total:
                break
        waiting.done = done

    def _find_common_mask(self) -> int:
        """The bits that keep out every group in the queue."""
        common = -1
        for waiting in self._waiting:
            common &= waiting.group.blocked_by
        return common


def _by_leftover(
    scale: Sequence[int], requests: Requests, index: BinIndex, classes: Iterable[BinClass]
) -> list[BinClass]:
    """Classes with room for one pod, by how much they would have left and how unbalanced it would be."""
    weighed = [(dimension, amount) for dimension, amount in requests if scale[dimension]]
    if len(weighed) == 2:
        (first, most), (second, less) = weighed
        heavy, light = scale[first], scale[second]
        fits = []
        for bin_class in classes:
            free = bin_class.free
            a = free[first] - most
            if a >= 0 and free[-1] > 0:
                b = free[second] - less
                if b >= 0:
                    # a + b + |a - b| is twice the larger: what is left over in the dimension with most of it.
                    left, right = a * heavy, b * light
                    fits.append(((left if left > right else right) << BITS) | bin_class.serial)
    else:
        fits = [
            (
                sum(
                    [(bin_class.free[dimension] - amount) * scale[dimension] for dimension, amount in weighed]
                )
                << BITS
            )
            | bin_class.serial
            for bin_class in classes
            if bin_class.free[-1] > 0
            and all(bin_class.free[dimension] >= amount for dimension, amount in weighed)
        ]
    fits.sort()  # a score and a serial number in one integer sort in a fraction of the time
    by_serial = index.by_serial
    return [by_serial[key & MASK] for key in fits]
