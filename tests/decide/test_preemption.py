"""Priority is honoured on full nodes: resumable work of a lower priority saves its work and leaves (PE-18)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.decide.builders import ago, ahead, block, gang, node, of, pod, pool, spec, why, world
from tidemill.decide import decide
from tidemill.model.nodes import Node
from tidemill.model.plan import Admit, Evict, RequestCheckpoint
from tidemill.model.pods import DisruptionBudget, Pod, PodPhase
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("PE-18")


def runs(
    name: str, on: Node, *, gpus: int = 8, resumable: bool = True, expected: str = "10h", **more: object
) -> Pod:
    one = pod(name, gpus=gpus, expected=expected, **more)  # type: ignore[arg-type]
    terms = replace(
        one.terms,
        checkpoint_every=timedelta(minutes=30) if resumable else None,
        checkpoint_time=timedelta(minutes=2),
    )
    return replace(
        one, terms=terms, gated=False, pinned_to="cr-1", node=on.name, phase=PodPhase.RUNNING,
        started_at=ago("1h"), ready=True,
    )  # fmt: skip


def urgent(name: str = "urgent", *, gpus: int = 8, expected: str = "1h", age: str = "1m") -> Pod:
    return replace(pod(name, gpus=gpus, expected=expected, priority=1000), created_at=ago(age))


def asked(plan: object) -> set[str]:
    return {action.pod for action in of(plan, RequestCheckpoint)}  # type: ignore[arg-type]


def evicted(plan: object) -> set[str]:
    return {action.pod for action in of(plan, Evict)}  # type: ignore[arg-type]


def test_resumable_work_of_a_lower_priority_is_asked_for_a_checkpoint_and_then_leaves():
    on, wants = node("i-1"), urgent()
    low = runs("low", on)
    plan = decide(spec(), world(block(count=1), on, low, wants))
    assert asked(plan) == {low.uid}
    assert not evicted(plan)
    told = why(plan, wants)
    assert "1 pod of lower priority must save and leave cr-1 for it" in sentence(told.reason)
    assert told.earliest is not None
    saved = replace(low, checkpoint_requested_at=ago("2m"), checkpoint_done_at=ago("10s"))
    plan = decide(spec(), world(block(count=1), on, saved, wants))
    assert evicted(plan) == {low.uid}
    assert "makes room for ml/urgent" in sentence(of(plan, Evict)[0].reason)


def test_a_checkpoint_that_nobody_acknowledges_is_not_waited_for_for_ever():
    on, wants = node("i-1"), urgent(age="20m")
    silent = replace(runs("low", on), checkpoint_requested_at=ago("15m"))
    plan = decide(spec(), world(block(count=1), on, silent, wants))
    assert evicted(plan) == {silent.uid}
    assert of(plan, Evict)[0].reason.checkpoint_unanswered


def test_work_that_would_start_over_stays():
    on = node("i-1")
    there = world(block(count=1), on, runs("low", on, resumable=False), urgent())
    assert not asked(decide(spec(), there))


def test_work_that_must_not_be_disturbed_stays():
    on = node("i-1")
    low = runs("low", on)
    low = replace(low, terms=replace(low.terms, do_not_disrupt=True))
    plan = decide(spec(), world(block(count=1), on, low, urgent()))
    assert not asked(plan)
    assert not evicted(plan)


def test_work_of_the_same_priority_stays():
    on = node("i-1")
    low = runs("low", on)
    equal = replace(low, terms=replace(low.terms, priority=1000))
    assert not asked(decide(spec(), world(block(count=1), on, equal, urgent())))


def test_nobody_leaves_for_a_pod_that_starts_soon_anyway():
    on = node("i-1")
    soon = runs("low", on, expected="70m")  # done in ten minutes
    plan = decide(spec(), world(block(count=1), on, soon, urgent()))
    assert not asked(plan)


def test_where_no_end_is_known_it_waits_before_anybody_leaves():
    on = node("i-1")
    low = runs("low", on)
    endless = replace(low, terms=replace(low.terms, expected=None))
    there = world(block(count=1), on, endless, urgent(age="5m"))
    plan = decide(spec(), there)
    assert not asked(plan)
    assert plan.wake_at is not None
    assert plan.wake_at <= ahead("10m")
    assert asked(decide(spec(), world(block(count=1), on, endless, urgent(age="16m")))) == {low.uid}


def test_a_pool_may_say_that_nobody_is_preempted():
    on = node("i-1")
    there = world(block(count=1), on, runs("low", on), urgent())
    assert not asked(decide(spec(pool(preemptAfter=None)), there))


def test_as_few_as_make_room_leave_the_lowest_priority_first():
    on, other = node("i-1"), node("i-2")
    low = [runs(f"low-{number}", on, gpus=4) for number in range(2)]
    middle = [runs(f"middle-{number}", other, gpus=4, priority=5) for number in range(2)]
    plan = decide(spec(), world(block(count=2), on, other, low, middle, urgent(gpus=4)))
    assert len(asked(plan)) == 1
    assert asked(plan) <= {one.uid for one in low}


def test_those_who_were_asked_are_chosen_again():
    nodes = [node(f"i-{number}") for number in (1, 2, 3)]
    low = [runs(f"low-{on.name}", on) for on in nodes]
    low[2] = replace(low[2], checkpoint_requested_at=ago("1m"))
    plan = decide(spec(), world(block(count=3), *nodes, low, urgent()))
    assert not asked(plan)  # nobody else is


def test_a_gang_leaves_as_a_whole_and_a_gang_gets_as_many_nodes_as_it_needs():
    nodes = [node(f"i-{number}") for number in (1, 2, 3)]
    pair = gang("pair", size=2, expected="10h")
    terms = replace(pair[0].terms, checkpoint_every=timedelta(minutes=30))
    running = [
        replace(
            one, terms=terms, gated=False, pinned_to="cr-1", node=on.name, phase=PodPhase.RUNNING,
            started_at=ago("1h"), ready=True,
        )
        for one, on in zip(pair, nodes, strict=False)
    ]  # fmt: skip
    single = runs("single", nodes[2], resumable=False)
    plan = decide(spec(), world(block(count=3), *nodes, running, single, urgent()))
    assert asked(plan) == {one.uid for one in running}
    wants = [
        replace(one, terms=replace(one.terms, priority=9)) for one in gang("wants", size=2, expected="1h")
    ]
    plan = decide(spec(), world(block(count=3), *nodes, running, single, wants))
    assert asked(plan) == {one.uid for one in running}


def test_a_disruption_budget_is_kept():
    on = node("i-1")
    saved = replace(runs("low", on), checkpoint_requested_at=ago("2m"), checkpoint_done_at=ago("10s"))
    budget = DisruptionBudget(saved.workload, 1, 0)
    there = replace(world(block(count=1), on, saved, urgent()), budgets=(budget,))
    assert not evicted(decide(spec(), there))


def test_what_a_leaving_pod_frees_is_not_taken_by_others():
    """One of two nodes is free, the other saves its work: the gang with the higher priority is the next."""
    nodes = [node("i-1"), node("i-2")]
    leaves = replace(runs("low", nodes[1]), checkpoint_requested_at=ago("1m"))
    wants = [
        replace(one, created_at=ago("12m"), terms=replace(one.terms, priority=9))
        for one in gang("wants", size=2, expected="1h")
    ]
    other = pod("other", gpus=8, expected="3h")
    plan = decide(spec(), world(block(count=2), *nodes, leaves, wants, other))
    assert not of(plan, Admit)
