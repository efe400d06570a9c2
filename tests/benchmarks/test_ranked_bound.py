"""The bound for packings that keep ranks is never above the cheapest of them, found by trying all."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.benchmarks import problems as make
from tests.benchmarks.problems import HOST, ZONE, problem, written_solution
from tidemill.bench.checker.check import check
from tidemill.bench.checker.hosts import host_of_option
from tidemill.bench.checker.pod_fits_node import node_faults
from tidemill.bench.mixes import build
from tidemill.bench.ranked_bound import ranked_bound
from tidemill.decide.packer import solve
from tidemill.decide.packer.problem import NewNode, NodeOption, PendingPod, Problem, Solution

pytest.importorskip("highspy")

ALONE = {"labels": {"app": "x"}, "anti_affinity": (make.term(HOST, app="x"),)}
SPREAD = {"labels": {"app": "y"}, "spread": (make.spread(ZONE, {"app": "y"}),)}


def keeps_ranks(stated: Problem, solution: Solution) -> bool:
    """Whether there is an order in which every node is opened by a pod that finds no node of a lower rank then."""
    return any(
        all(_has_opener(stated, node, order[:number]) for number, node in enumerate(order))
        for order in permutations(solution.opened)
    )


def _has_opener(stated: Problem, node: NewNode, before: tuple[NewNode, ...]) -> bool:
    lower = [number for number, option in enumerate(stated.options) if option.rank < node.option.rank]
    return any(
        not any(_could_open(stated, stated.pods[pod], number, node.option, before) for number in lower)
        for pod in node.pods
    )


def _could_open(
    stated: Problem, pod: PendingPod, number: int, instead_of: NodeOption, before: tuple[NewNode, ...]
) -> bool:
    option = stated.options[number]
    if pod.shape.spread and option.labels[ZONE] != instead_of.labels[ZONE]:
        return False  # its rule sent it to this zone
    if next(node_faults(pod, host_of_option(stated, number, 0)), None) is not None:
        return False
    if any(option.capacity.get(name, 0) < amount for name, amount in pod.shape.requests):
        return False
    opened = [other.option for other in before]
    if option.stock and sum(one.stock == option.stock for one in opened) >= stated.stocks[option.stock]:
        return False
    used = sum(one.consumes.get("cpu", 0) for one in opened if one.budget == option.budget)
    return used + option.consumes.get("cpu", 0) <= stated.budgets.get(option.budget, {}).get("cpu", 10**9)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(["", "alone", "alone", "spread"]), st.booleans()),
        min_size=2,
        max_size=3,
    ),
    st.lists(
        st.tuples(
            st.integers(1, 8), st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 2), st.booleans()
        ),
        min_size=2,
        max_size=4,
    ),
    st.integers(1, 12),
)
def test_no_packing_that_keeps_ranks_is_cheaper_than_the_bound(wanted, offered, limit):
    rules = {"alone": ALONE, "spread": SPREAD, "": {}}
    pods = [
        make.pending(f"p{n}", cpu=cpu * 1000, refuses=["g0"] if refuses else [], **rules[rule])
        for n, (cpu, rule, refuses) in enumerate(wanted)
    ]
    options = [
        make.option(
            f"t{n}", zone, capacity={"cpu": cpu * 1000, "pods": 10}, price=float(price), rank=(rank,),
            group=f"g{n}", stock=f"s{n}" if n % 2 else "", budget="pool" if limited else "",
            consumes={"cpu": cpu * 1000},
        )
        for n, (cpu, zone, price, rank, limited) in enumerate(offered)
    ]  # fmt: skip
    stocks = {f"s{n}": 1 + n for n in range(len(options))}
    stated = problem(pods, [], options, stocks=stocks, budgets={"pool": {"cpu": limit * 1000}})
    bound = ranked_bound(stated)
    assume(bound is not None)
    words = [f"t{n}:{copy}" for n in range(len(options)) for copy in range(len(pods))]
    for where in product(words, repeat=len(pods)):
        solution = written_solution(stated, " ".join(where))
        if solution.price < bound - 1e-6:
            assert check(stated, solution) or not keeps_ranks(stated, solution), where


def test_the_bound_counts_a_pod_that_joins_a_node_of_a_higher_rank():
    """The second pod would open a node of its own for 5; on the node that the first must open it costs nothing."""
    pods = [make.pending("first", cpu=1_000, refuses=["low"]), make.pending("second", cpu=1_000)]
    low = make.option("low", capacity={"cpu": 1_000, "pods": 10}, price=5.0, rank=(0,), group="low")
    high = make.option("high", capacity={"cpu": 2_000, "pods": 10}, price=3.0, rank=(1,))
    assert ranked_bound(problem(pods, [], [low, high])) == pytest.approx(3.0)


def test_a_node_without_a_pod_that_must_open_it_is_not_counted_on():
    """Every pod finds a node of the low rank, so the cheap high rank is nobody's."""
    pods = [make.pending(f"p{n}", cpu=1_000) for n in range(4)]
    low = make.option("low", capacity={"cpu": 1_000, "pods": 10}, price=5.0, rank=(0,))
    high = make.option("high", capacity={"cpu": 9_000, "pods": 10}, price=1.0, rank=(1,))
    assert ranked_bound(problem(pods, [], [low, high])) == pytest.approx(20.0)


