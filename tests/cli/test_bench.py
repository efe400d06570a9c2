"""`tidemill bench pack`: figures for people and for programs, and a failure when a placement breaks a rule."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.bench import packing_run
from tidemill.bench.mixes import build
from tidemill.bench.packing_run import measure, stranded_gpus
from tidemill.cli import main
from tidemill.decide.packer.problem import NewNode, Solution


def test_prints_the_figures_of_a_mix_for_programs(capsys):
    code = main(["bench", "pack", "--pods", "60", "--mix", "karpenter", "--solver", "first-fit", "--json"])
    assert code == 0
    (shown,) = json.loads(capsys.readouterr().out)["packings"]
    assert shown["checked"] is True
    assert shown["faults"] == []
    assert (shown["pods"], shown["placed"], shown["unplaced"]) == (60, 60, 0)
    assert shown["nodes"] >= 12
    assert 0 < shown["lower_bound"] <= shown["price"]
    assert shown["over_bound"] == pytest.approx(shown["price"] / shown["lower_bound"] - 1)
    assert shown["pods_per_s"] == pytest.approx(60 / shown["seconds"])
    assert shown["speed_share"] == 1


def test_the_speed_at_a_size_is_told_beside_that_at_the_smallest(capsys):
    assert main(["bench", "pack", "--pods", "200", "--pods", "50", "--mix", "preferences", "--json"]) == 0
    small, large = json.loads(capsys.readouterr().out)["packings"]
    assert (small["pods"], large["pods"]) == (50, 200)
    assert large["speed_share"] == pytest.approx(large["pods_per_cpu_s"] / small["pods_per_cpu_s"], abs=1e-3)


def test_prints_a_table_of_several_mixes(capsys):
    arguments = ["bench", "pack", "--pods", "40", "--mix", "shapes", "--mix", "gpu", "--solver", "first-fit"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines() if "sound" in line] == ["shapes", "gpu"]


def test_an_unknown_mix_is_a_one_line_error_with_exit_code_2_before_anything_is_packed(capsys):
    assert main(["bench", "pack", "--mix", "karpenter", "--mix", "nonsense"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: unknown mix 'nonsense'; there are: karpenter, ")
    assert error.count("\n") == 1


def test_fails_when_a_placement_breaks_a_rule(capsys, monkeypatch):
    def careless(problem):
        return Solution(opened=[NewNode(problem.options[0], list(range(len(problem.pods))))])

    monkeypatch.setattr(packing_run, "solver", lambda name: careless)
    assert main(["bench", "pack", "--pods", "20", "--mix", "karpenter", "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["packings"][0]["checked"] is False
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


def test_needs_nothing_that_is_not_in_the_package(tmp_path):
    """Run where neither the tests nor the other benchmarks can be imported, as from an installed wheel."""
    script = """
import sys
from tidemill.cli import main
code = main(["bench", "pack", "--pods", "40", "--mix", "gpu"])
sys.exit(code or any(name.split(".")[0] in ("tests", "benchmarks") for name in sys.modules))
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_packer_of_another_checkout_is_measured_on_the_same_pods(capsys):
    here = str(Path(__file__).parents[2])
    assert main(["bench", "pack", "--pods", "60", "--mix", "pools", "--compare", here, "--json"]) == 0
    now, before = json.loads(capsys.readouterr().out)["packings"]
    assert (now["solver"], before["solver"], before["judged"]) == ("tidemill", "before", False)
    assert (now["price"], now["nodes"], now["lower_bound"]) == (
        before["price"], before["nodes"], before["lower_bound"],
    )  # fmt: skip
    assert before["cpu_s"] > 0


def test_a_folder_that_is_no_checkout_cannot_be_compared_with(capsys, tmp_path):
    assert main(["bench", "pack", "--pods", "20", "--mix", "pools", "--compare", str(tmp_path)]) == 2
    assert "is no checkout of Tidemill" in capsys.readouterr().err


def test_a_checkout_that_packs_other_pods_is_not_compared(capsys, tmp_path):
    packages = {"bench/mixes": "def build(mix, pods, seed):\n    return Problem()", "decide/packer": ""}
    for name, text in packages.items():
        folder = tmp_path / "src" / "tidemill" / name
        folder.mkdir(parents=True)
        for above in (folder.parent, folder.parent.parent):
            (above / "__init__.py").touch()
        (folder / "__init__.py").write_text(
            "class Problem:\n    pods, options, opened, unplaced, price = (), (), (), (), 0.0\n"
            f"def solve(problem):\n    return problem\n{text}\n"
        )
    assert main(["bench", "pack", "--pods", "20", "--mix", "pools", "--compare", str(tmp_path)]) == 2
    assert "is another problem" in capsys.readouterr().err
