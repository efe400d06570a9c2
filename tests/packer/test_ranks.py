"""Pods that force a node each, where ranks are limited: which of them a low rank gets, and in which zone.

One attempt each: a small problem would be improved by others, a large one gets no other.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

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


def limited_pool(**more):
    """A prepaid block and small nodes in one pool, whose limit is the one or the others; then a dear pool."""
    block = make.option(
        "block", cpu=8_000, price=0.0, rank=(0, 0), stock="block", group="block", **shared_limit(8_000)
    )
    small = make.option("small", cpu=1_000, price=1.0, rank=(0, 1), **shared_limit(1_000))
    dear = make.option("dear", cpu=4_000, price=5.0, rank=(1,), stock="dear")
    hosts = make.replicas(10, "host", requests={"cpu": 500}, labels={"app": "x"}, anti_affinity=SELF)
    fillers = make.replicas(8, "long", requests={"cpu": 300}, refuses=("block",))
    limits = {"stocks": {"block": 1, "dear": 100}, "budgets": {"pool": {"cpu": 8_000}}}
    return problem([*hosts, *fillers], options=(block, small, dear), **{**limits, **more})


def shared_limit(cpu):
    return {"budget": "pool", "consumes": {"cpu": cpu}}


def test_pods_that_cannot_use_the_block_open_the_hosts_that_others_share():
    """The block would use up the limit for one of the ten hosts, and the other nine would be dear."""
    stated = limited_pool()
    solution = solve(stated, thorough=False)
    assert check(stated, solution) == []
    assert sorted(node.option.name for node in solution.opened) == ["dear"] * 2 + ["small"] * 8


def test_no_small_node_is_opened_for_pods_that_could_use_the_block():
    stated = limited_pool()
    hosts = tuple(pod for pod in stated.pods if not pod.refuses)
    solution = solve(replace(stated, pods=hosts), thorough=False)
    assert sorted(node.option.name for node in solution.opened) == ["block"] + ["dear"] * 9


def test_existing_nodes_are_used_before_a_host_is_opened_for_others():
    stated = limited_pool()
    node = make.existing("node", free={"cpu": 4_000, "pods": 20})
    solution = solve(replace(stated, nodes=(node,)), thorough=False)
    assert len(solution.existing[0]) >= 8


def test_of_the_pods_that_need_a_host_those_that_would_pay_most_elsewhere_get_the_few():
    """Two seats: the pods that are kept out of the cheap pool get them, though the others are as small."""
    block = make.option(
        "block", cpu=9_000, price=0.0, rank=(0, 0), stock="block", group="block", **shared_limit(9_000)
    )
    small = make.option("small", cpu=1_000, price=1.0, rank=(0, 1), **shared_limit(1_000))
    cheap = make.option("cheap", cpu=2_000, price=2.0, rank=(1,), group="cheap")
    dear = make.option("dear", cpu=8_000, price=8.0, rank=(2,))
    rules = {"requests": {"cpu": 500}, "labels": {"app": "x"}, "anti_affinity": SELF}
    pods = [
        *make.replicas(2, "any", refuses=("block",), **rules),
        *make.replicas(2, "kept-out", refuses=("block", "cheap"), **rules),
        *make.replicas(2, "filler", requests={"cpu": 100}, refuses=("block", "cheap")),
    ]
    limits = {"stocks": {"block": 1}, "budgets": {"pool": {"cpu": 2_500}}}
    solution = solve(problem(pods, options=(block, small, cheap, dear), **limits), thorough=False)
    assert sorted(node.option.name for node in solution.opened) == ["cheap", "cheap", "small", "small"]


def test_a_node_is_closed_if_hosts_that_were_opened_later_take_its_pods():
    """The host is opened in the first pool; the pods of zone b need a node there anyway, which takes it."""
    host = make.pending("host", requests={"cpu": 500}, labels={"app": "x"}, anti_affinity=SELF)
    bound = make.replicas(3, "bound", requests={"cpu": 1_000}, selector={ZONE: "b"})
    first = make.option("first", "a", cpu=1_000, price=3.0, rank=(0,))
    second = make.option("second", "b", cpu=4_000, price=4.0, rank=(1,))
    solution = solve(problem([host, *bound], options=(first, second)), thorough=False)
    assert [node.option.name for node in solution.opened] == ["second"]


def test_pods_that_must_stay_together_go_to_the_zone_with_prepaid_nodes():
    together = make.replicas(
        4, "one", requests={"cpu": 900}, labels={"app": "y"}, affinity=(make.term(ZONE, app="y"),)
    )
    block = make.option("block", "b", cpu=2_000, price=0.0, rank=(0,), stock="block")
    hourly = [make.option("hourly", zone, cpu=2_000, price=2.0, rank=(1,)) for zone in ("a", "b")]
    stated = problem(together, options=(block, *hourly), stocks={"block": 1})
    solution = solve(stated, thorough=False)
    assert sorted(node.option.name for node in solution.opened) == ["block", "hourly"]


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
