"""What is accepted but not acted on is said aloud."""

from __future__ import annotations

from tests.spec.conftest import Reader
from tests.spec.writing import NODE_CLASS, plan, pool, together, told, window

BLOCK_POOL = pool("sources: [{type: block}]")


def test_warns_of_an_overlap_that_is_not_bought(read: Reader) -> None:
    wished = plan(window()).replace("  demand:", "  overlap: 1h\n  demand:")
    (problem,) = read(together(NODE_CLASS, BLOCK_POOL, wished)).problems
    assert (problem.code, problem.severity) == ("not-yet", "warning")
    assert problem.message.startswith("'overlap' is accepted but not used in this version")
    assert told(read(together(NODE_CLASS, BLOCK_POOL, wished.replace("1h", "0s")))) == []
