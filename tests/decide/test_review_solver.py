"""Faults a review found in the engine's use of its solver, each kept away by a test."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.decide import builders as given
from tests.decide.builders import DRIFTED, ON_DEMAND, ago, of, spec, world
from tidemill.decide import decide
from tidemill.model.nodes import Node
from tidemill.model.plan import Admit, Evict, Launch, Plan, StartDrain
from tidemill.model.pods import DisruptionBudget, Pod
from tidemill.model.reasons import DrainKind, DrainReason

UNDERUSED = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "5m"}


def g6(id: str, kind: str = "g6.12xlarge", **fields: Any) -> Node:
    fields = {"last_pod_event_at": ago("20m"), "joined": "3h", "launched": "4h", "pool": "g6", **fields}
    return given.node(id, source=ON_DEMAND, instance_type=kind, **fields)


def resumable(name: str, on: Node, **fields: Any) -> Pod:
    return given.pod(name, on=on, **{"gpus": 1, "expected": "40h", "checkpoint_every": "10m", **fields})


def admitted(plan: Plan) -> set[str]:
    return {uid for action in of(plan, Admit) for uid in action.pods}


def drained(plan: Plan) -> set[str]:
    return {started.node for started in of(plan, StartDrain)}


@pytest.mark.requirement("CB-9")
def test_a_service_on_several_blocks_that_end_together_moves_in_as_many_waves_as_it_has_replicas():
    blocks = [given.block(f"cr-{n}", count=1, ends_in="6h") for n in range(3)]
    nodes = [given.node(f"i-{n}", source=one.source) for n, one in enumerate(blocks)]
    pods = [given.replica(f"chat-{n}", on, gpus=8, load="8m", grace="2m") for n, on in enumerate(nodes)]
    budget = DisruptionBudget("Deployment/chat", min_available=2, allowed=1)
    alone = decide(spec(), world(blocks[:1], nodes[:1], pods[:1], budget)).wake_at
    together = decide(spec(), world(blocks, nodes, pods, budget)).wake_at
    assert alone is not None
    assert together is not None
    assert alone - together >= timedelta(minutes=15)


@pytest.mark.requirement("PE-7")
def test_consolidation_does_not_use_room_that_is_kept_for_a_gang():
    """The free block node is promised to the gang: a job moved there would not be let in."""
    papers = spec(
        given.pool(
            sources=[{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 400, "maxMonthlyUsd": 90_000}],
            disruption=UNDERUSED,
        ),
        budget={"monthlyUsd": 99_000},
    )
    free, taken = given.node("i-1", joined="3h"), given.node("i-2", joined="3h")
    runs = given.pod("runs", on=taken, gpus=8, expected="90m")
    elsewhere = given.node("i-3", source=ON_DEMAND, joined="3h", last_pod_event_at=ago("1h"))
    moving = given.pod("moving", on=elsewhere, gpus=8, expected="40h", checkpoint_every="10m", overflow=True)
    waits = [replace(one, created_at=ago("2h")) for one in given.gang(size=2, expected="2h")]
    there = (given.block(count=2), free, taken, elsewhere, runs, moving)
    assert drained(decide(papers, world(*there)))
    assert not drained(decide(papers, world(*there, waits)))


@pytest.mark.requirement("PE-7")
def test_a_replica_on_a_node_that_is_going_keeps_no_service_up():
    papers = spec(given.hourly_pool("g6", disruption=UNDERUSED), given.hourly_pool("other", "g6.12xlarge"))
    one, two = g6("i-1"), g6("i-2")
    leaving = g6("i-3", pool="other", draining_since=ago("1m"), drain_reason=DRIFTED)
    chat = {"gpus": 1}
    stays = decide(
        papers,
        world(
            one,
            two,
            g6("i-3", pool="other"),
            given.replica("c-1", one, **chat),
            given.replica("c-2", g6("i-3", pool="other"), **chat),
            resumable("b", two),
        ),
    )
    assert "node-i-1" in drained(stays) or "node-i-2" in drained(stays)
    goes = decide(
        papers, world(one, leaving, given.replica("c-1", one, **chat), given.replica("c-2", leaving, **chat))
    )
    assert "node-i-1" not in drained(goes)


@pytest.mark.requirement("PE-7")
def test_a_budget_that_changed_is_asked_again():
    papers = spec(given.hourly_pool("g6", "g6.12xlarge", disruption=UNDERUSED))
    one, two = g6("i-1"), g6("i-2")
    pods = [given.replica("c-1", one, gpus=1), given.replica("c-2", two, gpus=1)]
    tight = world(one, two, pods, DisruptionBudget("Deployment/chat", 2, 0))
    assert not drained(decide(papers, tight))
    assert drained(decide(papers, replace(tight, budgets=(DisruptionBudget("Deployment/chat", 1, 1),))))


@pytest.mark.requirement("PE-7")
def test_a_replacement_that_ec2_does_not_have_is_not_asked_for_again_and_again():
    papers = spec(given.hourly_pool("g6", disruption=UNDERUSED))
    large = g6("i-1", "g6.48xlarge")
    there = world(large, resumable("a", large))
    assert of(decide(papers, there), Launch)
    failed = given.failed_launch(
        "ti-1", pool="g6", source=ON_DEMAND, instance_type="g6.xlarge", zone="us-west-2a", at=ago("40m")
    )
    assert not of(decide(papers, replace(there, launches=(failed,))), Launch)


@pytest.mark.requirement("PE-8")
def test_a_protected_pod_that_came_after_the_drain_was_decided_is_left_alone():
    going = g6(
        "i-1", draining_since=ago("1m"), drain_reason=DrainReason(DrainKind.EMPTY, idle=timedelta(minutes=5))
    )
    papers = spec(given.hourly_pool("g6"))
    assert not of(decide(papers, world(going, given.pod("a", on=going, gpus=1, do_not_disrupt=True))), Evict)
    assert of(decide(papers, world(going, given.pod("a", on=going, gpus=1))), Evict)


@pytest.mark.requirement("PE-11")
def test_a_gang_of_unlike_pods_is_placed_whoever_is_listed_first():
    for names in (("a-large", "b-small", "c-small"), ("a-small", "b-small", "c-large")):
        members = given.gang("g", 3)
        made = [
            replace(member, name=name, shape=given.pod("x", gpus=8 if "large" in name else 0).shape)
            for member, name in zip(members, names, strict=True)
        ]
        assert len(admitted(decide(spec(), world(given.block(count=1), given.node("i-1"), made)))) == 3


@pytest.mark.requirement("PE-11")
def test_a_promise_to_a_gang_does_not_hold_back_whoever_is_before_it_in_line():
    """Not even where a service elsewhere has been promised something too."""
    free, taken, old = (
        given.node("i-1"),
        given.node("i-2"),
        given.node("i-9", source=given.block("cr-9").source),
    )
    new = given.node("i-8", source=given.block("cr-8").source)
    runs = given.pod("runs", on=taken, gpus=8, expected="90m")
    vip = given.pod("vip", gpus=8, expected="30h", priority=9)
    waits = [replace(one, created_at=ago("2h")) for one in given.gang(size=2, expected="2h")]
    there = world(
        given.block(count=2, ends_in="60h"),
        given.block("cr-9", count=1, ends_in="3h"),
        given.block("cr-8", count=1, ends_in="50h"),
        free,
        taken,
        old,
        new,
        runs,
        given.replica("chat", old, gpus=8),
        vip,
        waits,
    )
    assert vip.uid in admitted(decide(spec(), there))


@pytest.mark.requirement("PE-3")
def test_large_daemons_of_one_pool_do_not_keep_another_from_launching():
    papers = spec(given.pool(), given.hourly_pool("g6", "g6.xlarge"))
    big = given.node("i-1")
    waits = given.pod("w", gpus=1, cpu="2", selector={"tidemill.dev/pool": "g6"})
    there = world(given.block(count=1), big, given.daemon("agent", big, cpu="8"), waits)
    assert of(decide(papers, there), Launch)


@pytest.mark.requirement("PE-18")
def test_a_cap_of_exactly_three_nodes_is_three_nodes():
    overflow = {"type": "on-demand", "maxHourlyUsd": 3 * 0.8048, "maxMonthlyUsd": 9000}
    papers = spec(
        given.pool(
            "g6", sources=[{"type": "block"}, overflow], requirements={"instanceTypes": ["g6.xlarge"]}
        ),
        budget={"monthlyUsd": 99_000},
    )
    jobs = [given.pod(f"j-{n}", gpus=1, overflow=True, expected="1h") for n in range(5)]
    assert sum(one.intent.count for one in of(decide(papers, world(jobs)), Launch)) == 3
