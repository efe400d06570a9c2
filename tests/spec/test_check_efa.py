"""TR-16: nodes that work together need EFA, and it must be attached to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.spec.problem import Problem
from tidemill.spec.read import load

pytestmark = pytest.mark.requirement("TR-16")
EXAMPLE = Path(__file__).parents[2] / "examples" / "first-block.yaml"


def told(tmp_path: Path, *changes: tuple[str, str]) -> list[Problem]:
    text = EXAMPLE.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    return [problem for problem in load([path]).problems if problem.code == "TR-16"]


def test_a_job_of_several_nodes_that_asks_for_efa_on_nodes_with_efa_is_right(tmp_path: Path) -> None:
    assert told(tmp_path) == []


def test_a_job_of_several_whole_nodes_without_efa_is_warned_of(tmp_path: Path) -> None:
    (problem,) = told(tmp_path, ("      efa: 32\n", ""))
    assert problem.severity == "warning"
    assert "2 pods with whole nodes of GPUs work together" in problem.message


def test_efa_that_the_node_class_does_not_attach_is_warned_of(tmp_path: Path) -> None:
    (problem,) = told(tmp_path, ("  efa: true\n", ""))
    assert "attaches none: set 'efa: true' there" in problem.message


def test_one_node_or_part_of_one_needs_no_efa(tmp_path: Path) -> None:
    assert told(tmp_path, ("      efa: 32\n", ""), ("      nodes: 2\n", "")) == []


def test_a_replica_of_several_nodes_needs_nodes_with_efa(tmp_path: Path) -> None:
    engine = (
        "  region: us-east-1\n",
        "  region: us-east-1\n  engineChart: {pools: [{name: big, computePool: train, nodesPerReplica: 2}]}\n",
    )
    assert told(tmp_path, engine) == []
    problems = told(tmp_path, engine, ("  efa: true\n", ""))
    assert any("the engine's pool 'big' asks for EFA" in problem.message for problem in problems)
