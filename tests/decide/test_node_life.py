"""A node's phase is read off the facts; each phase has a limit, and a node that misses one is replaced."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.decide.builders import CHECK_FAILED, NOW, ago, block, gang, node, of, pod, pool, spec, why, world
from tidemill.decide import decide
from tidemill.decide.phases import Phase, phase_of
from tidemill.model.labels import Taint
from tidemill.model.nodes import InstanceState, Node
from tidemill.model.plan import Admit, Evict, MarkReady, RemoveNode, RequestCheckpoint, StartDrain, Terminate
from tidemill.wording import sentence

KUBE = node(phase="ready").kube
assert KUBE is not None


@pytest.mark.requirement("PE-10")
@pytest.mark.parametrize(
    ("facts", "phase"),
    [
        (node(phase="launched"), "launched"),
        (node(phase="launched", state=InstanceState.PENDING), "launched"),
        (node(phase="joined"), "joined"),
        (node(phase="registering"), "registering"),
        (node(phase="verifying"), "verifying"),
        (node(phase="verifying", check="failed"), "verifying"),
        (node(phase="ready"), "ready"),
        (node(phase="ready", check="failed"), "ready"),
        (node(phase="ready", ready=False), "joined"),
        (node(phase="ready", taints=(Taint("team", "a"),)), "ready"),
        (node(phase="draining"), "draining"),
        (node(phase="draining", ready=False), "draining"),
        (node(phase="ready", state=InstanceState.SHUTTING_DOWN), "gone"),
        (node(phase="draining", state=InstanceState.TERMINATED), "gone"),
        (Node(None, KUBE), "gone"),
    ],
)
def test_the_phase_follows_from_the_facts(facts: Node, phase: str):
    assert phase_of(facts) is Phase(phase)


@pytest.mark.requirement("PE-9")
@pytest.mark.parametrize(
    ("young", "limit", "says"),
    [
        (lambda age: node(phase="launched", launched=age), "15m", "it did not join the cluster within 15m"),
        (lambda age: node(phase="joined", joined=age), "5m", "it was not Ready within 5m"),
        (
            lambda age: node(phase="registering", joined=age),
            "10m",
            "it did not register its accelerators within 10m",
        ),
    ],
    ids=["joining", "becoming Ready", "registering GPUs"],
)
def test_a_node_that_misses_the_limit_of_its_phase_is_replaced(young, limit: str, says: str):
    late = decide(spec(), world(block(), young(limit)))
    assert [sentence(ended.reason) for ended in of(late, Terminate)] == [f"{says}; it is replaced"]
    almost = decide(spec(), world(block(), young(limit), now=NOW - timedelta(seconds=1)))
    assert not of(almost, Terminate)
    assert almost.wake_at == NOW


@pytest.mark.requirement("PE-10")
def test_a_node_check_that_never_ends_is_a_timed_failure():
    late = node(phase="verifying", accelerators_registered_at=ago("10m"))
    (ended,) = of(decide(spec(), world(block(), late)), Terminate)
    assert "did not finish its node check within 10m" in sentence(ended.reason)


@pytest.mark.requirement("PE-10")
def test_a_node_takes_work_once_its_check_passed():
    checked = node(phase="verifying", check="passed", joined="3m")
    (marked,) = of(decide(spec(), world(block(), checked)), MarkReady)
    assert marked.node == checked.name
    assert not of(decide(spec(), world(block(), node(phase="verifying", joined="3m"))), MarkReady)


def test_without_a_node_check_a_registered_node_takes_work():
    unchecked = node(phase="verifying", check="", joined="3m")
    (marked,) = of(decide(spec(), world(block(), unchecked)), MarkReady)
    assert sentence(marked.reason) == "its accelerators are registered, and no node check reports on it"
    registering = node(phase="registering", check="", joined="3m")
    assert not of(decide(spec(), world(block(), registering)), MarkReady)


def test_a_pool_that_requires_a_check_waits_for_it_and_replaces_a_node_that_none_reports_on():
    strict = spec(pool(nodeCheck="required"))
    assert not of(decide(strict, world(block(), node(phase="verifying", check="", joined="3m"))), MarkReady)
    late = node(phase="verifying", check="", accelerators_registered_at=ago("10m"))
    (ended,) = of(decide(strict, world(block(), late)), Terminate)
    assert "did not finish its node check within 10m" in sentence(ended.reason)
    passed = node(phase="verifying", check="passed", joined="3m")
    assert of(decide(strict, world(block(), passed)), MarkReady)


@pytest.mark.requirement("PE-17")
def test_a_node_that_fails_its_first_check_is_terminated_with_the_reason():
    bad = node(phase="verifying", check="failed", check_message="ECC errors on GPU 3", joined="3m")
    (ended,) = of(decide(spec(), world(block(), bad)), Terminate)
    assert "failed its node check: ECC errors on GPU 3" in sentence(ended.reason)


@pytest.mark.requirement("PE-17")
def test_a_gpu_that_fails_after_ready_drains_the_node():
    bad = node(check="failed", check_message="GPU 5 fell off the bus")
    plan = decide(spec(), world(block(), bad, pod(on=bad, gpus=8)))
    (started,) = of(plan, StartDrain)
    assert sentence(started.reason) == "node check failed: GPU 5 fell off the bus"
    assert not of(plan, Terminate)


@pytest.mark.requirement("PE-17")
def test_a_failed_node_asks_nobody_for_a_checkpoint_and_evicts_at_once():
    bad = node(phase="draining", drain_reason=CHECK_FAILED, check="failed")
    plan = decide(
        spec(), world(block(), bad, pod(on=bad, gpus=8, checkpoint_every="1h", checkpoint_time="5m"))
    )
    assert of(plan, Evict)
    assert not of(plan, RequestCheckpoint)


@pytest.mark.requirement("PE-17")
def test_nothing_new_is_sent_to_a_node_that_failed_its_check():
    waiting = pod(gpus=8)
    plan = decide(spec(), world(block(), node(check="failed"), waiting))
    assert not of(plan, Admit)
    assert why(plan, waiting)


@pytest.mark.requirement("PE-17")
def test_a_running_node_that_goes_silent_is_replaced_after_five_minutes():
    silent = node(ready=False, ready_changed_at=ago("5m"))
    plan = decide(spec(), world(block(), silent, pod(on=silent, gpus=8)))
    assert [ended.instance_id for ended in of(plan, Terminate)] == ["i-1"]
    hiccup = node(ready=False, ready_changed_at=ago("4m"))
    assert not of(decide(spec(), world(block(), hiccup)), Terminate)


@pytest.mark.requirement("PE-17")
def test_a_draining_node_that_goes_silent_is_not_waited_for():
    silent = node(phase="draining", ready=False, ready_changed_at=ago("5m"))
    plan = decide(spec(), world(block(), silent, pod(on=silent, gpus=8)))
    assert [ended.instance_id for ended in of(plan, Terminate)] == ["i-1"]


@pytest.mark.requirement("PE-17")
def test_the_node_object_of_an_instance_that_is_gone_is_removed():
    plan = decide(spec(), world(block(), node(state=InstanceState.TERMINATED)))
    assert [removed.node for removed in of(plan, RemoveNode)] == ["node-i-1"]
    still_ending = decide(spec(), world(block(), node(state=InstanceState.SHUTTING_DOWN)))
    assert not of(still_ending, RemoveNode)


@pytest.mark.requirement("PE-9")
def test_the_registration_window_is_told_as_passing():
    waiting = pod(gpus=8, message="OutOfnvidia.com/gpu")
    plan = decide(spec(), world(block(), node(phase="registering", joined="1m"), waiting))
    told = why(plan, waiting)
    assert told.code == "starting"
    assert "60-90 s" in sentence(told.reason)
    assert "OutOfnvidia.com/gpu" in sentence(told.reason)


@pytest.mark.requirement("PE-9")
def test_a_node_whose_gpus_are_not_registered_is_not_admitted_to():
    plan = decide(spec(), world(block(), node(phase="registering", joined="1m"), pod(gpus=8)))
    assert not of(plan, Admit)


@pytest.mark.requirement("PE-17")
def test_a_gang_keeps_the_nodes_of_its_survivors_while_the_lost_slot_is_replaced():
    survivor, replacement = node("i-1"), node("i-2", "launched", launched="2m")
    pods = gang(size=2)
    plan = decide(spec(), world(block(), survivor, replacement, pods))
    assert not of(plan, Admit)
    assert not of(plan, StartDrain)
    assert {why(plan, one).code for one in pods} == {"gang", "starting"}


# --- several that fail at once ------------------------------------------------------------------------


def failing(id: str, since: str = "1m", **fields) -> Node:
    return node(
        id, "draining", check="failed", drain_reason=CHECK_FAILED, draining_since=ago(since), **fields
    )


@pytest.mark.requirement("PE-17")
def test_nodes_that_fail_together_are_closed_together_and_emptied_one_after_the_other():
    """It may be the check that is wrong: one in five of the pool's nodes at a time, the first to fail first."""
    nodes = [failing("i-1", "1m"), failing("i-2", "9m"), node("i-3")]
    pods = [pod(f"p{place}", on=here, gpus=8) for place, here in enumerate(nodes)]
    plan = decide(spec(), world(block(count=3), nodes, pods))
    assert [one.pod for one in of(plan, Evict)] == ["uid-p1"]
    (warning,) = plan.warnings
    assert (warning.about, "other nodes of its pool are emptied first" in sentence(warning.reason)) == (
        "node-i-1",
        True,
    )
    both = [node("i-1", check="failed"), node("i-2", check="failed")]
    assert len(of(decide(spec(), world(block(count=2), both)), StartDrain)) == 2


