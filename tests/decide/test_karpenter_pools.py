"""Pools that Karpenter provisions: pods are let go before there is a node, and the engine launches nothing."""

from __future__ import annotations

import pytest

from tests.decide.builders import ahead, block, gang, node, of, pod, pool, replica, spec, why, world
from tidemill.decide import decide
from tidemill.model.plan import Admit, Launch, StartDrain
from tidemill.wording import sentence

KARPENTER = pool(provisioner="karpenter")


@pytest.mark.requirement("KP-1")
def test_a_pod_is_let_go_before_there_is_a_node_and_nothing_is_launched():
    waiting = pod(gpus=8, expected="2h")
    plan = decide(spec(KARPENTER), world(block(ends_in="100h", free=4), waiting))
    (admitted,) = of(plan, Admit)
    assert (admitted.pods, admitted.source_label, admitted.pool) == ((waiting.uid,), "cr-1", "p5")
    assert admitted.ends_at == ahead("99h20m")  # Karpenter deletes its nodes 40 minutes before the end
    assert not of(plan, Launch)


@pytest.mark.requirement("CB-13")
def test_a_job_that_cannot_finish_there_is_not_let_go():
    waiting = pod(gpus=8, expected="9h")
    plan = decide(spec(KARPENTER), world(block(ends_in="6h", free=4), waiting))
    assert not of(plan, Admit)
    assert why(plan, waiting).code == "held"


def test_a_delivered_block_is_warmed_by_karpenter_and_not_by_us():
    assert not of(decide(spec(pool(provisioner="karpenter", warm=True)), world(block(free=4))), Launch)


def test_who_was_let_go_waits_and_is_told_for_what():
    waiting = replica(gpus=8, pinned_to="cr-1")
    plan = decide(spec(KARPENTER), world(block(free=4), waiting))
    assert (of(plan, Launch), of(plan, Admit)) == ([], [])
    assert sentence(why(plan, waiting).reason) == "Karpenter launches a p5.48xlarge on cr-1 for it"


def test_a_gang_is_let_go_with_a_word_that_nobody_promises_it_whole():
    members = gang("g", 2, gpus=8, expected="2h")
    plan = decide(spec(KARPENTER), world(block(free=4), members))
    assert [len(one.pods) for one in of(plan, Admit)] == [2]
    assert any("knows no gangs" in sentence(warning.reason) for warning in plan.warnings)


def test_no_more_are_let_go_than_the_block_holds():
    waiting = [pod(f"job-{n}", gpus=8, expected="2h") for n in range(6)]
    plan = decide(spec(KARPENTER), world(block(free=4), waiting))
    assert sum(len(one.pods) for one in of(plan, Admit)) == 4


def test_an_idle_node_of_karpenters_is_left_to_karpenter_and_one_that_ends_is_drained():
    eager = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1m", "consolidateBlocks": True}
    idle = node("i-1", provisioner="karpenter")
    native, theirs = pool(disruption=eager), pool(disruption=eager, provisioner="karpenter")
    assert of(decide(spec(native), world(block(), node("i-1"))), StartDrain)
    assert not of(decide(spec(theirs), world(block(), idle)), StartDrain)
    ending = world(block(ends_in="50m"), idle)
    assert of(decide(spec(theirs), ending), StartDrain)
