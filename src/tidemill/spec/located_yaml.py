"""YAML text to plain data in which every key and value knows its line and column.

It also reports what YAML 1.1 reads differently from what people mean: duplicate keys, `no` as false, `12:30` as 750,
`010` as 8, keys that are not text. Such a value stays the text it was, so that nothing is built on a misreading.
Timestamps stay text, so that a missing time zone can be reported. Knows nothing about kinds and models. A caller that
knows what local tags such as `!Ref` mean says so with `tags`; without it they are reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from tidemill.spec.problem import START, Position, Problem, quoted

# The C parser is 10x faster and ships in every PyYAML wheel; a source build may lack it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Bounds against aliases that multiply (a "billion laughs" file) and against deep nesting. The largest
# document a person writes has some thousand values in a dozen levels.
MAX_VALUES = 200_000
MAX_DEPTH = 50

Path = tuple[str | int, ...]


# What a local tag makes of the value behind it: `!Ref Vpc` -> {"Ref": "Vpc"}.
Tags = Callable[[str, Any], Any]


class _UnreadableError(Exception):
    """The rest of the document cannot be read; the problem is already reported."""


@dataclass(slots=True)
class ParsedYaml:
    """One YAML document: the data, the position of each part, and the source text of its scalars."""

    file: str
    data: Any = None
    start: Position = START
    keys: dict[Path, Position] = field(default_factory=dict)
    values: dict[Path, Position] = field(default_factory=dict)
    source_text: dict[Path, str] = field(default_factory=dict)
    spans: dict[Path, tuple[int, int]] = field(
        default_factory=dict
    )  # where a value begins and ends in the text
    problems: list[Problem] = field(default_factory=list)
    reported: frozenset[Position] = frozenset()  # positions that already have a problem

    def at(self, path: Path) -> Position:
        """The position of a value; where nothing is written, of the nearest value around it."""
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


def parse(text: str, file: str, tags: Tags | None = None) -> Iterator[ParsedYaml]:
    """Every document of a text. A syntax error ends the iteration; the documents before it are still given."""
    if too_deep := _too_deep(text, file):
        yield ParsedYaml(file, problems=[too_deep])
        return
    try:
        nodes: Iterator[yaml.Node | None] = yaml.compose_all(text, Loader=_Loader)
        for node in nodes:
            if node is not None and not _is_null(node):
                yield _built(node, file, tags)
    except yaml.YAMLError as error:
        yield ParsedYaml(file, problems=[_syntax_problem(error, text, file)])


def _too_deep(text: str, file: str) -> Problem | None:
    """Composing recurses in C and crashes the process on very deep nesting; parsing to events does not recurse."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_Loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                at = event.start_mark
                assert at is not None
                message = f"nested more than {MAX_DEPTH} levels deep"
                return Problem(file, at.line + 1, at.column + 1, message, "size")
    except yaml.YAMLError:
        pass  # reported when the text is composed, after the documents before it
    return None


def _is_null(node: yaml.Node) -> bool:
    """`---` with nothing after it, which templates produce."""
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
    return Problem(file, line, column, "not valid YAML: a character that YAML does not allow", "syntax")


def _built(node: yaml.Node, file: str, tags: Tags | None) -> ParsedYaml:
    parsed = ParsedYaml(file, start=_position(node))
    try:
        parsed.data = _Builder(parsed, _kind_of(node), tags).value(node, ())
    except _UnreadableError:
        parsed.data = None
    return parsed


