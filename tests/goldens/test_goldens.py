"""The engine, the packer and the planner answer as they did when the goldens were written (`make goldens`)."""

from __future__ import annotations

import difflib

import pytest

from tests.goldens import freeze

CASES = freeze.cases()
SHOWN = 20  # lines of a difference


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=[pytest.mark.slow] if freeze.is_slow(name) else []) for name in CASES]
)
def test_answers_are_the_frozen_ones(case: str) -> None:
    lines = CASES[case]()
    _same("bare", case, [freeze.bare(line) for line in lines], "the engine does something else")
    _same("full", case, lines, "it does the same and says it in other words")


def _same(kind: str, case: str, lines: freeze.Lines, meaning: str) -> None:
    frozen = freeze.read(kind, case)
    if lines == frozen:
        return
    difference = list(difflib.unified_diff(frozen, lines, "frozen", "now", lineterm="", n=1))
    shown = "\n".join(line[:400] for line in difference[:SHOWN])
    more = f"\n… {len(difference) - SHOWN} more lines" if len(difference) > SHOWN else ""
    pytest.fail(f"{case}: {meaning}.\n{shown}{more}\nIf it is meant: make goldens", pytrace=False)
