"""What a plan lacks is searched for, proposed, and bought only with approval and inside the budget."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.decide.builders import NOW, ago, ahead, block, of, plan, pool, spec, world
from tests.decide.purchases import GENEROUS, GRID, buying, intent, offer, search
from tidemill.decide import decide
from tidemill.model.capacity import ReservationState
from tidemill.model.offers import OfferQuery
from tidemill.model.plan import ProposePurchase, SearchOffers, SettlePurchase, SubmitPurchase
from tidemill.model.purchase_reasons import PurchaseReason, ReasonKind
from tidemill.model.purchases import PurchaseIntent, Spending, Verdict
from tidemill.spec.units import format_duration, parse_duration
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("CB-3")


def window(name: str, begins: str, ends: str) -> dict:
    return {
        "name": name, "from": ahead(begins), "to": ahead(ends), "instanceType": "p5.48xlarge", "instances": 4,
    }  # fmt: skip


def submitted(documents, *things) -> bool:
    return bool(of(decide(documents, world(*things)), SubmitPurchase))


def asked() -> OfferQuery:
    """The search the default plan leads to."""
    (action,) = of(decide(buying(), world()), SearchOffers)
    return action.query


# --- from demand to proposal ---------------------------------------------------------------------------


@pytest.mark.parametrize(("delivered", "asked_for"), [(1, 18), (9, 9), (10, 9), (12, 9), (17, None)])
def test_what_an_ultraserver_lacks_is_asked_for_by_the_ultraserver(
    delivered: int, asked_for: int | None
) -> None:
    """EC2 refuses any other number, and would be asked again and again. A whole one for a few is not worth it."""
    gb200 = "p6e-gb200.36xlarge"
    wanted = [{**window("week", "2d", "9d"), "instanceType": gb200, "instances": 18}]
    pairs = pool("p5", requirements={"instanceTypes": [gb200]}, limits={"nodes": 64})
    documents = spec(pairs, plan(demand=wanted), approval={"mode": "one"}, budget=GENEROUS)
    held = block(starts_in="1d", ends_in="10d", count=delivered, instance_type=gb200, ultraserver=True)
    made = decide(documents, world(held))
    assert [action.query.count for action in of(made, SearchOffers)] == ([asked_for] if asked_for else [])
    assert bool(made.warnings) == (asked_for is None)


@pytest.mark.requirement("CB-1")
def test_a_window_that_lacks_capacity_is_searched_for():
    query = asked()
    assert (query.instance_type, query.count) == ("p5.48xlarge", 4)
    assert query.earliest_start == GRID
    # Seven days from noon are seven days and half an hour from the grid: the next length EC2 sells is taken.
    assert query.duration >= ahead("9d") - GRID


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize(
    ("held", "lacking"),
    [
        ([block(starts_in="1d", ends_in="10d", count=4)], 0),
        ([block(starts_in="1d", ends_in="10d", count=3)], 1),
        ([block(starts_in="1d", ends_in="10d", count=4, state=ReservationState.PAYMENT_PENDING)], 0),
        ([block(starts_in="1d", ends_in="10d", count=4, state=ReservationState.PAYMENT_FAILED)], 4),
        ([block(starts_in="1d", ends_in="10d", count=4, owner="somebody")], 4),
        ([block(starts_in="1d", ends_in="10d", count=4, pool="other")], 4),
        ([block(starts_in="1d", ends_in="10d", count=4, instance_type="p4d.24xlarge")], 4),
        ([block(starts_in="1d", ends_in="8d", count=4)], 4),
        ([block("cr-a", starts_in="1d", ends_in="5d"), block("cr-b", starts_in="5d", ends_in="10d")], 0),
        ([block("cr-a", starts_in="1d", ends_in="5d"), block("cr-b", starts_in="6d", ends_in="10d")], 4),
    ],
)
def test_missing_instances_are_counted_at_the_worst_instant_from_what_aws_shows(held: list, lacking: int):
    new_ones = buying(document=plan(extend={"policy": "never"}))
    counts = [action.query.count for action in of(decide(new_ones, world(held)), SearchOffers)]
    assert counts == ([lacking] if lacking else [])


@pytest.mark.requirement("CB-8")
def test_a_successor_starts_early_enough_to_overlap_with_the_block_before_it():
    """The window opens at noon: half an hour lies between it and the grid, a day more is bought for three hours."""
    (action,) = of(decide(buying(document=plan(overlap="3h")), world()), SearchOffers)
    assert action.query.earliest_start == GRID - timedelta(days=1)
    late = offer(start=GRID, end=GRID + timedelta(days=14))
    early = offer("cb-2", start=GRID - timedelta(days=1), end=GRID + timedelta(days=13), fee_usd=29_000)
    seen = world(search(action.query, late, early))
    (proposed,) = of(decide(buying(document=plan(overlap="3h")), seen), ProposePurchase)
    assert proposed.intent.envelope.latest_start == ahead("2d") - timedelta(hours=3)
    assert proposed.intent.envelope.max_fee_usd > 29_000


def test_no_offers_are_searched_before_propose_before():
    early = plan(proposeBefore="1d")
    quiet = decide(buying(document=early), world())
    assert not of(quiet, SearchOffers)
    assert quiet.wake_at == ahead("1d")
    assert of(decide(buying(document=early), world(now=ahead("1d"))), SearchOffers)


def test_the_cheapest_offer_that_covers_the_window_is_proposed():
    offers = [
        offer("cb-dear", fee_usd=26_000),
        offer("cb-good", fee_usd=25_000),
        offer("cb-short", fee_usd=1_000, end=ahead("8d")),
        offer("cb-late", fee_usd=1_000, start=ahead("3d")),
    ]
    (proposed,) = of(decide(buying(), world(search(asked(), *offers))), ProposePurchase)
    bound = proposed.intent.envelope
    assert (bound.count, bound.earliest_end, bound.max_fee_usd) == (4, ahead("9d"), 27_500)
    assert bound.expires_at == ahead("24h")
    assert "about $25,000" in sentence(proposed.reason)


def test_a_proposal_never_asks_for_more_than_the_window_may_cost():
    capped = buying(document=plan(maxFeeUsd=25_500))
    (proposed,) = of(decide(capped, world(search(asked(), offer(fee_usd=25_000)))), ProposePurchase)
    assert proposed.intent.envelope.max_fee_usd == 25_500


def test_the_same_proposal_has_the_same_id_whenever_it_is_made():
    ids = {
        one.intent.id
        for later in ("0s", "5m")
        for one in of(decide(buying(), world(search(asked(), offer()), now=ahead(later))), ProposePurchase)
    }
    assert len(ids) == 1


def test_an_old_answer_is_asked_for_again_before_it_is_used():
    stale = search(asked(), offer(), at=ago("30m"))
    assert of(decide(buying(), world(stale)), SearchOffers)
    assert not of(decide(buying(), world(stale)), ProposePurchase)


def test_an_empty_answer_is_not_asked_for_again_for_hours():
    plan_ = decide(buying(), world(search(asked(), at=ago("5h"))))
    assert not of(plan_, SearchOffers)
    assert plan_.wake_at == ahead("1h")
    assert "EC2 offers no block of 4 p5.48xlarge" in sentence(plan_.warnings[0].reason)
    assert of(decide(buying(), world(search(asked(), at=ago("6h")))), SearchOffers)


def test_the_engine_wakes_when_it_would_search_again():
    useless = search(asked(), offer(end=ahead("8d")), at=NOW)
    quiet = decide(buying(), world(useless))
    assert not quiet.actions
    assert of(decide(buying(), world(useless, now=ahead("30m"))), SearchOffers)
    assert quiet.wake_at is not None
    assert quiet.wake_at <= ahead("30m")


def test_the_engine_wakes_when_an_offer_for_a_window_that_has_begun_is_near_enough():
    """Nothing is bought that starts later than a day from now: the answer changes by waiting alone."""
    begun = buying(document=plan(demand=[window("week", "0s", "9d")]))
    (question,) = of(decide(begun, world()), SearchOffers)
    found = search(question.query, offer(start=ahead("24h10m"), end=ahead("15d")))
    quiet = decide(begun, world(found))
    assert not of(quiet, ProposePurchase)
    assert quiet.wake_at == ahead("10m1s")
    assert of(decide(begun, world(found, now=quiet.wake_at)), ProposePurchase)


@pytest.mark.parametrize("state", ["proposed", "approved", "submitted", "unknown"])
def test_a_window_with_an_open_intent_is_not_proposed_again(state: str):
    there = world(intent(state, state_at=ago("10s")), search(asked(), offer()))
    assert not of(decide(buying("propose"), there), ProposePurchase)


def test_after_a_refusal_the_same_is_not_proposed_again_for_six_hours():
    refused = intent("refused", state_at=ago("5h59m"))
    quiet = decide(buying(), world(refused, search(asked(), offer())))
    assert not of(quiet, ProposePurchase)
    assert quiet.wake_at == ahead("1m")
    (again,) = of(
        decide(buying(), world(intent("refused", state_at=ago("6h")), search(asked(), offer()))),
        ProposePurchase,
    )
    assert again.intent.id != refused.id


@pytest.mark.parametrize("away", ["cloud_ok", "ledger_ok"])
def test_nothing_is_proposed_while_aws_or_the_ledger_cannot_be_read(away: str):
    there = world(search(asked(), offer()), **{away: False})
    assert not decide(buying(), there).actions


@pytest.mark.requirement("CB-4")
def test_nothing_is_proposed_or_bought_beside_a_reservation_that_cannot_be_read():
    """Also what was approved: whether it is still missing cannot be told. Nothing is voided either."""
    doubt = replace(block("cr-odd", ends_in=None), unread="field EndDate: expected a time, got None")
    approved = intent("approved", approved_by=("ana",))
    assert submitted(buying(), approved)
    decided = decide(buying(), world(approved, unread=(doubt,)))
    assert not decided.actions
    assert any("nothing is bought until" in sentence(warning.reason) for warning in decided.warnings)
    assert not decide(buying(), world(search(asked(), offer()), unread=(doubt,))).actions


@pytest.mark.requirement("CB-4")
def test_a_purchase_in_doubt_is_found_by_the_tag_of_a_reservation_that_cannot_be_read():
    doubt = replace(block("cr-odd", ends_in=None), unread="field EndDate", intent_id="tp-1")
    unknown = intent("unknown", offer_id="cb-1", fee_usd=25_000, state_at=ago("2h"))
    (settled,) = of(decide(buying(), world(unknown, unread=(doubt,))), SettlePurchase)
    assert (settled.outcome, settled.reservation_ids) == ("confirmed", ("cr-odd",))


# --- who may say yes ------------------------------------------------------------------------------------


def test_by_default_the_platform_only_proposes():
    eager = intent("approved", approved_by=("ana", "ben"))
    decided = decide(buying("propose"), world(eager))
    assert not of(decided, SubmitPurchase)
    assert "only proposes" in sentence(decided.warnings[0].reason)


@pytest.mark.parametrize(
    ("mode", "approved_by", "buys"),
    [
        ("one", (), False),
        ("one", ("ana",), True),
        ("one", ("tidemill-engine",), False),
        ("two", ("ana",), False),
        ("two", ("ana", "ana"), False),
        ("two", ("ana", "tidemill-engine"), False),
        ("two", ("ana", "ben"), True),
        ("auto", (), False),
        ("auto", ("ana",), True),
    ],
)
def test_it_is_bought_only_after_enough_other_people_approved(mode: str, approved_by: tuple, buys: bool):
    """Even an intent that claims to be approved: the verdicts are counted, not the state believed."""
    assert submitted(buying(mode), intent("approved", approved_by=approved_by)) is buys


def test_a_refusal_does_not_count_as_an_approval():
    no = Verdict("ana", ago("1h"), approved=False)
    assert not submitted(buying(), intent("approved", verdicts=(no,)))


def test_only_named_approvers_count_where_they_are_named():
    named = buying(approval={"approvers": ["ana"]})
    assert not submitted(named, intent("approved", approved_by=("ben",)))
    assert submitted(named, intent("approved", approved_by=("ana",)))


@pytest.mark.parametrize(("cap", "buys"), [(29_999, False), (30_000, True)])
def test_mode_auto_buys_without_approval_only_up_to_its_cap(cap: int, buys: bool):
    assert submitted(buying("auto", approval={"autoMaxFeeUsd": cap}), intent()) is buys


# --- ceilings -------------------------------------------------------------------------------------------


def asked_before(*became: str, last_ago: str) -> list[PurchaseIntent]:
    """Proposals of the window that came to nothing, oldest first."""
    made = []
    for number, state in enumerate(became):
        ended = ago(last_ago) if number == len(became) - 1 else ago("9d")
        expired: dict[str, Any] = {"inside": {"expires_at": ended}} if state == "voided" else {}
        made.append(intent(state, id=f"tp-{number}", state_at=ended, **expired))
    return made


@pytest.mark.parametrize(
    ("became", "waits"),
    [
        (("refused", "refused"), "12h"),
        (("refused", "refused", "refused"), "1d"),
        (("refused",) * 9, "2d"),
        (("voided",), "0s"),
        (("voided", "voided"), "6h"),
        (("voided", "voided", "voided"), "12h"),
        (("voided", "refused"), "12h"),
        (("refused", "failed", "refused"), "6h"),
    ],
)
def test_each_refused_or_expired_proposal_delays_the_next_one_longer(became: tuple[str, ...], waits: str):
    def proposes(last_ago: str) -> bool:
        there = world(asked_before(*became, last_ago=last_ago), search(asked(), offer()))
        return bool(of(decide(buying(), there), ProposePurchase))

    assert proposes(waits)
    if waits != "0s":
        assert not proposes(format_duration(parse_duration(waits) - timedelta(minutes=1)))


def test_the_fees_of_another_plan_do_not_count_against_a_plans_own_month():
    own = plan(budget={"perPurchaseUsd": 100_000, "monthlyUsd": 40_000})
    for name, buys in (("another", True), ("november", False)):
        there = world(GRANTED, Spending(20_000, plan_fees_usd=((name, 20_000),)))
        decided = decide(buying(document=own), there)
        assert bool(of(decided, SubmitPurchase)) is buys
    assert "on top of $20,000 is over the $40,000 a month of plan november" in sentence(
        decided.warnings[0].reason
    )


GRANTED = intent("approved", approved_by=("ana",))


@pytest.mark.requirement("CB-4")
def test_a_purchase_counts_as_held_for_the_time_of_its_offer_until_aws_shows_it():
    """EC2's lists are minutes late: meanwhile another window must not take what this one does not use."""
    two = plan(demand=[window("a", "2d", "5d"), window("b", "5d", "9d")])
    bought = intent("confirmed", window="a", reservation_ids=("cr-9",), inside={"earliest_end": ahead("5d")})
    lasting = replace(bought, start=GRID, end=ahead("9d"))
    assert of(decide(buying(document=two), world(bought)), SearchOffers)
    assert not of(decide(buying(document=two), world(lasting)), SearchOffers)


