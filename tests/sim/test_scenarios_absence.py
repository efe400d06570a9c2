"""The engine is absent while a block ends: the agent on each node gives every pod its whole grace (CB-16)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.sim import scenario_builder as given
from tests.sim.mutants import ten_minutes_late
from tests.sim.scenario_builder import BLOCK_END, actions_done, after, journal_lines, scenario_with, without
from tidemill.model.errors import InvariantViolated
from tidemill.model.plan import AnnounceNodeEnd, CancelDrain, Evict, ForceDelete, StartDrain
from tidemill.sim.scenario.rehearsal import Rehearsal

pytestmark = pytest.mark.requirement("CB-16")

AWAY = given.fault(
    "2h", "engine-absent", duration="2h"
)  # from two hours before the end of the block until its end
KILL = BLOCK_END - timedelta(minutes=30)
WORK = [
    given.job("saved", lasts="9h", checkpointEvery="20m", grace="10m", at=("5m",)),
    given.job(
        "small",
        lasts="9h",
        gpus=2,
        cpu="20",
        memory="100Gi",
        checkpointEvery="20m",
        grace="30s",
        at=("5m", "6m"),
    ),
]


def absent(*, agent: bool = True, faults: Any = (AWAY,), **scenario: Any) -> given.PreparedScenario:
    body: dict[str, Any] = {"reservations": [given.block()], "jobs": WORK, "duration": "5h", **scenario}
    return scenario_with(deadlineAgent=agent, faults=list(faults), **body)


def rows_of(rehearsal: Rehearsal) -> list[tuple[str, int]]:
    return [(row.pod, row.grace_s) for row in rehearsal.cluster.evictions]


def test_no_pod_runs_at_the_deadline_and_all_had_their_whole_grace():
    rehearsal = absent().run()
    assert not rehearsal.cluster.kills
    assert not rehearsal.cluster.cut_short
    assert {grace_s for _, grace_s in rows_of(rehearsal)} == {600, 30}
    told_by_agent = journal_lines(rehearsal, "pod-told-by-agent")
    assert len(told_by_agent) == 3
    # each as late as its own grace allows, with half a minute to spare
    assert {line.at for line in told_by_agent if "saved" in line.about} == {
        KILL - timedelta(minutes=10, seconds=30)
    }
    assert {line.at for line in told_by_agent if "small" in line.about} == {KILL - timedelta(minutes=1)}


def test_without_deadline_agents_pods_die_with_their_nodes_while_the_engine_is_absent():
    rehearsal = absent(agent=False).run()
    assert len(rehearsal.cluster.kills) == 3
    assert not any(kill.full_grace for kill in rehearsal.cluster.kills)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("provisioner", ["native", "managed"])
def test_with_any_seed_no_pod_runs_at_the_deadline(seed: int, provisioner: str):
    """With services that come back by themselves, a node that boots late, and trouble before the engine goes."""
    services = [given.service(replicas=3, gpus=2, cpu="20", memory="100Gi", grace="3m", minAvailable=2)]
    trouble = {"count": 3, "kinds": ["node-dies", "gpu-fails", "late-join", "event-lost"], "until": "2h30m"}
    rehearsal = scenario_with(
        given.pool(provisioner=provisioner), reservations=[given.block(count=3)], jobs=WORK, services=services,
        deadlineAgent=True, faults=[AWAY], randomFaults=trouble, duration="5h",
    ).prepare(seed)  # fmt: skip
    rehearsal.run()
    ended = [kill for kill in rehearsal.cluster.kills if kill.at >= KILL - timedelta(minutes=10)]
    assert not ended
    assert not rehearsal.cluster.cut_short


def test_a_running_engine_acts_before_the_deadline_agents():
    """Checkpoints are asked for, budgets respected: the agent finds nobody left to ask."""
    rehearsal = absent(faults=()).run()
    assert actions_done(rehearsal, Evict)
    assert not journal_lines(rehearsal, "pod-told-by-agent")
    assert not journal_lines(rehearsal, "node-closed")


def test_with_deadline_agents_an_absent_engine_excuses_nothing():
    """An engine that never drains is caught by the agents: nobody is left for EC2 to kill."""
    lazy = absent(faults=()).run(decide=without(StartDrain, Evict, ForceDelete))
    assert journal_lines(lazy, "pod-told-by-agent")
    assert not lazy.cluster.kills


def test_deadline_agents_with_a_wrong_end_violate_an_invariant():
    """An engine that believes in ten minutes more tells the nodes so, and nothing excuses it."""
    with pytest.raises(InvariantViolated) as caught:
        absent().run(decide=ten_minutes_late)
    assert caught.value.number == 20


def test_a_pod_bound_too_late_for_its_grace_is_deleted_before_it_starts():
    """A replica that finds room at 10:50, with a grace of twenty minutes: at 11:00 it would still be there."""
    late = given.service(replicas=1, minAvailable=0, grace="20m", **{"from": "3h20m"})
    rehearsal = absent(jobs=[], services=[late]).run()
    assert not rehearsal.cluster.kills
    assert journal_lines(rehearsal, "node-closed")


# --- extensions ---------------------------------------------------------------------------------------


def extended(at: str, *, faults: Any = ()) -> Rehearsal:
    extension = {"at": at, "block": "a", "by": "1d", "settlesAfter": "10m"}
    return absent(extensions=[extension], faults=faults, duration="8h").run()


def test_nodes_are_told_when_the_end_moves_and_work_goes_on():
    rehearsal = extended("1h")
    moved = actions_done(rehearsal, AnnounceNodeEnd)
    assert {one.ends_at for _, one in moved} == {KILL + timedelta(days=1)}
    assert len(moved) == 2
    assert not journal_lines(rehearsal, "pod-told-by-agent")
    assert all(one.restarts == 0 for one in rehearsal.cluster.jobs.values())


def test_an_extension_paid_while_the_engine_is_absent_drains_early_and_the_engine_cancels_it():
    """The nodes go by the old end, and everybody gets their grace. When the engine is back, work goes on there."""
    rehearsal = extended("2h30m", faults=[AWAY])
    assert journal_lines(rehearsal, "pod-told-by-agent")
    assert not rehearsal.cluster.kills
    assert {one.node for _, one in actions_done(rehearsal, CancelDrain)} == {
        node.name for node in rehearsal.cluster.nodes.values()
    }
    assert all(one.restarts == 1 and one.state == "running" for one in rehearsal.cluster.jobs.values())
    assert rehearsal.cluster.gpus_used() == 12


def test_a_node_that_will_be_retired_is_told_its_end():
    rehearsal = absent(
        reservations=[given.block(duration="28h")],
        faults=[given.fault("1h", "retirement", duration="2h")],
        duration="2h",
    ).run()
    assert [one.ends_at for _, one in actions_done(rehearsal, AnnounceNodeEnd)] == [
        given.START + timedelta(hours=3)
    ]


def test_capacity_that_is_paid_by_the_hour_has_no_end_of_its_own():
    hourly = given.pool(sources=[{"type": "on-demand"}])
    rehearsal = scenario_with(
        hourly, jobs=[given.job(lasts="2h")], deadlineAgent=True, duration="3h"
    ).prepare()
    rehearsal.run_until(after("1h"))
    assert [node.ends_at for node in rehearsal.cluster.view().nodes] == [None]
    rehearsal.run()
    assert rehearsal.cluster.jobs["fit-1"].state == "finished"
