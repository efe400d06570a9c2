"""YAML text to plain data in which every key and value knows its line and column.

One walk over the composed nodes builds the data and catches what YAML 1.1 does behind a writer's back:
duplicate keys, `no` read as false, `12:30` read as 750, `010` read as 8, keys that are not text. Timestamps
stay text, so that the zone (or its absence) survives. Knows nothing about kinds and models.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from tidemill.spec.problem import START, Position, Problem, quoted
from tidemill.spec.scalar import TAG, read_scalar

# The C parser is 10x faster and ships in every PyYAML wheel; a source build may lack it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Bounds against aliases that multiply (a "billion laughs" file) and against deep nesting. The largest
# document a person writes has some thousand values in a dozen levels.
MAX_VALUES = 200_000
MAX_DEPTH = 50

Path = tuple[str | int, ...]


class _HopelessError(Exception):
    """The document cannot be walked to its end; the problem has already been noted."""


@dataclass(slots=True)
class Parsed:
    """One YAML document: the data, where each part of it stands, and how its scalars were spelled."""

    file: str
    data: Any = None
    start: Position = START
    keys: dict[Path, Position] = field(default_factory=dict)
    values: dict[Path, Position] = field(default_factory=dict)
    spelled: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    told: frozenset[Position] = frozenset()  # places somebody has complained about already

    def at(self, path: Path) -> Position:
        """Where the value stands; where nothing is written, the nearest thing around it that is."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.values:
                return self.values[path[:length]]
        return self.start

    def at_key(self, path: Path) -> Position:
        return self.keys.get(path) or self.at(path)

    def known(self, path: Path) -> Path:
        """The part of a path that is written in the document."""
        while path and path not in self.values:
            path = path[:-1]
        return path


def parse(text: str, file: str) -> Iterator[Parsed]:
    """Every document of a text. A syntax error ends it; the documents before the error are still given."""
    if too_deep := _too_deep(text, file):
        yield Parsed(file, problems=[too_deep])
        return
    try:
        for node in yaml.compose_all(text, Loader=_Loader):
            if node is not None and not _is_null(node):
                yield _walked(node, file)
    except yaml.YAMLError as error:
        yield Parsed(file, problems=[_syntax_problem(error, text, file)])


def _too_deep(text: str, file: str) -> Problem | None:
    """Composing recurses in C, and too many levels end the process; parsing to events does not recurse."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_Loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                at = event.start_mark
                message = f"nested more than {MAX_DEPTH} levels deep"
                return Problem(file, at.line + 1, at.column + 1, message, "size")
    except yaml.YAMLError:
        pass  # told when the text is composed, after the documents before it
    return None


def _is_null(node: yaml.Node) -> bool:
    """`---` with nothing after it, which templates leave behind."""
    return node.tag == f"{TAG}null"


def _syntax_problem(error: yaml.YAMLError, text: str, file: str) -> Problem:
    if isinstance(error, yaml.MarkedYAMLError) and (mark := error.problem_mark or error.context_mark):
        context = f", {error.context}" if error.context else ""
        return Problem(
            file, mark.line + 1, mark.column + 1, f"not valid YAML: {error.problem}{context}", "syntax"
        )
    where = getattr(error, "position", None)  # ReaderError: a character YAML does not allow
    line, column = 1, 1
    if isinstance(where, int):
        before = text[:where]
        line, column = before.count("\n") + 1, where - (before.rfind("\n") + 1) + 1
    return Problem(file, line, column, "not valid YAML: a character that is not allowed in text", "syntax")


def _walked(node: yaml.Node, file: str) -> Parsed:
    parsed = Parsed(file, start=_position(node))
    try:
        parsed.data = _Walk(parsed, _kind_of(node)).value(node, ())
    except _HopelessError:
        parsed.data = None
    return parsed


def _kind_of(node: yaml.Node) -> str:
    """The document's kind, needed to name places in it before it has been read."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == "kind" and isinstance(value, yaml.ScalarNode):
                return str(value.value)
    return ""


def _position(node: yaml.Node) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)