def test_large_pods_that_need_a_host_need_a_large_one():
    sizes = (500, 500, 3_000, 3_000)
    pods = [make.pending(f"p{n}", cpu=cpu, **ALONE) for n, cpu in enumerate(sizes)]
    small = make.option("small", capacity={"cpu": 1_000, "pods": 10}, price=1.0, rank=(0,))
    large = make.option("large", capacity={"cpu": 9_000, "pods": 10}, price=9.0, rank=(0,))
    other = make.option("other", capacity={"cpu": 9_000, "pods": 10}, price=99.0, rank=(1,))
    assert ranked_bound(problem(pods, [], [small, large, other])) == pytest.approx(20.0)


def test_a_limit_that_costs_more_to_use_up_than_the_bound_counts_as_none():
    """Ten nodes are more than the limit allows, but nine of them cost far more than the one that is needed."""
    pods = [make.pending(f"p{n}", cpu=1_000) for n in range(10)]
    roomy = {"cpu": 10_000, "pods": 10}
    low = make.option("low", capacity=roomy, price=5.0, rank=(0,), budget="pool", consumes={"cpu": 1_000})
    high = make.option("high", capacity=roomy, price=1.0, rank=(1,))
    stated = problem(pods, [], [low, high], budgets={"pool": {"cpu": 9_000}})
    assert ranked_bound(stated) == pytest.approx(5.0)


def test_a_limit_that_is_cheaply_used_up_makes_no_rank_sure():
    """Four small nodes are within the limit, but one large prepaid node uses it up: then the bound says nothing."""
    pods = [make.pending(f"p{n}", cpu=100) for n in range(4)]
    shared = {"budget": "pool", "rank": (0,)}
    small = make.option("small", price=5.0, consumes={"cpu": 1}, **shared)
    large = make.option("large", price=0.0, consumes={"cpu": 4}, stock="one", **shared)
    high = make.option("high", price=1.0, rank=(1,))
    stated = problem(pods, [], [small, large, high], stocks={"one": 1}, budgets={"pool": {"cpu": 4}})
    assert ranked_bound(stated) in (None, 0.0)
    assert ranked_bound(replace(stated, budgets={"pool": {"cpu": 400}})) is not None


def test_the_price_of_pools_is_within_a_fifth_of_the_bound():
    stated = build("pools", 5_000)
    bound = ranked_bound(stated)
    assert bound is not None
    assert bound <= solve(stated).price < 1.2 * bound
