"""Scenarios for every provisioner: only what launches differs."""

from __future__ import annotations

from typing import Any

from tests.sim.scenario_builder import PreparedScenario, block, job, pool, scenario_with, service
from tidemill.model.nodes import InstanceState
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.platform import Platform


def running(rehearsal: Rehearsal) -> int:
    return sum(history.now.state is InstanceState.RUNNING for history in rehearsal.cloud.alive())


def delivered(way: str) -> PreparedScenario:
    """A block that comes after half an hour, short jobs, and one that outlasts it."""
    return scenario_with(
        pool(provisioner=way),
        reservations=[block(**{"from": "30m"}, duration="3h30m")],
        jobs=[
            job(at=["0s", "1h", "2h"], lasts="40m"),
            job("long", at=["90m"], lasts="9h", checkpointEvery="10m"),
        ],
    )


def extended(way: str) -> PreparedScenario:
    """A block that is extended by a day, and a job that needs it."""
    return scenario_with(
        pool(provisioner=way), reservations=[block()], jobs=[job(lasts="20h", checkpointEvery="10m")],
        extensions=[{"at": "1h", "block": "a", "by": "1d"}], duration="29h",
    )  # fmt: skip


def two_blocks(train: ComputePool, on: Platform | None = None, **fields: Any) -> PreparedScenario:
    """A service that must move from one block to the next without downtime."""
    chat = service(
        replicas=4, minAvailable=3, gpus=4, cpu="40", memory="400Gi", load="8m", zeroDowntime=True,
        handover={"method": "rollout", "maxSurge": 2, "maxUnavailable": 0},
    )  # fmt: skip
    return scenario_with(
        train,
        on=on,
        reservations=[
            block("a", pool="train"),
            block("b", pool="train", zone="us-east-1b", duration="28h", **{"from": "1h"}),
        ],
        services=[chat],
        duration="5h",
        **fields,
    )
