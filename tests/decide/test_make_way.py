"""Prepaid first, always: nodes by the hour make way for capacity that is paid for (PE-5, CB-11)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.decide import builders as given
from tests.decide.builders import ON_DEMAND, ago, block, of, pool, spec, world
from tidemill.decide import decide
from tidemill.model.nodes import Node
from tidemill.model.plan import Launch, Plan, StartDrain
from tidemill.model.pods import Pod
from tidemill.spec import Spec
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("CB-11")
OVERFLOW = [{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 1000, "maxMonthlyUsd": 500_000}]


def documents(nodes: int, **fields: Any) -> Spec:
    return spec(pool(sources=OVERFLOW, limits={"nodes": nodes}, **fields), budget={"monthlyUsd": 1_000_000})


def hourly(id: str) -> Node:
    return given.node(id, source=ON_DEMAND, last_pod_event_at=ago("20m"), joined="3h", launched="4h")


def resumable(name: str, on: Node, **fields: Any) -> Pod:
    saves = {"checkpoint_every": "10m", "checkpoint_time": "1m"} if fields.pop("resumes", True) else {}
    return given.pod(name, on=on, overflow=True, **{"gpus": 8, "expected": "40h", **saves, **fields})


def drained(plan: Plan) -> set[str]:
    return {started.node for started in of(plan, StartDrain)}


def test_nodes_by_the_hour_that_fill_the_limit_are_drained_for_a_block_that_is_delivered():
    nodes = [hourly("i-1"), hourly("i-2")]
    work = [resumable(f"job-{on.name}", on) for on in nodes]
    plan = decide(documents(2), world(block(count=2, free=2), *nodes, work))
    assert drained(plan) == {one.name for one in nodes}
    assert "keep nodes of cr-1 out, which is paid for" in sentence(of(plan, StartDrain)[0].reason)


def test_only_as_many_go_as_the_limit_keeps_out():
    nodes = [hourly("i-1"), hourly("i-2"), hourly("i-3")]
    work = [resumable(f"job-{on.name}", on) for on in nodes]
    plan = decide(documents(4), world(block(count=2, free=2), *nodes, work))
    assert [launch.intent.count for launch in of(plan, Launch)] == [1]
    assert len(drained(plan)) == 1


def test_what_can_move_at_once_goes_before_what_has_to_finish_first():
    one, two = hourly("i-1"), hourly("i-2")
    work = [resumable("over", one, resumes=False), resumable("moves", two)]
    plan = decide(documents(2), world(block(count=1, free=1), one, two, work))
    assert drained(plan) == {two.name}


def test_a_service_and_what_must_not_be_disturbed_stay():
    one, two = hourly("i-1"), hourly("i-2")
    chat = given.replica("chat-1", one, gpus=8)
    kept = resumable("kept", two, do_not_disrupt=True)
    plan = decide(documents(2), world(block(count=2, free=2), one, two, chat, kept))
    assert not drained(plan)


def test_work_that_is_nearly_done_is_not_moved():
    on = hourly("i-1")
    there = world(block(count=1, free=1), on, resumable("soon", on, expected="40m"))
    assert not drained(decide(documents(1), there))


def test_a_block_that_ends_too_soon_moves_nobody():
    on = hourly("i-1")
    there = world(block(count=1, free=1, ends_in="50m"), on, resumable("job", on))
    assert not drained(decide(documents(1), there))


def test_a_disruption_budget_is_kept():
    nodes = [hourly("i-1"), hourly("i-2")]
    work = [resumable(f"job-{on.name}", on) for on in nodes]
    careful = documents(2, disruption={"budgets": [{"nodes": "1"}]})
    assert len(drained(decide(careful, world(block(count=2, free=2), *nodes, work)))) == 1


def test_work_by_the_hour_moves_to_prepaid_nodes_that_are_free_whatever_the_policy():
    on, free = hourly("i-1"), given.node("i-2", last_pod_event_at=ago("20m"))
    there = world(block(count=1, free=0), on, free, resumable("job", on))
    assert drained(decide(documents(8), there)) == {on.name}
    never = documents(8, disruption={"consolidationPolicy": "Never"})
    assert not drained(decide(never, there))


def test_with_the_default_policy_work_by_the_hour_does_not_move_to_other_nodes_by_the_hour():
    one, two = hourly("i-1"), hourly("i-2")
    work = [resumable("a", one, gpus=1), resumable("b", two, gpus=1)]
    assert not drained(decide(documents(8), world(one, two, work)))
