"""What is given back: empty nodes after their timer, drifted ones one by one, prepaid ones by request."""

from __future__ import annotations

from typing import Any

import pytest

from tests.decide import builders as given
from tests.decide.builders import DRIFTED, ON_DEMAND, ago, ahead, of, spec, world
from tidemill.decide import decide
from tidemill.model.nodes import Node
from tidemill.model.plan import Evict, Plan, StartDrain
from tidemill.spec.units import parse_duration
from tidemill.wording import sentence


def g6(id: str = "i-1", **fields: Any) -> Node:
    return given.node(id, source=ON_DEMAND, pool="g6", instance_type="g6.xlarge", **fields)


def drained(plan: Plan) -> list[str]:
    return [started.node for started in of(plan, StartDrain)]


@pytest.mark.requirement("PE-6")
def test_an_empty_node_goes_after_consolidate_after():
    documents, idle = (
        spec(given.hourly_pool(disruption={"consolidateAfter": "7m"})),
        g6(last_pod_event_at=ago("7m")),
    )
    (started,) = of(decide(documents, world(idle)), StartDrain)
    assert sentence(started.reason) == "empty for 7m"
    almost = decide(documents, world(g6(last_pod_event_at=ago("6m59s"))))
    assert not drained(almost)
    assert almost.wake_at == ahead("1s")


@pytest.mark.requirement("PE-6")
def test_the_timer_of_a_node_that_never_had_a_pod_starts_when_its_gpus_registered():
    assert not drained(decide(spec(given.hourly_pool()), world(g6(joined="6m"))))
    assert drained(decide(spec(given.hourly_pool()), world(g6(joined="6m15s"))))


@pytest.mark.requirement("PE-6")
def test_the_timer_restarts_when_a_pod_comes_or_goes():
    assert drained(decide(spec(given.hourly_pool()), world(g6(joined="3h"))))
    touched = decide(spec(given.hourly_pool()), world(g6(joined="3h", last_pod_event_at=ago("2m"))))
    assert not drained(touched)
    assert touched.wake_at == ahead("3m")


@pytest.mark.requirement("PE-6")
def test_daemon_pods_do_not_keep_a_node():
    here = g6()
    assert drained(decide(spec(given.hourly_pool()), world(here, given.daemon("agent", here))))
    assert not drained(decide(spec(given.hourly_pool()), world(here, given.pod(on=here))))


@pytest.mark.requirement("PE-6")
def test_a_node_that_a_waiting_pod_counts_on_is_kept():
    assert not drained(decide(spec(given.hourly_pool()), world(g6(), given.pod(gpus=1))))


@pytest.mark.requirement("PE-6")
def test_an_empty_node_is_drained_before_it_is_terminated():
    plan = decide(spec(given.hourly_pool()), world(g6()))
    assert [type(action).__name__ for action in plan.actions] == ["StartDrain"]


@pytest.mark.requirement("PE-7")
def test_never_means_never():
    assert not drained(
        decide(spec(given.hourly_pool(disruption={"consolidationPolicy": "Never"})), world(g6()))
    )


@pytest.mark.requirement("PE-6")
def test_a_node_that_is_not_ready_yet_is_not_idle():
    assert not drained(decide(spec(given.hourly_pool()), world(g6(phase="verifying", joined="9m"))))


@pytest.mark.requirement("CB-12", "TR-5")
@pytest.mark.parametrize("kind", ["block", "odcr"])
def test_a_prepaid_node_stays_while_its_reservation_lives(kind: str):
    held = given.block(kind=kind, ends_in="100h")  # type: ignore[arg-type]
    documents = spec(given.pool(sources=[{"type": kind}]))
    assert not drained(decide(documents, world(held, given.node(source=held.source))))


@pytest.mark.requirement("CB-12")
def test_a_prepaid_node_goes_if_its_pool_says_so():
    documents = spec(given.pool(disruption={"consolidateBlocks": True}))
    assert drained(decide(documents, world(given.block(ends_in="100h"), given.node()))) == ["node-i-1"]


@pytest.mark.requirement("CB-12", "PE-7")
def test_never_is_stronger_than_consolidate_blocks():
    stays = {"consolidateBlocks": True, "consolidationPolicy": "Never"}
    assert not drained(
        decide(spec(given.pool(disruption=stays)), world(given.block(ends_in="100h"), given.node()))
    )


# --- drift --------------------------------------------------------------------------------------------


@pytest.mark.requirement("PE-8")
@pytest.mark.parametrize(
    ("documents", "words"),
    [
        (given.hourly_pool("g6", "g6e.xlarge"), "no longer allows g6.xlarge"),
        (given.hourly_pool("g6", labels={"tier": "train"}), "lacks the label tier=train"),
    ],
)
def test_a_node_its_pool_would_not_launch_any_more_is_drained(documents, words: str):
    here = g6()
    (started,) = of(decide(spec(documents), world(here, given.pod(on=here, gpus=1))), StartDrain)
    assert sentence(started.reason).startswith("drifted: ")
    assert words in sentence(started.reason)


@pytest.mark.requirement("PE-8")
def test_drifted_nodes_go_one_at_a_time():
    nodes = [g6("i-1"), g6("i-2")]
    pods = [given.pod(f"p{place}", on=here, gpus=1) for place, here in enumerate(nodes)]
    documents = spec(given.hourly_pool("g6", "g6e.xlarge"))
    assert drained(decide(documents, world(nodes, pods))) == ["node-i-1"]
    first_goes = [g6("i-1", phase="draining", drain_reason=DRIFTED), g6("i-2")]
    plan = decide(documents, world(first_goes, pods))
    assert not drained(plan)
    assert [evicted.pod for evicted in of(plan, Evict)] == ["uid-p0"]


@pytest.mark.requirement("PE-8")
@pytest.mark.parametrize(
    ("mark", "stays"),
    [
        (True, True),
        (False, False),
        ("1h", True),  # it started half an hour ago
        ("30m", False),
    ],
)
def test_do_not_disrupt_holds_back_drift(mark, stays: bool):
    here = g6()
    marked = given.pod(
        on=here, gpus=1, do_not_disrupt=parse_duration(mark) if isinstance(mark, str) else mark
    )
    plan = decide(spec(given.hourly_pool("g6", "g6e.xlarge")), world(here, marked))
    assert bool(drained(plan)) is not stays
    if stays:
        (warning,) = plan.warnings
        assert "ml/train-1 is marked do-not-disrupt" in sentence(warning.reason)
    if mark == "1h":
        assert plan.wake_at == ahead("30m")


@pytest.mark.requirement("PE-8")
def test_a_node_of_a_removed_pool_runs_on():
    assert not decide(spec(given.pool("other")), world(g6())).actions
