"""Nothing without our owner tag is modified or terminated, whatever state it is in."""

from __future__ import annotations

from typing import Any

import pytest

from tests.decide import builders as given
from tests.decide.builders import ON_DEMAND, OWNER, of, spec, world
from tidemill.decide import decide
from tidemill.model.nodes import InstanceState, Node
from tidemill.model.plan import Launch

pytestmark = pytest.mark.requirement("PE-23")


def strange(phase: str = "ready", **fields: Any) -> Node:
    return given.node("i-theirs", phase, **{"owner": "somebody", **fields})


@pytest.mark.parametrize(
    "theirs",
    [
        strange(),
        strange(owner=""),
        strange(owner=OWNER, pool=""),  # a word that companies tag all sorts of things with
        strange(phase="launched", launched="9h", owner=OWNER, pool=""),
        strange(phase="launched", launched="9h"),
        strange(phase="joined", joined="9h"),
        strange(phase="registering", joined="9h"),
        strange(phase="verifying", check="passed"),
        strange(phase="verifying", check="failed"),
        strange(check="failed"),
        strange(phase="draining"),
        strange(ends_in="2m"),
        strange(source=ON_DEMAND, instance_type="g6.xlarge"),
        strange(state=InstanceState.TERMINATED),
        Node(None, strange().kube),
    ],
)
@pytest.mark.parametrize("ends_in", ["100h", "35m"])
def test_a_strangers_node_is_never_touched(theirs: Node, ends_in: str):
    on_it = [] if theirs.kube is None else [given.replica(on=strange()), given.daemon("agent", strange())]
    plan = decide(spec(), world(given.block(ends_in=ends_in), theirs, on_it))
    assert not plan.actions


def test_a_gated_pod_is_not_sent_to_a_strangers_node():
    plan = decide(spec(), world(given.block(), strange(), given.pod(gpus=8)))
    assert not plan.actions


def test_a_pod_that_the_scheduler_can_place_on_a_strangers_node_asks_for_nothing():
    free = given.replica(gpus=1)
    theirs = strange(source=ON_DEMAND, instance_type="g6.xlarge")
    assert not of(decide(spec(given.hourly_pool("g6", "g6.xlarge")), world(theirs, free)), Launch)


def test_a_strangers_instance_does_not_count_against_our_limits():
    theirs = strange(source=ON_DEMAND, instance_type="g6.xlarge", pool="g6")
    ours = spec(given.hourly_pool("g6", "g6.xlarge", limits={"nodes": 1}))
    assert of(decide(ours, world(theirs, given.pod(gpus=1))), Launch)


def test_a_strangers_instance_on_our_block_takes_its_slot():
    """`available` is EC2's own count, so a slot somebody else uses is simply not there."""
    (launch,) = of(decide(spec(), world(given.block(count=4, free=3), strange())), Launch)
    assert launch.intent.count == 3
