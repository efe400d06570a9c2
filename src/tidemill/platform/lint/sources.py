"""Files to located objects: what is in a file, of which kind, and where each part of it stands.

YAML and JSON are read alike. CloudFormation's short tags (`!Ref`) become their long form. A Helm template is text, not
YAML. A document of a kind that no rule knows is reported as skipped; a file that is not text or not YAML as unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import PurePath
from typing import Any

from tidemill.platform.lint.finding import Edit, Finding, NotLinted, NotLintedReason
from tidemill.spec.located_yaml import ParsedYaml, Path, parse
from tidemill.spec.names import GROUP
from tidemill.spec.problem import Severity
from tidemill.spec.read import MAX_FILE_BYTES
from tidemill.wording.traps import TRAPS


class Kind(Enum):
    OURS = auto()
    KUBERNETES = auto()
    CLOUDFORMATION = auto()
    VALUES = auto()  # of a Helm chart
    CHART = auto()  # Chart.yaml


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """A mapping in a file, and its path there. Reading never fails: what is not there, or of another type, is None."""

    source: Source
    parsed: ParsedYaml
    data: dict[str, Any]
    at: Path = ()

    def get(self, *path: str | int) -> Any:
        value: Any = self.data
        for part in path:
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, list) and isinstance(part, int) and part < len(value):
                value = value[part]
            else:
                return None
        return value

    def text(self, *path: str | int) -> str:
        """The value as text; empty where there is none, or no scalar."""
        value = self.get(*path)
        return "" if value is None or isinstance(value, dict | list) else str(value)

    def mapping(self, *path: str | int) -> dict[str, Any]:
        value = self.get(*path)
        return value if isinstance(value, dict) else {}

    def items(self, *path: str | int) -> list[Any]:
        value = self.get(*path)
        return value if isinstance(value, list) else []

    def inside(self, *path: str | int) -> Located | None:
        value = self.get(*path)
        return (
            Located(self.source, self.parsed, value, (*self.at, *path)) if isinstance(value, dict) else None
        )

    @property
    def kind(self) -> str:
        return self.text("kind")

    @property
    def name(self) -> str:
        return self.text("metadata", "name")

    def place(self, *path: str | int) -> str:
        line, column = self.parsed.at((*self.at, *path))
        return f"{self.parsed.file}:{line}:{column}"

    def finding(
        self,
        rule: str,
        path: Path,
        message: str,
        *,
        fix: str = "",
        edits: tuple[Edit, ...] = (),
        elsewhere: tuple[str, ...] = (),
        severity: Severity | None = None,
    ) -> Finding:
        """Of the value at a path; where nothing is written, of what is around it. `fix`: else the trap's."""
        line, column = self.parsed.at((*self.at, *path))
        trap = TRAPS[rule]
        return Finding(
            self.parsed.file,
            line,
            column,
            rule,
            message,
            fix or trap.fix,
            severity or trap.severity,
            edits,
            elsewhere,
        )


@dataclass(slots=True, eq=False)
class Source:
    """One file: its text, and what is in it."""

    file: str
    text: str = ""
    objects: list[tuple[Kind, Located]] = field(default_factory=list)
    documents: list[ParsedYaml] = field(default_factory=list)  # those of ours, for the rules of `validate`
    is_template: bool = False  # of a Helm chart: text with {{ }}
    not_linted: list[NotLinted] = field(default_factory=list)

    @property
    def may_be_fixed(self) -> bool:
        """A file that was not understood to its end is never edited."""
        return not any(each.reason == "unreadable" for each in self.not_linted)

    def leave_out(self, reason: NotLintedReason, message: str, line: int = 1, column: int = 1) -> None:
        self.not_linted.append(NotLinted(self.file, line, column, reason, message))


def read_source(file: str, content: bytes) -> Source:
    source = Source(file)
    if len(content) > MAX_FILE_BYTES:
        source.leave_out("unreadable", f"is larger than {MAX_FILE_BYTES // 2**20} MiB")
        return source
    try:
        source.text = content.decode("utf-8")
    except UnicodeDecodeError:
        source.leave_out("unreadable", "is not UTF-8 text")
        return source
    _read(source)
    return source


# In a template {{ }} stands where YAML would be; in YAML it stands inside quotes or a block of text.
_BARE_ACTION = re.compile(r"(^|[:-][ \t])[ \t]*\{\{", re.MULTILINE)


def _read(source: Source) -> None:
    text = source.text.removeprefix("\ufeff")
    if source.file.endswith(".json"):
        text = text.replace("\t", " ")  # YAML allows no tabs; one for one, so that every position stays
    parsed = [_shifted(each, source.text) for each in parse(text, source.file, cloudformation_tag)]
    broken = [each for each in parsed if each.data is None and each.problems]
    odd_keys = any(problem.code == "key" for each in parsed for problem in each.problems)
    if (broken or odd_keys) and _BARE_ACTION.search(text):
        source.is_template = True
        return
    for each in broken:
        problem = each.problems[-1]
        source.leave_out("unreadable", problem.message, problem.line, problem.column)
    for each in parsed:
        if each.data is not None:
            _classify(source, each)
    if not parsed:
        source.leave_out("skipped", "is empty")


