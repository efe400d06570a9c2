"""The first-fit reference is sound on every problem and leaves no pod unplaced that would fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from tests.benchmarks import problems as make
from tests.benchmarks.problems import SOURCE, ZONE, problem, written_solution
from tests.benchmarks.random_problems import problems
from tidemill.bench.checker.check import check
from tidemill.bench.first_fit import first_fit, overlooked
from tidemill.bench.mixes import MIXES, build


@settings(max_examples=200)
@given(problems())
def test_first_fit_keeps_every_rule_on_any_problem(stated):
    assert check(stated, first_fit(stated)) == []


@pytest.mark.parametrize("mix", [mix for mix in MIXES if mix != "cluster"])
def test_first_fit_keeps_every_rule_on_the_mixes(mix):
    stated = build(mix, 150)
    solution = first_fit(stated)
    assert check(stated, solution) == []
    assert not solution.unplaced


def test_existing_nodes_are_used_before_one_is_opened():
    solution = first_fit(
        problem(
            [make.pending(), make.pending("b")],
            [make.existing("n1", free={"cpu": 150, "pods": 9})],
            [make.option("m")],
        )
    )
    assert solution.existing == {0: [0]}
    assert [node.pods for node in solution.opened] == [[1]]


def test_nodes_are_opened_by_rank_then_by_price():
    dear, cheap = make.option("dear", price=3.0, rank=(1,)), make.option("cheap", price=2.0, rank=(1,))
    prepaid = make.option("block", price=9.0, rank=(0,), stock="cr-1")
    stated = problem(
        [make.pending("a", cpu=9_000), make.pending("b", cpu=9_000)],
        [],
        [dear, cheap, prepaid],
        stocks={"cr-1": 1},
    )
    assert [node.option.name for node in first_fit(stated).opened] == ["block", "cheap"]


def test_pods_go_by_priority_then_the_largest_first():
    room = make.existing("n1", free={"cpu": 1000, "pods": 9})
    small, large = make.pending("small", cpu=400), make.pending("large", cpu=900)
    assert first_fit(problem([small, large], [room])).existing == {0: [1]}
    assert first_fit(problem([replace(small, priority=5), large], [room])).existing == {0: [0]}


def test_a_gang_that_fits_nowhere_whole_leaves_room_and_stock_untouched():
    gang = [make.pending(f"g{n}", gang="g", size=3, cpu=900) for n in range(3)]
    block = make.option("block", stock="cr-1", labels={SOURCE: "cr-1"}, capacity={"cpu": 1000, "pods": 4})
    stated = problem(
        [*gang, make.pending("a", cpu=900), make.pending("b", cpu=900)],
        [make.existing("n1", "b", free={"cpu": 1000, "pods": 4})],
        [block],
        stocks={"cr-1": 2},
        budgets={},
    )
    solution = first_fit(stated)
    assert sorted(solution.unplaced) == [0, 1, 2]
    assert solution.existing == {0: [3]}
    assert [node.pods for node in solution.opened] == [[4]]


def test_a_gang_goes_where_all_of_it_fits():
    gang = [make.pending(f"g{n}", gang="g", size=2, cpu=900) for n in range(2)]
    small = make.existing("n1", "a", free={"cpu": 1000, "pods": 4})
    large = make.existing("n2", "b", free={"cpu": 2000, "pods": 4})
    assert first_fit(problem(gang, [small, large])).existing == {1: [0, 1]}


def test_pods_are_spread_over_zones_that_only_options_have():
    deal = [
        make.pending(f"p{n}", labels={"app": "x"}, spread=(make.spread(ZONE, {"app": "x"}),))
        for n in range(6)
    ]
    stated = problem(deal, [], [make.option("m", zone) for zone in "abc"])
    zones = [node.option.labels[ZONE] for node in first_fit(stated).opened for _ in node.pods]
    assert sorted(zones) == ["a", "a", "b", "b", "c", "c"]


@pytest.mark.requirement("PE-5")
def test_stops_at_a_limit_in_the_middle_of_a_batch():
    big = make.option("m", capacity={"cpu": 1000, "pods": 4}, budget="pool", consumes={"cpu": 1000})
    stated = problem(
        [make.pending(f"p{n}", cpu=900) for n in range(5)], [], [big], budgets={"pool": {"cpu": 3000}}
    )
    solution = first_fit(stated)
    assert len(solution.opened) == 3
    assert len(solution.unplaced) == 2


def test_finds_an_unplaced_pod_that_would_fit():
    room = make.existing("n1", free={"cpu": 1000, "pods": 9})
    stated = problem(
        [make.pending("a", cpu=600), make.pending("b", cpu=600), make.pending("c", cpu=300)], [room]
    )
    assert overlooked(stated, written_solution(stated, "n1 - n1")) == []
    assert overlooked(stated, written_solution(stated, "n1 - -")) == [2]
    assert overlooked(stated, written_solution(stated, "- - n1")) == [0]  # either, not both


def test_finds_an_unplaced_pod_for_which_a_node_could_be_opened():
    few = make.option("m", capacity={"cpu": 1000, "pods": 1}, stock="few")
    stated = problem([make.pending("a"), make.pending("b")], [], [few], stocks={"few": 2})
    assert overlooked(stated, written_solution(stated, "m -")) == [1]
    assert overlooked(replace(stated, stocks={"few": 1}), written_solution(stated, "m -")) == []


def test_an_unplaced_gang_counts_only_if_all_of_it_could_be_placed():
    gang = [make.pending(f"g{n}", gang="g", size=2, cpu=600) for n in range(2)]
    stated = problem(gang, [make.existing("n1", free={"cpu": 1000, "pods": 9})])
    assert overlooked(stated, written_solution(stated, "- -")) == []
    roomy = problem(gang, [make.existing("n1", free={"cpu": 2000, "pods": 9})])
    assert overlooked(roomy, written_solution(roomy, "- -")) == [0, 1]


@settings(max_examples=60)
@given(problems(most_asks=6))
def test_first_fit_leaves_no_pod_unplaced_that_would_fit(stated):
    assert overlooked(stated, first_fit(stated)) == []
