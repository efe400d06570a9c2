"""Two dozen platforms that nobody wrote, a week each: no invariant breaks, nothing raises, every report is written."""

from __future__ import annotations

import pytest

from benchmarks.vopr.generate import as_text, generate
from benchmarks.vopr.judge import judge

SEEDS, CHUNK, DAYS = 24, 4, 7


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_platforms_that_nobody_wrote_keep_every_invariant(first: int) -> None:
    faults = {}
    for seed in range(first, first + CHUNK):
        verdict = judge(as_text(generate(seed, DAYS)), seed)
        if verdict.signature:
            faults[seed] = f"{verdict.signature}: {verdict.story}"
    assert not faults