def _shifted(parsed: ParsedYaml, text: str) -> ParsedYaml:
    """Positions in the text of the file, which may begin with a byte order mark."""
    if text.startswith("\ufeff"):
        parsed.spans = {path: (start + 1, end + 1) for path, (start, end) in parsed.spans.items()}
    return parsed


def cloudformation_tag(tag: str, value: Any) -> Any:
    """`!Ref Vpc` -> {"Ref": "Vpc"}, `!GetAtt A.B` -> {"Fn::GetAtt": ["A", "B"]}."""
    name = tag.removeprefix("!")
    if name in ("Ref", "Condition"):
        return {name: value}
    if name == "GetAtt" and isinstance(value, str):
        return {"Fn::GetAtt": value.split(".", 1)}
    return {f"Fn::{name}": value}


def _classify(source: Source, parsed: ParsedYaml) -> None:
    data = parsed.data
    known = False
    if isinstance(data, dict):
        for located in _objects(Located(source, parsed, data)):
            kind = _kind_of(located)
            if kind is not None:
                known = True
                source.objects.append((kind, located))
    elif isinstance(data, list):  # a JSON list of objects, as some tools print
        for index, item in enumerate(data):
            if isinstance(item, dict) and item.get("apiVersion") and item.get("kind"):
                known = True
                source.objects.append((Kind.KUBERNETES, Located(source, parsed, item, (index,))))
    if not known:
        line, column = parsed.start
        source.leave_out(
            "skipped",
            "neither a whole document of Tidemill, a Kubernetes object, Helm values nor a CloudFormation template",
            line,
            column,
        )


def _objects(located: Located) -> Iterator[Located]:
    """The document itself, or the items of a List as `kubectl get -o yaml` prints it."""
    if located.kind.endswith("List") and isinstance(located.get("items"), list):
        for index in range(len(located.items("items"))):
            if (item := located.inside("items", index)) is not None:
                yield item
    else:
        yield located


def _kind_of(located: Located) -> Kind | None:
    data = located.data
    version, kind = data.get("apiVersion"), data.get("kind")
    if isinstance(version, str) and isinstance(kind, str):
        if version.partition("/")[0] != GROUP:
            return Kind.KUBERNETES
        if located.at:
            return None  # the rules read whole documents, as people write them
        located.source.documents.append(located.parsed)
        return Kind.OURS
    resources = data.get("Resources")
    if isinstance(resources, dict) and any(
        isinstance(each, dict) and isinstance(each.get("Type"), str) and "::" in each["Type"]
        for each in resources.values()
    ):
        return Kind.CLOUDFORMATION
    name = PurePath(located.parsed.file).name
    if name == "Chart.yaml" and isinstance(data.get("name"), str):
        return Kind.CHART
    if re.search(r"(^|[-._])values([-._].*)?\.ya?ml$", name) or _looks_like_values(located):
        return Kind.VALUES
    return None


# Keys by which the values of a chart are known without the file's name: all of one line must be there.
_SHAPES = (
    ("harmony", "computePools"),
    ("migStrategy",),
    ("mofedEnabled",),
    ("deviceListStrategy",),
    ("devicePlugin", "toolkit"),
    ("devicePlugin", "driver"),
    ("devicePlugin", "dcgmExporter"),
    ("devicePlugin", "gfd"),
    ("supportedInstanceLabels",),
    ("settings", "clusterName"),
    ("controlPlane", "harmony"),
)


def _looks_like_values(located: Located) -> bool:
    nested = ("harmony", "settings")
    return any(
        located.get(*shape) is not None if shape[0] in nested else all(key in located.data for key in shape)
        for shape in _SHAPES
    )


# --- comments that silence a rule -----------------------------------------------------------------

_IGNORE = re.compile(r"tidemill-lint:\s*ignore(?P<file>-file)?\s+(?P<rules>TR-\d+(?:\s*,\s*TR-\d+)*)")


def ignored_rules(text: str) -> tuple[frozenset[str], dict[int, frozenset[str]]]:
    """Rules that comments silence: in the whole file, and by line. A comment on a line of its own is for the next line
    that is no comment."""
    whole: set[str] = set()
    by_line: dict[int, set[str]] = {}
    waiting: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        here: set[str] = set()
        for found in _IGNORE.finditer(line):
            rules = {rule.strip() for rule in found["rules"].split(",")}
            (whole if found["file"] else here).update(rules)
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", "{{/*", "{{- /*")):
            waiting |= here
            continue
        if here or waiting:
            by_line[number] = here | waiting
        waiting = set()
    return frozenset(whole), {line: frozenset(rules) for line, rules in by_line.items()}
