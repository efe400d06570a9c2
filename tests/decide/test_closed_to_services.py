"""The lead is a node's: where services leave a source early, nodes without services stay open to jobs (CB-12)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.decide import builders as given
from tests.decide.builders import ahead, block, node, of, pod, spec, world
from tidemill.decide import Memory, decide
from tidemill.model.labels import Taint
from tidemill.model.nodes import Node
from tidemill.model.plan import Admit, CancelDrain, KeepForJobs, Plan, StartDrain
from tidemill.model.pods import DisruptionBudget, Pod
from tidemill.model.world import World
from tidemill.spec import names
from tidemill.spec.units import instant_in_taint

pytestmark = pytest.mark.requirement("CB-12")
DEADLINE = ahead("70m")  # half an hour before the block ends


def closed(one: Node, until: str = "70m") -> Node:
    assert one.kube is not None
    taint = Taint(names.TAINT_ENDING, instant_in_taint(ahead(until)))
    return replace(one, kube=replace(one.kube, taints=(*one.kube.taints, taint)))


def there(*nodes: Node, things: Any = (), ends_in: str = "100m") -> World:
    """Four replicas that move one by one, twenty minutes each, are on the first node: they need more than an hour."""
    load = timedelta(minutes=20)
    replicas = [given.replica(f"chat-{number}", nodes[0], gpus=1) for number in range(4)]
    chats = [replace(one, terms=replace(one.terms, load=load)) for one in replicas]
    budget = DisruptionBudget(chats[0].workload, 3, 1)
    found = world(block(count=len(nodes), ends_in=ends_in), *nodes, chats, *things)
    return replace(found, budgets=(budget,))


def kept(plan: Plan) -> set[str]:
    return {action.node for action in of(plan, KeepForJobs)}


def drained(plan: Plan) -> set[str]:
    return {action.node for action in of(plan, StartDrain)}


def test_only_the_node_with_the_service_drains_early_and_the_others_are_closed_to_services():
    service, other = node("i-1"), node("i-2")
    plan = decide(spec(), there(service, other))
    assert drained(plan) == {service.name}
    assert kept(plan) == {other.name}
    (action,) = of(plan, KeepForJobs)
    assert action.ends_at == DEADLINE


def test_a_job_that_is_done_in_time_still_starts_on_such_a_node():
    service, other = node("i-1"), closed(node("i-2"))
    quick, slow = pod("quick", gpus=8, expected="40m"), pod("slow", gpus=8, expected="3h")
    plan = decide(spec(), there(service, other, things=[quick, slow]))
    assert {uid for action in of(plan, Admit) for uid in action.pods} == {quick.uid}
    assert not kept(plan)  # once is enough


def test_such_a_node_drains_in_time_for_its_own_pods():
    service, other = node("i-1"), closed(node("i-2"), "32m")
    runs: Pod = given.pod("runs", on=other, gpus=8, expected="10h", grace="30m")
    plan = decide(spec(), there(service, other, things=[runs], ends_in="62m"))
    assert other.name in drained(plan)


def test_an_extension_opens_it_again():
    service, other = node("i-1"), closed(node("i-2"), "70m")
    plan = decide(spec(), there(service, other, ends_in="26h"))
    assert {action.node for action in of(plan, CancelDrain)} == {other.name}


def test_without_a_service_nothing_is_closed():
    one, other = node("i-1"), node("i-2")
    plan = decide(spec(), world(block(count=2, ends_in="2h"), one, other))
    assert not kept(plan)
    assert not drained(plan)


def test_a_job_that_left_another_node_is_not_remembered_as_a_reason_to_drain_this_one():
    """Its grace made all of them drain early, the end that they share stays as it is."""
    service, other, third = node("i-1"), closed(node("i-2")), closed(node("i-3"))
    slow: Pod = given.pod("slow", on=third, gpus=8, expected="10h", grace="40m", ends_at=DEADLINE)
    before, after = there(service, other, third, things=[slow]), there(service, other, third)
    later = replace(after, now=ahead("40m"), reservations=before.reservations)
    documents, memory = spec(), Memory()
    decide(documents, before, memory)
    assert other.name not in drained(decide(documents, later))
    assert decide(documents, later, memory) == decide(documents, later)