def _kind_of(node: yaml.Node) -> str:
    """The document's kind. Messages about a path need it before the document has been read."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == "kind" and isinstance(value, yaml.ScalarNode):
                return str(value.value)
    return ""


def _position(node: yaml.Node) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)


def path_text(root: str, path: Path) -> str:
    """`ComputePool.spec.taints[0]`"""
    text = root
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the document"


class _Builder:
    """Builds the data of one document, with positions and problems."""

    def __init__(self, parsed: ParsedYaml, root: str, tags: Tags | None = None) -> None:
        self.parsed = parsed
        self.root = root
        self.tags = tags
        self.visited = 0
        self.ancestors: set[int] = set()

    def note(self, node: yaml.Node, message: str, code: str) -> None:
        line, column = _position(node)
        self.parsed.problems.append(Problem(self.parsed.file, line, column, message, code))

    def count(self, node: yaml.Node) -> None:
        self.visited += 1
        if self.visited > MAX_VALUES:
            self.note(
                node, f"expands to more than {MAX_VALUES} values; remove aliases that contain aliases", "size"
            )
            raise _UnreadableError

    def value(self, node: yaml.Node, path: Path) -> Any:
        self.count(node)
        self.parsed.values[path] = _position(node)
        self.parsed.spans[path] = (node.start_mark.index, node.end_mark.index)
        if self.tags is not None and node.tag.startswith("!"):
            return self.tagged(node, path, self.tags)
        if isinstance(node, yaml.ScalarNode):
            self.parsed.source_text[path] = node.value
            reading = read_scalar(node.tag, node.value)
            if reading.message:
                self.note(node, reading.message, reading.code)
            return reading.value
        return self.collection(node, path)

    def tagged(self, node: yaml.Node, path: Path, tags: Tags) -> Any:
        """A value behind a local tag, which is a string, a list or a mapping whatever its text looks like."""
        tag = node.tag
        kinds = {yaml.ScalarNode: "str", yaml.SequenceNode: "seq", yaml.MappingNode: "map"}
        node.tag = TAG + kinds[type(node)]
        try:
            return tags(tag, self.value(node, path))
        finally:
            node.tag = tag

    def collection(self, node: yaml.Node, path: Path) -> Any:
        if id(node) in self.ancestors:
            self.note(node, "an alias inside this value refers to the value itself", "alias")
            raise _UnreadableError
        if len(path) > MAX_DEPTH:
            self.note(node, f"nested more than {MAX_DEPTH} levels deep", "size")
            raise _UnreadableError
        if node.tag not in (f"{TAG}map", f"{TAG}seq"):
            self.note(node, f"the tag {quoted(node.tag)} is not supported; remove it", "tag")
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
                    f"duplicate key {quoted(key)} in {path_text(self.root, path)};"
                    f" first given at {first.line}:{first.column}",
                    "duplicate-key",
                )
        return data

    def pairs(
        self, node: yaml.MappingNode, trail: frozenset[int]
    ) -> Iterator[tuple[yaml.Node, yaml.Node, bool]]:
        """A mapping's own pairs, then those that `<<` merges in: its own keys take precedence."""
        if id(node) in trail:
            self.note(node, "an alias inside this value refers to the value itself", "alias")
            raise _UnreadableError
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
        self.note(node, "'<<' must be a mapping or a list of mappings", "alias")
        return []

    def key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            self.note(node, "a key must be text, not a list or a mapping", "key")
            return f"<{node.start_mark.line + 1}:{node.start_mark.column + 1}>"
        if node.tag != f"{TAG}str" and not node.tag.endswith(("timestamp", "value")):
            kind = {"bool": "a boolean", "null": "null"}.get(node.tag.removeprefix(TAG), "a number")
            self.note(node, f"the key {quoted(node.value)} is read as {kind}; put it in quotes", "key")
        return str(node.value)


TAG = "tag:yaml.org,2002:"
_BOOLEANS = {"true": True, "false": False}
_YAML_1_1 = {"yes": "true", "on": "true", "no": "false", "off": "false"}


class Scalar(NamedTuple):
    value: Any
    message: str = ""
    code: str = ""


def read_scalar(tag: str, text: str) -> Scalar:
    match tag.removeprefix(TAG):
        case "str" | "timestamp" | "value" | "merge":
            return Scalar(text)  # timestamps stay text: whether a zone was written must not get lost
        case "null":
            return Scalar(None)
        case "bool":
            return _boolean(text)
        case "int":
            return _integer(text)
        case "float":
            return _base_60(text) if ":" in text else _number(text, float)
    return Scalar(text, f"the tag {quoted(tag)} is not supported; remove it", "tag")


def _boolean(text: str) -> Scalar:
    if text.lower() in _BOOLEANS:
        return Scalar(_BOOLEANS[text.lower()])
    meaning = _YAML_1_1.get(text.lower())
    if meaning is None:
        return Scalar(text, f"{quoted(text)} is neither true nor false", "bare-boolean")
    complaint = f"YAML reads a bare {quoted(text)} as {meaning}; write {meaning}, or put the word in quotes"
    return Scalar(text, complaint, "bare-boolean")


def _integer(text: str) -> Scalar:
    digits = text.replace("_", "").lstrip("+-")
    if ":" in digits:
        return _base_60(text)
    if len(digits) > 1 and digits[0] == "0" and digits.isdigit():
        complaint = f"YAML reads {quoted(text)} as octal; drop the leading zero or put it in quotes"
        return Scalar(text, complaint, "octal")
    return _number(text, lambda plain: int(plain, 0))


def _base_60(text: str) -> Scalar:
    complaint = (
        f"YAML reads {quoted(text)} as a number in base 60; put it in quotes,"
        " or write a duration such as '12h30m'"
    )
    return Scalar(text, complaint, "base-60")


def _number(text: str, convert: Callable[[str], float]) -> Scalar:
    try:
        number = convert(text.replace("_", ""))
        if math.isfinite(number):
            return Scalar(number)
    except (ValueError, OverflowError):  # .inf, .nan, !!int x, thousands of digits
        pass
    return Scalar(text, f"{quoted(text)} is not a finite number", "number")
