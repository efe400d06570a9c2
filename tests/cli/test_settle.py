"""Purchases with an unknown outcome: reported as such, never submitted again, settled by AWS or a person."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.cli.purchaser import CHEAP, P5, Purchaser
from tidemill.model.labels import Pairs
from tidemill.model.offers import OfferQuery
from tidemill.sim.cloud.account import SimAccount

pytestmark = pytest.mark.requirement("CB-4")
SECOND = (P5, "--count", "1", "--duration", "7d", "--from", "2026-11-19", "--to", "2026-11-25")


def start(purchaser: Purchaser, module: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments], env={**os.environ, **purchaser.environment()},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def unanswered(purchaser: Purchaser, fault: str = "lost-answer") -> str:
    """An intent whose call was not answered."""
    intent = purchaser.open().approved()
    assert purchaser("sim", "fault", fault).code == 0
    result = purchaser("buy", intent, "--yes")
    assert result.code == 4, result.err
    assert f"nobody knows whether {intent} was bought" in result.err
    assert f"look for it: tidemill settle {intent}. Do not buy the same again before that" in result.err
    return intent


@pytest.mark.parametrize("fault", ["lost-answer", "lost-request"])
def test_an_unanswered_purchase_exits_4_and_says_do_not_buy_again(purchaser: Purchaser, fault):
    intent = unanswered(purchaser, fault)
    assert purchaser.state(intent) == "unknown"
    again = purchaser("buy", intent, "--yes")
    assert again.code == 4
    assert "It may still be bought" in again.err
    assert purchaser.calls("purchase") == 1
    for result in (again.err, purchaser("blocks").out):
        assert "try again" not in result
        assert "tidemill settle" in result or "look again" in result


def test_ctrl_c_during_the_purchase_call_exits_4(purchaser: Purchaser, monkeypatch: pytest.MonkeyPatch):
    intent = purchaser.open().approved()

    def impatient(account: SimAccount, offer_id: str, tags: Pairs) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SimAccount, "purchase", impatient)
    result = purchaser("buy", intent, "--yes")
    assert result.code == 4
    assert f"nobody knows whether {intent} was bought" in result.err


def test_ctrl_c_before_the_purchase_call_buys_nothing(purchaser: Purchaser, monkeypatch: pytest.MonkeyPatch):
    intent = purchaser.open().approved()

    def impatient(account: SimAccount, query: OfferQuery) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SimAccount, "search_offers", impatient)
    assert purchaser("buy", intent, "--yes").code == 130
    assert purchaser.state(intent) == "approved"


def test_settle_confirms_what_aws_shows_later(purchaser: Purchaser):
    intent = unanswered(purchaser)
    purchaser.advance("3m")
    result = purchaser("settle", intent, "--json")
    assert (result.code, result.json["state"]) == (0, "confirmed")
    (block,) = purchaser.blocks()
    assert result.json["intent"]["reservation_ids"] == [block["id"]]
    assert block["held"] == "bought"


def test_buying_an_unknown_intent_again_finds_it_and_buys_nothing(purchaser: Purchaser):
    intent = unanswered(purchaser)
    purchaser.advance("3m")
    result = purchaser("buy", intent, "--yes")
    assert result.code == 0
    assert "was bought: AWS shows cr-" in result.out
    assert (purchaser.calls("purchase"), purchaser.state(intent)) == (1, "confirmed")


def test_an_equal_block_is_not_bought_before_the_first_is_settled(purchaser: Purchaser):
    intent = unanswered(purchaser)
    result = purchaser("buy", purchaser.offer(*SECOND)["id"], "--yes")
    assert result.code == 1
    assert f"look first: tidemill settle {intent}; or buy a second one with --another" in result.err
    assert purchaser("buy", purchaser.offer(*SECOND)["id"], "--yes", "--another").code == 0


def test_an_unknown_purchase_counts_as_spent(purchaser: Purchaser):
    unanswered(purchaser)
    assert purchaser("ledger", "--json").json["purchases"][0]["fee_usd"] > 0
    result = purchaser("buy", purchaser.offer(*SECOND)["id"], "--another", answer="n\n")
    assert "$0 spent" not in result.err


# --- a person's word ----------------------------------------------------------------------------------


def test_not_bought_needs_a_note_and_an_hour_and_frees_the_money(purchaser: Purchaser):
    intent = unanswered(purchaser, "lost-request")
    assert purchaser("settle", intent, "--not-bought").code == 2
    early = purchaser("settle", intent, "--not-bought", "--note", "no bill", "--yes")
    assert early.code == 1
    assert "EC2 may list a purchase up to an hour late" in early.err
    purchaser.advance("59m")
    assert purchaser("settle", intent, "--not-bought", "--note", "no bill", "--yes").code == 1
    purchaser.advance("1m")
    result = purchaser("settle", intent, "--not-bought", "--note", "no bill", answer="y\n")
    assert result.code == 0, result.err
    assert "will be bought twice" in result.err
    (held,) = purchaser.purchases()
    assert (held["state"], held["fee_usd"]) == ("failed", 0)
    assert (held["reason"]["kind"], held["note"]) == ("not-bought-says-person", "no bill")
    assert held["reason"]["name"].endswith("user/you")
    audit = purchaser("ledger", "--of", intent, "--json").json["audit"]
    assert audit[-1]["who"].endswith("/you")


def test_not_bought_is_ignored_if_aws_shows_the_block(purchaser: Purchaser):
    intent = unanswered(purchaser)
    purchaser.advance("61m")
    result = purchaser("settle", intent, "--not-bought", "--note", "no bill", "--yes")
    assert (result.code, purchaser.state(intent)) == (0, "confirmed")


def elsewhere(purchaser: Purchaser, *given: str) -> str:
    result = purchaser("sim", "buy-elsewhere", *given, "--duration", "7d")
    assert result.code == 0, result.err
    return result.out.strip()


def test_bought_names_an_existing_block_and_makes_it_ours(purchaser: Purchaser):
    intent = unanswered(purchaser, "lost-request")
    zone = purchaser.purchases()[0]["envelope"]["zones"][0]
    block = elsewhere(purchaser, P5, "--count", "2", "--zone", zone)
    result = purchaser("settle", intent, "--bought", block, "--note", "found in the console", "--yes")
    assert (result.code, purchaser.state(intent)) == (0, "confirmed")
    (found,) = purchaser.blocks()
    assert (found["held"], found["intent"]) == ("adopted", intent)


def test_bought_refuses_a_block_that_cannot_be_of_this_purchase(purchaser: Purchaser):
    first = purchaser.open().bought()
    other = purchaser.purchases()[0]["id"]
    intent = purchaser.approved(*SECOND)
    purchaser("sim", "fault", "lost-request")
    assert purchaser("buy", intent, "--yes").code == 4
    zone = purchaser.purchases()[-1]["envelope"]["zones"][0]
    for id_, code, says in [
        ("cr-000", 2, "AWS shows no reservation 'cr-000'"),
        (first, 1, f"{first} was bought by {other}, not by {intent}"),
        (elsewhere(purchaser, "p4d.24xlarge", "--zone", zone, "--name", "a"), 1, "is p4d.24xlarge in"),
        (
            elsewhere(purchaser, P5, "--zone", zone, "--name", "b", "--owner", "other"),
            1,
            "belongs to deployment other",
        ),
    ]:
        result = purchaser("settle", intent, "--bought", id_, "--yes")
        assert (result.code, says in result.err) == (code, True), result.err
    assert purchaser.state(intent) == "unknown"


def test_settle_refuses_a_purchase_with_a_known_outcome(purchaser: Purchaser):
    intent = purchaser.open().proposed()
    result = purchaser("settle", intent, "--not-bought", "--note", "x")
    assert (result.code, "there is nothing to settle" in result.err) == (1, True)


# --- confirmed, and yet -------------------------------------------------------------------------------


def unlisted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimAccount, "reservations", lambda account: ())


def test_settle_records_a_failed_payment(purchaser: Purchaser):
    purchaser.open(**CHEAP)
    purchaser("sim", "fault", "payment-fails")
    intent = purchaser("buy", purchaser.offer()["id"], "--yes", "--json").json["intent"]["id"]
    purchaser.advance("2m")
    assert "there is nothing to settle" in purchaser("settle", intent).err
    purchaser.advance("13h")
    result = purchaser("settle", intent)
    assert (result.code, purchaser.state(intent)) == (0, "failed"), result.err
    assert "its payment failed" in result.out
    assert purchaser("ledger", "--json").json["purchases"][0]["fee_usd"] == 0
    assert purchaser("buy", purchaser.offer()["id"], "--yes").code == 0


def test_a_confirmed_block_that_aws_never_lists_can_be_settled(
    purchaser: Purchaser, monkeypatch: pytest.MonkeyPatch
):
    purchaser.open(**CHEAP)
    intent = purchaser("buy", purchaser.offer()["id"], "--yes", "--json").json["intent"]["id"]
    unlisted(monkeypatch)
    assert "AWS does not list it yet" in purchaser("blocks").out
    assert purchaser("settle", intent, "--not-bought", "--note", "no bill", "--yes").code == 1
    purchaser.advance("61m")
    assert (
        f"AWS has not listed it since 2026-11-16 08:00 UTC; look into it: tidemill settle {intent}"
        in purchaser("blocks").out
    )
    alone = purchaser("settle", intent)
    assert (alone.code, purchaser.state(intent)) == (4, "confirmed")
    assert "Its fee counts as spent" in alone.err
    result = purchaser("settle", intent, "--not-bought", "--note", "no bill", "--yes")
    assert "warning: EC2 answered that it sold cr-" in result.err
    assert (result.code, purchaser.state(intent)) == (0, "failed")


def test_a_block_that_ended_cannot_be_settled_as_not_bought(
    purchaser: Purchaser, monkeypatch: pytest.MonkeyPatch
):
    purchaser.open(**CHEAP)
    intent = purchaser("buy", purchaser.offer()["id"], "--yes", "--json").json["intent"]["id"]
    purchaser.advance("30d")
    unlisted(monkeypatch)
    result = purchaser("settle", intent, "--not-bought", "--note", "gone", "--yes")
    assert (result.code, purchaser.state(intent)) == (1, "confirmed")
    assert "its fee stays spent" in result.err


def test_bought_corrects_a_wrong_not_bought_and_its_fee_counts(purchaser: Purchaser):
    intent = unanswered(purchaser, "lost-request")
    zone = purchaser.purchases()[0]["envelope"]["zones"][0]
    purchaser.advance("61m")
    assert purchaser("settle", intent, "--not-bought", "--note", "no bill", "--yes").code == 0
    assert "if it bought one, add --bought cr-…" in purchaser("settle", intent).err
    block = elsewhere(purchaser, P5, "--count", "2", "--zone", zone)
    result = purchaser("settle", intent, "--bought", block, "--note", "the bill after all", "--yes")
    assert (result.code, purchaser.state(intent)) == (0, "confirmed"), result.err
    assert purchaser("ledger", "--json").json["purchases"][0]["fee_usd"] > 0


@pytest.mark.requirement("CB-6")
def test_an_unknown_extension_is_found_in_the_history(purchaser: Purchaser):
    block = purchaser.open(**CHEAP).bought_at_once()
    purchaser.advance("10m")
    purchaser("sim", "fault", "lost-answer", "--of", "extension")
    assert purchaser("extend", block, "--by", "7d", "--yes").code == 4
    intent = purchaser.purchases()[-1]["id"]
    purchaser.advance("3m")
    assert "is confirmed" in purchaser("settle", intent).out
    assert purchaser.calls("purchase_extension") == 1


# --- processes that die, and processes at once --------------------------------------------------------


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_command_killed_around_the_call_leaves_the_intent_submitted(purchaser: Purchaser, moment):
    intent = purchaser.open().approved()
    with start(purchaser, "tests.cli.killed_command", moment, "buy", intent, "--yes") as killed:
        killed.communicate()
    assert (killed.returncode, purchaser.state(intent)) == (-signal.SIGKILL, "submitted")
    assert f"tidemill settle {intent}" in purchaser("blocks").out
    result = purchaser("buy", intent, "--yes")
    assert (result.code, purchaser.state(intent)) == (4, "submitted")
    purchaser.advance("61m")
    if moment == "after":
        assert "was bought: AWS shows cr-" in purchaser("buy", intent, "--yes").out
        assert purchaser.state(intent) == "confirmed"
    else:
        assert purchaser("buy", intent, "--yes").code == 4
        assert (
            purchaser("settle", intent, "--not-bought", "--note", "CloudTrail shows no call", "--yes").code
            == 0
        )
        assert purchaser.state(intent) == "failed"
    assert purchaser.calls("purchase") == (1 if moment == "after" else 0)


def test_several_processes_buy_one_intent_once(purchaser: Purchaser):
    intent = purchaser.open().approved()
    buyers = [start(purchaser, "tidemill", "buy", intent, "--yes") for _ in range(3)]
    codes = [(buyer.communicate()[0], buyer.returncode)[1] for buyer in buyers]
    assert codes.count(0) == 1, codes
    assert set(codes) <= {0, 1, 4}
    assert (purchaser.calls("purchase"), purchaser.state(intent)) == (1, "confirmed")


def test_several_processes_may_change_the_account_at_once(purchaser: Purchaser):
    purchaser.open()
    given = ("sim", "buy-elsewhere", P5, "--zone", "us-east-1a", "--name")
    others = [start(purchaser, "tidemill", *given, f"b{number}") for number in range(4)]
    ids = {other.communicate()[0].strip() for other in others}
    assert {one["id"] for one in purchaser.blocks()} == ids
    assert len(ids) == 4


def test_blocks_says_what_settle_would_record(purchaser: Purchaser):
    """The answer was lost, and AWS shows the block by its tag."""
    intent = unanswered(purchaser)
    purchaser.advance("10m")
    shown = " ".join(purchaser("blocks").out.split())
    (block,) = (one["id"] for one in purchaser.blocks() if one["intent"] == intent)
    assert f"{intent} bought {block}, as AWS shows, and the answer was lost; record it" in shown
    assert f"{intent} is confirmed: {block}" in purchaser("settle", intent, "--yes").out
