"""Two kinds of pods that need a host each share hosts: who shares with whom decides the size of the nodes."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.packer import problems as make
from tests.packer.problems import HOST, problem
from tidemill.bench.checker.check import check
from tidemill.bench.mixes import build
from tidemill.decide.packer import solve
from tidemill.decide.packer.problem import Problem, Solution

# One CPU more costs one dollar more, and every node keeps a tenth of a CPU for itself.
TYPES = [make.option(f"t{n}", cpu=n * 1_000 - 100, price=float(n)) for n in range(1, 9)]


def alone(app: str, *sizes: int, start: int = 0):
    rule = (make.term(HOST, app=app),)
    return [
        make.pending(f"{app}-{start + n}", requests={"cpu": cpu}, labels={"app": app}, anti_affinity=rule)
        for n, cpu in enumerate(sizes)
    ]


def once(stated: Problem) -> Solution:
    """One attempt, as a large problem gets it."""
    solution = solve(stated, thorough=False)
    assert check(stated, solution) == []
    assert not solution.unplaced
    return solution


def test_the_large_share_a_host_with_the_small():
    pods = alone("x", *[1_500] * 6, *[400] * 6) + alone("y", *[1_500] * 6, *[400] * 6)
    solution = once(problem(pods, options=TYPES))
    assert Counter(node.option.name for node in solution.opened) == {"t2": 12}


def test_pods_without_a_partner_have_a_host_of_their_own():
    """Two of the three large ones share with a small one; what is left has a node alone."""
    pods = alone("x", 1_500, 1_500, 1_500) + alone("y", 400, 400)
    solution = once(problem(pods, options=TYPES))
    assert sorted(len(node.pods) for node in solution.opened) == [1, 2, 2]
    assert solution.price == 6.0


def test_pods_that_keep_each_other_off_are_not_paired():
    """A pod of x refuses y as well: every pod needs a host of its own."""
    rule = (make.term(HOST, app="x"), make.term(HOST, app="y"))
    strict = [
        make.pending(f"x-{n}", requests={"cpu": 400}, labels={"app": "x"}, anti_affinity=rule)
        for n in range(4)
    ]
    solution = once(problem(strict + alone("y", *[400] * 4), options=TYPES))
    assert len(solution.opened) == 8


def test_existing_nodes_are_used_first():
    pods = alone("x", 400, 400) + alone("y", 400, 400)
    nodes = [make.existing(name) for name in ("n1", "n2")]
    assert once(problem(pods, nodes, TYPES)).opened == []


def test_a_limit_is_kept():
    pods = alone("x", *[1_500] * 4) + alone("y", *[1_500] * 4)
    few = [
        make.option(f"t{n}", cpu=n * 1_000 - 100, price=float(n), budget="pool", consumes={"cpu": n})
        for n in range(1, 9)
    ]
    stated = problem(pods, options=few, budgets={"pool": {"cpu": 7}})
    assert check(stated, solve(stated, thorough=False)) == []


@pytest.mark.parametrize("seed", range(12))
def test_pods_of_all_sizes_are_placed_and_cost_no_more_than_two_nodes_each(seed):
    random = Random(seed)
    sizes = [random.choice((100, 250, 500, 1_000, 1_500)) for _ in range(60)]
    few = random.randint(15, 30)
    pods = alone("x", *sizes[:30]) + alone("y", *sizes[30 : 30 + few])
    solution = once(problem(pods, options=TYPES))
    apart = sum(-(-(cpu + 100) // 1_000) for cpu in sizes[: 30 + few])
    assert solution.price < apart
    assert len(solution.opened) == 30


def test_thousands_of_hosts_are_shared_better_than_one_after_the_other():
    """In the order of their size and with swaps afterwards these cost 1,232; the bound is 1,183.7."""
    assert once(build("one-label", 5_000)).price < 1_220
