"""What happened, one line each, in order: the raw material of reports and of every question afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Line:
    at: datetime
    kind: str  # kebab-case: "block-active", "pod-evicted", "fault", "decided", …
    about: str  # the object's name or id
    sentence: str


class Journal:
    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self.lines: list[Line] = []

    def add(self, kind: str, about: str, sentence: str) -> None:
        self.lines.append(Line(self._now(), kind, about, sentence))
