"""Daemon pods that take more than was estimated: one node is launched too small, and then it is known."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.scenario_builder import actions_done, fault, job, pool, scenario_with
from tidemill.model.plan import Launch
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.wording import sentence

HEAVY = (("cpu", 1000), ("memory", 1 << 30))  # the guess is 250m and 256 MiB
SNUG = {"gpus": 1, "cpu": "3.5", "memory": "4Gi"}  # g6.xlarge has 4 vCPUs


def rehearsed(*types: str, duration: str = "6h", **scenario: Any) -> Rehearsal:
    hourly = pool(sources=[{"type": "on-demand"}], requirements={"instanceTypes": list(types)})
    rehearsal = scenario_with(hourly, duration=duration, **scenario).prepare()
    rehearsal.cluster.run_daemons(HEAVY)
    rehearsal.run()
    return rehearsal


def launched(rehearsal: Rehearsal) -> list[str]:
    return [one.intent.instance_type for _, one in actions_done(rehearsal, Launch)]


@pytest.mark.requirement("PE-3", "PE-13")
def test_a_pod_that_does_not_fit_beside_the_daemons_causes_one_launch_and_gets_the_reason():
    """The known fault: launch, find no room, give the node back, and launch again, every quarter of an hour."""
    rehearsal = rehearsed("g6.xlarge", jobs=[job(lasts="30m", **SNUG)])
    assert launched(rehearsal) == ["g6.xlarge"]
    assert not list(rehearsal.cloud.alive())
    (unmet,) = rehearsal.plan.unmet
    assert unmet.code == "impossible"
    assert sentence(unmet.reason) == (
        "it asks for 3500m cpu, 4Gi memory, 1 nvidia.com/gpu, more than a node of pool train has"
        " beside its daemon pods, which take 1 cpu, 1Gi memory"
    )


@pytest.mark.requirement("PE-4")
def test_a_larger_type_is_taken_next_and_at_once_the_second_time():
    rehearsal = rehearsed("g6.xlarge", "g6.2xlarge", jobs=[job(lasts="30m", at=("0s", "3h"), **SNUG)])
    assert launched(rehearsal) == ["g6.xlarge", "g6.2xlarge", "g6.2xlarge"]
    assert {one.state for one in rehearsal.cluster.jobs.values()} == {"finished"}


def test_after_a_day_the_estimate_is_tried_again():
    """Somebody may have taken the daemons away since; one launch finds out."""
    rehearsal = rehearsed("g6.xlarge", jobs=[job(lasts="30m", **SNUG)], duration="30h")
    assert launched(rehearsal) == ["g6.xlarge"] * 2


def test_an_engine_that_restarts_launches_once_more_and_no_more():
    crash = fault("2h", "engine-crash")
    rehearsal = rehearsed("g6.xlarge", jobs=[job(lasts="30m", **SNUG)], faults=[crash])
    assert launched(rehearsal) == ["g6.xlarge"] * 2
