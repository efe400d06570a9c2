"""What its pool could not use is not proposed, not submitted, and does not count as held."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.decide.builders import OWNER, ZONE, block, of, plan, pool, spec, world
from tests.decide.purchases import GENEROUS, GRID, intent, offer, search
from tests.decide.test_calendars import calendar
from tests.engine.ports import Outside
from tidemill.decide import decide
from tidemill.decide.purchasing.learned_demand import learned_gpus
from tidemill.decide.purchasing.replan_schedule import planning_round
from tidemill.decide.purchasing.usability import why_block_unusable
from tidemill.model.labels import Pairs
from tidemill.model.plan import (
    ProposePurchase,
    SearchExtensions,
    SearchOffers,
    SettlePurchase,
    SubmitPurchase,
)
from tidemill.model.purchase_reasons import UNUSABLE, PurchaseReason, ReasonKind
from tidemill.model.purchases import PurchaseState
from tidemill.spec import Spec, names
from tidemill.spec.usable_blocks import was_bought_for
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("CB-4")

OTHER = "us-west-2b"
BY_ZONE = {"sources": [{"type": "block", "zones": [OTHER]}]}
BY_REQUIREMENT = {"requirements": {"instanceTypes": ["p5.48xlarge"], "zones": [OTHER]}}
BY_TAG = {"sources": [{"type": "block", "tags": {"team": "x"}}]}
BY_ID = {"sources": [{"type": "block", "ids": ["cr-9"]}]}
TOO_FEW = {"limits": {"nodes": 3}}
ZONED, ALL = [BY_ZONE, BY_REQUIREMENT], [BY_ZONE, BY_REQUIREMENT, BY_TAG, TOO_FEW]
NAMES = ["source zones", "zones", "tags", "limit"]


def buying(changes: dict[str, Any], document: Any = None, **platform: Any) -> Spec:
    return spec(pool(**changes), document or plan(), approval={"mode": "one"}, budget=GENEROUS, **platform)


# --- when it is proposed ------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", ZONED, ids=NAMES[:2])
def test_only_zones_that_the_pool_can_use_are_searched_and_proposed(changes: dict[str, Any]):
    (searched,) = of(decide(buying(changes), world()), SearchOffers)
    assert searched.query.zones == (OTHER,)
    offers = offer("cb-a", zone=ZONE, fee_usd=10_000), offer("cb-b", zone=OTHER)
    (proposed,) = of(decide(buying(changes), world(search(searched.query, *offers))), ProposePurchase)
    assert proposed.intent.envelope.zones == (OTHER,)
    assert proposed.intent.envelope.max_fee_usd > 25_000


@pytest.mark.parametrize("changes", [BY_TAG, TOO_FEW], ids=NAMES[2:])
def test_what_the_pool_could_not_use_is_neither_searched_nor_proposed_and_people_are_told(
    changes: dict[str, Any],
):
    quiet = decide(buying(changes), world())
    assert not of(quiet, SearchOffers)
    (warning,) = quiet.warnings
    assert warning.about == "week"
    assert isinstance(warning.reason, PurchaseReason)
    assert warning.reason.kind in UNUSABLE
    assert "pool p5" in sentence(warning.reason)


def test_nothing_is_searched_or_bought_where_the_platform_has_no_subnets():
    """No node could be launched into what was paid for."""
    made = decide(buying({}, subnets={}), world())
    assert of(made, SearchOffers) == of(made, ProposePurchase) == []
    (told,) = [one for one in made.warnings if isinstance(one.reason, PurchaseReason)]
    assert told.reason.kind is ReasonKind.NO_SUBNET
    assert "list them in spec.subnets" in sentence(told.reason)


def test_a_block_with_a_tag_that_blocks_are_bought_with_is_proposed():
    assert of(decide(buying(BY_TAG, tags={"team": "x"}), world()), SearchOffers)


@pytest.mark.requirement("CB-18")
def test_a_pool_pinned_to_ids_is_sold_a_successor_and_its_own_block_is_extended_first():
    ending = block("cr-9", ends_in="2d", pool="p5")
    asked = decide(buying(BY_ID), world(ending))
    assert [action.query.reservation_id for action in of(asked, SearchExtensions)] == ["cr-9"]
    (searched,) = of(decide(buying(BY_ID), world()), SearchOffers)
    proposed = of(decide(buying(BY_ID), world(search(searched.query, offer()))), ProposePurchase)
    assert [one.intent.pool for one in proposed] == ["p5"]


@pytest.mark.requirement("CB-18")
def test_the_buyer_buys_for_a_pinned_pool_with_the_tags_that_the_pin_moves_on_to():
    granted = intent("approved", approved_by=("ana",))
    outside = Outside(buying(BY_ID))
    outside.cloud.offers = [offer()]
    outside.books.propose(granted)
    outside.act(SubmitPurchase(granted, PurchaseReason(ReasonKind.APPROVED)))
    ((_, tags),) = outside.cloud.purchases
    assert was_bought_for(OWNER, "p5", tags)


BOUGHT = ((names.TAG_OWNER, OWNER), (names.TAG_POOL, "p5"), (names.TAG_INTENT, "pi-1"))


@pytest.mark.requirement("CB-18")
@pytest.mark.parametrize(
    ("tags", "passes"),
    [
        (BOUGHT, True),
        (BOUGHT[:2], False),
        ((*BOUGHT[:2], (names.TAG_INTENT, "")), False),
        (((names.TAG_OWNER, "somebody"), *BOUGHT[1:]), False),
        ((BOUGHT[0], (names.TAG_POOL, "other"), BOUGHT[2]), False),
        ((), False),
    ],
    ids=["bought for it", "adopted", "an empty intent", "another deployment's", "another pool's", "no tags"],
)
def test_a_pin_lets_through_only_what_was_bought_for_its_pool(tags: Pairs, passes: bool):
    why = why_block_unusable(buying(BY_ID), "p5", block("cr-2", tags=tags))
    assert (why is None) == passes
    if why is not None:
        assert why == PurchaseReason(ReasonKind.PINNED_TO_IDS, name="p5", reservation_ids=("cr-9",))
        assert "add its id to the pool's ids" in sentence(why)


@pytest.mark.requirement("CB-18")
def test_a_pin_that_also_asks_for_a_tag_moves_on_only_to_blocks_with_that_tag():
    both = {"sources": [{"type": "block", "ids": ["cr-9"], "tags": {"team": "x"}}]}
    assert not of(decide(buying(both), world()), SearchOffers)
    assert of(decide(buying(both, tags={"team": "x"}), world()), SearchOffers)


def test_what_has_no_room_beside_the_pools_other_blocks_is_not_proposed():
    documents = buying({"limits": {"nodes": 6}})
    other = block("cr-7", ends_in="60d", pool="p5", instance_type="p5en.48xlarge", count=3)
    (searched,) = of(decide(documents, world(other)), SearchOffers)
    full = decide(documents, world(other, search(searched.query, offer())))
    assert not of(full, ProposePurchase)
    said = " ".join(sentence(warning.reason) for warning in full.warnings)
    assert "allow 3 x p5.48xlarge beside its other blocks for most of that time, not 4" in said
    # Services move from one block to the next: for less than half of its time it need not fit.
    long = replace(other, end=GRID + timedelta(days=8))
    assert not of(decide(documents, world(long, search(searched.query, offer()))), ProposePurchase)
    brief = replace(other, end=GRID + timedelta(days=3))
    assert of(decide(documents, world(brief, search(searched.query, offer()))), ProposePurchase)


def test_the_envelope_must_have_room_too_and_not_only_the_offer_that_was_seen():
    """The offer outlasts the other block by far; what the envelope promises need not."""
    documents = buying({"limits": {"nodes": 6}})
    other = block("cr-7", ends_in="6d", pool="p5", instance_type="p5en.48xlarge", count=3)
    (searched,) = of(decide(documents, world(other)), SearchOffers)
    decided = decide(documents, world(other, search(searched.query, offer())))
    assert not of(decided, ProposePurchase)
    assert ReasonKind.NO_ROOM_BESIDE_BLOCKS in {getattr(one.reason, "kind", None) for one in decided.warnings}


@pytest.mark.parametrize("changes", ZONED, ids=NAMES[:2])
def test_a_calendar_asks_only_for_zones_that_its_pool_can_use(changes: dict[str, Any]):
    documents = buying(changes, calendar())
    wanted = planning_round(documents, world(), learned_gpus(documents, world()))
    assert wanted.offers
    assert {query.zones for query in wanted.offers} == {(OTHER,)}


@pytest.mark.parametrize("changes", [BY_TAG, {"limits": {"nodes": 1}}], ids=NAMES[2:])
def test_a_calendar_asks_for_nothing_that_its_pool_could_not_use(changes: dict[str, Any]):
    documents = buying(changes, calendar())
    assert not planning_round(documents, world(), learned_gpus(documents, world())).offers


# --- what is held -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [BY_ZONE, BY_REQUIREMENT, BY_TAG], ids=NAMES[:3])
def test_a_block_of_no_pool_covers_only_what_could_use_it(changes: dict[str, Any]):
    """What was bought for the pool counts all the same: it is not bought again because a document changed."""
    document = plan(extend={"policy": "never"})
    documents = buying(changes, document, tags={"team": "x"})
    held = block(starts_in="1d", ends_in="10d", zone=ZONE)
    assert of(decide(documents, world(held)), SearchOffers)
    assert not of(decide(documents, world(replace(held, pool="p5"))), SearchOffers)
    assert not of(decide(documents, world(replace(held, listed=False))), SearchOffers)
    usable = replace(held, zone=OTHER, tags=(("team", "x"), ("deployment", OWNER)))
    assert not of(decide(documents, world(usable)), SearchOffers)


# --- after it was proposed --------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", ALL, ids=NAMES)
def test_an_approved_purchase_that_its_pool_can_no_longer_use_is_voided(changes: dict[str, Any]):
    decided = decide(buying(changes), world(intent("approved", approved_by=("ana",))))
    assert not of(decided, SubmitPurchase)
    (settled,) = of(decided, SettlePurchase)
    assert (settled.outcome, settled.reason.kind in UNUSABLE) == ("voided", True)


@pytest.mark.parametrize("changes", ALL, ids=NAMES)
def test_the_buyer_asks_again_and_calls_nobody(changes: dict[str, Any]):
    granted = intent("approved", approved_by=("ana",))
    outside = Outside(buying(changes))
    outside.cloud.offers = [offer()]
    outside.books.propose(granted)
    outside.act(SubmitPurchase(granted, PurchaseReason(ReasonKind.APPROVED)))
    (after,) = outside.books.purchases()
    assert (after.state, outside.cloud.purchases) == (PurchaseState.VOIDED, [])
    assert after.reason is not None
    assert after.reason.kind in UNUSABLE


def test_the_buyer_leaves_out_offers_that_the_pool_cannot_use():
    granted = intent("approved", approved_by=("ana",), inside={"zones": (ZONE, OTHER)})
    outside = Outside(buying(BY_ZONE))
    outside.cloud.offers = [offer("cb-a", zone=ZONE, fee_usd=10_000), offer("cb-b", zone=OTHER)]
    outside.books.propose(granted)
    outside.act(SubmitPurchase(granted, PurchaseReason(ReasonKind.APPROVED)))
    assert [id_ for id_, _ in outside.cloud.purchases] == ["cb-b"]
