"""`tidemill ledger`: states and names for people, everything for programs, and nothing is changed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.decide.builders import NOW, failed_launch, launch_intent
from tests.decide.purchases import intent
from tests.store.ledgers import OURS, Opener
from tidemill.cli import main
from tidemill.model.purchases import LaunchState


@pytest.fixture
def address(tmp_path: Path, opened: Opener) -> str:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = opened(url)
    ledger.propose(intent())
    ledger.advance(intent(), intent("approved", approved_by=("ana",), state_at=NOW))
    ledger.propose(intent("voided", id="tp-2", extends="cr-7"))
    return url


@pytest.mark.requirement("CB-3")
def test_show_prints_owner_decisions_and_people(address: str, capsys: pytest.CaptureFixture[str]):
    assert main(["ledger", address]) == 0
    shown = capsys.readouterr().out
    assert "Ledger of tidemill-test (123456789012, us-west-2, research)" in shown
    row = next(line for line in shown.splitlines() if "tp-1" in line)
    assert all(word in row for word in ("approved", "4 x p5.48xlarge, 14 d", "at most $30,000", "ana: yes"))
    assert "extend cr-7" in shown
    assert "proposed -> approved" in shown


def test_launches_that_are_open_and_those_that_failed_are_two_numbers(
    tmp_path: Path, opened: Opener, capsys: pytest.CaptureFixture[str]
):
    url, now = f"sqlite:///{tmp_path / 'launches.db'}", datetime.now(UTC)
    ledger = opened(url)
    for number in range(3):
        ledger.write_launch(launch_intent(f"ti-{number}", written_at=now))
    ledger.write_launch(failed_launch("ti-f", at=now))
    for state in (LaunchState.SHORT, LaunchState.NEVER_READY):  # remembered, and over
        ledger.write_launch(launch_intent(state.value, state=state, written_at=now, state_at=now))
    assert main(["ledger", url]) == 0
    assert (
        "launches: 3 open, 1 failed within an hour; 0 instances paid by the hour" in capsys.readouterr().out
    )


def test_of_shows_the_history_of_one_intent(address: str, capsys: pytest.CaptureFixture[str]):
    assert main(["ledger", address, "--of", "tp-1"]) == 0
    shown = capsys.readouterr().out
    assert "tp-2" not in shown
    assert "proposed -> approved" in shown


def test_of_an_unknown_id_says_so(address: str, capsys: pytest.CaptureFixture[str]):
    assert main(["ledger", address, "--of", "tp-9"]) == 0
    assert capsys.readouterr().out == "this ledger has no entry for tp-9\n"


def test_json_has_everything(address: str, capsys: pytest.CaptureFixture[str]):
    assert main(["ledger", address, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["deployment"] == OURS.deployment
    assert [(one["id"], one["state"]) for one in told["purchases"]] == [
        ("tp-1", "approved"),
        ("tp-2", "voided"),
    ]
    assert told["purchases"][0]["verdicts"][0]["who"] == "ana"
    assert [line["subject"] for line in told["audit"]] == ["tidemill-test", "tp-1", "tp-1", "tp-2"]


def test_the_address_may_come_from_the_environment(address: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIDEMILL_LEDGER", address)
    assert main(["ledger"]) == 0


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("sqlite:////no/such/ledger.db", "there is no folder /no/such"),
        ("memory:", "a ledger in memory cannot be read by another process"),
        ("ledger.db", "is not the address of a ledger"),
    ],
)
def test_an_address_without_a_ledger_exits_2(address: str, says: str, capsys: pytest.CaptureFixture[str]):
    assert main(["ledger", address]) == 2
    assert says in capsys.readouterr().err
