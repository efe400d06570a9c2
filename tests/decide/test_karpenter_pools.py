"""Pools that Karpenter provisions: pods are let go before there is a node, and the engine launches nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.decide.builders import (
    ago,
    ahead,
    block,
    block_ends,
    gang,
    node,
    of,
    pod,
    pool,
    replica,
    spec,
    why,
    world,
)
from tidemill.decide import decide
from tidemill.model.plan import Admit, Launch, Recreate, RestartWorkload, StartDrain
from tidemill.model.pods import DisruptionBudget, LetGo, Method, Workload
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


@pytest.mark.parametrize(("static", "asks"), [(False, 1), (True, 0)])
def test_a_service_asks_for_nodes_that_karpenter_does_not_keep_up_and_waits_for_those_it_does(static, asks):
    """`warm` without static capacity keeps nothing up: waiting for such nodes would last until the deadline."""
    warm = pool(provisioner="karpenter", warm=True)
    leaves = node("i-1", "draining", provisioner="karpenter", drain_reason=block_ends(ahead("3h20m")))
    chat = [replica(f"chat-{n}", on=leaves, gpus=4, grace="1h", ends_at=ahead("3h20m")) for n in range(2)]
    service = Workload(
        "Deployment/chat",
        "ml",
        2,
        2,
        chat[0].shape,
        chat[0].terms,
        Method.ROLLOUT,
        max_surge=1,
        max_unavailable=0,
    )
    documents = spec(warm, karpenter={"version": "1.11.0", "staticCapacity": static})
    seen = world(
        block(ends_in="4h"), block("cr-2", ends_in="48h", free=1), leaves, chat, service,
        DisruptionBudget("Deployment/chat", 1, 1),
    )  # fmt: skip
    assert len(of(decide(documents, seen), RestartWorkload)) == asks


def test_who_was_let_go_is_not_taken_back_while_its_instance_may_not_be_listed():
    """All slots are taken and only three instances are listed: the fourth is the one that Karpenter launched for it."""
    nodes = [node(f"i-{each}", provisioner="karpenter") for each in range(3)]
    work = [pod(f"works-{each}", on=on, gpus=8, expected="9h") for each, on in enumerate(nodes)]
    waiting = pod("last", gpus=8, expected="2h", gated=False, pinned_to="cr-1")
    there = world(block(count=4, free=0, ends_in="100h"), *nodes, work, waiting)
    lately = replace(there, let_go=(LetGo("Job/last", ago("20s")),))
    plan = decide(spec(KARPENTER), lately)
    assert not of(plan, Recreate)
    assert sentence(why(plan, waiting).reason) == "Karpenter launches a p5.48xlarge on cr-1 for it"
    assert plan.wake_at is not None
    assert plan.wake_at <= ahead("100s")
    for long_ago in (there, replace(there, let_go=(LetGo("Job/last", ago("2m")),))):
        assert [one.pod for one in of(decide(spec(KARPENTER), long_ago), Recreate)] == [waiting.uid]
