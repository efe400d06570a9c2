"""The ground pods can stand on: domains, and in each the kinds of node that could be opened.

A domain is one combination of values of the topology keys that matter in this problem (usually just the
zone). A stratum is what can be opened in a domain from one source at one rank; its flavours differ in size and
price and form a ladder that a node climbs as it fills: its type is chosen last.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from tidemill.decide.packer.bins import NO_END
from tidemill.decide.packer.pod_groups import HOST, Crowd, Crowds
from tidemill.decide.packer.problem import Flavour, Place, Problem
from tidemill.decide.scheduler_rules import admitted, selects, tolerated, wants_host
from tidemill.model.labels import Taint
from tidemill.model.pods import PodShape, Spread

Domain = tuple[str, ...]
Site = tuple[
    tuple[int, ...], Domain
]  # bins of one rank in one domain: what is compared, sorted and filled together


# Values of a topology key that count for a spread, and the places and flavours that do not.
_Counted = tuple[set[str], list[Place], list[Flavour]]


@dataclass(slots=True, eq=False)
class Ladder:
    """Flavours of one stratum that a set of pods may use, cheapest first, those that are never better left out."""

    flavours: list[Flavour]
    capacities: list[list[int]]  # by rung, by dimension
    prices: list[float]
    columns: list[list[int]] | None  # by dimension, if every rung holds at least what the one before holds
    rising: bool  # every rung uses up at least as much of the limits as the one before
    _known: dict[tuple[int, ...], int] = field(default_factory=dict)
    _gains: dict[int, list[int]] = field(default_factory=dict)

    def next_rung(self, used: list[int], after: int) -> int:
        """The next one up that holds so much; -1: none does."""
        for rung in range(after + 1, len(self.capacities)):
            if all(a >= b for a, b in zip(self.capacities[rung], used, strict=True)):
                return rung
        return -1

    def rung_of(self, flavour: Flavour) -> int:
        return next((rung for rung, one in enumerate(self.flavours) if one is flavour), -1)

    def gain(self, rung: int) -> list[int]:
        """What the next rung holds more than this one."""
        known = self._gains.get(rung)
        if known is None:
            pairs = zip(self.capacities[rung + 1], self.capacities[rung], strict=True)
            known = self._gains[rung] = [high - low for high, low in pairs]
        return known

    def rung_above(self, rung: int, free: tuple[int, ...], wants: tuple[tuple[int, int], ...]) -> int:
        """Where one more has a place beside what is there: this rung if it has room, -1 if none has."""
        if self.columns is not None:
            now = self.capacities[rung]
            for place, amount in wants:
                if amount > free[place]:
                    column = self.columns[place]
                    rung = bisect_left(column, now[place] - free[place] + amount, rung)
                    if rung == len(column):
                        return -1
            return rung
        if all(free[place] >= amount for place, amount in wants):
            return rung
        used = [a - b for a, b in zip(self.capacities[rung], free, strict=True)]
        for place, amount in wants:
            used[place] += amount
        return self.rung(used)

    def is_tight(self, rung: int, free: tuple[int, ...]) -> bool:
        """Surely none that is cheaper holds what this one does beside what is free."""
        if rung == 0:
            return True
        if self.columns is None:
            return False
        low, high = self.capacities[rung - 1], self.capacities[rung]
        for below, here, left in zip(low, high, free, strict=True):
            if here - below > left:
                return True
        return False

    def rung(self, used: list[int]) -> int:
        """The cheapest that holds so much; -1: none does."""
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
            known = self._known[key] = next(
                (
                    rung
                    for rung, capacity in enumerate(self.capacities)
                    if all(a >= b for a, b in zip(capacity, used, strict=True))
                ),
                -1,
            )
        return known


@dataclass(slots=True, eq=False)
class Stratum:
    """What one source could give in one domain. Lower ranks are used first, whatever the price."""

    number: int
    rank: tuple[int, ...]
    domain: Domain
    flavours: list[Flavour]
    taints: tuple[Taint, ...]
    stock: str
    budget: str
    group: str
    ladders: dict[frozenset[int], Ladder | None] = field(default_factory=dict)
    built: dict[tuple[int, ...], Ladder | None] = field(default_factory=dict)  # by positions of the flavours
    joined: dict[tuple[frozenset[int], int], tuple[frozenset[int], Ladder | None]] = field(
        default_factory=dict
    )
    allowed: dict[int, list[int]] = field(default_factory=dict)  # eligibility -> flavours by position


class Ground:
    def __init__(self, problem: Problem, found: Crowds) -> None:
        self.problem = problem
        self.keys = found.keys
        self.dimensions = found.dimensions
        self.strata: list[Stratum] = self._stratify(problem.flavours)
        self.stocks = dict(problem.stocks)
        self.budgets = {name: dict(left) for name, left in problem.budgets.items()}
        self.by_domain: dict[Domain, list[Stratum]] = {}
        self.by_site: dict[Site, list[Stratum]] = {}
        for stratum in sorted(self.strata, key=lambda one: (one.rank, one.number)):
            self.by_domain.setdefault(stratum.domain, []).append(stratum)
            self.by_site.setdefault((stratum.rank, stratum.domain), []).append(stratum)
        self.steps, self.bits = found.steps, found.bits
        self._counted: dict[tuple[int, str, bool, bool], _Counted] = {}
        self._counters = found.counters
        self._movers: dict[int, list[Crowd]] = {}  # by counter, one crowd of each eligibility
        for movers in {
            (crowd.eligibility, crowd.moves): crowd for crowd in (*found.crowds, *found.gangs)
        }.values():
            for counter in movers.moves:
                self._movers.setdefault(counter, []).append(movers)
        self._profiles = {crowd.eligibility: crowd for crowd in (*found.crowds, *found.gangs)}

    def domain_of(self, labels: Mapping[str, str]) -> Domain:
        return tuple(labels.get(key, "") for key in self.keys)

    def _stratify(self, flavours: Iterable[Flavour]) -> list[Stratum]:
        groups: dict[tuple[object, ...], Stratum] = {}
        for flavour in flavours:
            domain = self.domain_of(flavour.labels)
            key = (
                flavour.rank, domain, flavour.taints, flavour.stock, flavour.budget, flavour.group,
            )  # fmt: skip
            stratum = groups.get(key)
            if stratum is None:
                stratum = groups[key] = Stratum(
                    len(groups), flavour.rank, domain, [], flavour.taints, flavour.stock, flavour.budget,
                    flavour.group,
                )  # fmt: skip
            stratum.flavours.append(flavour)
        return list(groups.values())

    def counted(self, crowd: Crowd, rule: Spread) -> set[str]:
        """Values of a spread's key that count for a crowd, whether it can go there or not."""
        return self._look_at(crowd, rule)[0]

    def strays(self, crowd: Crowd, rule: Spread, counter: int) -> bool:
        """Do pods of this counter stand, or could they, on nodes that do not count for a crowd's spread?"""
        _, places, flavours = self._look_at(crowd, rule)
        if not places and not flavours:
            return False
        if any(self._meets(counter, place) for place in places):
            return True
        return any(
            self._could_stand(other, places, flavours)
            for other in self._movers.get(counter, ())
            if other.eligibility != crowd.eligibility  # its own stand on what counts
        )

    def _look_at(self, crowd: Crowd, rule: Spread) -> _Counted:
        """The values that count, and the nodes that do not although they have the key."""
        key = (crowd.eligibility, rule.topology_key, rule.honor_affinity, rule.honor_taints)
        known = self._counted.get(key)
        if known is None:
            places = [one for one in self.problem.places if rule.topology_key in one.labels]
            flavours = [one for one in self.problem.flavours if rule.topology_key in one.labels]
            counting = {
                id(one): one.labels[rule.topology_key]
                for nodes in (places, flavours)
                for one in nodes
                if counts_for(crowd.shape, rule, one.labels, one.taints)
            }
            known = self._counted[key] = (
                set(counting.values()),
                [one for one in places if id(one) not in counting],
                [one for one in flavours if id(one) not in counting],
            )
        return known

    def _meets(self, counter: int, place: Place) -> bool:
        return any(self._counters[counter].matches(one.shape, one.namespace) for one in place.residents)

    def _could_stand(self, crowd: Crowd, places: list[Place], flavours: list[Flavour]) -> bool:
        uncounted = {id(flavour) for flavour in flavours}
        for stratum in self.strata if uncounted else ():
            positions = self.allowed(stratum, crowd.eligibility)
            if any(id(stratum.flavours[position]) in uncounted for position in positions):
                return True
        return any(self.may_stand(crowd, place) for place in places)

    # --- who may stand where ---

    def allowed(self, stratum: Stratum, eligibility: int) -> list[int]:
        """Positions of the flavours that crowds with this eligibility may use."""
        known = stratum.allowed.get(eligibility)
        if known is None:
            crowd = self._profiles[eligibility]
            shape = crowd.shape
            suits = (
                stratum.group not in crowd.refuses
                and tolerated(shape, stratum.taints)
                and not wants_host(shape)
            )
            known = (
                [place for place, one in enumerate(stratum.flavours) if admitted(shape, one.labels)]
                if suits
                else []
            )
            stratum.allowed[eligibility] = known
        return known

    def may_stand(self, crowd: Crowd, place: Place) -> bool:
        return (
            place.group not in crowd.refuses
            and tolerated(crowd.shape, place.taints)
            and admitted(
                crowd.shape, {HOST: place.name, **place.labels} if crowd.names_host else place.labels
            )
        )

    def ladder(self, stratum: Stratum, eligibilities: frozenset[int]) -> Ladder | None:
        """For pods of all these eligibilities on one node; None: no flavour suits them all."""
        if eligibilities in stratum.ladders:
            return stratum.ladders[eligibilities]
        lists = [self.allowed(stratum, one) for one in eligibilities]
        positions = (
            tuple(lists[0]) if len(lists) == 1 else tuple(sorted(set(lists[0]).intersection(*lists[1:])))
        )
        if positions not in stratum.built:  # many mixes of pods come down to the same flavours
            stratum.built[positions] = (
                self._build([stratum.flavours[place] for place in positions]) if positions else None
            )
        ladder = stratum.ladders[eligibilities] = stratum.built[positions]
        return ladder

    def joined(
        self, stratum: Stratum, eligibilities: frozenset[int], eligibility: int
    ) -> tuple[frozenset[int], Ladder | None]:
        """The ladder for these and one more."""
        key = (eligibilities, eligibility)
        known = stratum.joined.get(key)
        if known is None:
            together = eligibilities | {eligibility}
            known = stratum.joined[key] = (together, self.ladder(stratum, together))
        return known

    # --- what is left to be had ---

    def allows(
        self, stratum: Stratum, consumes: Mapping[str, int], instead_of: Mapping[str, int] | None = None
    ) -> bool:
        """Do the limits leave room for so much more, given back what it takes the place of?"""
        left = self.budgets.get(stratum.budget)
        if left is None:
            return True
        for name, amount in consumes.items():
            if instead_of is not None:
                amount -= instead_of.get(name, 0)
            if amount > left.get(name, NO_END):
                return False
        return True

    def how_many(self, stratum: Stratum, consumes: Mapping[str, int]) -> int:
        """Nodes that use up so much each, as far as the stock and the limits reach."""
        most = self.stocks.get(stratum.stock, 0) if stratum.stock else NO_END
        left = self.budgets.get(stratum.budget, {})
        return min(
            [most, *[left[name] // amount for name, amount in consumes.items() if amount and name in left]]
        )

    def exchange(self, stratum: Stratum, before: Mapping[str, int], after: Mapping[str, int]) -> None:
        left = self.budgets.get(stratum.budget)
        if left is not None:
            for name in left:
                left[name] += before.get(name, 0) - after.get(name, 0)

    def spend(self, stratum: Stratum, consumes: Mapping[str, int], times: int) -> None:
        left = self.budgets.get(stratum.budget)
        if left is not None:
            for name, amount in consumes.items():
                if name in left:
                    left[name] -= times * amount

    def _build(self, flavours: list[Flavour]) -> Ladder:
        """Cheapest first, at one price the one that wastes least; those that are never better are left out."""
        dimensions = self.dimensions
        rows = sorted(
            ((one.price, [one.capacity.get(name, 0) for name in dimensions], one) for one in flavours),
            key=lambda row: (row[0], row[1], row[2].name),
        )
        kept: list[tuple[float, list[int], Flavour]] = []
        chain = True
        for row in rows:
            if kept and _is_no_better(row, kept[-1]):
                continue
            if not chain and any(_is_no_better(row, other) for other in kept):
                continue
            if kept and not all(a >= b for a, b in zip(row[1], kept[-1][1], strict=True)):
                chain = False
            kept.append(row)
        capacities = [row[1] for row in kept]
        columns = [list(column) for column in zip(*capacities, strict=True)] if chain else None
        flavours = [row[2] for row in kept]
        rising = all(_uses_no_less(one, before) for before, one in pairwise(flavours))
        return Ladder(flavours, capacities, [row[0] for row in kept], columns, rising)


def _is_no_better(row: tuple[float, list[int], Flavour], other: tuple[float, list[int], Flavour]) -> bool:
    """No more room than a cheaper one has, and no less of the pool's limits used up for it."""
    if any(a > b for a, b in zip(row[1], other[1], strict=True)):
        return False
    return _uses_no_less(row[2], other[2])


def _uses_no_less(one: Flavour, other: Flavour) -> bool:
    mine = one.consumes
    return all(mine.get(name, 0) >= amount for name, amount in other.consumes.items())


def counts_for(shape: PodShape, rule: Spread, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> bool:
    """Whether a node counts for a spread rule of a pod of this shape."""
    if rule.honor_taints and not tolerated(shape, taints):
        return False
    if not rule.honor_affinity:
        return True
    if any(labels.get(key) != value for key, value in shape.node_selector if key != HOST):
        return False
    return not shape.node_terms or any(selects(term, labels) for term in shape.node_terms)
