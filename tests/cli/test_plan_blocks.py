"""`tidemill plan-blocks`: the purchases, the runner-up, and the price of each mitigation. It buys nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tidemill.cli import main

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "weekly-calendar.yaml")
FIRST_BLOCK = str(Path(__file__).parents[2] / "examples" / "first-block.yaml")


@pytest.fixture
def asked(capsys):
    def ask(*arguments, code=0):
        assert main(["plan-blocks", *arguments]) == code
        captured = capsys.readouterr()
        return captured.out if code == 0 else captured.err

    return ask


@pytest.mark.requirement("CB-9")
def test_plan_blocks_shows_purchases_runner_up_and_hand_over_prices(asked):
    text = asked(EXAMPLE)
    for words in (
        "2 x p5.48xlarge", "now", "runner-up", "more expensive", "GPU-hour", "as bought", "What would change it",
        "buying nothing would cost", "missing for 45m in this plan", "a day more of the successor",
        "a day's extension", "a start-now block", "an on-demand bridge",
    ):  # fmt: skip
        assert words in text


def test_the_json_has_every_figure_and_the_choices_add_up(asked):
    told = json.loads(asked(EXAMPLE, "--json"))
    assert told["simulated"]
    assert sum(one["fee_usd"] for one in told["choices"]) == told["fees_usd"]
    assert told["bound_usd"] <= told["total_usd"] < told["without_usd"]
    assert {len(one["ways"]) for one in told["hand_overs"]} == {4}
    assert told == json.loads(asked(EXAMPLE, "--json"))


def test_plan_blocks_plans_demand_windows_too(asked):
    told = json.loads(asked(FIRST_BLOCK, "--json"))
    assert told["plans"] == ["november"]
    assert [(one["type"], one["count"]) for one in told["choices"]] == [("p5.48xlarge", 4)]


def test_a_missing_plan_or_solver_gives_a_hint(asked, monkeypatch):
    apart = str(Path(EXAMPLE).with_name("two-blocks.yaml"))
    assert "no CapacityPlan" in asked(apart, code=2)
    monkeypatch.setitem(sys.modules, "highspy", None)
    assert "pip install highspy" in asked(EXAMPLE, code=2)


def test_the_default_install_has_the_solver_and_only_planning_imports_it():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    assert any(one.startswith("highspy") for one in project["dependencies"])
    loads = "import sys, tidemill.cli, tidemill.decide; sys.exit('highspy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loads], check=False).returncode == 0
