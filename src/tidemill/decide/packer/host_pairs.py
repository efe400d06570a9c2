"""Pods that need a host each, of two kinds that may share one: which of them share.

Where every pod of one kind keeps the others of its kind off its host, and so does every pod of another kind, the hosts
hold one of each. One after the other they would be paired large with large: the first that is placed gets the next
that is large. Who is paired with whom decides about the sizes of all these nodes, so it is decided for all at once:
a transportation problem between sizes, improved two pairs at a time from the large with the small.

Only where nothing exists and one source gives all the nodes: elsewhere hosts differ, and pods choose them one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tidemill.decide.packer.host_demand import can_share, own_counters
from tidemill.decide.packer.packing_state import PackingState
from tidemill.decide.packer.pod_groups import PodGroup
from tidemill.decide.packer.supply import OptionGroup, SizeLadder
from tidemill.decide.packer.topology_spread import DomainShare

_MOST_SIZES = 64  # of each kind: more take long to compare, and pods of all sizes find a partner without this
_FEWEST = 0.5  # of the pods of the larger kind: with fewer partners than this most hosts have one kind anyway
_MOST_PODS = 8  # to a host on average: with more, little depends on two of them
_ROUNDS = 20
_EPSILON = 1e-9

_Amounts = tuple[int, ...]  # by dimension
_Sizes = dict[_Amounts, list[DomainShare]]
_Pairs = dict[tuple[int, int], int]  # numbers of two sizes -> how many pairs


def open_pairs(shares: list[DomainShare], packing: PackingState) -> list[DomainShare]:
    """Open a node for every pair; returns the shares without the pods that are placed."""
    if packing.bins or packing.supply.several_ranks:
        return shares
    kinds: dict[tuple[object, ...], dict[tuple[int, ...], list[DomainShare]]] = {}
    for share in shares:
        group = share.group
        if group.one_per_host and len(share.domains) == 1 and not group.needs_exact_check:
            place = (share.domains, group.eligibility)
            kinds.setdefault(place, {}).setdefault(own_counters(group), []).append(share)
    taken: dict[int, int] = {}
    fewest_hosts = _pod_count(shares) / _MOST_PODS
    for cliques in kinds.values():
        largest = sorted(cliques.values(), key=_pod_count, reverse=True)[:2]
        hosts = _pod_count(largest[0])
        if len(largest) == 2 and hosts >= fewest_hosts and _pod_count(largest[1]) >= _FEWEST * hosts:
            _open_pairs(packing, largest[0], largest[1], taken)
    return [
        DomainShare(share.group, share.pods[count:], share.domains) if count else share
        for share in shares
        if (count := taken.get(id(share), 0)) < len(share.pods)
    ]


def _pod_count(shares: list[DomainShare]) -> int:
    return sum([len(share.pods) for share in shares])


def _open_pairs(
    packing: PackingState, left: list[DomainShare], right: list[DomainShare], taken: dict[int, int]
) -> None:
    found = _only_source(packing, left[0])
    if found is None or not _may_share(left, right):
        return
    option_group, ladder = found
    dimensions = len(packing.supply.dimensions)
    lefts, rights = _by_size(left, dimensions), _by_size(right, dimensions)
    largest = ladder.cheapest_rung(_together(_most_of(lefts), _most_of(rights)))
    nodes = packing.supply.available(option_group, ladder.options[largest].consumes)
    if max(len(lefts), len(rights)) > _MOST_SIZES or largest < 0 or nodes < _pod_count(left):
        return
    left_sizes, right_sizes = list(lefts.items()), list(rights.items())
    for (first, second), count in _match(ladder, lefts, rights).items():
        if first == len(left_sizes) or second == len(right_sizes):
            continue  # they have no partner
        (mine, my_shares), (theirs, their_shares) = left_sizes[first], right_sizes[second]
        rung = ladder.cheapest_rung(_together(mine, theirs))
        if rung < 0:
            continue
        my_pods, their_pods = _next_pods(my_shares, taken, count), _next_pods(their_shares, taken, count)
        for (my_group, my_pod), (their_group, their_pod) in zip(my_pods, their_pods, strict=True):
            bin = packing.new_bin(my_group, option_group, rung)
            bin.add_pods(my_group, [my_pod])
            bin.add_pods(their_group, [their_pod])
            packing.add_opened(bin)


def _only_source(packing: PackingState, share: DomainShare) -> tuple[OptionGroup, SizeLadder] | None:
    """Where all the nodes come from, if there is one such source."""
    sites = packing.sites(share.domains)
    option_groups = packing.supply.by_site.get(sites[0], ()) if len(sites) == 1 else ()
    if len(option_groups) != 1:
        return None
    ladder = packing.supply.ladder(option_groups[0], share.group.eligibilities)
    return (option_groups[0], ladder) if ladder is not None else None


def _may_share(left: list[DomainShare], right: list[DomainShare]) -> bool:
    ours = {share.group.host_limits: share.group for share in left}.values()
    theirs = {(share.group.host_counted_by, share.group.host_limits) for share in right}
    return all(can_share(group, rules) for group in ours for rules in theirs) and not any(
        share.group.host_affinity for share in (*left, *right)
    )


def _by_size(shares: list[DomainShare], dimensions: int) -> _Sizes:
    found: _Sizes = {}
    for share in shares:
        size = [0] * dimensions
        for dimension, amount in share.group.requests:
            size[dimension] = amount
        found.setdefault(tuple(size), []).append(share)
    return found


def _most_of(sizes: _Sizes) -> _Amounts:
    return tuple([max(amounts) for amounts in zip(*sizes, strict=True)])


def _together(mine: _Amounts, theirs: _Amounts) -> list[int]:
    return [a + b for a, b in zip(mine, theirs, strict=True)]


def _next_pods(shares: list[DomainShare], taken: dict[int, int], count: int) -> list[tuple[PodGroup, int]]:
    """The next pods of these shares, the oldest of each first."""

    def waiting() -> Iterator[tuple[PodGroup, int]]:
        for share in shares:
            for pod in share.pods[taken.get(id(share), 0) :]:
                taken[id(share)] = taken.get(id(share), 0) + 1
                yield share.group, pod

    return list(islice(waiting(), count))


# --- the transportation problem ---------------------------------------------------------------------------


def _match(ladder: SizeLadder, lefts: _Sizes, rights: _Sizes) -> _Pairs:
    """How many pairs of each two sizes. One size more on the side with fewer pods stands for no partner."""
    left_counts = [_pod_count(shares) for shares in lefts.values()]
    right_counts = [_pod_count(shares) for shares in rights.values()]
    nobody = (0,) * len(next(iter(lefts)))
    prices = [[_price(ladder, mine, theirs) for theirs in (*rights, nobody)] for mine in (*lefts, nobody)]
    surplus = sum(left_counts) - sum(right_counts)
    left_counts.append(max(0, -surplus))
    right_counts.append(max(0, surplus))
    pairs = _from_corner(left_counts, right_counts, prices)
    for _ in range(_ROUNDS):
        if not _improve(pairs, prices):
            break
    return pairs


def _price(ladder: SizeLadder, mine: _Amounts, theirs: _Amounts) -> float:
    rung = ladder.cheapest_rung(_together(mine, theirs))
    return ladder.prices[rung] if rung >= 0 else 2 * ladder.prices[-1]


def _from_corner(left_counts: list[int], right_counts: list[int], prices: list[list[float]]) -> _Pairs:
    """The dearest of the one with the cheapest of the other."""
    lefts = sorted(range(len(left_counts)), key=lambda number: -prices[number][-1])
    rights = sorted(range(len(right_counts)), key=lambda number: prices[-1][number])
    left_counts, right_counts = left_counts.copy(), right_counts.copy()
    pairs: _Pairs = {}
    at = 0
    for first in lefts:
        while left_counts[first]:
            second = rights[at]
            count = min(left_counts[first], right_counts[second])
            if count:
                pairs[first, second] = count
                left_counts[first] -= count
                right_counts[second] -= count
            if not right_counts[second]:
                at += 1
    return pairs


def _improve(pairs: _Pairs, prices: list[list[float]]) -> bool:
    """Exchange the partners of two pairs wherever that is cheaper, as many at once as there are of both."""
    improved = False
    for first in list(pairs):
        for second in list(pairs):
            if first not in pairs:
                break
            (a, b), (c, d) = first, second
            if second not in pairs or a == c or b == d:
                continue
            if prices[a][d] + prices[c][b] < prices[a][b] + prices[c][d] - _EPSILON:
                count = min(pairs[first], pairs[second])
                for gone in (first, second):
                    pairs[gone] -= count
                    if not pairs[gone]:
                        del pairs[gone]
                for new in ((a, d), (c, b)):
                    pairs[new] = pairs.get(new, 0) + count
                improved = True
    return improved
