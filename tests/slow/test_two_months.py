"""A slice of the thousand seeds of two months (`make two-months`): blocks, hand-overs, extensions and every fault."""

from __future__ import annotations

import pytest

from benchmarks.two_months import rehearse

SEEDS, CHUNK = 24, 4


@pytest.mark.slow
@pytest.mark.requirement("CB-7", "CB-9", "CB-10")
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_seed_of_two_months_goes_wrong(first: int) -> None:
    ran = [rehearse(seed) for seed in range(first, first + CHUNK)]
    assert [sentence for one in ran for sentence in one.wrong] == []
    assert all(one.extended for one in ran)
