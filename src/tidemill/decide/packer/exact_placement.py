"""Places one pod at a time with every rule checked exactly: on a bin that is there, or one that opens or grows.

A pod that found no bin is not tried again until something changed that could help it, and neither is a pod that needs
at least as much under the same rules. The number of checks is limited, so that the cost of a long queue grows only in
proportion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from tidemill.decide.packer.bins import Bin, fit_count
from tidemill.decide.packer.constraint_state import ConstraintState, PlacedPods
from tidemill.decide.packer.node_growth import growth_candidates
from tidemill.decide.packer.packing_state import PackingState
from tidemill.decide.packer.pod_groups import GroupedPods, PodGroup
from tidemill.decide.packer.problem import Problem
from tidemill.decide.packer.supply import Site

# How many bins and openings are checked in all: so many for each pod and bin, and never fewer than these. A check
# takes about a microsecond; four in five problems with an unplaced pod stay below a tenth of it.
_CHECKS_EACH, _FEWEST_CHECKS = 20, 50_000
_MANY = 8  # fewer groups with the same rules than this are tried one by one
_MAX_CANDIDATES = 6  # new bins of a site that are checked for growth
_OPENING_COST = 10  # looking for the cheapest opening of a site takes as long as so many checks

_RuleKey = tuple[object, ...]
_Vector = tuple[int, ...]  # requests, by dimension


@dataclass(slots=True)
class _Infeasible:
    """Requests that no bin could take, at the time of the stamp."""

    stamp: tuple[int, int]
    vectors: list[_Vector] = field(default_factory=list)


class ExactPlacer:
    def __init__(self, problem: Problem, grouped: GroupedPods, packing: PackingState) -> None:
        self.problem, self.packing = problem, packing
        self.state = ConstraintState(problem, packing, grouped)
        self.group_of = grouped.group_of()
        self.checks_left = max(_FEWEST_CHECKS, _CHECKS_EACH * (len(problem.pods) + len(packing.bins)))
        self._infeasible: dict[_RuleKey, _Infeasible] = {}
        self._probes: list[PodGroup] = []  # kept alive, because groups are remembered by their id
        self._known: dict[int, tuple[_RuleKey, _Vector]] = {}

    # --- what is not worth trying ---

    def is_infeasible(self, group: PodGroup) -> bool:
        """A group with the same rules that needs no more found no bin, and nothing has changed for it since."""
        rules, vector = self._rules_and_vector(group)
        known = self._infeasible.get(rules)
        if known is None or known.stamp != self._stamp(group):
            return False
        return any(all(a <= b for a, b in zip(failed, vector, strict=True)) for failed in known.vectors)

    def _mark_infeasible(self, group: PodGroup) -> None:
        rules, vector = self._rules_and_vector(group)
        known, stamp = self._infeasible.get(rules), self._stamp(group)
        if known is None or known.stamp != stamp:
            known = self._infeasible[rules] = _Infeasible(stamp)
        not_larger = (
            failed for failed in known.vectors if any(a < b for a, b in zip(failed, vector, strict=True))
        )
        known.vectors = [*not_larger, vector]

    def _stamp(self, group: PodGroup) -> tuple[int, int]:
        """Changes when something happened that could help a group."""
        progress = self.state.progress
        return self.state.releases, sum([progress[counter] for counter in self.state.rules(group).waits_for])

    def rule_key(self, group: PodGroup) -> object:
        """The same for groups that differ only in their requests."""
        return self._rules_and_vector(group)[0]

    def _rules_and_vector(self, group: PodGroup) -> tuple[_RuleKey, _Vector]:
        known = self._known.get(id(group))
        if known is None:
            vector = [0] * len(self.packing.supply.dimensions)
            for dimension, amount in group.requests:
                vector[dimension] = amount
            rules = (group.eligibility, id(self.state.rules(group)), group.ports)
            known = self._known[id(group)] = (rules, tuple(vector))
        return known

    def find_infeasible(self, groups: Iterable[PodGroup]) -> None:
        """Of many groups with the same rules, find out at once which of them no bin can take."""
        same_rules: dict[_RuleKey, list[PodGroup]] = {}
        for group in groups:
            if not self.is_infeasible(group):
                same_rules.setdefault(self._rules_and_vector(group)[0], []).append(group)
        for many in same_rules.values():
            self._bisect(sorted(many, key=lambda group: group.size))

    def _bisect(self, groups: list[PodGroup]) -> None:
        """If the least that any of these groups requests is too much, it is too much for all; else by halves."""
        if len(groups) < _MANY or self.checks_left <= 0:
            return
        vectors = [dict(group.requests) for group in groups]
        least = {
            dimension: min([vector.get(dimension, 0) for vector in vectors])
            for dimension, _ in groups[0].requests
        }
        requests = tuple((dimension, amount) for dimension, amount in least.items() if amount)
        probe = replace(groups[0], requests=requests)
        self._probes.append(probe)
        sites = self.allowed_sites(probe, self.sites())
        if self._find_bin(probe, sites, None) is None and not self._could_make_room(probe, sites):
            self._mark_infeasible(probe)
            return
        half = len(groups) // 2
        self._bisect(groups[half:])
        self._bisect(groups[:half])

    # --- placing a pod ---

    def place(
        self, pod: int, within: Sequence[Site] | None = None, other_than: Bin | None = None
    ) -> Bin | None:
        """Put a pod on the first bin where all rules hold; None: there is none."""
        group = self.group_of[pod]
        if self.checks_left <= 0 or (within is None and self.is_infeasible(group)):
            return None
        sites = self.allowed_sites(group, self.sites() if within is None else within)
        bin = self._find_bin(group, sites, other_than) or self._make_room(group, sites, other_than)
        if bin is not None:
            self.put(bin, pod)
        elif within is None and other_than is None and self.checks_left > 0:
            self._mark_infeasible(group)
        return bin

    def put(self, bin: Bin, pod: int) -> None:
        group = self.group_of[pod]
        self.packing.put(bin, group, [pod])
        self.state.add(group, bin, [pod])

    def remove(self, placed: PlacedPods, pod: int) -> None:
        self.state.remove(placed, pod)
        here = self.state.placed_on[placed.bin.number]
        self.packing.remove_pod(placed.bin, placed.group, pod, [other.group for other in here.values()])

    def sites(self) -> list[Site]:
        return sorted(self.packing.by_site.keys() | self.packing.supply.by_site.keys())

    def allowed_sites(self, group: PodGroup, sites: Sequence[Site]) -> list[Site]:
        return [
            site
            for site in sites
            if self.packing.can_use_site(group, site) and self.state.allows_in_domain(group, site[1])
        ]

    def _find_bin(self, group: PodGroup, sites: Sequence[Site], other_than: Bin | None) -> Bin | None:
        """The tightest bin with room, at its present size."""
        use_bits = self.state.bits_are_exact()
        for site in sites:
            for bin in self._bins_with_room(group, site, use_bits):
                if bin is not other_than and self.may_join(group, bin):
                    return bin
        return None

    def _bins_with_room(self, group: PodGroup, site: Site, use_bits: bool) -> Iterator[Bin]:
        index = self.packing.indexes.get(site)
        if index is None:
            return
        dimension, amount = group.requests[0]
        for bin_class in index.tightest(dimension, amount, max(0, self.checks_left)):
            self.checks_left -= 1
            if not fit_count(bin_class.free, group.requests):
                continue
            for blocked, variant in bin_class.variants.items():
                if not (use_bits and blocked & group.blocked_by):
                    yield from variant.values()

    def may_join(self, group: PodGroup, bin: Bin) -> bool:
        """Whether a pod of the group may use the bin and all rules hold then. Room is not checked."""
        self.checks_left -= 1
        return self.packing.may_use(group, bin) and bin.ports_free(group) and self.state.allows(group, bin)

    # --- more room ---

    def _make_room(self, group: PodGroup, sites: Sequence[Site], other_than: Bin | None) -> Bin | None:
        """Open a bin or grow one, whichever is cheaper; a lower rank first, whatever the price."""
        for rank in dict.fromkeys(rank for rank, _ in sites):
            same_rank = [site for site in sites if site[0] == rank and site in self.packing.supply.by_site]
            self.checks_left -= _OPENING_COST * len(same_rank)
            growth = self._cheapest_growth(group, same_rank, other_than)
            openings = [
                opening
                for site in same_rank
                if (opening := self.packing.cheapest_opening(group, site)) is not None
            ]
            for price, option_group, rung in sorted(openings, key=lambda opening: opening[0]):
                if growth is not None and growth[0] <= price:
                    break
                bin = self.packing.open(group, option_group, rung)
                if self.state.allows(group, bin):
                    return bin
                self.packing.close(bin)
            if growth is not None:
                self.packing.resize(growth[2], growth[1])
                return growth[2]
        return None

    def _could_make_room(self, group: PodGroup, sites: Sequence[Site]) -> bool:
        self.checks_left -= _OPENING_COST * len(sites)
        return self._cheapest_growth(group, sites, None) is not None or any(
            self.packing.cheapest_opening(group, site) is not None for site in sites
        )

    def _cheapest_growth(
        self, group: PodGroup, sites: Sequence[Site], other_than: Bin | None
    ) -> tuple[float, int, Bin] | None:
        """The lowest extra price, the rung, and the bin that would grow."""
        best: tuple[float, int, Bin] | None = None
        for site in sites:
            for bin in islice(growth_candidates(self.packing, group, site), _MAX_CANDIDATES):
                self.checks_left -= 1
                assert bin.ladder is not None
                rung, now = bin.ladder.rung_for_one_more(bin.rung, bin.free, group.requests), bin.rung
                if rung <= now or bin is other_than or not self.packing.limits_allow(bin, rung):
                    continue
                extra = bin.ladder.prices[rung] - bin.ladder.prices[now]
                if (
                    (best is None or extra < best[0])
                    and self.state.counts_alike(bin, rung)
                    and self.may_join(group, bin)
                ):
                    best = (extra, rung, bin)
        return best
