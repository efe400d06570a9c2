"""`tidemill blocks` and `adopt`: every state is told, whose each is, and no tag makes one ours."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.cli.purchaser import P5, Office, pool
from tidemill import catalog
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.purchases import LaunchIntent
from tidemill.sim.cloud.account import SimAccount

CHEAP: dict[str, Any] = {"mode": "auto", "approval": {"autoMaxFeeUsd": 50_000}}
START = datetime(2026, 11, 16, 8, tzinfo=UTC)
WHERE = ("--zone", "us-east-1a", "--duration", "7d")


def elsewhere(office: Office, *given: str) -> str:
    told = office("sim", "buy-elsewhere", *(given or (P5,)), *WHERE)
    assert told.code == 0, told.err
    return told.out.strip()


@pytest.mark.requirement("CB-5")
def test_a_block_is_followed_through_every_state_with_the_count_that_will_come(office: Office):
    office.open(**CHEAP)
    block = office(
        "buy", office.offer(P5, "--count", "2", "--start", "2026-11-17")["id"], "--yes", "--json"
    ).json["reservation_ids"][0]
    seen = []
    assert f"bought {block}; AWS does not list it yet" in office("blocks").out
    for time in ("90s", "10m", "28h", "1d", "12h"):
        office.wait(time)
        seen += [(one["state"], one["count"], one["free"], one["next"]) for one in office.blocks()]
    states = [state for state, *_ in seen]
    assert states[-3:] == ["active", "expired", "expired"]
    assert {"scheduled"} <= set(states)
    assert all(count == 2 for _, count, _, _ in seen)
    scheduled = next(one for one in seen if one[0] == "scheduled")
    assert scheduled[2:] == (0, "2 instances come 2026-11-17 11:30")
    active = next(one for one in seen if one[0] == "active")
    assert active[2] == 2


@pytest.mark.requirement("CB-5")
def test_a_payment_under_way_and_one_that_failed_are_told(office: Office):
    office.open(**CHEAP)
    office("sim", "fault", "payment-fails")
    assert office("buy", office.offer()["id"], "--yes").code == 0
    office.wait("90s")
    (one,) = office.blocks()
    assert (one["state"], one["next"]) == (
        "payment-pending",
        "its payment is under way: it comes only if that succeeds",
    )
    office.wait("13h")
    (one,) = office.blocks()
    assert one["state"] == "payment-failed"
    assert "its payment failed" in one["next"]


@pytest.mark.parametrize(
    ("provisioner", "instance_type", "before_end"),
    [("native", P5, "11:00"), ("karpenter", P5, "10:50"), ("native", "p6e-gb200.36xlarge", "10:30")],
)
def test_the_deadline_is_ec2s_or_the_provisioners_whichever_is_earlier(
    office: Office, provisioner, instance_type, before_end
):
    office.write(pool("train", instance_type, provisioner=provisioner))
    office("sim", "new", str(office.sim), "--at", "2026-11-16T08:00:00Z")
    block = elsewhere(office, instance_type, "--count", "9")
    assert office("adopt", block, "--pool", "train", "--yes").code == 0
    (one,) = office.blocks()
    assert one["deadline"] == f"2026-11-23T{before_end}:00Z"
    assert one["extendable_until"] == "2026-11-23T10:30:00Z"


@pytest.mark.requirement("CB-17")
def test_a_block_bought_elsewhere_is_untracked_until_somebody_adopts_it(office: Office):
    block = elsewhere(office.open())
    (one,) = office.blocks()
    assert (one["held"], one["owner"]) == ("untracked", "")
    told = office("adopt", block, "--pool", "train", answer="y\n")
    assert told.code == 0
    assert f"1 x {P5} in us-east-1a, active" in told.err
    (one,) = office.blocks()
    assert (one["held"], one["owner"], one["pool"]) == ("adopted", "mill", "train")
    assert office.calls("tag_reservation") == 1
    (line,) = office("ledger", "--of", block, "--json").json["audit"]
    assert line["who"].endswith("/you")


@pytest.mark.requirement("CB-17")
def test_an_adoption_can_be_taken_back_while_none_of_our_nodes_is_there(office: Office):
    block = elsewhere(office.open())
    assert "is not adopted in this ledger" in office("adopt", block, "--undo", "--yes").err
    office("adopt", block, "--yes")
    assert office("adopt", block, "--undo", answer="\n").code == 1
    assert office.blocks()[0]["held"] == "adopted"
    told = office("adopt", block, "--undo", "--yes", "--json")
    assert (told.code, told.json["id"]) == (0, block)
    assert office.blocks()[0]["held"] == "untracked"
    assert office("adopt", block, "--yes").code == 0


@pytest.mark.requirement("CB-17")
def test_a_tag_alone_makes_no_block_ours(office: Office):
    elsewhere(office.open(), P5, "--owner", "mill")
    (one,) = office.blocks()
    assert one["held"] == "untracked"


@pytest.mark.requirement("CB-17")
def test_a_shared_block_is_adopted_without_a_tag(office: Office):
    block = elsewhere(office.open(), P5, "--shared")
    told = office("adopt", block, "--yes", "--json")
    assert (told.code, told.json["tagged"]) == (0, False)
    assert "belongs to the account that shares it" in told.err
    assert office.blocks()[0]["held"] == "adopted"


@pytest.mark.requirement("CB-17")
def test_what_is_ours_or_anothers_is_not_adopted(office: Office):
    office.open(**CHEAP)
    ours = office("buy", office.offer()["id"], "--yes", "--json").json["reservation_ids"][0]
    office.wait("2m")
    theirs = elsewhere(office, P5, "--owner", "other")
    for block, code, says in [
        (ours, 1, "belongs to this deployment already (bought)"),
        (theirs, 1, "belongs to deployment other by its tag"),
        ("cr-000", 2, "AWS shows no block 'cr-000'"),
    ]:
        told = office("adopt", block, "--yes")
        assert (told.code, says in told.err) == (code, True), told.err
    assert office.calls("tag_reservation") == 0
    found = {one["id"]: one["held"] for one in office.blocks()}
    assert found == {ours: "bought", theirs: "another's"}


def test_a_block_is_not_adopted_for_a_pool_that_could_not_use_it(office: Office):
    block = elsewhere(office.open(), "p4d.24xlarge")
    assert "pool train does not allow p4d.24xlarge" in office("adopt", block, "--pool", "train", "--yes").err
    assert "there is no pool 'tarin'; did you mean 'train'?" in office("adopt", block, "--pool", "tarin").err


def test_an_adoption_asks_and_the_default_is_no(office: Office):
    block = elsewhere(office.open())
    assert office("adopt", block, answer="\n").code == 1
    assert office.blocks()[0]["held"] == "untracked"


def test_a_block_that_is_over_is_not_adopted(office: Office):
    block = elsewhere(office.open())
    office.wait("7d4h")
    assert "is expired, so it cannot be used any more" in office("adopt", block, "--yes").err


def test_json_has_every_time_and_whose_it_is(office: Office):
    elsewhere(office.open())
    told = office("blocks", "--json").json
    assert set(told) == {"at", "deployment", "region", "blocks", "in_doubt"}
    assert set(told["blocks"][0]) == {
        "id", "type", "count", "zone", "state", "start", "end", "deadline", "extendable_from", "extendable_until",
        "extension_pending_to", "held", "owner", "pool", "intent", "fee_usd", "used", "strangers", "free", "next",
    }  # fmt: skip


@pytest.mark.requirement("CB-17")
def test_strangers_on_a_block_are_counted(office: Office):
    """Somebody launches in the console on a block that was adopted: no owner tag, and a real slot."""
    block = elsewhere(office.open(), P5, "--count", "3")
    assert office("adopt", block, "--yes").code == 0
    account = SimAccount(office.sim, catalog.load(), lambda: START)
    source = Source(SourceKind.BLOCK, block)
    account.launch(LaunchIntent("theirs", "", source, P5, "us-east-1a", 1, "", account.now()), ())
    account.launch(
        LaunchIntent("ours", "train", source, P5, "us-east-1a", 1, "native", account.now()),
        (("deployment", "mill"),),
    )
    office.wait("5m")
    (one,) = office.blocks()
    assert (one["used"], one["strangers"], one["free"]) == (2, 1, 1)
    assert "2, 1 free, 1 not ours" in office("blocks").out


def test_an_account_without_blocks_says_so(office: Office):
    assert office.open()("blocks").out == "AWS shows no block.\n"


def test_a_simulated_purchase_elsewhere_that_cannot_be_is_refused(office: Office):
    office.open()
    for given, says in [
        ((P5, "--zone", "us-east-1f"), "the account has no zone 'us-east-1f'"),
        ((P5, "--zone", "us-east-1a", "--duration", "7"), "duration: '7' is not a duration"),
        (("p9.huge", "--zone", "us-east-1a"), "'p9.huge' is not in the catalog"),
    ]:
        told = office("sim", "buy-elsewhere", *given)
        assert (told.code, says in told.err) == (2, True), told.err
