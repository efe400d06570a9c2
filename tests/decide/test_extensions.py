"""More time on a block comes before a new one; its end moves when it is paid, and a failed payment is planned anew."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.decide.builders import NOW, ago, ahead, block, of, plan, world
from tests.decide.purchases import buying, intent, offer
from tidemill.decide import decide
from tidemill.model.capacity import Reservation, ReservationState
from tidemill.model.offers import (
    Extension,
    ExtensionOffer,
    ExtensionQuery,
    ExtensionSearch,
    ExtensionState,
    Offer,
    OfferSearch,
)
from tidemill.model.plan import (
    ProposePurchase,
    SearchExtensions,
    SearchOffers,
    SettlePurchase,
    SubmitPurchase,
)
from tidemill.model.purchase_reasons import ReasonKind
from tidemill.model.purchases import BlockUse, PurchaseIntent
from tidemill.spec import Spec
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("CB-6")

# The window is of four instances from the second to the ninth day: this block ends four days too early.
SHORT = block("cr-1", ends_in="5d", starts_in="1d", count=4)
FOUR_DAYS = ExtensionQuery("cr-1", timedelta(days=4))


def offered(fee_usd: int = 9_000, at: datetime = NOW) -> ExtensionSearch:
    return ExtensionSearch(
        FOUR_DAYS, at, (ExtensionOffer("cbe-1", "cr-1", ahead("5d"), ahead("9d"), fee_usd),)
    )


def none_sold(*offers: Offer) -> OfferSearch:
    """EC2's answer to what would be asked for a new block; by default it has none."""
    without = buying(document=plan(extend={"policy": "never"}))
    (action,) = of(decide(without, world(SHORT)), SearchOffers)
    return OfferSearch(action.query, NOW, offers)


def none_sold_for(documents: Spec, *held: Reservation) -> OfferSearch:
    (action,) = of(decide(documents, world(*held, ExtensionSearch(FOUR_DAYS, NOW, ()))), SearchOffers)
    return OfferSearch(action.query, NOW, ())


def asks(documents: Spec, *things: object, **fields: object) -> list[str]:
    return [
        type(action).__name__
        for action in decide(documents, world(*things, **fields)).actions
        if isinstance(action, SearchExtensions | SearchOffers | ProposePurchase)
    ]


def extension(state: str, **fields: Any) -> PurchaseIntent:
    inside = {
        "duration": timedelta(days=4), "earliest_start": ahead("5d"), "latest_start": ahead("5d"),
        "earliest_end": ahead("9d"), "max_fee_usd": 10_000,
    }  # fmt: skip
    return intent(state, approved_by=("ana",), inside=inside, extends="cr-1", **fields)


def told(state: ExtensionState) -> Extension:
    return Extension("cbe-1", "cr-1", ago("1h"), ahead("9d"), 9_000, state)


# --- before a new block ---------------------------------------------------------------------------------


def test_an_extension_is_searched_before_a_new_block():
    (action,) = of(decide(buying(), world(SHORT)), SearchExtensions)
    assert action.query == FOUR_DAYS
    assert asks(buying(), SHORT) == ["SearchExtensions"]


def test_an_extension_offer_is_proposed_with_an_envelope_around_it():
    seen = world(SHORT, none_sold(), extension_searches=(offered(),))
    (action,) = of(decide(buying(), seen), ProposePurchase)
    wanted = action.intent
    assert (wanted.extends, wanted.envelope.count, wanted.envelope.max_fee_usd) == ("cr-1", 4, 9_900)
    assert (wanted.envelope.latest_start, wanted.envelope.earliest_end) == (ahead("5d"), ahead("9d"))
    # EC2 takes none in the last hour, so no approval is worth anything then.
    assert wanted.envelope.expires_at <= ahead("5d") - timedelta(hours=1)


def test_the_price_of_a_new_block_is_asked_for_before_an_extension_is_proposed():
    assert asks(buying(), SHORT, extension_searches=(offered(),)) == ["SearchOffers"]


