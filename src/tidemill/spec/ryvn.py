"""Compute-pool blueprints in Ryvn's spelling, turned into NodeClass and ComputePool documents.

A blueprint is a map from name to settings: node classes in one, pools in the other, in one file or in
several, in any order. The settings are our own field names, so what was written is kept as it stands and
only gets its envelope; it is checked by the same models, with the same messages at the same places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Literal

import yaml

from tidemill import catalog as shipped
from tidemill.catalog import Catalog
from tidemill.spec.check import check
from tidemill.spec.check.document_set import Heading, LocatedDocument
from tidemill.spec.compute_pool import ComputePoolSpec
from tidemill.spec.document import Parsed, Path
from tidemill.spec.model import Document
from tidemill.spec.names import API_VERSION
from tidemill.spec.node_class import NodeClassSpec
from tidemill.spec.problem import Position, Problem, quoted
from tidemill.spec.read import heading, read_file, validated, without_reported

Kind = Literal["NodeClass", "ComputePool"]
_KEYS: dict[Kind, frozenset[str]] = {
    "NodeClass": frozenset(field.alias or name for name, field in NodeClassSpec.model_fields.items()),
    "ComputePool": frozenset(field.alias or name for name, field in ComputePoolSpec.model_fields.items()),
}


@dataclass(frozen=True, slots=True)
class Imported:
    """The documents as YAML text (empty when there are errors), and everything to say about them."""

    text: str
    problems: tuple[Problem, ...]


def import_ryvn(paths: Sequence[FilePath], catalog: Catalog | None = None) -> Imported:
    problems: list[Problem] = []
    headings: list[Heading] = []
    documents: list[LocatedDocument[Document]] = []
    for path in dict.fromkeys(paths):
        for blueprint in read_file(path):
            problems += blueprint.problems
            for parsed in _entries(blueprint, problems):
                document = validated(parsed)
                problems += parsed.problems
                headings += heading(parsed)
                documents += [document] if document else []
    problems += _across(documents, headings, catalog if catalog is not None else shipped.load())
    failed = any(problem.severity == "error" for problem in problems)
    text = "" if failed else _text(documents, paths)
    return Imported(text, tuple(sorted(set(problems))))


def _entries(blueprint: Parsed, problems: list[Problem]) -> Iterator[Parsed]:
    """Each name with its settings, as the document it stands for."""
    if blueprint.data is None:
        return
    if not isinstance(blueprint.data, dict):
        line, column = blueprint.start
        message = "a blueprint is a map from names to the settings of node classes or pools"
        problems.append(Problem(blueprint.file, line, column, message, "document"))
        return
    for name, settings in blueprint.data.items():
        kind = _kind(settings)
        if kind is None:
            line, column = blueprint.at_key((name,))
            message = (
                f"{quoted(name)} is neither a node class (it has no 'amiSelectorTerms')"
                " nor a pool (it has no 'nodeClassName')"
            )
            problems.append(Problem(blueprint.file, line, column, message, "document"))
        else:
            yield _enveloped(blueprint, kind, name, settings)


def _kind(settings: Any) -> Kind | None:
    """By the key each must have; where a slip of the pen hides it, by which kind knows more of the keys."""
    if not isinstance(settings, dict):
        return None
    if "nodeClassName" in settings:
        return "ComputePool"
    if "amiSelectorTerms" in settings:
        return "NodeClass"
    known = {kind: len(keys & settings.keys()) for kind, keys in _KEYS.items()}
    best = max(known, key=lambda kind: known[kind])
    return best if known[best] and len(set(known.values())) > 1 else None


def _enveloped(blueprint: Parsed, kind: Kind, name: str, settings: Any) -> Parsed:
    """The same positions under the paths they have in the document: `gpus.limits` becomes `spec.limits`."""
    at_name = blueprint.at_key((name,))
    parsed = Parsed(blueprint.file, start=at_name)
    parsed.data = {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name},
        "spec": settings,
    }
    parsed.keys = {_moved(path): at for path, at in blueprint.keys.items() if path[0] == name}
    parsed.values = {_moved(path): at for path, at in blueprint.values.items() if path and path[0] == name}
    parsed.spelled = {_moved(path): text for path, text in blueprint.spelled.items() if path[0] == name}
    parsed.values["metadata", "name"] = at_name
    # What the walk already told counts as told, but is not to be told twice.
    parsed.told = frozenset(Position(problem.line, problem.column) for problem in blueprint.problems)
    return parsed


def _moved(path: Path) -> Path:
    return ("spec", *path[1:])


def _across(
    documents: Sequence[LocatedDocument[Document]], headings: Sequence[Heading], catalog: Catalog
) -> Iterator[Problem]:
    """The rules of `check`, but a node class may be in a blueprint that is imported another time."""
    for problem in without_reported(check(documents, headings, catalog), documents):
        if problem.code == "reference":
            yield Problem(
                problem.file, problem.line, problem.column, problem.message, problem.code, "warning"
            )
        else:
            yield problem


def _text(documents: Sequence[LocatedDocument[Document]], paths: Sequence[FilePath]) -> str:
    names = ", ".join(path.name.encode("unicode_escape").decode() for path in paths)
    order = sorted(documents, key=lambda each: each.parsed.data["kind"] != "NodeClass")  # classes first
    body = yaml.safe_dump_all(
        [each.parsed.data for each in order], sort_keys=False, allow_unicode=True, explicit_start=True
    )
    return f"# Imported from the Ryvn blueprint in {names}.\n{body}"
