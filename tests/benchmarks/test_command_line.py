"""`python -m benchmarks`: figures for people and for programs, and a failure when a placement breaks a rule."""

from __future__ import annotations

import json

import pytest

from benchmarks import packing_run
from benchmarks.__main__ import main
from benchmarks.mixes import build
from benchmarks.packing_run import measure, stranded_gpus
from tidemill.decide.packer.problem import NewNode, Solution


def test_prints_the_figures_of_one_mix_as_one_object(capsys):
    code = main(["pack", "--pods", "60", "--mix", "karpenter", "--solver", "first-fit", "--json"])
    assert code == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["checked"] is True
    assert shown["faults"] == []
    assert (shown["pods"], shown["placed"], shown["unplaced"]) == (60, 60, 0)
    assert shown["nodes"] >= 12
    assert 0 < shown["lower_bound"] <= shown["price"]
    assert shown["pods_per_s"] == pytest.approx(60 / shown["seconds"])


def test_prints_a_table_of_several_mixes(capsys):
    arguments = ["pack", "--pods", "40", "--mix", "shapes", "--mix", "gpu", "--solver", "first-fit"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines() if "sound" in line] == ["shapes", "gpu"]


def test_an_unknown_mix_is_a_one_line_error_with_exit_code_2(capsys):
    assert main(["pack", "--mix", "nonsense"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: unknown mix 'nonsense'; there are: karpenter, ")
    assert error.count("\n") == 1


@pytest.mark.parametrize("arguments", [["nonsense"], ["pack", "--pods", "0"], ["pack", "--nonsense"]])
def test_a_wrong_argument_is_a_one_line_error_with_exit_code_2(arguments, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_help_succeeds(capsys):
    assert main(["pack", "--help"]) == 0
    assert "--reference" in capsys.readouterr().out


def test_times_a_decision(capsys):
    assert main(["decide", "--nodes", "20", "--running", "40", "--pending", "5", "--json"]) == 0
    timing = json.loads(capsys.readouterr().out)
    assert (timing["nodes"], timing["running"], timing["pending"]) == (20, 40, 5)
    assert timing["warm_s"] >= 0


def test_fails_when_a_placement_breaks_a_rule(capsys, monkeypatch):
    def careless(problem):
        return Solution(opened=[NewNode(problem.options[0], list(range(len(problem.pods))))])

    monkeypatch.setattr(packing_run, "solver", lambda name: careless)
    assert main(["pack", "--pods", "20", "--mix", "karpenter", "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["checked"] is False
    assert "rules are broken: new-0 has 900 cpu" in captured.err


def test_solvers_are_compared_on_the_same_problem(monkeypatch):
    asked = []

    def spy(problem):
        asked.append(problem)
        return packing_run.first_fit(problem)

    monkeypatch.setattr(packing_run, "solver", lambda name: spy)
    one, other = measure("karpenter", 30, repeat=2, solvers=("this", "that"))
    assert len(asked) == 4
    assert len({id(problem) for problem in asked}) == 1
    assert (one.solver, other.solver, one.price) == ("this", "that", other.price)


def test_counts_the_gpus_that_no_pod_requests():
    stated = build("gpu", 100)
    whole = next(f for f in stated.options if f.name == "g6.48xlarge")
    single = next(i for i, pod in enumerate(stated.pods) if dict(pod.shape.requests)["nvidia.com/gpu"] == 1)
    assert stranded_gpus(stated, Solution(opened=[NewNode(whole, [single])])) == 7
