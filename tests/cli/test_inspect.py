"""`tidemill inspect` on a simulated account in a file."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest

from tests.cli.purchaser import P5, Purchaser
from tidemill.report import account_traps
from tidemill.report.account_traps import Trap
from tidemill.report.inspection import Claim, InspectedBlock, InspectedGroup, Inspection
from tidemill.report.instance_endings import Ending
from tidemill.report.survey import NotRead

WISH = (P5, "--count", "2", "--duration", "2d", "--from", "2026-11-18", "--to", "2026-11-22")


@pytest.mark.requirement("PE-22")
def test_inspect_reads_a_file_and_does_not_change_it(purchaser: Purchaser):
    purchaser.open(mode="auto", approval={"autoMaxFeeUsd": 40_000})
    bought = purchaser("buy", purchaser.offer(*WISH)["id"], "--yes")
    assert bought.code == 0, bought.err
    purchaser.advance("10m")  # EC2 lists a purchase late
    before = purchaser.sim.read_bytes()
    told = purchaser("inspect", "--json")
    assert told.code == 0, told.err
    assert "SIMULATED AWS in" in told.err
    (block,) = told.json["blocks"]
    assert (block["held"], block["type"]) == ("tagged", P5)
    assert [one["would"] for one in told.json["claims"]] == ["own"]
    assert (block["state"], told.json["traps"]) == ("scheduled", [])
    assert purchaser.sim.read_bytes() == before


def test_an_empty_account_is_reported(purchaser: Purchaser):
    purchaser.open()
    told = purchaser("inspect")
    assert told.code == 0
    assert "AWS shows no block and no on-demand reservation." in told.out
    assert "No trap found." in told.out


def test_documents_of_another_region_exit_2(purchaser: Purchaser):
    purchaser.open()
    purchaser.write(region="eu-west-1", subnets={"eu-west-1a": ["subnet-1"]})
    told = purchaser("inspect")
    assert told.code == 2
    assert "is an account in us-east-1, but the Platform is in eu-west-1" in told.err


# --- the guide ----------------------------------------------------------------------------------------


def test_the_guide_lists_every_trap_and_field():
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "inspect.md").read_text()
    codes = {
        call.args[0].value
        for module in (account_traps,)
        for call in ast.walk(ast.parse(Path(module.__file__).read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Trap"
    }
    assert len(codes) >= 13
    assert not [code for code in codes if f"`{code}`" not in guide]
    words = set(re.findall(r"\w+", guide))
    for record in (Inspection, InspectedBlock, InspectedGroup, Claim, Ending, Trap, NotRead):
        assert not [one.name for one in fields(record) if one.name not in words], record
