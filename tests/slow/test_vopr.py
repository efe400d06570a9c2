"""Two dozen platforms that nobody wrote, a week each: no invariant breaks, nothing raises, every report is written."""

from __future__ import annotations

import pytest

from benchmarks.vopr.generate import as_text, generate
from benchmarks.vopr.judge import judge

SEEDS, CHUNK, DAYS = 24, 4, 7
# Faults that are known and not mended. A seed leaves this list with the commit that mends it. Seed 21 was stopped by an
# invariant after eight hours; that is mended, and its week takes more than a minute: each failed launch is packed anew.
# Of seed 5 the limits of a pool are full of empty nodes on a block that ends: they are ended five minutes after its
# service began to leave, so that the node that takes it over comes a minute late.
OPEN = {5: "invariant 9", 21: "too slow"}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_platforms_that_nobody_wrote_keep_every_invariant(first: int) -> None:
    faults = {}
    for seed in range(first, first + CHUNK):
        verdict = judge(as_text(generate(seed, DAYS)), seed)
        if verdict.signature and verdict.signature.partition(":")[0] != OPEN.get(seed):
            faults[seed] = f"{verdict.signature}: {verdict.story}"
    assert not faults
