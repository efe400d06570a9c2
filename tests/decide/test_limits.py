"""Limits hold inside one batch, whatever waits, with everything that lives or is on its way counted."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.decide import builders as given
from tests.decide.builders import ON_DEMAND, of, spec, why, world
from tidemill.catalog import load
from tidemill.decide import decide
from tidemill.model.nodes import InstanceState
from tidemill.model.plan import Launch
from tidemill.model.purchases import LaunchState
from tidemill.spec.units import parse_memory
from tidemill.wording import sentence

TYPES = ("g6.xlarge", "g6.12xlarge", "g6.48xlarge")
GIB = 2**30


def totals(types: list[str]) -> dict[str, int]:
    kinds = [load().types[name] for name in types]
    return {
        "nodes": len(kinds),
        "cpu": sum(kind.vcpus for kind in kinds),
        "gpus": sum(kind.gpus for kind in kinds),
        "memory": sum(kind.memory_mib * 2**20 for kind in kinds),
    }


def launches_of(plan) -> list[str]:
    return [launch.intent.instance_type for launch in of(plan, Launch) for _ in range(launch.intent.count)]


@st.composite
def limits(draw: st.DrawFn) -> dict[str, Any]:
    drawn = {
        "nodes": draw(st.none() | st.integers(0, 12)),
        "cpu": draw(st.none() | st.integers(0, 500).map(str)),
        "gpus": draw(st.none() | st.integers(0, 40)),
        "memory": draw(st.none() | st.integers(0, 2000).map(lambda gib: f"{gib}Gi")),
    }
    return {key: value for key, value in drawn.items() if value is not None}


@st.composite
def waiting_pods(draw: st.DrawFn) -> list:
    singles = draw(st.lists(st.tuples(st.sampled_from((0, 1, 2, 4, 8)), st.integers(1, 60)), max_size=12))
    pods = [given.pod(f"p{place}", gpus=gpus, cpu=str(cpu)) for place, (gpus, cpu) in enumerate(singles)]
    for place, size in enumerate(draw(st.lists(st.integers(2, 4), max_size=2))):
        pods.extend(given.gang(f"gang{place}", size, gpus=draw(st.sampled_from((1, 4, 8)))))
    return pods


@pytest.mark.requirement("PE-5")
@hypothesis.given(limits=limits(), pods=waiting_pods(), alive=st.lists(st.sampled_from(TYPES), max_size=4),
       coming=st.lists(st.tuples(st.sampled_from(TYPES), st.integers(1, 2)), max_size=2))  # fmt: skip
def test_no_batch_exceeds_the_limits_of_its_pool(limits, pods, alive, coming):
    here = [
        given.node(f"i-{place}", source=ON_DEMAND, pool="g6", instance_type=name)
        for place, name in enumerate(alive)
    ]
    intents = [
        given.launch_intent(f"ti-{place}", pool="g6", source=ON_DEMAND, instance_type=name, count=count)
        for place, (name, count) in enumerate(coming)
    ]
    plan = decide(spec(given.hourly_pool("g6", *TYPES, limits=limits)), world(here, intents, pods))
    before = alive + [name for name, count in coming for _ in range(count)]
    asked = launches_of(plan)
    after = totals(before + asked)
    if asked:  # what was there before may already be over a limit that somebody lowered
        assert after["nodes"] <= limits.get("nodes", after["nodes"])
        assert after["cpu"] <= int(limits.get("cpu", after["cpu"]))
        assert after["gpus"] <= limits.get("gpus", after["gpus"])
        assert after["memory"] <= parse_memory(limits.get("memory", str(after["memory"])))


@pytest.mark.requirement("PE-5")
@pytest.mark.parametrize(
    ("limits", "launched"),
    [
        ({"nodes": 3}, 3),
        ({"gpus": 23}, 2),
        ({"cpu": "575"}, 2),
        ({"cpu": "576"}, 3),
        ({"memory": "4095Gi"}, 1),
        ({"nodes": 0}, 0),
    ],
)
def test_a_batch_stops_exactly_at_the_limit(limits: dict, launched: int):
    pods = [given.pod(f"p{place}", gpus=8) for place in range(5)]
    plan = decide(spec(given.hourly_pool("p5", "p5.48xlarge", limits=limits)), world(pods))
    assert len(launches_of(plan)) == launched
    refused = [why(plan, one) for one in pods if why(plan, one).code == "limit"]
    assert len(refused) == 5 - launched


@pytest.mark.requirement("PE-5", "TR-9")
def test_a_pool_without_limits_launches_nothing():
    waiting = given.pod(gpus=1)
    plan = decide(spec(given.hourly_pool(limits=None)), world(waiting))
    assert not of(plan, Launch)
    assert "has no limits" in sentence(why(plan, waiting).reason)


@pytest.mark.requirement("PE-5")
@pytest.mark.parametrize(
    "there",
    [
        given.node(source=ON_DEMAND, pool="g6", instance_type="g6.xlarge", phase="launched", launched="1m"),
        given.node(source=ON_DEMAND, pool="g6", instance_type="g6.xlarge", phase="draining"),
        given.launch_intent(pool="g6", source=ON_DEMAND, instance_type="g6.xlarge"),
        given.launch_intent(
            pool="g6",
            source=ON_DEMAND,
            instance_type="g6.xlarge",
            state=LaunchState.LAUNCHED,
            instance_ids=("i-9",),
        ),
    ],
    ids=["just launched", "draining", "written", "called but not seen"],
)
def test_a_node_counts_from_its_intent_until_it_is_gone(there):
    waiting = given.pod(gpus=1, cpu="3", selector={"tidemill.dev/pool": "g6"})
    busy = given.pod("busy", gpus=1, created_at=waiting.created_at)
    plan = decide(
        spec(given.hourly_pool("g6", "g6.xlarge", limits={"nodes": 1})), world(there, waiting, busy)
    )
    assert not of(plan, Launch)


@pytest.mark.requirement("PE-5")
def test_a_node_that_is_gone_no_longer_counts():
    gone = given.node(
        source=ON_DEMAND, pool="g6", instance_type="g6.xlarge", state=InstanceState.SHUTTING_DOWN
    )
    plan = decide(
        spec(given.hourly_pool("g6", "g6.xlarge", limits={"nodes": 1})), world(gone, given.pod(gpus=1))
    )
    assert launches_of(plan) == ["g6.xlarge"]


@pytest.mark.requirement("PE-5")
def test_warming_a_block_stops_at_the_limits_too():
    plan = decide(spec(given.pool(limits={"gpus": 17})), world(given.block(count=4, free=4)))
    assert launches_of(plan) == ["p5.48xlarge"] * 2


@pytest.mark.requirement("PE-5")
def test_a_gang_that_does_not_fit_the_limits_opens_nothing():
    pods = given.gang(size=3)
    plan = decide(spec(given.hourly_pool("p5", "p5.48xlarge", limits={"nodes": 2})), world(pods))
    assert not of(plan, Launch)
    assert {why(plan, one).code for one in pods} == {"limit"}
