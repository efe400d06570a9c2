"""The supply of nodes: domains, and in each domain the node options that could be opened.

A domain is one combination of values of the topology keys that matter in this problem (usually just the zone).
An option group is what one source can give in one domain at one rank. Its options differ in size and price and form
a ladder that a new node climbs as it fills: its instance type is chosen last.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from tidemill.decide.packer.pod_counters import HOST
from tidemill.decide.packer.pod_groups import UNLIMITED, GroupedPods, PodGroup
from tidemill.decide.packer.problem import ExistingNode, NodeOption, Problem
from tidemill.decide.scheduler_rules import admitted, selects, tolerated, wants_host
from tidemill.model.labels import Taint
from tidemill.model.pods import PodShape, Spread

Domain = tuple[str, ...]
Site = tuple[
    tuple[int, ...], Domain
]  # a rank and a domain: bins of one site are compared and filled together

# The values of a topology key that count for a spread rule, and the nodes and options that do not count.
_Counted = tuple[set[str], list[ExistingNode], list[NodeOption]]


@dataclass(slots=True, eq=False)
class SizeLadder:
    """Options of one group that a set of pods may use, cheapest first, without dominated ones. A rung is an index."""

    options: list[NodeOption]
    capacities: list[list[int]]  # by rung, by dimension
    prices: list[float]
    columns: list[list[int]] | None  # by dimension, if every rung holds at least what the one before holds
    rising: bool  # every rung uses up at least as much of the limits as the one before
    _known: dict[tuple[int, ...], int] = field(default_factory=dict)
    _gains: dict[int, list[int]] = field(default_factory=dict)

    def next_rung(self, used: list[int], after: int) -> int:
        """The next one up that holds this much; -1: none does."""
        for rung in range(after + 1, len(self.capacities)):
            if all(a >= b for a, b in zip(self.capacities[rung], used, strict=True)):
                return rung
        return -1

    def rung_of(self, option: NodeOption) -> int:
        return next((rung for rung, other in enumerate(self.options) if other is option), -1)

    def gain(self, rung: int) -> list[int]:
        """What the next rung holds more than this one."""
        known = self._gains.get(rung)
        if known is None:
            pairs = zip(self.capacities[rung + 1], self.capacities[rung], strict=True)
            known = self._gains[rung] = [high - low for high, low in pairs]
        return known

    def rung_for_one_more(
        self, rung: int, free: tuple[int, ...], requests: tuple[tuple[int, int], ...]
    ) -> int:
        """Where one more pod fits: this rung if it has room, -1 if none has."""
        if self.columns is not None:
            now = self.capacities[rung]
            for dimension, amount in requests:
                if amount > free[dimension]:
                    column = self.columns[dimension]
                    rung = bisect_left(column, now[dimension] - free[dimension] + amount, rung)
                    if rung == len(column):
                        return -1
            return rung
        if all(free[dimension] >= amount for dimension, amount in requests):
            return rung
        used = [a - b for a, b in zip(self.capacities[rung], free, strict=True)]
        for dimension, amount in requests:
            used[dimension] += amount
        return self.cheapest_rung(used)

    def is_tight(self, rung: int, free: tuple[int, ...]) -> bool:
        """Whether surely no cheaper rung holds what is used on this one."""
        if rung == 0:
            return True
        if self.columns is None:
            return False
        low, high = self.capacities[rung - 1], self.capacities[rung]
        for below, here, left in zip(low, high, free, strict=True):
            if here - below > left:
                return True
        return False

    def cheapest_rung(self, used: list[int]) -> int:
        """The cheapest that holds this much; -1: none does."""
        if self.columns is not None:
            rung = 0
            for column, amount in zip(self.columns, used, strict=True):
                if column[rung] < amount:
                    rung = bisect_left(column, amount, rung)
                    if rung == len(column):
                        return -1
            return rung
        key = tuple(used)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self.next_rung(used, -1)
        return known


@dataclass(slots=True, eq=False)
class OptionGroup:
    """What one source could give in one domain."""

    number: int
    rank: tuple[int, ...]
    domain: Domain
    options: list[NodeOption]
    taints: tuple[Taint, ...]
    stock: str
    budget: str
    group: str
    allowed: dict[int, list[int]] = field(default_factory=dict)  # eligibility -> positions of options
    ladders: dict[frozenset[int], SizeLadder | None] = field(default_factory=dict)  # by eligibilities
    built: dict[tuple[int, ...], SizeLadder | None] = field(default_factory=dict)  # by positions of options
    joint: dict[tuple[frozenset[int], int], tuple[frozenset[int], SizeLadder | None]] = field(
        default_factory=dict
    )


class Supply:
    def __init__(self, problem: Problem, grouped: GroupedPods) -> None:
        self.problem = problem
        self.keys = grouped.keys
        self.dimensions = grouped.dimensions
        self.thresholds, self.bit_count = grouped.thresholds, grouped.bit_count
        self.stocks = dict(problem.stocks)
        self.budgets = {name: dict(left) for name, left in problem.budgets.items()}
        self.option_groups = self._group_options(problem.options)
        self.by_domain: dict[Domain, list[OptionGroup]] = {}
        self.by_site: dict[Site, list[OptionGroup]] = {}
        for option_group in sorted(self.option_groups, key=lambda of: (of.rank, of.number)):
            self.by_domain.setdefault(option_group.domain, []).append(option_group)
            self.by_site.setdefault((option_group.rank, option_group.domain), []).append(option_group)
        self.several_ranks = len({rank for rank, _ in self.by_site}) > 1
        self._counted: dict[tuple[int, str, bool, bool], _Counted] = {}
        self._counters = grouped.counters
        every_group = (*grouped.groups, *grouped.gangs)
        self._example = {group.eligibility: group for group in every_group}  # one group of each eligibility
        self._groups_counted_by: dict[int, list[PodGroup]] = {}  # by counter, one group of each eligibility
        for group in {(group.eligibility, group.counted_by): group for group in every_group}.values():
            for counter in group.counted_by:
                self._groups_counted_by.setdefault(counter, []).append(group)

    def domain_of(self, labels: Mapping[str, str]) -> Domain:
        return tuple(labels.get(key, "") for key in self.keys)

    def _group_options(self, options: Iterable[NodeOption]) -> list[OptionGroup]:
        by_key: dict[tuple[object, ...], OptionGroup] = {}
        for option in options:
            domain = self.domain_of(option.labels)
            key = (option.rank, domain, option.taints, option.stock, option.budget, option.group)
            option_group = by_key.get(key)
            if option_group is None:
                option_group = by_key[key] = OptionGroup(
                    len(by_key),
                    option.rank,
                    domain,
                    [],
                    option.taints,
                    option.stock,
                    option.budget,
                    option.group,
                )
            option_group.options.append(option)
        return list(by_key.values())

    # --- which nodes count for a spread rule ---

    def counted_values(self, group: PodGroup, rule: Spread) -> set[str]:
        """Values of a spread's key that count for a pod group, whether it can go there or not."""
        return self._counted_nodes(group, rule)[0]

    def has_uncounted_pods(self, group: PodGroup, rule: Spread, counter: int) -> bool:
        """Whether pods of this counter run, or could run, on nodes that do not count for a group's spread rule."""
        _, nodes, options = self._counted_nodes(group, rule)
        if not nodes and not options:
            return False
        matches = self._counters[counter].matches
        if any(matches(pods.shape, pods.namespace) for node in nodes for pods in node.existing_pods):
            return True
        return any(
            self._could_use_any(other, nodes, options)
            for other in self._groups_counted_by.get(counter, ())
            if other.eligibility != group.eligibility  # its own pods use nodes that count
        )

    def _counted_nodes(self, group: PodGroup, rule: Spread) -> _Counted:
        key = (group.eligibility, rule.topology_key, rule.honor_affinity, rule.honor_taints)
        known = self._counted.get(key)
        if known is None:
            nodes = [node for node in self.problem.nodes if rule.topology_key in node.labels]
            options = [option for option in self.problem.options if rule.topology_key in option.labels]
            counted = {
                id(node): node.labels[rule.topology_key]
                for some in (nodes, options)
                for node in some
                if counts_for(group.shape, rule, node.labels, node.taints)
            }
            known = self._counted[key] = (
                set(counted.values()),
                [node for node in nodes if id(node) not in counted],
                [option for option in options if id(option) not in counted],
            )
        return known

    def _could_use_any(self, group: PodGroup, nodes: list[ExistingNode], options: list[NodeOption]) -> bool:
        wanted = {id(option) for option in options}
        for option_group in self.option_groups if wanted else ():
            positions = self.allowed_options(option_group, group.eligibility)
            if any(id(option_group.options[position]) in wanted for position in positions):
                return True
        return any(self.may_use(group, node) for node in nodes)

    # --- which nodes a pod group may use ---

    def allowed_options(self, option_group: OptionGroup, eligibility: int) -> list[int]:
        """Positions of the options that pod groups with this eligibility may use."""
        known = option_group.allowed.get(eligibility)
        if known is None:
            group = self._example[eligibility]
            shape, known = group.shape, []
            if (
                option_group.group not in group.refuses
                and tolerated(shape, option_group.taints)
                and not wants_host(shape)
            ):
                known = [
                    position
                    for position, option in enumerate(option_group.options)
                    if admitted(shape, option.labels)
                ]
            option_group.allowed[eligibility] = known
        return known

    def may_use(self, group: PodGroup, node: ExistingNode) -> bool:
        return (
            node.group not in group.refuses
            and tolerated(group.shape, node.taints)
            and admitted(
                group.shape, {HOST: node.name, **node.labels} if group.selects_hostname else node.labels
            )
        )

    def ladder(self, option_group: OptionGroup, eligibilities: frozenset[int]) -> SizeLadder | None:
        """For pods of all these eligibilities on one node; None: no option suits them all."""
        if eligibilities in option_group.ladders:
            return option_group.ladders[eligibilities]
        lists = [self.allowed_options(option_group, eligibility) for eligibility in eligibilities]
        positions = (
            tuple(lists[0]) if len(lists) == 1 else tuple(sorted(set(lists[0]).intersection(*lists[1:])))
        )
        if positions not in option_group.built:  # many mixes of pods share the same options
            option_group.built[positions] = (
                self._build([option_group.options[position] for position in positions]) if positions else None
            )
        ladder = option_group.ladders[eligibilities] = option_group.built[positions]
        return ladder

    def joint_ladder(
        self, option_group: OptionGroup, eligibilities: frozenset[int], eligibility: int
    ) -> tuple[frozenset[int], SizeLadder | None]:
        """The ladder for these eligibilities and one more."""
        key = (eligibilities, eligibility)
        known = option_group.joint.get(key)
        if known is None:
            together = eligibilities | {eligibility}
            known = option_group.joint[key] = (together, self.ladder(option_group, together))
        return known

    def _build(self, options: list[NodeOption]) -> SizeLadder:
        """Cheapest first, at one price the smallest first; dominated options are left out."""
        dimensions = self.dimensions
        rows = sorted(
            (
                (option.price, [option.capacity.get(name, 0) for name in dimensions], option)
                for option in options
            ),
            key=lambda row: (row[0], row[1], row[2].name),
        )
        kept: list[tuple[float, list[int], NodeOption]] = []
        chain = True
        for row in rows:
            if kept and _is_dominated(row, kept[-1]):
                continue
            if not chain and any(_is_dominated(row, other) for other in kept):
                continue
            if kept and not all(a >= b for a, b in zip(row[1], kept[-1][1], strict=True)):
                chain = False
            kept.append(row)
        capacities = [row[1] for row in kept]
        columns = [list(column) for column in zip(*capacities, strict=True)] if chain else None
        options = [row[2] for row in kept]
        rising = all(_uses_no_less(option, before) for before, option in pairwise(options))
        return SizeLadder(options, capacities, [row[0] for row in kept], columns, rising)

    # --- stocks and limits ---

    def within_limits(
        self,
        option_group: OptionGroup,
        consumes: Mapping[str, int],
        instead_of: Mapping[str, int] | None = None,
    ) -> bool:
        """Whether the limits allow this much more, given back what it replaces."""
        left = self.budgets.get(option_group.budget)
        if left is None:
            return True
        for name, amount in consumes.items():
            if instead_of is not None:
                amount -= instead_of.get(name, 0)
            if amount > left.get(name, UNLIMITED):
                return False
        return True

    def available(self, option_group: OptionGroup, consumes: Mapping[str, int]) -> int:
        """How many nodes that consume this much each the stock and the limits still allow."""
        most = self.stocks.get(option_group.stock, 0) if option_group.stock else UNLIMITED
        left = self.budgets.get(option_group.budget, {})
        return min(
            [most, *[left[name] // amount for name, amount in consumes.items() if amount and name in left]]
        )

    def exchange(
        self, option_group: OptionGroup, before: Mapping[str, int], after: Mapping[str, int]
    ) -> None:
        """A node of the group changes its type."""
        left = self.budgets.get(option_group.budget)
        if left is not None:
            for name in left:
                left[name] += before.get(name, 0) - after.get(name, 0)

    def consume(self, option_group: OptionGroup, consumes: Mapping[str, int], nodes: int) -> None:
        """Nodes are opened; or closed, if their number is negative."""
        if option_group.stock:
            self.stocks[option_group.stock] -= nodes
        left = self.budgets.get(option_group.budget)
        if left is not None:
            for name, amount in consumes.items():
                if name in left:
                    left[name] -= nodes * amount


def _is_dominated(
    row: tuple[float, list[int], NodeOption], cheaper: tuple[float, list[int], NodeOption]
) -> bool:
    """It holds no more than a cheaper one, and uses up no less of the limits."""
    if any(a > b for a, b in zip(row[1], cheaper[1], strict=True)):
        return False
    return _uses_no_less(row[2], cheaper[2])


def _uses_no_less(option: NodeOption, other: NodeOption) -> bool:
    consumes = option.consumes
    return all(consumes.get(name, 0) >= amount for name, amount in other.consumes.items())


def counts_for(shape: PodShape, rule: Spread, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> bool:
    """Whether a node counts for a spread rule of a pod of this shape."""
    if rule.honor_taints and not tolerated(shape, taints):
        return False
    if not rule.honor_affinity:
        return True
    if any(labels.get(key) != value for key, value in shape.node_selector if key != HOST):
        return False
    return not shape.node_terms or any(selects(term, labels) for term in shape.node_terms)
