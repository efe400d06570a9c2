"""An equal problem is solved once, whatever its pods and nodes are called; answers refer to their own node options."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tidemill.decide.packer import solve
from tidemill.decide.packer.problem import ExistingNode, NodeOption, PendingPod, Problem, Solution
from tidemill.decide.placement.solve_cache import SolveCache
from tidemill.model.pods import PodShape

SHAPE = PodShape(requests=(("cpu", 4000),))


def problem(**changes: object) -> Problem:
    node = NodeOption("m7i.2xlarge", {}, {"cpu": 8000, "pods": 10}, 0.4)
    stated = Problem(
        (PendingPod("a", SHAPE), PendingPod("b", SHAPE), PendingPod("c", SHAPE)), options=(node,)
    )
    return replace(stated, **changes)  # type: ignore[arg-type]


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[Problem]:
    """The problems that were really solved."""
    asked: list[Problem] = []

    def counting(stated: Problem, *, thorough: bool = True) -> Solution:
        asked.append(stated)
        return solve(stated, thorough=thorough)

    monkeypatch.setattr("tidemill.decide.placement.solve_cache.solve", counting)
    return asked


def test_an_equal_problem_is_solved_once_and_answered_in_its_own_flavours(solved: list[Problem]):
    answers, again = SolveCache(), problem()
    first, second = answers.solve(problem()), answers.solve(again)
    assert len(solved) == 1
    assert [node.pods for node in second.opened] == [node.pods for node in first.opened]
    assert all(node.option is again.options[0] for node in second.opened)


def test_changing_an_answer_does_not_change_what_is_remembered(solved: list[Problem]):
    answers = SolveCache()
    answers.solve(problem())
    answers.solve(problem()).opened.clear()
    assert len(answers.solve(problem()).opened) == 2
    assert len(solved) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"pods": problem().pods[:2]},
        {"options": (replace(problem().options[0], price=0.5),)},
        {"budgets": {"": {"nodes": 1}}},
        {"options": ()},
    ],
    ids=["pods", "prices", "limits", "nothing to open"],
)
def test_another_problem_is_solved_anew(solved: list[Problem], changes: dict[str, object]):
    answers = SolveCache()
    answers.solve(problem())
    answers.solve(problem(**changes))
    assert len(solved) == 2


def test_a_pod_that_refuses_another_group_makes_another_problem(solved: list[Problem]):
    answers = SolveCache()
    answers.solve(problem())
    answers.solve(problem(pods=tuple(replace(pod, refuses=frozenset({"block"})) for pod in problem().pods)))
    assert len(solved) == 2


def test_a_question_and_a_thorough_search_are_two_things(solved: list[Problem]):
    answers = SolveCache()
    answers.solve(problem())
    answers.solve(problem(), thorough=False)
    assert len(solved) == 2


def renamed(stated: Problem, prefix: str) -> Problem:
    return replace(
        stated,
        pods=tuple(replace(pod, id=f"{prefix}-{place}") for place, pod in enumerate(stated.pods)),
        nodes=tuple(replace(node, name=f"{prefix}/{place}") for place, node in enumerate(stated.nodes)),
    )


def test_other_names_of_pods_and_nodes_make_no_other_problem(solved: list[Problem]):
    """A launch that is tried again has another intent, and the node that it may become another name."""
    answers = SolveCache()
    on_its_way = problem(nodes=(ExistingNode("ti-1/0", {}, {"cpu": 4000, "pods": 10}),))
    first, second = answers.solve(on_its_way), answers.solve(renamed(on_its_way, "ti-2"))
    assert len(solved) == 1
    assert second.existing == first.existing


def test_names_of_nodes_count_where_a_pod_asks_for_one(solved: list[Problem]):
    picky = PodShape(requests=SHAPE.requests, node_selector=(("kubernetes.io/hostname", "b"),))
    pods = (PendingPod("a", picky),)
    room = {"cpu": 8000, "pods": 10}
    answers = SolveCache()
    assert answers.solve(problem(pods=pods, nodes=(ExistingNode("a", {}, room),), options=())).unplaced
    assert not answers.solve(problem(pods=pods, nodes=(ExistingNode("b", {}, room),), options=())).unplaced


def random_problem(random: Random) -> Problem:
    shapes = [PodShape(requests=(("cpu", 1000 * random.randint(1, 6)),)) for _ in range(3)]
    pods = [
        PendingPod(f"p{n}", random.choice(shapes), priority=random.randint(0, 1))
        for n in range(random.randint(1, 6))
    ]
    nodes = [
        ExistingNode(
            f"n{n}", {}, {"cpu": 1000 * random.randint(0, 8), "pods": 10}, rank=(random.randint(0, 1),)
        )
        for n in range(random.randint(0, 3))
    ]
    kinds = [("small", 4000, 0.2), ("large", 16000, 0.7)]
    options = [NodeOption(name, {}, {"cpu": cpu, "pods": 10}, price) for name, cpu, price in kinds]
    return Problem(tuple(pods), tuple(nodes), tuple(random.sample(options, random.randint(0, 2))))


def test_a_remembered_answer_is_the_one_that_would_be_found():
    """Few kinds of problems, many times, under other names each time: more of them than are kept."""
    answers, random = SolveCache(), Random(11)
    stated = [random_problem(random) for _ in range(90)]
    for turn in range(200):
        asked = renamed(random.choice(stated[: 20 + turn // 3]), f"t{turn}")
        found, anew = answers.solve(asked), solve(asked)
        assert (found.existing, found.unplaced) == (anew.existing, anew.unplaced)
        assert [(node.option.name, node.pods) for node in found.opened] == [
            (node.option.name, node.pods) for node in anew.opened
        ]
