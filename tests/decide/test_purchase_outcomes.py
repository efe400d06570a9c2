"""What became of a purchase: found by its tag, in doubt, void, or to be tried again. Never made twice."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.decide.builders import NOW, ago, ahead, block, of, plan, world
from tests.decide.purchases import buying, intent, offer, search
from tidemill.decide import decide
from tidemill.model.capacity import ReservationState
from tidemill.model.offers import OfferQuery
from tidemill.model.plan import ProposePurchase, SearchOffers, SettlePurchase, SubmitPurchase
from tidemill.model.purchase_reasons import PurchaseReason, ReasonKind
from tidemill.model.purchases import Verdict
from tidemill.spec.units import parse_duration
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("CB-4")

GRANTED = intent("approved", approved_by=("ana",))


def asked() -> OfferQuery:
    (action,) = of(decide(buying(), world()), SearchOffers)
    return action.query


def submitted(*things) -> bool:
    return bool(of(decide(buying(), world(*things)), SubmitPurchase))


def settled(*things, now=NOW, documents=None) -> list[tuple[str, ReasonKind]]:
    decided = decide(documents or buying(), world(*things, now=now))
    return [(one.outcome, one.reason.kind) for one in of(decided, SettlePurchase)]


def test_an_intent_whose_demand_is_covered_by_now_is_voided_and_not_bought():
    covered = block(starts_in="1d", ends_in="10d", count=4)
    assert settled(GRANTED, covered) == [("voided", ReasonKind.COVERED)]
    assert not submitted(GRANTED, covered)


def test_an_expired_approval_is_void():
    assert [outcome for outcome, _ in settled(GRANTED, now=ahead("24h"))] == ["voided"]
    assert not settled(GRANTED, now=ahead("24h") - timedelta(seconds=1))


def test_an_intent_whose_window_was_taken_out_of_the_plan_is_voided():
    assert settled(intent("approved", window="gone", approved_by=("ana",)))[0][0] == "voided"


@pytest.mark.parametrize("state", ["submitted", "unknown"])
def test_a_purchase_is_confirmed_by_the_tag_on_what_it_made(state: str):
    made = block("cr-9", starts_in="2d", ends_in="16d", intent_id="tp-1")
    lost = intent(state, state_at=ago("5m"), fee_usd=25_000)
    (confirmed,) = of(decide(buying(), world(lost, made)), SettlePurchase)
    assert (confirmed.outcome, confirmed.reservation_ids, confirmed.fee_usd) == (
        "confirmed",
        ("cr-9",),
        25_000,
    )


@pytest.mark.requirement("CB-15")
def test_one_intent_may_have_made_several_blocks():
    made = [block(f"cr-{place}", starts_in="2d", intent_id="tp-1", ultraserver=True) for place in (1, 2)]
    (confirmed,) = of(decide(buying(), world(intent("submitted", fee_usd=20), made)), SettlePurchase)
    assert (confirmed.reservation_ids, confirmed.fee_usd) == (("cr-1", "cr-2"), 20)


def test_a_call_whose_answer_was_lost_becomes_unknown_and_is_never_made_again():
    fresh = intent("submitted", state_at=ago("59s"), approved_by=("ana",))
    assert not settled(fresh)
    lost = intent("submitted", state_at=ago("1m"), approved_by=("ana",))
    assert [outcome for outcome, _ in settled(lost)] == ["unknown"]
    unknown = intent("unknown", state_at=ago("20h"), approved_by=("ana",))
    decided = decide(buying(), world(unknown, search(asked(), offer())))
    assert not decided.actions
    assert "outcome of this purchase is unknown" in sentence(decided.warnings[0].reason)


def test_a_confirmed_block_that_does_not_show_yet_is_not_bought_again():
    bought = intent("confirmed", reservation_ids=("cr-9",), state_at=ago("1m"))
    assert not decide(buying(), world(bought, search(asked(), offer()))).actions


@pytest.mark.requirement("CB-5")
def test_a_block_whose_payment_failed_is_proposed_anew_with_a_new_id():
    failed = block(
        "cr-9", starts_in="2d", ends_in="16d", intent_id="tp-1", state=ReservationState.PAYMENT_FAILED
    )
    bought = intent("confirmed", reservation_ids=("cr-9",), state_at=ago("12h"))
    (again,) = of(decide(buying(), world(bought, failed, search(asked(), offer()))), ProposePurchase)
    assert again.intent.id != "tp-1"


def test_a_submit_that_found_no_offer_tries_again_in_ten_minutes():
    tried = {"approved_by": ("ana",), "reason": PurchaseReason(ReasonKind.NO_OFFER)}
    assert not submitted(intent("approved", state_at=ago("9m"), **tried))
    assert submitted(intent("approved", state_at=ago("10m"), **tried))


@pytest.mark.parametrize(
    ("in_vain", "expires_in", "pause"),
    [("0s", "24h", "10m"), ("3h", "24h", "30m"), ("12h", "24h", "1h"), ("12h", "1h", "10m")],
)
def test_the_longer_nothing_was_sold_the_longer_the_pause_but_not_in_the_last_hours(
    in_vain, expires_in, pause
):
    tried_at = NOW - parse_duration(pause)
    open_one = intent(
        "approved", verdicts=(Verdict("ana", tried_at - parse_duration(in_vain), approved=True),),
        reason=PurchaseReason(ReasonKind.NO_OFFER), inside={"expires_at": NOW + parse_duration(expires_in)},
    )  # fmt: skip
    early = replace(open_one, state_at=tried_at + timedelta(seconds=1))
    assert not of(decide(buying(), world(early)), SubmitPurchase)
    assert of(decide(buying(), world(replace(open_one, state_at=tried_at))), SubmitPurchase)


def test_a_window_that_nobody_approves_does_not_keep_a_later_one_from_being_bought():
    """Both want the same type at the same time. What is bought for the second serves the second; the first stays as
    short as it was, and what is held is not bought again."""
    first, second = ({
        "name": name, "from": ahead("2d"), "to": ahead("9d"), "instanceType": "p5.48xlarge", "instances": count,
    } for name, count in (("large", 60), ("week", 4)))  # fmt: skip
    both = buying(document=plan(demand=[first, second]))
    approved = intent("approved", approved_by=("ana",))
    waiting = intent("proposed", id="tp-large", window="large", inside={"count": 60})
    (submit,) = of(decide(both, world(waiting, approved)), SubmitPurchase)
    assert submit.intent.id == approved.id

    bought = intent("confirmed", reservation_ids=("cr-9",))
    made = block("cr-9", starts_in="2d", ends_in="9d", count=4, intent_id="tp-1", pool="p5")
    later = decide(both, world(waiting, bought, made))
    for kind in (SubmitPurchase, SettlePurchase, ProposePurchase):
        assert not of(later, kind)


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize("state", ["approved", "failed", "voided"])
def test_a_purchase_believed_not_made_is_confirmed_when_aws_shows_it(state: str):
    """EC2 had said no, or a person was sure; nothing that exists is lost, and its fee counts."""
    made = block("cr-9", starts_in="2d", ends_in="16d", intent_id="tp-1")
    believed = intent(state, offer_id="cb-1", fee_usd=0, state_at=ago("1h"))
    (taken,) = of(decide(buying(), world(believed, made)), SettlePurchase)
    assert (taken.outcome, taken.reservation_ids, taken.fee_usd) == ("confirmed", ("cr-9",), 30_000)


@pytest.mark.requirement("CB-7")
def test_a_purchase_that_was_never_paid_stays_failed_while_aws_still_lists_it():
    unpaid = block("cr-9", starts_in="2d", intent_id="tp-1", state=ReservationState.PAYMENT_FAILED)
    failed = intent("failed", offer_id="cb-1", reservation_ids=("cr-9",), state_at=ago("1h"))
    assert not of(decide(buying(), world(failed, unpaid)), SettlePurchase)


@pytest.mark.requirement("CB-4")
def test_an_unknown_outcome_becomes_failed_when_aws_shows_that_it_was_never_paid():
    unpaid = block("cr-9", starts_in="2d", intent_id="tp-1", state=ReservationState.PAYMENT_FAILED)
    unknown = intent("unknown", offer_id="cb-1", fee_usd=25_000, state_at=ago("1h"))
    (settled_,) = of(decide(buying(), world(unknown, unpaid)), SettlePurchase)
    assert (settled_.outcome, settled_.fee_usd) == ("failed", 0)


@pytest.mark.requirement("CB-17")
def test_a_forged_tag_on_a_block_that_was_never_asked_for_does_not_make_it_ours():
    tagged = block("cr-9", starts_in="2d", ends_in="16d", intent_id="tp-1", owner="")
    plan = decide(buying(), world(intent("refused", state_at=ago("1h")), tagged))
    assert not of(plan, SettlePurchase)


@pytest.mark.requirement("CB-4")
def test_a_second_block_with_the_tag_of_one_purchase_is_warned_of_and_not_counted():
    made = [block(f"cr-{place}", starts_in="2d", ends_in="16d", intent_id="tp-1") for place in (1, 2)]
    confirmed = intent("confirmed", reservation_ids=("cr-1",), offer_id="cb-1", state_at=ago("1h"))
    plan = decide(buying(), world(confirmed, made))
    assert not of(plan, SettlePurchase)
    assert any("bought twice?" in sentence(warning.reason) for warning in plan.warnings)


@pytest.mark.requirement("CB-4")
def test_a_mere_proposal_does_not_void_an_approved_purchase():
    alike = intent(id="tp-2", plan="", window="")
    assert not settled(GRANTED, alike)


@pytest.mark.requirement("CB-3")
def test_two_people_are_needed_above_a_fee_in_mode_auto_too():
    auto = {"autoMaxFeeUsd": 60_000, "twoAboveUsd": 5_000}
    plan = decide(buying("auto", approval=auto), world(intent()))
    assert not of(plan, SubmitPurchase)
