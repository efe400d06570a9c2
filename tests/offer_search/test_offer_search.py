"""Shopping: requests are bounded in number and rate, alternatives are the nearest, and an envelope fits its offer."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.sim.account import GB200, P5, Account
from tests.sim.scenario_builder import platform
from tidemill import catalog
from tidemill.model.offers import Offer
from tidemill.model.purchases import PurchaseState
from tidemill.offer_search.proposal import block_intent, expired_requests, same_block, similar_purchase
from tidemill.offer_search.request import (
    OfferQuestion,
    OfferRequest,
    StartWindow,
    held_by_date,
    no_start_fits,
    over_date_limit,
)
from tidemill.offer_search.search import OfferSearcher, SearchScope, TokenBucket, search_alternatives

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
DAY = timedelta(days=1)
WEEK = StartWindow(NOW, NOW + 7 * DAY)


class Watch:
    """A clock that moves only by being waited for."""

    def __init__(self) -> None:
        self.at = 0.0
        self.paused: list[float] = []

    def __call__(self) -> float:
        return self.at

    def pause(self, seconds: float) -> None:
        self.paused.append(seconds)
        self.at += seconds


def bucket(watch: Watch, *, burst: int = 3, rate: float = 2.0) -> TokenBucket:
    return TokenBucket(rate, burst, clock=watch, pause=watch.pause)


def question(**given: object) -> OfferQuestion:
    asked = OfferQuestion(P5, 4, 7 * DAY, WEEK, ("us-east-1a",))
    return replace(asked, **given)  # type: ignore[arg-type]


def offer(**given: object) -> Offer:
    grid = NOW.replace(hour=11, minute=30) + DAY
    return replace(Offer("cb-1", P5, "us-east-1a", 2, grid, grid + 7 * DAY, 10_000), **given)  # type: ignore[arg-type]


def ways(shopper: OfferSearcher, questions: list[OfferQuestion], around: SearchScope) -> list[str]:
    """What is tried, each once."""
    return list(dict.fromkeys(change for change, _ in search_alternatives(shopper, questions, around)))


# --- how often it asks --------------------------------------------------------------------------------


def test_a_burst_of_requests_is_not_delayed_and_later_ones_follow_at_the_rate():
    watch = Watch()
    tokens = bucket(watch)
    for _ in range(7):
        tokens.take()
    assert watch.paused == pytest.approx([0.5] * 4)


def test_time_that_passes_fills_the_bucket_up_to_the_burst():
    watch = Watch()
    tokens = bucket(watch)
    for _ in range(3):
        tokens.take()
    watch.at += 100
    for _ in range(4):
        tokens.take()
    assert len(watch.paused) == 1


def test_an_offer_searcher_never_makes_more_requests_than_its_budget():
    shopper = OfferSearcher(Account(start=NOW, offers="none").cloud, bucket(Watch()), budget=5)
    around = SearchScope(catalog.load(), ("us-east-1a", "us-east-1b"), NOW)
    shopper.ask(question())
    tried = ways(shopper, [question()], around)
    assert (shopper.asked, shopper.left, len(tried)) == (5, 0, 4)


def test_offers_that_start_outside_the_window_are_dropped():
    shopper = OfferSearcher(Account(start=NOW).cloud, bucket(Watch()), budget=5)
    found = shopper.ask(question(duration=DAY, starts=StartWindow(NOW + 2 * DAY, NOW + 3 * DAY)))
    assert found
    assert {one.offer.start.date() for one in found} == {(NOW + 2 * DAY).date()}


def test_a_request_asks_for_every_combination_of_its_parts():
    wish = OfferRequest((P5, GB200), (9, 18), (DAY,), (WEEK,), (("us-east-1a",), ("us-east-1b",)))
    assert len(set(wish.questions())) == 8


# --- what it tries next -------------------------------------------------------------------------------


def test_alternatives_are_tried_from_the_smallest_change_on():
    shopper = OfferSearcher(Account(start=NOW, offers="none").cloud, bucket(Watch()), budget=60)
    around = SearchScope(catalog.load(), ("us-east-1a", "us-east-1b"), NOW)
    tried = ways(shopper, [question(count=2)], around)
    assert tried == [
        "8d instead of 7d",
        "6d instead of 7d",
        "in us-east-1b",
        "on any day of the next 8 weeks",
        "1 instead of 2 instances",
        "16 x p5.4xlarge instead of 2 x p5.48xlarge",
    ]


def test_a_small_budget_tries_an_alternative_for_each_question():
    shopper = OfferSearcher(Account(start=NOW, offers="none").cloud, bucket(Watch()), budget=4)
    around = SearchScope(catalog.load(), ("us-east-1a",), NOW)
    tried = ways(shopper, [question(duration=DAY), question(duration=3 * DAY)], around)
    assert tried == ["2d instead of 1d", "4d instead of 3d", "on any day of the next 8 weeks"]
    assert shopper.asked == 4  # the last for both; 2d instead of 3d was asked already


def test_fewer_of_an_ultraserver_is_still_whole_ultraservers():
    shopper = OfferSearcher(Account(start=NOW, offers="none").cloud, bucket(Watch()), budget=60)
    around = SearchScope(catalog.load(), ("us-east-1a",), NOW)
    tried = ways(shopper, [question(instance_type=GB200, count=36)], around)
    assert [one for one in tried if "instances" in one] == [
        "18 instead of 36 instances",
        "9 instead of 36 instances",
    ]


# --- 256 on a date ------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-2")
def test_blocks_count_on_every_date_they_touch():
    account = Account(start=NOW)
    block = account.block(count=60, duration="2d")
    held = held_by_date([block])
    assert block.end is not None
    assert not over_date_limit(held, 196, block.start, block.end)
    assert "60 are held on 2026-11-16: 197 more are too many" in over_date_limit(
        held, 197, block.start, block.end
    )


@pytest.mark.requirement("CB-2")
def test_a_question_that_fits_on_some_day_is_asked():
    account = Account(start=NOW)
    full = [account.block(name=f"b{n}", count=64, duration="3d") for n in range(4)]
    held = held_by_date(full)
    assert no_start_fits(held, question(duration=DAY, starts=StartWindow(NOW, NOW + DAY)), NOW)
    assert not no_start_fits(held, question(duration=DAY), NOW)


# --- the envelope -------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-3")
def test_an_envelope_fits_its_offer_and_the_fee_has_a_little_room():
    rich = platform(budget={"perPurchaseUsd": 10_500, "monthlyUsd": 99_000}, approval={"mode": "one"})
    seen = offer()
    intent = block_intent(rich, seen, 7 * DAY, pool="train", proposer="arn:ana", now=NOW)
    envelope = intent.envelope
    assert (envelope.earliest_start, envelope.latest_start, envelope.earliest_end) == (
        seen.start,
        seen.start,
        seen.end,
    )
    assert (envelope.zones, envelope.count, envelope.max_fee_usd) == (("us-east-1a",), 2, 10_500)
    assert (intent.plan, intent.window, intent.proposer) == ("", "", "arn:ana")
    assert envelope.expires_at == NOW + timedelta(hours=24)


def test_a_block_that_starts_now_may_start_later_and_ends_when_it_was_to():
    seen = offer(start=NOW + timedelta(minutes=31))
    envelope = block_intent(platform(), seen, 7 * DAY, pool="train", proposer="arn:ana", now=NOW).envelope
    assert envelope.latest_start == seen.start + timedelta(hours=6)
    later = replace(seen, id="cb-2", start=seen.start + timedelta(hours=1))
    assert same_block(seen, later)
    assert not same_block(seen, replace(later, end=seen.end + DAY))
    assert not same_block(offer(), offer(start=offer().start + DAY))


@pytest.mark.requirement("CB-4")
def test_a_purchase_in_doubt_of_the_same_type_counts_as_similar():
    wanted = block_intent(platform(), offer(id="cb-2"), 7 * DAY, pool="train", proposer="arn:ana", now=NOW)
    other = block_intent(platform(), offer(), 7 * DAY, pool="train", proposer="arn:bo", now=NOW)
    unknown = replace(other, state=PurchaseState.UNKNOWN)
    for state in (
        PurchaseState.PROPOSED,
        PurchaseState.APPROVED,
        PurchaseState.CONFIRMED,
        PurchaseState.UNKNOWN,
    ):
        like = replace(other, state=state)
        assert similar_purchase([like], wanted, NOW) is like
    for state in (PurchaseState.REFUSED, PurchaseState.VOIDED, PurchaseState.FAILED):
        assert similar_purchase([replace(other, state=state)], wanted, NOW) is None
    larger = replace(other.envelope, count=other.envelope.count + 1)
    assert similar_purchase([replace(other, envelope=larger)], wanted, NOW) is None
    in_doubt = replace(unknown, envelope=larger)
    assert similar_purchase([in_doubt], wanted, NOW) is in_doubt
    assert similar_purchase([replace(unknown, extends="cr-1")], wanted, NOW) is None
    later = offer(start=offer().end, end=offer().end + DAY)
    after_it = block_intent(platform(), later, DAY, pool="train", proposer="arn:ana", now=NOW)
    assert similar_purchase([unknown], after_it, NOW) is None


@pytest.mark.requirement("CB-4")
def test_a_purchase_that_expired_before_submit_does_not_count_as_similar():
    wanted = block_intent(platform(), offer(id="cb-2"), 7 * DAY, pool="train", proposer="arn:ana", now=NOW)
    other = block_intent(platform(), offer(), 7 * DAY, pool="train", proposer="arn:bo", now=NOW)
    gone = other.envelope.expires_at
    assert similar_purchase([other], wanted, gone) is None
    assert expired_requests([other], wanted, gone) == [other]
    assert expired_requests([other], wanted, NOW) == []
    confirmed = replace(other, state=PurchaseState.CONFIRMED)
    assert similar_purchase([confirmed], wanted, gone) is confirmed
    assert expired_requests([confirmed, replace(other, plan="november")], wanted, gone) == []
