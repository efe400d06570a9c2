"""Warm nodes and consolidated blocks exclude each other."""

import pytest
from pydantic import ValidationError

from tidemill.spec.compute_pool import ComputePoolSpec


def pool(**fields: object) -> ComputePoolSpec:
    return ComputePoolSpec.model_validate({"nodeClassName": "gpu", **fields})


@pytest.mark.requirement("CB-12")
def test_blocks_are_kept_warm_unless_the_pool_wants_them_consolidated():
    assert pool().kept_warm is True
    assert pool(disruption={"consolidateBlocks": True}).kept_warm is False
    assert pool(warm=2, disruption={"consolidateBlocks": True}).kept_warm == 2


def test_warm_and_consolidate_blocks_together_are_refused():
    with pytest.raises(ValidationError, match="has no effect"):
        pool(warm=True, disruption={"consolidateBlocks": True})
