"""Karpenter's NodePools and node classes, turned into ComputePool and NodeClass documents.

A field that our documents have is carried over. Every other field gets a warning at its position, so that nothing is
lost unnoticed. An object that cannot be converted is left out with its errors; the others are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path as FilePath
from typing import Any

from tidemill import catalog as shipped
from tidemill.catalog import Catalog
from tidemill.spec.check import check
from tidemill.spec.check.document_set import LocatedDocument
from tidemill.spec.document import Document
from tidemill.spec.importers import Imported, errors, imported, missing_references_are_warnings
from tidemill.spec.importers.karpenter_node_class import node_class_spec
from tidemill.spec.importers.karpenter_pool import pool_spec
from tidemill.spec.importers.manifest import Manifest
from tidemill.spec.located_yaml import ParsedYaml
from tidemill.spec.names import API_VERSION
from tidemill.spec.problem import Problem, quoted
from tidemill.spec.read import heading, read_file, validate

_NODE_CLASSES = ("EC2NodeClass", "NodeClass")
_KINDS = (*_NODE_CLASSES, "NodePool")
_VERSIONS = {
    "EC2NodeClass": "karpenter.k8s.aws/v1",
    "NodeClass": "eks.amazonaws.com/v1",
    "NodePool": "karpenter.sh/v1",
}


def import_karpenter(paths: Sequence[FilePath], catalog: Catalog | None = None) -> Imported:
    """What cannot be converted is left out, with its errors; the rest is written."""
    catalog = catalog if catalog is not None else shipped.load()
    problems: list[Problem] = []
    manifests = [manifest for path in dict.fromkeys(paths) for manifest in _manifests(path, problems)]
    classes = {manifest.name: manifest for manifest in manifests if manifest.kind in _NODE_CLASSES}
    documents: dict[str, LocatedDocument[Document]] = {}
    left_out: list[str] = []
    for manifest in sorted(manifests, key=lambda manifest: manifest.kind == "NodePool"):  # classes first
        parsed = _document(manifest, classes, catalog)
        document = validate(parsed)
        problems += parsed.problems
        title = f"{manifest.kind} {manifest.name}"
        if document is None or errors([*manifest.problems, *parsed.problems]) or title in documents:
            left_out.append(title)
        else:
            documents[title] = document
    for manifest in manifests:  # last: a pool reads its class too
        problems += manifest.problems
    problems += _checked(documents, left_out, catalog)
    if not documents and not problems:
        message = "the file has neither a NodePool nor a node class"
        problems.append(Problem(str(paths[0]), 1, 1, message, "document"))
    return imported(
        list(documents.values()), problems, what="Karpenter objects", paths=paths, left_out=left_out
    )


def _checked(
    documents: dict[str, LocatedDocument[Document]], left_out: list[str], catalog: Catalog
) -> list[Problem]:
    """What the rules say of all documents together. One with an error is left out, and the others are checked again."""
    problems: list[Problem] = []
    while True:
        headings = [part for one in documents.values() for part in heading(one.parsed)]
        found = list(missing_references_are_warnings(check(list(documents.values()), headings, catalog)))
        wrong = {(problem.file, problem.line, problem.column) for problem in errors(found)}
        bad = [title for title, one in documents.items() if (one.parsed.file, *one.parsed.at(())) in wrong]
        if not bad:
            if wrong:  # an error that is of none of them: better nothing than something wrong
                left_out += documents
                documents.clear()
            return problems + found
        problems += errors(found)
        for title in bad:
            del documents[title]
            left_out.append(title)


def _manifests(path: FilePath, problems: list[Problem]) -> Iterator[Manifest]:
    for parsed in read_file(path):
        problems += parsed.problems
        for data, at in _objects(parsed.data):
            manifest = Manifest(parsed, data, at)
            if manifest.kind not in _KINDS:
                kind = quoted(manifest.kind) if manifest.kind else "a document without 'kind'"
                manifest.warn((), f"{kind} is neither a NodePool nor a node class; it is left out", "kind")
                problems += manifest.problems
                continue
            version = data.get("apiVersion")
            if version != _VERSIONS[manifest.kind]:
                manifest.error(
                    ("apiVersion",),
                    f"apiVersion {quoted(version)} cannot be read; convert it to {_VERSIONS[manifest.kind]}",
                    "version",
                )
                problems += manifest.problems
                continue
            yield manifest


def _objects(data: Any) -> Iterator[tuple[dict[str, Any], tuple[str | int, ...]]]:
    """The objects and their paths: the document itself, or the items of a List as `kubectl get -o yaml` writes it."""
    if not isinstance(data, dict):
        return
    items = data.get("items")
    if str(data.get("kind")).endswith("List") and isinstance(items, list):
        for index, item in enumerate(items):
            if isinstance(item, dict):
                yield item, ("items", index)
    else:
        yield data, ()


def _document(manifest: Manifest, classes: dict[str, Manifest], catalog: Catalog) -> ParsedYaml:
    """Positions inside the object are lost: what the rules report gets the position where the object begins."""
    if manifest.kind == "NodePool":
        kind, spec = "ComputePool", pool_spec(manifest, classes, catalog)
    else:
        kind, spec = "NodeClass", node_class_spec(manifest)
    manifest.warn_about_unread()
    parsed = ParsedYaml(manifest.file, start=manifest.parsed.at(manifest.at))
    parsed.data = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": manifest.name}, "spec": spec}
    return parsed
