"""A block that several pools may use: an idle node gives its slot to another pool only where that pool needs it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.decide import builders as given
from tests.decide.builders import ago, block, of, pool, spec, world
from tidemill.decide import decide
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.nodes import Node
from tidemill.model.plan import Launch, Plan, StartDrain
from tidemill.model.pods import Pod
from tidemill.spec import names

pytestmark = pytest.mark.requirement("PE-6")
POOLS = spec(pool("a"), pool("b"))


def idle(id: str, of_pool: str = "a") -> Node:
    return given.node(id, pool=of_pool, last_pod_event_at=ago("20m"))


def waiting(name: str, for_pool: str = "b", **fields: Any) -> Pod:
    return given.pod(name, selector={names.LABEL_POOL: for_pool}, **{"gpus": 8, "expected": "1h", **fields})


def drained(plan: Plan) -> list[str]:
    return [started.node for started in of(plan, StartDrain)]


def test_an_idle_node_stays_while_a_slot_is_free():
    assert not drained(decide(POOLS, world(block(count=2, free=1), idle("i-1"))))


def test_an_idle_node_stays_where_the_other_pool_has_a_node_too():
    there = world(block(count=2), idle("i-1"), idle("i-2", "b"))
    assert not drained(decide(POOLS, there))


def test_the_only_slot_is_given_back_for_a_pool_that_has_none():
    assert drained(decide(POOLS, world(block(count=1), idle("i-1")))) == ["node-i-1"]


def test_idle_nodes_go_for_pods_of_another_pool_that_wait_as_many_as_they_need():
    busy = given.node("i-4", pool="b")
    work = given.pod("works", on=busy, gpus=8, expected="5h")
    nodes = [idle("i-1"), idle("i-2"), idle("i-3")]
    one = world(block(count=4), *nodes, busy, work, waiting("b-1"))
    assert drained(decide(POOLS, one)) == ["node-i-1"]
    two = world(block(count=4), *nodes, busy, work, [waiting(f"b-{each}", gpus=4) for each in range(4)])
    assert drained(decide(POOLS, two)) == ["node-i-1", "node-i-2"]


def test_a_slot_that_is_being_cleaned_is_counted_on():
    busy = given.node("i-4", pool="b")
    work = given.pod("works", on=busy, gpus=8, expected="5h")
    there = world(
        block(count=3), idle("i-1"), busy, work, waiting("b-1")
    )  # the third slot has no node and is not free
    assert not drained(decide(POOLS, there))


def test_nobody_makes_room_where_a_node_comes_free_as_soon():
    busy = given.node("i-2", pool="b")
    soon = given.pod("works", on=busy, gpus=8, expected="40m")  # it began 30 minutes ago
    there = world(block(count=2), idle("i-1"), busy, soon, waiting("b-1"))
    assert not drained(decide(POOLS, there))


def test_slots_are_given_back_for_services_that_will_come():
    other = given.node("i-9", source=Source(SourceKind.BLOCK, "cr-2"), pool="b")
    chat = given.replica("chat-1", other, gpus=8)
    nodes = [idle("i-1"), idle("i-2", "b"), idle("i-3")]
    there = world(block(count=3), block("cr-2", count=1, ends_in="6h"), *nodes, other, chat)
    assert drained(decide(POOLS, there)) == ["node-i-1", "node-i-3"]


def test_the_next_job_starts_on_the_node_that_stayed():
    there = world(block(count=2), idle("i-1"), idle("i-2", "b"), waiting("a-1", "a"), waiting("b-1"))
    plan = decide(POOLS, there)
    assert not drained(plan)
    assert not of(plan, Launch)
