"""Budgets that pods use up, wherever they go: kept, given back by who finds no room, never taken from others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.packer.problems import existing, gpus, pending, problem, replicas, sound
from tests.packer.random_clusters import clusters
from tidemill.bench.checker.check import check
from tidemill.decide.packer import solve
from tidemill.decide.packer.problem import PendingPod, Problem
from tidemill.spec.names import NVIDIA_GPU

pytestmark = pytest.mark.requirement("PE-20")
SAME = settings(
    database=None, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], max_examples=50
)  # fmt: skip


def consuming(pods: list[PendingPod], *budgets: str) -> list[PendingPod]:
    """Each uses up as much of the budgets as it requests GPUs, or 1."""
    amounts = [max(1, dict(pod.shape.requests).get(NVIDIA_GPU, 0)) for pod in pods]
    return [
        replace(pod, consumes=tuple((budget, amount) for budget in budgets))
        for pod, amount in zip(pods, amounts, strict=True)
    ]


def within(budgets: dict[str, int], pods: list[PendingPod], *rest) -> Problem:
    return replace(problem(pods, *rest), pod_budgets=budgets)


def placed(stated: Problem) -> list[str]:
    solution = sound(stated)
    return sorted(pod.id for number, pod in enumerate(stated.pods) if number not in solution.unplaced)


NODES = [existing(f"n{number}", free={NVIDIA_GPU: 8, "cpu": 96_000, "pods": 100}) for number in range(4)]


def test_as_many_pods_are_placed_as_the_budget_holds_on_nodes_there_are_and_on_new_ones():
    pods = consuming(replicas(10, gpus=4), "a")
    assert len(placed(within({"a": 19}, pods, NODES[:1]))) == 2
    assert len(placed(within({"a": 19}, pods, NODES[:1], [gpus("p5", 8, 50.0)]))) == 4


def test_pods_of_a_higher_priority_have_the_budget_first():
    low, high = (
        consuming(replicas(3, "low", gpus=8), "a"),
        consuming(replicas(2, "high", gpus=8, priority=5), "a"),
    )
    assert placed(within({"a": 24}, [*low, *high], NODES)) == ["high0", "high1", "low0"]


def test_what_finds_no_room_gives_its_share_of_the_budget_to_the_next():
    large = consuming([pending("large", gpus=16)], "a")
    assert placed(within({"a": 16}, [*large, *consuming(replicas(2, "small", gpus=8), "a")], NODES)) == [
        "small0",
        "small1",
    ]


def test_a_gang_uses_up_the_budget_for_all_its_pods_or_for_none():
    gang = consuming(replicas(3, "gang", gpus=8, gang="g", size=3), "a")
    assert placed(within({"a": 23}, gang, NODES)) == []
    assert len(placed(within({"a": 24}, gang, NODES))) == 3


def test_a_pod_of_two_budgets_needs_room_in_both():
    pods = consuming(replicas(4, gpus=8), "a", "b")
    assert len(placed(within({"a": 32, "b": 8}, pods, NODES))) == 1


@SAME
@given(
    st.integers(1, 4), st.integers(1, 60), st.sampled_from([1, 2, 3, 4, 8]), st.integers(0, 20), st.integers(1, 30)
)  # fmt: skip
def test_a_flood_from_one_namespace_never_starves_another(nodes, flood, each, budget, others):
    """The others, listed last, find all the room that the budget of the flood leaves them."""
    stated = within(
        {"flood": budget},
        [
            *consuming(replicas(flood, "flood", gpus=each, namespace="flood", priority=1), "flood"),
            *replicas(others, "other", gpus=1, namespace="other"),
        ],
        NODES[:nodes],
    )
    names = placed(stated)
    served = [name for name in names if name.startswith("other")]
    taken = min(flood * each, budget // each * each, nodes * (8 // each) * each)
    assert len(names) - len(served) == taken // each
    assert len(served) == min(others, nodes * 8 - taken)


@SAME
@given(st.data())
def test_no_budget_is_exceeded_whatever_other_rules_there_are(data):
    """The checker, which shares nothing with the packer, finds no fault; and a larger budget places no fewer."""
    stated = data.draw(clusters())
    pods = tuple(
        replace(pod, consumes=((pod.namespace, 1),)) if pod.namespace == "default" else pod
        for pod in stated.pods
    )
    budget = data.draw(st.integers(0, len(pods)))
    limited = replace(stated, pods=pods, pod_budgets={"default": budget})
    solution = solve(limited)
    assert check(limited, solution) == []
    enough = replace(limited, pod_budgets={"default": len(pods)})
    assert len(solve(enough).unplaced) <= len(solution.unplaced)
