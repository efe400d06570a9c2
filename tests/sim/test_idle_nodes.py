"""Invariant 13: no prepaid node stands idle while a pod that it could take, and is allowed to take, waits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import PreparedScenario, deciding_wrongly, scenario_with, without
from tidemill.model.errors import InvariantViolated
from tidemill.model.plan import Admit


def waiting(**scenario: Any) -> PreparedScenario:
    """Two paid nodes for four hours, and work that comes after an hour."""
    return scenario_with(scenario.pop("pool", given.pool()), reservations=[given.block()], **scenario)


ONE_JOB = waiting(jobs=[given.job(at=("1h",))])
WRONG = {
    "never admits": (ONE_JOB, without(Admit)),
    "admits no gang": (
        waiting(jobs=[given.job(at=("1h",), nodes=2, lasts="20m")]),
        deciding_wrongly(
            lambda spec, world, plan: [
                action for action in plan.actions if not (isinstance(action, Admit) and len(action.pods) > 1)
            ]
        ),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_engine_that_leaves_paid_nodes_idle_trips_number_13_and_the_real_one_uses_them(name: str) -> None:
    scenario, decide = WRONG[name]
    with pytest.raises(InvariantViolated) as caught:
        scenario.run(decide=decide)
    assert caught.value.number == 13, str(caught.value)
    assert all(job.state == "finished" for job in scenario.run().cluster.jobs.values())


APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "fit"}}}
        ]
    }
}
RIGHTLY_IDLE = {
    "too little time is left": waiting(jobs=[given.job(at=("1h",), lasts="3h")]),
    "another namespace": waiting(pool=given.pool(allowedNamespaces=["vision"]), jobs=[given.job(at=("1h",))]),
    "another node selector": waiting(jobs=[given.job(at=("1h",), nodeSelector={"tier": "none"})]),
    "a gang that is too large": waiting(jobs=[given.job(at=("1h",), nodes=3, lasts="20m")]),
    "a gang that must be in one zone and whose pods keep out of each other's": waiting(
        jobs=[given.job(at=("1h",), nodes=2, lasts="20m", labels={"app": "fit"}, affinity=APART)]
    ),
    "a gang that would take the node which a service moves to before the gang is done": scenario_with(
        given.pool(),
        reservations=[
            given.block("old", count=1, duration="2d"),
            given.block("new", zone="us-east-1b", duration="3d", **{"from": "1d"}),
        ],
        services=[given.service(replicas=1, minAvailable=0)],
        jobs=[given.job(at=("26h",), nodes=2, lasts="30h")],
        duration="30h",
    ),
    "hours without an engine": waiting(
        jobs=[given.job(at=("1h",), lasts="10m")], faults=[given.fault("50m", "engine-absent", duration="2h")]
    ),
}


def test_nodes_that_eks_takes_at_the_old_end_of_an_extended_block_are_rightly_idle() -> None:
    """The group goes to 0 at 10:50 although the block lasts another day; an hour before, little fits any more."""
    scenario = scenario_with(
        given.pool(provisioner="managed"),
        on=given.platform(nodeRole="arn:aws:iam::123456789012:role/ml-node"),
        reservations=[given.block()],
        extensions=[{"at": "30m", "block": "a", "by": "1d"}],
        jobs=[given.job(at=("2h30m",), lasts="45m")],
        duration="3h15m",
    )
    assert scenario.run().cluster.jobs["fit-1"].started is None


@pytest.mark.parametrize("name", RIGHTLY_IDLE)
def test_a_pod_that_may_not_use_an_idle_node_violates_nothing(name: str) -> None:
    rehearsal = RIGHTLY_IDLE[name].run()
    waited = [
        job
        for job in rehearsal.cluster.jobs.values()
        if job.started is None or job.started > given.after("2h")
    ]
    assert waited
