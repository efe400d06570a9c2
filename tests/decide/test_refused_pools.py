"""Pools whose nodes somebody else drains: nothing new there, and deadlines are kept; and pools that are gone."""

from __future__ import annotations

import pytest

from tests.decide import builders as given
from tests.decide.builders import ON_DEMAND, of, spec, why, world
from tidemill.decide import decide
from tidemill.model.plan import Admit, Launch, StartDrain, Terminate
from tidemill.model.reasons import DrainKind, HoldKind
from tidemill.wording import sentence

OTHER = (("p5", "NodePool/gpu"),)


@pytest.mark.requirement("PE-20")
def test_nothing_is_launched_in_a_pool_that_another_autoscaler_acts_on_and_the_pod_says_who():
    hourly, pod = given.hourly_pool("p5", "p5.48xlarge"), given.pod(gpus=8, expected="1h")
    assert of(decide(spec(hourly), world(pod)), Launch)
    plan = decide(spec(hourly), world(pod, refused_pools=OTHER))
    assert not of(plan, Launch)
    assert why(plan, pod).reason.kind is HoldKind.POOL_REFUSED
    assert "NodePool/gpu acts on the nodes of pool p5 too" in sentence(why(plan, pod).reason)
    (warning,) = plan.warnings
    assert (warning.about, "drains or scales its nodes too" in sentence(warning.reason)) == ("p5", True)


@pytest.mark.requirement("PE-20")
def test_another_pool_goes_on():
    pools = [given.hourly_pool("p5", "p5.48xlarge", weight=9), given.hourly_pool("q5", "p5.48xlarge")]
    plan = decide(spec(*pools), world(given.pod(gpus=8, expected="1h"), refused_pools=OTHER))
    assert [launch.intent.pool for launch in of(plan, Launch)] == ["q5"]


@pytest.mark.requirement("PE-20")
def test_in_a_refused_pool_nothing_is_consolidated_and_nodes_that_end_are_emptied():
    hourly = given.hourly_pool("p5", "p5.48xlarge")
    idle = given.node(source=ON_DEMAND, joined="5h")
    assert of(decide(spec(hourly), world(idle)), StartDrain)
    assert not of(decide(spec(hourly), world(idle, refused_pools=OTHER)), StartDrain)
    plan = decide(spec(), world(given.block(ends_in="35m"), given.node(), refused_pools=OTHER))
    assert [action.reason.kind for action in of(plan, StartDrain)] == [DrainKind.SOURCE_ENDS]


@pytest.mark.requirement("PE-20")
def test_nodes_that_are_there_still_take_pods():
    there = world(given.block(), given.node(), given.pod(gpus=8, expected="1h"), refused_pools=OTHER)
    assert of(decide(spec(), there), Admit)


@pytest.mark.requirement("PE-21")
def test_removing_a_pool_leaves_its_nodes_running_until_their_source_ends():
    node, idle = given.node(), given.node("i-2")
    running, waiting = given.pod("runs", gpus=8, on=node), given.pod(gpus=8, expected="1h")
    left = spec(given.hourly_pool("g6", "g6.12xlarge"))
    plan = decide(left, world(given.block(ends_in="40h"), node, idle, running, waiting))
    assert not of(plan, StartDrain)
    assert not of(plan, Terminate)
    assert why(plan, waiting).code == "impossible"
    plan = decide(left, world(given.block(ends_in="35m"), node, idle, running))
    assert len(of(plan, StartDrain)) == 2
