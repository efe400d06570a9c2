"""A lower bound on the price: what the pods request beyond what exists and is prepaid, at the best rate on offer.

Cheap, and often reached on small problems: then the search stops. It ignores every rule except amounts and (after
`tighten`) which pod may use which node.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from tidemill.decide.packer.decompose import decompose
from tidemill.decide.packer.problem import Problem
from tidemill.spec.names import ACCELERATORS

# Accelerators come in whole numbers: up to this many, the cheapest set of nodes that has them is found exactly.
_MOST_COUNTED = 256


class LowerBound:
    """`price` of the whole problem, and `price_of(needs)` for amounts beyond what is there and prepaid."""

    def __init__(self, problem: Problem, unplaced: Container[int] = ()) -> None:
        self._rates: dict[str, float] = {}
        self._tables: dict[str, list[float]] = {}
        self._priced = [(option.price, option.capacity) for option in problem.options if option.price > 0]
        pods = (pod for number, pod in enumerate(problem.pods) if number not in unplaced)
        self._problem = replace(problem, pods=tuple(pods))
        needs: dict[str, int] = {}
        for pod in self._problem.pods:
            for name, amount in pod.shape.requests:
                needs[name] = needs.get(name, 0) + amount
        for name in needs:
            needs[name] -= available_for_free(problem, name)
        self.price = self.price_of(needs)

    def tighten(self) -> None:
        """The bounds of pods that can never share a node add up. Takes longer, and is mostly exact."""
        self.price = max(self.price, sum(LowerBound(part).price for part in decompose(self._problem)))

    def price_of(self, needs: dict[str, int]) -> float:
        return max(
            (self._price_of(name, amount) for name, amount in needs.items() if amount > 0), default=0.0
        )

    def _price_of(self, name: str, amount: int) -> float:
        if name in ACCELERATORS and amount <= _MOST_COUNTED:
            return self._cheapest_set(name, amount)
        rate = self._rates.get(name)
        if rate is None:
            rates = (price / capacity[name] for price, capacity in self._priced if capacity.get(name, 0) > 0)
            rate = self._rates[name] = min(rates, default=0.0)
        return amount * rate

    def _cheapest_set(self, name: str, count: int) -> float:
        """The price of the cheapest nodes that have this many accelerators in all, by dynamic programming."""
        table = self._tables.setdefault(name, [0.0])
        if len(table) <= count:
            kinds = {(capacity[name], price) for price, capacity in self._priced if capacity.get(name, 0) > 0}
            for more in range(len(table), count + 1):
                table.append(min((price + table[max(0, more - held)] for held, price in kinds), default=0.0))
        return table[count]


def available_for_free(problem: Problem, name: str) -> int:
    """The amount of a resource on existing and prepaid nodes. At most this: stocks may be shared."""
    amount = sum(max(0, node.free.get(name, 0)) for node in problem.nodes)
    for option in problem.options:
        if option.price <= 0:
            count = problem.stocks.get(option.stock, 0) if option.stock else len(problem.pods)
            amount += count * option.capacity.get(name, 0)
    return amount
