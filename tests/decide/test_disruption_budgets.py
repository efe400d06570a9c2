"""How many nodes may go at once, for which reason, and when (PE-7)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.decide.builders import DRIFTED, NOW, ON_DEMAND, ago, hourly_pool, node, of, pod, spec, world
from tidemill.decide import decide
from tidemill.model.nodes import Node
from tidemill.model.plan import StartDrain
from tidemill.spec import Spec

pytestmark = pytest.mark.requirement("PE-7")
# NOW is a Monday, 12:00 UTC.


def documents(*budgets: dict[str, Any], policy: str = "WhenEmpty") -> Spec:
    disruption = {"consolidationPolicy": policy, "consolidateAfter": "5m", "budgets": list(budgets)}
    return spec(hourly_pool("g6", disruption=disruption))


def empty(count: int) -> list[Node]:
    return [g6(f"i-{number:02}") for number in range(count)]


def g6(id: str, **fields: Any) -> Node:
    return node(id, source=ON_DEMAND, pool="g6", instance_type="g6.xlarge", joined="3h", **fields)


def drained(papers: Spec, *things: Any, now: timedelta = timedelta(0)) -> int:
    return len(of(decide(papers, world(*things, now=NOW + now)), StartDrain))


def test_without_budgets_all_empty_nodes_go():
    assert drained(documents(), empty(5)) == 5


@pytest.mark.parametrize(
    ("nodes", "expected"), [("0", 0), ("2", 2), ("10%", 2), ("50%", 6), ("100%", 11), ("0%", 0)]
)
def test_so_many_go_at_once_and_percentages_are_rounded_up(nodes: str, expected: int):
    assert drained(documents({"nodes": nodes}), empty(11)) == expected


def test_the_strictest_budget_counts():
    assert drained(documents({"nodes": "5"}, {"nodes": "1"}), empty(8)) == 1


def test_nodes_that_are_going_already_are_counted():
    leaving = g6("i-99", draining_since=ago("1m"), drain_reason=DRIFTED)
    busy = pod("busy", on=leaving, gpus=1)
    assert drained(documents({"nodes": "2"}), empty(8), leaving, busy) == 1


def test_a_budget_may_be_for_some_reasons_only():
    assert drained(documents({"nodes": "0", "reasons": ["Underutilized"]}), empty(3)) == 3
    assert drained(documents({"nodes": "0", "reasons": ["Empty", "Drifted"]}), empty(3)) == 0


def test_a_schedule_says_when_it_holds():
    office_hours = documents({"nodes": "0", "schedule": "0 9 * * 1-5", "duration": "8h"})
    assert drained(office_hours, empty(2)) == 0
    assert drained(office_hours, empty(2), now=timedelta(hours=4, minutes=59)) == 0
    assert drained(office_hours, empty(2), now=timedelta(hours=5)) == 2
    assert (
        drained(office_hours, empty(2), now=timedelta(hours=20, minutes=59)) == 2
    )  # Tuesday, a minute before nine
    assert drained(office_hours, empty(2), now=timedelta(hours=21)) == 0
    assert drained(office_hours, empty(2), now=timedelta(days=5)) == 2  # Saturday


def test_the_engine_wakes_when_a_window_ends():
    office_hours = documents({"nodes": "0", "schedule": "0 9 * * 1-5", "duration": "8h"})
    assert decide(office_hours, world(empty(2))).wake_at == NOW + timedelta(hours=5)


def test_a_budget_holds_back_consolidation_too():
    nodes = [node(f"i-{n}", source=ON_DEMAND, pool="g6", instance_type="g6.12xlarge", joined="3h",
                  last_pod_event_at=ago("1h")) for n in range(4)]  # fmt: skip
    pods = [
        pod(f"p-{n}", on=on, gpus=1, expected="40h", checkpoint_every="10m") for n, on in enumerate(nodes)
    ]
    assert drained(documents(policy="WhenEmptyOrUnderutilized"), nodes, pods) == 3
    assert drained(documents({"nodes": "1"}, policy="WhenEmptyOrUnderutilized"), nodes, pods) == 1
    assert drained(documents({"nodes": "0"}, policy="WhenEmptyOrUnderutilized"), nodes, pods) == 0
