"""Room that is known to come counts before a node by the hour is launched (PE-5, CB-11)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.decide import builders as given
from tests.decide.builders import ON_DEMAND, ago, ahead, block, node, of, pool, spec, why, world
from tidemill.decide import decide
from tidemill.model.nodes import Node
from tidemill.model.plan import Launch
from tidemill.model.pods import Pod
from tidemill.spec import Spec
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("PE-5")
OVERFLOW = [{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 1000, "maxMonthlyUsd": 500_000}]


def documents(*sources: dict[str, Any], **fields: Any) -> Spec:
    own = pool(sources=list(sources or OVERFLOW), limits={"nodes": 8}, **fields)
    return spec(own, budget={"monthlyUsd": 1_000_000})


def job(name: str = "job", *, gpus: int = 8, age: str = "1m", **fields: Any) -> Pod:
    one = given.pod(name, gpus=gpus, expected="2h", overflow=True, **fields)
    return replace(one, created_at=ago(age))


def runs(on: Node, *, ends_in: str, gpus: int = 8, name: str = "runs") -> Pod:
    """It has run for half an hour."""
    minutes = 30 + int(ends_in.removesuffix("m"))
    return given.pod(name, on=on, gpus=gpus, expected=f"{minutes}m", overflow=True)


def launched(documents: Spec, *things: Any) -> int:
    return sum(launch.intent.count for launch in of(decide(documents, world(*things)), Launch))


def test_a_paid_block_that_starts_soon_is_waited_for():
    wants = job()
    there = world(block(count=1, starts_in="10m", ends_in="24h"), wants)
    plan = decide(documents(), there)
    assert not of(plan, Launch)
    told = why(plan, wants)
    assert "cr-1 has room for it about" in sentence(told.reason)
    assert told.earliest == ahead("17m")
    assert plan.wake_at is not None
    assert plan.wake_at <= ahead("17m1s")


def test_a_block_that_starts_later_than_the_patience_is_not():
    assert launched(documents(), block(count=1, starts_in="40m", ends_in="24h"), job()) == 1
    patient = documents(overflowAfter="1h")
    assert launched(patient, block(count=1, starts_in="40m", ends_in="24h"), job()) == 0


def test_only_as_many_wait_as_the_block_takes():
    wants = [job(f"job-{number}") for number in range(3)]
    assert launched(documents(), block(count=2, starts_in="10m", ends_in="24h"), wants) == 1


def test_a_block_that_is_too_short_for_the_work_is_not_waited_for():
    assert launched(documents(), block(count=1, starts_in="10m", ends_in="2h"), job()) == 1


def test_those_who_came_before_and_may_use_only_the_block_have_it():
    first = replace(given.pod("first", gpus=8, expected="2h"), created_at=ago("5m"))
    assert launched(documents(), block(count=1, starts_in="10m", ends_in="24h"), first, job()) == 1


def test_a_prepaid_node_whose_work_is_done_soon_is_waited_for():
    on = node("i-1")
    assert launched(documents(), block(count=1), on, runs(on, ends_in="12m"), job()) == 0
    assert launched(documents(), block(count=1), on, runs(on, ends_in="60m"), job()) == 1


def test_a_node_by_the_hour_whose_work_is_done_within_a_boot_is_waited_for():
    on = given.node("i-1", source=ON_DEMAND)
    hourly = documents({"type": "on-demand"})
    assert launched(hourly, on, runs(on, ends_in="5m"), job()) == 0
    assert launched(hourly, on, runs(on, ends_in="12m"), job()) == 1


def test_nobody_waits_longer_than_the_patience_whatever_comes_between():
    on = node("i-1")
    assert launched(documents(), block(count=1), on, runs(on, ends_in="5m"), job(age="16m")) == 0
    assert launched(documents(), block(count=1), on, runs(on, ends_in="8m"), job(age="16m")) == 1


def test_work_that_runs_longer_than_it_said_is_not_waited_for():
    on = node("i-1")
    late = given.pod("late", on=on, gpus=8, expected="25m", overflow=True)  # five minutes ago
    assert launched(documents(), block(count=1), on, late, job()) == 1


def test_a_gang_waits_where_all_of_it_has_room_in_time():
    nodes = [node("i-1"), node("i-2")]
    work = [runs(on, ends_in="10m", name=f"runs-{on.name}") for on in nodes]
    pair = given.gang("pair", size=2, expected="2h", overflow=True)
    assert launched(documents(), block(count=2), *nodes, work, pair) == 0
    work[1] = runs(nodes[1], ends_in="50m", name="other")
    assert launched(documents(), block(count=2), *nodes, work, pair) == 2


def test_a_node_that_is_launched_for_somebody_else_takes_who_would_have_waited():
    on = node("i-1")
    half = runs(on, ends_in="5m", gpus=4)
    rest = runs(on, ends_in="300m", gpus=4, name="rest")
    wants = [job("a", gpus=4), job("b", gpus=4)]
    assert launched(documents(), block(count=1), on, half, rest, wants) == 1
