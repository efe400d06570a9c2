"""The linear program behind a `RankPlan`: how many pods of each kind use which source in which domain.

Pods and nodes may be cut in pieces. It knows amounts, which types hold a pod, that some pods need a host each, stocks
and limits, that counts end level over the domains, that pods which stay together do, and who may open a node: a pod
for which no lower rank surely has one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidemill.decide.packer.problem import NodeOption
from tidemill.decide.packer.supply import Domain, OptionGroup, Supply
from tidemill.linear_program import INFINITE, Program

# So much of a node is filled in the plan: less than whole pods can fill, so that these find room where planned.
# Dollars a pod: of two plans at about one price, the one with more pods on prepaid nodes leaves room on the others.
# Both are the best of some that were tried on `pools` with three seeds; others cost up to 3 % more at 5,000 pods.
_FULL, _TIE = 0.8, 1e-3
_LEAST = 1e-6  # pods

_Opened = list[tuple[NodeOption, int]]  # a type of node, and the column that counts them


@dataclass(slots=True)
class PodKind:
    """Pods that may use the same nodes and need the same types of them. What they request is an average."""

    alone: bool  # no two of these kinds may share a host
    level: bool  # they end level over the domains
    together: bool  # with all others that their rule is about in one domain
    least: dict[int, NodeOption]  # by number of an option group: the cheapest type that holds one
    count: int = 0
    requests: Counter[int] = field(default_factory=Counter)  # of all, by dimension
    columns: dict[int, int] = field(default_factory=dict)  # by number of an option group

    @property
    def keeps_domain(self) -> bool:
        return self.level or self.together


class RankProgram:
    def __init__(self, supply: Supply, kinds: list[PodKind], domains: list[Domain]) -> None:
        self._supply, self._kinds, self._domains = supply, kinds, domains
        self._hosts = sum([kind.count for kind in kinds if kind.alone])
        self._program = Program()
        self._build()
        self._parts = self._keep_together()

    def solve(self) -> dict[Domain, float] | None:
        """The share of the pods that stay together which each domain should get; None: there is no solution."""
        solved = self._program.optimum()
        if solved is None:
            return None
        return {domain: solved.values[column] for domain, column in self._parts.items()}

    def solve_with(self, together: Mapping[Domain, float]) -> list[dict[int, float]] | None:
        """By kind and number of an option group how many pods, given the share that each domain has got."""
        fixed = {column: together.get(domain, 0.0) for domain, column in self._parts.items()}
        solved = self._program.solve(fixed=fixed)
        if solved is None:
            return None
        return [
            {
                number: pods
                for number, column in kind.columns.items()
                if (pods := solved.values[column]) > _LEAST
            }
            for kind in self._kinds
        ]

    def _build(self) -> None:
        supply, program = self._supply, self._program
        opened: dict[int, dict[int, tuple[NodeOption, int]]] = defaultdict(dict)
        for kind in self._kinds:
            for number, option in kind.least.items():
                if id(option) not in opened[number]:
                    opened[number][id(option)] = (option, program.column(option.price))
                kind.columns[number] = program.column(_TIE if option.price > 0 and not kind.alone else 0.0)
            program.row(kind.count, kind.count, dict.fromkeys(kind.columns.values(), 1.0))
        for number, types in opened.items():
            self._fill(number, list(types.values()))
            self._need_openers(supply.option_groups[number], list(types.values()))
        self._limit([pair for types in opened.values() for pair in types.values()])
        level = [kind for kind in self._kinds if kind.level]
        share = sum(kind.count for kind in level) / len(self._domains)
        for domain in self._domains if level else ():
            program.row(share, share, {column: 1.0 for kind in level for column in self._in(kind, domain)})

    def _in(self, kind: PodKind, domain: Domain) -> Iterable[int]:
        """Its columns in a domain."""
        option_groups = self._supply.option_groups
        return (column for number, column in kind.columns.items() if option_groups[number].domain == domain)

    def _keep_together(self) -> dict[Domain, int]:
        """Each domain gets the same share of every such kind: the pods of one rule are of all these kinds."""
        together = [kind for kind in self._kinds if kind.together]
        parts = {domain: self._program.column() for domain in self._domains} if together else {}
        for kind in together:
            for domain, part in parts.items():
                here = dict.fromkeys(self._in(kind, domain), 1.0)
                self._program.row(0.0, 0.0, {**here, part: -float(kind.count)})
        return parts

    def _fill(self, number: int, types: _Opened) -> None:
        """Pods that need at least a certain type use no more than those nodes and larger ones have."""
        here = [kind for kind in self._kinds if number in kind.columns]
        for price in sorted({option.price for option, _ in types}):
            within = [kind for kind in here if kind.least[number].price >= price]
            large = [(option, column) for option, column in types if option.price >= price]
            for dimension, name in enumerate(self._supply.dimensions):
                used = {
                    kind.columns[number]: kind.requests[dimension] / kind.count
                    for kind in within
                    if kind.requests[dimension]
                }
                scale = max(used.values(), default=1.0)  # bytes beside counts would be hard on the arithmetic
                held = {column: -_FULL * option.capacity.get(name, 0) / scale for option, column in large}
                if used:
                    terms = {column: amount / scale for column, amount in used.items()}
                    self._program.row(-INFINITE, 0.0, {**terms, **held})
            alone = {kind.columns[number]: 1.0 for kind in within if kind.alone}
            if alone:
                self._program.row(-INFINITE, 0.0, {**alone, **{column: -1.0 for _, column in large}})

    def _limit(self, opened: _Opened) -> None:
        for stock, left in self._supply.stocks.items():
            sharing = {column: 1.0 for option, column in opened if option.stock == stock}
            self._program.row(-INFINITE, left, sharing)
        for budget, limits in self._supply.budgets.items():
            for name, limit in limits.items():
                scale = max(limit, 1)
                uses = {
                    c: option.consumes.get(name, 0) / scale for option, c in opened if option.budget == budget
                }
                self._program.row(
                    -INFINITE, max(limit, 0) / scale, {c: use for c, use in uses.items() if use}
                )

    # --- who may open a node ---

    def _need_openers(self, where: OptionGroup, types: _Opened) -> None:
        openers = {
            kind.columns[where.number]: 1.0
            for kind in self._kinds
            if where.number in kind.columns and self._may_open(kind, where)
        }
        self._program.row(0.0, INFINITE, {**openers, **{column: -1.0 for _, column in types}})

    def _may_open(self, kind: PodKind, where: OptionGroup) -> bool:
        """Whether no lower rank surely has a node for it, nor a prepaid one that shares the limit."""
        limited = self._is_limited(where, kind.least[where.number])
        for number, option in kind.least.items():
            other = self._supply.option_groups[number]
            if other.rank >= where.rank or (kind.keeps_domain and other.domain != where.domain):
                continue
            if not self._is_limited(other, option):
                return False
            if limited and other.budget == where.budget and option.price <= 0:
                return False
        return True

    def _is_limited(self, option_group: OptionGroup, option: NodeOption) -> bool:
        """Whether not every pod that needs a host could have such a node."""
        return self._supply.available(option_group, option.consumes) < self._hosts
