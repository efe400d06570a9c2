"""The packer before kube-scheduler: what it plans is bound, what it calls impossible is not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.start import ControlPlane
from tests.cluster.oracle import Oracle, Verdict, oracle_options
from tidemill.decide.packer import solve
from tidemill.decide.packer.problem import Problem, Solution

FEW, MANY, BATCH = 40, 500, 50


@pytest.fixture(scope="module")
def oracle(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    folder = tmp_path_factory.mktemp("oracle")
    try:
        with ControlPlane(folder, oracle_options(folder)) as plane:
            yield Oracle(plane)
    finally:
        shutil.rmtree(folder / "etcd", ignore_errors=True)


def judged(oracle: Oracle, seeds: range) -> Verdict:
    verdict = Verdict()
    for first in seeds[::BATCH]:
        verdict.add(oracle.judge(range(first, min(first + BATCH, seeds.stop))))
    print(verdict)
    return verdict


@pytest.mark.requirement("GB-6")
def test_the_scheduler_agrees_with_the_packer(oracle: Oracle):
    verdict = judged(oracle, range(FEW))
    assert verdict.disagreements == []
    assert verdict.planned > 200
    assert verdict.unplaced > 20
    assert verdict.alone_refused > 20


def test_a_packer_that_is_blind_to_taints_is_found_out(oracle: Oracle):
    """The oracle can say no: otherwise its yes would mean nothing."""
    verdict = oracle.judge(range(10), blind_to_taints)
    assert any("planned on" in one and "untolerated taint" in one for one in verdict.disagreements)


def blind_to_taints(problem: Problem) -> Solution:
    bare = replace(
        problem,
        nodes=tuple(replace(node, taints=()) for node in problem.nodes),
        options=tuple(replace(option, taints=()) for option in problem.options),
    )
    solution = solve(bare)
    for node in solution.opened:
        node.option = problem.options[
            next(i for i, option in enumerate(bare.options) if option is node.option)
        ]
    return solution


@pytest.mark.slow
@pytest.mark.requirement("GB-6")
def test_the_scheduler_agrees_with_the_packer_on_many_cases(oracle: Oracle):
    assert judged(oracle, range(FEW, MANY)).disagreements == []
