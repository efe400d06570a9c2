"""Karpenter's NodePools and node classes, turned into ComputePool and NodeClass documents.

What can be said in our documents is; everything else is told, at its place, so that nothing gets lost unnoticed. The
result is checked by the same models and rules as what people write: traps in it are named right away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path as FilePath
from typing import Any

import yaml

from tidemill import catalog as shipped
from tidemill.catalog import Catalog
from tidemill.spec.check import check
from tidemill.spec.check.document_set import Heading, LocatedDocument
from tidemill.spec.document import Parsed
from tidemill.spec.from_karpenter.node_class import node_class_spec
from tidemill.spec.from_karpenter.node_pool import pool_spec
from tidemill.spec.from_karpenter.origin import Origin
from tidemill.spec.model import Document
from tidemill.spec.names import API_VERSION
from tidemill.spec.problem import Problem, quoted
from tidemill.spec.read import heading, read_file, validated
from tidemill.spec.ryvn import Imported

_NODE_CLASSES = ("EC2NodeClass", "NodeClass")
_KINDS = (*_NODE_CLASSES, "NodePool")
_VERSIONS = {
    "EC2NodeClass": "karpenter.k8s.aws/v1",
    "NodeClass": "eks.amazonaws.com/v1",
    "NodePool": "karpenter.sh/v1",
}


def import_karpenter(paths: Sequence[FilePath], catalog: Catalog | None = None) -> Imported:
    problems: list[Problem] = []
    origins = [one for path in dict.fromkeys(paths) for one in _origins(path, problems)]
    classes = {one.name: one for one in origins if one.kind in _NODE_CLASSES}
    headings: list[Heading] = []
    documents: list[LocatedDocument[Document]] = []
    for one in sorted(origins, key=lambda each: each.kind == "NodePool"):  # classes first
        parsed = _document(one, classes)
        document = validated(parsed)
        problems += [*one.problems, *parsed.problems]
        headings += heading(parsed)
        documents += [document] if document else []
    problems += _across(documents, headings, catalog if catalog is not None else shipped.load())
    failed = any(problem.severity == "error" for problem in problems) or not documents
    if not documents and not problems:
        problems.append(
            Problem(str(paths[0]), 1, 1, "there is neither a NodePool nor a node class in it", "document")
        )
    return Imported("" if failed else _text(documents, paths), tuple(sorted(set(problems))))


def _origins(path: FilePath, problems: list[Problem]) -> Iterator[Origin]:
    for parsed in read_file(path):
        problems += parsed.problems
        for data, at in _objects(parsed.data):
            one = Origin(parsed, data, at)
            if one.kind not in _KINDS:
                one.say(
                    (),
                    f"{quoted(one.kind or 'a document without kind')} is no NodePool and no node class",
                    "kind",
                )
                problems += one.problems
                continue
            version = data.get("apiVersion")
            if version != _VERSIONS[one.kind]:
                one.refuse(
                    ("apiVersion",),
                    f"{quoted(version)} is not {_VERSIONS[one.kind]}: only v1 is read",
                    "version",
                )
                problems += one.problems
                continue
            yield one


def _objects(data: Any) -> Iterator[tuple[dict[str, Any], tuple[str | int, ...]]]:
    """A List, as `kubectl get -o yaml` writes it, is what is in it."""
    if not isinstance(data, dict):
        return
    items = data.get("items")
    if str(data.get("kind")).endswith("List") and isinstance(items, list):
        for index, each in enumerate(items):
            if isinstance(each, dict):
                yield each, ("items", index)
    else:
        yield data, ()


def _document(one: Origin, classes: dict[str, Origin]) -> Parsed:
    """Positions inside are lost: whatever the rules say of it stands where the object begins."""
    if one.kind == "NodePool":
        kind, spec = "ComputePool", pool_spec(one, classes)
    else:
        kind, spec = "NodeClass", node_class_spec(one)
    one.tell_what_is_left()
    parsed = Parsed(one.file, start=one.parsed.at(one.at))
    parsed.data = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": one.name}, "spec": spec}
    return parsed


def _across(
    documents: list[LocatedDocument[Document]], headings: list[Heading], catalog: Catalog
) -> Iterator[Problem]:
    """A node class may be in a file that is imported another time."""
    for each in check(documents, headings, catalog):
        severity = "warning" if each.code == "reference" else each.severity
        yield Problem(each.file, each.line, each.column, each.message, each.code, severity)


def _text(documents: Sequence[LocatedDocument[Document]], paths: Sequence[FilePath]) -> str:
    names = ", ".join(path.name.encode("unicode_escape").decode() for path in paths)
    body = yaml.safe_dump_all(
        [each.parsed.data for each in documents], sort_keys=False, allow_unicode=True, explicit_start=True
    )
    return f"# Imported from the Karpenter objects in {names}.\n{body}"
