"""Fees in `status`: what this ledger bought, and what it did not. Together they are what `up` shows."""

from __future__ import annotations

import io

from rich.console import Console

from tests.decide.builders import block, spec, world
from tests.decide.purchases import intent
from tidemill.model.plan import Plan
from tidemill.render.display_names import DisplayNames
from tidemill.render.status_text import status_text
from tidemill.report import status


def test_blocks_that_were_not_bought_here_are_told_beside_the_months_fees() -> None:
    bought = intent("confirmed", reservation_ids=("cr-1",), fee_usd=7_000)
    there = world(
        bought,
        block("cr-1", fee_usd=7_000, pool="p5", intent_id="tp-1"),
        block("cr-2", fee_usd=10_000, pool="p5"),
        block("cr-3", pool="p5"),
    )
    found = status(spec(), there, Plan())
    assert (found.money.other_fees_usd, found.money.unknown_fees) == (10_000, ("cr-3",))
    console = Console(file=io.StringIO(), width=200)
    console.print(status_text(found, DisplayNames({})))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "and $10,000 for blocks that were not bought here, which the budget does not count" in text
    assert "the fee of cr-3 is not known: EC2 does not tell it" in text
