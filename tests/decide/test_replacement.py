"""When a node that its pool would not make any more may be replaced inside a full block, and when it waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.decide import builders as given
from tests.decide.builders import DRIFTED, ago, ahead, of, spec, world
from tidemill.decide import decide
from tidemill.model.nodes import Node
from tidemill.model.plan import Evict, Plan, RequestCheckpoint, StartDrain, Terminate
from tidemill.model.pods import DisruptionBudget, Pod, PodPhase
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.node_class import NodeClass, fingerprint
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("PE-8")

OLD = {names.LABEL_NODE_CLASS: "0ld1mage"}


def node_class(alias: str = "al2023@v20261201", **fields: Any) -> NodeClass:
    body = {"amiSelectorTerms": [{"alias": alias}], **fields}
    return NodeClass.model_validate({"metadata": {"name": "gpu"}, "spec": body})


def documents(*pools: ComputePool) -> Spec:
    return replace(spec(*pools), node_classes={"gpu": node_class()})


def old(id: str = "i-1", **fields: Any) -> Node:
    return given.node(id, labels=OLD, **fields)


def new(id: str = "i-9", **fields: Any) -> Node:
    return given.node(id, labels={names.LABEL_NODE_CLASS: fingerprint(node_class())}, **fields)


def drained(plan: Plan) -> list[str]:
    return [started.node for started in of(plan, StartDrain)]


def replaced(*things: Any, ends_in: str = "48h", count: int = 2, free: int = 0, **fields: Any) -> Plan:
    return decide(documents(), world(given.block(ends_in=ends_in, count=count, free=free), *things, **fields))


def running(pods: list[Pod], *nodes: Node) -> list[Pod]:
    return [
        replace(
            one, gated=False, pinned_to="cr-1", node=here.name, phase=PodPhase.RUNNING, started_at=ago("30m"),
            ready=True,
        )
        for one, here in zip(pods, nodes, strict=True)
    ]  # fmt: skip


# --- what drift is ------------------------------------------------------------------------------------


def test_a_node_made_from_another_image_has_drifted():
    assert drained(replaced(old(), new())) == ["node-i-1"]
    (started,) = of(replaced(old(), new()), StartDrain)
    assert sentence(started.reason) == "drifted: node class gpu has changed since the node was launched"


def test_a_node_that_does_not_say_what_it_was_made_from_has_not():
    assert not drained(replaced(given.node("i-1"), new()))


def test_a_setting_with_its_default_changes_no_fingerprint():
    assert fingerprint(node_class()) == fingerprint(node_class(efa=False, userData=""))
    assert fingerprint(node_class()) != fingerprint(node_class(efa=True))
    assert fingerprint(node_class()) != fingerprint(node_class("al2023@v20261202"))


# --- one at a time ------------------------------------------------------------------------------------


def test_of_several_the_one_that_disturbs_least_goes_first():
    busy, idle = old("i-1"), old("i-2")
    saved = given.pod(on=busy, gpus=8, checkpoint_every="15m")
    assert drained(replaced(busy, idle, saved)) == ["node-i-2"]


def test_the_next_waits_until_the_slot_of_the_one_before_is_clean():
    """One of two is gone: EC2 shows neither a free slot nor an instance there."""
    assert not drained(replaced(old("i-1"), count=2, free=0))
    assert drained(replaced(old("i-1"), count=1, free=0)) == ["node-i-1"]


@pytest.mark.parametrize("phase", ["launched", "joined", "registering", "verifying"])
def test_the_next_waits_until_the_new_node_is_ready(phase: str):
    young = new(phase=phase, launched="2m", joined="1m")
    assert not drained(replaced(old("i-1"), young))
    assert drained(replaced(old("i-1"), new())) == ["node-i-1"]


def test_the_next_waits_while_a_launch_is_on_its_way():
    plan = replaced(old("i-1"), given.launch_intent(), count=2, free=1)
    assert not drained(plan)


def test_the_slot_is_filled_before_the_next_node_goes():
    """A clean slot is launched into in this very plan."""
    assert not drained(replaced(old("i-1"), old("i-2"), count=3, free=1))


def test_nodes_of_two_pools_do_not_wait_for_each_other():
    mine, theirs = given.block("cr-1", count=1, pool="p5"), given.block("cr-2", count=1, pool="other")
    there = world(mine, theirs, old("i-1"), old("i-2", source=theirs.source, pool="other"))
    assert len(drained(decide(documents(given.pool("p5"), given.pool("other")), there))) == 2


def test_a_disruption_budget_holds_it_back():
    frozen = given.pool(disruption={"budgets": [{"nodes": "0", "reasons": ["Drifted"]}]})
    there = world(given.block(ends_in="48h", count=1), old())
    assert not drained(decide(documents(frozen), there))
    assert drained(decide(documents(given.pool()), there))


# --- who is there -------------------------------------------------------------------------------------


def test_a_job_that_checkpoints_is_asked_to_and_moves():
    here = old(phase="draining", drain_reason=DRIFTED)
    saved = given.pod(on=here, gpus=8, checkpoint_every="15m", checkpoint_time="2m", ends_at=ahead("47h30m"))
    assert of(replaced(here, saved, count=1), RequestCheckpoint)


def test_a_running_gang_is_never_broken_for_a_new_image():
    """The known fault: one member's node was drained, and that stopped all of them."""
    first, second = old("i-1"), old("i-2")
    members = running(given.gang(size=2, expected="5h"), first, second)
    plan = replaced(first, second, members)
    assert not drained(plan)
    assert plan.wake_at is not None
    assert plan.wake_at <= ahead(
        "2h30m"
    )  # it is done in 4h30m; two hours before that a node is closed to others
    closed = replaced(first, second, members, now=ahead("2h30m"))
    assert drained(closed) == ["node-i-1"]
    leaving = old("i-1", phase="draining", drain_reason=DRIFTED, draining_since=ago("1m"))
    waiting = replaced(leaving, second, members, now=ahead("2h31m"))
    assert not of(waiting, Evict)
    assert not of(waiting, RequestCheckpoint)


