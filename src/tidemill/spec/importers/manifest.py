"""One Karpenter object, read field by field. It remembers which fields were read, and warns of the others at the
end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from tidemill.spec.located_yaml import ParsedYaml, Path, path_text
from tidemill.spec.problem import Problem, Severity

T = TypeVar("T")
# They do not describe a pool.
_IGNORED = ("apiVersion", "kind", "metadata", "status")


@dataclass
class Manifest:
    parsed: ParsedYaml
    data: dict[str, Any]
    at: Path = ()  # its path in the YAML document
    problems: list[Problem] = field(default_factory=list)
    _read: set[Path] = field(default_factory=set)

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

    def read(self, path: Path, kind: type[T]) -> T | None:
        """The value at a path; None where there is none. A value of another type is an error, and None too."""
        value: Any = self.data
        for part in path:
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, list) and isinstance(part, int) and part < len(value):
                value = value[part]
            else:
                value = None
        self._read.add(path)
        if value is None:
            return None
        if isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool):
            return value
        self.error(path, f"{path_text('', path)} must be {_TYPE_NAMES.get(kind, kind.__name__)}", "type")
        return None

    def text(self, *path: str | int) -> str:
        value = self.read(path, object)
        return "" if value is None or isinstance(value, dict | list) else str(value)

    def mapping(self, *path: str | int) -> dict[str, Any]:
        return self.read(path, dict) or {}

    def string_map(self, *path: str | int) -> dict[str, str]:
        return {str(key): str(value) for key, value in self.mapping(*path).items()}

    def items(self, *path: str | int) -> list[dict[str, Any]]:
        """The mappings in a list."""
        return [item for item in self.read(path, list) or [] if isinstance(item, dict)]

    # --- problems -----------------------------------------------------------------------------------

    def warn(self, path: Path, message: str, code: str = "not-carried-over") -> None:
        self._problem(path, message, code, "warning")

    def error(self, path: Path, message: str, code: str) -> None:
        self._problem(path, message, code, "error")

    def _problem(self, path: Path, message: str, code: str, severity: Severity) -> None:
        line, column = self.parsed.at((*self.at, *path))
        self.problems.append(Problem(self.file, line, column, message, code, severity))

    def warn_about_unread(self) -> None:
        """One warning for each key that nobody read."""
        self._warn_about_unread(self.data, ())

    def _warn_about_unread(self, value: Any, path: Path) -> None:
        if not isinstance(value, dict) or path in self._read:
            return
        for key, inner in value.items():
            here = (*path, key)
            if not path and key in _IGNORED:
                continue
            if here in self._read:
                continue
            if any(path_read[: len(here)] == here for path_read in self._read):
                self._warn_about_unread(inner, here)
            else:
                self.warn(here, f"{self.kind} {self.name}: {path_text('', here)} is not carried over")


_TYPE_NAMES: dict[type, str] = {dict: "a mapping", list: "a list", int: "a whole number", str: "text"}
