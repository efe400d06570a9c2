"""Pools left to Karpenter, through the whole loop: the engine admits, keeps objects and drains; Karpenter launches."""

from __future__ import annotations

import pytest

from tests.sim import scenario_builder as given
from tests.sim.provisioner_builder import delivered, extended, running, two_blocks
from tests.sim.scenario_builder import actions_done, after, journal_lines, last_pod_left_at, scenario_with
from tidemill.model.plan import Launch, Recreate
from tidemill.sim.scenario.rehearsal import Rehearsal

# A block of a scenario ends at 11:30: Karpenter acts at 10:50.
DEADLINE = after("3h20m")
STATIC = given.platform(karpenter={"version": "1.11.0", "staticCapacity": True})


def node_pools(rehearsal: Rehearsal) -> set[str]:
    return {each["metadata"]["name"] for each in rehearsal.karpenter.listed("NodePool")}


@pytest.mark.requirement("KP-1")
@pytest.mark.requirement("CB-10")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_karpenter_launches_and_the_engine_drains_before_karpenter_does(seed: int):
    rehearsal = delivered("karpenter").prepare(seed)
    rehearsal.run_until(after("29m"))
    assert not rehearsal.cloud.instance_histories
    rehearsal.run_until(DEADLINE)
    assert rehearsal.cluster.jobs["fit-1"].state == "finished"
    assert not list(rehearsal.cloud.alive())
    rehearsal.run()
    assert not actions_done(rehearsal, Launch)
    assert {history.now.provisioner for history in rehearsal.cloud.instance_histories.values()} == {
        "karpenter"
    }
    left = last_pod_left_at(rehearsal, "a")
    assert left is not None
    assert left <= DEADLINE


@pytest.mark.requirement("KP-4")
def test_prepaid_nodes_stay_up_between_jobs():
    rehearsal = scenario_with(
        given.pool(provisioner="karpenter", disruption={"consolidateAfter": "1m"}),
        reservations=[given.block(duration="28h")],
        jobs=[given.job(at=["0s", "2h"], lasts="20m")],
        duration="3h",
    ).run()
    assert len(rehearsal.cloud.instance_histories) == 1
    assert rehearsal.cluster.jobs["fit-2"].state == "finished"


@pytest.mark.requirement("KP-8")
def test_a_warm_pool_has_its_nodes_before_anybody_asks():
    rehearsal = scenario_with(
        given.pool(provisioner="karpenter", warm=True),
        on=STATIC,
        reservations=[given.block(**{"from": "30m"})],
    ).prepare()
    rehearsal.run_until(after("29m"))
    assert not rehearsal.cloud.instance_histories
    rehearsal.run_until(after("40m"))
    assert running(rehearsal) == 2
    rehearsal.run()


@pytest.mark.requirement("KP-6")
@pytest.mark.requirement("CB-9")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_blocks_hand_a_service_over_and_the_objects_move_with_them(seed: int):
    # Warm: who boots nodes for pods alone is minutes late for a hand-over.
    rehearsal = two_blocks(given.pool(provisioner="karpenter", warm=True), on=STATIC).prepare(seed)
    a, b = rehearsal.cloud.names["a"], rehearsal.cloud.names["b"]
    rehearsal.run_until(after("2h"))
    assert node_pools(rehearsal) == {f"train-{a}-warm", f"train-{b}-warm"}
    rehearsal.run()
    assert rehearsal.cluster.services["chat"].downtime_s(rehearsal.end) == 0
    assert node_pools(rehearsal) == {f"train-{b}-warm"}
    assert {history.now.source.id for history in rehearsal.cloud.alive()} == {b}


@pytest.mark.requirement("CB-7")
def test_an_extension_keeps_the_nodes_and_no_object_changes():
    rehearsal = extended("karpenter").prepare()
    rehearsal.run_until(after("50m"))
    before = journal_lines(rehearsal, "object-applied")
    rehearsal.run_until(after("5h"))
    assert journal_lines(rehearsal, "object-applied") == before
    assert len(rehearsal.cloud.instance_histories) == 1
    rehearsal.run()
    assert rehearsal.cluster.jobs["fit-1"].state == "finished"


def test_a_dead_node_is_replaced_by_karpenter():
    rehearsal = scenario_with(
        given.pool(provisioner="karpenter"),
        reservations=[given.block(duration="28h")],
        faults=[given.fault("1h", "node-dies")],
        jobs=[given.job(at=["0s"], lasts="9h", checkpointEvery="10m")],
        duration="3h",
    ).run()
    assert running(rehearsal) == 1
    assert len(rehearsal.cloud.instance_histories) == 2


@pytest.mark.requirement("KP-2")
def test_work_that_may_overflow_runs_on_demand_beside_the_block():
    sources = [{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 120, "maxMonthlyUsd": 5000}]
    rehearsal = scenario_with(
        given.pool(provisioner="karpenter", sources=sources),
        on=given.platform(budget={"monthlyUsd": 100000}),
        reservations=[given.block(count=1, duration="28h")],
        jobs=[given.job(at=["0s", "1m"], lasts="1h", overflow=True)],
        duration="4h",
    ).run()
    kinds = sorted(history.now.source.kind.value for history in rehearsal.cloud.instance_histories.values())
    assert kinds == ["block", "on-demand"]
    assert all(rehearsal.cluster.jobs[name].state == "finished" for name in ("fit-1", "fit-2"))
    assert running(rehearsal) == 1  # the one by the hour went when it was empty


def test_an_engine_that_dies_loses_nothing():
    rehearsal = scenario_with(
        given.pool(provisioner="karpenter"), reservations=[given.block(duration="28h")],
        jobs=[given.job(at=["0s", "10m"], lasts="1h")],
        faults=[given.fault("2m", "engine-crash"), given.fault("12m", "engine-crash")], duration="3h",
    ).run()  # fmt: skip
    assert all(rehearsal.cluster.jobs[name].state == "finished" for name in ("fit-1", "fit-2"))
    assert len(rehearsal.cloud.instance_histories) == 2


def test_overflow_without_money_launches_nothing_for_karpenter_to_launch_again():
    """The platform has no budget: Karpenter launched on demand every few seconds what the engine ended at once."""
    poor = given.pool(
        provisioner="karpenter",
        sources=[{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 60, "maxMonthlyUsd": 20000}],
    )
    on = given.platform(karpenter={"version": "1.11.0"}, nodeRole="arn:aws:iam::123456789012:role/ml-node")
    rehearsal = scenario_with(poor, on=on, services=[given.service(replicas=1)], duration="1h").run()
    assert not rehearsal.cloud.instance_histories


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_engine_that_ticks_every_second_lets_karpenter_launch_for_the_last_slot(seed: int):
    """AWS lists an instance some seconds after its slot is taken: the pod that it was launched for was taken back."""
    jobs = [given.job(at=["10m", "11m"])]
    left_to_karpenter = given.pool(provisioner="karpenter")
    prepared = scenario_with(left_to_karpenter, reservations=[given.block()], jobs=jobs, duration="1h")
    rehearsal = prepared.run(seed, every_second=True)
    assert not actions_done(rehearsal, Recreate)
    assert {one.state for one in rehearsal.cluster.jobs.values()} == {"finished"}
