"""`tidemill buy`, `approve` and `extend`: what is shown, who may say yes, what is refused, and what is bought once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.purchaser import P5, Office, pool
from tidemill.catalog import load

pytestmark = pytest.mark.requirement("CB-3")
CHEAP: dict[str, Any] = {"mode": "auto", "approval": {"autoMaxFeeUsd": 50_000}}


# --- an offer -----------------------------------------------------------------------------------------


def test_before_it_buys_it_shows_the_fee_the_price_the_budget_and_that_there_is_no_way_back(office: Office):
    offer = office.open().offer()
    told = office("buy", offer["id"], answer="n\n")
    assert told.code == 1
    assert (
        f"${offer['fee_usd']:,} up front; at most ${offer['fee_usd'] * 110 // 100:,} if it changes"
        in told.err
    )
    assert (
        f"${offer['usd_per_gpu_h']:.2f} per GPU-hour, {-offer['against_on_demand']:.0%} below on demand"
        in told.err
    )
    assert f"$100,000 a month, $0 spent, ${100_000 - offer['fee_usd']:,} left after this" in told.err
    assert "cannot be cancelled, moved, changed or refunded" in told.err
    assert "not bought: you said no" in told.err
    assert office.purchases() == []


def test_silence_is_not_a_yes(office: Office):
    told = office.open()("buy", office.offer()["id"], answer="")
    assert (told.code, office.purchases()) == (2, [])
    assert "no answer on stdin" in told.err
    assert office("buy", office.offer()["id"], answer="\n").code == 1


def test_yes_skips_the_question_and_not_the_approval(office: Office):
    told = office.open()("buy", office.offer()["id"], "--yes")
    assert told.code == 0
    assert "is proposed; it waits for approval (0 of 1): tidemill approve tp-" in told.out
    assert office.calls("purchase") == 0


def test_approved_by_somebody_else_it_is_bought_with_its_tags(office: Office):
    block = office.open().bought()
    (held,) = office.purchases()
    assert (held["state"], held["reservation_ids"]) == ("confirmed", [block])
    (found,) = office.blocks()
    assert (found["id"], found["held"], found["pool"], found["intent"]) == (
        block,
        "bought",
        "train",
        held["id"],
    )
    assert [(said["who"].rsplit("/")[-1], said["approved"]) for said in held["verdicts"]] == [("ana", True)]


def test_what_the_policy_buys_by_itself_is_bought_at_once(office: Office):
    told = office.open(**CHEAP)("buy", office.offer()["id"], "--yes")
    assert told.code == 0
    assert "bought cr-" in told.out
    assert office.calls("purchase") == 1


@pytest.mark.requirement("CB-4")
def test_the_same_offer_is_not_bought_twice_unless_one_says_so(office: Office):
    id_ = office.open(**CHEAP).offer()["id"]
    assert office("buy", id_, "--yes").code == 0
    again = office("buy", id_, "--yes")
    assert again.code == 1
    assert "bought this already: cr-" in again.err
    assert office("buy", id_, "--yes", "--another").code == 0
    assert office.calls("purchase") == 2


def test_an_offer_that_waits_is_not_proposed_a_second_time(office: Office):
    id_ = office.open().offer()["id"]
    intent = office("buy", id_, "--yes", "--json").json["intent"]["id"]
    assert (
        f"{intent} asks for this already and is proposed: tidemill approve {intent}" in office("buy", id_).err
    )


def test_after_a_no_the_same_offer_may_be_proposed_again(office: Office):
    id_ = office.open().offer()["id"]
    first = office("buy", id_, "--yes", "--json").json["intent"]["id"]
    assert office("approve", first, "--refuse", "--note", "too early", who="ana").code == 0
    second = office("buy", id_, "--yes", "--json").json["intent"]["id"]
    assert (office.state(first), office.state(second)) == ("refused", "proposed")


def test_an_offer_that_is_gone_is_not_bought_and_another_is_not_taken_for_it(office: Office):
    id_ = office.open().offer(P5, "--start", "2026-11-17")["id"]
    office.wait("2d")
    told = office("buy", id_, "--yes")
    assert told.code == 1
    assert "is no longer sold; search again" in told.err


def test_the_same_block_under_another_id_is_still_the_same_block(office: Office):
    id_ = office.open(**CHEAP).offer()["id"]
    office.wait("13h")  # in a market of plenty an offer stands for twelve
    told = office("buy", id_, "--yes")
    assert told.code == 0
    assert f"{id_} is gone; EC2 now sells the same block as cb-" in told.err


@pytest.mark.requirement("CB-4")
def test_the_same_line_buys_once_though_the_offer_has_another_id_by_then(office: Office):
    id_ = office.open(**CHEAP).offer()["id"]
    assert office("buy", id_, "--yes").code == 0
    office.wait("13h")
    again = office("buy", id_, "--yes")
    assert (again.code, office.calls("purchase")) == (1, 1)
    assert f"{id_} is gone; EC2 now sells the same block as cb-" in again.err
    assert "bought this already: cr-" in again.err


@pytest.mark.requirement("CB-4")
def test_the_like_of_a_block_of_ours_is_not_bought_by_mistake(office: Office):
    office.open(**CHEAP)
    block = office(
        "sim", "buy-elsewhere", P5, "--count", "2", "--zone", "us-east-1a", "--duration", "14d"
    ).out
    assert office("adopt", block.strip(), "--yes").code == 0
    wish = (P5, "--count", "2", "--duration", "7d", "--start", "2026-11-19", "--zone", "us-east-1a")
    told = office("buy", office.offer(*wish)["id"], "--yes")
    assert told.code == 1
    assert f"this deployment already holds {block.strip()}, the same block at the same time" in told.err
    assert office("buy", office.offer(*wish)["id"], "--yes", "--another").code == 0


def test_a_block_that_starts_now_can_be_bought_though_its_start_moves(office: Office):
    found = office.open(**CHEAP)("offers", P5, "--duration", "2d", "--to", "2026-11-16", "--json").json[
        "offers"
    ]
    office.wait("20m")
    assert office("buy", found[0]["id"], "--yes").code == 0


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("cb-00000000000000000", "is not among the offers you were shown"),
        ("tp-000", "this ledger has no purchase 'tp-000'"),
        ("cr-000", "to buy more time on it: tidemill extend cr-000 --by TIME"),
        ("p5.48xlarge", "is neither an offer (cb-…) nor an intent (tp-…)"),
    ],
)
def test_what_cannot_be_bought_is_answered_with_what_to_do(office: Office, what, says):
    told = office.open()("buy", what)
    assert told.code == 2
    assert says in told.err


def test_a_pool_must_be_named_where_several_could_use_it(office: Office):
    office.write(pool("a", P5), pool("b", P5), pool("c", "p4d.24xlarge"))
    office("sim", "new", str(office.sim), "--at", "2026-11-16T08:00:00Z")
    id_ = office.offer()["id"]
    assert "several pools can use it (a, b); name one with --pool" in office("buy", id_).err
    assert "pool c cannot use it" in office("buy", id_, "--pool", "c").err
    assert office("buy", id_, "--pool", "b", "--yes", "--json").json["intent"]["pool"] == "b"


def test_what_could_start_nowhere_is_not_bought(office: Office):
    zone_c = {"us-east-1a": ["subnet-0a1"], "us-east-1c": ["subnet-0c1"]}
    office.open(**CHEAP, subnets=zone_c)
    id_ = office.offer(P5, "--count", "2", "--duration", "7d", "--zone", "us-east-1c")["id"]
    office.write(**CHEAP)
    told = office("buy", id_, "--yes")
    assert (told.code, office.calls("purchase")) == (2, 0)
    assert "no subnet in us-east-1c, so nothing can start there; add one to spec.subnets" in told.err


def test_what_the_pools_limits_could_never_hold_is_not_bought(office: Office):
    office.open()
    office.write(pool("train", P5, limits={"nodes": 2}), **CHEAP)
    wish = (P5, "--count", "3", "--duration", "7d", "--zone", "us-east-1a")
    searched = office("offers", *wish)
    assert (searched.code, "the limits of pool train allow 2 x p5.48xlarge, not 3" in searched.err) == (
        0,
        True,
    )
    told = office("buy", office.offer(*wish)["id"], "--yes")
    assert (told.code, office.calls("purchase")) == (2, 0)
    assert "allow 2 x p5.48xlarge, not 3; raise spec.limits of the pool, or buy fewer" in told.err


def test_what_the_limits_could_not_hold_beside_other_blocks_is_warned_of(office: Office):
    office.open()
    office.write(pool("train", P5, limits={"nodes": 4}), **CHEAP)
    given = ("--count", "3", "--zone", "us-east-1a", "--duration", "14d")
    block = office("sim", "buy-elsewhere", P5, *given).out.strip()
    assert office("adopt", block, "--pool", "train", "--yes").code == 0
    assert "warning" not in office("buy", office.offer(P5, "--duration", "7d")["id"], answer="n\n").err
    told = office("buy", office.offer(P5, "--count", "2", "--duration", "7d")["id"], "--yes")
    assert told.code == 0
    assert "warning: pool train has 3 instances in blocks at that time" in told.err


# --- who may, and how much ----------------------------------------------------------------------------


def test_over_the_budget_nothing_is_even_proposed(office: Office):
    office.open(budget={"perPurchaseUsd": 5_000, "monthlyUsd": 100_000})
    told = office("buy", office.offer()["id"], "--yes")
    assert told.code == 1
    assert "is over the ceiling of $5,000 for one purchase" in told.err
    assert office.purchases() == []


def test_what_was_bought_this_month_counts(office: Office):
    office.open(**CHEAP, budget={"perPurchaseUsd": 50_000, "monthlyUsd": 20_000})
    assert office("buy", office.offer()["id"], "--yes").code == 0
    told = office("buy", office.offer(P5, "--count", "3", "--duration", "7d")["id"], "--yes")
    assert told.code == 1
    assert "is over the monthly budget of $20,000" in told.err


def test_a_platform_that_only_proposes_buys_nothing(office: Office):
    told = office.open(mode="propose")("buy", office.offer()["id"], "--yes")
    assert told.code == 1
    assert "approval.mode is propose" in told.err


def test_the_ceilings_of_the_process_bind_where_the_documents_are_generous(
    office: Office, monkeypatch: pytest.MonkeyPatch
):
    id_ = office.open(**CHEAP).offer()["id"]
    monkeypatch.setenv("TIDEMILL_MAX_FEE_USD", "1000")
    assert "over the ceiling of $1,000" in office("buy", id_, "--yes").err
    monkeypatch.delenv("TIDEMILL_MAX_FEE_USD")
    monkeypatch.setenv("TIDEMILL_APPROVAL", "two")
    assert "it waits for approval (0 of 2)" in office("buy", id_, "--yes").out


def test_the_proposer_cannot_approve(office: Office):
    intent = office.open().proposed()
    told = office("approve", intent, "--yes")
    assert told.code == 1
    assert "user/you proposed it; somebody else must decide" in told.err
    assert "Approve it?" not in office("approve", intent, answer="y\n").err
    assert office.state(intent) == "proposed"


def test_two_different_people_where_the_platform_asks_for_two(office: Office):
    intent = office.open(mode="two").proposed()
    assert (
        "has your approval; it waits for approval (1 of 2)"
        in office("approve", intent, "--yes", who="ana").out
    )
    assert "has approved purchase" in office("approve", intent, "--yes", who="ana").err
    assert "is approved" in office("approve", intent, "--yes", who="bo").out


@pytest.mark.requirement("CB-4")
def test_two_session_names_of_one_role_are_not_two_people(office: Office):
    role = "arn:aws:sts::123456789012:assumed-role/tidemill-operator"
    intent = office.open(mode="two").proposed()
    assert office("approve", intent, "--yes", who=f"{role}/ana-1").code == 0
    told = office("approve", intent, "--yes", who=f"{role}/ana-2")
    assert (told.code, "a session name proves nobody" in told.err) == (1, True)
    assert "(1 of 2)" in office("buy", intent, "--yes").err


def test_what_was_approved_can_be_refused_before_it_is_bought(office: Office):
    intent = office.open().approved()
    assert office("approve", intent, "--refuse", "--note", "too dear", who="bo").code == 0
    assert "is refused; there is nothing left to buy" in office("buy", intent, "--yes").err


def test_what_is_approved_too_little_by_now_waits_again(office: Office):
    intent = office.open().approved()
    assert office("approve", "--json").json["waiting"] == []
    office.write(mode="two")
    (row,) = office("approve", "--json").json["waiting"]
    assert (row["id"], row["waits_for"]) == (intent, "it waits for approval (1 of 2)")
    assert "is approved" in office("approve", intent, "--yes", who="bo").out
    assert office("buy", intent, "--yes").code == 0


def test_only_approvers_approve(office: Office):
    arn = "arn:aws:sts::123456789012:assumed-role/finance/bo"
    intent = office.open(approval={"approvers": [arn]}).proposed()
    assert "may not decide on purchases" in office("approve", intent, "--yes", who="ana").err
    assert office("approve", intent, "--yes", who=arn).code == 0


def test_an_approval_asks_and_the_default_is_no(office: Office):
    intent = office.open().proposed()
    assert office("approve", intent, who="ana", answer="\n").code == 1
    assert office.state(intent) == "proposed"
    assert office("approve", intent, who="ana", answer="y\n").code == 0


def test_those_that_wait_are_listed(office: Office):
    office.open()
    assert office("approve").out == "no purchase waits for approval\n"
    intent = office.proposed()
    assert intent in office("approve").out
    (row,) = office("approve", "--json").json["waiting"]
    assert (row["id"], row["waits_for"]) == (intent, "it waits for approval (0 of 1)")


def test_several_are_decided_on_and_one_wrong_id_does_not_stop_the_others(office: Office):
    intent = office.open().proposed()
    told = office("approve", "tp-000", intent, "--yes", who="ana")
    assert told.code == 1
    assert "has no purchase 'tp-000'" in told.err
    assert office.state(intent) == "approved"


def test_an_expired_proposal_can_neither_be_approved_nor_bought(office: Office):
    office.open()
    late, ready = office.proposed(), office.approved(P5, "--count", "1", "--start", "2026-11-30")
    office.wait("25h")
    assert "has expired" in office("approve", late, "--yes", who="ana").err
    assert office("approve", late, "--refuse", who="ana").code == 0
    told = office("buy", ready, "--yes")
    assert told.code == 1
    assert "has expired and cannot be bought" in told.err
    assert office.calls("purchase") == 0


def test_what_nobody_approved_is_not_bought(office: Office):
    intent = office.open().proposed()
    told = office("buy", intent, "--yes")
    assert told.code == 1
    assert "may not be bought: it waits for approval (0 of 1)" in told.err


def test_what_is_bought_refused_or_void_has_nothing_left_to_buy(office: Office):
    intent = office.open().proposed()
    office("approve", intent, "--refuse", who="ana")
    assert "is refused; there is nothing left to buy" in office("buy", intent, "--yes").err


# --- where ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-4")
def test_nothing_is_bought_from_a_ledger_in_memory(office: Office):
    told = office.open(**CHEAP)("buy", office.offer()["id"], "--yes", "--ledger", "memory:")
    assert told.code == 1
    assert "in memory" in told.err


@pytest.mark.requirement("CB-4")
def test_nothing_is_bought_from_another_deployments_ledger(office: Office):
    office.open(**CHEAP).proposed()
    office.write(**CHEAP, deployment="other")
    told = office("buy", office.offer()["id"], "--yes")
    assert told.code == 1
    assert "this ledger belongs to deployment mill, not to other" in told.err


def test_in_the_wrong_account_nothing_is_touched(office: Office):
    office.open(accountId="123456789012")
    told = office("blocks", who="arn:aws:sts::999999999999:assumed-role/tidemill-operator/you")
    assert told.code == 1
    assert "the Platform is in account 123456789012" in told.err


@pytest.mark.requirement("CB-4")
def test_a_ledger_never_serves_two_accounts(office: Office):
    office.open().proposed()
    told = office("approve", who="arn:aws:sts::999999999999:assumed-role/tidemill-operator/ana")
    assert told.code == 1
    assert "this ledger belongs to account 123456789012, not to 999999999999" in told.err


def test_an_account_is_made_where_there_is_none_and_belongs_to_its_region(office: Office):
    office.write()
    assert "created a simulated account in" in office("offers", P5).err
    office.write(region="us-west-2", subnets={"us-west-2a": ["subnet-1"]})
    told = office("offers", P5)
    assert told.code == 2
    assert "is an account in us-east-1, but the Platform is in us-west-2" in told.err


def test_json_has_the_intent_its_state_and_its_price(office: Office):
    told = office.open(**CHEAP)("buy", office.offer()["id"], "--yes", "--json").json
    assert set(told) == {
        "intent", "state", "reservation_ids", "fee_usd", "usd_per_gpu_h", "against_on_demand", "said",
    }  # fmt: skip
    assert told["state"] == "confirmed"
    assert told["intent"]["envelope"]["max_fee_usd"] >= told["fee_usd"] > 0
    json.dumps(told)


# --- extensions ---------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-6")
def test_an_extension_is_shown_approved_bought_and_moves_the_end_when_it_is_paid(office: Office):
    block = office.open().bought()
    (before,) = office.blocks()
    told = office("extend", block, "--by", "7d", "--yes", "--json")
    assert told.json["state"] == "proposed"
    fee = round((load().types[P5].block_usd_h or 0) * 2 * 168)
    assert f"more time on {block}, 2 x {P5}" in told.err
    assert f"${fee:,} up front" in told.err
    intent = told.json["intent"]["id"]
    assert office("approve", intent, "--yes", who="ana").code == 0
    assert f"extended {block} for ${fee:,}" in office("buy", intent, "--yes").out
    (pending,) = office.blocks()
    assert (pending["end"], pending["extension_pending_to"] > before["end"]) == (before["end"], True)
    office.wait("10m")
    (after,) = office.blocks()
    assert (after["end"], after["extension_pending_to"]) == (pending["extension_pending_to"], None)


@pytest.mark.requirement("CB-6")
def test_ec2s_rules_for_extensions_are_passed_on(office: Office):
    block = office.open(**CHEAP)("buy", office.offer()["id"], "--yes", "--json").json["reservation_ids"][0]
    office.wait("10m")
    assert (
        "EC2 does not sell 15d; the nearest it sells: 14d and 21d"
        in office("extend", block, "--by", "15d").err
    )
    assert office("extend", block, "--by", "7d", "--yes").code == 0
    pending = office("extend", block, "--by", "7d", "--yes")
    assert pending.code == 1
    assert "already has an extension whose payment is pending" in pending.err
    office.wait("56d")
    assert office("extend", block, "--by", "7d", "--yes").code != 0


@pytest.mark.requirement("CB-6")
def test_one_extension_of_a_block_is_asked_for_at_a_time(office: Office):
    block = office.open().bought()
    first = office("extend", block, "--by", "7d", "--yes", "--json").json["intent"]["id"]
    told = office("extend", block, "--by", "14d", "--yes")
    assert told.code == 1
    assert f"{first} asks for this already and is proposed: tidemill approve {first}" in told.err


@pytest.mark.requirement("CB-6")
def test_an_extension_that_expired_unanswered_is_asked_for_anew(office: Office):
    block = office.open().bought()
    late = office("extend", block, "--by", "7d", "--yes", "--json").json["intent"]["id"]
    office.wait("25h")
    assert f"propose it again: tidemill extend {block} --by 7d" in office("buy", late, "--yes").err
    told = office("extend", block, "--by", "7d", "--yes", "--json")
    assert told.code == 0, told.err
    assert (office.state(late), told.json["state"]) == ("voided", "proposed")


@pytest.mark.requirement("CB-6")
def test_an_extension_is_sold_until_an_hour_before_the_end(office: Office):
    office.open()
    block = office("sim", "buy-elsewhere", P5, "--zone", "us-east-1a", "--duration", "1d").out.strip()
    assert office("adopt", block, "--yes").code == 0
    office.wait("26h45m")  # it ends on the 17th at 11:30
    told = office("extend", block, "--by", "7d")
    assert told.code == 1
    assert "is extended from 56 days to 1 hour before its end" in told.err


@pytest.mark.requirement("CB-6")
def test_where_no_more_time_is_sold_a_new_block_is_suggested(office: Office):
    office.open(market="none")
    block = office("sim", "buy-elsewhere", P5, "--zone", "us-east-1a", "--duration", "7d").out.strip()
    assert "does not belong to this deployment; adopt it first" in office("extend", block, "--by", "7d").err
    assert office("adopt", block, "--yes").code == 0
    told = office("extend", block, "--by", "7d", "--yes")
    assert told.code == 1
    assert f"tidemill offers {P5} --count 1 --duration 7d --start 2026-11-23" in told.err


def test_a_block_nobody_knows_cannot_be_extended(office: Office):
    told = office.open()("extend", "cr-000", "--by", "7d")
    assert (told.code, "AWS shows no block 'cr-000'" in told.err) == (2, True)
