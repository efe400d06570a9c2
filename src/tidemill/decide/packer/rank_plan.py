"""A plan for many pods and sources of several ranks: which kind of pod uses which source, in which domain.

Pods that need a host each compete for the few nodes of limited sources, others for prepaid nodes in certain domains,
and who gets them decides what all the rest pays. One after the other is short-sighted: a linear program over kinds of
pods and sources (`rank_program`) decides for all at once. The packer follows it as far as whole pods allow.

Only where no node exists yet, counts are enough to keep the rules, and the solver is installed: elsewhere pods choose
one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TypeVar

from tidemill.decide.packer.host_demand import own_counters
from tidemill.decide.packer.pod_groups import PodGroup
from tidemill.decide.packer.problem import NodeOption
from tidemill.decide.packer.rank_program import PodKind, RankProgram
from tidemill.decide.packer.supply import Domain, Site, Supply
from tidemill.linear_program import solver_installed

_FEWEST_PODS = 200  # smaller problems have many attempts
_MOST_KINDS = 400  # some tenths of a second

_Key = tuple[object, ...]  # of a kind
_T = TypeVar("_T", bound=Hashable)


def plan_ranks(groups: list[PodGroup], supply: Supply, domains: list[Domain]) -> RankPlan | None:
    """`domains` are those that pods with rules about them can reach, every one of them. None: there is no plan."""
    if sum([len(group.pods) for group in groups]) < _FEWEST_PODS or not supply.several_ranks:
        return None
    hosts: Counter[int] = Counter()
    for group in groups:
        for counter in own_counters(group):
            hosts[counter] += len(group.pods)
    if not hosts or not solver_installed():
        return None
    plan = RankPlan(groups, supply, domains, max(hosts, key=lambda counter: (hosts[counter], -counter)))
    if any(group.has_domain_rules for group in groups if plan.is_alone(group)):
        return None  # where these go is not just a matter of price
    return plan if plan.solve() else None


class RankPlan:
    """`clique` counts the pods of which no two may share a host, and which are the most."""

    def __init__(self, groups: list[PodGroup], supply: Supply, domains: list[Domain], clique: int) -> None:
        self._supply, self._domains, self._clique = supply, domains, clique
        self._levelled = {counter for group in groups for counter, _, _ in group.spreads}
        self._keys: dict[tuple[object, ...], _Key] = {}
        self._kinds: dict[_Key, PodKind] = {}
        self._sizes: Counter[int] = Counter()  # pods of each rule that keeps them together
        self._found: dict[_Key, dict[int, float]] = {}  # pods by kind and number of an option group
        self._together: dict[int, Domain] = {}  # by rule
        self._owed: dict[_Key, dict[Hashable, float]] = {}
        self._choices: dict[tuple[int, tuple[Domain, ...]], int] = {}
        for group in groups:
            if group.affinity:
                self._sizes[group.affinity[0][0]] += len(group.pods)
            kind = self._kind_of(group)
            kind.count += len(group.pods)
            for dimension, amount in group.requests:
                kind.requests[dimension] += amount * len(group.pods)

    def is_level(self, group: PodGroup) -> bool:
        """Whether a spread rule counts it."""
        return any(counter in self._levelled for counter in group.counted_by)

    def is_alone(self, group: PodGroup) -> bool:
        """Whether it is one of the many pods of which no two may share a host."""
        return self._clique in own_counters(group)

    # --- kinds ---

    def _kind_of(self, group: PodGroup) -> PodKind:
        key = self._key_of(group)
        if key not in self._kinds:
            rules = (self.is_alone(group), self.is_level(group), bool(group.affinity))
            self._kinds[key] = PodKind(*rules, self._least_options(group))
        return self._kinds[key]

    def _key_of(self, group: PodGroup) -> _Key:
        rules = (group.eligibility, self.is_alone(group), self.is_level(group), bool(group.affinity))
        known = self._keys.get((*rules, group.requests))
        if known is None:
            least = tuple([(number, id(option)) for number, option in self._least_options(group).items()])
            known = self._keys[(*rules, group.requests)] = (*rules, least)
        return known

    def _least_options(self, group: PodGroup) -> dict[int, NodeOption]:
        supply, found = self._supply, {}
        used = [0] * len(supply.dimensions)
        for dimension, amount in group.requests:
            used[dimension] += amount
        for option_group in supply.option_groups:
            ladder = supply.ladder(option_group, group.eligibilities)
            rung = ladder.cheapest_rung(used) if ladder is not None else -1
            if ladder is not None and rung >= 0:
                found[option_group.number] = ladder.options[rung]
        return found

    # --- the plan ---

    def solve(self) -> bool:
        """Twice: first with pieces of the pods that stay together, then with each of their rules in one domain."""
        kinds = list(self._kinds.values())
        if len(kinds) > _MOST_KINDS or not all(kind.least for kind in kinds):
            return False
        program = RankProgram(self._supply, kinds, self._domains)
        shares = program.solve()
        if shares is None:
            return False
        found = program.solve_with(self._keep_together(shares))
        if found is None:
            return False
        self._found = dict(zip(self._kinds, found, strict=True))
        return True

    def _keep_together(self, shares: Mapping[Domain, float]) -> dict[Domain, float]:
        """A domain for each rule, those with most pods first; returns the shares that this makes."""
        total = sum(self._sizes.values())
        owed = {domain: share * total for domain, share in shares.items()}
        for rule, size in sorted(self._sizes.items(), key=lambda pair: (-pair[1], pair[0])):
            domain = self._together[rule] = max(owed, key=lambda domain: (owed[domain], domain))
            owed[domain] -= size
        return {domain: share - owed[domain] / total for domain, share in shares.items()}

    # --- what it says ---

    def hosts_of(self, group: PodGroup, count: int) -> list[tuple[int, int]]:
        """How many of so many pods of a group get a host of which option group, in the order of ranks."""
        key, option_groups = self._key_of(group), self._supply.option_groups
        found = self._found[key]
        numbers = sorted(found, key=lambda number: (option_groups[number].rank, number))
        return list(
            self._split((*key, "hosts"), {number: found[number] for number in numbers}, count).items()
        )

    def domains_of(self, group: PodGroup) -> dict[Domain, int]:
        """How many pods of a group should be in which domain."""
        key, weights = self._key_of(group), dict.fromkeys(self._domains, 0.0)
        for number, pods in self._found[key].items():
            weights[self._supply.option_groups[number].domain] += pods
        return self._split((*key, "domains"), weights, len(group.pods))

    def domain_of_rule(self, group: PodGroup) -> Domain:
        """Where pods that stay together should go."""
        return self._together[group.affinity[0][0]]

    def choices(self, group: PodGroup, domains: tuple[Domain, ...]) -> int:
        """How many sources in these domains a group may use. Who has few goes first, the others where room is left."""
        key = (group.eligibility, domains)
        known = self._choices.get(key)
        if known is None:
            known = self._choices[key] = sum(
                bool(self._supply.allowed_options(option_group, group.eligibility))
                for option_group in self._supply.option_groups
                if option_group.domain in domains
            )
        return known

    def in_order(self, group: PodGroup, sites: list[Site]) -> list[Site]:
        """The sites that the plan has for a group before the others, those for most of its kind first."""
        planned: Counter[Site] = Counter()
        for number, pods in self._found.get(self._key_of(group), {}).items():
            option_group = self._supply.option_groups[number]
            planned[option_group.rank, option_group.domain] += round(pods)
        return sorted(sites, key=lambda site: (-planned[site], site))

    def _split(self, what: _Key, weights: Mapping[_T, float], count: int) -> dict[_T, int]:
        """In proportion. What rounding gave one too much counts for the next group of the kind."""
        owed, total = self._owed.setdefault(what, {}), sum(weights.values())
        for one, weight in weights.items():
            owed[one] = owed.get(one, 0.0) + count * weight / total
        quotas = dict.fromkeys(weights, 0)
        left = count
        for one in sorted(weights, key=lambda one: -owed[one]):
            quotas[one] = min(left, max(0, int(owed[one])))
            left -= quotas[one]
        for one in sorted(weights, key=lambda one: quotas[one] - owed[one])[:left]:
            quotas[one] += 1
        for one, quota in quotas.items():
            owed[one] -= quota
        return quotas
