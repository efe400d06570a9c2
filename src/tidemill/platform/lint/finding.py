"""What the linter answers: findings with their place and their fix, and what it could not look at.

Knows neither rules nor files. Why a rule bites, and where that is written, is in `wording.traps`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from tidemill.spec.problem import Severity


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Characters start..end of a file's text become `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """Sorts by place. `edits` are a fix that changes nothing else; empty: a person must decide."""

    file: str
    line: int
    column: int
    rule: str
    message: str
    fix: str
    severity: Severity
    edits: tuple[Edit, ...] = ()
    elsewhere: tuple[str, ...] = ()  # `file:line:column` of what it clashes with


NotLintedReason = Literal["skipped", "unreadable", "unchecked"]


@dataclass(frozen=True, slots=True, order=True)
class NotLinted:
    """skipped: of a kind without rules. unreadable: not text, or not YAML. unchecked: a document of ours with errors
    that `tidemill validate` lists, so that some of its fields were not looked at."""

    file: str
    line: int
    column: int
    reason: NotLintedReason
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    findings: tuple[Finding, ...]
    not_linted: tuple[NotLinted, ...]
    linted: tuple[str, ...]  # files in which something was looked at
    suppressed: tuple[Finding, ...] = ()
    texts: dict[str, str] = field(
        default_factory=dict
    )  # of the files that could be parsed: these may be fixed

    @property
    def complete(self) -> bool:
        return all(each.reason == "skipped" for each in self.not_linted)


def counts(findings: Iterable[Finding]) -> dict[Severity, int]:
    found: dict[Severity, int] = {"error": 0, "warning": 0}
    for finding in findings:
        found[finding.severity] += 1
    return found
