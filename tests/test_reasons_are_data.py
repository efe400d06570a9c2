"""No program reads a sentence: the source neither compares nor searches what is written for people.

Looks at names and attributes such as `reason` or `message`. What a typed reason is asked for (`reason.kind`) is data.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "tidemill"
TEXTS = frozenset({"reason", "note", "message", "detail", "sentence", "why", "trouble"})
READING = frozenset(
    {
        "startswith", "endswith", "split", "rsplit", "splitlines", "partition", "rpartition", "find", "rfind", "index",
        "rindex", "count", "replace", "removeprefix", "removesuffix",
    }
)  # fmt: skip
SEARCHING = frozenset({"search", "match", "fullmatch", "findall", "finditer", "sub", "subn", "split"})
# Files that may, how often, and why.
ALLOWED: dict[str, tuple[int, str]] = {
    "aws/errors.py": (
        6,
        "the one table of AWS's errors: where AWS has no code of its own, its message is all there is",
    ),
    "aws/event_queue.py": (1, "`message` is a message of SQS, a dict"),
    "decide/context.py": (1, "compares typed reasons, so that an equal one keeps its object"),
    "controller/beside.py": (1, "logs each text once"),
    "controller/object_events.py": (2, "the reason of a Kubernetes Event is a word for programs"),
    "kube/errors.py": (5, "the reason of a Kubernetes status is a word for programs"),
    "kube/events.py": (1, "writes an Event again only where its note changed"),
    "kube/lease.py": (1, "logs each text once"),
    "kube/pods.py": (2, "the reason of a Kubernetes condition is a word for programs"),
    "kube/workload_checks.py": (1, "writes a check again only where its message changed"),
    "platform/lint/finding.py": (1, "why a file was not linted is a word of a closed set"),
    "platform/lint/sources.py": (1, "the same"),
    "provision/group_reconciler.py": (1, "logs each text once"),
    "provision/karpenter/reconciler.py": (1, "logs each text once"),
    "render/checklist_text.py": (1, "compares with the mark for a cluster that nobody named"),
    "render/lint_report.py": (2, "why a file was not linted is a word of a closed set"),
    "render/display_names.py": (1, "shows ids and instants the way people say them; decides nothing"),
    "sim/cluster/scheduler.py": (1, "writes a pod's status only where its message changed"),
    "sim/wire/event_bus.py": (2, "the detail of an AWS event is an object, not a text"),
    "store/migrations/versions/v0007_reasons.py": (3, "reads the old sentences once"),
}


def is_text(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in TEXTS
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return any(is_text(part) for part in parts)
    return False


def reads_a_text(node: ast.AST) -> bool:
    match node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [left, *others]
            by_identity = all(isinstance(op, ast.Is | ast.IsNot) for op in ops)
            return not by_identity and any(is_text(side) for side in sides)
        case ast.Call(func=ast.Attribute(value=value, attr=method), args=arguments):
            return (method in READING and is_text(value)) or (
                method in SEARCHING and any(is_text(argument) for argument in arguments)
            )
        case ast.Match(subject=subject, cases=cases) if is_text(subject):
            return any(isinstance(part, ast.MatchValue) for case in cases for part in ast.walk(case.pattern))
    return False


def readers(source: str) -> list[int]:
    """The lines that read a text."""
    return [getattr(node, "lineno", 0) for node in ast.walk(ast.parse(source)) if reads_a_text(node)]


def test_no_code_compares_or_searches_a_sentence() -> None:
    found = {
        str(path.relative_to(PACKAGE)): lines
        for path in sorted(PACKAGE.rglob("*.py"))
        if (lines := readers(path.read_text()))
    }
    assert {file: lines for file, lines in found.items() if file not in ALLOWED} == {}
    allowed = {file: count for file, (count, _) in ALLOWED.items()}
    assert {file: len(lines) for file, lines in found.items()} == allowed, (
        "more than allowed, or no longer needed"
    )


@pytest.mark.parametrize(
    "line",
    [
        'if "must be empty" in node.reason: pass',
        "intent.note == FAILED",
        'reason.startswith("drifted")',
        'name, text = sentence.split(": ")',
        're.search("i-.*", error.message)',
        "(told.code, told.reason) != (code, reason)",
        'match reason:\n    case "drifted": pass',
    ],
)
def test_given_code_that_reads_a_text_when_it_is_checked_then_it_is_found(line: str) -> None:
    assert readers(line) == [1]


@pytest.mark.parametrize(
    "line",
    [
        "reason.kind is DrainKind.EMPTY",
        "if reason is None: pass",
        'print(f"{reason}: {message}")',
        "kinds[reason.kind] == 1",
        "match reason:\n    case DrainReason(): pass",
    ],
)
def test_given_code_that_asks_for_a_kind_when_it_is_checked_then_nothing_is_found(line: str) -> None:
    assert not readers(line)
