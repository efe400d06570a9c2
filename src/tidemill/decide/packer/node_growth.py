"""Room for pods that fit nowhere: a new node becomes a larger type, or one more opens, whichever is cheaper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tidemill.decide.packer.bins import Bin
from tidemill.decide.packer.packing_state import Opening, PackingState, pods_sharing_price, with_pod
from tidemill.decide.packer.pod_groups import PodGroup
from tidemill.decide.packer.supply import Site, SizeLadder

# How many of the bins that could grow are compared.
_MAX_CANDIDATES = 16
# Bins grow a little beyond the demand: what is not used is given back, and large pods find room.
_HEADROOM = 1.02

MANY = 1 << 30  # pods: more than fit on any node

Demand = Mapping[
    int, Sequence[int]
]  # by what keeps pods out (`PodGroup.blocked_by`): what they request in all
Growth = tuple[tuple[float, float], int, Bin]  # (extra price, waste), the rung, the bin that grows


def grow_evenly(packing: PackingState, site: Site, demand: Demand) -> None:
    """Let new bins grow evenly until together they could hold the pods to come, the smallest bins first.

    Growing before filling pays for the same number of steps, but gives the large pods many bins to choose from and
    the small ones many gaps to fill. Bins that keep out most of the pods to come grow for the others only.
    """
    total = _sum(demand.values())
    takes: dict[int, list[int]] = {}  # by what bins block: the pods that they would take
    few: list[Bin] = []
    many: list[Bin] = []
    for bin in packing.by_site.get(site, ()):
        if bin.blocked not in takes:
            takes[bin.blocked] = _sum(
                amounts for blocked_by, amounts in demand.items() if not bin.blocked & blocked_by
            ) or [0] * len(total)
        is_open = sum(takes[bin.blocked][:-1]) * 2 >= sum(total[:-1])
        (many if is_open else few).append(bin)
    if few:
        fair = len(few) / (len(few) + len(many))
        average = [
            min(sum(takes[bin.blocked][dimension] for bin in few) // len(few), int(amount * fair))
            for dimension, amount in enumerate(total)
        ]
        left = _grow_for(packing, few, average)
        total = [amount - of + max(0, rest) for amount, of, rest in zip(total, average, left, strict=True)]
    _grow_for(packing, many, total)


def _sum(amounts: Iterable[Sequence[int]]) -> list[int]:
    return [sum(of) for of in zip(*amounts, strict=True)]


def _grow_for(packing: PackingState, bins: list[Bin], demand: Sequence[int]) -> list[int]:
    """Returns what is still short."""
    short = [int(amount * _HEADROOM) for amount in demand]
    by_rung: dict[int, dict[SizeLadder, list[Bin]]] = {}
    for bin in bins:
        for dimension, amount in enumerate(bin.free):
            if amount > 0:
                short[dimension] -= amount
        if bin.ladder is not None:
            by_rung.setdefault(bin.rung, {}).setdefault(bin.ladder, []).append(bin)
    target: dict[Bin, int] = {}
    while by_rung and any(amount > 0 for amount in short):
        rung = min(by_rung)
        for ladder, equal in by_rung.pop(rung).items():
            if rung + 1 >= len(ladder.prices):
                continue
            gain = ladder.gain(rung)
            steps = _steps(short, gain, len(equal))
            short = [amount - more * steps for amount, more in zip(short, gain, strict=True)]
            target |= dict.fromkeys(equal[:steps], rung + 1)
            by_rung.setdefault(rung + 1, {}).setdefault(ladder, []).extend(equal[:steps])
    for bin, rung in target.items():
        while rung > bin.rung and not packing.limits_allow(bin, rung):
            rung -= 1
        packing.resize(bin, rung)
    return short


def open_evenly(packing: PackingState, group: PodGroup, site: Site, demand: Demand) -> None:
    """Open as many bins as the pods to come need, if that is more than one, so that all of them fill together.

    One bin after the other would be full of memory with the large pods, and the next of CPU with the small ones.
    """
    short = _sum(demand.values())
    for bin in packing.by_site.get(site, ()):
        if not all(bin.blocked & blocked_by for blocked_by in demand):
            for dimension, amount in enumerate(bin.free):
                if amount > 0:
                    short[dimension] -= amount
    opening = packing.cheapest_opening(group, site, ahead=MANY)
    if opening is None:
        return
    _, option_group, rung = opening
    ladder = packing.supply.ladder(option_group, group.eligibilities)
    assert ladder is not None
    capacity = ladder.capacities[rung]
    nodes = max(-(-amount // held) if held else 0 for amount, held in zip(short, capacity, strict=True))
    if nodes < 2 or packing.supply.available(option_group, ladder.options[rung].consumes) < nodes:
        return
    each = [max(0, -(-amount // nodes)) for amount in short]
    rung = max(0, ladder.cheapest_rung(each))
    for _ in range(nodes):
        packing.open(group, option_group, rung)


def _steps(short: Sequence[int], gain: Sequence[int], most: int) -> int:
    """How many bins must take a step that gains this much, until nothing is short any more."""
    steps = 0
    for amount, more in zip(short, gain, strict=True):
        if amount > 0:
            steps = max(steps, -(-amount // more) if more > 0 else most)
    return min(steps, most)


def grow_or_open(
    packing: PackingState, group: PodGroup, pods: list[int], sites: Sequence[Site], ahead: int = 1
) -> list[int]:
    """Grow a bin or open one, whichever is cheaper for the next pod, until all are placed; returns the rest.

    Sites are sorted by rank: a lower rank is used up before the next, whatever the price. `ahead` is the number of
    pods to come: the price of a node is shared by as many of them as it holds.
    """
    sites = [site for site in sites if packing.can_use_site(group, site)]
    for rank in dict.fromkeys(rank for rank, _ in sites):
        count = len(pods)
        pods = _grow_or_open(packing, group, pods, [site for site in sites if site[0] == rank], ahead)
        ahead = max(1, ahead - count + len(pods))
        if not pods:
            return pods
    return pods


def _grow_or_open(
    packing: PackingState, group: PodGroup, pods: list[int], sites: Sequence[Site], ahead: int
) -> list[int]:
    # Bins only get fuller, so the best growth of a site stays the best until a pod is put there.
    growths = {site: _cheapest_growth(packing, group, site, ahead) for site in sites}
    openings = {site: packing.cheapest_opening(group, site, ahead) for site in sites}
    done, total = 0, len(pods)
    while done < total:
        growth = min(filter(None, growths.values()), key=lambda candidate: candidate[0], default=None)
        opening = _cheapest(packing, group, openings.values())
        if growth is not None and (opening is None or growth[0][0] <= opening[0]):
            bin, opening = growth[2], None
            if not packing.limits_allow(bin, growth[1]):  # not any more, after what was opened since
                growths[bin.site] = _cheapest_growth(packing, group, bin.site, ahead)
                continue
            count = packing.grow(bin, growth[1], group, pods, done)
        elif opening is not None:
            bin = packing.new_bin(group, opening[1], opening[2])
            count = _open_with_pods(packing, bin, group, pods, done)
        else:
            break
        if count <= 0:
            break  # the bin does not hold it after all: the repair may place it
        done += count
        if done == total:
            break
        before, ahead = ahead, max(1, ahead - count)
        if opening is None:
            growths[bin.site] = _cheapest_growth(packing, group, bin.site, ahead)
        else:
            again = _cheaper_growth(packing, group, bin, ahead, None) if bin.max_more(group) else None
            if before == ahead and (again is None or again[0][0] > opening[0]):
                done += packing.open_copies(bin, pods, done)  # the next pod would choose the same
            growths[bin.site] = min(
                filter(None, (growths[bin.site], again)), key=lambda candidate: candidate[0], default=None
            )
        shared = bin.option_group is not None and (bin.option_group.budget or bin.option_group.stock)
        for site in sites if shared or before != ahead else (bin.site,):
            openings[site] = packing.cheapest_opening(group, site, ahead)
            if before != ahead and site != bin.site and growths[site]:
                growths[site] = _cheapest_growth(packing, group, site, ahead)
    return pods[done:]


def _cheapest(packing: PackingState, group: PodGroup, openings: Iterable[Opening | None]) -> Opening | None:
    """Pods that need a host each: at one price where fewest nodes are. Others must stay in their domains and fill
    them there.
    """
    by_site = packing.by_site

    def order(opening: Opening) -> tuple[float, int]:
        price, option_group, _ = opening
        if not group.one_per_host:
            return price, 0
        return price, len(by_site.get((option_group.rank, option_group.domain), ()))

    return min(filter(None, openings), key=order, default=None)


def _open_with_pods(packing: PackingState, bin: Bin, group: PodGroup, pods: list[int], start: int) -> int:
    """Open a bin with as many of the pods from `start` on as it should hold; returns how many."""
    most = min(bin.max_more(group), len(pods) - start)
    count = min(bin.fit_count(group.requests), most)
    if 0 < count < most:
        _start_larger(packing, bin, group, most)
        count = min(bin.fit_count(group.requests), most)
    if count > 0:
        bin.add_pods(group, pods[start : start + count])
        packing.add_opened(bin)
    return count


def _start_larger(packing: PackingState, bin: Bin, group: PodGroup, pod_count: int) -> None:
    """Start on a higher rung while the price per pod does not rise, so that equal pods need not grow it one by one."""
    assert bin.ladder is not None and bin.option_group is not None
    ladder, holds, best = bin.ladder, bin.fit_count(group.requests), bin.rung
    price_per_pod = ladder.prices[best] / holds
    while holds < pod_count:
        holds = min(2 * holds, pod_count)
        wanted = [0] * len(bin.free)
        for dimension, amount in group.requests:
            wanted[dimension] = amount * holds
        rung = ladder.cheapest_rung(wanted)
        if rung < 0 or not packing.supply.within_limits(bin.option_group, ladder.options[rung].consumes):
            break
        if ladder.prices[rung] / holds <= price_per_pod:
            best, price_per_pod = rung, ladder.prices[rung] / holds
    bin.move_to(best)


def _cheapest_growth(packing: PackingState, group: PodGroup, site: Site, ahead: int) -> Growth | None:
    """The new bin that makes room for one more pod at the lowest extra price."""
    best: Growth | None = None
    for bin in growth_candidates(packing, group, site):
        best = _cheaper_growth(packing, group, bin, ahead, best)
    return best


def _cheaper_growth(
    packing: PackingState, group: PodGroup, bin: Bin, ahead: int, best: Growth | None
) -> Growth | None:
    """The best so far, or this bin on a higher rung, if that is better."""
    assert bin.ladder is not None
    ladder, now = bin.ladder, bin.rung
    rung = ladder.rung_for_one_more(now, bin.free, group.requests)
    while rung >= 0:
        shared = pods_sharing_price(group, ladder, rung, bin.used, ahead) if ahead > 1 else 1
        extra = round((ladder.prices[rung] - ladder.prices[now]) / shared, 9)
        if best is None or extra <= best[0][0]:
            score = (extra, _left_over(packing.weights, bin, rung))
            if best is None or score < best[0]:
                if packing.limits_allow(bin, rung):
                    best = (score, rung, bin)
                elif ladder.rising:
                    break  # larger types use up more of the limits
                else:
                    shared = 0
        rung = ladder.next_rung(with_pod(bin.used, group.requests), rung) if shared < ahead else -1
    return best


def _left_over(weights: Sequence[float], bin: Bin, rung: int) -> float:
    """What would be free on another rung before the pod is added: the pod takes the same wherever it goes."""
    assert bin.ladder is not None
    after, before = bin.ladder.capacities[rung], bin.ladder.capacities[bin.rung]
    waste = 0.0
    for weight, high, low, free in zip(weights, after, before, bin.free, strict=True):
        waste += (high - low + free) * weight
    return waste


def growth_candidates(packing: PackingState, group: PodGroup, site: Site) -> Iterator[Bin]:
    """New bins with the most free: a larger type wastes least where only a little is missing."""
    index = packing.indexes.get(site)
    if index is None or not index.has_bin_for(group.blocked_by):
        return
    tried, blocked_by, eligibility = 0, group.blocked_by, group.eligibility
    for bin_class in index.roomiest(group.requests[0][0]):
        for blocked, variant in bin_class.variants.items():
            if blocked & blocked_by:
                continue
            bin = next(iter(variant.values()))  # the others of its variant are equal
            if (
                bin.node_index < 0
                and eligibility in bin.eligibilities
                and (not group.needs_exact_check or bin.max_more(group))
            ):
                yield bin
                tried += 1
                if tried >= _MAX_CANDIDATES:
                    return
