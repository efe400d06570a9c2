"""How long does a purchase plan take, how near the optimum is it, and what does it save over a plain rule?

    python -m benchmarks.purchase [--seeds 5] [--offers 200] [--weeks 8] [--markdown]

First, plans of 8 weeks and 200 offers: seconds of processor time for the whole answer (the plan, its runner-up and what
would change it), and the gap to the proved bound. Then the ten recorded calendars beside the rule "the first offer, the
same length each time", which gets the better of its two lengths, and its gaps filled as well as the planner would.
`--record` draws the ten calendars anew. Exits 1 if a gap is over 1 % or the rule is cheaper anywhere.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from tidemill.decide.purchasing.planner import inputs, plan, price_cover
from tidemill.decide.purchasing.planner.result import Cover, PurchasePlan
from tidemill.model.capacity import Reservation, ReservationState, SourceKind
from tidemill.model.offers import Offer

RECORDED = Path(__file__).parents[1] / "tests" / "planner" / "calendars" / "ten.json"
NOW = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
GRID = datetime(2026, 11, 16, 11, 30, tzinfo=UTC)
DAY = timedelta(days=1)
# USD an instance-hour: block 2026-07, on-demand 2026-08.
RATES = {"p5.48xlarge": (37.76, 55.04), "p5en.48xlarge": (49.928, 63.296), "p4d.24xlarge": (11.80, 21.957642)}
LENGTHS = (1, 2, 3, 5, 7, 10, 14, 21, 28)
RULE_LENGTHS = (7, 14)


@dataclass(frozen=True, slots=True)
class Question(inputs.PlannerInputs):
    name: str

    def plan(self) -> PurchasePlan:
        return plan(self)

    def price_cover(self, ids: Iterable[str]) -> Cover | None:
        return price_cover(self, frozenset(ids))


# --- questions drawn by chance, and their written form ------------------------------------------------


def draw(seed: int, *, offers: int, weeks: int, pools: int = 1, one_zone: bool = False) -> dict[str, Any]:
    """A question as plain JSON: days are counted from 2026-11-16 11:30 UTC."""
    chance = random.Random(seed)
    kinds = chance.sample(sorted(RATES), pools)
    days = 7 * weeks
    # Whatever else is on sale, the rule finds both of its lengths every week.
    rows = [
        _offer(chance, [kind], days, start=start, length=length)
        for kind in kinds
        for start in range(0, days, 7)
        for length in RULE_LENGTHS
    ]
    rows += [_offer(chance, kinds, days) for _ in range(offers - len(rows))]
    ends = chance.randrange(1, 6)
    held = [[kinds[0], "us-east-1a", 4, -7, ends]] if chance.random() < 0.7 else []
    extensions = [[0, ends + by, _fee(chance, kinds[0], 4, by)] for by in (1, 2, 7, 14) if held]
    return {
        "name": f"{'+'.join(kind.split('.')[0] for kind in kinds)} {weeks}w #{seed}",
        "seed": seed, "weeks": weeks, "budget_usd": chance.choice([300_000, 600_000, 2_000_000]),
        "pools": [_pool(chance, kind, days, one_zone) for kind in kinds],
        "held": held, "extensions": extensions, "offers": rows,
    }  # fmt: skip


def _fee(chance: random.Random, kind: str, count: int, days: int) -> int:
    return round(RATES[kind][0] * chance.uniform(0.85, 1.2) * count * 24 * days)


def _offer(
    chance: random.Random, kinds: list[str], days: int, start: int | None = None, length: int | None = None
) -> list[Any]:
    kind, count = chance.choice(kinds), chance.choice([1, 2, 4, 4, 8, 8])
    first = chance.randrange(days) if start is None else start
    lasts = chance.choice(LENGTHS) if length is None else length
    zone = chance.choice(["us-east-1a", "us-east-1b", "us-east-1c"])
    return [kind, zone, count, first, lasts, _fee(chance, kind, count, lasts)]


def _pool(chance: random.Random, kind: str, days: int, one_zone: bool) -> dict[str, Any]:
    week = [chance.choice([0, 1, 2]), chance.choice([2, 4, 6])]  # instances at night, more by day
    windows = [
        [first, first + chance.randrange(2, 15), chance.choice([2, 4, 8])]
        for first in sorted(chance.randrange(days - 2) for _ in range(chance.randrange(1, 5)))
    ]
    return {
        "type": kind, "constant": chance.choice([0, 2, 4]), "working_days": week, "windows": windows,
        "penalty_usd_gpu_h": chance.choice([4, 8, 20, 40]), "one_zone": one_zone,
        "warm_up_min": chance.choice([10, 20, 45]), "on_demand": chance.random() < 0.6,
    }  # fmt: skip


def question(drawn: dict[str, Any]) -> Question:
    until = GRID + timedelta(weeks=drawn["weeks"])
    ceilings = inputs.Ceilings(drawn["budget_usd"], drawn["budget_usd"])
    held = tuple(
        Reservation(
            f"cr-{n}", SourceKind.BLOCK, kind, zone, count, count, ReservationState.ACTIVE,
            GRID + first * DAY, GRID + last * DAY, pool=kind,
        )
        for n, (kind, zone, count, first, last) in enumerate(drawn["held"])
    )  # fmt: skip
    offers = tuple(
        inputs.DatedOffer(
            Offer(f"cb-{n}", kind, zone, count, GRID + first * DAY, GRID + (first + days) * DAY, fee), NOW
        )
        for n, (kind, zone, count, first, days, fee) in enumerate(drawn["offers"])
    )
    extensions = tuple(
        inputs.DatedExtensionOffer(f"cbe-{n}", f"cr-{block}", GRID + last * DAY, fee, NOW)
        for n, (block, last, fee) in enumerate(drawn["extensions"])
    )
    prices = {
        one["type"]: inputs.TypePrice(8, RATES[one["type"]][1] if one["on_demand"] else None, 8)
        for one in drawn["pools"]
    }
    demand = tuple(_demand(one, until) for one in drawn["pools"])
    return Question(
        demand, held, offers, extensions, prices, inputs.Policy(NOW, until, ceilings), drawn["name"]
    )


def _demand(one: dict[str, Any], until: datetime) -> inputs.PoolDemand:
    night, day = one["working_days"]
    spans = tuple(
        inputs.WeekSpan(number * DAY + timedelta(hours=8), number * DAY + timedelta(hours=20), day - night)
        for number in range(5)
        if day > night
    )
    windows = tuple(
        inputs.Step(GRID + first * DAY, GRID + last * DAY, count) for first, last, count in one["windows"]
    )
    parts: tuple[inputs.Calendar, ...] = (
        inputs.Constant(one["constant"] + night),
        inputs.Weekly(spans),
        inputs.Windows(windows),
    )
    return inputs.PoolDemand(
        one["type"], inputs.CombinedCalendar(parts), (one["type"],), one["penalty_usd_gpu_h"], "instances",
        one_zone=one["one_zone"], warm_up=timedelta(minutes=one["warm_up_min"]),
    )  # fmt: skip


def recorded() -> list[Question]:
    return [question(drawn) for drawn in json.loads(RECORDED.read_text())]


def record() -> None:
    drawn = [draw(seed, offers=60, weeks=4 + seed % 3 * 2, pools=1 + seed % 2) for seed in range(1, 11)]
    lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in drawn)
    RECORDED.write_text(f"[\n{lines}\n]\n")


# --- the rule -----------------------------------------------------------------------------------------


def first_offer(asked: Question, days: int) -> frozenset[str]:
    """ "The first offer, the same length each time": whenever a pool lacks capacity, the cheapest offer of that length
    that starts next. What the ceilings do not allow is not bought."""
    taken: dict[str, Offer] = {}
    spent = 0
    for pool in asked.demand:
        shown = sorted(
            (offer.offer for offer in asked.offers if offer.offer.instance_type in pool.types),
            key=lambda offer: (offer.start, offer.fee_usd, offer.id),
        )
        steps = inputs.levels(pool.calendar, asked.policy.now, asked.policy.until)
        for offer in (one for one in shown if one.end - one.start == days * DAY):
            need = max((s.amount for s in steps if s.start <= offer.start < s.end), default=0)
            mine = [one for one in taken.values() if one.instance_type in pool.types]
            have = sum(one.count for one in mine if one.start <= offer.start < one.end)
            have += sum(
                one.count
                for one in asked.owned
                if one.pool == pool.pool and one.start <= offer.start < (one.end or asked.policy.until)
            )
            if have < need and spent + offer.fee_usd <= asked.policy.ceilings.monthly_usd:
                taken[offer.id] = offer
                spent += offer.fee_usd
    return frozenset(taken)


@dataclass(frozen=True, slots=True)
class Compared:
    name: str
    rule: Cover
    rule_days: int
    ours: PurchasePlan

    @property
    def saved(self) -> float:
        return 1 - self.ours.cover.cost.total_usd / self.rule.cost.total_usd


def compare(asked: Question) -> Compared:
    covers: list[tuple[float, int, Cover]] = []
    for days in RULE_LENGTHS:
        cover = asked.price_cover(first_offer(asked, days))
        if cover is not None:
            covers.append((cover.cost.total_usd, days, cover))
    _, days, cover = min(covers, key=lambda one: one[:2])
    return Compared(asked.name, cover, days, asked.plan())


# --- what is printed ----------------------------------------------------------------------------------


def speed(seeds: int, offers: int, weeks: int) -> bool:
    print(f"{weeks} weeks x {offers} offers            total $   gap %   cpu s")
    took_s: dict[str, list[float]] = {}
    gaps: list[float] = []
    for seed in range(seeds):
        for pools, one_zone in ((1, False), (2, False), (1, True), (2, True)):
            kind = f"{pools} pool(s){', one zone' if one_zone else ''}"
            asked = question(draw(100 + seed, offers=offers, weeks=weeks, pools=pools, one_zone=one_zone))
            began = time.process_time()
            found = asked.plan()
            took_s.setdefault(kind, []).append(time.process_time() - began)
            gaps.append(found.gap)
            print(
                f"{f'seed {seed}, {kind}':<28} {found.cover.cost.total_usd:>12,.0f}"
                f" {100 * found.gap:>7.3f} {took_s[kind][-1]:>7.2f}",
                flush=True,
            )
    for kind, each_s in took_s.items():
        print(
            f"{kind:<20} cpu s: least {min(each_s):.1f}, median {median(each_s):.1f}, most {max(each_s):.1f}"
        )
    return max(gaps, default=0.0) <= 0.01


def table(*, markdown: bool) -> bool:
    rows = [compare(asked) for asked in recorded()]
    if markdown:
        print("| calendar | rule | rule, total | plan, total | of it uncovered | saved |")
        print("|---|---|---|---|---|---|")
    else:
        print("calendar               rule      rule $      plan $  uncovered $  saved")
    for row in rows:
        cost = row.ours.cover.cost
        cells = (
            f"{row.name:<20}", f"{row.rule_days:>4} d", f"{row.rule.cost.total_usd:>11,.0f}",
            f"{cost.total_usd:>11,.0f}", f"{cost.penalty_usd:>11,.0f}", f"{100 * row.saved:>5.1f} %",
        )  # fmt: skip
        print(f"| {' | '.join(cell.strip() for cell in cells)} |" if markdown else " ".join(cells))
    return all(row.saved >= 0 for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--offers", type=int, default=200)
    parser.add_argument("--weeks", type=int, default=8)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    if asked.record:
        record()
    good = speed(asked.seeds, asked.offers, asked.weeks) if asked.seeds else True
    return 0 if table(markdown=asked.markdown) and good else 1


if __name__ == "__main__":
    sys.exit(main())
