"""Buying: the best offer inside the envelope, once, whatever crashes between the call and the note."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.decide.builders import ago, ahead, block, plan
from tests.decide.purchases import buying, intent, offer
from tests.engine.ports import Outside
from tidemill.engine.buyer import Buyer
from tidemill.model.errors import (
    NoCapacity,
    NotAllowed,
    OutcomeUnknown,
    Refused,
    Retryable,
    SpecError,
    Throttled,
    label,
)
from tidemill.model.offers import ExtensionQuery, Offer, OfferQuery
from tidemill.model.plan import Outcome, ProposePurchase, SettlePurchase, SubmitPurchase
from tidemill.model.purchase_reasons import PurchaseReason, ReasonKind
from tidemill.model.purchases import Adoption, PurchaseIntent, PurchaseState, Verdict
from tidemill.sim.scenario.crash import EngineCrashed
from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.store.decisions import record_verdict

pytestmark = pytest.mark.requirement("CB-4")

GRANTED = intent("approved", approved_by=("ana",))


def shop(*offers, held: PurchaseIntent = GRANTED, **platform) -> Outside:
    outside = Outside(buying(**platform))
    outside.cloud.offers = list(offers)
    outside.books.propose(held)
    return outside


def buy(outside: Outside, what: PurchaseIntent = GRANTED) -> Outcome:
    (outcome,) = outside.act(SubmitPurchase(what, PurchaseReason(ReasonKind.APPROVED)))
    return outcome


def held(outside: Outside) -> PurchaseIntent:
    (one,) = outside.books.purchases()
    return one


@pytest.mark.requirement("CB-3")
def test_a_purchase_is_tagged_confirmed_and_counted():
    outside = shop(offer(fee_usd=25_000))
    assert buy(outside).error == ""
    ((bought, tags),) = outside.cloud.purchases
    assert (bought, dict(tags)) == (
        "cb-1",
        {"deployment": "tides", "tidemill.dev/pool": "p5", "tidemill.dev/intent": "tp-1"},
    )
    assert (held(outside).state, held(outside).reservation_ids) == (PurchaseState.CONFIRMED, ("cr-1",))
    assert outside.books.spending(outside.clock.now()).fees_usd == 25_000


def test_nothing_is_bought_for_a_pool_whose_nodes_could_never_join():
    outside = shop(offer(fee_usd=25_000))
    lacking = {"p5": ("Platform mill: spec.nodeRole is not set",)}
    buyer = Buyer(
        outside.spec, outside.clock, outside.cloud, outside.books, lambda pool: lacking.get(pool, ())
    )
    with pytest.raises(Refused, match="nothing is bought for it: Platform mill: spec"):
        buyer.submit(GRANTED)
    assert not outside.cloud.purchases
    assert held(outside).state is PurchaseState.APPROVED
    assert held(outside).reason == PurchaseReason(
        ReasonKind.POOL_CANNOT_LAUNCH, name="p5", expected="Platform mill: spec.nodeRole is not set"
    )
    lacking.clear()
    buyer.submit(held(outside))
    assert len(outside.cloud.purchases) == 1


@pytest.mark.requirement("CB-3")
@pytest.mark.parametrize(
    "outside_the_envelope",
    [
        offer(count=3),
        offer(zone="us-west-2c"),
        offer(instance_type="p4d.24xlarge"),
        offer(start=ahead("2d2h")),
        offer(end=ahead("8d")),
    ],
    ids=["fewer", "elsewhere", "another type", "later", "shorter"],
)
def test_an_offer_outside_the_envelope_is_not_bought(outside_the_envelope):
    outside = shop(outside_the_envelope)
    assert buy(outside).error == "no-capacity"
    assert not outside.cloud.purchases
    assert held(outside).state is PurchaseState.APPROVED
    assert held(outside).reason == PurchaseReason(ReasonKind.NO_OFFER)


@pytest.mark.requirement("CB-3")
def test_an_offer_that_became_dearer_than_its_envelope_goes_back_for_approval():
    outside = shop(offer(fee_usd=31_000))
    assert buy(outside).error == "no-capacity"
    assert not outside.cloud.purchases
    again = held(outside)
    assert (again.state, again.verdicts, again.envelope.max_fee_usd) == (PurchaseState.PROPOSED, (), 34_100)
    assert again.reason == PurchaseReason(ReasonKind.DEARER_THAN_APPROVED, fee_usd=31_000)


START_NOW = {
    "duration": timedelta(days=9), "earliest_start": ago("1h"), "planned_start": ahead("30m"),
    "latest_start": ahead("24h"), "earliest_end": ahead("7d"), "max_fee_usd": 25_000,
}  # fmt: skip
APPROVED_NOW = intent("approved", approved_by=("ana",), inside=START_NOW)
SINCE_AN_HOUR = {
    "name": "week", "from": ago("1h"), "to": ahead("7d"), "instanceType": "p5.48xlarge", "instances": 4,
}  # fmt: skip


def begun(*offers: Offer) -> Outside:
    """The window has begun: a block that starts now was proposed and approved."""
    return shop(*offers, held=APPROVED_NOW, document=plan(demand=[SINCE_AN_HOUR]))


@pytest.mark.requirement("CB-3")
def test_a_lower_fee_is_not_worth_the_hours_that_it_leaves_uncovered():
    soon = offer("cb-soon", fee_usd=24_000, start=ahead("30m"), end=ahead("9d"))
    cheap = offer("cb-cheap", fee_usd=22_000, start=ahead("23h"), end=ahead("9d"))
    outside = begun(soon, cheap)
    buy(outside, APPROVED_NOW)
    ((bought, _),) = outside.cloud.purchases
    assert bought == "cb-soon"


@pytest.mark.requirement("CB-3")
def test_what_is_much_worse_than_what_was_approved_is_not_bought_but_proposed_anew():
    outside = begun(offer("cb-late", fee_usd=24_000, start=ahead("23h"), end=ahead("9d")))
    assert "proposed anew" in buy(outside, APPROVED_NOW).detail
    assert not outside.cloud.purchases
    assert held(outside).state is PurchaseState.VOIDED
    assert held(outside).reason == PurchaseReason(
        ReasonKind.WORSE_THAN_APPROVED, fee_usd=24_000, at=ahead("23h")
    )


@pytest.mark.requirement("CB-3")
def test_who_approves_late_gets_what_is_left_of_it():
    outside = begun(offer("cb-left", fee_usd=24_000, start=ahead("20h30m"), end=ahead("9d")))
    outside.clock.at = ahead("20h")
    buy(outside, APPROVED_NOW)
    assert len(outside.cloud.purchases) == 1


@pytest.mark.requirement("CB-3")
def test_tags_of_the_platform_are_added_and_cannot_replace_our_own_tags():
    outside = shop(offer(), tags={"cost-centre": "7", "deployment": "somebody"})
    buy(outside)
    ((_, tags),) = outside.cloud.purchases
    assert (dict(tags)["cost-centre"], dict(tags)["deployment"]) == ("7", "tides")


@pytest.mark.requirement("CB-3")
def test_an_expired_approval_buys_nothing():
    outside = shop(offer())
    outside.clock.at = GRANTED.envelope.expires_at
    assert "expired" in buy(outside).detail
    assert not outside.cloud.purchases


@pytest.mark.requirement("CB-4")
def test_nothing_is_bought_from_a_ledger_in_memory():
    outside = shop(offer())
    outside.books.durable = False
    assert buy(outside).error == "refused"
    assert not outside.cloud.purchases


@pytest.mark.requirement("CB-4")
def test_nothing_is_bought_from_the_ledger_of_another_platform():
    outside = shop(offer())
    outside.books.deployment = "research"
    assert "belongs to deployment 'research'" in buy(outside).detail
    assert not outside.cloud.purchases


@pytest.mark.requirement("CB-4")
def test_a_demand_that_somebody_else_covered_meanwhile_is_not_bought_again():
    """The engine looked a moment ago; AWS is asked once more at the very moment of buying."""
    outside = shop(offer())
    outside.books.adopt(Adoption("cr-7", "p5", "ana", outside.clock.now()))
    outside.cloud.held.append(block("cr-7", starts_in="1d", ends_in="12d", count=4, owner=""))
    assert "covered" in buy(outside).detail
    assert (held(outside).state, outside.cloud.purchases) == (PurchaseState.VOIDED, [])


@pytest.mark.requirement("CB-4")
def test_a_submit_records_start_and_end_of_its_offer_and_a_refusal_clears_them():
    outside = shop(offer())
    buy(outside)
    assert (held(outside).start, held(outside).end) == (offer().start, offer().end)
    outside = shop(offer())
    outside.cloud.fail("purchase", NoCapacity("gone"))
    buy(outside)
    assert (held(outside).start, held(outside).end, held(outside).fee_usd) == (None, None, 0)


def test_the_cheapest_offer_inside_the_envelope_is_taken():
    outside = shop(
        offer("cb-a", fee_usd=28_000), offer("cb-b", fee_usd=24_000), offer("cb-c", fee_usd=31_000)
    )
    buy(outside)
    assert outside.cloud.purchases[0][0] == "cb-b"


def test_a_start_now_block_that_was_proposed_can_be_bought():
    """It starts at an odd minute and ends on the grid, up to a day later than its length says."""
    urgent = CapacityPlan.model_validate({"metadata": {"name": "november"}, "spec": {"pool": "p5", "demand": [
        {"name": "now", "from": ago("1h"), "to": ahead("24h"), "instanceType": "p5.48xlarge", "instances": 4}
    ]}})  # fmt: skip
    outside = Outside(buying("auto", document=urgent, approval={"autoMaxFeeUsd": 50_000}))
    outside.cloud.offers = [offer(start=ahead("30m"), end=ahead("47h30m"))]
    engine = outside.engine()
    for _ in range(3):  # search, propose, buy
        engine.tick()
    assert len(outside.cloud.purchases) == 1


@pytest.mark.requirement("CB-3")
def test_the_budget_is_checked_again_at_submit():
    outside = shop(offer(fee_usd=25_000), budget={"perPurchaseUsd": 30_000, "monthlyUsd": 40_000})
    spent = intent("confirmed", id="tp-0", fee_usd=20_000, state_at=outside.clock.now())
    outside.books.propose(spent)
    assert buy(outside).error == "refused"
    assert not outside.cloud.purchases


def test_two_purchases_of_one_plan_cannot_exceed_the_budget_together():
    outside = shop(offer(fee_usd=25_000), budget={"perPurchaseUsd": 30_000, "monthlyUsd": 40_000})
    second = replace(GRANTED, id="tp-2", window="other")
    outside.books.propose(second)
    outcomes = outside.act(SubmitPurchase(GRANTED, ""), SubmitPurchase(second, ""))
    assert [outcome.error for outcome in outcomes] == ["", "refused"]


def test_a_purchase_in_doubt_counts_as_spent_at_submit():
    outside = shop(offer(fee_usd=25_000), budget={"perPurchaseUsd": 30_000, "monthlyUsd": 40_000})
    second = replace(GRANTED, id="tp-2", window="other")
    outside.books.propose(second)
    outside.cloud.fail("purchase", OutcomeUnknown("timed out"), after=True)
    outside.act(SubmitPurchase(GRANTED, ""), SubmitPurchase(second, ""))
    assert len(outside.cloud.purchases) == 1


@pytest.mark.requirement("CB-3")
def test_without_approval_nothing_is_bought():
    proposed = intent("proposed")
    outside = shop(offer(), held=proposed)
    assert buy(outside, proposed).error == "refused"
    assert not outside.cloud.purchases


def test_an_intent_is_submitted_in_the_ledger_before_the_call():
    outside = shop(offer())
    outside.crashes.arm("before:purchase")
    with pytest.raises(EngineCrashed):
        buy(outside)
    assert held(outside).state is PurchaseState.SUBMITTED
    assert not outside.cloud.purchases


@pytest.mark.parametrize("step", ["before:purchase", "after:purchase"])
def test_a_purchase_interrupted_by_a_crash_is_never_made_a_second_time(step: str):
    """The next engine reads SUBMITTED, looks for the tag, and confirms or doubts; it does not buy."""
    outside = shop(offer())
    outside.crashes.arm(step)
    with pytest.raises(EngineCrashed):
        buy(outside)
    made = len(outside.cloud.purchases)
    for _ in range(30):
        outside.clock.pass_time(minutes=5)
        outside.engine().tick()
    assert len(outside.cloud.purchases) == made
    expected = PurchaseState.CONFIRMED if made else PurchaseState.UNKNOWN
    assert held(outside).state is expected


def test_an_unknown_outcome_is_not_repeated_and_confirmed_by_its_tag():
    outside = shop(offer())
    outside.cloud.fail("purchase", OutcomeUnknown("timed out"), after=True)
    assert buy(outside).error == "outcome-unknown"
    assert held(outside).state is PurchaseState.UNKNOWN
    outside.engine().tick()
    assert (held(outside).state, held(outside).fee_usd) == (PurchaseState.CONFIRMED, 25_000)
    assert len(outside.cloud.purchases) == 1


@pytest.mark.parametrize(
    "error", [NoCapacity("gone"), Throttled("slow down"), Refused("a rule"), NotAllowed("no")]
)
def test_after_a_definite_refusal_the_purchase_stays_approved(error: Exception):
    outside = shop(offer())
    outside.cloud.fail("purchase", error)
    buy(outside)
    assert held(outside).state is PurchaseState.APPROVED
    reason = PurchaseReason(ReasonKind.REFUSED_BY_AWS, code=label(error), detail=str(error))
    assert held(outside).reason == reason


def test_a_refused_search_counts_as_an_answer_and_a_missing_permission_does_not():
    """Taken for a no, a missing permission would have a new block bought instead of an extension."""
    outside = shop(offer())
    buyer = Buyer(outside.spec, outside.clock, outside.cloud, outside.books)
    more = ExtensionQuery("cr-1", timedelta(days=1))
    block = OfferQuery(
        "p5.48xlarge", 2, timedelta(days=1), outside.clock.now(), outside.clock.now() + timedelta(days=9)
    )
    outside.cloud.fail("search_extensions", NotAllowed("no permission"))
    outside.cloud.fail("search_offers", NotAllowed("no permission"))
    for ask in (lambda: buyer.search_extensions(more), lambda: buyer.search(block)):
        with pytest.raises(NotAllowed):
            ask()
    assert (buyer.searches, buyer.extension_searches) == ({}, {})
    outside.cloud.fail("search_extensions", Refused("ends too soon"))
    outside.cloud.fail("search_offers", Refused("not sold here"))
    assert buyer.search_extensions(more) == "ends too soon"
    assert buyer.search(block) == "not sold here"
    assert (len(buyer.searches), len(buyer.extension_searches)) == (1, 1)
    outside.cloud.fail("search_offers", SpecError("sold by the UltraServer"))
    assert buyer.search(replace(block, count=3)) == "sold by the UltraServer"
    assert len(buyer.searches) == 2


@pytest.mark.parametrize("error", [Retryable("503"), OutcomeUnknown("timed out")])
def test_any_error_but_a_definite_refusal_leaves_the_outcome_unknown(error: Exception):
    """A 503 can come after the purchase was made: it is looked for, and not made again."""
    outside = shop(offer())
    outside.cloud.fail("purchase", error, after=True)
    assert buy(outside).error == "outcome-unknown"
    assert held(outside).state is PurchaseState.UNKNOWN
    buy(outside, held(outside))
    assert len(outside.cloud.purchases) == 1


def test_a_refusal_is_recorded_so_that_it_is_not_tried_again_at_every_tick():
    outside = shop(offer(count=3))
    buy(outside)
    engine = outside.engine()
    engine.tick()
    outside.clock.pass_time(minutes=5)
    tick = engine.tick()
    assert tick is not None
    assert not [outcome for outcome in tick.outcomes if isinstance(outcome.action, SubmitPurchase)]


@pytest.mark.parametrize("tag", ["tp-other", "tp-1"], ids=["another purchase", "this very one"])
def test_nothing_is_bought_while_aws_shows_a_block_that_another_ledger_bought(tag: str):
    """Two ledgers of one deployment would each find its windows uncovered and its budget unspent."""
    outside = shop(offer())
    outside.cloud.held.append(block("cr-7", starts_in="30d", ends_in="40d", owner="tides", intent_id=tag))
    assert "another ledger" in buy(outside).detail
    assert not outside.cloud.purchases


def test_two_buyers_at_once_cannot_spend_the_same_budget():
    """The other one's submit comes between our last look at the budget and our write."""
    other = intent("approved", approved_by=("ana",), id="tp-2", plan="", window="")
    outside = shop(offer(fee_usd=25_000), budget={"perPurchaseUsd": 60_000, "monthlyUsd": 40_000})
    outside.books.propose(other)
    looks = outside.cloud.search_offers

    def meanwhile(query):
        submitted = replace(
            other, state=PurchaseState.SUBMITTED, state_at=outside.clock.now(), fee_usd=20_000
        )
        outside.books.advance(other, submitted)
        outside.cloud.search_offers = looks
        return looks(query)

    outside.cloud.search_offers = meanwhile
    assert buy(outside).error == "refused"
    assert not outside.cloud.purchases


