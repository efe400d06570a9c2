"""Pools left to Karpenter, the account on the wire: it launches in process, the engine sees that through boto3."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.scenario_builder import (
    PreparedScenario,
    after,
    block,
    job,
    last_pod_left_at,
    platform,
    pool,
    scenario_with,
    service,
)
from tests.wire.rehearsing import on_the_wire
from tidemill.model.plan import Launch
from tidemill.sim.scenario.rehearsal import Rehearsal

ON = platform(nodeRole="node", karpenter={"version": "1.11.0", "staticCapacity": True})


def both(prepared: PreparedScenario, monkeypatch: pytest.MonkeyPatch) -> Rehearsal:
    """Over the wire, with the same story as in process."""
    with on_the_wire(prepared, monkeypatch) as rehearsal:
        rehearsal.run()
    stories = [
        [(line.at, line.kind, line.about) for line in one.journal.lines]
        for one in (rehearsal, prepared.run())
    ]
    assert stories[0] == stories[1]
    return rehearsal


@pytest.mark.requirement("KP-1")
@pytest.mark.requirement("CB-10")
def test_karpenter_launches_jobs_run_and_all_is_drained_before_it_would_act(monkeypatch):
    rehearsal = both(
        scenario_with(
            pool(provisioner="karpenter"),
            on=ON,
            reservations=[block(**{"from": "30m"}, duration="3h30m")],
            jobs=[
                job(at=["0s", "1h"], lasts="40m"),
                job("long", at=["2h"], lasts="9h", checkpointEvery="10m"),
            ],
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
    chat: dict[str, Any] = {
        "replicas": 4, "minAvailable": 3, "gpus": 4, "cpu": "40", "memory": "400Gi", "load": "8m",
        "zeroDowntime": True, "handover": {"method": "rollout", "maxSurge": 2, "maxUnavailable": 0},
    }  # fmt: skip
    blocks = [
        block("a", pool="train"),
        block("b", pool="train", zone="us-east-1b", duration="28h", **{"from": "1h"}),
    ]
    prepared = scenario_with(
        pool(provisioner="karpenter", warm=True),
        on=ON,
        reservations=blocks,
        services=[service(**chat)],
        duration="5h",
    )
    rehearsal = both(prepared, monkeypatch)
    assert rehearsal.cluster.services["chat"].downtime_s(rehearsal.end) == 0
    b = rehearsal.cloud.names["b"]
    assert {each["metadata"]["name"] for each in rehearsal.karpenter.listed("NodePool")} == {
        f"train-{b}-warm"
    }