@pytest.mark.requirement("CB-4")
def test_an_approval_for_far_more_than_is_still_missing_is_voided_and_the_rest_is_proposed_anew():
    """Somebody bought most of it by hand; half an hour is left, and it would cost the whole window."""
    by_hand = block("cr-7", starts_in="2d30m", ends_in="10d", count=4)
    decided = decide(buying(), world(GRANTED, by_hand))
    (settled,) = of(decided, SettlePurchase)
    assert (settled.outcome, settled.reason) == ("voided", PurchaseReason(ReasonKind.MOSTLY_COVERED))
    assert not of(decided, SubmitPurchase)
    half = block("cr-7", starts_in="2d", ends_in="5d", count=4)
    eight_days = replace(GRANTED, envelope=replace(GRANTED.envelope, duration=timedelta(days=8)))
    assert of(decide(buying(), world(eight_days, half)), SubmitPurchase)


@pytest.mark.parametrize(
    ("budget", "spent", "buys", "word"),
    [
        ({"perPurchaseUsd": 30_000, "monthlyUsd": 30_000}, 0, True, ""),
        ({"perPurchaseUsd": 29_999, "monthlyUsd": 99_999}, 0, False, "for one purchase"),
        ({"perPurchaseUsd": 30_000, "monthlyUsd": 29_999}, 0, False, "monthly budget"),
        ({"perPurchaseUsd": 30_000, "monthlyUsd": 99_999}, 70_000, False, "monthly budget"),
        ({}, 0, False, "for one purchase"),
    ],
)
def test_the_platforms_ceilings_hold(budget: dict, spent: int, buys: bool, word: str):
    decided = decide(buying(budget=budget), world(GRANTED, Spending(spent)))
    assert bool(of(decided, SubmitPurchase)) is buys
    assert word in (sentence(decided.warnings[0].reason) if decided.warnings else "")


@pytest.mark.parametrize(
    ("lowered", "buys"),
    [
        (GENEROUS, True),
        ({"perPurchaseUsd": 20_000, "monthlyUsd": 500_000}, False),
        ({"perPurchaseUsd": 100_000, "monthlyUsd": 20_000}, False),
    ],
)
def test_a_plan_can_lower_the_ceilings(lowered: dict, buys: bool):
    assert submitted(buying(document=plan(budget=lowered)), GRANTED) is buys


def test_a_plan_can_never_raise_the_ceilings():
    tight = {"perPurchaseUsd": 20_000, "monthlyUsd": 20_000}
    assert not submitted(buying(document=plan(budget=GENEROUS), budget=tight), GRANTED)
