"""One run, drawn from its seed: policy and budget, what is needed, what people say when, how bad the weather is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Any, Literal

from tidemill.catalog import Catalog, load
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.platform import Platform
from tidemill.spec.scenario import Market, OwnedReservation

START = datetime(2026, 11, 24, 8, 0, tzinfo=UTC)  # a week before the month ends: budgets are by the month
FAULTS_LAST = (timedelta(days=5), timedelta(days=5), timedelta(days=9))  # the longest: into the next month
CALM_LASTS = timedelta(days=4)  # in which every payment, list and approval has its time
TYPE = "p5.48xlarge"
ULTRASERVER = "p6e-gb200.36xlarge"
POOL, PLAN = "train", "plan"
PEOPLE = ("ana", "bo", "cy")


@dataclass(frozen=True, slots=True)
class Word:
    """Somebody looks at what is proposed and decides; or settles, buys and adopts by hand."""

    at: timedelta
    who: str
    does: Literal["approve", "refuse", "buy-by-hand", "extend-by-hand"]


@dataclass(frozen=True, slots=True)
class Weather:
    """How often each thing goes wrong, per call."""

    crash: float
    no_answer: float  # the call happened, or did not, and nobody can tell
    fails: float
    broken_after: (
        float  # the call happened, and the answer is an error: of the service, or one nobody foresaw
    )
    stale: float  # a read shows what was true a while ago
    doubled: float  # a read shows things twice, or in another order
    second_engine: float  # another engine, which believes that it leads, ticks in between


@dataclass(frozen=True, slots=True)
class Story:
    seed: int
    spec: Spec
    market: Market
    owned: tuple[OwnedReservation, ...]
    words: tuple[Word, ...]
    weather: Weather
    shown_late: timedelta
    payment_failures: tuple[timedelta, ...]
    faults_last: timedelta
    away: tuple[timedelta, timedelta] | None  # no engine runs from then until then
    hasty: bool  # somebody calls every unknown outcome "not bought" at once
    hidden: tuple[tuple[timedelta, timedelta], ...] = ()  # when lists lose what was adopted, and for how long


@cache
def _catalog() -> Catalog:
    return load()


def draw(seed: int) -> Story:
    luck = Random(f"chaos-money/{seed}")
    owned, demand = _needs(luck)
    rough = luck.choice((0.3, 1.0, 1.0, 2.0))
    lasts = luck.choice(FAULTS_LAST)
    return Story(
        seed=seed,
        spec=_spec(luck, demand),
        market=Market(offers=luck.choice(("plenty", "plenty", "plenty", "scarce"))),
        owned=owned,
        words=tuple(sorted(_words(luck, lasts), key=lambda word: word.at)),
        weather=Weather(
            crash=0.03 * rough,
            no_answer=0.10 * rough,
            fails=0.03 * rough,
            broken_after=0.05 * rough,
            stale=0.05 * rough,
            doubled=0.05 * rough,
            second_engine=0.02 * rough,
        ),
        shown_late=timedelta(minutes=luck.choice((2, 5, 20, 45))),
        payment_failures=tuple(_at(luck, lasts) for _ in range(luck.choice((0, 0, 1, 2)))),
        faults_last=lasts,
        away=_away(luck, lasts) if luck.random() < 0.2 else None,
        hasty=luck.random() < 0.15,
        # From the second hour on: nothing can be remembered that was never shown.
        hidden=_hidden(Random(f"chaos-money/{seed}/hidden"), lasts),
    )


def _at(luck: Random, lasts: timedelta) -> timedelta:
    return timedelta(seconds=luck.randint(60, int(lasts.total_seconds())))


def _away(luck: Random, lasts: timedelta) -> tuple[timedelta, timedelta]:
    gone = _at(luck, lasts - timedelta(days=1))
    return gone, gone + timedelta(hours=luck.randint(12, 72))


def _hidden(luck: Random, lasts: timedelta) -> tuple[tuple[timedelta, timedelta], ...]:
    """By a luck of its own, so that the rest of a story stays what its seed always gave."""
    return tuple(
        (timedelta(hours=2) + _at(luck, lasts), timedelta(minutes=luck.choice((10, 60, 300))))
        for _ in range(luck.choice((0, 0, 1, 4)))
    )


def _needs(luck: Random) -> tuple[tuple[OwnedReservation, ...], list[dict[str, Any]]]:
    """One to three windows; some can be covered by more time on a block that is there."""
    demand: list[dict[str, Any]] = []
    owned: list[OwnedReservation] = []
    if luck.random() < 0.6:
        lasts = timedelta(days=luck.randint(2, 6))
        block = {"name": "there", "instanceType": TYPE, "count": 2, "zone": "us-west-2a", "duration": lasts}
        owned.append(OwnedReservation.model_validate({**block, "pool": POOL}))
        until = START + lasts + timedelta(days=luck.randint(1, 6))
        demand.append(_window("longer", START, until, TYPE, 2))
    for name in ("first", "second")[: luck.randint(0 if demand else 1, 2)]:
        type_ = ULTRASERVER if luck.random() < 0.15 else TYPE
        count = 9 * luck.choice((1, 2)) if type_ == ULTRASERVER else luck.choice((1, 4, 8))
        start = START + timedelta(days=luck.randint(0, 12), hours=luck.randint(0, 23))
        demand.append(_window(name, start, start + timedelta(days=luck.randint(1, 9)), type_, count))
    return tuple(owned), demand


def _window(name: str, start: datetime, end: datetime, type_: str, count: int) -> dict[str, Any]:
    return {"name": name, "from": start, "to": end, "instanceType": type_, "instances": count}


def _spec(luck: Random, demand: list[dict[str, Any]]) -> Spec:
    approval = {
        "mode": luck.choice(("one", "one", "two", "auto", "auto", "propose")),
        "autoMaxFeeUsd": luck.choice((10_000, 60_000, 400_000)),
        "autoMonthlyUsd": luck.choice((None, 100_000, 500_000)),
        "twoAboveUsd": luck.choice((None, None, 40_000)),
        "approvers": luck.choice((PEOPLE, PEOPLE[:2])),
        "expiresAfter": luck.choice(("6h", "24h", "3d")),
    }
    budget = {
        "perPurchaseUsd": luck.choice((50_000, 400_000, 2_000_000)),
        "monthlyUsd": luck.choice((60_000, 500_000, 4_000_000)),
    }
    platform = {
        "region": "us-west-2", "deployment": "chaos", "cluster": {"name": "ml"},
        "subnets": {"us-west-2a": ["subnet-a"], "us-west-2b": ["subnet-b"]},
        "approval": approval, "budget": budget,
    }  # fmt: skip
    pool = {
        "nodeClassName": "gpu", "sources": [{"type": "block"}], "limits": {"nodes": 64}, "warm": False,
        "requirements": {"instanceTypes": [TYPE, ULTRASERVER]},
    }  # fmt: skip
    plan = {"pool": POOL, "demand": demand, "extend": {"policy": luck.choice(("prefer", "prefer", "never"))}}
    return Spec(
        platform=Platform.model_validate({"metadata": {"name": "chaos"}, "spec": platform}),
        catalog=_catalog(),
        pools={POOL: ComputePool.model_validate({"metadata": {"name": POOL}, "spec": pool})},
        plans={PLAN: CapacityPlan.model_validate({"metadata": {"name": PLAN}, "spec": plan})},
    )


def _words(luck: Random, lasts: timedelta) -> list[Word]:
    """People are quick or slow, say yes twice, say no, and the engine's own name is tried as an approver's."""
    words = []
    for _ in range(luck.randint(2, 14)):
        who = luck.choice((*PEOPLE, "tidemill-engine"))
        words.append(Word(_at(luck, lasts), who, "refuse" if luck.random() < 0.1 else "approve"))
    for person in PEOPLE if luck.random() < 0.7 else ():  # somebody looks every few hours
        hours = luck.randint(2, 9)
        words += [Word(timedelta(hours=at), person, "approve") for at in range(hours, lasts.days * 24, hours)]
    if luck.random() < 0.2:
        words.append(Word(_at(luck, lasts), luck.choice(PEOPLE), "buy-by-hand"))
    if luck.random() < 0.2:
        words.append(Word(_at(luck, lasts), luck.choice(PEOPLE), "extend-by-hand"))
    return words
