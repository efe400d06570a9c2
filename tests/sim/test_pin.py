"""A pin keeps a pod on the source and in the pool it was admitted to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.scenario_builder import job, pool, scenario_with
from tidemill.spec import names

pytestmark = pytest.mark.requirement("PE-18")


def test_a_job_stays_in_the_pool_it_was_admitted_to() -> None:
    """Both pools have on-demand nodes, which carry the same source label."""
    shared: dict[str, Any] = {
        "requirements": {"instanceTypes": ["g6.12xlarge"]}, "sources": [{"type": "on-demand"}], "taints": [],
    }  # fmt: skip
    small: dict[str, Any] = {"cpu": "4", "memory": "16Gi", "gpus": 1}
    rehearsal = scenario_with(
        pool("first", **shared),
        pool("second", **shared),
        jobs=[
            job("one", lasts="3h", **{**small, "nodeSelector": {"tier": "first"}}),
            job("two", lasts="3h", **{**small, "nodeSelector": {"tier": "second"}}),
            job("any", lasts="3h", at=["20m"], **{**small, "nodeSelector": {}}),
        ],
        duration="1h",
    ).run()
    pools = {node.name: dict(node.labels)[names.LABEL_POOL] for node in rehearsal.cluster.view().nodes}
    bound = [pod for pod in rehearsal.cluster.pods.values() if pod.node and not pod.daemon]
    assert len(bound) == 3
    for pod in bound:
        assert dict(pod.shape.node_selector)[names.LABEL_POOL] == pools[pod.node]
