"""A simulated account in a file: each process that opens it finds what the others did, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.sim.account import P5, START, ZONES, tags
from tidemill import catalog
from tidemill.model.capacity import ReservationState
from tidemill.model.errors import NoCapacity, OutcomeUnknown, Refused, SpecError
from tidemill.model.offers import ExtensionQuery, ExtensionState, OfferQuery
from tidemill.sim.cloud.account import SimAccount
from tidemill.sim.cloud.account_file import AccountFile, AccountHistory
from tidemill.spec.faults import FaultKind
from tidemill.spec.scenario import Market, OwnedReservation

DAY = timedelta(days=1)
Open = Callable[[], SimAccount]


class Wall:
    """A clock that a test may also set back."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.at


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "account.json"


@pytest.fixture
def process(path: Path, wall: Wall) -> Open:
    """Each call is another process that opens the same file. Time stands still unless it is moved."""
    AccountFile(path).make(AccountHistory(START, "us-east-1", ZONES, seed=7, stands_at=START))
    return lambda: SimAccount(path, catalog.load(), wall)


def query(account: SimAccount, **given: Any) -> OfferQuery:
    asked = OfferQuery(P5, 2, 2 * DAY, account.now() + DAY, account.now() + 9 * DAY)
    return replace(asked, **given)


def buy(account: SimAccount, intent: str = "tp-1") -> str:
    (block,) = account.purchase(account.search_offers(query(account))[0].id, tags(intent=intent))
    return block.id


def test_a_block_bought_by_one_process_is_seen_by_the_next(process: Open):
    id_ = buy(process())
    process().advance(timedelta(minutes=10))
    (block,) = process().reservations()
    assert (block.id, block.state, block.intent_id) == (id_, ReservationState.SCHEDULED, "tp-1")
    process().advance(2 * DAY)
    assert process().reservations()[0].state is ReservationState.ACTIVE


def test_extensions_and_tags_are_found_again(process: Open):
    account = process()
    id_ = buy(account)
    account.advance(2 * DAY)
    (offer,) = account.search_extensions(ExtensionQuery(id_, DAY))
    account.purchase_extension(offer.id, id_)
    account.tag_reservation(id_, (("team", "ml"),))
    account.advance(timedelta(hours=1))
    (found,) = process().reservations()
    assert (found.end, dict(found.tags)["team"]) == (offer.end, "ml")
    assert [extension.state for extension in process().extensions()] == [ExtensionState.PAYMENT_SUCCEEDED]


def test_reading_does_not_change_the_account_file(process: Open, path: Path):
    before = path.read_bytes()
    account = process()
    account.search_offers(query(account))
    account.reservations()
    assert path.read_bytes() == before


def test_two_processes_see_each_others_calls_between_their_own(process: Open):
    one, other = process(), process()
    offer = one.search_offers(query(one))[0]
    second = buy(other, "tp-2")
    other.advance(timedelta(minutes=3))
    (first,) = one.purchase(offer.id, tags(intent="tp-1"))
    for account in (one, other, process()):
        account.advance(timedelta(minutes=3))
        assert {block.id for block in account.reservations()} == {first.id, second}


def test_a_search_that_led_to_a_purchase_later_is_made_again_at_its_own_instant(process: Open, path: Path):
    """A start-now offer moves with the clock: searched for again at another minute it would be another one."""
    one, other = process(), process()
    offer = one.search_offers(query(one, earliest_start=one.now(), latest_end=one.now() + 3 * DAY))
    now_offer = next(found for found in offer if found.start < one.now() + DAY)
    other.advance(timedelta(minutes=5))
    second = buy(other, "tp-2")
    (first,) = one.purchase(now_offer.id, tags(intent="tp-1"))
    process().advance(timedelta(minutes=3))
    for account in (process(), other, one):
        assert {block.id for block in account.reservations()} == {first.id, second}


def test_a_purchase_whose_answer_is_lost_has_still_bought_the_block(process: Open):
    process().strike(FaultKind.LOST_ANSWER)
    with pytest.raises(OutcomeUnknown):
        buy(process())
    process().advance(timedelta(minutes=3))
    assert [block.intent_id for block in process().reservations()] == ["tp-1"]


def test_a_lost_request_bought_nothing(process: Open):
    process().strike(FaultKind.LOST_REQUEST)
    with pytest.raises(OutcomeUnknown):
        buy(process())
    process().advance(timedelta(minutes=3))
    assert process().reservations() == ()


def test_a_failed_payment_is_seen_by_every_process(process: Open):
    process().strike(FaultKind.PAYMENT_FAILS)
    buy(process())
    process().advance(timedelta(hours=13))
    assert process().reservations()[0].state is ReservationState.PAYMENT_FAILED


def test_an_offer_that_was_never_shown_is_not_sold_and_not_recorded(process: Open, path: Path):
    before = path.read_bytes()
    with pytest.raises(NoCapacity):
        process().purchase("cb-00000000000000000", ())
    assert path.read_bytes() == before


def test_a_shared_block_is_seen_and_cannot_be_tagged(process: Open):
    owned = OwnedReservation(name="theirs", instance_type=P5, count=1, zone=ZONES[0], duration=3 * DAY)
    id_ = process().buy_elsewhere(owned, shared=True)
    with pytest.raises(Refused, match="belongs to the account that shares it"):
        process().tag_reservation(id_, (("deployment", "mill"),))
    assert process().reservations()[0].id == id_


def test_time_follows_the_wall_clock_and_never_goes_back(path: Path, wall: Wall):
    AccountFile(path).make(AccountHistory(START, "us-east-1", ZONES, seed=7))
    account = SimAccount(path, catalog.load(), wall)
    wall.at = START + timedelta(seconds=90, microseconds=5)
    assert account.now() == START + timedelta(seconds=90)
    bought_at = account.advance(DAY)
    buy(account)
    wall.at = START
    assert SimAccount(path, catalog.load(), wall).now() == bought_at


def test_a_caller_is_an_arn_or_the_short_name_of_a_user(path: Path, process: Open, wall: Wall):
    arn = "arn:aws:sts::123456789012:assumed-role/finance/bo"
    assert SimAccount(path, catalog.load(), wall, caller=arn).identity() == arn
    users = "arn:aws:iam::123456789012:user"
    assert SimAccount(path, catalog.load(), wall, caller="ana").identity() == f"{users}/ana"
    assert process().identity() == f"{users}/you"


def test_a_file_of_something_else_is_refused(path: Path, wall: Wall):
    path.write_text("{}")
    with pytest.raises(SpecError, match="not a simulated account"):
        SimAccount(path, catalog.load(), wall).now()
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_an_existing_account_file_is_not_overwritten(path: Path, process: Open):
    assert not AccountFile(path).make(AccountHistory(START, "us-east-1", ZONES, market=Market(offers="none")))
    assert process().history().market.offers == "plenty"


def test_an_account_file_that_cannot_be_replayed_is_refused_with_the_reason(path: Path, process: Open):
    buy(process())
    path.write_text(path.read_text().replace('"seed": 7', '"seed": 8'))
    with pytest.raises(SpecError, match="cannot be played again"):
        process().reservations()
