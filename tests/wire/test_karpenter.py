"""Pools left to Karpenter, the account on the wire: it launches in process, the engine sees that through boto3."""

from __future__ import annotations

import pytest

from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import after, last_pod_left_at, scenario_with
from tests.wire.rehearsing import ONE_BLOCK_AND_JOBS, TWO_BLOCKS_AND_A_SERVICE, run_both_ways
from tidemill.model.plan import Launch

ON = given.platform(nodeRole="node", karpenter={"version": "1.11.0", "staticCapacity": True})


@pytest.mark.requirement("KP-1")
@pytest.mark.requirement("CB-10")
def test_karpenter_launches_jobs_run_and_all_is_drained_before_it_would_act(monkeypatch):
    rehearsal = run_both_ways(
        scenario_with(
            given.pool(provisioner="karpenter"),
            on=ON,
            **ONE_BLOCK_AND_JOBS,
        ),
        monkeypatch,
    )
    assert rehearsal.cluster.jobs["fit-1"].state == rehearsal.cluster.jobs["fit-2"].state == "finished"
    assert not any(isinstance(one.action, Launch) for one in rehearsal.done)
    assert {history.now.provisioner for history in rehearsal.cloud.instance_histories.values()} == {
        "karpenter"
    }
    left = last_pod_left_at(rehearsal, "a")
    assert left is not None
    assert left <= after("3h20m")


@pytest.mark.slow
@pytest.mark.requirement("KP-6")
@pytest.mark.requirement("CB-9")
def test_two_blocks_hand_a_service_over(monkeypatch):
    prepared = scenario_with(
        given.pool(provisioner="karpenter", warm=True), on=ON, **TWO_BLOCKS_AND_A_SERVICE
    )
    rehearsal = run_both_ways(prepared, monkeypatch)
    assert rehearsal.cluster.services["chat"].downtime_s(rehearsal.end) == 0
    b = rehearsal.cloud.names["b"]
    assert {each["metadata"]["name"] for each in rehearsal.karpenter.listed("NodePool")} == {
        f"train-{b}-warm"
    }
