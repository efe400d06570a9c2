"""A rehearsal that begins with what was true somewhere: the same blocks, nodes and pods, and what is not as it was."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tidemill.cli.beginning import scenario_from
from tidemill.model.nodes import INSTANCE_UP_STATES
from tidemill.model.pods import PodPhase
from tidemill.model.world import World
from tidemill.sim.scenario.initial_state import Arrival, Beginning
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec import Spec
from tidemill.spec.read import load

pytestmark = pytest.mark.requirement("PE-22")
EXAMPLES = Path(__file__).parents[2] / "examples"


def world_of(example: str, hours: float) -> tuple[Spec, World]:
    loaded = load([EXAMPLES / f"{example}.yaml"])
    rehearsal = Rehearsal(loaded.checked_spec(), loaded.checked_scenario(), seed=1)
    rehearsal.run_until(rehearsal.start + timedelta(hours=hours))
    assert rehearsal.world is not None
    return rehearsal.spec, rehearsal.world


def begun(spec: Spec, world: World, *arrivals: Arrival, hours: float = 24) -> Rehearsal:
    scenario = scenario_from(world.now, timedelta(hours=hours), None)
    return Rehearsal(spec, scenario, 1, initial=Beginning(world, arrivals))


@pytest.mark.parametrize(("example", "hours"), [("handover", 30), ("mixed-sources", 10)])
def test_the_engine_sees_what_it_saw_and_goes_on_to_the_end(example: str, hours: float):
    spec, world = world_of(example, hours)
    rehearsal = begun(spec, world)
    rehearsal.step()
    seen = rehearsal.world
    assert seen is not None
    up = {one.instance.id for one in world.nodes if one.instance and one.instance.state in INSTANCE_UP_STATES}
    assert {one.instance.id for one in seen.nodes if one.instance} == up
    assert {one.id: (one.count, one.end, one.owner) for one in seen.reservations} == {
        one.id: (one.count, one.end, one.owner)
        for one in world.reservations
        if one.end is None or one.end > world.now
    }
    assert {pod.full_name: pod.phase for pod in seen.pods} == {pod.full_name: pod.phase for pod in world.pods}
    assert {one.name: (one.replicas, one.ready) for one in seen.workloads} == {
        one.name: (one.replicas, one.ready) for one in world.workloads
    }
    rehearsal.run()  # no invariant is violated


def test_a_running_job_keeps_the_work_it_has_done():
    spec, world = world_of("mixed-sources", 10)
    pod = next(
        one for one in world.pods if one.of_job and one.phase is PodPhase.RUNNING and one.terms.expected
    )
    rehearsal = begun(spec, world)
    job = rehearsal.cluster.jobs[pod.workload.partition("/")[2]]
    rehearsal.run()
    assert job.state == "finished"
    assert job.finished is not None
    assert pod.started_at is not None
    assert pod.terms.expected is not None
    late = job.finished - (pod.started_at + pod.terms.expected)
    assert job.restarts or abs(late) < timedelta(minutes=1)


def test_a_job_that_comes_later_arrives_then_and_runs():
    spec, world = world_of("mixed-sources", 10)
    pod = next(one for one in world.pods if one.of_job)
    at = world.now + timedelta(hours=2)
    late = replace(pod, uid="uid-late", name="late-0", workload="Job/late", gang=None)
    rehearsal = begun(spec, world, Arrival(at, (late,)))
    rehearsal.run()
    job = rehearsal.cluster.jobs["late"]
    assert job.submitted == at
    assert job.started is not None
    assert job.started >= at


def test_what_is_not_as_it_was_is_listed():
    spec, world = world_of("mixed-sources", 10)
    (first, *rest) = [one for one in world.nodes if one.instance and one.kube]
    assert first.instance is not None
    theirs = replace(first, instance=replace(first.instance, owner="somebody"))
    rehearsal = begun(spec, replace(world, nodes=(theirs, *rest)))
    listed = {one.what: one for one in rehearsal.not_carried_over}
    assert listed["a node of somebody else is left out, and its pods with it"].examples == (theirs.name,)


def test_the_same_beginning_gives_the_same_rehearsal():
    spec, world = world_of("mixed-sources", 10)
    one, other = begun(spec, world, hours=6), begun(spec, world, hours=6)
    one.run()
    other.run()
    assert one.done == other.done
