"""Bounds never exceed what can be reached, are sharp where they should be, and the exact optimum is exact."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.exact_optimum import exact_optimum
from tests.benchmarks import problems as make
from tests.benchmarks.problems import HOST, SOURCE, ZONE, problem, written_solution
from tests.benchmarks.random_problems import problems
from tidemill.bench.bounds import lower_bound, relaxed, volumetric
from tidemill.bench.checker.check import check
from tidemill.bench.configurations import configuration_bound
from tidemill.bench.first_fit import first_fit
from tidemill.bench.mixes import build
from tidemill.decide.packer import solve


def sized(name, cpu, price, zone="a", **rest):
    return make.option(name, zone, capacity={"cpu": cpu, "pods": 10}, price=price, **rest)


def pods(count, cpu, **rest):
    return [make.pending(f"p{n}", cpu=cpu, **rest) for n in range(count)]


# --- bounds -----------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(problems(most_asks=8))
def test_no_sound_solution_that_places_every_pod_is_cheaper_than_the_bound(stated):
    solution = first_fit(stated)
    placed = tuple(a for index, a in enumerate(stated.pods) if index not in solution.unplaced)
    assert lower_bound(replace(stated, pods=placed)) <= solution.price + 1e-6


@pytest.mark.parametrize(
    "mix", ["karpenter", "gpu", "shapes", "one-label", "no-anchor", "preferences", "pools"]
)
def test_the_bound_of_a_mix_is_below_the_reference(mix):
    stated = build(mix, 100)
    assert 0 < lower_bound(stated) <= first_fit(stated).price


def test_requests_cost_at_least_the_best_price_per_unit():
    stated = problem(pods(10, 500), [], [sized("small", 1000, 2.0), sized("large", 4000, 4.0)])
    assert volumetric(stated) == pytest.approx(5.0)


def test_existing_and_prepaid_nodes_cost_nothing():
    block = sized("block", 1000, 0.0, stock="cr-1")
    stated = problem(
        pods(10, 500), [make.existing(free={"cpu": 1000, "pods": 9})], [block, sized("m", 1000, 1.0)]
    )
    assert volumetric(stated) == pytest.approx(4.0)
    stated = problem(stated.pods, stated.nodes, stated.options, stocks={"cr-1": 3})
    assert volumetric(stated) == pytest.approx(1.0)


def test_an_option_that_no_pod_may_use_does_not_lower_the_bound():
    stated = problem(
        pods(4, 500, refuses=["hourly"]), [], [sized("m", 1000, 0.1, group="hourly"), sized("k", 1000, 1.0)]
    )
    assert volumetric(stated) == pytest.approx(2.0)


def test_pods_with_host_anti_affinity_force_nodes_open():
    alone = pods(5, 500, labels={"app": "x"}, anti_affinity=(make.term(HOST, app="x"),))
    options = [sized("tiny", 100, 0.2), sized("small", 600, 1.0), sized("large", 10_000, 5.0)]
    stated = problem(alone, [], options)
    assert volumetric(stated) == pytest.approx(5.0)  # each needs a small one, though volume alone costs 1.25
    assert relaxed(stated) == pytest.approx(5.0)
    assert volumetric(problem(alone, [make.existing(), make.existing("n2")], options)) == pytest.approx(3.0)
    taken = make.existing("n2", existing_pods=(make.running(labels={"app": "x"}),))
    assert volumetric(problem(alone, [make.existing(), taken], options)) == pytest.approx(4.0)


def test_forced_nodes_and_requests_are_combined():
    # Every node keeps 100 of its CPU for itself, so five hosts pay that five times.
    options = [sized(f"t{n}", n * 1000 - 100, float(n)) for n in range(1, 50)]
    alone = pods(5, 800, labels={"app": "x"}, anti_affinity=(make.term(HOST, app="x"),))
    rest = [make.pending(f"r{n}", cpu=1000) for n in range(20)]
    assert volumetric(problem([*alone, *rest], [], options)) == pytest.approx(24.5)


def test_the_relaxation_knows_how_many_whole_pods_a_node_holds():
    stated = problem(pods(4, 600), [], [sized("m", 1000, 1.0)])
    assert volumetric(stated) == pytest.approx(2.4)
    assert relaxed(stated) == pytest.approx(4.0)


def test_the_relaxation_has_no_optimum_for_an_infeasible_problem():
    assert relaxed(problem(pods(1, 2000), [], [sized("m", 1000, 1.0)])) is None
    assert relaxed(problem(pods(4, 600), [], [sized("m", 1000, 1.0, stock="few")], stocks={"few": 3})) is None


# --- the exact optimum ------------------------------------------------------------------------------------


def test_the_optimum_mixes_types():
    stated = problem(
        pods(3, 1000), [], [sized("one", 1000, 1.0), sized("two", 2000, 1.6), sized("four", 4000, 3.3)]
    )
    assert exact_optimum(stated) == pytest.approx(2.6)


def test_the_optimum_uses_existing_nodes_and_keeps_stocks_and_limits():
    options = [
        sized("block", 1000, 0.0, stock="cr-1"),
        sized("cheap", 1000, 1.0, budget="pool", consumes={"nodes": 1}),
        sized("dear", 1000, 2.0),
    ]
    stated = problem(
        pods(5, 1000), [make.existing(free={"cpu": 1000, "pods": 9})], options,
        stocks={"cr-1": 1}, budgets={"pool": {"nodes": 2}},
    )  # fmt: skip
    assert exact_optimum(stated) == pytest.approx(1.0 + 1.0 + 2.0)


def test_the_optimum_keeps_a_gang_in_one_zone_and_on_one_source():
    gang = [make.pending(f"g{n}", cpu=1000, gang="g", size=2) for n in range(2)]
    split = [sized("m", 1000, 1.0, "a", stock="one"), sized("m", 1000, 1.0, "b"), sized("k", 1000, 1.5, "a")]
    assert exact_optimum(problem(gang, [], split, stocks={"one": 1})) == pytest.approx(2.0)
    assert exact_optimum(problem(gang, [], [split[0], split[2]], stocks={"one": 1})) == pytest.approx(2.5)
    sources = [sized("m", 1000, 1.0, labels={SOURCE: "cr-1"}, stock="one"), sized("k", 1000, 1.5)]
    assert exact_optimum(problem(gang, [], sources, stocks={"one": 1})) == pytest.approx(3.0)


def test_the_optimum_keeps_zone_spread_and_host_anti_affinity():
    dealt = pods(2, 100, labels={"app": "x"}, spread=(make.spread(ZONE, {"app": "x"}),))
    zones = [sized("m", 1000, 1.0, "a"), sized("m", 1000, 7.0, "b")]
    assert exact_optimum(problem(dealt, [], zones)) == pytest.approx(8.0)
    alone = pods(3, 100, labels={"app": "x"}, anti_affinity=(make.term(HOST, app="x"),))
    assert exact_optimum(problem(alone, [], zones)) == pytest.approx(3.0)


def test_there_is_no_optimum_for_a_problem_that_cannot_be_stated():
    options = [sized("m", 1000, 1.0)]
    assert exact_optimum(problem(pods(1, 10, affinity=(make.term(ZONE, app="x"),)), [], options)) is None
    assert exact_optimum(problem(pods(1, 10, host_ports=(("TCP", 1, ""),)), [], options)) is None
    assert exact_optimum(problem(pods(1, 10, spread=(make.spread(HOST),)), [], options)) is None
    assert exact_optimum(problem(pods(1, 10, anti_affinity=(make.term(HOST, app="x"),)), [], options)) is None
    assert exact_optimum(problem(pods(9, 10), [], options), most_slots=8) is None
    assert exact_optimum(problem(pods(1, 2000), [], options)) is None


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(["", "", "spread", "loner", "gang"])),
        min_size=1,
        max_size=3,
    ),
    st.lists(st.tuples(st.integers(1, 8), st.sampled_from("ab"), st.integers(1, 9)), min_size=1, max_size=2),
    st.integers(0, 4),
)
def test_the_optimum_equals_exhaustive_search(wanted, offered, there):
    rules = {
        "spread": {"spread": (make.spread(ZONE, {"app": "x"}),)},
        "loner": {"anti_affinity": (make.term(HOST, app="x"),), "labels": {"app": "x", "alone": "yes"}},
        "gang": {"gang": "g", "size": sum(rule == "gang" for _, rule in wanted)},
    }
    if any(rule == "loner" for _, rule in wanted) and not all(rule == "loner" for _, rule in wanted):
        rules["loner"] = {}  # whom a loner means must be loners, or the program does not state it
    replicas = [
        make.pending(f"p{n}", cpu=cpu * 1000, **{"labels": {"app": "x"}, **rules.get(rule, {})})
        for n, (cpu, rule) in enumerate(wanted)
    ]
    options = [sized(f"t{n}", cpu * 1000, float(price), zone) for n, (cpu, zone, price) in enumerate(offered)]
    stated = problem(replicas, [make.existing("n1", free={"cpu": there * 1000, "pods": 9})], options)
    words = ["n1", *(f"{f.name}:{k}" for f in options for k in range(len(replicas)))]
    found = [written_solution(stated, " ".join(where)) for where in product(words, repeat=len(replicas))]
    best = min((s.price for s in found if not check(stated, s)), default=None)
    assert exact_optimum(stated) == (None if best is None else pytest.approx(best))


@pytest.mark.slow
def test_configurations_know_that_small_nodes_hold_whole_pods():
    pytest.importorskip("highspy")
    stated = build("one-label", 5_000)
    bound = configuration_bound(stated)
    assert bound is not None
    assert 1.08 * volumetric(stated) < bound <= solve(stated).price < 1.03 * bound
