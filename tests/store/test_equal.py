"""The databases are the ledger in memory, to the letter: a thousand random operations, and records of any content."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import NoneType, UnionType
from typing import get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.decide.builders import launch_intent
from tests.decide.purchases import intent
from tests.engine.ports import Hands
from tests.store.ledgers import Opener
from tidemill.model.capacity import SourceKind
from tidemill.model.errors import Refused
from tidemill.model.purchases import (
    CostLine,
    LaunchIntent,
    LaunchState,
    PurchaseIntent,
    PurchaseState,
    Spending,
    Verdict,
)
from tidemill.ports import Ledger
from tidemill.store.memory import MemoryLedger
from tidemill.store.sql import SqlLedger

OPERATIONS = 1000
REOPEN_EVERY = 100


@dataclass
class Chance:
    """Operations drawn from a seed, few ids and so many meetings. What was read once may be stale when used."""

    dice: random.Random
    clock: Hands

    def __post_init__(self) -> None:
        self._read: list[PurchaseIntent] = []

    def operation(self, model: MemoryLedger) -> Callable[[Ledger], object]:
        self.clock.pass_time(seconds=self.dice.choice((0, 1, 60, 3600, 40_000)))
        return self.dice.choice((self.propose, self.advance, self.advance, self.launch, self.meter))(model)

    def propose(self, model: MemoryLedger) -> Callable[[Ledger], object]:
        one = intent(id=f"tp-{self.dice.randrange(40)}", proposed_at=self.clock.now())
        return lambda ledger: ledger.propose(one)

    def advance(self, model: MemoryLedger) -> Callable[[Ledger], object]:
        known = self._read if self._read and self.dice.random() < 0.3 else list(model.purchases())
        before = self.dice.choice(known) if known else intent(id="tp-never")
        self._read = [*self._read, before][-10:]
        after = replace(
            before,
            state=self.dice.choice(list(PurchaseState)),
            state_at=self.clock.now(),
            fee_usd=self.dice.randrange(100_000),
            verdicts=self._verdicts(before),
            reservation_ids=tuple(f"cr-{place}" for place in range(self.dice.randrange(3))),
        )
        return lambda ledger: ledger.advance(before, after)

    def _verdicts(self, before: PurchaseIntent) -> tuple[Verdict, ...]:
        roll = self.dice.random()
        if roll < 0.1:
            return ()
        if roll < 0.4:
            who = self.dice.choice(("ana", "bo", "cy"))
            return (*before.verdicts, Verdict(who, self.clock.now(), self.dice.random() < 0.8))
        return before.verdicts

    def launch(self, model: MemoryLedger) -> Callable[[Ledger], object]:
        one: LaunchIntent = launch_intent(
            f"ti-{self.dice.randrange(30)}",
            state=self.dice.choice(list(LaunchState)),
            state_at=self.dice.choice((None, self.clock.now())),
            written_at=self.clock.now(),
            count=self.dice.randrange(1, 9),
        )
        return lambda ledger: ledger.write_launch(one)

    def meter(self, model: MemoryLedger) -> Callable[[Ledger], object]:
        since = self.clock.now() - timedelta(hours=self.dice.randrange(1000))
        until = self.dice.choice((None, self.clock.now()))
        pool, kind = self.dice.choice(("g6", "p5")), self.dice.choice(list(SourceKind))
        line = CostLine(f"i-{self.dice.randrange(60)}", pool, kind, self.dice.random() * 60, since, until)
        return lambda ledger: ledger.meter(line)


@pytest.mark.requirement("CB-4")
def test_after_a_thousand_operations_the_database_equals_the_ledger_in_memory(
    url: str, opened: Opener, clock: Hands
):
    chance, model, durable = Chance(random.Random(20261115), clock), MemoryLedger(clock), opened(url)
    refused = 0
    for place in range(OPERATIONS):
        operation = chance.operation(model)
        expected = answer(operation, model)
        assert answer(operation, durable) == expected, place
        refused += bool(expected)
        if place % REOPEN_EVERY == REOPEN_EVERY - 1:
            durable.close()
            durable = opened(url)
            same(model, durable, clock.now())
    assert 50 < refused < OPERATIONS / 2


def answer(operation: Callable[[Ledger], object], ledger: Ledger) -> str:
    try:
        operation(ledger)
    except Refused as error:
        return str(error)
    return ""


def same(model: MemoryLedger, durable: SqlLedger, now: datetime) -> None:
    assert durable.purchases() == model.purchases()
    # One that was settled and written again has another place in memory; order means nothing there.
    assert sorted(durable.launches(), key=lambda one: one.id) == sorted(
        model.launches(), key=lambda one: one.id
    )
    by_id = {one.instance_id: one for one in durable.metered()}
    assert by_id == {one.instance_id: one for one in model.metered()}
    for at in (now, now - timedelta(days=31)):
        assert_same_money(model.spending(at), durable.spending(at))


def assert_same_money(model: Spending, durable: Spending) -> None:
    assert durable.fees_usd == model.fees_usd
    keys = {key for spending in (model, durable) for key, _ in spending.hourly_usd}
    for key in keys:  # sums of the same numbers in another order
        assert durable.hourly(*key) == pytest.approx(model.hourly(*key), abs=1e-6), key


# --- any content ---

# PostgreSQL keeps every character but NUL, which no name of AWS or Kubernetes can have either.
PLAIN: dict[object, st.SearchStrategy] = {
    str: st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    int: st.integers(0, 2**31 - 1),
    float: st.floats(0, 1e6),
    bool: st.booleans(),
    datetime: st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    timedelta: st.timedeltas(timedelta(0), timedelta(days=200)),
}


def anything(hint: object) -> st.SearchStrategy:
    """Any value of a field's type. Follows the annotations, so a field added later is tried as well."""
    if hint in PLAIN:
        return PLAIN[hint]
    if get_origin(hint) is tuple:
        return st.lists(anything(get_args(hint)[0]), max_size=3).map(tuple)
    if isinstance(hint, UnionType):
        return st.one_of(*(st.none() if one is NoneType else anything(one) for one in get_args(hint)))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(hint)
    assert isinstance(hint, type)
    return st.builds(hint, **{name: anything(one) for name, one in get_type_hints(hint).items()})


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bought=anything(PurchaseIntent), launch=anything(LaunchIntent), line=anything(CostLine))
def test_every_record_is_read_as_it_was_written(
    durable: SqlLedger, bought: PurchaseIntent, launch: LaunchIntent, line: CostLine
):
    new = str(len(durable.audit()))  # an id that is not there yet
    bought = replace(bought, id=new)
    launch = replace(launch, id=new, state=LaunchState.LAUNCHED)
    line = replace(line, instance_id=new, until=None)
    durable.propose(bought)
    durable.write_launch(launch)
    durable.meter(line)
    assert (durable.purchases()[-1], durable.launches()[-1], durable.metered()[-1]) == (bought, launch, line)