def test_nothing_is_bought_if_the_ledger_cannot_be_written():
    outside = shop(offer())
    outside.books.fail("advance", Retryable("away"))
    assert buy(outside).error == "retryable"
    assert not outside.cloud.purchases


def test_a_verdict_given_meanwhile_stops_the_purchase():
    """What was decided on is no longer what is in the ledger: compare-and-set refuses."""
    outside = shop(offer())
    no = Verdict("ben", outside.clock.now(), approved=False)
    outside.books.advance(
        GRANTED, replace(GRANTED, state=PurchaseState.REFUSED, verdicts=(*GRANTED.verdicts, no))
    )
    assert buy(outside).error == "refused"
    assert not outside.cloud.purchases


def test_settling_a_purchase_that_is_already_settled_is_refused():
    outside = shop(offer())
    buy(outside)
    (outcome,) = outside.act(SettlePurchase(GRANTED, "voided", (), 0, "expired"))
    assert outcome.error == "refused"
    assert held(outside).state is PurchaseState.CONFIRMED


def test_proposing_twice_changes_nothing():
    outside = shop(held=GRANTED)
    outside.act(ProposePurchase(replace(GRANTED, state=PurchaseState.PROPOSED, verdicts=()), ""))
    assert held(outside) == GRANTED


# --- verdicts -------------------------------------------------------------------------------------------


