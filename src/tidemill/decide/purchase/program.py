"""The least-cost cover as a mixed-integer program: what to take, extend, run on demand, or leave uncovered.

Minimise fees + hours on demand + the penalty of uncovered demand. Knows the rules of the choice, not the offers'
legality (screened before) nor how the answer is told (read after).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta

from tidemill.decide.purchase.highs import INFINITE, Program, Row, Solution
from tidemill.decide.purchase.money import ceilings
from tidemill.decide.purchase.problem import Problem, dates, serving, serving_longer
from tidemill.decide.purchase.question import HOUR, PoolDemand
from tidemill.spec.durations import MAX_INSTANCES_ON_A_DATE
from tidemill.world import Reservation, SourceKind

# Where one zone must be chosen at every instant the last half percent takes longer than all the rest; 1 % is promised.
ONE_ZONE_GAP = 0.009
ROUGH_GAP = 0.01
STEADY = timedelta(days=7)
FEW = 2  # offers more or less: enough to take one for another


@dataclass(slots=True)
class Zone:
    """What can serve a pool in one zone during one slot: held for certain, and columns with their GPUs."""

    fixed: int = 0
    terms: dict[int, float] = field(default_factory=dict)


class CoverProgram:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.take: dict[tuple[int, int], int] = {}  # offer, pool -> column
        self.extend: list[int] = []
        self.on_demand: dict[tuple[int, str, int], int] = {}  # pool, type, slot -> column
        self.launch: dict[tuple[int, str, int], int] = {}  # ... and how many of them are new in the slot
        self.short: dict[tuple[int, int], int] = {}  # pool, slot -> column
        self._program = Program()
        self._picked: dict[object, dict[str, int]] = {}
        self._zone_choices: list[tuple[int, int, Mapping[str, int]]] = []  # pool, first slot, zone -> column
        self._zones: dict[tuple[int, int], dict[str, Zone]] = defaultdict(lambda: defaultdict(Zone))
        self._whole = [self._needs_whole_instances(number) for number in range(len(problem.demand))]
        self._choices()
        self._holdings()
        self._hours()
        for pool in range(len(problem.demand)):
            for slot, need in enumerate(problem.needs[pool]):
                if need:
                    self._meet(pool, slot, need)
        self._shelves()
        self._daily_cap()
        self._money = tuple(ceilings(self))

    @property
    def gap(self) -> float:
        """What share of the cost may be left on the table; where a zone must be chosen, nearly all that is promised."""
        gap = self.problem.policy.gap
        return max(gap, ONE_ZONE_GAP) if gap and self._zone_choices else gap

    def solve(
        self,
        *,
        free: bool = False,
        unlike: Iterable[frozenset[str]] = (),
        near: frozenset[str] | None = None,
    ) -> Solution | None:
        """The best; `free`: as if there were no ceilings; `unlike`: other than these sets of offers; `near`: with few
        offers more, less or other than these."""
        more = [*(() if free else self._money), *(self._other_than(ids) for ids in unlike)]
        if near is not None:
            more.append(self._few_changes(near))
        whole, nodes = tuple(self._split_by_money(free)), self.problem.policy.most_nodes
        start = None
        if near is None and self.gap and self._zone_choices:
            steady = [*more, *self._steady_zones()]
            rough = self._program.solve(more=steady, whole=whole, gap=ROUGH_GAP, most_nodes=nodes)
            start = rough.values if rough is not None else None
        gap = self.gap if near is None else self.problem.policy.gap
        return self._program.solve(more=more, whole=whole, gap=gap, most_nodes=nodes, start=start)

    def _split_by_money(self, free: bool) -> Iterable[int]:
        """A ceiling could buy half an instance; without one, instances come out whole by themselves."""
        return () if free else self.on_demand.values()

    def price(self, ids: frozenset[str], *, free: bool = False, blocks_only: bool = False) -> Solution | None:
        """What it costs to take exactly these offers, for the pools they serve best. None: against a rule."""
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
        return self._program.solve(
            more=[*wanted, *(() if free else self._money)],
            fixed=fixed,
            whole=self._split_by_money(free),
            gap=policy.gap / 10,  # to the last cent it can take minutes where a ceiling binds
            most_nodes=policy.most_nodes,
        )

    def chosen(self, solution: Solution) -> frozenset[str]:
        return frozenset(
            id_
            for id_, columns in self._by_id().items()
            if sum(solution.values[column] for column in columns) > 0.5
        )

    def _by_id(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {one.id: [] for one in self.problem.offers}
        for (offer, _), column in self.take.items():
            found[self.problem.offers[offer].id].append(column)
        return found | {
            one.id: [column] for one, column in zip(self.problem.extensions, self.extend, strict=True)
        }

    def _other_than(self, ids: frozenset[str]) -> Row:
        terms = {
            column: -1.0 if id_ in ids else 1.0
            for id_, columns in self._by_id().items()
            for column in columns
        }
        return 1.0 - len(ids), INFINITE, terms

    def _few_changes(self, ids: frozenset[str]) -> Row:
        _, _, terms = self._other_than(ids)
        return -INFINITE, FEW - len(ids), terms

    def _steady_zones(self) -> Iterable[Row]:
        """As if work changed its zone only once a week: a much easier question, whose answer is a good start."""
        first: dict[tuple[int, int, str], int] = {}
        begin = self.problem.policy.now
        for pool, slot, picks in self._zone_choices:
            spell = (self.problem.slots[slot].start - begin) // STEADY
            for zone, column in picks.items():
                lead = first.setdefault((pool, spell, zone), column)
                if lead != column:
                    yield 0.0, 0.0, {column: 1.0, lead: -1.0}

    def _needs_whole_instances(self, pool: int) -> bool:
        """Whether on-demand instances could come out in fractions unless told otherwise. With one size that
        divides every need they cannot, and the program is easier."""
        sizes = {self.problem.prices[name].gpus for name in self.problem.demand[pool].types}
        return len(sizes) > 1 or any(need % max(sizes) for need in self.problem.needs[pool])

    # --- what may serve ---------------------------------------------------------------------------------

    def _choices(self) -> None:
        problem = self.problem
        for number, offer in enumerate(problem.offers):
            pools = [
                pool for pool in problem.users(offer) if _affordable(problem.demand[pool], offer.fee_usd)
            ]
            for pool in pools:
                column = self._program.column(offer.fee_usd, upper=1, whole=True)
                self.take[number, pool] = column
                for slot in problem.span(serving(problem.demand[pool], offer, problem.policy.until)):
                    self._zones[pool, slot][offer.zone].terms[column] = problem.gpus(offer)
            if len(pools) > 1:
                self._program.row(0, 1, {self.take[number, pool]: 1.0 for pool in pools})
        self.extend = [self._program.column(one.fee_usd, upper=1, whole=True) for one in problem.extensions]
        for block in {one.block for one in problem.extensions}:
            self._program.row(0, 1, {column: 1.0 for _, column in self._extensions_of(block)})

    def _extensions_of(self, block: str) -> list[tuple[int, int]]:
        return [
            (number, self.extend[number])
            for number, one in enumerate(self.problem.extensions)
            if one.block == block
        ]

    def _holdings(self) -> None:
        """Blocks of one pool count there; those of nobody in particular are shared out, slot by slot."""
        problem = self.problem
        for block in problem.held:
            pools = problem.users(block)
            shared: dict[int, dict[int, int]] = defaultdict(dict)  # slot -> pool -> column
            for pool in pools:
                demand = problem.demand[pool]
                sure = set(problem.span(serving(demand, block, problem.policy.until)))
                longer = {
                    column: set(problem.span(serving_longer(demand, block, problem.extensions[number].end)))
                    for number, column in self._extensions_of(block.id)
                }
                for slot in sorted(sure.union(*longer.values())):
                    zone = self._zones[pool, slot][block.zone]
                    if len(pools) > 1:
                        share = self._program.column(upper=block.count, whole=self._whole[pool])
                        shared[slot][pool] = share
                        zone.terms[share] = problem.prices[block.instance_type].gpus
                        self._share_while(block, slot in sure, share, longer, slot)
                    elif slot in sure:
                        zone.fixed += problem.gpus(block)
                    else:
                        zone.terms |= {c: problem.gpus(block) for c, slots in longer.items() if slot in slots}
            for by_pool in shared.values():
                self._program.row(0, block.count, dict.fromkeys(by_pool.values(), 1.0))

    def _share_while(
        self, block: Reservation, sure: bool, share: int, longer: Mapping[int, set[int]], slot: int
    ) -> None:
        """A share after the paid end exists only with an extension that reaches so far."""
        if not sure:
            reaching = {column: -float(block.count) for column, slots in longer.items() if slot in slots}
            self._program.row(-INFINITE, 0, {share: 1.0, **reaching})

    def _hours(self) -> None:
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
                    up = self._program.column(usd, upper=most, whole=self._whole[pool])
                    self.on_demand[pool, name, slot] = up
                    if launch_usd:
                        new = self.launch[pool, name, slot] = self._program.column(launch_usd)
                        before = self.on_demand.get((pool, name, slot - 1))
                        self._program.row(
                            -INFINITE, 0, {up: 1.0, new: -1.0, **({} if before is None else {before: -1.0})}
                        )
        self._quota()

    def _quota(self) -> None:
        """Of a type that several pools use, all of them together."""
        together: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
        for (_, name, slot), column in self.on_demand.items():
            together[name, slot][column] = 1.0
        for (name, _), terms in together.items():
            most = self.problem.prices[name].on_demand_most
            if most is not None and len(terms) > 1:
                self._program.row(0, most, terms)

    # --- what must hold ---------------------------------------------------------------------------------

    def _meet(self, pool: int, slot: int, need: int) -> None:
        """Demand is served by blocks, by on-demand, or is short.

        A block that serves more than is missing counts as what is missing: the same choices stay possible and
        fractions of blocks look worse, which is what makes the search quick.
        """
        problem = self.problem
        zones = {name: zone for name, zone in self._zones[pool, slot].items() if zone.fixed or zone.terms}
        penalty_usd = problem.demand[pool].penalty_usd_gpu_h * problem.slots[slot].hours
        together = problem.demand[pool].one_zone and len(zones) > 1
        fixed = max((z.fixed for z in zones.values()), default=0) if together else sum(
            z.fixed for z in zones.values()
        )  # fmt: skip
        if fixed >= need:
            return
        missing = need if together else need - fixed
        self.short[pool, slot] = self._program.column(penalty_usd, upper=missing)
        terms = {self.short[pool, slot]: 1.0}
        for name in problem.demand[pool].types:
            if (pool, name, slot) in self.on_demand:
                terms[self.on_demand[pool, name, slot]] = min(problem.prices[name].gpus, missing)
        if together:
            terms |= self._in_one_zone(pool, slot, need, zones)
        else:
            for zone in zones.values():
                terms |= {column: min(gpus, missing) for column, gpus in zone.terms.items()}
        self._program.row(missing, INFINITE, terms)

    def _in_one_zone(self, pool: int, slot: int, need: int, zones: Mapping[str, Zone]) -> dict[int, float]:
        """Columns for what each zone serves, of which only one is more than 0."""
        serves: dict[int, float] = {}
        for name, pick in self._picks(pool, slot, zones).items():
            zone, amount = zones[name], self._program.column(upper=need)
            self._program.row(-INFINITE, 0, {amount: 1.0, pick: -float(need)})
            missing = need - zone.fixed
            limits = {column: -float(min(gpus, missing)) for column, gpus in zone.terms.items()}
            self._program.row(-INFINITE, 0, {amount: 1.0, pick: -float(zone.fixed), **limits})
            serves[amount] = 1.0
        return serves

    def _picks(self, pool: int, slot: int, zones: Mapping[str, Zone]) -> Mapping[str, int]:
        """Which zone serves. Where the same blocks could serve the zone that has most is best whatever the need, so
        slots that differ only in need share their picks: fewer choices, and none lost."""
        key = (pool, tuple((name, zone.fixed, tuple(zone.terms)) for name, zone in sorted(zones.items())))
        if key not in self._picked:
            columns = {name: self._program.column(upper=1, whole=True) for name in sorted(zones)}
            self._program.row(0, 1, dict.fromkeys(columns.values(), 1.0))
            self._picked[key] = columns
            self._zone_choices.append((pool, slot, columns))
        return self._picked[key]

    def _shelves(self) -> None:
        """Offers of one type, zone and window are views of one stock: no more than the largest of them showed."""
        shelves: dict[object, list[int]] = defaultdict(list)
        for number, offer in enumerate(self.problem.offers):
            shelves[offer.instance_type, offer.zone, offer.start, offer.end].append(number)
        for offers in shelves.values():
            if len(offers) > 1:
                count = {number: self.problem.offers[number].count for number in offers}
                terms = {c: float(count[o]) for (o, _), c in self.take.items() if o in count}
                self._program.row(0, max(count.values()), terms)

    def _daily_cap(self) -> None:
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
                self._program.row(-INFINITE, max(0, left), dict(terms))


def _affordable(pool: PoolDemand, fee_usd: int) -> bool:
    return pool.per_purchase_usd is None or fee_usd <= pool.per_purchase_usd
