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


@pytest.mark.requirement("PE-22")
def test_inspect_and_blocks_use_the_same_words_for_whose_a_block_is(purchaser: Purchaser):
    """But for what only the ledger knows, which `inspect` does not read: whether a tagged one was bought or adopted."""
    purchaser.open(mode="auto", approval={"autoMaxFeeUsd": 40_000}).bought_at_once(*WISH)
    purchaser.advance("10m")
    bought_elsewhere = {
        name: purchaser("sim", "buy-elsewhere", P5, "--zone", "us-east-1a", "--name", name, *more).out.strip()
        for name, more in {"plain": (), "theirs": ("--owner", "other"), "adopted": ()}.items()
    }
    assert purchaser("adopt", bought_elsewhere["adopted"], "--yes").code == 0
    seen = {one["id"]: one["held"] for one in purchaser("inspect", "--json").json["blocks"]}
    known = {one["id"]: one["held"] for one in purchaser.blocks()}
    assert sorted(known.values()) == ["adopted", "another's", "bought", "untracked"]
    by_ledger = {"bought": "tagged", "adopted": "tagged"}
    assert seen == {id_: by_ledger.get(held, held) for id_, held in known.items()}


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
