"""Whom an instance paid by the hour is charged to: the team that has it alone, and nobody where several had it."""

from __future__ import annotations

import pytest

from tests.decide.builders import ON_DEMAND, daemon, hourly_pool, node, pod, spec
from tests.engine.ports import Outside
from tidemill.engine.loop import Engine
from tidemill.model.nodes import InstanceState
from tidemill.model.pods import Pod

pytestmark = pytest.mark.requirement("PE-16")
HERE = node("i-1", source=ON_DEMAND, pool="g6", instance_type="g6.xlarge")


@pytest.fixture
def outside() -> Outside:
    one = Outside(spec(hourly_pool("g6", "g6.xlarge")))
    one.has(HERE)
    return one


def teams(outside: Outside, engine: Engine, *pods: Pod) -> list[str]:
    outside.cluster.pods = [daemon("agent", HERE), *pods]
    engine.tick()
    outside.clock.pass_time(minutes=1)
    return [line.team for line in outside.books.metered()]


def of(team: str, name: str = "a") -> Pod:
    return pod(name, on=HERE, team=team)


def test_it_is_the_teams_whose_pods_it_runs_also_when_they_have_left(outside: Outside):
    engine = outside.engine()
    assert teams(outside, engine) == [""]
    assert teams(outside, engine, of("vision")) == ["vision"]
    assert teams(outside, engine) == ["vision"]
    assert teams(outside, outside.engine()) == ["vision"]


def test_of_two_teams_at_once_or_after_each_other_it_is_nobodys(outside: Outside):
    engine = outside.engine()
    assert teams(outside, engine, of("vision"), of("speech", "b")) == [""]
    assert teams(outside, engine, of("vision")) == [""]
    later = outside.engine()
    assert teams(outside, later, of("vision")) == ["vision"]  # what was before its start is not known to it
    assert teams(outside, later, of("speech")) == [""]


def test_its_line_says_how_many_gpus_it_has_and_keeps_its_team_to_the_end(outside: Outside):
    engine = outside.engine()
    teams(outside, engine, of("vision"))
    (line,) = outside.books.metered()
    assert (line.gpus, line.team, line.since) == (1, "vision", line.since)
    outside.cloud.terminate("i-1")
    assert outside.cloud.running["i-1"].state is InstanceState.TERMINATED
    assert teams(outside, engine) == []
    assert outside.books._ended["i-1"].team == "vision"
