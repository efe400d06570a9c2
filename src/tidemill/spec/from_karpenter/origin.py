"""One object of Karpenter's, read piece by piece: what was taken is remembered, and what is left is told at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from tidemill.spec.document import Parsed, Path, place
from tidemill.spec.problem import Problem, Severity

T = TypeVar("T")
# Nothing of ours, and nothing that says how a pool should be.
_NOT_OURS = ("apiVersion", "kind", "metadata", "status")


@dataclass
class Origin:
    parsed: Parsed
    data: dict[str, Any]
    at: Path = ()  # where it stands in its YAML document
    problems: list[Problem] = field(default_factory=list)
    _taken: set[Path] = field(default_factory=set)

    @property
    def file(self) -> str:
        return self.parsed.file

    @property
    def kind(self) -> str:
        return str(self.data.get("kind", ""))

    @property
    def name(self) -> str:
        metadata = self.data.get("metadata")
        return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""

    # --- reading ------------------------------------------------------------------------------------

    def take(self, path: Path, kind: type[T]) -> T | None:
        """The value there, or None: there is none, or one of another kind, which is told."""
        value: Any = self.data
        for part in path:
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, list) and isinstance(part, int) and part < len(value):
                value = value[part]
            else:
                value = None
        self._taken.add(path)
        if value is None:
            return None
        if isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool):
            return value
        self.refuse(path, f"{place('', path)} should be {_WORDS.get(kind, kind.__name__)}", "type")
        return None

    def text(self, *path: str | int) -> str:
        value = self.take(path, object)
        return "" if value is None or isinstance(value, dict | list) else str(value)

    def mapping(self, *path: str | int) -> dict[str, Any]:
        return self.take(path, dict) or {}

    def texts(self, *path: str | int) -> dict[str, str]:
        return {str(key): str(value) for key, value in self.mapping(*path).items()}

    def items(self, *path: str | int) -> list[dict[str, Any]]:
        """The mappings in a list."""
        return [each for each in self.take(path, list) or [] if isinstance(each, dict)]

    # --- telling ------------------------------------------------------------------------------------

    def say(self, path: Path, message: str, code: str = "not-carried-over") -> None:
        self._problem(path, message, code, "warning")

    def refuse(self, path: Path, message: str, code: str) -> None:
        self._problem(path, message, code, "error")

    def _problem(self, path: Path, message: str, code: str, severity: Severity) -> None:
        line, column = self.parsed.at((*self.at, *path))
        self.problems.append(Problem(self.file, line, column, message, code, severity))

    def tell_what_is_left(self) -> None:
        """Each key that nothing above asked for."""
        self._left(self.data, ())

    def _left(self, value: Any, path: Path) -> None:
        if not isinstance(value, dict) or path in self._taken:
            return
        for key, inner in value.items():
            here = (*path, key)
            if not path and key in _NOT_OURS:
                continue
            if here in self._taken:
                continue
            if any(taken[: len(here)] == here for taken in self._taken):
                self._left(inner, here)
            else:
                self.say(here, f"{self.kind} {self.name}: {place('', here)} is not carried over")


_WORDS: dict[type, str] = {dict: "a mapping", list: "a list", int: "a whole number", str: "text"}
