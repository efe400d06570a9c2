"""The quick way to place pods on nodes that exist gives the answer of the general way."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.packer.problems import existing, option, pending, problem
from tidemill.decide.packer import attempt
from tidemill.decide.packer.existing_nodes import place_on_existing
from tidemill.decide.packer.problem import ExistingNode, PendingPod, Problem, Solution
from tidemill.decide.packer.restarts import search
from tidemill.model.labels import Taint, Toleration
from tidemill.model.pods import Gang, PodShape
from tidemill.spec.names import CPU, LABEL_POOL, LABEL_SOURCE, LABEL_ZONE, MEMORY, NVIDIA_GPU, PODS

SEEDS_AT_ONCE = 100


def _shapes(random: Random) -> list[PodShape]:
    """Few sizes, so that many are equal; some ask for a zone, some tolerate a taint."""
    return [
        PodShape(
            requests=tuple(
                sorted(
                    {
                        NVIDIA_GPU: random.choice((0, 1, 2, 2, 4, 8)),
                        CPU: random.choice((0, 500, 1000, 4000)),
                        MEMORY: random.choice((0, 1 << 30, 4 << 30)),
                    }.items()
                )
            ),
            node_selector=random.choice(((), (), ((LABEL_ZONE, "a"),))),
            tolerations=random.choice(((), (Toleration("team", "Equal", "red"),))),
        )
        for _ in range(random.randint(1, 4))
    ]


def _nodes(random: Random) -> list[ExistingNode]:
    kinds = [
        (
            f"g{number}",
            {
                LABEL_ZONE: random.choice("ab"),
                LABEL_SOURCE: f"block-{random.randint(0, 2)}",
                LABEL_POOL: "train",
            },
            random.choice(((), (), (Taint("team", "red"),))),
            (random.randint(0, 1), random.randint(0, 2)),
        )
        for number in range(random.randint(1, 5))
    ]
    nodes = []
    for number in range(random.choice((1, 3, 8, 25))):
        group, labels, taints, rank = random.choice(kinds)
        free = {
            NVIDIA_GPU: random.choice((0, 2, 2, 4, 8, 8)),
            CPU: random.choice((-500, 1000, 8000, 8000)),
            MEMORY: random.choice((1 << 30, 16 << 30)),
            PODS: random.choice((1, 50)),
        }
        nodes.append(ExistingNode(f"n{number}", labels, free, taints, rank=rank, group=group))
    return nodes


def random_problem(seed: int) -> Problem:
    random = Random(seed)
    shapes, nodes = _shapes(random), _nodes(random)
    groups = sorted({node.group for node in nodes})
    refusals = [frozenset(random.sample(groups, random.randint(0, len(groups)))) for _ in range(2)]
    refusals.append(frozenset())
    pods: list[PendingPod] = []
    for number in range(random.choice((1, 1, 2, 5, 12))):
        shape, refuses = random.choice(shapes), random.choice(refusals)
        priority, since = random.choice((0, 0, 1)), float(random.randint(0, 3))
        namespace = random.choice(("default", "other"))
        size = random.choice((1, 1, 1, 2, 5))
        gang = Gang(f"{number}", size + random.choice((0, 0, 0, 1))) if size > 1 else None
        copies = random.choice((1, 1, 1, 9, 30)) if gang is None else size
        for member in range(copies):
            name = f"{number}-{member}"
            pods.append(PendingPod(name, shape, namespace, priority, since, gang, refuses))
    return Problem(tuple(pods), tuple(nodes), ())


def _general(stated: Problem) -> Solution:
    return search(stated, attempt)


@pytest.mark.parametrize("first", range(0, 1000, SEEDS_AT_ONCE))
def test_on_random_problems_the_quick_way_gives_the_very_answer_of_the_general_way(first):
    answered = 0
    for seed in range(first, first + SEEDS_AT_ONCE):
        stated = random_problem(seed)
        quick = place_on_existing(stated)
        if quick is None:
            continue
        answered += 1
        general = _general(stated)
        assert quick.existing == general.existing, seed
        assert quick.unplaced == general.unplaced, seed
        assert general.opened == [], seed
    assert answered > SEEDS_AT_ONCE * 0.6  # else it is of no use


def test_given_a_node_that_could_be_opened_the_general_way_is_asked():
    assert place_on_existing(problem([pending()], nodes=[existing()], options=[option()])) is None


def test_given_pods_with_rules_about_others_the_general_way_is_asked():
    stated = problem([pending(host_ports=(("TCP", 80, ""),))], nodes=[existing()], options=[])
    assert place_on_existing(stated) is None


def test_given_pods_that_could_make_way_for_one_without_a_node_the_general_way_is_asked():
    """A small pod sits where only the large one could go, and has another choice."""
    small = pending("small", gpus=1, priority=1)
    large = pending("large", gpus=2, refuses=("g1",))
    nodes = [
        ExistingNode("n0", {}, {NVIDIA_GPU: 2, CPU: 9000, PODS: 9}, rank=(0,), group="g0"),
        ExistingNode("n1", {}, {NVIDIA_GPU: 2, CPU: 9000, PODS: 9}, rank=(1,), group="g1"),
    ]
    stated = Problem((small, large), tuple(nodes), ())
    assert place_on_existing(stated) is None
    assert not _general(stated).unplaced


@pytest.mark.parametrize("seed", range(20))
def test_given_many_pods_that_request_nothing_both_ways_fill_the_nodes_alike(seed):
    """A class of nodes may be empty before its turn comes again: the general way stopped with a KeyError."""
    random = Random(seed)
    nodes = [
        ExistingNode(f"n{number}", {}, {PODS: random.choice((1, 2, 3, 50))}, rank=(0,), group="g")
        for number in range(random.randint(2, 6))
    ]
    shape = PodShape()
    pods = tuple(PendingPod(f"p{number}", shape) for number in range(random.randint(8, 30)))
    stated = Problem(pods, tuple(nodes), ())
    quick, general = place_on_existing(stated), _general(stated)
    assert quick is not None
    assert (quick.existing, quick.unplaced) == (general.existing, general.unplaced)


@pytest.mark.parametrize("first", range(0, 1000, SEEDS_AT_ONCE))
def test_of_nodes_that_are_alike_one_more_than_there_are_pods_is_enough(first: int) -> None:
    """The same pods go to the same nodes: what `problem_builder` leaves out is never used."""
    left_out = 0
    for seed in range(first, first + SEEDS_AT_ONCE):
        whole = random_problem(seed)
        twice = [replace(node, name=f"{node.name}-{copy}") for node in whole.nodes for copy in range(9)]
        whole = replace(whole, nodes=tuple(twice))
        alike: dict[object, list[int]] = {}
        for number, node in enumerate(whole.nodes):
            alike.setdefault((node.group, tuple(sorted(node.free.items()))), []).append(number)
        most = len(whole.pods) + 1
        kept = sorted(number for numbers in alike.values() for number in numbers[:most])
        left = {numbers[0]: max(0, len(numbers) - most) for numbers in alike.values()}
        left_out += sum(left.values())
        nodes = tuple(replace(whole.nodes[number], left_out=left.get(number, 0)) for number in kept)
        few = place_on_existing(replace(whole, nodes=nodes))
        expected = place_on_existing(whole)
        assert (few is None) == (expected is None), seed
        if few is not None and expected is not None:
            assert {kept[node]: pods for node, pods in few.existing.items()} == expected.existing, seed
            assert few.unplaced == expected.unplaced
    assert left_out
