"""Many pods and several ranks: a plan says who gets the few nodes, and the packer follows it within the rules."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.packer import problems as make
from tests.packer.problems import HOST, ZONE, problem
from tests.packer.random_clusters import clusters
from tests.packer.test_properties import SAME
from tidemill.bench.checker.check import check
from tidemill.bench.mixes import build
from tidemill.bench.ranked_bound import ranked_bound
from tidemill.decide.packer import rank_plan, solve
from tidemill.spec.names import LABEL_ZONE

pytest.importorskip("highspy")

SELF = {"labels": {"app": "x"}, "anti_affinity": (make.term(HOST, app="x"),)}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_pools_cost_at_most_three_percent_more_than_the_bound(seed):
    stated = build("pools", 5_000, seed)
    bound = ranked_bound(stated)
    assert bound is not None
    solution = solve(stated)
    assert check(stated, solution) == []
    assert not solution.unplaced
    assert solution.price < 1.03 * bound


@pytest.mark.parametrize("seed", range(6))
def test_a_planned_packing_keeps_every_rule(seed):
    stated = build("pools", 200 + 100 * seed, seed)
    assert check(stated, solve(stated, thorough=False)) == []


PLANNED = ("stocks", "limits", "taints", "refusals", "affinity", "anti-affinity", "spread", "priorities")


@settings(SAME, max_examples=150)
@given(clusters(*PLANNED), st.integers(1, 4))
def test_small_problems_would_keep_every_rule_too(stated, hosts):
    """Random rules between few pods, and some that need a host each: what is not planned is refused, the rest sound."""
    extra = make.replicas(hosts, "host", requests={"cpu": 500}, **SELF)
    roomy = [make.option("roomy", zone, cpu=8_000, price=9.0, rank=(2,)) for zone in "abc"]
    whole = replace(stated, pods=(*stated.pods, *extra), nodes=(), options=(*stated.options, *roomy))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_plan, "_FEWEST_PODS", 0)
        assert check(whole, solve(whole, thorough=False)) == []


def test_of_the_pods_that_fill_nodes_those_without_a_choice_get_the_zone_of_the_block():
    """Counts are level over the zones, but which pods are in which is free: short ones go where the block is."""
    spread = {"labels": {"app": "y"}, "spread": (make.spread(ZONE, {"app": "y"}),)}
    short = make.replicas(150, "short", requests={"cpu": 1_000}, **spread)
    long = make.replicas(150, "long", requests={"cpu": 1_000}, refuses=("block",), **spread)
    many = {"capacity": {"pods": 100}}
    hosts = make.replicas(4, "host", requests={"cpu": 100}, **SELF)
    block = make.option("block", "a", cpu=50_000, price=0.0, rank=(0,), stock="block", group="block", **many)
    hourly = [make.option("hourly", zone, cpu=25_000, price=25.0, rank=(1,), **many) for zone in ("a", "b")]
    stated = problem([*short, *long, *hosts], options=(block, *hourly), stocks={"block": 3})
    solution = solve(stated, thorough=False)
    assert check(stated, solution) == []
    zones = Counter(
        node.option.labels[LABEL_ZONE]
        for node in solution.opened
        for pod in node.pods
        if stated.pods[pod].id.startswith("short")
    )
    assert zones["a"] > 140
    assert solution.price <= 7 * 25.0
