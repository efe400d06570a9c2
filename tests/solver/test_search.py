"""Second attempts: what they may not do for a better price, and how much is tried."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.exact_optimum import exact_optimum
from tests.solver.problems import HOST, ask, asks, flavour, gpus, kind_of, left_out, problem, sound, term
from tests.solver.random_clusters import EVERY, clusters
from tests.solver.test_optimum import random_case
from tidemill.decide.packer import attempt, solve
from tidemill.decide.packer.decompose import parts
from tidemill.decide.packer.dominance import narrowed
from tidemill.decide.packer.lower_bound import Floor
from tidemill.decide.packer.problem import Problem, Solution
from tidemill.decide.packer.restarts import _OTHERS, search
from tidemill.decide.packer.ruin_and_recreate import Ruin
from tidemill.decide.packer.strategy import USUAL, Strategy
from tidemill.decide.packer.verify import everybody_is_content, passed_over


@pytest.mark.requirement("PE-4")
def test_a_lower_rank_is_not_left_for_a_better_price():
    """The second pod does not fit the first source any more; both would fit one cheap node of the second."""
    first = flavour("first", cpu=6000, price=9.0, rank=(0,), stock="one")
    second = flavour("second", cpu=12_000, price=1.0, rank=(1,))
    stated = problem(asks(2, cpu=6000), [], [first, second], stocks={"one": 1})
    assert sorted(kind_of(stated)) == ["first", "second"]


@pytest.mark.requirement("PE-4")
def test_a_large_pod_keeps_its_place_though_several_small_ones_could_have_it():
    pods = [ask("large", cpu=8000), *asks(4, "small", cpu=2000)]
    offered = [flavour("m", cpu=8000, stock="one")]
    assert left_out(problem(pods, [], offered, stocks={"one": 1})) == {f"small{n}" for n in range(4)}


@pytest.mark.requirement("PE-4")
def test_a_pod_that_is_alone_on_its_host_does_not_take_the_prepaid_node_a_large_one_needs_whole():
    block = gpus("p5", 8, 0.0, stock="cr-1", rank=(0,))
    types = [
        block,
        gpus("p5", 8, 55.0, rank=(1,)),
        gpus("g6", 1, 0.8, rank=(1,)),
    ]
    lone = asks(2, "lone", gpus=1, labels={"app": "x"}, anti_affinity=(term(HOST, app="x"),))
    assert sound(problem([*lone, ask(gpus=8)], [], types, stocks={"cr-1": 1})).price == pytest.approx(1.6)


def test_a_large_problem_is_attempted_once():
    tried: list[Strategy] = []

    def count(stated: Problem, strategy: Strategy) -> Solution:
        tried.append(strategy)
        return attempt(stated, strategy)

    types = [flavour("m", price=1.0), flavour("l", cpu=25_000, price=2.4)]
    search(problem(asks(2000, cpu=7000), [], types), count)
    assert tried == [USUAL]
    search(problem(asks(20, cpu=7000), [], types), count)
    assert 1 < len(tried) < 100


def test_no_answer_is_below_the_floor_and_fewer_flavours_are_as_good():
    for seed in range(12):
        stated = random_case(seed)
        optimum = exact_optimum(stated, most_slots=120)
        assert optimum is not None
        floor = Floor(stated)
        floor.look_closer()
        assert floor.price <= optimum + 1e-6
        assert exact_optimum(narrowed(stated), most_slots=120) == pytest.approx(optimum)


def test_fewer_flavours_keep_those_a_pod_can_ask_for():
    offered = [flavour("dear", price=2.0, labels={"disk": "fast"}), flavour("cheap", price=1.0)]
    assert [one.name for one in narrowed(problem(asks(2), [], offered)).flavours] == ["cheap"]
    picky = problem([ask(selector={"disk": "fast"})], [], offered)
    assert [one.name for one in narrowed(picky).flavours] == ["dear", "cheap"]
    larger = [flavour("enough", cpu=2000, price=1.0), flavour("huge", cpu=90_000, price=1.5)]
    assert [one.name for one in narrowed(problem(asks(2, cpu=1000), [], larger)).flavours] == ["enough"]


def test_what_is_taken_back_and_put_together_again_is_the_whole():
    for seed in range(8):
        stated = random_case(seed)
        whole = solve(stated)
        ruin = Ruin(stated, whole)
        part = ruin.empty(tuple(ruin.order[:2]))
        joined = part.joined(attempt(part.problem, USUAL))
        placed = [ask for asks in joined.existing.values() for ask in asks]
        placed += [ask for node in joined.opened for ask in node.asks]
        assert sorted([*placed, *joined.unplaced]) == list(range(len(stated.asks)))
        assert everybody_is_content(stated, whole)


def test_an_answer_that_passes_a_rank_over_is_known():
    first, second = flavour("first", price=9.0, rank=(0,)), flavour("second", price=1.0, rank=(1,))
    both, only = problem(asks(1), [], [first, second]), problem(asks(1), [], [second])
    assert passed_over(both, solve(only)) == 1
    assert passed_over(both, solve(both)) == 0


@pytest.mark.requirement("PE-4")
def test_pods_that_each_want_a_host_are_paired_so_that_little_is_left_over():
    """Two kinds, each once to a host: a large one beside a small one is 3 + 3, large and large is 5 + 2."""
    sizes = [("s", 1000, 1.0), ("m", 3000, 3.0), ("l", 5000, 5.0), ("xs", 2000, 2.0)]
    offered = [flavour(name, cpu=cpu, price=price) for name, cpu, price in sizes]
    pods = []
    for kind in ("x", "y"):
        alone = {"labels": {"app": kind}, "anti_affinity": (term(HOST, app=kind),)}
        pods += [*asks(30, f"{kind}-large", cpu=2100, **alone), *asks(30, f"{kind}-small", cpu=900, **alone)]
    solution = attempt(problem(pods, [], offered), USUAL)
    assert solution.price <= 60 * 3.0 * 1.02


@settings(max_examples=60, deadline=None)
@given(clusters(*EVERY), st.integers(0, 39))
def test_who_asks_alone_has_the_best_place_at_the_first_attempt(stated, number):
    """So one attempt is enough: what the others would have found is no better."""
    lonely = replace(stated.asks[number % len(stated.asks)], gang=None)
    alone = replace(stated, asks=(lonely,))
    found = solve(alone)
    others = [attempt(alone, strategy) for strategy in _OTHERS]
    assert all(one.price >= found.price for one in others if not one.unplaced)
    assert not found.unplaced or all(one.unplaced for one in others)


@pytest.mark.requirement("PE-4")
def test_what_pools_of_their_own_need_adds_up_and_nobody_looks_for_less():
    """Pods that can never share a node: the sum of what each pool needs at least is reached at the first attempt."""
    offered = [
        gpus("large", 8, 22.0, labels={"pool": "train"}),
        gpus("small", 1, 0.8, labels={"pool": "small"}),
    ]
    pods = [ask("a", gpus=8, selector={"pool": "train"})]
    pods += [ask(f"b{n}", gpus=1, selector={"pool": "small"}) for n in range(3)]
    stated, tried = problem(pods, [], offered), []

    def count(of: Problem, strategy: Strategy) -> Solution:
        tried.append(strategy)
        return attempt(of, strategy)

    assert search(stated, count).price == pytest.approx(22.0 + 3 * 0.8)
    assert tried == [USUAL]


@settings(max_examples=100, deadline=None)
@given(clusters(*EVERY))
def test_parts_of_a_problem_share_nobody_and_no_answer_crosses_them(stated):
    found = parts(stated)
    assert sorted(one.id for part in found for one in part.asks) == sorted(one.id for one in stated.asks)
    part_of = {one.id: number for number, part in enumerate(found) for one in part.asks}
    solution = solve(stated)
    for node in (*solution.existing.values(), *(one.asks for one in solution.opened)):
        assert len({part_of[stated.asks[number].id] for number in node}) == 1
    floor = Floor(stated, solution.unplaced)
    floor.look_closer()
    assert floor.price <= solution.price + 1e-6
