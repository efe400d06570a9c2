"""Compute-pool blueprints in Ryvn's spelling, turned into NodeClass and ComputePool documents.

A blueprint is a map from names to settings of node classes or of pools, in one file or in several, in any order. The
settings have our own field names, so an entry only gets an envelope; messages keep their positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path as FilePath
from typing import Any, Literal

from tidemill import catalog as shipped
from tidemill.catalog import Catalog
from tidemill.spec.check import check
from tidemill.spec.check.document_set import Heading, LocatedDocument
from tidemill.spec.compute_pool import ComputePoolSpec
from tidemill.spec.document import Document
from tidemill.spec.importers import Imported, errors, imported, missing_references_are_warnings
from tidemill.spec.located_yaml import ParsedYaml, Path
from tidemill.spec.names import API_VERSION
from tidemill.spec.node_class import NodeClassSpec
from tidemill.spec.problem import Position, Problem, quoted
from tidemill.spec.read import heading, read_file, validate, without_reported

Kind = Literal["NodeClass", "ComputePool"]
_KEYS: dict[Kind, frozenset[str]] = {
    "NodeClass": frozenset(field.alias or name for name, field in NodeClassSpec.model_fields.items()),
    "ComputePool": frozenset(field.alias or name for name, field in ComputePoolSpec.model_fields.items()),
}


def import_ryvn(paths: Sequence[FilePath], catalog: Catalog | None = None) -> Imported:
    problems: list[Problem] = []
    headings: list[Heading] = []
    documents: list[LocatedDocument[Document]] = []
    for path in dict.fromkeys(paths):
        for blueprint in read_file(path):
            problems += blueprint.problems
            for parsed in _entries(blueprint, problems):
                document = validate(parsed)
                problems += parsed.problems
                headings += heading(parsed)
                documents += [document] if document else []
    rules = check(documents, headings, catalog if catalog is not None else shipped.load())
    problems += missing_references_are_warnings(without_reported(rules, documents))
    documents.sort(key=lambda document: document.parsed.data["kind"] != "NodeClass")  # classes first
    return imported([] if errors(problems) else documents, problems, what="Ryvn blueprint", paths=paths)


def _entries(blueprint: ParsedYaml, problems: list[Problem]) -> Iterator[ParsedYaml]:
    """Each name with its settings, as a document."""
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
    """By the key that each kind requires; where that key is misspelled, by which kind has more of the keys."""
    if not isinstance(settings, dict):
        return None
    if "nodeClassName" in settings:
        return "ComputePool"
    if "amiSelectorTerms" in settings:
        return "NodeClass"
    known = {kind: len(keys & settings.keys()) for kind, keys in _KEYS.items()}
    best = max(known, key=lambda kind: known[kind])
    return best if known[best] and len(set(known.values())) > 1 else None


def _enveloped(blueprint: ParsedYaml, kind: Kind, name: str, settings: Any) -> ParsedYaml:
    """The same positions under the paths they have in the document: `gpus.limits` becomes `spec.limits`."""
    at_name = blueprint.at_key((name,))
    parsed = ParsedYaml(blueprint.file, start=at_name)
    parsed.data = {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name},
        "spec": settings,
    }
    parsed.keys = {_moved(path): at for path, at in blueprint.keys.items() if path[0] == name}
    parsed.values = {_moved(path): at for path, at in blueprint.values.items() if path and path[0] == name}
    parsed.source_text = {
        _moved(path): text for path, text in blueprint.source_text.items() if path[0] == name
    }
    parsed.values["metadata", "name"] = at_name
    # Positions with a YAML problem: no second problem is reported there.
    parsed.reported = frozenset(Position(problem.line, problem.column) for problem in blueprint.problems)
    return parsed


def _moved(path: Path) -> Path:
    return ("spec", *path[1:])
