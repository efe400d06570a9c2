"""What holds of every solution, on random clusters: with each kind of rule alone, and with all rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.packer.problems import as_words, option, problem
from tests.packer.random_clusters import RULES, clusters, workloads
from tidemill.bench.checker.check import check
from tidemill.decide.packer import solve
from tidemill.decide.packer.problem import NewNode, PendingPod, Problem, Solution

FEW, DEFAULT, MANY = 30, 300, 3000
CALM = settings(database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The default run is the same for everybody; chance is for the search (`pytest -m search`).
SAME = settings(CALM, derandomize=True)


def overlooked(stated: Problem, solution: Solution) -> Iterator[str]:
    """Unplaced pods that would fit into the solution as it is: one of each kind.

    Without pods that have affinity: the checker accepts them if some binding order lets one of them be the first of
    its kind, and the packer is right not to count on that order.
    """
    left = {_kind(stated.pods[index]): index for index in sorted(solution.unplaced, reverse=True)}
    for index in left.values():
        if stated.pods[index].gang is None and not stated.pods[index].shape.affinity:
            for better in _with(stated, solution, index):
                if not check(stated, better):
                    yield f"{stated.pods[index].id} could be on {as_words(stated, better)[index]}"
                    break


def _kind(pending: PendingPod) -> tuple[object, ...]:
    return pending.shape, pending.namespace, pending.refuses


def _with(stated: Problem, solution: Solution, index: int) -> Iterator[Solution]:
    """Every solution that differs by this one pod being placed."""
    unplaced = {other: why for other, why in solution.unplaced.items() if other != index}
    for number in range(len(stated.nodes)):
        there = {**solution.existing, number: [*solution.existing.get(number, []), index]}
        yield Solution(there, solution.opened, unplaced)
    for number, node in enumerate(solution.opened):
        fuller = NewNode(node.option, [*node.pods, index])
        yield Solution(
            solution.existing, [*solution.opened[:number], fuller, *solution.opened[number + 1 :]], unplaced
        )
    for kind in stated.options:
        yield Solution(solution.existing, [*solution.opened, NewNode(kind, [index])], unplaced)


def judge(stated: Problem) -> list[object]:
    """The faults that the checker finds, and unplaced pods that would fit without moving another."""
    solution = solve(stated)
    return [*check(stated, solution), *overlooked(stated, solution)]


# --- every rule is kept -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
@settings(SAME, max_examples=FEW)
@given(data=st.data())
def test_a_solution_is_sound_and_leaves_no_placeable_pod_with_one_kind_of_rule(rule, data):
    assert judge(data.draw(clusters(rule))) == []


@settings(SAME, max_examples=DEFAULT)
@given(clusters())
def test_a_solution_is_sound_and_leaves_no_placeable_pod_with_all_rules(stated):
    assert judge(stated) == []


@pytest.mark.search
@pytest.mark.parametrize("rule", RULES)
@settings(CALM, max_examples=DEFAULT)
@given(data=st.data())
def test_many_solutions_are_sound_with_one_kind_of_rule(rule, data):
    assert judge(data.draw(clusters(rule))) == []


@pytest.mark.search
@settings(CALM, max_examples=MANY)
@given(clusters())
def test_many_solutions_are_sound_with_all_rules(stated):
    assert judge(stated) == []


# --- limits -----------------------------------------------------------------------------------------------


SIZES = st.lists(
    st.tuples(st.integers(1, 16), st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.integers(1, 8)),
    min_size=1,
    max_size=3,
    unique_by=lambda one: one[0],
)
LIMITS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nodes", "gpus"]), st.integers(-1, 40), min_size=1, max_size=3
)


@st.composite
def pools(draw, odd_prices: bool = True):
    """Pools of several types in several zones whose limits are reached in the middle of a batch.

    Odd prices: a larger type may be cheaper than a smaller one, as spot and prepaid ones are.
    """
    offered = [
        option(
            f"{pool}-{cpu}", zone, cpu=cpu * 1000, price=cpu * factor if odd_prices else cpu,
            rank=(draw(st.integers(0, 1)),), budget=pool,
            consumes={"cpu": cpu * 1000, "memory": cpu * gib, "nodes": 1},
        )
        for pool in ("p1", "p2")
        for cpu, factor, gib in draw(SIZES)
        for zone in ("ab" if draw(st.booleans()) else "a")
    ]  # fmt: skip
    budgets = {
        pool: {name: left * (1000 if name == "cpu" else 1) for name, left in draw(LIMITS).items()}
        for pool in ("p1", "p2")
    }
    rules = frozenset({"spread", "anti-affinity", "gangs"})
    return problem(draw(workloads(rules, 12)), [], offered, budgets=budgets)


def keeps_the_limits(stated: Problem) -> bool:
    """Summed up here and not by the checker: both would have to be wrong."""
    spent: dict[str, Counter[str]] = {pool: Counter() for pool in stated.budgets}
    for node in solve(stated).opened:
        spent[node.option.budget].update(node.option.consumes)
    return all(
        spent[pool][name] <= max(limit, 0)
        for pool, limits in stated.budgets.items()
        for name, limit in limits.items()
    )


@pytest.mark.requirement("PE-5")
@settings(SAME, max_examples=DEFAULT)
@given(pools(odd_prices=False))
def test_no_batch_exceeds_a_limit(stated):
    assert keeps_the_limits(stated)


@pytest.mark.requirement("PE-5")
@settings(SAME, max_examples=DEFAULT)
@given(pools())
def test_no_batch_exceeds_a_limit_whatever_the_prices(stated):
    assert keeps_the_limits(stated)


# --- determinism ------------------------------------------------------------------------------------------


@settings(SAME, max_examples=FEW)
@given(clusters())
def test_the_same_problem_has_the_same_solution(stated):
    assert solve(stated) == solve(stated)


@settings(SAME, max_examples=FEW)
@given(clusters("devices"), st.randoms(use_true_random=False))
def test_the_order_of_the_pods_changes_neither_the_price_nor_which_kinds_are_unplaced(stated, random):
    """By kind, and unless two kinds of one size compete for the last node: then the first one listed gets it."""
    replicas = list(stated.pods)
    random.shuffle(replicas)
    one, other = solve(stated), solve(replace(stated, pods=tuple(replicas)))
    assert other.price == pytest.approx(one.price)
    assert Counter(_kind(stated.pods[i]) for i in one.unplaced) == Counter(
        _kind(replicas[i]) for i in other.unplaced
    )
