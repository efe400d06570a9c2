"""Local search after filling: a node becomes a smaller type by moving away the one pod that is too much for it.

Where each host takes one pod of a kind, pods cannot just be moved; but two pods that are alike except in size can
swap their nodes. Worth its time only where much is left over: where pods keep each other off hosts, or types come in
large steps. Moves between large nodes always are: some are full of memory while their CPU is idle, and others the other
way round. Moves stay within a site, so nothing about domains changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.decide.packer.bins import Bin
from tidemill.decide.packer.packing_state import PackingState
from tidemill.decide.packer.pod_groups import UNLIMITED, PodGroup
from tidemill.decide.packer.supply import Site

# If less than this share of the capacity of new nodes is left over, swaps win little.
_WORTH = 0.06
_GAIN = 0.002  # another pass is worth it while the last one won more than this
# Each bin compares this many other bins, and the best swap is made.
_PARTNERS = 12
_MOST_PODS = 8  # on a node with more pods little is left over, and there is too much to compare
_LEAST_SAVING = 1e-6  # dollars an hour

# A number (pods with the same can swap without breaking a rule), the pod, its group, what it requests by dimension.
_Pod = tuple[int, int, PodGroup, list[int]]
# What is used on a bin, its pods, and how much less would do for the next smaller type.
_Seen = tuple[list[int], list[_Pod], list[int]]


def improve_locally(packing: PackingState, group_of: list[PodGroup | None]) -> None:
    """`group_of` is by pod; pods without a group (members of gangs) stay where they are."""
    for site, bins in packing.by_site.items():
        new = [bin for bin in bins if bin.ladder is not None and bin.pods]
        for bin in new:
            packing.downsize(bin)
        before = float("inf")
        large = sum([len(bin.pods) for bin in new]) > _MOST_PODS * len(new)
        while new and before - (now := _share_left_over(packing, new)) > _GAIN and (large or now > _WORTH):
            before = now
            _move_pods(packing, site, new, group_of)
            if now > _WORTH:
                _swap_pods(packing, new, group_of)


def _share_left_over(packing: PackingState, bins: list[Bin]) -> float:
    """Of the dimension that is used most."""
    weights = packing.weights
    held = [0] * len(weights)
    used = [0] * len(weights)
    for bin in bins:
        assert bin.ladder is not None
        free = bin.free
        for dimension, amount in enumerate(bin.ladder.capacities[bin.rung]):
            held[dimension] += amount
            used[dimension] += amount - free[dimension]
    return min(
        (1 - b / a for a, b, weight in zip(held, used, weights, strict=True) if a and weight), default=0.0
    )


# --- moves ------------------------------------------------------------------------------------------------


def _move_pods(packing: PackingState, site: Site, bins: list[Bin], group_of: list[PodGroup | None]) -> None:
    """Bins that exceed the smaller type least go first: what they give away is small and fits elsewhere."""
    for bin in sorted(bins, key=lambda bin: (_excess(packing, bin), bin.number)):
        while bin.rung > 0 and len(bin.pods) > 1:
            surplus = _surplus_pod(bin, group_of)
            if surplus is None:
                break
            pod, group = surplus
            target = packing.find_fit(group, site, bin)
            if target is None:
                break
            packing.move(pod, group, bin, target, [group_of[other] for other in bin.pods if other != pod])


def _excess(packing: PackingState, bin: Bin) -> float:
    """How much more a bin uses than the next smaller type holds."""
    assert bin.ladder is not None
    if bin.rung == 0:
        return float("inf")
    below = bin.ladder.capacities[bin.rung - 1]
    return sum(
        (used - limit) * weight
        for used, limit, weight in zip(bin.used, below, packing.weights, strict=True)
        if used > limit
    )


def _surplus_pod(bin: Bin, group_of: list[PodGroup | None]) -> tuple[int, PodGroup] | None:
    """The smallest pod without which the next smaller type would do."""
    assert bin.ladder is not None
    below = bin.ladder.capacities[bin.rung - 1]
    excess = [
        (dimension, used - limit)
        for dimension, (used, limit) in enumerate(zip(bin.used, below, strict=True))
        if used > limit
    ]
    best: tuple[float, int, PodGroup] | None = None
    for pod in bin.pods:
        group = group_of[pod]
        if group is None or group.host_affinity or (best is not None and group.size >= best[0]):
            continue
        requests = dict(group.requests)
        if all(requests.get(dimension, 0) >= amount for dimension, amount in excess):
            best = (group.size, pod, group)
    return (best[1], best[2]) if best is not None else None


# --- swaps ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Swap:
    saves: float
    mine: tuple[int, PodGroup, int]  # the pod that leaves, and the rung of its bin after the swap
    theirs: tuple[int, PodGroup, int]
    other: Bin


def _swap_pods(packing: PackingState, bins: list[Bin], group_of: list[PodGroup | None]) -> None:
    swapper = _Swapper(packing, group_of)
    small = [bin for bin in bins if 1 < len(bin.pods) <= _MOST_PODS]
    small.sort(key=lambda bin: (-swapper.left_over(bin), bin.number))
    step = max(1, len(small) // _PARTNERS)
    for position, bin in enumerate(small):
        if swapper.left_over(bin) <= 0:
            break
        # A sample, evenly over the bins that waste much and those that waste little.
        swap = swapper.best_swap(bin, small[position % step :: step])
        if swap is not None:
            swapper.apply(bin, swap)


class _Swapper:
    def __init__(self, packing: PackingState, group_of: list[PodGroup | None]) -> None:
        self._packing, self._group_of = packing, group_of
        self._keys: dict[int, int] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._known: dict[int, _Seen] = {}  # by number of a bin, until it changes
        self._requests: dict[int, list[int]] = {}

    def left_over(self, bin: Bin) -> float:
        return sum(free * weight for free, weight in zip(bin.free, self._packing.weights, strict=True))

    def best_swap(self, bin: Bin, others: list[Bin]) -> _Swap | None:
        best: _Swap | None = None
        _, mine, my_excess = self._look(bin)
        for other in others:
            if other.free == bin.free:
                continue
            _, theirs, their_excess = self._look(other)
            for their_key, their_pod, their_group, they_request in theirs:
                for my_key, my_pod, my_group, i_request in mine:
                    if my_key != their_key or my_group is their_group:
                        continue
                    # The bin that gets the smaller pod must become a smaller type: most pairs do not get that far.
                    if their_group.size > my_group.size:
                        larger, smaller, excess = they_request, i_request, their_excess
                    else:
                        larger, smaller, excess = i_request, they_request, my_excess
                    if larger[0] - smaller[0] < excess[0] or not _relieves(larger, smaller, excess):
                        continue
                    swap = self._evaluate(bin, my_pod, my_group, other, their_pod, their_group)
                    if swap is not None and swap.saves > (best.saves if best else _LEAST_SAVING):
                        best = swap
        return best

    def _look(self, bin: Bin) -> _Seen:
        """What is used there, one pod of each group, and how much less would do for the next smaller type."""
        known = self._known.get(bin.number)
        if known is None:
            assert bin.ladder is not None
            pods: dict[int, _Pod] = {}
            for pod in bin.pods:
                group = self._group_of[pod]
                if group is not None and id(group) not in pods:
                    pods[id(group)] = (self._swap_key(group), pod, group, self._dense(group))
            used = bin.used
            if bin.ladder.columns is None:  # a cheaper type need not be the next one: nothing is known
                excess = [-UNLIMITED] * len(used)
            else:
                below = bin.ladder.capacities[bin.rung - 1] if bin.rung else [0] * len(used)
                excess = [a - b for a, b in zip(used, below, strict=True)]
            known = self._known[bin.number] = (used, list(pods.values()), excess)
        return known

    def _dense(self, group: PodGroup) -> list[int]:
        known = self._requests.get(id(group))
        if known is None:
            known = self._requests[id(group)] = [0] * len(self._packing.weights)
            for dimension, amount in group.requests:
                known[dimension] = amount
        return known

    def _swap_key(self, group: PodGroup) -> int:
        known = self._keys.get(id(group))
        if known is None:
            rules = (
                group.eligibility, group.host_counted_by, group.host_limits, group.host_affinity, group.ports,
            )  # fmt: skip
            known = self._keys[id(group)] = self._numbers.setdefault(rules, len(self._numbers))
        return known

    def _evaluate(
        self, bin: Bin, my_pod: int, my_group: PodGroup, other: Bin, their_pod: int, their_group: PodGroup
    ) -> _Swap | None:
        assert bin.ladder is not None and other.ladder is not None
        here, there = self._look(bin)[0].copy(), self._look(other)[0].copy()
        for dimension, amount in my_group.requests:
            here[dimension] -= amount
            there[dimension] += amount
        for dimension, amount in their_group.requests:
            here[dimension] += amount
            there[dimension] -= amount
        if their_group.size > my_group.size:  # the bin that gets the smaller pod must save something
            their_rung = other.ladder.cheapest_rung(there)
            my_rung = bin.ladder.cheapest_rung(here) if 0 <= their_rung < other.rung else -1
        else:
            my_rung = bin.ladder.cheapest_rung(here)
            their_rung = other.ladder.cheapest_rung(there) if 0 <= my_rung < bin.rung else -1
        if my_rung < 0 or their_rung < 0:
            return None
        mine, theirs = bin.ladder.prices, other.ladder.prices
        saves = mine[bin.rung] - mine[my_rung] + theirs[other.rung] - theirs[their_rung]
        return _Swap(saves, (my_pod, my_group, my_rung), (their_pod, their_group, their_rung), other)

    def apply(self, bin: Bin, swap: _Swap) -> None:
        my_pod, my_group, my_rung = swap.mine
        their_pod, their_group, their_rung = swap.theirs
        packing, other = self._packing, swap.other
        if not (packing.limits_allow(bin, my_rung) and packing.limits_allow(other, their_rung)):
            return
        del self._known[bin.number], self._known[other.number]
        self._remove_pod(bin, my_pod, my_group)
        self._remove_pod(other, their_pod, their_group)
        packing.resize(bin, my_rung)
        packing.resize(other, their_rung)
        packing.put(bin, their_group, [their_pod])
        packing.put(other, my_group, [my_pod])

    def _remove_pod(self, bin: Bin, pod: int, group: PodGroup) -> None:
        staying = [self._group_of[other] for other in bin.pods if other != pod]
        self._packing.remove_pod(bin, group, pod, staying)


def _relieves(larger: list[int], smaller: list[int], excess: list[int]) -> bool:
    """Whether the bin that gets the smaller pod for the larger one uses so much less."""
    for gives, gets, wanted in zip(larger, smaller, excess, strict=True):
        if gives - gets < wanted:
            return False
    return True
