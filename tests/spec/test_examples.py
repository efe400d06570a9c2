"""Each bad example begins with the messages that it must give; each good example gives none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidemill.spec.read import load

EXAMPLES = Path(__file__).parents[2] / "examples"
BAD = sorted((EXAMPLES / "bad").glob("*.yaml"))
# Examples of Kubernetes' own objects are not documents: tests/platform lints them.
GOOD = sorted(
    path
    for path in [*EXAMPLES.glob("*.yaml"), *(EXAMPLES / "kubernetes").glob("*.yaml")]
    if re.search(r"^apiVersion: tidemill\.dev/", path.read_text(encoding="utf-8"), re.MULTILINE)
)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_example_gives_exactly_the_messages_it_announces(path: Path) -> None:
    announced = re.findall(r"^# (\d+:\d+: .*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert announced
    assert [str(problem).removeprefix(f"{path}:") for problem in load([path]).problems] == announced


def test_there_is_a_bad_example_for_each_kind_of_error() -> None:
    assert len(BAD) >= 12


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_example_has_no_problem(path: Path) -> None:
    assert [str(problem) for problem in load([path]).problems] == []