def test_a_gang_that_is_late_is_still_not_broken():
    here = old(phase="draining", drain_reason=DRIFTED, draining_since=ago("1m"))
    late = running(given.gang(size=2, expected="1m"), here, new())
    assert not of(replaced(here, new(), late, now=ahead("5h")), Evict)


def test_a_gang_that_does_not_say_when_it_is_done_is_left_alone_and_that_is_said():
    first, second = old("i-1"), old("i-2")
    plan = replaced(first, second, running(given.gang(size=2), first, second))
    assert not drained(plan)
    assert "part of gang g, which does not say when it is done" in sentence(plan.warnings[0].reason)


def test_the_end_of_the_block_does_not_wait_for_a_gang_that_a_roll_waited_for():
    leaving = old("i-1", phase="draining", drain_reason=DRIFTED, draining_since=ago("1m"))
    members = running(given.gang(size=2, expected="50h", checkpoint_every="1h"), leaving, new())
    plan = replaced(leaving, new(), members, now=ahead("47h27m"))
    assert {one.pod for one in of(plan, RequestCheckpoint)} == {members[0].uid}


def test_a_job_that_would_begin_again_is_let_finish_but_not_past_its_word():
    here = old(phase="draining", drain_reason=DRIFTED, draining_since=ago("1m"))
    whole = given.pod(on=here, gpus=8, expected="1h")
    waiting = replaced(here, whole, count=1)
    assert not of(waiting, Evict)
    assert waiting.wake_at == ahead("30m")
    assert not of(replaced(here, whole, count=1, now=ahead("59m")), Evict)  # half an hour of patience
    assert of(replaced(here, whole, count=1, now=ahead("60m")), Evict)


def test_a_pod_that_nobody_would_make_again_keeps_its_node():
    here = old()
    plan = replaced(here, given.pod(on=here, gpus=8, workload=""), count=1)
    assert not drained(plan)
    assert "would not be created again" in sentence(plan.warnings[0].reason)


@pytest.mark.parametrize(("allowed", "goes"), [(0, False), (1, True)])
def test_a_service_whose_budget_is_used_up_keeps_its_node(allowed: int, goes: bool):
    here = old()
    budget = DisruptionBudget("Deployment/chat", min_available=1, allowed=allowed)
    assert bool(drained(replaced(here, given.replica(on=here, gpus=8), budget, count=1))) is goes


# --- is it worth it -----------------------------------------------------------------------------------


@pytest.mark.requirement("PE-17")
@pytest.mark.parametrize(("ends_in", "goes"), [("1h58m", True), ("1h57m", False)])
def test_a_node_is_replaced_only_while_the_new_one_would_be_of_use(ends_in: str, goes: bool):
    """11 minutes until the slot is clean, 7 to boot, an hour of use; the drain begins 40 minutes before the end."""
    assert bool(drained(replaced(old(), count=1, ends_in=ends_in))) is goes


def test_a_job_that_is_waited_for_counts_against_the_time_that_is_left():
    here = old()
    whole = given.pod(on=here, gpus=8, expected="2h")  # an hour and a half of it are left
    assert not drained(replaced(here, whole, count=1, ends_in="3h"))
    assert drained(replaced(here, whole, count=1, ends_in="4h"))


@pytest.mark.requirement("PE-17")
def test_a_node_that_fails_its_check_goes_whatever_time_is_left_and_whoever_is_there():
    """It is of no use to anybody; only whether a new one is launched depends on the time."""
    bad = given.node("i-1", check="failed")
    members = running(given.gang(size=2, expected="50h"), bad, given.node("i-2"))
    for ends_in in ("48h", "50m"):
        plan = decide(
            documents(), world(given.block(ends_in=ends_in, count=2), bad, given.node("i-2"), members)
        )
        assert "node-i-1" in drained(plan)


@pytest.mark.requirement("PE-17")
@pytest.mark.parametrize(("ends_in", "launched"), [("48h", True), ("61m", False)])
def test_a_failed_node_s_slot_is_filled_only_if_there_is_time(ends_in: str, launched: bool):
    plan = decide(spec(), world(given.block(ends_in=ends_in, count=1, free=1)))
    assert bool(plan.actions) is launched


def test_an_emptied_node_is_terminated_before_anything_is_launched():
    here = old(phase="draining", drain_reason=DRIFTED)
    plan = replaced(here, given.pod(gpus=8), count=1)
    assert [type(action) for action in plan.actions] == [Terminate]
