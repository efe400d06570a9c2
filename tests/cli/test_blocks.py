"""`tidemill blocks` and `adopt`: every state and owner is shown, and a tag does not make a block ours."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.cli.purchaser import CHEAP, P5, Purchaser, pool
from tidemill import catalog
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.purchases import LaunchIntent
from tidemill.sim.cloud.account import SimAccount

START = datetime(2026, 11, 16, 8, tzinfo=UTC)
WHERE = ("--zone", "us-east-1a", "--duration", "7d")


def elsewhere(purchaser: Purchaser, *given: str) -> str:
    result = purchaser("sim", "buy-elsewhere", *(given or (P5,)), *WHERE)
    assert result.code == 0, result.err
    return result.out.strip()


@pytest.mark.requirement("CB-5")
def test_blocks_shows_every_state_with_the_expected_count(purchaser: Purchaser):
    purchaser.open(**CHEAP)
    block = purchaser.bought_at_once(P5, "--count", "2", "--start", "2026-11-17")
    seen = []
    assert f"bought {block}; AWS does not list it yet" in purchaser("blocks").out
    for time in ("90s", "10m", "28h", "1d", "12h"):
        purchaser.advance(time)
        seen += [(one["state"], one["count"], one["free"], one["next"]) for one in purchaser.blocks()]
    states = [state for state, *_ in seen]
    assert states[-3:] == ["active", "expired", "expired"]
    assert {"scheduled"} <= set(states)
    assert all(count == 2 for _, count, _, _ in seen)
    scheduled = next(one for one in seen if one[0] == "scheduled")
    assert scheduled[2:] == (0, "2 instances come 2026-11-17 11:30")
    active = next(one for one in seen if one[0] == "active")
    assert active[2] == 2


@pytest.mark.requirement("CB-5")
def test_blocks_shows_pending_and_failed_payments(purchaser: Purchaser):
    purchaser.open(**CHEAP)
    purchaser("sim", "fault", "payment-fails")
    assert purchaser("buy", purchaser.offer()["id"], "--yes").code == 0
    purchaser.advance("90s")
    (one,) = purchaser.blocks()
    assert (one["state"], one["next"]) == (
        "payment-pending",
        "its payment is pending: it comes only if the payment succeeds",
    )
    purchaser.advance("13h")
    (one,) = purchaser.blocks()
    assert one["state"] == "payment-failed"
    assert "its payment failed" in one["next"]


@pytest.mark.parametrize(
    ("provisioner", "instance_type", "before_end"),
    [("native", P5, "11:00"), ("karpenter", P5, "10:50"), ("native", "p6e-gb200.36xlarge", "10:30")],
)
def test_the_deadline_is_the_earlier_of_ec2_and_the_provisioner(
    purchaser: Purchaser, provisioner, instance_type, before_end
):
    purchaser.write(pool("train", instance_type, provisioner=provisioner))
    purchaser("sim", "new", str(purchaser.sim), "--at", "2026-11-16T08:00:00Z")
    block = elsewhere(purchaser, instance_type, "--count", "9")
    assert purchaser("adopt", block, "--pool", "train", "--yes").code == 0
    (one,) = purchaser.blocks()
    assert one["deadline"] == f"2026-11-23T{before_end}:00Z"
    assert one["extendable_until"] == "2026-11-23T10:30:00Z"


@pytest.mark.requirement("CB-17")
def test_a_block_bought_elsewhere_is_untracked_until_it_is_adopted(purchaser: Purchaser):
    block = elsewhere(purchaser.open())
    (one,) = purchaser.blocks()
    assert (one["held"], one["owner"]) == ("untracked", "")
    result = purchaser("adopt", block, "--pool", "train", answer="y\n")
    assert result.code == 0
    assert f"1 x {P5} in us-east-1a, active" in result.err
    (one,) = purchaser.blocks()
    assert (one["held"], one["owner"], one["pool"]) == ("adopted", "mill", "train")
    assert purchaser.calls("tag_reservation") == 1
    (line,) = purchaser("ledger", "--of", block, "--json").json["audit"]
    assert line["who"].endswith("/you")


@pytest.mark.requirement("CB-17")
def test_an_adoption_can_be_undone_while_no_node_of_ours_runs_there(purchaser: Purchaser):
    block = elsewhere(purchaser.open())
    assert "is not adopted in this ledger" in purchaser("adopt", block, "--undo", "--yes").err
    purchaser("adopt", block, "--yes")
    assert purchaser("adopt", block, "--undo", answer="\n").code == 1
    assert purchaser.blocks()[0]["held"] == "adopted"
    result = purchaser("adopt", block, "--undo", "--yes", "--json")
    assert (result.code, result.json["id"]) == (0, block)
    assert "its tag deployment is removed" in result.json["said"]
    assert purchaser.blocks()[0]["owner"] == ""
    assert purchaser.blocks()[0]["held"] == "untracked"
    assert "bought elsewhere" in purchaser.blocks()[0]["next"]  # and no longer: it has our owner tag
    assert purchaser("adopt", block, "--yes").code == 0


@pytest.mark.requirement("CB-17")
def test_an_owner_tag_alone_does_not_make_a_block_ours(purchaser: Purchaser):
    elsewhere(purchaser.open(), P5, "--owner", "mill")
    (one,) = purchaser.blocks()
    assert one["held"] == "untracked"
    assert "it has our owner tag, and this ledger does not know it" in one["next"]


@pytest.mark.requirement("CB-17")
def test_undoing_the_adoption_of_a_block_that_cannot_be_tagged_says_so(purchaser: Purchaser):
    block = elsewhere(purchaser.open(), P5, "--shared")
    purchaser("adopt", block, "--yes")
    assert "it has no owner tag of ours" in purchaser("adopt", block, "--undo", "--yes").out


@pytest.mark.requirement("CB-17")
def test_a_shared_block_is_adopted_without_a_tag(purchaser: Purchaser):
    block = elsewhere(purchaser.open(), P5, "--shared")
    result = purchaser("adopt", block, "--yes", "--json")
    assert (result.code, result.json["tagged"]) == (0, False)
    assert "belongs to the account that shares it" in result.err
    assert purchaser.blocks()[0]["held"] == "adopted"


@pytest.mark.requirement("CB-17")
def test_our_own_or_another_deployments_block_is_not_adopted(purchaser: Purchaser):
    purchaser.open(**CHEAP)
    ours = purchaser.bought_at_once()
    purchaser.advance("2m")
    theirs = elsewhere(purchaser, P5, "--owner", "other")
    for block, code, says in [
        (ours, 1, "belongs to this deployment already (bought)"),
        (theirs, 1, "belongs to deployment other by its tag"),
        ("cr-000", 2, "AWS shows no block 'cr-000'"),
    ]:
        result = purchaser("adopt", block, "--yes")
        assert (result.code, says in result.err) == (code, True), result.err
    assert purchaser.calls("tag_reservation") == 0
    found = {one["id"]: one["held"] for one in purchaser.blocks()}
    assert found == {ours: "bought", theirs: "another's"}


def test_a_block_is_not_adopted_for_a_pool_that_cannot_use_it(purchaser: Purchaser):
    block = elsewhere(purchaser.open(), "p4d.24xlarge")
    assert (
        "pool train does not allow p4d.24xlarge" in purchaser("adopt", block, "--pool", "train", "--yes").err
    )
    assert (
        "there is no pool 'tarin'; did you mean 'train'?" in purchaser("adopt", block, "--pool", "tarin").err
    )


def test_adopt_asks_and_the_default_is_no(purchaser: Purchaser):
    block = elsewhere(purchaser.open())
    assert purchaser("adopt", block, answer="\n").code == 1
    assert purchaser.blocks()[0]["held"] == "untracked"


def test_an_expired_block_is_not_adopted(purchaser: Purchaser):
    block = elsewhere(purchaser.open())
    purchaser.advance("7d4h")
    assert "is expired, so it cannot be used any more" in purchaser("adopt", block, "--yes").err


def test_json_has_every_time_and_the_owner(purchaser: Purchaser):
    elsewhere(purchaser.open())
    result = purchaser("blocks", "--json").json
    assert set(result) == {"at", "deployment", "region", "blocks", "in_doubt"}
    assert set(result["blocks"][0]) == {
        "id", "type", "count", "zone", "state", "start", "end", "deadline", "extendable_from", "extendable_until",
        "extension_pending_to", "held", "owner", "pool", "intent", "fee_usd", "used", "strangers", "free", "next",
        "unread",
    }  # fmt: skip


@pytest.mark.requirement("CB-17")
def test_instances_that_are_not_ours_are_counted(purchaser: Purchaser):
    """Somebody launches in the console on a block that was adopted: no owner tag, and a real slot."""
    block = elsewhere(purchaser.open(), P5, "--count", "3")
    assert purchaser("adopt", block, "--yes").code == 0
    account = SimAccount(purchaser.sim, catalog.load(), lambda: START)
    source = Source(SourceKind.BLOCK, block)
    account.launch(LaunchIntent("theirs", "", source, P5, "us-east-1a", 1, "", account.now()), ())
    account.launch(
        LaunchIntent("ours", "train", source, P5, "us-east-1a", 1, "native", account.now()),
        (("deployment", "mill"),),
    )
    purchaser.advance("5m")
    (one,) = purchaser.blocks()
    assert (one["used"], one["strangers"], one["free"]) == (2, 1, 1)
    assert "2, 1 free, 1 not ours" in purchaser("blocks").out


def test_an_account_without_blocks_says_so(purchaser: Purchaser):
    assert purchaser.open()("blocks").out == "AWS shows no block.\n"


def test_buy_elsewhere_refuses_what_ec2_does_not_sell(purchaser: Purchaser):
    purchaser.open()
    for given, says in [
        ((P5, "--zone", "us-east-1f"), "the account has no zone 'us-east-1f'"),
        ((P5, "--zone", "us-east-1a", "--duration", "7"), "duration: '7' is not a duration"),
        (("p9.huge", "--zone", "us-east-1a"), "'p9.huge' is not in the catalog"),
    ]:
        result = purchaser("sim", "buy-elsewhere", *given)
        assert (result.code, says in result.err) == (2, True), result.err
