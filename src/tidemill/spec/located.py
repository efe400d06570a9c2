"""A document as it was written: its model together with where each part of it stands.

The rules in `check` speak about paths in a document; this turns a path into a problem with a position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from tidemill.spec.document import Parsed, Path
from tidemill.spec.model import Document
from tidemill.spec.problem import Problem, Severity

M = TypeVar("M", bound=Document)
M_co = TypeVar("M_co", bound=Document, covariant=True)


@dataclass(frozen=True, slots=True)
class Heading:
    """Kind and name of a document, known even where the rest of it is wrong: others may refer to it."""

    kind: str
    name: str
    parsed: Parsed
    name_path: Path = ("metadata", "name")

    def problem(self, message: str, code: str) -> Problem:
        line, column = self.parsed.at(self.name_path)
        return Problem(self.parsed.file, line, column, message, code)

    @property
    def place(self) -> str:
        line, column = self.parsed.at(self.name_path)
        return f"{self.parsed.file}:{line}:{column}"


@dataclass(frozen=True, slots=True)
class Written(Generic[M_co]):
    """A document that its model accepted."""

    model: M_co
    parsed: Parsed

    @property
    def name(self) -> str:
        return self.model.name

    def error(self, path: Path, message: str, code: str) -> Problem:
        return self._problem(path, message, code, "error")

    def warning(self, path: Path, message: str, code: str) -> Problem:
        return self._problem(path, message, code, "warning")

    def _problem(self, path: Path, message: str, code: str, severity: Severity) -> Problem:
        line, column = self.parsed.at(("spec", *path))
        return Problem(self.parsed.file, line, column, message, code, severity)


def of_kind(documents: Iterable[Written[Document]], kind: type[M]) -> Iterator[Written[M]]:
    for document in documents:
        if isinstance(document.model, kind):
            yield cast(Written[M], document)
