"""`tidemill costs`: pools and teams with their hours and money, from a ledger that is only read."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from tests.cli.purchaser import CHEAP, START, Purchaser
from tests.decide.builders import NOW
from tests.decide.purchases import intent
from tests.store.ledgers import Opener
from tidemill.catalog import load
from tidemill.cli import main
from tidemill.model.capacity import SourceKind
from tidemill.model.purchases import Adoption, BlockHours, CostLine
from tidemill.report.ledger_costs import not_counted

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
    assert "the same work on demand: $6,888; saved $480" in lines
    assert "breaks even at 29 % use; 31 % was reached" in lines


def test_the_savings_of_costs_are_those_of_the_one_place_that_computes_them(address: str, capsys: Captured):
    assert main(["costs", address, "--json"]) == 0
    saved = json.loads(capsys.readouterr().out)["savings"]
    assert (saved["paid_usd"], saved["idle_usd"], saved["ahead_usd"]) == (6408.0, 4400.0, 8960.0)
    assert (saved["on_demand_usd"], saved["saved_usd"]) == (6888.0, 480.0)


def test_costs_finds_the_ledger_that_the_other_verbs_use(
    tmp_path: Path, opened: Opener, capsys: Captured, monkeypatch: pytest.MonkeyPatch
):
    opened(f"sqlite:///{tmp_path / 'tidemill-ledger.db'}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEMILL_LEDGER", raising=False)
    assert main(["costs"]) == 0
    assert capsys.readouterr().out == "this ledger has no costs\n"


def test_past_hours_that_no_engine_saw_are_told_and_not_called_idle_or_used():
    """A block of 4 x 8 GPUs, a day old, of which an engine saw six hours."""
    start = NOW - timedelta(days=1)
    bought = intent(
        "confirmed", reservation_ids=("cr-1",), fee_usd=10_000, start=start, end=start + timedelta(days=10),
        inside={"duration": timedelta(days=10)},
    )  # fmt: skip
    adopted = [Adoption("cr-1", "p5", "ana", NOW), Adoption("cr-2", "p5", "ana", NOW)]
    seen = [BlockHours("cr-1", "p5", held_h=6 * 32.0)]
    found = not_counted(load(), [bought], seen, adopted, NOW)
    assert (found.unobserved_gpu_hours, found.without_fee) == (18 * 32.0, ("cr-2",))
    assert found.unobserved_usd == round(10_000 * 18 / 240, 2)


def test_the_past_hours_of_an_extension_count_as_well():
    start = NOW - timedelta(days=3)
    bought = intent(
        "confirmed", reservation_ids=("cr-1",), fee_usd=3_000, start=start, end=start + timedelta(days=1),
        inside={"duration": timedelta(days=1)},
    )  # fmt: skip
    more = intent(
        "confirmed", id="tp-2", extends="cr-1", reservation_ids=("cr-1",), fee_usd=3_000,
        start=start + timedelta(days=1), end=start + timedelta(days=2), inside={"duration": timedelta(days=1)},
    )  # fmt: skip
    found = not_counted(load(), [more, bought], [], [], NOW)
    assert (found.unobserved_gpu_hours, found.unobserved_usd) == (2 * 24 * 32.0, 6_000)


def test_a_simulated_accounts_own_clock_says_which_hours_are_past(purchaser: Purchaser):
    """Its time stands where it was set, years before or after the machine's."""
    purchaser.open(**CHEAP).bought_at_once()
    told = purchaser("costs", "--json").json
    assert (told["at"][:10], told["not_counted"]["unobserved_gpu_hours"]) == (START[:10], 0)
    purchaser.advance("30d")
    said = " ".join(purchaser("costs").out.split())
    assert "2,688 GPU-hours of blocks" in said
    assert "are past and no engine observed them" in said


def test_an_adopted_block_counts_nothing_and_costs_says_so(tmp_path: Path, opened: Opener, capsys: Captured):
    url = f"sqlite:///{tmp_path / 'adopted.db'}"
    ledger = opened(url)
    ledger.adopt(Adoption("cr-9", "p5", "ana", NOW))
    ledger.write_block_hours((BlockHours("cr-9", "p5", held_h=360 * 32.0),))
    assert main(["costs", url]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "adopted, so their fee is not in this ledger and counts as $0: cr-9" in out
    assert "11,520" in out  # fifteen days of 32 GPUs, all idle


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
