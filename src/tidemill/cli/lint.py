"""`tidemill lint`: traps in documents, manifests, Helm values and CloudFormation.

Exit codes: 0 no trap, 1 traps, 2 wrong usage or a file that could not be read or not wholly checked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidemill.model.errors import SpecError
from tidemill.spec.problem import suggestion

if TYPE_CHECKING:
    from tidemill.platform.lint.finding import Report

EXIT_CLEAN, EXIT_TRAPS, EXIT_USER = 0, 1, 2
STDIN = "-"
STDIN_NAME = "stdin"
SUFFIXES = (".yaml", ".yml", ".json", ".template")
# Folders that hold other people's files, or none that people write.
NOT_SEARCHED = ("node_modules", "__pycache__")
MAX_BYTES = 9 * 2**20  # one more than the reader takes, so that the reader says it is too large


@click.command()
@click.argument("given", metavar="FILE|DIR|-...", nargs=-1)
@click.option(
    "--format", "style", type=click.Choice(["text", "json", "sarif"]), default="text", help="How to report."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--rule", "rules", metavar="ID", multiple=True, help="Only this rule; may be repeated.")
@click.option("--ignore", metavar="ID", multiple=True, help="Not this rule; may be repeated.")
@click.option("--fix", "write", is_flag=True, help="Write the fixes that are safe, then report what is left.")
@click.option("--diff", is_flag=True, help="Print what --fix would write, and write nothing.")
@click.option(
    "--fail-on",
    type=click.Choice(["warning", "error"]),
    default="warning",
    help="The least severity that fails.",
)
@click.option("--list", "listing", is_flag=True, help="List the rules.")
@click.option("--explain", metavar="ID", help="Say why a rule exists, with its source.")
@click.pass_context
def lint(
    ctx: click.Context,
    given: tuple[str, ...],
    style: str,
    as_json: bool,
    rules: tuple[str, ...],
    ignore: tuple[str, ...],
    write: bool,
    diff: bool,
    fail_on: str,
    listing: bool,
    explain: str | None,
) -> None:
    """Find traps in files: what is valid, and goes wrong on Capacity Blocks.

    Reads documents of Tidemill, Karpenter manifests, Helm values and templates, CloudFormation (YAML and JSON) and
    other Kubernetes objects, all files as one set. A folder is searched for .yaml, .yml, .json and .template files. A
    comment `tidemill-lint: ignore TR-9 why` silences a rule in its line, or in the next one if it stands alone;
    `ignore-file` silences it in the file.

    Exit codes: 0 no trap, 1 traps, 2 wrong usage or a file that could not be read or not wholly checked.
    """
    from tidemill.render import lint_report

    if listing:
        click.echo(lint_report.rule_list())
        return
    if explain is not None:
        from tidemill.wording.traps import TRAPS

        click.echo(lint_report.explanation(TRAPS[_known(explain)]))
        return
    if not given:
        raise SpecError("name files or folders to look at, or - for stdin; --list names the rules")
    if write and diff:
        raise SpecError("--fix writes and --diff does not: choose one")
    _run(
        ctx,
        given,
        "json" if as_json else style,
        frozenset(map(_known, rules)),
        frozenset(map(_known, ignore)),
        write=write,
        diff=diff,
        fail_on=fail_on,
    )


def _run(
    ctx: click.Context,
    given: tuple[str, ...],
    style: str,
    rules: frozenset[str],
    ignore: frozenset[str],
    *,
    write: bool,
    diff: bool,
    fail_on: str,
) -> None:
    from tidemill.platform import lint as linter
    from tidemill.platform.lint.edits import diff as diff_of
    from tidemill.render import lint_report

    files = {name: _read(name) for name in _named(given)}
    contents = {name: content for name, content in files.items() if content is not None}
    to_stdout = sys.stdout
    if diff or write:
        changed = linter.fix(contents, rules=rules, ignore=ignore)
        if diff:
            for name, after in changed.items():
                click.echo(diff_of(name, contents[name].decode(), after), nl=False)
            click.echo(f"{len(changed)} of {len(contents)} files would change", err=True)
            unread = len(contents) < len(files)
            ctx.exit(EXIT_USER if unread else EXIT_TRAPS if changed else EXIT_CLEAN)
        for name, after in changed.items():
            _write(name, contents[name], after)
        contents |= {name: after.encode() for name, after in changed.items()}
        click.echo(f"fixed {len(changed)} of {len(contents)} files", err=True)
        if STDIN_NAME in contents:  # the text goes to stdout, so the report does not
            if STDIN_NAME not in changed:
                click.echo(contents[STDIN_NAME], nl=False)
            to_stdout = sys.stderr
    report = linter.lint(contents, rules=rules, ignore=ignore)
    match style:
        case "json":
            answer = lint_report.dumped(lint_report.as_json(report))
        case "sarif":
            answer = lint_report.dumped(lint_report.sarif(report, rules))
        case _:
            answer = lint_report.text(report)
    click.echo(answer, file=to_stdout)
    ctx.exit(EXIT_USER if len(contents) < len(files) else _exit_code(report, fail_on))


def _exit_code(report: Report, fail_on: str) -> int:
    if not report.complete:
        return EXIT_USER
    failing = [each for each in report.findings if fail_on == "warning" or each.severity == "error"]
    return EXIT_TRAPS if failing else EXIT_CLEAN


def _known(rule: str) -> str:
    from tidemill.wording.traps import TRAPS

    name = rule.strip().upper()
    if name not in TRAPS:
        raise SpecError(f"no rule is named '{rule}'; {suggestion(name, TRAPS, what='rules')}")
    return name


def _named(given: tuple[str, ...]) -> list[str]:
    """Files as they are, and the files of folders, each once, in order."""
    names: dict[str, None] = {}
    for name in given:
        if name == STDIN:
            names[STDIN_NAME] = None
        elif os.path.isdir(name):
            inside = list(_files_in(Path(name)))
            if not inside:
                raise SpecError(
                    f"{name}: this folder has no file with one of the endings {', '.join(SUFFIXES)}"
                )
            names |= dict.fromkeys(inside)
        else:
            names[os.path.normpath(name)] = None
    return list(names)


def _files_in(folder: Path) -> Iterator[str]:
    def fail(error: OSError) -> None:
        raise SpecError(f"{error.filename}: the folder cannot be read: {error.strerror}")

    for where, folders, files in os.walk(folder, onerror=fail):
        folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in NOT_SEARCHED)
        for file in sorted(files):
            if file.endswith(SUFFIXES):
                yield str(Path(where) / file)


def _read(name: str) -> bytes | None:
    """None, and a line on stderr, where the file cannot be read: the others are still looked at."""
    try:
        if name == STDIN_NAME:
            return sys.stdin.buffer.read(MAX_BYTES)
        with open(name, "rb") as stream:
            return stream.read(MAX_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        click.echo(f"error: {name}: cannot be read: {reason}", err=True)
        return None


def _write(name: str, before: bytes, after: str) -> None:
    if name == STDIN_NAME:
        click.echo(after, nl=False)
        return
    path = Path(name)
    try:
        if path.read_bytes() != before:
            raise SpecError(f"{name} was changed while it was looked at; nothing is written to it, run again")
        path.write_bytes(after.encode())
    except OSError as error:
        raise SpecError(f"cannot write {name}: {error.strerror}") from error
