"""Which requirement is proved by which test: the judgement and its table, apart from pytest.

A requirement declared done must have a passing test and no failing one. One that is not declared done may
have either, or none: the table says so and nothing fails. `done` is judged by the tests that every change runs; `real`
by those on a real control plane.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

LIST = Path(__file__).with_name("requirements.toml")


@dataclass(frozen=True, slots=True)
class Requirement:
    id: str
    title: str
    done: bool
    real: bool = False  # proved on a real control plane


@dataclass
class Evidence:
    """Test name, without parameters -> how many of its cases passed and failed."""

    passed: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)

    def add(self, node_id: str, passed: bool) -> None:
        name = node_id.partition("[")[0]
        counts = self.passed if passed else self.failed
        counts[name] = counts.get(name, 0) + 1


def read(path: Path = LIST) -> dict[str, Requirement]:
    written = tomllib.loads(path.read_text(encoding="utf-8"))
    return {
        id_: Requirement(id_, entry["title"], entry["done"], entry.get("real", False))
        for id_, entry in written.items()
    }


def of_real_tier(requirements: Iterable[Requirement]) -> list[Requirement]:
    """The same list as the real tier is judged by."""
    return [replace(requirement, done=requirement.real) for requirement in requirements]


def complaints(requirements: Iterable[Requirement], evidence: Mapping[str, Evidence]) -> Iterator[str]:
    """Why conformance fails; nothing when it holds."""
    for requirement in requirements:
        found = evidence.get(requirement.id, Evidence())
        if requirement.done and found.failed:
            yield f"{requirement.id} is declared done and has failing tests: {', '.join(found.failed)}"
        elif requirement.done and not found.passed:
            yield f"{requirement.id} is declared done and no test proves it"


def table(requirements: Iterable[Requirement], evidence: Mapping[str, Evidence]) -> Iterator[str]:
    for requirement in requirements:
        found = evidence.get(requirement.id, Evidence())
        yield f"{requirement.id:<6} {_verdict(requirement, found):<9} {requirement.title}"
        for name in sorted({*found.passed, *found.failed}):
            passed, failed = found.passed.get(name, 0), found.failed.get(name, 0)
            yield f"{'':16} {'FAILED' if failed else 'passed'} {name}" + _cases(passed, failed)


def _verdict(requirement: Requirement, found: Evidence) -> str:
    if found.failed:
        return "FAILED"
    if not found.passed:
        return "NO TEST" if requirement.done else "-"
    return "proved" if requirement.done else "begun"


def _cases(passed: int, failed: int) -> str:
    if passed + failed == 1:
        return ""
    return f" ({passed} of {passed + failed} cases)" if failed else f" ({passed} cases)"