def place(root: str, path: Path) -> str:
    """`ComputePool.spec.taints[0]`"""
    text = root
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the document"


class _Walk:
    """Builds the data of one document, noting positions and problems as it goes."""

    def __init__(self, parsed: Parsed, root: str) -> None:
        self.parsed = parsed
        self.root = root
        self.visited = 0
        self.ancestors: set[int] = set()

    def note(self, node: yaml.Node, message: str, code: str) -> None:
        line, column = _position(node)
        self.parsed.problems.append(Problem(self.parsed.file, line, column, message, code))

    def count(self, node: yaml.Node) -> None:
        self.visited += 1
        if self.visited > MAX_VALUES:
            self.note(
                node, f"expands to more than {MAX_VALUES} values; are there aliases in aliases?", "size"
            )
            raise _HopelessError

    def value(self, node: yaml.Node, path: Path) -> Any:
        self.count(node)
        self.parsed.values[path] = _position(node)
        if isinstance(node, yaml.ScalarNode):
            self.parsed.spelled[path] = node.value
            reading = read_scalar(node.tag, node.value)
            if reading.complaint:
                self.note(node, reading.complaint, reading.code)
            return reading.value
        return self.collection(node, path)

    def collection(self, node: yaml.Node, path: Path) -> Any:
        if id(node) in self.ancestors:
            self.note(node, "an alias in here refers to the value that contains it", "alias")
            raise _HopelessError
        if len(path) > MAX_DEPTH:
            self.note(node, f"nested more than {MAX_DEPTH} levels deep", "size")
            raise _HopelessError
        if node.tag not in (f"{TAG}map", f"{TAG}seq"):
            self.note(node, f"the tag {quoted(node.tag)} is not understood here", "tag")
        self.ancestors.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
            assert isinstance(node, yaml.MappingNode)
            return self.mapping(node, path)
        finally:
            self.ancestors.discard(id(node))

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node, own in self.pairs(node, frozenset()):
            key = self.key(key_node)
            if key not in data:
                self.parsed.keys[*path, key] = _position(key_node)
                data[key] = self.value(value_node, (*path, key))
            elif own:
                first = self.parsed.keys[*path, key]
                self.note(
                    key_node,
                    f"duplicate key {quoted(key)} in {place(self.root, path)};"
                    f" first given at {first.line}:{first.column}",
                    "duplicate-key",
                )
        return data

    def pairs(
        self, node: yaml.MappingNode, trail: frozenset[int]
    ) -> Iterator[tuple[yaml.Node, yaml.Node, bool]]:
        """A mapping's own pairs, then those its `<<` bring: what is written wins over what is merged in."""
        if id(node) in trail:
            self.note(node, "an alias in here refers to the value that contains it", "alias")
            raise _HopelessError
        merged: list[yaml.MappingNode] = []
        for key_node, value_node in node.value:
            if key_node.tag == f"{TAG}merge":
                merged += self.merge_sources(value_node)
            else:
                yield key_node, value_node, not trail
        for source in merged:
            self.count(source)
            for key_node, value_node, _ in self.pairs(source, trail | {id(node)}):
                yield key_node, value_node, False

    def merge_sources(self, node: yaml.Node) -> list[yaml.MappingNode]:
        if isinstance(node, yaml.MappingNode):
            return [node]
        if isinstance(node, yaml.SequenceNode) and all(isinstance(n, yaml.MappingNode) for n in node.value):
            return list(node.value)
        self.note(node, "'<<' merges a mapping or a list of mappings, and this is neither", "alias")
        return []

    def key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            self.note(node, "a key must be text, and this one is a list or a mapping", "key")
            return f"<{node.start_mark.line + 1}:{node.start_mark.column + 1}>"
        if node.tag != f"{TAG}str" and not node.tag.endswith(("timestamp", "value")):
            kind = {"bool": "a boolean", "null": "null"}.get(node.tag.removeprefix(TAG), "a number")
            self.note(node, f"the key {quoted(node.value)} is read as {kind}; put it in quotes", "key")
        return str(node.value)
