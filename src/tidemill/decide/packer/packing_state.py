"""The packing so far: the bins of one attempt, and every way in which they change.

A bin is in the index of its site. All changes to a bin go through here, so that the index stays right. Which pod
goes to which bin, and when one more is opened, is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, mul

from tidemill.decide.packer.bins import Bin, BinIndex, Requests, blocked_bits, fit_count
from tidemill.decide.packer.pod_groups import PodGroup
from tidemill.decide.packer.supply import Domain, OptionGroup, Site, SizeLadder, Supply

# How many classes of equal bins a pod tries that could move.
_MAX_CLASSES_TRIED = 24

Opening = tuple[float, OptionGroup, int]  # price, what is opened, the rung


def as_integers(weights: Sequence[float]) -> list[int]:
    """Weights in units of a sixteenth of the smallest."""
    finest = min((weight for weight in weights if weight), default=1.0)
    return [round(weight / finest * 16) for weight in weights]


class PackingState:
    def __init__(self, supply: Supply, weights: Sequence[float]) -> None:
        self.supply = supply
        self.weights = weights  # what one unit of each dimension is worth when fits are compared
        self.scale = as_integers(weights)
        self.bins: list[Bin] = []
        self.by_site: dict[Site, list[Bin]] = {}
        self.indexes: dict[Site, BinIndex] = {}
        self._aside: dict[Site, list[Bin]] = {}
        self._next_number = 0
        self._sites: dict[tuple[Domain, ...], list[Site]] = {}
        self._usable_nodes: dict[tuple[int, int | str], bool] = {}
        self._usable_sites: dict[tuple[int, Site], bool] = {}
        # The pods on a new bin by their eligibilities, numbered: part of what it blocks, so that bins of one variant
        # take the same pods.
        self._eligibility_ids: dict[frozenset[int], int] = {frozenset(): 0}

    def add(self, bin: Bin) -> None:
        self._update_blocked(bin)
        self.bins.append(bin)
        self._next_number += 1
        self.by_site.setdefault(bin.site, []).append(bin)
        index = self.indexes.get(bin.site)
        if index is None:
            index = self.indexes[bin.site] = BinIndex(self.scale)
        index.add(bin)

    def set_aside(self) -> None:
        """Bins so far take no more pods, until `bring_back`."""
        for site, bins in self.by_site.items():
            self._aside.setdefault(site, []).extend(bins)
        self.by_site, self.indexes, self._sites = {}, {}, {}

    def bring_back(self) -> None:
        now, self.by_site, self.indexes, self._sites = self.by_site, {}, {}, {}
        for site in (*self._aside, *now):
            if site not in self.by_site:
                bins = self.by_site[site] = [*self._aside.get(site, ()), *now.get(site, ())]
                index = self.indexes[site] = BinIndex(self.scale)
                for bin in bins:
                    index.add(bin)
        self._aside = {}

    def _update_blocked(self, bin: Bin) -> None:
        """From scratch."""
        eligibility_id = self._eligibility_ids.setdefault(bin.eligibilities, len(self._eligibility_ids))
        bin.blocked = blocked_bits(bin, self.supply.thresholds) | eligibility_id << self.supply.bit_count

    def sites(self, domains: tuple[Domain, ...]) -> list[Site]:
        """The sites in these domains that have a bin or could have one, lowest rank first."""
        known = self._sites.get(domains)
        if known is None:
            wanted = set(domains)
            every = self.by_site.keys() | self.supply.by_site.keys()
            known = self._sites[domains] = sorted(site for site in every if site[1] in wanted)
        return known

    # --- which bins a pod group may use ---

    def can_use_site(self, group: PodGroup, site: Site) -> bool:
        """Whether a group could use anything here. Existing nodes are asked one by one, later."""
        bins = self.by_site.get(site)
        if bins and bins[0].node_index >= 0:
            return True
        known = self._usable_sites.get((group.eligibility, site))
        if known is None:
            option_groups = self.supply.by_site.get(site, ())
            known = any(
                self.supply.allowed_options(option_group, group.eligibility) for option_group in option_groups
            )
            self._usable_sites[(group.eligibility, site)] = known
        return known

    def may_use(self, group: PodGroup, bin: Bin) -> bool:
        if group.eligibility in bin.eligibilities:
            return True
        if bin.node_index < 0:
            return self._joint_ladder(group, bin) is not None
        key = (group.eligibility, bin.number if group.selects_hostname else bin.group)
        known = self._usable_nodes.get(key)
        if known is None:
            node = self.supply.problem.nodes[bin.node_index]
            known = self._usable_nodes[key] = self.supply.may_use(group, node)
        return known

    def count_choices(self, group: PodGroup, domains: tuple[Domain, ...]) -> int:
        """How many bins and options a group may use, whether they have room or not."""
        supply = self.supply
        return sum(self.may_use(group, bin) for bin in self.bins if bin.site[1] in domains) + sum(
            len(supply.allowed_options(option_group, group.eligibility))
            for domain in domains
            for option_group in supply.by_domain.get(domain, ())
        )

    def _joint_ladder(self, group: PodGroup, bin: Bin) -> tuple[frozenset[int], SizeLadder, int] | None:
        """The ladder for the pods of a new bin and this group, if the present type of the bin is on it."""
        assert bin.option_group is not None and bin.ladder is not None
        together, ladder = self.supply.joint_ladder(bin.option_group, bin.eligibilities, group.eligibility)
        if ladder is None:
            return None
        rung = bin.rung if ladder is bin.ladder else ladder.rung_of(bin.ladder.options[bin.rung])
        return (together, ladder, rung) if rung >= 0 else None

    def restrict_to(self, group: PodGroup, bin: Bin) -> None:
        """A pod that comes narrows the types a new bin may be. Only for a bin that is not in the index."""
        if bin.node_index >= 0 or group.eligibility in bin.eligibilities:
            return
        joint = self._joint_ladder(group, bin)
        assert joint is not None
        bin.eligibilities, bin.ladder, bin.rung = joint
        bit_count = self.supply.bit_count
        eligibility_id = self._eligibility_ids.setdefault(bin.eligibilities, len(self._eligibility_ids))
        bin.blocked = (bin.blocked & ((1 << bit_count) - 1)) | eligibility_id << bit_count

    # --- opening and closing ---

    def cheapest_opening(self, group: PodGroup, site: Site, ahead: int = 1) -> Opening | None:
        """The cheapest new node for one pod of a group, of all that the site offers and the limits allow.

        `ahead`: how many pods are to come. The price is shared by as many of them as the node holds.
        """
        supply = self.supply
        empty = [0] * len(supply.dimensions)
        used = with_pod(empty.copy(), group.requests)
        best: tuple[float, float, OptionGroup, int] | None = None
        for option_group in supply.by_site.get(site, ()):
            ladder = supply.ladder(option_group, group.eligibilities)
            if ladder is None or (option_group.stock and supply.stocks.get(option_group.stock, 0) < 1):
                continue
            rung = ladder.cheapest_rung(used)
            while rung >= 0:
                shared = 0
                if supply.within_limits(option_group, ladder.options[rung].consumes):
                    shared = pods_sharing_price(group, ladder, rung, empty, ahead) if ahead > 1 else 1
                    price = round(ladder.prices[rung] / shared, 9)
                    waste = sum(map(mul, ladder.capacities[rung], self.weights))
                    if best is None or (price, waste) < best[:2]:
                        best = (price, waste, option_group, rung)
                elif ladder.rising:
                    break  # larger types use up more of the limits
                rung = ladder.next_rung(used, rung) if shared < ahead else -1
        return (best[0], best[2], best[3]) if best is not None else None

    def open(self, group: PodGroup, option_group: OptionGroup, rung: int) -> Bin:
        bin = self.new_bin(group, option_group, rung)
        self.add_opened(bin)
        return bin

    def new_bin(self, group: PodGroup, option_group: OptionGroup, rung: int) -> Bin:
        """A new bin that is not part of the packing yet."""
        ladder = self.supply.ladder(option_group, group.eligibilities)
        assert ladder is not None
        bin = Bin(self._next_number, (option_group.rank, option_group.domain), ladder.capacities[rung])
        bin.option_group, bin.ladder, bin.rung, bin.eligibilities = (
            option_group, ladder, rung, group.eligibilities,
        )  # fmt: skip
        return bin

    def add_opened(self, bin: Bin) -> None:
        """From now on a new bin counts against stock and limits."""
        assert bin.option_group is not None and bin.ladder is not None
        self.supply.consume(bin.option_group, bin.ladder.options[bin.rung].consumes, +1)
        self.add(bin)

    def open_copies(self, bin: Bin, pods: list[int], start: int) -> int:
        """Open bins like the last one for the pods of its group from `start` on; returns how many pods they took."""
        assert bin.option_group is not None and bin.ladder is not None
        option_group, consumes = bin.option_group, bin.ladder.options[bin.rung].consumes
        each = len(bin.pods)
        nodes = min((len(pods) - start) // each, self.supply.available(option_group, consumes))
        index, bins, here = self.indexes[bin.site], self.bins, self.by_site[bin.site]
        for number in range(nodes):
            first = start + number * each
            copy = bin.copy_with(self._next_number + number, pods[first : first + each])
            bins.append(copy)
            here.append(copy)
            index.add(copy)
        self._next_number += nodes
        self.supply.consume(option_group, consumes, nodes)
        return nodes * each

    def close(self, bin: Bin) -> None:
        """Remove a new bin without pods: what it took of stock and limits is given back."""
        assert not bin.pods and bin.option_group is not None and bin.ladder is not None
        if bin is self.bins[-1]:
            self.bins.pop()
        else:
            self.bins.remove(bin)
        self.by_site[bin.site].remove(bin)
        self.indexes[bin.site].remove(bin)
        self.supply.consume(bin.option_group, bin.ladder.options[bin.rung].consumes, -1)

    # --- changing the type of a new bin ---

    def limits_allow(self, bin: Bin, rung: int) -> bool:
        """Whether the limits of its pool allow a bin to be on another rung."""
        assert bin.ladder is not None and bin.option_group is not None
        options = bin.ladder.options
        return rung == bin.rung or self.supply.within_limits(
            bin.option_group, options[rung].consumes, options[bin.rung].consumes
        )

    def resize(self, bin: Bin, rung: int) -> None:
        """Move a bin to another rung, up or down."""
        if rung == bin.rung:
            return
        assert bin.ladder is not None and bin.option_group is not None
        index, options = self.indexes[bin.site], bin.ladder.options
        self.supply.exchange(bin.option_group, options[bin.rung].consumes, options[rung].consumes)
        index.remove(bin)
        bin.move_to(rung)
        index.add(bin)

    def downsize(self, bin: Bin) -> None:
        """Move a bin to the cheapest rung that holds its pods, where the limits allow it."""
        assert bin.ladder is not None
        if bin.ladder.is_tight(bin.rung, bin.free):
            return
        rung = bin.ladder.cheapest_rung(bin.used)
        if rung >= 0 and rung != bin.rung and self.limits_allow(bin, rung):
            self.resize(bin, rung)

    def grow(self, bin: Bin, rung: int, group: PodGroup, pods: list[int], start: int) -> int:
        """Move a bin up and add as many of the pods from `start` on as fit then; returns how many."""
        assert bin.ladder is not None and bin.option_group is not None
        index, options = self.indexes[bin.site], bin.ladder.options
        index.remove(bin)
        if rung != bin.rung:
            self.supply.exchange(bin.option_group, options[bin.rung].consumes, options[rung].consumes)
            bin.move_to(rung)
        count = min(bin.fit_count(group.requests), bin.max_more(group), len(pods) - start)
        self.restrict_to(group, bin)
        bin.add_pods(group, pods[start : start + count])
        index.add(bin)
        return count

    # --- adding, removing and moving pods ---

    def bins_with_room(self, group: PodGroup, site: Site) -> list[Bin]:
        """Where one pod of a group would fit into what is free, oldest bin first; who may use them is not looked at."""
        index = self.indexes.get(site)
        if index is None:
            return []
        roomy = (
            bin
            for bin_class in index.classes.values()
            if fit_count(bin_class.free, group.requests)
            for variant in bin_class.variants.values()
            for bin in variant.values()
        )
        return sorted(roomy, key=attrgetter("number"))

    def put(self, bin: Bin, group: PodGroup, pods: list[int]) -> None:
        index = self.indexes[bin.site]
        index.remove(bin)
        self.restrict_to(group, bin)
        bin.add_pods(group, pods)
        index.add(bin)

    def remove_pod(
        self, bin: Bin, group: PodGroup, pod: int, staying: Sequence[PodGroup | None] = ()
    ) -> None:
        index = self.indexes[bin.site]
        index.remove(bin)
        bin.remove_pod(group, pod, staying)
        self._update_blocked(bin)
        index.add(bin)

    def move(
        self, pod: int, group: PodGroup, source: Bin, target: Bin, staying: Sequence[PodGroup | None]
    ) -> None:
        """Move one pod to another bin; the bin it leaves becomes as small as it can."""
        self.remove_pod(source, group, pod, staying)
        self.downsize(source)
        self.put(target, group, [pod])

    def find_fit(self, group: PodGroup, site: Site, other_than: Bin) -> Bin | None:
        """The tightest bin with room for one pod, at its present size."""
        dimension, amount = group.requests[0]
        for bin_class in self.indexes[site].tightest(dimension, amount, _MAX_CLASSES_TRIED):
            if not fit_count(bin_class.free, group.requests):
                continue
            for blocked, variant in bin_class.variants.items():
                if blocked & group.blocked_by:
                    continue
                for bin in variant.values():
                    if bin is not other_than and bin.max_more(group) and self.may_use(group, bin):
                        return bin
        return None


def pods_sharing_price(
    group: PodGroup, ladder: SizeLadder, rung: int, used: Sequence[int], ahead: int
) -> int:
    """How many of the pods to come would share what a node on this rung has left."""
    if group.one_per_host:
        return 1
    free = tuple([a - b for a, b in zip(ladder.capacities[rung], used, strict=True)])
    return max(1, min(fit_count(free, group.requests), ahead))


def with_pod(used: list[int], requests: Requests) -> list[int]:
    for dimension, amount in requests:
        used[dimension] += amount
    return used
