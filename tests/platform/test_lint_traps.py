"""Each trap has an example that shows it and a twin without it; the linter tells them apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.platform.lint import fix, lint
from tidemill.wording.traps import TRAPS

EXAMPLES = Path(__file__).parents[2] / "examples" / "traps"
BAD = sorted(EXAMPLES.glob("TR-*/bad*"))
# What `--fix` writes: the twin, letter by letter.
FIXED_BY_IT = {
    "TR-2/bad.yaml",
    "TR-4/bad.yaml",
    "TR-5/bad.yaml",
    "TR-6/bad.yaml",
    "TR-12/bad-template.yaml",
    "TR-18/bad.yaml",
}


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


CASES = [pytest.param(path, id=named(path), marks=pytest.mark.requirement(path.parent.name)) for path in BAD]


def twin(path: Path) -> Path:
    return path.with_name(path.name.replace("bad", "good"))


def test_every_trap_has_an_example_and_every_example_a_twin() -> None:
    assert {path.parent.name for path in BAD} == set(TRAPS)
    assert all(twin(path).exists() for path in BAD)
    assert set(map(named, BAD)) >= FIXED_BY_IT
    assert {name.partition("/")[0] for name in FIXED_BY_IT} == {
        trap.id for trap in TRAPS.values() if trap.safe_fix
    }


@pytest.mark.parametrize("path", CASES)
def test_the_bad_example_has_its_trap_and_no_other(path: Path) -> None:
    report = lint({str(path): path.read_bytes()})
    assert [finding.rule for finding in report.findings] == [path.parent.name]
    assert report.not_linted == ()
    (finding,) = report.findings
    assert finding.line > 1
    assert finding.message
    assert finding.fix


@pytest.mark.parametrize("path", CASES)
def test_the_good_twin_has_no_finding_at_all(path: Path) -> None:
    good = twin(path)
    report = lint({str(good): good.read_bytes()})
    assert report.findings == ()
    assert report.not_linted == ()
    assert report.linted == (str(good),)


@pytest.mark.parametrize("path", CASES)
def test_a_safe_fix_turns_the_bad_example_into_its_twin_and_others_are_left_alone(path: Path) -> None:
    changed = fix({str(path): path.read_bytes()})
    expected = {str(path): twin(path).read_text(encoding="utf-8")} if named(path) in FIXED_BY_IT else {}
    assert changed == expected
