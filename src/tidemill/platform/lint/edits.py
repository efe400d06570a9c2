"""Fixes as edits of a text by position: comments, order and spelling of everything else stay as they are.

An edit is only made where the text at a position is what was read there. `fixed` applies edits from the end to the
beginning, and leaves out what overlaps: a second run finds it again.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence

from tidemill.platform.lint.finding import Edit, Finding
from tidemill.platform.lint.sources import Located
from tidemill.spec.located_yaml import Path


def replaced(located: Located, path: Path, old: str, new: str) -> tuple[Edit, ...]:
    """Inside the scalar at a path, `old` becomes `new`, once or more often; nothing where the text has it otherwise."""
    span = _own_span(located, (*located.at, *path))
    if span is None:
        return ()
    starts = [found.start() for found in re.finditer(re.escape(old), located.source.text[slice(*span)])]
    return tuple(Edit(span[0] + start, span[0] + start + len(old), new) for start in starts)


def overwritten(located: Located, path: Path, new: str) -> tuple[Edit, ...]:
    """The scalar at a path becomes `new`; its quotes stay. Nothing where it is more than a plain or quoted word."""
    full = (*located.at, *path)
    span = _own_span(located, full)
    if span is None or full not in located.parsed.source_text:
        return ()
    written, value = located.source.text[slice(*span)], located.parsed.source_text[full]
    for quote in ("", '"', "'"):
        if written == f"{quote}{value}{quote}":
            return (Edit(*span, f"{quote}{new}{quote}"),)
    return ()


def added(located: Located, path: Path, key: str, value: str | bool) -> tuple[Edit, ...]:
    """`key: value` as a new first entry of the mapping at a path. Missing mappings around it are added too."""
    missing: list[str] = []
    while path and not isinstance(located.get(*path), dict):
        if located.get(*path) is not None or not isinstance(path[-1], str):
            return ()  # something else stands there
        missing.insert(0, path[-1])
        path = path[:-1]
    full = (*located.at, *path)
    keys = [at for at in located.parsed.keys if at[:-1] == full]
    span, text = _own_span(located, full), located.source.text
    if not keys or span is None:
        return ()
    if text[span[0]] == "{":
        offset = span[0] + 1
        quote = '"' if located.source.file.endswith(".json") or text[offset:].lstrip()[:1] == '"' else ""
        entry = _in_braces([*missing, key], value, quote)
        return (Edit(offset, offset, f"{entry}, "),)
    offset = span[0]
    column = located.parsed.values[full].column - 1
    lines = [f"{name}:" for name in missing] + [f"{key}: {_scalar(value)}"]
    return (
        _before_comments(text, offset, column, [("  " * depth) + line for depth, line in enumerate(lines)]),
    )


def _before_comments(text: str, offset: int, column: int, lines: Sequence[str]) -> Edit:
    """New lines before a block mapping, above the comments that belong to its first key."""
    start = text.rfind("\n", 0, offset) + 1
    indent, end = " " * column, "\r\n" if "\r\n" in text else "\n"
    if text[start:offset].strip():  # `- key: value`: the mapping begins behind a dash
        return Edit(offset, offset, "".join(f"{line}{end}{indent}" for line in lines))
    while start:
        before = text.rfind("\n", 0, start - 1) + 1
        line = text[before:start]
        if not line.strip().startswith("#") or len(line) - len(line.lstrip()) != column:
            break
        start = before
    return Edit(start, start, "".join(f"{indent}{line}{end}" for line in lines))


def _in_braces(keys: Sequence[str], value: str | bool, quote: str) -> str:
    written = json.dumps(value) if quote else _scalar(value)
    for name in reversed(keys[1:]):
        written = f"{{{quote}{name}{quote}: {written}}}"
    return f"{quote}{keys[0]}{quote}: {written}"


def _scalar(value: str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else value


def _own_span(located: Located, full: Path) -> tuple[int, int] | None:
    """None of what an alias repeats elsewhere: an edit would change every place."""
    span = located.parsed.spans.get(full)
    if span is None or located.source.text[span[0] : span[0] + 1] in ("&", "*", "!"):
        return None
    return span if sum(each == span for each in located.parsed.spans.values()) == 1 else None


# --- applying -------------------------------------------------------------------------------------


def fixed(text: str, findings: Iterable[Finding]) -> str:
    """The text with the edits of these findings. Of edits that overlap only the first is made."""
    edits: list[Edit] = []
    for edit in sorted({edit for finding in findings for edit in finding.edits}):
        if not edits or edit.start >= edits[-1].end:
            edits.append(edit)
    for edit in reversed(edits):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


_PASSWORD = re.compile(r"(rediss?://)[^\s\"'@/]*@")


def diff(file: str, before: str, after: str) -> str:
    """A unified diff. Passwords in URLs are hidden: a diff goes to terminals and logs."""
    lines = difflib.unified_diff(
        _PASSWORD.sub(r"\1***@", before).splitlines(keepends=True),
        _PASSWORD.sub(r"\1***@", after).splitlines(keepends=True),
        f"a/{file}",
        f"b/{file}",
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
