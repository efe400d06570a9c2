"""The least-cost cover as a mixed-integer program: what to take, extend, run on demand, or leave uncovered.

Minimise fees + hours on demand + the penalty of uncovered demand. Knows the rules of the choice, not the offers'
legality (`offer_filter`) nor how the answer is explained (`explanation`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta

from tidemill.decide.purchasing.planner.budget_rows import budget_rows
from tidemill.decide.purchasing.planner.inputs import HOUR, PoolDemand
from tidemill.decide.purchasing.planner.one_zone import InZone, Served, one_zone_search
from tidemill.decide.purchasing.planner.slots import (
    Problem,
    added_serving_span,
    dates,
    independent_problems,
    serving_span,
)
from tidemill.linear_program import INFINITE, Program, Row, Solution, holds
from tidemill.model.capacity import Reservation, SourceKind
from tidemill.model.ec2_facts import MAX_INSTANCES_ON_A_DATE

# Where one zone must be chosen the last half percent takes longer than all the rest; 1 % is promised.
ONE_ZONE_GAP = 0.008
PROMISED_GAP = 0.01
# Hand-overs are shorter (30 to 60 minutes of wind-down and the warm-up), the hours between them longer.
SHORT = timedelta(minutes=90)


@dataclass(slots=True)
class Zone:
    """What can serve a pool in one zone during one slot: held for certain, and columns with their GPUs."""

    fixed: int = 0
    terms: dict[int, float] = field(default_factory=dict)
    most: dict[int, int] = field(
        default_factory=dict
    )  # of columns that may be more than 1: instances of a share


class CoverProgram:
    """`rough`: a relaxation in which several zones may serve a short slot. It never costs more, and is far easier."""

    def __init__(self, problem: Problem, *, rough: bool = False) -> None:
        self.problem = problem
        self.rough = rough
        self.take: dict[tuple[int, int], int] = {}  # offer, pool -> column
        self.extend: list[int] = []
        self.on_demand: dict[tuple[int, str, int], int] = {}  # pool, type, slot -> column
        self.launch: dict[tuple[int, str, int], int] = {}  # ... and how many of them are new in the slot
        self.short: dict[tuple[int, int], int] = {}  # pool, slot -> column
        self.program = Program()
        self._picked: dict[object, dict[str, int]] = {}  # zone -> column
        self.served: list[Served] = []
        self.zones: dict[tuple[int, int], dict[str, Zone]] = defaultdict(lambda: defaultdict(Zone))
        self._whole = [self._needs_whole_instances(number) for number in range(len(problem.demand))]
        self._purchase_columns()
        self._holdings()
        self._on_demand_columns()
        for pool in range(len(problem.demand)):
            for slot, need in enumerate(problem.needs[pool]):
                if need:
                    self._cover_demand(pool, slot, need)
        self._same_capacity()
        self._date_limit()
        self.money = tuple(budget_rows(self))

    @property
    def one_zone(self) -> bool:
        return any(pool.one_zone for pool in self.problem.demand)

    @property
    def gap(self) -> float:
        """The relative gap at which the search stops; where a zone must be chosen, nearly the promised one."""
        gap = self.problem.policy.gap
        return max(gap, ONE_ZONE_GAP) if gap and self.one_zone else gap

    def solve(
        self,
        *,
        free: bool = False,
        unlike: Iterable[frozenset[str]] = (),
    ) -> Solution | None:
        """The best solution. `free`: without budgets; `unlike`: other than these sets of offers."""
        unlike = tuple(unlike)
        start = None
        if self.gap and self.one_zone:
            start = self._from_rough(free, unlike)
            if start is not None and start.objective * (1 - PROMISED_GAP) <= start.bound:
                return start
        more = [*(() if free else self.money), *(self.other_than(ids) for ids in unlike)]
        return self.program.solve(
            more=more,
            whole=self._split_by_money(free),
            gap=self.gap,
            most_nodes=self.problem.policy.most_nodes,
            start=start.values if start is not None else None,
        )

    def _from_rough(self, free: bool, unlike: Sequence[frozenset[str]]) -> Solution | None:
        """Solves the rough problem, independent pools one by one, and prices the result in full. None: that was not
        enough."""
        ids: frozenset[str] = frozenset()
        bound = 0.0
        for problem in independent_problems(self.problem) if free and not unlike else (self.problem,):
            rough = CoverProgram(problem, rough=True)
            found = one_zone_search(rough, () if free else rough.money, unlike)
            if found is None:
                return None
            ids, bound = ids | found.ids, bound + found.bound
        priced = self.price(ids, free=free) if ids not in unlike else None
        return replace(priced, bound=min(bound, priced.objective)) if priced is not None else None

    def _split_by_money(self, free: bool) -> Iterable[int]:
        """A budget could buy half an instance; without budgets, instances come out whole anyway."""
        return () if free else self.on_demand.values()

    def price(self, ids: frozenset[str], *, free: bool = False, blocks_only: bool = False) -> Solution | None:
        """The cost of taking exactly these offers, for the pools they serve best. None: it breaks a rule."""
        found = self._price(ids, blocks_only=blocks_only, money=())
        if free or found is None or all(holds(row, found.values) for row in self.money):
            return found
        return self._price(ids, blocks_only=blocks_only, money=self.money)

    def _price(self, ids: frozenset[str], *, blocks_only: bool, money: Sequence[Row]) -> Solution | None:
        fixed: dict[int, float] = {}
        wanted: list[Row] = []
        for id_, columns in self._by_id().items():
            if id_ in ids:
                wanted.append((1.0, 1.0, dict.fromkeys(columns, 1.0)))
            else:
                fixed |= dict.fromkeys(columns, 0.0)
        if blocks_only:
            fixed |= dict.fromkeys(self.on_demand.values(), 0.0)
        policy = self.problem.policy
        return self.program.solve(
            more=[*wanted, *money],
            fixed=fixed,
            whole=self._split_by_money(not money),
            gap=policy.gap / 10,  # exact to the cent it can take minutes where a budget binds
            most_nodes=policy.most_nodes,
        )

    def chosen(self, solution: Solution) -> frozenset[str]:
        return frozenset(
            id_
            for id_, columns in self._by_id().items()
            if sum(solution.values[column] for column in columns) > 0.5
        )

    def ids_of(self, columns: Collection[int]) -> frozenset[str]:
        return frozenset(id_ for id_, own in self._by_id().items() if any(one in columns for one in own))

    def columns_of(self, solution: Solution) -> frozenset[int]:
        """Of its purchases."""
        purchases = [*self.take.values(), *self.extend]
        return frozenset(column for column in purchases if solution.values[column] > 0.5)

    def choices(self) -> list[int]:
        """The columns of yes-or-no choices: purchases and zones."""
        picks = [column for by_zone in self._picked.values() for column in by_zone.values()]
        return [*self.take.values(), *self.extend, *picks]

    def _by_id(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {offer.id: [] for offer in self.problem.offers}
        for (offer, _), column in self.take.items():
            found[self.problem.offers[offer].id].append(column)
        return found | {
            one.id: [column] for one, column in zip(self.problem.extensions, self.extend, strict=True)
        }

    def other_than(self, ids: frozenset[str]) -> Row:
        terms = {
            column: -1.0 if id_ in ids else 1.0
            for id_, columns in self._by_id().items()
            for column in columns
        }
        return 1.0 - len(ids), INFINITE, terms

    def _needs_whole_instances(self, pool: int) -> bool:
        """Whether on-demand instances need integer columns. With one size that divides every need they come out
        whole, and the program is easier."""
        sizes = {self.problem.prices[name].gpus for name in self.problem.demand[pool].types}
        return len(sizes) > 1 or any(need % max(sizes) for need in self.problem.needs[pool])

    # --- what may serve ---------------------------------------------------------------------------------

    def _purchase_columns(self) -> None:
        problem = self.problem
        for number, offer in enumerate(problem.offers):
            pools = [
                pool for pool in problem.users(offer) if _affordable(problem.demand[pool], offer.fee_usd)
            ]
            for pool in pools:
                column = self.program.column(offer.fee_usd, upper=1, whole=True)
                self.take[number, pool] = column
                for slot in problem.span(serving_span(problem.demand[pool], offer, problem.policy.until)):
                    self.zones[pool, slot][offer.zone].terms[column] = problem.gpus(offer)
            if len(pools) > 1:
                self.program.row(0, 1, {self.take[number, pool]: 1.0 for pool in pools})
        self.extend = [
            self.program.column(extension.fee_usd, upper=1, whole=True) for extension in problem.extensions
        ]
        for block in {extension.block for extension in problem.extensions}:
            self.program.row(0, 1, {column: 1.0 for _, column in self._extensions_of(block)})

    def _extensions_of(self, block: str) -> list[tuple[int, int]]:
        return [
            (number, self.extend[number])
            for number, one in enumerate(self.problem.extensions)
            if one.block == block
        ]

    def _holdings(self) -> None:
        """Blocks of one pool count there; blocks without a pool are shared between the pools, slot by slot."""
        problem = self.problem
        for block in problem.held:
            pools = problem.users(block)
            shared: dict[int, dict[int, int]] = defaultdict(dict)  # slot -> pool -> column
            for pool in pools:
                demand = problem.demand[pool]
                sure = set(problem.span(serving_span(demand, block, problem.policy.until)))
                longer = {
                    column: set(
                        problem.span(added_serving_span(demand, block, problem.extensions[number].end))
                    )
                    for number, column in self._extensions_of(block.id)
                }
                for slot in sorted(sure.union(*longer.values())):
                    zone = self.zones[pool, slot][block.zone]
                    if len(pools) > 1:
                        share = self.program.column(upper=block.count, whole=self._whole[pool])
                        shared[slot][pool] = share
                        zone.terms[share] = problem.prices[block.instance_type].gpus
                        zone.most[share] = block.count
                        self._share_while(block, slot in sure, share, longer, slot)
                    elif slot in sure:
                        zone.fixed += problem.gpus(block)
                    else:
                        zone.terms |= {c: problem.gpus(block) for c, slots in longer.items() if slot in slots}
            for by_pool in shared.values():
                self.program.row(0, block.count, dict.fromkeys(by_pool.values(), 1.0))

    def _share_while(
        self, block: Reservation, sure: bool, share: int, longer: Mapping[int, set[int]], slot: int
    ) -> None:
        """After the paid end of a block there is a share only with an extension that reaches so far."""
        if not sure:
            reaching = {column: -float(block.count) for column, slots in longer.items() if slot in slots}
            self.program.row(-INFINITE, 0, {share: 1.0, **reaching})

    def _on_demand_columns(self) -> None:
        """On demand by the hour. A node that is launched costs its warm-up too, so short bridges are not free."""
        problem = self.problem
        for pool, demand in enumerate(problem.demand):
            for name in demand.types:
                price = problem.prices[name]
                if price.on_demand_usd_h is None:
                    continue
                most = INFINITE if price.on_demand_most is None else price.on_demand_most
                launch_usd = price.on_demand_usd_h * (demand.warm_up / HOUR)
                for slot, when in enumerate(problem.slots):
                    usd = price.on_demand_usd_h * when.hours
                    up = self.program.column(usd, upper=most, whole=self._whole[pool])
                    self.on_demand[pool, name, slot] = up
                    if launch_usd:
                        new = self.launch[pool, name, slot] = self.program.column(launch_usd)
                        before = self.on_demand.get((pool, name, slot - 1))
                        self.program.row(
                            -INFINITE, 0, {up: 1.0, new: -1.0, **({} if before is None else {before: -1.0})}
                        )
        self._on_demand_quota()

    def _on_demand_quota(self) -> None:
        """The quota of a type holds for all pools that use it together."""
        together: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
        for (_, name, slot), column in self.on_demand.items():
            together[name, slot][column] = 1.0
        for (name, _), terms in together.items():
            most = self.problem.prices[name].on_demand_most
            if most is not None and len(terms) > 1:
                self.program.row(0, most, terms)

    # --- what must hold ---------------------------------------------------------------------------------

    def _cover_demand(self, pool: int, slot: int, need: int) -> None:
        """Demand is served by blocks, by on-demand, or is short.

        A block that serves more than is missing counts as what is missing: the same choices stay possible and
        fractions of blocks look worse, which is what makes the search quick.
        """
        problem = self.problem
        zones = {name: zone for name, zone in self.zones[pool, slot].items() if zone.fixed or zone.terms}
        penalty_usd = problem.demand[pool].penalty_usd_gpu_h * problem.slots[slot].hours
        together = problem.demand[pool].one_zone and len(zones) > 1 and not self._is_short(slot)
        fixed = max((z.fixed for z in zones.values()), default=0) if together else sum(
            z.fixed for z in zones.values()
        )  # fmt: skip
        if fixed >= need:
            return
        missing = need if together else need - fixed
        self.short[pool, slot] = self.program.column(penalty_usd, upper=missing)
        amounts = {self.short[pool, slot]: 1.0}
        for name in problem.demand[pool].types:
            if (pool, name, slot) in self.on_demand:
                amounts[self.on_demand[pool, name, slot]] = min(problem.prices[name].gpus, missing)
        in_zones = self._in_one_zone(pool, slot, need, zones) if together else []
        blocks: dict[int, float] = {}
        for zone in () if together else zones.values():
            blocks |= {column: min(gpus, missing) for column, gpus in zone.terms.items()}
        self.program.row(missing, INFINITE, amounts | blocks | {in_zone.amount: 1.0 for in_zone in in_zones})
        self.served.append(Served(missing, amounts, blocks, in_zones))

    def _is_short(self, slot: int) -> bool:
        return self.rough and self.problem.slots[slot].hours < SHORT / HOUR

    def _in_one_zone(self, pool: int, slot: int, need: int, zones: Mapping[str, Zone]) -> list[InZone]:
        """Columns for what each zone serves, of which only one is more than 0."""
        found: list[InZone] = []
        for name, pick in self._picks(pool, slot, zones).items():
            zone, amount = zones[name], self.program.column(upper=need)
            self.program.row(-INFINITE, 0, {amount: 1.0, pick: -float(need)})
            missing = need - zone.fixed
            terms = {column: float(min(gpus, missing)) for column, gpus in zone.terms.items()}
            limits = {column: -gpus for column, gpus in terms.items()}
            self.program.row(-INFINITE, 0, {amount: 1.0, pick: -float(zone.fixed), **limits})
            found.append(InZone(amount, pick, zone.fixed, terms, zone.most))
        return found

    def _picks(self, pool: int, slot: int, zones: Mapping[str, Zone]) -> Mapping[str, int]:
        """Which zone serves. With the same blocks the zone that has most is best whatever the need, so slots that
        differ only in need share their picks: fewer choices, and none lost."""
        key = (pool, tuple((name, zone.fixed, tuple(zone.terms)) for name, zone in sorted(zones.items())))
        if key not in self._picked:
            columns = {name: self.program.column(upper=1, whole=True) for name in sorted(zones)}
            self.program.row(0, 1, dict.fromkeys(columns.values(), 1.0))
            self._picked[key] = columns
        return self._picked[key]

    def _same_capacity(self) -> None:
        """Offers of one type, zone and window are the same capacity: no more than the largest of them is taken."""
        shelves: dict[object, list[int]] = defaultdict(list)
        for number, offer in enumerate(self.problem.offers):
            shelves[offer.instance_type, offer.zone, offer.start, offer.end].append(number)
        for offers in shelves.values():
            if len(offers) > 1:
                count = {number: self.problem.offers[number].count for number in offers}
                terms = {c: float(count[o]) for (o, _), c in self.take.items() if o in count}
                self.program.row(0, max(count.values()), terms)

    def _date_limit(self) -> None:
        held: dict[date, int] = defaultdict(int)
        by_date: dict[date, dict[int, float]] = defaultdict(dict)
        for block in self.problem.held:
            if block.kind is SourceKind.BLOCK and block.end is not None:
                for day in dates(block.start, block.end):
                    held[day] += block.count
        for (number, _), column in self.take.items():
            offer = self.problem.offers[number]
            for day in dates(offer.start, offer.end):
                by_date[day][column] = offer.count
        for one, column in zip(self.problem.extensions, self.extend, strict=True):
            block = self.problem.extended(one)
            assert block.end is not None
            for day in dates(block.end, one.end)[1:]:
                by_date[day][column] = block.count
        rows = {
            (MAX_INSTANCES_ON_A_DATE - self.problem.policy.held_elsewhere - held[day], tuple(terms.items()))
            for day, terms in by_date.items()
        }
        for left, terms in sorted(rows):
            if sum(count for _, count in terms) > left:
                self.program.row(-INFINITE, max(0, left), dict(terms))


def _affordable(pool: PoolDemand, fee_usd: int) -> bool:
    return pool.per_purchase_usd is None or fee_usd <= pool.per_purchase_usd
