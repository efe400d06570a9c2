"""`tidemill costs`: pools and teams with their hours and money, from a ledger that is only read."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from tests.decide.builders import NOW
from tests.decide.purchases import intent
from tests.store.ledgers import Opener
from tidemill.cli import main
from tidemill.model.capacity import SourceKind
from tidemill.model.purchases import BlockHours, CostLine

pytestmark = pytest.mark.requirement("PE-16")
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def address(tmp_path: Path, opened: Opener) -> str:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = opened(url)
    inside = {"duration": timedelta(days=10)}
    ledger.propose(
        intent("confirmed", reservation_ids=("cr-1",), fee_usd=15_360, state_at=NOW, inside=inside)
    )
    ledger.write_block_hours(
        (BlockHours("cr-1", "p5", held_h=3200.0), BlockHours("cr-1", "p5", "vision", used_h=1000.0))
    )
    ledger.meter(CostLine("i-1", "g6", SourceKind.ON_DEMAND, 2.0, NOW, NOW + timedelta(hours=4), "speech", 1))
    return url


def test_costs_shows_pools_with_idle_hours_and_teams(address: str, capsys: Captured):
    assert main(["costs", address]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "pool p5 1,000 2,200 $6,400 $6,880 $480" in lines
    assert "pool g6 4.0 0 $8.00 $8.00 $0" in lines
    assert "team vision 1,000 $2,000 $6,880 $4,880" in lines
    assert "$15,368 in total, of which $8,960 for hours to come or not observed" in lines


def test_json_has_all_figures(address: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIDEMILL_LEDGER", address)
    assert main(["costs", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["pool"] for one in told["pools"]] == ["p5", "g6"]
    assert told["pools"][0]["outside_usd"] == 8960
    assert [one["team"] for one in told["teams"]] == ["vision", "speech"]


def test_a_ledger_without_costs_says_so(tmp_path: Path, opened: Opener, capsys: Captured):
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    opened(url)
    assert main(["costs", url]) == 0
    assert capsys.readouterr().out == "this ledger has no costs\n"
