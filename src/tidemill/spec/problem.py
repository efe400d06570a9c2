"""A problem in a document: one sentence with file, line and column.

Knows nothing about YAML, models or rules. Those create problems; the command line prints them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, NamedTuple

Severity = Literal["error", "warning"]


class Position(NamedTuple):
    """Both count from 1, as in editors."""

    line: int
    column: int


START = Position(1, 1)


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """Sorts by position. `code` is stable, for tools: `unknown-key`, `TR-9`."""

    file: str
    line: int
    column: int
    message: str
    code: str
    severity: Severity = "error"

    def __str__(self) -> str:
        mark = "warning: " if self.severity == "warning" else ""
        return f"{self.file}:{self.line}:{self.column}: {mark}{self.message}"


def quoted(text: object) -> str:
    """What a user wrote, made safe for a one-line message: unprintable characters escaped, long text cut."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text)[:80])
    return f"'{shown}…'" if len(str(text)) > 80 else f"'{shown}'"


def suggestion(word: str, valid: Iterable[str], *, what: str = "valid") -> str:
    """`did you mean 'x'?` when a valid name is close, else the valid names."""
    names = sorted(set(valid))
    near = get_close_matches(word, names, n=1, cutoff=0.6) or _same_but_for_case(word, names)
    if near:
        return f"did you mean {quoted(near[0])}?"
    if not names:
        return f"there are no {what}" if what != "valid" else "there are none"
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f"{what}: {shown}"


def _same_but_for_case(word: str, names: list[str]) -> list[str]:
    """For difflib WHENEMPTY is not close to WhenEmpty."""
    return [name for name in names if name.lower() == word.lower()]
