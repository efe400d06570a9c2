"""Other people's documents turned into ours: Karpenter's NodePools and node classes, Ryvn's blueprints.

Each importer reads files, builds ComputePool and NodeClass documents, and checks them with the same models and rules as
documents that people write. This module holds what the importers share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from tidemill.spec.check.document_set import LocatedDocument
from tidemill.spec.document import Document
from tidemill.spec.problem import Problem


@dataclass(frozen=True, slots=True)
class Imported:
    """The documents as YAML text, all problems found, and which objects were left out because of errors."""

    text: str
    problems: tuple[Problem, ...]
    left_out: tuple[str, ...] = ()


def imported(
    documents: Sequence[LocatedDocument[Document]],
    problems: Iterable[Problem],
    *,
    what: str,
    paths: Sequence[Path],
    left_out: Iterable[str] = (),
) -> Imported:
    problems = tuple(sorted(set(problems)))
    if not documents:
        return Imported("", problems, tuple(left_out))
    names = ", ".join(path.name.encode("unicode_escape").decode() for path in paths)
    body = yaml.dump_all(
        [document.parsed.data for document in documents],
        Dumper=_InFull,
        sort_keys=False,
        allow_unicode=True,
        explicit_start=True,
    )
    return Imported(f"# Imported from the {what} in {names}.\n{body}", problems, tuple(left_out))


class _InFull(yaml.SafeDumper):
    """People read it: what occurs twice is written twice, without anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def missing_references_are_warnings(problems: Iterable[Problem]) -> Iterator[Problem]:
    """A node class may be in a file that is imported another time."""
    for problem in problems:
        yield replace(problem, severity="warning") if problem.code == "reference" else problem


def errors(problems: Iterable[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.severity == "error"]
