"""Which alerts hold: each from the facts that make it so, under a key that stays, and gone when they are."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.decide.builders import BLOCK, NOW, OWNER, ago, ahead, block, node, plan, pod, pool, spec, world
from tests.decide.purchases import buying, envelope, intent
from tidemill.decide import decide
from tidemill.model.alerts import Alert, AlertKind, Severity
from tidemill.model.capacity import ReservationState
from tidemill.model.plan import ForceDelete, Outcome, Plan, SubmitPurchase, Terminate, Warning
from tidemill.model.purchase_reasons import PurchaseReason, ReasonKind
from tidemill.model.reasons import EndKind, EndReason
from tidemill.model.warning_reasons import ServiceShort, ShortKind, WarningKind, WarningReason
from tidemill.model.world import World
from tidemill.report.alerts import NAMED, alerts
from tidemill.spec import Spec, names
from tidemill.wording import sentence

FORCED = EndReason(EndKind.LAST_SAFE_MOMENT, ahead("30m"))


def holding(of: Spec, seen: World, *outcomes: Outcome, decided: Plan | None = None) -> list[Alert]:
    """As the engine would find them: from the plan it makes of this world."""
    return list(alerts(of, seen, decide(of, seen) if decided is None else decided, outcomes))


def only(found: list[Alert]) -> Alert:
    assert len(found) == 1, [one.key for one in found]
    return found[0]


def facts(alert: Alert) -> dict[str, str]:
    return dict(alert.facts)


# --- approval -----------------------------------------------------------------------------------------


@pytest.mark.requirement("NT-1")
def test_a_proposal_that_waits_says_who_may_approve_what_and_until_when():
    of = buying(approval={"approvers": ["ana", "bo"]})
    alert = only(holding(of, world(intent())))
    assert (alert.kind, alert.severity, alert.about) == (AlertKind.APPROVAL_WAITING, Severity.WARNING, "tp-1")
    assert "tidemill approve tp-1" in alert.text
    told = facts(alert)
    assert (told["highest fee"], told["who may approve"]) == ("$30,000", "ana, bo")
    assert told["until"] == "2026-11-17T12:00:00Z"
    assert told["what"] == "4 x p5.48xlarge for 14d"
    assert told["why it waits"] == "it waits for approval (0 of 1)"


@pytest.mark.requirement("NT-1")
def test_one_that_needs_nobody_is_not_waited_for():
    of = buying("auto", approval={"autoMaxFeeUsd": 50_000})
    assert holding(of, world(intent())) == []


def test_one_that_expired_is_settled_and_not_waited_for():
    assert holding(buying(), world(intent(inside={"expires_at": ago("1m")}))) == []


def test_one_with_the_first_of_two_approvals_is_the_same_alert():
    of = buying("two")
    before, after = (only(holding(of, world(one))) for one in (intent(), intent(approved_by=("ana",))))
    assert before.key == after.key


@pytest.mark.requirement("NT-1")
def test_an_approved_purchase_that_a_ceiling_holds_back_is_told():
    of = buying(budget={"perPurchaseUsd": 20_000, "monthlyUsd": 500_000})
    alert = only(holding(of, world(intent("approved", approved_by=("ana",)))))
    assert (alert.kind, alert.title) == (AlertKind.APPROVAL_WAITING, "An approved purchase is held back")
    assert "up to $30,000 is over the ceiling of $20,000 for one purchase" in alert.text


def test_a_platform_that_only_proposes_says_that_too():
    assert "only proposes" in only(holding(buying("propose"), world(intent()))).text


# --- what becomes of purchases ------------------------------------------------------------------------


@pytest.mark.requirement("NT-1")
@pytest.mark.parametrize(
    ("reason", "answer"),
    [
        (PurchaseReason(ReasonKind.NO_OFFER), "not bought: no offer inside its envelope"),
        (
            PurchaseReason(ReasonKind.REFUSED_BY_AWS, detail="the offer is gone"),
            "not bought: the offer is gone",
        ),
    ],
)
def test_an_approved_purchase_without_an_offer_is_told_once_however_often_it_is_tried(
    reason: PurchaseReason, answer: str
):
    tried = intent("approved", approved_by=("ana",), reason=reason, state_at=ago("1m"))
    again = replace(tried, state_at=ago("12m"))
    first, second = (only(holding(buying(), world(one))) for one in (tried, again))
    assert first.kind is AlertKind.OFFER_GONE
    assert first == second
    assert facts(first)["last answer"] == answer


def test_an_approved_purchase_that_was_not_tried_yet_is_no_alert():
    assert holding(buying(), world(intent("approved", approved_by=("ana",)))) == []


def test_the_first_try_that_finds_nothing_is_told_at_once():
    approved = intent("approved", approved_by=("ana",))
    outcome = Outcome(SubmitPurchase(approved, "approved"), "no-capacity", "no offer inside its envelope")
    assert only(holding(buying(), world(approved), outcome)).kind is AlertKind.OFFER_GONE


@pytest.mark.requirement("NT-1")
def test_an_outcome_nobody_knows_is_critical():
    alert = only(
        holding(buying(), world(intent("unknown", fee_usd=25_000, state_at=ago("1h"), offer_id="cb-1")))
    )
    assert (alert.kind, alert.severity) == (AlertKind.PURCHASE_UNKNOWN, Severity.CRITICAL)
    assert "not repeated" in alert.text
    assert facts(alert)["offer"] == "cb-1"


@pytest.mark.requirement("NT-1")
def test_a_block_that_was_not_paid_is_one_alert_before_and_after_the_ledger_knows():
    bought = intent("confirmed", state_at=ago("13h"), reservation_ids=("cr-1",), fee_usd=25_000)
    unpaid = block(starts_in="2d", ends_in="16d", state=ReservationState.PAYMENT_FAILED, intent_id="tp-1")
    first = only(holding(buying(), world(bought, unpaid)))
    known = replace(bought, state_at=NOW, state=intent("failed").state)
    both = only(holding(buying(), world(known, unpaid)))
    alone = only(holding(buying(), world(known)))
    assert first.kind is AlertKind.PAYMENT_FAILED
    assert first.key == both.key == alone.key == "payment-failed/tp-1"


@pytest.mark.requirement("NT-1")
def test_an_extension_that_was_not_paid_says_that_the_block_ends_as_it_was():
    failed = intent("failed", extends="cr-1", reservation_ids=("cr-1",), state_at=ago("1h"))
    alert = only(holding(buying(), world(failed)))
    assert alert.kind is AlertKind.PAYMENT_FAILED
    assert "ends as it was" in alert.text


@pytest.mark.parametrize(
    ("fields", "others"),
    [
        ({"reservation_ids": ()}, ()),
        ({"state_at": ago("8d")}, ()),
        ({}, (intent("confirmed", id="tp-2", proposed_at=ago("1h"), reservation_ids=("cr-2",)),)),
    ],
    ids=["a person settled it", "a week ago", "bought again"],
)
def test_a_failed_payment_that_was_answered_is_over(fields: dict[str, Any], others: tuple[Any, ...]):
    failed = intent("failed", **{"reservation_ids": ("cr-1",), "state_at": ago("1h"), **fields})
    assert holding(buying(), world(failed, *others, block("cr-2", ends_in="16d"))) == []


# --- blocks -------------------------------------------------------------------------------------------


@pytest.mark.requirement("NT-1")
def test_fewer_instances_than_were_bought_are_told():
    bought = intent("confirmed", state_at=ago("3d"), reservation_ids=("cr-1",), fee_usd=25_000)
    alert = only(holding(buying(), world(bought, block(count=3, ends_in="16d"))))
    assert (alert.kind, alert.title) == (AlertKind.SHORT_DELIVERY, "cr-1 has 3 of 4 instances")
    assert holding(buying(), world(bought, block(count=4, ends_in="16d"))) == []


@pytest.mark.requirement("NT-1")
@pytest.mark.requirement("CB-17")
def test_a_block_bought_elsewhere_that_brings_fewer_instances_is_told():
    tagged = (("aws:ec2capacityreservation:incrementalRequestedQuantity", "4"),)
    alert = only(holding(buying(), world(block("cr-7", count=3, ends_in="16d", tags=tagged))))
    assert (alert.kind, alert.title) == (AlertKind.SHORT_DELIVERY, "cr-7 has 3 of 4 instances")
    assert facts(alert)["bought"] == "elsewhere"
    for fine in (
        block("cr-7", count=4, ends_in="16d", tags=tagged),
        block("cr-7", count=3, ends_in="16d", tags=tagged, owner="somebody"),
        block("cr-7", count=3, ends_in="16d", tags=tagged, ultraserver=True),
    ):
        assert not [one for one in holding(buying(), world(fine)) if one.kind is AlertKind.SHORT_DELIVERY]


@pytest.mark.requirement("NT-1")
@pytest.mark.requirement("CB-18")
def test_a_paid_successor_that_a_pin_keeps_out_is_told_until_the_pin_names_it():
    held, follows = block("cr-1", ends_in="24h"), block("cr-2", ends_in="90h", starts_in="2h", pool="p5")
    pinned = spec(pool(sources=[{"type": "block", "ids": ["cr-1"]}]))
    alert = only(holding(pinned, world(held, follows)))
    assert (alert.kind, alert.severity, alert.about) == (AlertKind.PIN_UNUSED, Severity.ERROR, "cr-2")
    assert facts(alert)["pin it to"] == "cr-1, cr-2"
    both = spec(pool(sources=[{"type": "block", "ids": ["cr-1", "cr-2"]}]))
    assert holding(both, world(held, follows)) == []
    bought = ((names.TAG_OWNER, OWNER), (names.TAG_POOL, "p5"), (names.TAG_INTENT, "pi-1"))
    assert holding(pinned, world(held, replace(follows, tags=bought))) == []  # the pin moves on to it


@pytest.mark.requirement("NT-1")
@pytest.mark.requirement("MG-5")
@pytest.mark.parametrize("provisioner", ["managed", "asg", "native"])
def test_nodes_that_never_join_are_told_once_a_day_for_a_pool_and_its_source(provisioner: str):
    of = spec(pool(provisioner=provisioner))
    late = [node(f"i-{number}", "launched", launched="20m", provisioner=provisioner) for number in range(2)]
    seen = world(block(ends_in="48h"), *late)
    alert = only(holding(of, seen))
    assert (alert.kind, alert.about, alert.lasts) == (AlertKind.NODES_NEVER_JOIN, "p5", False)
    assert facts(alert)["instances"] == "i-0, i-1"
    assert facts(alert)["provisioner"] == provisioner
    ended = [action for action in decide(of, seen).actions if isinstance(action, Terminate)]
    done = [Outcome(action, detail="nodeadm: Unauthorized") for action in ended]
    assert facts(only(holding(of, seen, *done)))["console of i-0"] == "nodeadm: Unauthorized"
    young = node("i-9", "launched", launched="5m", provisioner=provisioner)
    assert holding(of, world(block(ends_in="48h"), young)) == []


def going_on(**platform: Any) -> Spec:
    """A demand of four from now for nine days."""
    window = {
        "name": "week",
        "from": ago("1h"),
        "to": ahead("9d"),
        "instanceType": "p5.48xlarge",
        "instances": 4,
    }
    return buying(document=plan(demand=[window], extend={"policy": "never"}), **platform)


@pytest.mark.requirement("NT-1")
def test_the_last_day_to_extend_a_block_is_told_where_its_demand_goes_on():
    alert = only(holding(going_on(), world(block(ends_in="24h"))))
    assert (alert.kind, alert.about) == (AlertKind.EXTENSION_CLOSING, "cr-1")
    assert "2026-11-17T11:00:00Z" in alert.title
    assert "tidemill extend cr-1" in alert.text
    assert facts(alert)["demand"] == "november/week, until 2026-11-25T12:00:00Z"


@pytest.mark.requirement("NT-1")
@pytest.mark.parametrize(
    "things",
    [
        [block(ends_in="25h1m")],
        [block(ends_in="9d")],
        [block(ends_in="24h"), block("cr-2", starts_in="23h", ends_in="10d")],
        [block(ends_in="24h", extension_pending_to=ahead("8d"))],
        [block(ends_in="24h", owner="others")],
    ],
    ids=["too early", "long enough", "a successor is there", "an extension is on its way", "not ours"],
)
def test_a_block_that_need_not_be_extended_is_no_alert(things: list[Any]):
    assert holding(going_on(), world(things)) == []


def test_a_block_whose_extension_may_have_been_bought_is_told_as_that_and_not_with_an_end_that_aws_does_not_show():
    bound = envelope(latest_start=ahead("24h"), earliest_end=ahead("3d"))
    may_be = intent("unknown", extends="cr-1", window="week", envelope=bound, end=ahead("3d"))
    told = alerts(going_on(), world(block(ends_in="24h"), may_be), Plan(), ())
    assert not [one for one in told if one.kind is AlertKind.EXTENSION_CLOSING]


@pytest.mark.requirement("NT-1")
@pytest.mark.parametrize(
    ("things", "told"),
    [
        ([block(ends_in="24h", pool="p5")], ["cr-1"]),
        ([block(ends_in="24h", pool="p5"), block("cr-2", starts_in="20h", ends_in="10d", pool="p5")], []),
        ([block(ends_in="24h", pool="other")], []),
    ],
    ids=["nothing follows", "a successor is there", "another pool's"],
)
def test_a_calendar_is_a_demand_that_goes_on_too(things: list[Any], told: list[str]):
    steady = {"instanceTypes": ["p5.48xlarge"], "entries": [{"name": "base", "constant": {"instances": 4}}]}
    document = plan(demand=[], calendar=steady)
    found = [
        alert.about
        for alert in alerts(buying(document=document), world(things), Plan(), ())
        if alert.kind is AlertKind.EXTENSION_CLOSING
    ]
    assert found == told


def test_the_lead_of_that_warning_is_the_platforms():
    early = going_on(alerts={"extensionLead": "3d"})
    assert only(holding(early, world(block(ends_in="73h")))).kind is AlertKind.EXTENSION_CLOSING
    assert holding(going_on(), world(block(ends_in="73h"))) == []


# --- services and pods --------------------------------------------------------------------------------


@pytest.mark.requirement("NT-1")
def test_a_service_that_will_be_short_is_told_once_for_each_end():
    reason = ServiceShort(
        ShortKind.NO_SUCCESSOR, minimum=2, since=ahead("30m"), lasts=None, block="cr-1", deadline=ahead("24h"),
        method="evict", leaving=2, successor="", ready_from=None, remedies=(),
    )  # fmt: skip
    short = Warning("Deployment/chat", reason)
    alert = only(holding(spec(), world(), decided=Plan(warnings=(short,))))
    assert (alert.kind, alert.about) == (AlertKind.SERVICE_SHORT, "Deployment/chat")
    assert alert.text.startswith("It will have fewer than 2 ready from 2026-11-16T12:30:00Z on: ")
    assert alert.text.endswith(".")
    assert alert.key == "service-short/Deployment/chat/2026-11-17T12:00:00Z"


def test_other_warnings_are_no_alert():
    held = Warning("Deployment/chat", WarningReason(WarningKind.BUDGET_BLOCKS_EVICTION, at=ahead("1h")))
    assert holding(spec(), world(), decided=Plan(warnings=(held,))) == []


def forced(*names: str, error: str = "") -> list[Outcome]:
    return [Outcome(ForceDelete(f"uid-{name}", 20, FORCED), error) for name in names]


@pytest.mark.requirement("NT-1")
def test_pods_deleted_by_force_are_named_with_the_grace_they_had():
    here = node()
    alert = only(
        holding(
            spec(), world(here, block(), pod("a", on=here, team="vision"), pod("b", on=here)), *forced("a", "b"),
            decided=Plan(),
        )
    )  # fmt: skip
    assert (alert.kind, alert.about, alert.lasts) == (AlertKind.FORCED_EVICTION, "cr-1", False)
    assert alert.title == "2 pods were deleted by force on cr-1"
    told = facts(alert)
    assert told["pods, with the grace that was left"] == "ml/a (20 s), ml/b (20 s)"
    assert (told["teams"], told["why"]) == ("vision", sentence(FORCED))


def test_a_whole_block_forced_at_once_is_one_alert():
    here = node()
    names = [f"p{place:02}" for place in range(NAMED + 5)]
    seen = world(here, block(), [pod(name, on=here) for name in names])
    alert = only(holding(spec(), seen, *forced(*names), decided=Plan()))
    assert facts(alert)["pods, with the grace that was left"].endswith("and 5 more")


def test_each_source_has_its_own():
    here, there = node(), node("i-2", source=replace(BLOCK, id="cr-2"))
    seen = world(here, there, block(), block("cr-2"), pod("a", on=here), pod("b", on=there))
    found = holding(spec(), seen, *forced("a", "b"), decided=Plan())
    assert [one.about for one in found] == ["cr-1", "cr-2"]


def test_one_that_could_not_be_deleted_is_not_told():
    here = node()
    seen = world(here, block(), pod("a", on=here))
    assert holding(spec(), seen, *forced("a", error="retryable"), decided=Plan()) == []


def test_the_same_facts_give_the_same_alerts_at_another_time():
    of_another = {"instance_type": "p4d.24xlarge"}  # what may cover the same demand would void the first
    lost = intent("unknown", id="tp-2", state_at=ago("1h"), inside=of_another)
    things = (intent(), lost, block(ends_in="20h"))
    first, second = world(things[0], things[1], things[2]), world(*things, now=NOW + timedelta(minutes=9))
    of = going_on()
    assert [one.key for one in holding(of, first)] == [one.key for one in holding(of, second)]
    assert len(holding(of, first)) == 3
