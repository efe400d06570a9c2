"""Further attempts: what they may not do for a better price, and how many are made."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.exact_optimum import exact_optimum
from tests.packer import problems as make
from tests.packer.problems import HOST, kind_of, problem, sound, unplaced_ids
from tests.packer.random_clusters import EVERY, clusters
from tests.packer.test_optimum import random_case
from tidemill.decide.packer import attempt, solve
from tidemill.decide.packer.decompose import decompose
from tidemill.decide.packer.dominance import without_dominated
from tidemill.decide.packer.lower_bound import LowerBound
from tidemill.decide.packer.placement_order import USUAL, Strategy
from tidemill.decide.packer.problem import Problem, Solution
from tidemill.decide.packer.restarts import _STRATEGIES, search
from tidemill.decide.packer.ruin_and_recreate import Ruin
from tidemill.decide.packer.verify import rules_hold, skipped_lower_ranks


@pytest.mark.requirement("PE-4")
def test_a_lower_rank_is_used_first_even_if_a_higher_one_is_cheaper():
    """The second pod does not fit the first source any more; both would fit one cheap node of the second."""
    first = make.option("first", cpu=6000, price=9.0, rank=(0,), stock="one")
    second = make.option("second", cpu=12_000, price=1.0, rank=(1,))
    stated = problem(make.replicas(2, cpu=6000), [], [first, second], stocks={"one": 1})
    assert sorted(kind_of(stated)) == ["first", "second"]


@pytest.mark.requirement("PE-4")
def test_a_large_pod_keeps_its_node_though_several_small_ones_would_fit_there():
    pods = [make.pending("large", cpu=8000), *make.replicas(4, "small", cpu=2000)]
    offered = [make.option("m", cpu=8000, stock="one")]
    assert unplaced_ids(problem(pods, [], offered, stocks={"one": 1})) == {f"small{n}" for n in range(4)}


@pytest.mark.requirement("PE-4")
def test_pods_with_one_per_host_leave_the_prepaid_node_to_a_large_pod_that_needs_it_whole():
    block = make.gpus("p5", 8, 0.0, stock="cr-1", rank=(0,))
    types = [
        block,
        make.gpus("p5", 8, 55.0, rank=(1,)),
        make.gpus("g6", 1, 0.8, rank=(1,)),
    ]
    lone = make.replicas(2, "lone", gpus=1, labels={"app": "x"}, anti_affinity=(make.term(HOST, app="x"),))
    assert sound(
        problem([*lone, make.pending(gpus=8)], [], types, stocks={"cr-1": 1})
    ).price == pytest.approx(1.6)


def test_a_large_problem_is_attempted_once():
    tried: list[Strategy] = []

    def count(stated: Problem, strategy: Strategy) -> Solution:
        tried.append(strategy)
        return attempt(stated, strategy)

    types = [make.option("m", price=1.0), make.option("l", cpu=25_000, price=2.4)]
    search(problem(make.replicas(2000, cpu=7000), [], types), count)
    assert tried == [USUAL]
    search(problem(make.replicas(20, cpu=7000), [], types), count)
    assert 1 < len(tried) < 100


def test_no_solution_is_below_the_lower_bound_and_removing_dominated_options_keeps_the_optimum():
    for seed in range(12):
        stated = random_case(seed)
        optimum = exact_optimum(stated, most_slots=120)
        assert optimum is not None
        bound = LowerBound(stated)
        bound.tighten()
        assert bound.price <= optimum + 1e-6
        assert exact_optimum(without_dominated(stated), most_slots=120) == pytest.approx(optimum)


def test_an_option_that_a_pod_selects_is_not_dominated():
    offered = [make.option("dear", price=2.0, labels={"disk": "fast"}), make.option("cheap", price=1.0)]
    assert [kept.name for kept in without_dominated(problem(make.replicas(2), [], offered)).options] == [
        "cheap"
    ]
    selecting = problem([make.pending(selector={"disk": "fast"})], [], offered)
    assert [kept.name for kept in without_dominated(selecting).options] == ["dear", "cheap"]
    larger = [make.option("enough", cpu=2000, price=1.0), make.option("huge", cpu=90_000, price=1.5)]
    assert [
        kept.name for kept in without_dominated(problem(make.replicas(2, cpu=1000), [], larger)).options
    ] == ["enough"]


def test_a_ruined_part_merged_again_has_every_pod_once():
    for seed in range(8):
        stated = random_case(seed)
        whole = solve(stated)
        ruin = Ruin(stated, whole)
        part = ruin.ruin(tuple(ruin.order[:2]))
        merged = part.merged(attempt(part.problem, USUAL))
        placed = [pod for pods in merged.existing.values() for pod in pods]
        placed += [pod for node in merged.opened for pod in node.pods]
        assert sorted([*placed, *merged.unplaced]) == list(range(len(stated.pods)))
        assert rules_hold(stated, whole)


def test_a_solution_that_skips_a_lower_rank_is_detected():
    first, second = make.option("first", price=9.0, rank=(0,)), make.option("second", price=1.0, rank=(1,))
    both, only = problem(make.replicas(1), [], [first, second]), problem(make.replicas(1), [], [second])
    assert skipped_lower_ranks(both, solve(only)) == 1
    assert skipped_lower_ranks(both, solve(both)) == 0


@pytest.mark.requirement("PE-4")
def test_pods_with_one_per_host_are_paired_so_that_little_is_left_over():
    """Two kinds, each once to a host: a large one beside a small one is 3 + 3, large and large is 5 + 2."""
    sizes = [("s", 1000, 1.0), ("m", 3000, 3.0), ("l", 5000, 5.0), ("xs", 2000, 2.0)]
    offered = [make.option(name, cpu=cpu, price=price) for name, cpu, price in sizes]
    pods = []
    for kind in ("x", "y"):
        alone = {"labels": {"app": kind}, "anti_affinity": (make.term(HOST, app=kind),)}
        pods += [
            *make.replicas(30, f"{kind}-large", cpu=2100, **alone),
            *make.replicas(30, f"{kind}-small", cpu=900, **alone),
        ]
    solution = attempt(problem(pods, [], offered), USUAL)
    assert solution.price <= 60 * 3.0 * 1.02


@settings(max_examples=60, deadline=None)
@given(clusters(*EVERY), st.integers(0, 39))
def test_a_single_pod_has_the_best_node_at_the_first_attempt(stated, number):
    """So one attempt is enough: no other strategy finds a cheaper node."""
    single = replace(stated.pods[number % len(stated.pods)], gang=None)
    alone = replace(stated, pods=(single,))
    best = solve(alone)
    others = [attempt(alone, strategy) for strategy in _STRATEGIES]
    assert all(other.price >= best.price for other in others if not other.unplaced)
    assert not best.unplaced or all(other.unplaced for other in others)


@pytest.mark.requirement("PE-4")
def test_the_lower_bounds_of_separate_pools_add_up_so_that_the_search_stops():
    """Pods that can never share a node: the sum of what each pool needs at least is reached at the first attempt."""
    offered = [
        make.gpus("large", 8, 22.0, labels={"pool": "train"}),
        make.gpus("small", 1, 0.8, labels={"pool": "small"}),
    ]
    pods = [make.pending("a", gpus=8, selector={"pool": "train"})]
    pods += [make.pending(f"b{n}", gpus=1, selector={"pool": "small"}) for n in range(3)]
    stated, tried = problem(pods, [], offered), []

    def count(of: Problem, strategy: Strategy) -> Solution:
        tried.append(strategy)
        return attempt(of, strategy)

    assert search(stated, count).price == pytest.approx(22.0 + 3 * 0.8)
    assert tried == [USUAL]


@settings(max_examples=100, deadline=None)
@given(clusters(*EVERY))
def test_each_pod_is_in_one_part_and_no_node_has_pods_of_two_parts(stated):
    parts = decompose(stated)
    assert sorted(pod.id for part in parts for pod in part.pods) == sorted(pod.id for pod in stated.pods)
    part_of = {pod.id: number for number, part in enumerate(parts) for pod in part.pods}
    solution = solve(stated)
    for pods in (*solution.existing.values(), *(node.pods for node in solution.opened)):
        assert len({part_of[stated.pods[pod].id] for pod in pods}) == 1
    bound = LowerBound(stated, solution.unplaced)
    bound.tighten()
    assert bound.price <= solution.price + 1e-6
