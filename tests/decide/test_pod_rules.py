"""Rules between pods decide where the engine admits and what it launches, as the scheduler would insist on later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.decide.builders import DRIFTED, ON_DEMAND, hourly_pool, node, of, pod, replica, spec, why, world
from tidemill.decide import decide
from tidemill.model.labels import Expression
from tidemill.model.nodes import Node
from tidemill.model.plan import Admit, Launch, Plan
from tidemill.model.pods import Pod, PodTerm, Spread
from tidemill.spec import names
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("PE-3")
CHAT = (Expression("app", "In", ("chat",)),)
PAPERS = spec(hourly_pool("g6", "g6.xlarge", "g6.12xlarge"))


def g6(id: str, kind: str = "g6.12xlarge", **fields: Any) -> Node:
    return node(id, source=ON_DEMAND, pool="g6", instance_type=kind, **fields)


def shaped(one: Pod, **rules: Any) -> Pod:
    return replace(one, shape=replace(one.shape, labels=(("app", "chat"),), **rules))


def waiting(name: str, **rules: Any) -> Pod:
    return shaped(pod(name, gpus=1), **rules)


def launched(plan: Plan) -> list[tuple[str, str, int]]:
    return sorted((one.intent.instance_type, one.intent.zone, one.intent.count) for one in of(plan, Launch))


def admitted(plan: Plan) -> set[str]:
    return {uid for action in of(plan, Admit) for uid in action.pods}


def test_pods_that_keep_apart_get_a_node_each():
    apart = {"anti_affinity": (PodTerm(names.LABEL_HOSTNAME, CHAT),)}
    plan = decide(PAPERS, world([waiting(f"c-{n}", **apart) for n in range(3)]))
    assert sum(count for _, _, count in launched(plan)) == 3
    assert {kind for kind, _, _ in launched(plan)} == {"g6.xlarge"}


def test_a_node_where_one_of_them_runs_is_no_place_for_another():
    apart = {"anti_affinity": (PodTerm(names.LABEL_HOSTNAME, CHAT),)}
    here = g6("i-1")
    runs = shaped(replica("c-0", here, gpus=1), **apart)
    plan = decide(PAPERS, world(here, runs, waiting("c-1", **apart)))
    assert not admitted(plan)
    assert sum(count for _, _, count in launched(plan)) == 1


def test_who_runs_keeps_off_those_it_does_not_want_beside_it():
    """The newcomer has no rule of its own; the one that runs has."""
    here = g6("i-1")
    runs = shaped(replica("c-0", here, gpus=1), anti_affinity=(PodTerm(names.LABEL_HOSTNAME, CHAT),))
    assert not admitted(decide(PAPERS, world(here, runs, waiting("c-1"))))
    assert admitted(decide(PAPERS, world(here, runs, pod("other", gpus=1))))


def test_spread_over_zones_opens_a_node_in_each():
    spread = {"spread": (Spread(names.LABEL_ZONE, CHAT),)}
    plan = decide(PAPERS, world([waiting(f"c-{n}", **spread) for n in range(2)]))
    assert {zone for _, zone, _ in launched(plan)} == {"us-west-2a", "us-west-2b"}


def test_pods_on_a_node_that_is_full_or_going_still_count_for_the_spread():
    spread = {"spread": (Spread(names.LABEL_ZONE, CHAT),)}
    full = g6("i-1", "g6.xlarge")
    runs = shaped(replica("c-0", full, gpus=1), **spread)
    plan = decide(PAPERS, world(full, runs, waiting("c-1", **spread)))
    assert [zone for _, zone, _ in launched(plan)] == ["us-west-2b"]
    going = g6("i-1", "g6.xlarge", draining_since=world().now, drain_reason=DRIFTED)
    plan = decide(PAPERS, world(going, runs, waiting("c-1", **spread)))
    assert [zone for _, zone, _ in launched(plan)] == ["us-west-2b"]


def test_company_is_found_where_it_runs():
    there = g6("i-1", zone="us-west-2b")
    runs = shaped(replica("c-0", there, gpus=4))
    follower = shaped(pod("f", gpus=1), affinity=(PodTerm(names.LABEL_ZONE, CHAT),))
    plan = decide(PAPERS, world(there, runs, follower))
    assert [zone for _, zone, _ in launched(plan)] == ["us-west-2b"]


def test_a_port_of_the_host_is_taken_once():
    port = {"host_ports": (("TCP", 8080, ""),)}
    here = g6("i-1")
    runs = shaped(replica("c-0", here, gpus=1), **port)
    assert not admitted(decide(PAPERS, world(here, runs, waiting("c-1", **port))))
    assert admitted(decide(PAPERS, world(here, waiting("c-1", **port))))


def test_required_node_affinity_and_volume_zones_choose_the_zone():
    terms = ((Expression(names.LABEL_ZONE, "NotIn", ("us-west-2a",)),),)
    assert [zone for _, zone, _ in launched(decide(PAPERS, world(waiting("a", node_terms=terms))))] == [
        "us-west-2b"
    ]
    bound = waiting("b", volume_zones=("us-west-2b",))
    assert [zone for _, zone, _ in launched(decide(PAPERS, world(bound)))] == ["us-west-2b"]


def test_whoever_no_place_can_content_is_told_so():
    nobody = (Expression("app", "In", ("nobody",)),)
    lonely = shaped(pod("lonely", gpus=1), affinity=(PodTerm(names.LABEL_ZONE, nobody),))
    plan = decide(PAPERS, world(lonely))
    assert not plan.actions
    assert "rules about other pods" in sentence(why(plan, lonely).reason)


def test_the_more_important_pod_gets_the_last_place():
    full = spec(hourly_pool("g6", "g6.xlarge", limits={"nodes": 1}))
    low, high = pod("a-low", gpus=1), pod("z-high", gpus=1, priority=5)
    here = g6("i-1", "g6.xlarge")
    assert admitted(decide(full, world(here, low, high))) == {high.uid}


def test_who_has_waited_much_longer_goes_before_the_larger():
    full = spec(hourly_pool("g6", "g6.12xlarge", limits={"nodes": 1}))
    here = g6("i-1")
    old = replace(pod("old", gpus=1), created_at=world().now.replace(hour=9))
    large = pod("large", gpus=4)
    assert admitted(decide(full, world(here, old, large))) == {old.uid}
