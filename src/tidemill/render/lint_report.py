"""The linter's report as text, JSON and SARIF 2.1.0, and its rules as text and as docs/reference/lint.md."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from tidemill import __version__
from tidemill.platform.lint.finding import Finding, NotLinted, Report, counts
from tidemill.wording.traps import TRAPS, Trap

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

# --- text -------------------------------------------------------------------------------------------


def text(report: Report) -> str:
    """Each finding with its fix; why a rule bites is said at its first finding."""
    told: set[str] = set()
    lines: list[str] = []
    for finding in report.findings:
        lines.append(f"{_place(finding)}: {finding.severity} {finding.rule}: {finding.message}")
        trap = TRAPS[finding.rule]
        if finding.rule not in told:
            told.add(finding.rule)
            lines.append(f"  why: {trap.why} [{trap.source}; {trap.seen}]")
        lines.append(f"  fix: {finding.fix}{' (--fix does it)' if finding.edits else ''}")
        lines += [f"  see: {place}" for place in finding.elsewhere]
    lines += [f"{_place(each)}: {each.reason}: {each.message}" for each in report.not_linted]
    return "\n".join([*lines, summary(report)])


def summary(report: Report) -> str:
    found = counts(report.findings)
    parts = [_counted(number, severity) for severity, number in found.items() if number] or ["no traps"]
    fixable = sum(bool(finding.edits) for finding in report.findings)
    sentence = f"{', '.join(parts)} in {_counted(len(report.linted), 'file')}"
    if fixable:
        sentence += f"; {fixable} can be fixed with --fix"
    for reason in ("skipped", "unreadable", "unchecked"):
        number = len({each.file for each in report.not_linted if each.reason == reason})
        sentence += f"; {number} {reason}" if number else ""
    return sentence + (f"; {len(report.suppressed)} suppressed" if report.suppressed else "")


def _place(thing: Finding | NotLinted) -> str:
    return f"{thing.file}:{thing.line}:{thing.column}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def rule_list() -> str:
    width = max(map(len, TRAPS))
    return "\n".join(
        f"{trap.id:<{width}}  {trap.severity:<7}  {'--fix' if trap.safe_fix else '     '}  {trap.title}"
        for trap in TRAPS.values()
    )


def explanation(trap: Trap) -> str:
    return "\n".join(
        [
            f"{trap.id}: {trap.title} ({trap.severity})",
            "",
            trap.why,
            "",
            f"fix:     {trap.fix}",
            f"--fix:   {trap.safe_fix or 'nothing: a person must decide'}",
            f"found in: {trap.where}",
            f"source:  {trap.source}; {trap.seen}",
        ]
    )


# --- JSON -------------------------------------------------------------------------------------------


def as_json(report: Report) -> dict[str, Any]:
    return {
        "ok": not report.findings and report.complete,
        "findings": [_json_finding(finding) for finding in report.findings],
        "not_linted": [
            {
                "file": each.file,
                "line": each.line,
                "column": each.column,
                "reason": each.reason,
                "message": each.message,
            }
            for each in report.not_linted
        ],
        "files": list(report.linted),
        "suppressed": len(report.suppressed),
    }


def _json_finding(finding: Finding) -> dict[str, Any]:
    trap = TRAPS[finding.rule]
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "file": finding.file,
        "line": finding.line,
        "column": finding.column,
        "message": finding.message,
        "why": trap.why,
        "source": trap.source,
        "source_date": trap.seen,
        "fix": finding.fix,
        "fixable": bool(finding.edits),
        "see": list(finding.elsewhere),
    }


# --- SARIF ------------------------------------------------------------------------------------------


def sarif(report: Report, only: Collection[str] = ()) -> dict[str, Any]:
    """One run. `only`: the rules that were asked for; empty: all."""
    rules = [trap for trap in TRAPS.values() if not only or trap.id in only]
    index = {trap.id: number for number, trap in enumerate(rules)}
    results = [_sarif_result(finding, index) for finding in report.findings]
    results += [
        {**_sarif_result(finding, index), "suppressions": [{"kind": "inSource"}]}
        for finding in report.suppressed
    ]
    driver = {
        "name": "tidemill lint",
        "version": __version__,
        "rules": [_sarif_rule(trap) for trap in rules],
    }
    notes = [
        {
            "level": "note" if each.reason == "skipped" else "error",
            "message": {"text": f"{each.reason}: {each.message}"},
            "locations": [_location(each)],
        }
        for each in report.not_linted
    ]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {"executionSuccessful": report.complete, "toolExecutionNotifications": notes},
        ],
        "results": results,
    }
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _sarif_rule(trap: Trap) -> dict[str, Any]:
    return {
        "id": trap.id,
        "shortDescription": {"text": trap.title},
        "fullDescription": {"text": f"{trap.why} Source: {trap.source}; {trap.seen}."},
        "help": {"text": trap.fix},
        "defaultConfiguration": {"level": trap.severity},
    }


def _sarif_result(finding: Finding, index: dict[str, int]) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": index[finding.rule],
        "level": finding.severity,
        "message": {"text": f"{finding.message}. Fix: {finding.fix}."},
        "locations": [_location(finding)],
    }
    if finding.edits:
        replacements = [
            {
                "deletedRegion": {"charOffset": edit.start, "charLength": edit.end - edit.start},
                "insertedContent": {"text": edit.text},
            }
            for edit in finding.edits
        ]
        change = {"artifactLocation": {"uri": _uri(finding.file)}, "replacements": replacements}
        result["fixes"] = [{"description": {"text": finding.fix}, "artifactChanges": [change]}]
    return result


def _location(thing: Finding | NotLinted) -> dict[str, Any]:
    region = {"startLine": thing.line, "startColumn": thing.column}
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(thing.file)}, "region": region}}


def _uri(file: str) -> str:
    path = PurePath(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def dumped(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2)


# --- docs/reference/lint.md -------------------------------------------------------------------------

_HEAD = """# The traps

This page is generated by `python -m tidemill.render.lint_report`, and a test compares it with the rules.
[The guide](../guides/lint.md) says how to run `tidemill lint`.

| id | trap | severity | `--fix` |
|---|---|---|---|
"""


def markdown() -> str:
    return _HEAD + "".join(_markdown_rows()) + "".join(_markdown_section(trap) for trap in TRAPS.values())


def _markdown_rows() -> Iterator[str]:
    for trap in TRAPS.values():
        link = f"[{trap.id}](#{trap.id.lower()})"
        yield f"| {link} | {trap.title} | {trap.severity} | {'yes' if trap.safe_fix else ''} |\n"


def _markdown_section(trap: Trap) -> str:
    number = trap.id
    return (
        f"\n## {number}\n\n**{trap.title}.** {trap.why}\n\n"
        f"- Fix: {trap.fix}.\n"
        + (f"- `--fix` writes: {trap.safe_fix}.\n" if trap.safe_fix else "")
        + f"- Looked for in: {trap.where}.\n"
        f"- Source: {trap.source}; {trap.seen}.\n"
        f"- Example: [examples/traps/{number}](../../examples/traps/{number}), the trap and its twin without it.\n"
    )


if __name__ == "__main__":
    print(markdown(), end="")