@pytest.mark.requirement("PE-17")
@pytest.mark.parametrize(("there", "at_once"), [(3, 1), (5, 1), (6, 2), (11, 3)])
def test_of_a_larger_pool_more_go_at_a_time(there: int, at_once: int):
    nodes = [failing(f"i-{place:02}") for place in range(there)]
    pods = [pod(f"p{place}", on=here, gpus=8) for place, here in enumerate(nodes)]
    assert len(of(decide(spec(), world(block(count=there), nodes, pods)), Evict)) == at_once


@pytest.mark.requirement("PE-17")
def test_an_empty_failed_node_waits_for_nobody_and_neither_does_the_end():
    nodes = [failing("i-1"), failing("i-2"), failing("i-3")]
    pods = [pod(f"p{place}", on=here, gpus=8) for place, here in enumerate(nodes[:2])]
    plan = decide(spec(), world(block(count=3), nodes, pods))
    assert [ended.instance_id for ended in of(plan, Terminate)] == ["i-3"]
    assert len(of(decide(spec(), world(block(count=3, ends_in="39m"), nodes, pods)), Evict)) == 2


@pytest.mark.requirement("SM-9")
def test_a_node_object_that_nobody_of_ours_labelled_is_not_removed_with_its_instance():
    gone = node(state=InstanceState.TERMINATED)
    assert gone.kube is not None
    bare = replace(gone, kube=replace(gone.kube, labels=()))
    assert of(decide(spec(), world(block(), gone)), RemoveNode)
    assert not decide(spec(), world(block(), bare)).actions


@pytest.mark.requirement("SM-9")
def test_a_node_object_whose_instance_a_list_leaves_out_is_not_removed():
    assert not decide(spec(), world(block(), Node(None, node().kube))).actions


def test_an_older_node_object_of_an_instance_is_left_alone_and_reported():
    newest = node("i-1")
    assert newest.kube is not None
    older = Node(None, replace(newest.kube, name="was-i-1", joined_at=ago("3d")))
    plan = decide(spec(), world(block(), newest, older))
    assert not plan.actions
    (warning,) = plan.warnings
    assert warning.about == "was-i-1"
    assert sentence(warning.reason) == (
        "it names the same instance as node-i-1, which joined later and is the one that counts; it is left alone,"
        " and can be deleted"
    )
