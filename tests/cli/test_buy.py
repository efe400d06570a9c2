"""`tidemill buy`, `approve` and `extend`: what is shown, who may approve, what is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from tests.cli.purchaser import CHEAP, P5, Purchaser, pool
from tidemill.catalog import load
from tidemill.sim.cloud.account import SimAccount
from tidemill.spec.usable_blocks import was_bought_for

pytestmark = pytest.mark.requirement("CB-3")


# --- an offer -----------------------------------------------------------------------------------------


def test_buy_shows_fee_price_budget_and_that_it_is_final_before_it_asks(purchaser: Purchaser):
    offer = purchaser.open().offer()
    result = purchaser("buy", offer["id"], answer="n\n")
    assert result.code == 1
    assert (
        f"${offer['fee_usd']:,} up front; at most ${offer['fee_usd'] * 110 // 100:,} if it changes"
        in result.err
    )
    assert (
        f"${offer['usd_per_gpu_h']:.2f} per GPU-hour, {-offer['against_on_demand']:.0%} below on demand"
        in result.err
    )
    assert f"$100,000 a month, $0 spent, ${100_000 - offer['fee_usd']:,} left after this" in result.err
    assert "cannot be cancelled, moved, changed or refunded" in result.err
    assert "not bought: you said no" in result.err
    assert purchaser.purchases() == []


def test_no_answer_on_stdin_buys_nothing(purchaser: Purchaser):
    result = purchaser.open()("buy", purchaser.offer()["id"], answer="")
    assert (result.code, purchaser.purchases()) == (2, [])
    assert "no answer on stdin" in result.err
    assert purchaser("buy", purchaser.offer()["id"], answer="\n").code == 1


def test_yes_skips_the_question_but_not_the_approval(purchaser: Purchaser):
    result = purchaser.open()("buy", purchaser.offer()["id"], "--yes")
    assert result.code == 0
    assert "is proposed; it waits for approval (0 of 1): tidemill approve tp-" in result.out
    assert purchaser.calls("purchase") == 0


def test_an_intent_approved_by_another_person_is_bought_with_its_tags(purchaser: Purchaser):
    block = purchaser.open().bought()
    (held,) = purchaser.purchases()
    assert (held["state"], held["reservation_ids"]) == ("confirmed", [block])
    (found,) = purchaser.blocks()
    assert (found["id"], found["held"], found["pool"], found["intent"]) == (
        block,
        "bought",
        "train",
        held["id"],
    )
    assert [(said["who"].rsplit("/")[-1], said["approved"]) for said in held["verdicts"]] == [("ana", True)]


def test_with_automatic_approval_an_offer_is_bought_at_once(purchaser: Purchaser):
    result = purchaser.open(**CHEAP)("buy", purchaser.offer()["id"], "--yes")
    assert result.code == 0
    assert "bought cr-" in result.out
    assert purchaser.calls("purchase") == 1


@pytest.mark.requirement("CB-4")
def test_the_same_offer_is_bought_twice_only_with_another(purchaser: Purchaser):
    id_ = purchaser.open(**CHEAP).offer()["id"]
    assert purchaser("buy", id_, "--yes").code == 0
    again = purchaser("buy", id_, "--yes")
    assert again.code == 1
    assert "bought this already: cr-" in again.err
    assert purchaser("buy", id_, "--yes", "--another").code == 0
    assert purchaser.calls("purchase") == 2


def test_an_offer_that_waits_for_approval_is_not_proposed_again(purchaser: Purchaser):
    id_ = purchaser.open().offer()["id"]
    intent = purchaser("buy", id_, "--yes", "--json").json["intent"]["id"]
    assert (
        f"{intent} asks for this already and is proposed: tidemill approve {intent}"
        in purchaser("buy", id_).err
    )


def test_a_refused_offer_may_be_proposed_again(purchaser: Purchaser):
    id_ = purchaser.open().offer()["id"]
    first = purchaser("buy", id_, "--yes", "--json").json["intent"]["id"]
    assert purchaser("approve", first, "--refuse", "--note", "too early", who="ana").code == 0
    second = purchaser("buy", id_, "--yes", "--json").json["intent"]["id"]
    assert (purchaser.state(first), purchaser.state(second)) == ("refused", "proposed")


def test_an_offer_that_is_gone_is_not_replaced_by_a_different_one(purchaser: Purchaser):
    id_ = purchaser.open().offer(P5, "--start", "2026-11-17")["id"]
    purchaser.advance("2d")
    result = purchaser("buy", id_, "--yes")
    assert result.code == 1
    assert "is no longer sold; search again" in result.err


def test_the_same_block_under_a_new_offer_id_is_bought(purchaser: Purchaser):
    id_ = purchaser.open(**CHEAP).offer()["id"]
    purchaser.advance("13h")  # in a market of plenty an offer stands for twelve
    result = purchaser("buy", id_, "--yes")
    assert result.code == 0
    assert f"{id_} is gone; EC2 now sells the same block as cb-" in result.err


@pytest.mark.requirement("CB-4")
def test_repeating_the_command_buys_once_even_if_the_offer_id_changed(purchaser: Purchaser):
    id_ = purchaser.open(**CHEAP).offer()["id"]
    assert purchaser("buy", id_, "--yes").code == 0
    purchaser.advance("13h")
    again = purchaser("buy", id_, "--yes")
    assert (again.code, purchaser.calls("purchase")) == (1, 1)
    assert f"{id_} is gone; EC2 now sells the same block as cb-" in again.err
    assert "bought this already: cr-" in again.err


@pytest.mark.requirement("CB-4")
def test_a_block_equal_to_one_we_hold_needs_another(purchaser: Purchaser):
    purchaser.open(**CHEAP)
    block = purchaser(
        "sim", "buy-elsewhere", P5, "--count", "2", "--zone", "us-east-1a", "--duration", "14d"
    ).out
    assert purchaser("adopt", block.strip(), "--yes").code == 0
    wish = (P5, "--count", "2", "--duration", "7d", "--start", "2026-11-19", "--zone", "us-east-1a")
    result = purchaser("buy", purchaser.offer(*wish)["id"], "--yes")
    assert result.code == 1
    assert f"this deployment already holds {block.strip()}, the same block at the same time" in result.err
    assert purchaser("buy", purchaser.offer(*wish)["id"], "--yes", "--another").code == 0


def test_a_block_that_starts_now_can_be_bought_although_its_start_moves(purchaser: Purchaser):
    found = purchaser.open(**CHEAP)("offers", P5, "--duration", "2d", "--to", "2026-11-16", "--json").json[
        "offers"
    ]
    purchaser.advance("20m")
    assert purchaser("buy", found[0]["id"], "--yes").code == 0


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("cb-00000000000000000", "is not among the offers you were shown"),
        ("tp-000", "and so no purchase 'tp-000'"),
        ("cr-000", "to buy more time on it: tidemill extend cr-000 --by TIME"),
        ("p5.48xlarge", "is neither an offer (cb-…) nor an intent (tp-…)"),
    ],
)
def test_an_id_that_cannot_be_bought_gives_a_hint(purchaser: Purchaser, what, says):
    result = purchaser.open()("buy", what)
    assert result.code == 2
    assert says in result.err


def test_the_pool_must_be_named_if_several_can_use_the_block(purchaser: Purchaser):
    purchaser.write(pool("a", P5), pool("b", P5), pool("c", "p4d.24xlarge"))
    purchaser("sim", "new", str(purchaser.sim), "--at", "2026-11-16T08:00:00Z")
    id_ = purchaser.offer()["id"]
    assert "several pools can use it (a, b); name one with --pool" in purchaser("buy", id_).err
    assert (
        "the requirements of pool c exclude p5.48xlarge, so it could not use it"
        in purchaser("buy", id_, "--pool", "c").err
    )
    assert purchaser("buy", id_, "--pool", "b", "--yes", "--json").json["intent"]["pool"] == "b"


def test_a_block_in_a_zone_without_subnet_is_not_bought(purchaser: Purchaser):
    zone_c = {"us-east-1a": ["subnet-0a1"], "us-east-1c": ["subnet-0c1"]}
    purchaser.open(**CHEAP, subnets=zone_c)
    id_ = purchaser.offer(P5, "--count", "2", "--duration", "7d", "--zone", "us-east-1c")["id"]
    purchaser.write(**CHEAP)
    result = purchaser("buy", id_, "--yes")
    assert (result.code, purchaser.calls("purchase")) == (2, 0)
    assert "no subnet in us-east-1c, so nothing could start there" in result.err


def test_a_block_larger_than_the_pools_limits_is_not_bought(purchaser: Purchaser):
    purchaser.open()
    purchaser.write(pool("train", P5, limits={"nodes": 2}), **CHEAP)
    wish = (P5, "--count", "3", "--duration", "7d", "--zone", "us-east-1a")
    searched = purchaser("offers", *wish)
    assert (searched.code, "the limits of pool train allow 2 x p5.48xlarge, not 3" in searched.err) == (
        0,
        True,
    )
    result = purchaser("buy", purchaser.offer(*wish)["id"], "--yes")
    assert (result.code, purchaser.calls("purchase")) == (2, 0)
    assert "allow 2 x p5.48xlarge, not 3: raise spec.limits of the pool, or buy fewer" in result.err


def test_limits_too_small_beside_other_blocks_refuse_it_or_give_a_warning(purchaser: Purchaser):
    purchaser.open()
    purchaser.write(pool("train", P5, limits={"nodes": 4}), **CHEAP)
    given = ("--count", "3", "--zone", "us-east-1a", "--duration", "14d")
    block = purchaser("sim", "buy-elsewhere", P5, *given).out.strip()
    assert purchaser("adopt", block, "--pool", "train", "--yes").code == 0
    assert "warning" not in purchaser("buy", purchaser.offer(P5, "--duration", "7d")["id"], answer="n\n").err
    soon = (P5, "--count", "2", "--from", "2026-11-18", "--to", "2026-11-26", "--duration")
    inside = purchaser("buy", purchaser.offer(*soon, "7d")["id"], "--yes")
    assert (inside.code, purchaser.calls("purchase")) == (2, 0)
    assert "allow 1 x p5.48xlarge beside its other blocks for most of that time, not 2" in inside.err
    longer = purchaser("buy", purchaser.offer(*soon, "28d")["id"], "--yes")
    assert longer.code == 0
    assert (
        "warning: the limits of pool train allow 1 x p5.48xlarge beside its other blocks for part"
        in longer.err
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"sources": [{"type": "block", "zones": ["us-east-1b"]}]},
            "cannot use a block in us-east-1a; it may be in",
        ),
        (
            {"requirements": {"zones": ["us-east-1b"]}},
            "cannot use a block in us-east-1a; it may be in us-east-1b",
        ),
        ({"sources": [{"type": "block", "tags": {"team": "x"}}]}, "uses only blocks with the tags team=x"),
        ({"limits": {"gpus": 8}}, "the limits of pool train allow 1 x p5.48xlarge, not 2"),
        ({"sources": [{"type": "on-demand"}]}, "has no source of type block"),
    ],
    ids=["source zones", "zones", "tags", "gpus", "no block source"],
)
def test_a_block_that_its_pool_could_not_use_is_not_bought(purchaser: Purchaser, changes, says):
    """When it is asked for, when it is approved, and when it is submitted."""

    def wish(start: str, end: str) -> tuple[str, ...]:
        dates = ("--from", f"2026-{start}", "--to", f"2026-{end}")
        return (P5, "--count", "2", "--duration", "3d", "--zone", "us-east-1a", *dates)

    purchaser.open()
    waiting = purchaser.proposed(*wish("11-18", "11-19"))
    approved = purchaser.approved(*wish("11-25", "11-26"))
    purchaser.write(pool("train", P5, **changes))
    for command in (
        ("buy", purchaser.offer(*wish("12-05", "12-06"))["id"], "--pool", "train", "--yes"),
        ("approve", waiting, "--yes"),
        ("buy", approved, "--yes"),
    ):
        result = purchaser(*command, who="ana")
        assert result.code != 0
        assert says in result.err
    assert purchaser.calls("purchase") == 0


# --- who may, and how much ----------------------------------------------------------------------------


def test_a_fee_over_the_ceiling_is_not_proposed(purchaser: Purchaser):
    purchaser.open(budget={"perPurchaseUsd": 5_000, "monthlyUsd": 100_000})
    result = purchaser("buy", purchaser.offer()["id"], "--yes")
    assert result.code == 1
    assert "is over the ceiling of $5,000 for one purchase" in result.err
    assert purchaser.purchases() == []


def test_purchases_of_this_month_count_against_the_budget(purchaser: Purchaser):
    purchaser.open(**CHEAP, budget={"perPurchaseUsd": 50_000, "monthlyUsd": 20_000})
    assert purchaser("buy", purchaser.offer()["id"], "--yes").code == 0
    result = purchaser("buy", purchaser.offer(P5, "--count", "3", "--duration", "7d")["id"], "--yes")
    assert result.code == 1
    assert "is over the monthly budget of $20,000" in result.err


def test_approval_mode_propose_buys_nothing(purchaser: Purchaser):
    result = purchaser.open(mode="propose")("buy", purchaser.offer()["id"], "--yes")
    assert result.code == 1
    assert "approval.mode is propose" in result.err


def test_ceilings_in_the_environment_limit_the_documents(
    purchaser: Purchaser, monkeypatch: pytest.MonkeyPatch
):
    id_ = purchaser.open(**CHEAP).offer()["id"]
    monkeypatch.setenv("TIDEMILL_MAX_FEE_USD", "1000")
    assert "over the ceiling of $1,000" in purchaser("buy", id_, "--yes").err
    monkeypatch.delenv("TIDEMILL_MAX_FEE_USD")
    monkeypatch.setenv("TIDEMILL_APPROVAL", "two")
    assert "it waits for approval (0 of 2)" in purchaser("buy", id_, "--yes").out


def test_the_proposer_cannot_approve(purchaser: Purchaser):
    intent = purchaser.open().proposed()
    result = purchaser("approve", intent, "--yes")
    assert result.code == 1
    assert "user/you proposed it; somebody else must decide" in result.err
    assert "Approve it?" not in purchaser("approve", intent, answer="y\n").err
    assert purchaser.state(intent) == "proposed"


def test_approval_mode_two_needs_two_people(purchaser: Purchaser):
    intent = purchaser.open(mode="two").proposed()
    assert (
        "has your approval; it waits for approval (1 of 2)"
        in purchaser("approve", intent, "--yes", who="ana").out
    )
    assert "has approved purchase" in purchaser("approve", intent, "--yes", who="ana").err
    assert "is approved" in purchaser("approve", intent, "--yes", who="bo").out


@pytest.mark.requirement("CB-18")
def test_a_block_is_bought_for_a_pinned_pool_with_the_tags_that_its_pin_moves_on_to(purchaser: Purchaser):
    purchaser.open(**CHEAP)
    purchaser.write(pool("train", P5, sources=[{"type": "block", "ids": ["cr-1"]}]), **CHEAP)
    purchaser.bought_at_once()
    purchaser.advance("10m")
    (block,) = SimAccount(purchaser.sim, load(), lambda: datetime(2026, 11, 16, 8, tzinfo=UTC)).reservations()
    assert was_bought_for("mill", "train", block.tags)


@pytest.mark.requirement("CB-4")
def test_two_session_names_of_one_role_are_not_two_people(purchaser: Purchaser):
    role = "arn:aws:sts::123456789012:assumed-role/tidemill-operator"
    intent = purchaser.open(mode="two").proposed()
    assert purchaser("approve", intent, "--yes", who=f"{role}/ana-1").code == 0
    result = purchaser("approve", intent, "--yes", who=f"{role}/ana-2")
    assert (result.code, "a session name does not prove who somebody is" in result.err) == (1, True)
    assert "(1 of 2)" in purchaser("buy", intent, "--yes").err


def test_an_approved_intent_can_be_refused_before_it_is_bought(purchaser: Purchaser):
    intent = purchaser.open().approved()
    assert purchaser("approve", intent, "--refuse", "--note", "too dear", who="bo").code == 0
    assert "is refused; there is nothing left to buy" in purchaser("buy", intent, "--yes").err


def test_a_stricter_policy_requires_a_second_approval(purchaser: Purchaser):
    intent = purchaser.open().approved()
    assert purchaser("approve", "--json").json["waiting"] == []
    purchaser.write(mode="two")
    (row,) = purchaser("approve", "--json").json["waiting"]
    assert (row["id"], row["waits_for"]) == (intent, "it waits for approval (1 of 2)")
    assert "is approved" in purchaser("approve", intent, "--yes", who="bo").out
    assert purchaser("buy", intent, "--yes").code == 0


def test_only_listed_approvers_may_approve(purchaser: Purchaser):
    arn = "arn:aws:sts::123456789012:assumed-role/finance/bo"
    intent = purchaser.open(approval={"approvers": [arn]}).proposed()
    assert "may not decide on purchases" in purchaser("approve", intent, "--yes", who="ana").err
    assert purchaser("approve", intent, "--yes", who=arn).code == 0


def test_approve_asks_and_the_default_is_no(purchaser: Purchaser):
    intent = purchaser.open().proposed()
    assert purchaser("approve", intent, who="ana", answer="\n").code == 1
    assert purchaser.state(intent) == "proposed"
    assert purchaser("approve", intent, who="ana", answer="y\n").code == 0


def test_approve_without_intent_lists_what_waits(purchaser: Purchaser):
    purchaser.open()
    assert purchaser("approve").out == "no purchase waits for approval\n"
    intent = purchaser.proposed()
    assert intent in purchaser("approve").out
    (row,) = purchaser("approve", "--json").json["waiting"]
    assert (row["id"], row["waits_for"]) == (intent, "it waits for approval (0 of 1)")


def test_one_wrong_id_does_not_stop_other_approvals(purchaser: Purchaser):
    intent = purchaser.open().proposed()
    result = purchaser("approve", "tp-000", intent, "--yes", who="ana")
    assert result.code == 1
    assert "has no purchase 'tp-000'" in result.err
    assert purchaser.state(intent) == "approved"


def test_an_expired_proposal_is_neither_approved_nor_bought(purchaser: Purchaser):
    purchaser.open()
    late, ready = purchaser.proposed(), purchaser.approved(P5, "--count", "1", "--start", "2026-11-30")
    purchaser.advance("25h")
    assert "has expired" in purchaser("approve", late, "--yes", who="ana").err
    assert purchaser("approve", late, "--refuse", who="ana").code == 0
    result = purchaser("buy", ready, "--yes")
    assert result.code == 1
    assert "has expired and cannot be bought" in result.err
    assert purchaser.calls("purchase") == 0


def test_an_intent_without_approval_is_not_bought(purchaser: Purchaser):
    intent = purchaser.open().proposed()
    result = purchaser("buy", intent, "--yes")
    assert result.code == 1
    assert "may not be bought: it waits for approval (0 of 1)" in result.err


def test_a_bought_or_refused_intent_is_not_bought_again(purchaser: Purchaser):
    intent = purchaser.open().proposed()
    purchaser("approve", intent, "--refuse", who="ana")
    assert "is refused; there is nothing left to buy" in purchaser("buy", intent, "--yes").err


# --- where ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-4")
def test_a_ledger_in_memory_buys_nothing(purchaser: Purchaser):
    result = purchaser.open(**CHEAP)("buy", purchaser.offer()["id"], "--yes", "--ledger", "memory:")
    assert result.code == 1
    assert "in memory" in result.err


@pytest.mark.requirement("CB-4")
def test_the_ledger_of_another_deployment_is_refused(purchaser: Purchaser):
    purchaser.open(**CHEAP).proposed()
    purchaser.write(**CHEAP, deployment="other")
    result = purchaser("buy", purchaser.offer()["id"], "--yes")
    assert result.code == 1
    assert "this ledger belongs to deployment mill, not to other" in result.err


def test_credentials_of_another_account_are_refused(purchaser: Purchaser):
    purchaser.open(accountId="123456789012")
    result = purchaser("blocks", who="arn:aws:sts::999999999999:assumed-role/tidemill-operator/you")
    assert result.code == 1
    assert "the Platform is in account 123456789012" in result.err


@pytest.mark.requirement("CB-4")
def test_a_ledger_never_serves_two_accounts(purchaser: Purchaser):
    purchaser.open().proposed()
    result = purchaser("approve", who="arn:aws:sts::999999999999:assumed-role/tidemill-operator/ana")
    assert result.code == 1
    assert "this ledger belongs to account 123456789012, not to 999999999999" in result.err


def test_a_missing_simulated_account_is_created_in_the_platforms_region(purchaser: Purchaser):
    purchaser.write()
    assert "created a simulated account in" in purchaser("offers", P5).err
    purchaser.write(region="us-west-2", subnets={"us-west-2a": ["subnet-1"]})
    result = purchaser("offers", P5)
    assert result.code == 2
    assert "is an account in us-east-1, but the Platform is in us-west-2" in result.err


def test_json_has_the_intent_its_state_and_its_price(purchaser: Purchaser):
    result = purchaser.open(**CHEAP)("buy", purchaser.offer()["id"], "--yes", "--json").json
    assert set(result) == {
        "intent", "state", "reservation_ids", "fee_usd", "usd_per_gpu_h", "against_on_demand", "said",
    }  # fmt: skip
    assert result["state"] == "confirmed"
    assert result["intent"]["envelope"]["max_fee_usd"] >= result["fee_usd"] > 0
    json.dumps(result)


# --- extensions ---------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-6")
def test_an_extension_is_approved_bought_and_moves_the_end_when_paid(purchaser: Purchaser):
    block = purchaser.open().bought()
    (before,) = purchaser.blocks()
    result = purchaser("extend", block, "--by", "7d", "--yes", "--json")
    assert result.json["state"] == "proposed"
    fee = round((load().types[P5].block_usd_h or 0) * 2 * 168)
    assert f"more time on {block}, 2 x {P5}" in result.err
    assert f"${fee:,} up front" in result.err
    intent = result.json["intent"]["id"]
    assert purchaser("approve", intent, "--yes", who="ana").code == 0
    assert f"extended {block} for ${fee:,}" in purchaser("buy", intent, "--yes").out
    (pending,) = purchaser.blocks()
    assert (pending["end"], pending["extension_pending_to"] > before["end"]) == (before["end"], True)
    purchaser.advance("10m")
    (after,) = purchaser.blocks()
    assert (after["end"], after["extension_pending_to"]) == (pending["extension_pending_to"], None)


@pytest.mark.requirement("CB-6")
def test_extend_reports_the_rules_of_ec2(purchaser: Purchaser):
    block = purchaser.open(**CHEAP).bought_at_once()
    purchaser.advance("10m")
    assert (
        "EC2 does not sell 15d; the nearest it sells: 14d and 21d"
        in purchaser("extend", block, "--by", "15d").err
    )
    assert purchaser("extend", block, "--by", "7d", "--yes").code == 0
    pending = purchaser("extend", block, "--by", "7d", "--yes")
    assert pending.code == 1
    assert "already has an extension whose payment is pending" in pending.err
    purchaser.advance("56d")
    assert purchaser("extend", block, "--by", "7d", "--yes").code != 0


@pytest.mark.requirement("CB-6")
def test_only_one_extension_of_a_block_is_proposed_at_a_time(purchaser: Purchaser):
    block = purchaser.open().bought()
    first = purchaser("extend", block, "--by", "7d", "--yes", "--json").json["intent"]["id"]
    result = purchaser("extend", block, "--by", "14d", "--yes")
    assert result.code == 1
    assert f"{first} asks for this already and is proposed: tidemill approve {first}" in result.err


@pytest.mark.requirement("CB-6")
def test_an_expired_extension_can_be_proposed_again(purchaser: Purchaser):
    block = purchaser.open().bought()
    late = purchaser("extend", block, "--by", "7d", "--yes", "--json").json["intent"]["id"]
    purchaser.advance("25h")
    assert f"propose it again: tidemill extend {block} --by 7d" in purchaser("buy", late, "--yes").err
    result = purchaser("extend", block, "--by", "7d", "--yes", "--json")
    assert result.code == 0, result.err
    assert (purchaser.state(late), result.json["state"]) == ("voided", "proposed")


@pytest.mark.requirement("CB-6")
def test_an_extension_is_sold_until_one_hour_before_the_end(purchaser: Purchaser):
    purchaser.open()
    block = purchaser("sim", "buy-elsewhere", P5, "--zone", "us-east-1a", "--duration", "1d").out.strip()
    assert purchaser("adopt", block, "--yes").code == 0
    purchaser.advance("26h45m")  # it ends on the 17th at 11:30
    result = purchaser("extend", block, "--by", "7d")
    assert result.code == 1
    assert "is extended from 56 days to 1 hour before its end" in result.err


@pytest.mark.requirement("CB-6")
def test_without_extension_offers_a_new_block_is_suggested(purchaser: Purchaser):
    purchaser.open(market="none")
    block = purchaser("sim", "buy-elsewhere", P5, "--zone", "us-east-1a", "--duration", "7d").out.strip()
    assert (
        "does not belong to this deployment; adopt it first" in purchaser("extend", block, "--by", "7d").err
    )
    assert purchaser("adopt", block, "--yes").code == 0
    result = purchaser("extend", block, "--by", "7d", "--yes")
    assert result.code == 1
    assert f"tidemill offers {P5} --count 1 --duration 7d --start 2026-11-23" in result.err


def test_an_unknown_block_cannot_be_extended(purchaser: Purchaser):
    result = purchaser.open()("extend", "cr-000", "--by", "7d")
    assert (result.code, "AWS shows no block 'cr-000'" in result.err) == (2, True)