@pytest.mark.parametrize(("fee_usd", "extends"), [(7_300, "cr-1"), (7_100, "")])
def test_an_extension_may_cost_a_quarter_more_than_a_new_block_and_no_more(fee_usd: int, extends: str):
    """It is $9,000; nothing boots and nothing moves for it, and that is worth something, not anything."""
    new = offer(start=ahead("4d23h30m"), end=ahead("9d23h30m"), fee_usd=fee_usd)
    seen = world(SHORT, none_sold(new), extension_searches=(offered(),))
    (action,) = of(decide(buying(), seen), ProposePurchase)
    assert action.intent.extends == extends


def test_a_block_of_more_than_twice_the_missing_size_is_not_extended():
    """It is extended as a whole; without a new block to compare with, no price would hold it back."""
    for count, extends in ((8, True), (9, False)):
        large = block("cr-1", ends_in="5d", starts_in="1d", count=count)
        lacks_four = buying(document=plan(instances=count + 4))
        beside = block("cr-2", ends_in="20d", starts_in="1d", count=count)
        decided = decide(
            lacks_four, world(large, beside, offered(), none_sold_for(lacks_four, large, beside))
        )
        assert bool(of(decided, ProposePurchase)) is extends, count
    (warning,) = decided.warnings
    assert "an extension of cr-1 would be $9,000 for all of its 9" in sentence(warning.reason)


def test_only_the_gap_is_bought_and_not_the_whole_window():
    """The block there serves three of the seven days: a new one starts where it ends."""
    query = none_sold().query
    assert query.earliest_start == ahead("4d23h30m")
    assert query.duration == timedelta(days=5)


@pytest.mark.parametrize(
    "held",
    [
        block("cr-1", ends_in="1h", count=4),
        block("cr-1", ends_in="12h", count=4),
    ],
    ids=["in an hour", "in half a day"],
)
def test_a_block_that_ends_long_before_the_gap_is_not_extended_up_to_it(held: Reservation):
    assert asks(buying(), held) == ["SearchOffers"]


@pytest.mark.parametrize(
    "answer",
    [
        ExtensionSearch(FOUR_DAYS, NOW, ()),
        ExtensionSearch(FOUR_DAYS, NOW, (), refused="not extendable"),
        offered(fee_usd=9_000_000),
    ],
    ids=["none", "refused", "too dear"],
)
def test_without_an_extension_offer_a_new_block_is_searched_for(answer: ExtensionSearch):
    assert asks(buying(), SHORT, extension_searches=(answer,)) == ["SearchOffers"]


@pytest.mark.parametrize(
    "held",
    [
        block("cr-1", ends_in="5d", starts_in="1d", count=3),
        block("cr-1", ends_in="5d", starts_in="1d", state=ReservationState.PAYMENT_PENDING),
        block("cr-1", ends_in="5d", starts_in="1d", owner=""),
        block("cr-1", ends_in="5d", starts_in="1d", extension_pending_to=ahead("6d")),
    ],
    ids=["too small", "not paid yet", "not ours", "one pending"],
)
def test_no_extension_is_searched_for_a_block_that_could_not_serve_longer(held: Reservation):
    assert asks(buying(), held) == ["SearchOffers"]


def test_no_extension_is_searched_for_a_block_in_its_last_hour():
    last_hour = block("cr-1", ends_in="3d", starts_in="1d")
    assert asks(buying(), last_hour, now=ahead("3d") - timedelta(minutes=59)) == ["SearchOffers"]


def test_a_plan_with_extend_never_gets_new_blocks_only():
    assert asks(buying(document=plan(extend={"policy": "never"})), SHORT) == ["SearchOffers"]


def test_an_old_answer_is_asked_for_again():
    old = offered(at=ago("30m"))
    assert asks(buying(), SHORT, extension_searches=(old,)) == ["SearchExtensions"]


# --- what became of it ----------------------------------------------------------------------------------


@pytest.mark.requirement("CB-7")
def test_while_the_payment_of_an_extension_is_pending_nothing_else_is_bought_and_the_end_stays():
    pending = world(
        block("cr-1", ends_in="5d", starts_in="1d", extension_pending_to=ahead("9d")),
        extension("confirmed", reservation_ids=("cr-1",), offer_id="cbe-1", fee_usd=9_000),
        extensions=(told(ExtensionState.PAYMENT_PENDING),),
    )
    assert not decide(buying(), pending).actions


