"""Pods that force a node each, where ranks are limited: which of them a low rank gets, and in which zone.

One attempt each: a small problem would be improved by others, a large one gets no other.
"""

from __future__ import annotations

from collections import Counter

from tests.packer import problems as make
from tests.packer.problems import HOST, ZONE, problem, sound
from tidemill.bench.checker.check import check
from tidemill.bench.mixes import build
from tidemill.bench.ranked_bound import ranked_bound
from tidemill.decide.packer import solve
from tidemill.spec.names import LABEL_ZONE

SELF = (make.term(HOST, app="x"),)
ZONE_RULE = (make.spread(ZONE, {"app": "y"}),)


def test_pods_that_open_a_node_each_go_to_the_zone_of_the_lowest_rank():
    """The spread needs all zones, but the hosts can be where the first pool is."""
    hosts = [
        make.pending(f"host-{n}", requests={"cpu": 800}, labels={"app": "x"}, anti_affinity=SELF)
        for n in range(12)
    ]
    spread = [
        make.pending(f"spread-{n}", requests={"cpu": 100}, labels={"app": "y"}, spread=ZONE_RULE)
        for n in range(6)
    ]
    first = [make.option(zone=zone, cpu=1000, price=1.0, rank=(0,)) for zone in ("a", "b")]
    last = [make.option(zone=zone, cpu=1000, price=2.0, rank=(1,)) for zone in ("a", "b", "c")]
    stated = problem([*hosts, *spread], options=(*first, *last))
    solution = solve(stated, thorough=False)
    assert check(stated, solution) == []
    zones = Counter(node.option.labels[LABEL_ZONE] for node in solution.opened)
    assert zones["c"] == 1
    assert sum(node.option.rank == (1,) for node in solution.opened) == 1


def test_the_small_pods_use_a_limited_rank_because_it_gives_them_more_nodes():
    pods = [
        make.pending(f"{size}-{n}", requests={"cpu": size}, labels={"app": "x"}, anti_affinity=SELF)
        for size in (900, 3_000)
        for n in range(4)
    ]
    first = [
        make.option(cpu=cpu, price=cpu / 1000, rank=(0,), budget="first", consumes={"cpu": cpu})
        for cpu in (1_000, 4_000)
    ]
    last = make.option(cpu=8_000, price=8.0, rank=(1,))
    stated = problem(pods, options=(*first, last), budgets={"first": {"cpu": 4_000}})
    opened = solve(stated, thorough=False).opened
    assert sorted(node.option.capacity["cpu"] for node in opened) == [1_000] * 4 + [8_000] * 4


def test_the_bound_knows_that_a_lower_rank_goes_first_whatever_it_costs():
    pods = [make.pending(f"pod-{n}", requests={"cpu": 1_000}) for n in range(10)]
    dear = make.option(cpu=1_000, price=5.0, rank=(0,))
    cheap = make.option(cpu=1_000, price=1.0, rank=(1,))
    stated = problem(pods, options=(dear, cheap))
    bound = ranked_bound(stated)
    assert bound is not None
    assert abs(bound - 50.0) < 1e-6
    assert sound(stated).price == 50.0


def test_the_bound_is_not_above_the_price_of_a_packing():
    stated = build("pools", 1_000)
    bound = ranked_bound(stated)
    assert bound is not None
    assert 0 < bound <= sound(stated).price
