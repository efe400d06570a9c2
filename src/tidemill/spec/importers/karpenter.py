"""Karpenter's NodePools and node classes, turned into ComputePool and NodeClass documents.

A field that our documents have is carried over. Every other field gets a warning at its position, so that nothing is
lost unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path as FilePath
from typing import Any

from tidemill import catalog as shipped
from tidemill.catalog import Catalog
from tidemill.spec.check import check
from tidemill.spec.check.document_set import Heading, LocatedDocument
from tidemill.spec.document import Document
from tidemill.spec.importers import Imported, imported, missing_references_are_warnings
from tidemill.spec.importers.karpenter_specs import node_class_spec, pool_spec
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
    problems: list[Problem] = []
    manifests = [manifest for path in dict.fromkeys(paths) for manifest in _manifests(path, problems)]
    classes = {manifest.name: manifest for manifest in manifests if manifest.kind in _NODE_CLASSES}
    headings: list[Heading] = []
    documents: list[LocatedDocument[Document]] = []
    for manifest in sorted(manifests, key=lambda manifest: manifest.kind == "NodePool"):  # classes first
        parsed = _document(manifest, classes)
        document = validate(parsed)
        problems += [*manifest.problems, *parsed.problems]
        headings += heading(parsed)
        documents += [document] if document else []
    rules = check(documents, headings, catalog if catalog is not None else shipped.load())
    problems += missing_references_are_warnings(rules)
    if not documents and not problems:
        message = "the file has neither a NodePool nor a node class"
        problems.append(Problem(str(paths[0]), 1, 1, message, "document"))
    if not documents:
        return Imported("", tuple(sorted(set(problems))))
    return imported(documents, problems, what="Karpenter objects", paths=paths)


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


def _document(manifest: Manifest, classes: dict[str, Manifest]) -> ParsedYaml:
    """Positions inside the object are lost: what the rules report gets the position where the object begins."""
    if manifest.kind == "NodePool":
        kind, spec = "ComputePool", pool_spec(manifest, classes)
    else:
        kind, spec = "NodeClass", node_class_spec(manifest)
    manifest.warn_about_unread()
    parsed = ParsedYaml(manifest.file, start=manifest.parsed.at(manifest.at))
    parsed.data = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": manifest.name}, "spec": spec}
    return parsed