def verdict(outside: Outside, *, who: str = "ana", approved: bool = True) -> PurchaseIntent:
    return record_verdict(
        outside.books,
        outside.spec,
        held(outside),
        who=who,
        approved=approved,
        at=outside.clock.now(),
        listed=outside.cloud.reservations(),
    )


@pytest.mark.requirement("CB-3")
def test_one_approval_is_enough_except_where_the_policy_asks_for_two():
    one = shop(held=intent())
    assert verdict(one).state is PurchaseState.APPROVED
    two = shop(held=intent(), mode="two")
    assert verdict(two).state is PurchaseState.PROPOSED
    assert verdict(two, who="ben").state is PurchaseState.APPROVED


@pytest.mark.requirement("CB-3")
def test_one_refusal_refuses_the_purchase():
    outside = shop(held=intent(), mode="two")
    verdict(outside)
    assert verdict(outside, who="ben", approved=False).state is PurchaseState.REFUSED


@pytest.mark.requirement("CB-3")
def test_the_proposer_cannot_decide():
    with pytest.raises(Refused, match="somebody else must decide"):
        verdict(shop(held=intent(proposer="ana")))


@pytest.mark.requirement("CB-3")
def test_a_verdict_on_an_expired_or_settled_intent_is_refused():
    late = shop(held=intent())
    late.clock.pass_time(hours=24)
    with pytest.raises(Refused, match="expired"):
        verdict(late)
    with pytest.raises(Refused, match="only a proposed or approved one"):
        verdict(shop(held=intent("voided")))


def test_two_people_who_read_the_same_intent_cannot_overwrite_each_other():
    outside = shop(held=intent(), mode="two")
    read = held(outside)
    verdict(outside)
    with pytest.raises(Refused):
        record_verdict(
            outside.books, outside.spec, read, who="ben", approved=False, at=outside.clock.now(), listed=()
        )
