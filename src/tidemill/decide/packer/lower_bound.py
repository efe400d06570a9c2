"""A price below which no answer can be: what asks need beyond what is there and prepaid, at the best rate on offer.

Cheap, and often reached on small problems: then nobody need look further. It leaves out every rule but amounts, and
(looking closer) who may use which node.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from tidemill.decide.packer.decompose import parts
from tidemill.decide.packer.problem import Problem
from tidemill.spec.names import ACCELERATORS

# Accelerators come in whole numbers: up to so many, the cheapest set of nodes that has them is found exactly.
_MOST_COUNTED = 256


class Floor:
    """`least(needs)` for what is needed beyond everything there is and everything that is free of charge."""

    def __init__(self, problem: Problem, unplaced: Container[int] = ()) -> None:
        self._rates: dict[str, float] = {}
        self._tables: dict[str, list[float]] = {}
        self._kinds = [(flavour.price, flavour.capacity) for flavour in problem.flavours if flavour.price > 0]
        asks = (ask for number, ask in enumerate(problem.asks) if number not in unplaced)
        self._problem = replace(problem, asks=tuple(asks))
        needs: dict[str, int] = {}
        for ask in self._problem.asks:
            for name, wanted in ask.shape.requests:
                needs[name] = needs.get(name, 0) + wanted
        for name in needs:
            needs[name] -= free_of_charge(problem, name)
        self.price = self.least(needs)

    def look_closer(self) -> None:
        """What pods need that can never share a node adds up. Dearer to find out, and mostly the truth."""
        self.price = max(self.price, sum(Floor(part).price for part in parts(self._problem)))

    def least(self, needs: dict[str, int]) -> float:
        return max((self._least(name, short) for name, short in needs.items() if short > 0), default=0.0)

    def _least(self, name: str, short: int) -> float:
        if name in ACCELERATORS and short <= _MOST_COUNTED:
            return self._cheapest_set(name, short)
        rate = self._rates.get(name)
        if rate is None:
            rates = (price / held[name] for price, held in self._kinds if held.get(name, 0) > 0)
            rate = self._rates[name] = min(rates, default=0.0)
        return short * rate

    def _cheapest_set(self, name: str, short: int) -> float:
        """The price of the cheapest nodes that have so many accelerators between them."""
        table = self._tables.setdefault(name, [0.0])
        if len(table) <= short:
            kinds = {(held[name], price) for price, held in self._kinds if held.get(name, 0) > 0}
            for more in range(len(table), short + 1):
                table.append(min((price + table[max(0, more - held)] for held, price in kinds), default=0.0))
        return table[short]


def free_of_charge(problem: Problem, name: str) -> int:
    """What there is of a resource, and could be had at no price. More than can be: stocks may be shared."""
    there = sum(max(0, place.free.get(name, 0)) for place in problem.places)
    for flavour in problem.flavours:
        if flavour.price <= 0:
            count = problem.stocks.get(flavour.stock, 0) if flavour.stock else len(problem.asks)
            there += count * flavour.capacity.get(name, 0)
    return there
