"""When nobody knows whether something was bought: it is said so, never tried again, and settled by AWS or a person."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.cli.purchaser import P5, Office
from tidemill.model.labels import Pairs
from tidemill.model.offers import OfferQuery
from tidemill.sim.cloud.account import SimAccount

pytestmark = pytest.mark.requirement("CB-4")
CHEAP: dict[str, Any] = {"mode": "auto", "approval": {"autoMaxFeeUsd": 50_000}}
SECOND = (P5, "--count", "1", "--duration", "7d", "--from", "2026-11-19", "--to", "2026-11-25")


def start(office: Office, module: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments], env={**os.environ, **office.environment()},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def unanswered(office: Office, fault: str = "lost-answer") -> str:
    """An intent whose call was not answered."""
    intent = office.open().approved()
    assert office("sim", "fault", fault).code == 0
    told = office("buy", intent, "--yes")
    assert told.code == 4, told.err
    assert f"nobody knows whether {intent} was bought" in told.err
    assert f"look for it: tidemill settle {intent}. Do not buy the same again before that" in told.err
    return intent


@pytest.mark.parametrize("fault", ["lost-answer", "lost-request"])
def test_an_unanswered_call_is_told_as_such_and_never_as_try_again(office: Office, fault):
    intent = unanswered(office, fault)
    assert office.state(intent) == "unknown"
    again = office("buy", intent, "--yes")
    assert again.code == 4
    assert "It may still be bought" in again.err
    assert office.calls("purchase") == 1
    for told in (again.err, office("blocks").out):
        assert "try again" not in told
        assert "tidemill settle" in told or "look again" in told


def test_an_interrupt_in_the_middle_of_the_call_is_doubt_too(office: Office, monkeypatch: pytest.MonkeyPatch):
    intent = office.open().approved()

    def impatient(account: SimAccount, offer_id: str, tags: Pairs) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SimAccount, "purchase", impatient)
    told = office("buy", intent, "--yes")
    assert told.code == 4
    assert f"nobody knows whether {intent} was bought" in told.err


def test_an_interrupt_before_the_call_is_none(office: Office, monkeypatch: pytest.MonkeyPatch):
    intent = office.open().approved()

    def impatient(account: SimAccount, query: OfferQuery) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SimAccount, "search_offers", impatient)
    assert office("buy", intent, "--yes").code == 130
    assert office.state(intent) == "approved"


def test_what_aws_shows_later_settles_it(office: Office):
    intent = unanswered(office)
    office.wait("3m")
    told = office("settle", intent, "--json")
    assert (told.code, told.json["state"]) == (0, "confirmed")
    (block,) = office.blocks()
    assert told.json["intent"]["reservation_ids"] == [block["id"]]
    assert block["held"] == "bought"


def test_buying_it_again_finds_it_bought_and_buys_nothing(office: Office):
    intent = unanswered(office)
    office.wait("3m")
    told = office("buy", intent, "--yes")
    assert told.code == 0
    assert "was bought: AWS shows cr-" in told.out
    assert (office.calls("purchase"), office.state(intent)) == (1, "confirmed")


def test_the_like_of_it_is_not_bought_before_it_is_settled(office: Office):
    intent = unanswered(office)
    told = office("buy", office.offer(*SECOND)["id"], "--yes")
    assert told.code == 1
    assert f"look first: tidemill settle {intent}; or buy a second one with --another" in told.err
    assert office("buy", office.offer(*SECOND)["id"], "--yes", "--another").code == 0


def test_its_fee_counts_as_spent_until_it_is_settled(office: Office):
    unanswered(office)
    assert office("ledger", "--json").json["purchases"][0]["fee_usd"] > 0
    told = office("buy", office.offer(*SECOND)["id"], "--another", answer="n\n")
    assert "$0 spent" not in told.err


# --- a person's word ----------------------------------------------------------------------------------


def test_a_no_needs_a_reason_and_time_and_frees_the_money(office: Office):
    intent = unanswered(office, "lost-request")
    assert office("settle", intent, "--not-bought").code == 2
    early = office("settle", intent, "--not-bought", "--note", "no bill", "--yes")
    assert early.code == 1
    assert "EC2 may list a purchase up to an hour late" in early.err
    office.wait("59m")
    assert office("settle", intent, "--not-bought", "--note", "no bill", "--yes").code == 1
    office.wait("1m")
    told = office("settle", intent, "--not-bought", "--note", "no bill", answer="y\n")
    assert told.code == 0, told.err
    assert "will be bought twice" in told.err
    (held,) = office.purchases()
    assert (held["state"], held["fee_usd"]) == ("failed", 0)
    assert (held["reason"]["kind"], held["note"]) == ("not-bought-says-person", "no bill")
    assert held["reason"]["name"].endswith("user/you")
    audit = office("ledger", "--of", intent, "--json").json["audit"]
    assert audit[-1]["who"].endswith("/you")


def test_a_no_is_not_taken_where_aws_shows_it(office: Office):
    intent = unanswered(office)
    office.wait("61m")
    told = office("settle", intent, "--not-bought", "--note", "no bill", "--yes")
    assert (told.code, office.state(intent)) == (0, "confirmed")


def elsewhere(office: Office, *given: str) -> str:
    told = office("sim", "buy-elsewhere", *given, "--duration", "7d")
    assert told.code == 0, told.err
    return told.out.strip()


def test_a_yes_names_a_block_that_is_there_and_makes_it_ours(office: Office):
    intent = unanswered(office, "lost-request")
    zone = office.purchases()[0]["envelope"]["zones"][0]
    block = elsewhere(office, P5, "--count", "2", "--zone", zone)
    told = office("settle", intent, "--bought", block, "--note", "found in the console", "--yes")
    assert (told.code, office.state(intent)) == (0, "confirmed")
    (found,) = office.blocks()
    assert (found["held"], found["intent"]) == ("adopted", intent)


def test_a_yes_cannot_name_what_is_not_there_or_not_this_purchases(office: Office):
    first = office.open().bought()
    other = office.purchases()[0]["id"]
    intent = office.approved(*SECOND)
    office("sim", "fault", "lost-request")
    assert office("buy", intent, "--yes").code == 4
    zone = office.purchases()[-1]["envelope"]["zones"][0]
    for id_, code, says in [
        ("cr-000", 2, "AWS shows no reservation 'cr-000'"),
        (first, 1, f"{first} was bought by {other}, not by {intent}"),
        (elsewhere(office, "p4d.24xlarge", "--zone", zone, "--name", "a"), 1, "is p4d.24xlarge in"),
        (
            elsewhere(office, P5, "--zone", zone, "--name", "b", "--owner", "other"),
            1,
            "belongs to deployment other",
        ),
    ]:
        told = office("settle", intent, "--bought", id_, "--yes")
        assert (told.code, says in told.err) == (code, True), told.err
    assert office.state(intent) == "unknown"


def test_only_a_purchase_in_doubt_is_settled(office: Office):
    intent = office.open().proposed()
    told = office("settle", intent, "--not-bought", "--note", "x")
    assert (told.code, "there is nothing to settle" in told.err) == (1, True)


# --- confirmed, and yet -------------------------------------------------------------------------------


def unlisted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimAccount, "reservations", lambda account: ())


def test_a_payment_that_failed_is_settled_without_an_engine(office: Office):
    office.open(**CHEAP)
    office("sim", "fault", "payment-fails")
    intent = office("buy", office.offer()["id"], "--yes", "--json").json["intent"]["id"]
    office.wait("2m")
    assert "there is nothing to settle" in office("settle", intent).err
    office.wait("13h")
    told = office("settle", intent)
    assert (told.code, office.state(intent)) == (0, "failed"), told.err
    assert "its payment failed" in told.out
    assert office("ledger", "--json").json["purchases"][0]["fee_usd"] == 0
    assert office("buy", office.offer()["id"], "--yes").code == 0


def test_a_confirmed_block_that_aws_never_lists_is_told_and_can_be_settled(
    office: Office, monkeypatch: pytest.MonkeyPatch
):
    office.open(**CHEAP)
    intent = office("buy", office.offer()["id"], "--yes", "--json").json["intent"]["id"]
    unlisted(monkeypatch)
    assert "AWS does not list it yet" in office("blocks").out
    assert office("settle", intent, "--not-bought", "--note", "no bill", "--yes").code == 1
    office.wait("61m")
    assert (
        f"AWS has not listed it since 2026-11-16 08:00 UTC; look into it: tidemill settle {intent}"
        in office("blocks").out
    )
    alone = office("settle", intent)
    assert (alone.code, office.state(intent)) == (4, "confirmed")
    assert "Its fee counts as spent" in alone.err
    told = office("settle", intent, "--not-bought", "--note", "no bill", "--yes")
    assert "warning: EC2 answered that it sold cr-" in told.err
    assert (told.code, office.state(intent)) == (0, "failed")


def test_a_block_that_ended_is_not_settled_away(office: Office, monkeypatch: pytest.MonkeyPatch):
    office.open(**CHEAP)
    intent = office("buy", office.offer()["id"], "--yes", "--json").json["intent"]["id"]
    office.wait("30d")
    unlisted(monkeypatch)
    told = office("settle", intent, "--not-bought", "--note", "gone", "--yes")
    assert (told.code, office.state(intent)) == (1, "confirmed")
    assert "its fee stays spent" in told.err


def test_a_no_that_proved_wrong_is_set_right_and_its_fee_counts_again(office: Office):
    intent = unanswered(office, "lost-request")
    zone = office.purchases()[0]["envelope"]["zones"][0]
    office.wait("61m")
    assert office("settle", intent, "--not-bought", "--note", "no bill", "--yes").code == 0
    assert "if it bought one, add --bought cr-…" in office("settle", intent).err
    block = elsewhere(office, P5, "--count", "2", "--zone", zone)
    told = office("settle", intent, "--bought", block, "--note", "the bill after all", "--yes")
    assert (told.code, office.state(intent)) == (0, "confirmed"), told.err
    assert office("ledger", "--json").json["purchases"][0]["fee_usd"] > 0


@pytest.mark.requirement("CB-6")
def test_an_extension_in_doubt_is_found_in_the_history(office: Office):
    block = office.open(**CHEAP)("buy", office.offer()["id"], "--yes", "--json").json["reservation_ids"][0]
    office.wait("10m")
    office("sim", "fault", "lost-answer", "--of", "extension")
    assert office("extend", block, "--by", "7d", "--yes").code == 4
    intent = office.purchases()[-1]["id"]
    office.wait("3m")
    assert "is confirmed" in office("settle", intent).out
    assert office.calls("purchase_extension") == 1


# --- processes that die, and processes at once --------------------------------------------------------


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_around_the_call_it_stays_submitted_and_the_next_command_says_what_to_do(
    office: Office, moment
):
    intent = office.open().approved()
    with start(office, "tests.cli.ending_block", moment, "buy", intent, "--yes") as dying:
        dying.communicate()
    assert (dying.returncode, office.state(intent)) == (-signal.SIGKILL, "submitted")
    assert f"tidemill settle {intent}" in office("blocks").out
    told = office("buy", intent, "--yes")
    assert (told.code, office.state(intent)) == (4, "submitted")
    office.wait("61m")
    if moment == "after":
        assert "was bought: AWS shows cr-" in office("buy", intent, "--yes").out
        assert office.state(intent) == "confirmed"
    else:
        assert office("buy", intent, "--yes").code == 4
        assert (
            office("settle", intent, "--not-bought", "--note", "CloudTrail shows no call", "--yes").code == 0
        )
        assert office.state(intent) == "failed"
    assert office.calls("purchase") == (1 if moment == "after" else 0)


def test_of_several_who_buy_one_intent_at_once_one_does(office: Office):
    intent = office.open().approved()
    buyers = [start(office, "tidemill", "buy", intent, "--yes") for _ in range(3)]
    codes = [(buyer.communicate()[0], buyer.returncode)[1] for buyer in buyers]
    assert codes.count(0) == 1, codes
    assert set(codes) <= {0, 1, 4}
    assert (office.calls("purchase"), office.state(intent)) == (1, "confirmed")


def test_several_may_change_the_account_at_once(office: Office):
    office.open()
    given = ("sim", "buy-elsewhere", P5, "--zone", "us-east-1a", "--name")
    others = [start(office, "tidemill", *given, f"b{number}") for number in range(4)]
    ids = {other.communicate()[0].strip() for other in others}
    assert {one["id"] for one in office.blocks()} == ids
    assert len(ids) == 4