@pytest.mark.requirement("CB-7")
def test_when_the_payment_of_an_extension_fails_its_fee_is_not_counted_and_a_new_block_is_proposed():
    confirmed = extension("confirmed", reservation_ids=("cr-1",), offer_id="cbe-1", fee_usd=9_000)
    unpaid = (told(ExtensionState.PAYMENT_FAILED),)
    (settled,) = of(decide(buying(), world(SHORT, confirmed, extensions=unpaid)), SettlePurchase)
    assert (settled.outcome, settled.fee_usd) == ("failed", 0)
    failed = extension("failed", reservation_ids=("cr-1",), offer_id="cbe-1", state_at=NOW)
    assert asks(buying(), SHORT, failed, extensions=unpaid) == ["SearchOffers"]


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize("state", ["submitted", "unknown"])
def test_an_extension_without_an_answer_is_found_in_the_history_by_its_offer(state: str):
    lost = extension(state, offer_id="cbe-1", fee_usd=9_000, state_at=ago("10m"))
    (settled,) = of(
        decide(buying(), world(SHORT, lost, extensions=(told(ExtensionState.PAYMENT_PENDING),))),
        SettlePurchase,
    )
    assert (settled.outcome, settled.reservation_ids) == ("confirmed", ("cr-1",))


@pytest.mark.requirement("CB-4")
def test_an_extension_of_the_same_block_by_somebody_else_does_not_count_as_ours():
    lost = extension("unknown", offer_id="cbe-2", state_at=ago("10m"))
    seen = world(SHORT, lost, extensions=(told(ExtensionState.PAYMENT_PENDING),))
    assert not of(decide(buying(), seen), SettlePurchase)
    assert not of(decide(buying(), seen), SubmitPurchase)


def test_an_extension_whose_block_was_extended_meanwhile_is_void():
    longer = block("cr-1", ends_in="6d", starts_in="1d")
    (settled,) = of(decide(buying(), world(longer, extension("approved"))), SettlePurchase)
    assert (settled.outcome, settled.reason.kind) == ("voided", ReasonKind.BLOCK_END_MOVED)


# --- worth extending ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("used_h", "bought"), [(100.0, False), (400.0, True)])
def test_a_block_that_was_little_used_lapses(used_h: float, bought: bool):
    """4 nodes of 8 GPUs for a day are 768 GPU hours; the plan asks for half of them."""
    thrifty = buying(document=plan(extend={"minUtilisation": 0.5}))
    use = BlockUse("cr-1", 32, used_h, 768.0)
    seen = world(SHORT, uses=(use,))
    assert bool(asks(thrifty, SHORT, uses=(use,))) is bought
    said = [sentence(warning.reason) for warning in decide(thrifty, seen).warnings]
    assert any("lapse" in sentence for sentence in said) is not bought


def test_a_block_of_which_nothing_was_delivered_is_not_judged():
    thrifty = buying(document=plan(extend={"minUtilisation": 0.5}))
    assert asks(thrifty, SHORT, uses=(BlockUse("cr-1", 0, 0.0, 0.0),)) == ["SearchExtensions"]


def test_a_block_that_ran_for_less_than_a_day_is_not_judged():
    thrifty = buying(document=plan(extend={"minUtilisation": 0.5}))
    assert asks(thrifty, SHORT, uses=(BlockUse("cr-1", 32, 0.0, 700.0),)) == ["SearchExtensions"]


def test_a_plan_says_whether_it_asked_how_well_blocks_were_used():
    """The hours grow all the time: only a plan that asked is made anew for them."""
    use = (BlockUse("cr-1", 32, 100.0, 768.0),)
    thrifty = buying(document=plan(extend={"minUtilisation": 0.5}))
    assert decide(thrifty, world(SHORT, uses=use)).uses_read
    lasts = block("cr-1", ends_in="60d", starts_in="1d", count=4)
    assert not decide(thrifty, world(lasts, uses=use)).uses_read
    assert not decide(buying(), world(SHORT, uses=use)).uses_read
