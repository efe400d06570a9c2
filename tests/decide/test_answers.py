"""An equal problem is solved once, and each answer refers to the node options of its own problem."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemill.decide.packer import solve
from tidemill.decide.packer.problem import NodeOption, PendingPod, Problem, Solution
from tidemill.decide.placement.packing import SolveCache
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

    monkeypatch.setattr("tidemill.decide.placement.packing.solve", counting)
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
