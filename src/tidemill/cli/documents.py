"""`tidemill validate`, `schema` and `import`: check documents, print their schema, convert other tools' documents.

An error in a document is a line with file, line and column, and exit code 2.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidemill.model.errors import SpecError
from tidemill.spec.problem import Problem, suggestion

if TYPE_CHECKING:
    from tidemill.spec.importers import Imported
    from tidemill.spec.read import Loaded

EXIT_USER = 2
_FILES = click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))


@click.command()
@click.argument("given", metavar="FILE|DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--strict", is_flag=True, help="Fail on warnings too.")
@click.pass_context
def validate(ctx: click.Context, given: tuple[Path, ...], as_json: bool, strict: bool) -> None:
    """Check documents and list every error with file, line and column.

    All files, and the YAML files of a folder, are read as one set. One run finds all errors in them.
    """
    from tidemill.cli.loading import documents_in
    from tidemill.cli.region_catalog import catalog_of
    from tidemill.spec.read import load

    files = tuple(Path(name) for name in documents_in([str(path) for path in given]))
    loaded = load(files, catalog_of=catalog_of)
    ok = not (loaded.errors or (strict and loaded.warnings))
    platforms = _files_with_a_platform(loaded)
    note = _read_as_one(len(platforms)) if len(platforms) > 1 and loaded.errors else ""
    if as_json:
        answer = {"ok": ok, "problems": [_as_json(each) for each in loaded.problems]}
        _print(json.dumps({**answer, "platform_files": platforms, "note": note}, indent=2))
    else:
        if note:
            _print(note)
        for problem in loaded.problems:
            _print(str(problem))
        _print(_verdict(loaded.problems, len(loaded.documents), len(set(files))))
    ctx.exit(0 if ok else EXIT_USER)


def _files_with_a_platform(loaded: Loaded) -> list[str]:
    from tidemill.spec.check.document_set import of_kind
    from tidemill.spec.platform import Platform

    return sorted({str(document.parsed.file) for document in of_kind(loaded.documents, Platform)})


def _read_as_one(files: int) -> str:
    """Of files that were meant to be checked apart: most of their problems come from being read together."""
    return (
        f"{files} of the files have a Platform, and all files are read as one set: what they share is an error"
        " below; to check them apart, run `tidemill validate` for each"
    )


@click.command()
@click.argument("kind", required=False)
@click.option("--markdown", is_flag=True, hidden=True, help="Print docs/reference/spec.md.")
def schema(kind: str | None, markdown: bool) -> None:
    """Print the JSON Schema of the documents, or of one KIND."""
    from tidemill.spec.read import KINDS
    from tidemill.spec.schema import json_schema
    from tidemill.spec.schema import markdown as reference

    if kind is not None and kind not in KINDS:
        raise SpecError(f"unknown kind '{kind}'; {suggestion(kind, KINDS)}")
    _print(reference().rstrip("\n") if markdown else json.dumps(json_schema(kind), indent=2))


@click.group("import")
def import_() -> None:
    """Convert the compute pools of other tools to documents."""


@import_.command()
@_FILES
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the documents to this file.")
@click.pass_context
def ryvn(ctx: click.Context, files: tuple[Path, ...], output: Path | None) -> None:
    """Convert Ryvn blueprints: maps from names to node class or pool settings."""
    from tidemill.spec.importers.ryvn import import_ryvn

    _check_output(files, output)
    _write(ctx, import_ryvn(files), output)


@import_.command()
@_FILES
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the documents to this file.")
@click.pass_context
def karpenter(ctx: click.Context, files: tuple[Path, ...], output: Path | None) -> None:
    """Convert Karpenter NodePools and EC2NodeClasses (v1), from files or the output of `kubectl get -o yaml`.

    What cannot be converted is listed on stderr, with its line. An object with an error is left out; the others are
    written, and the exit code is 2.
    """
    from tidemill.spec.importers.karpenter import import_karpenter

    _check_output(files, output)
    _write(ctx, import_karpenter(files), output)


def _check_output(files: Sequence[Path], output: Path | None) -> None:
    if output is not None and output.resolve() in {path.resolve() for path in files}:
        raise SpecError(f"{output} is an input file; name another file to write to")


def _write(ctx: click.Context, imported: Imported, output: Path | None) -> None:
    for problem in imported.problems:
        click.echo(_printable(str(problem), sys.stderr.encoding), err=True)
    if not imported.text:
        if all(problem.severity == "warning" for problem in imported.problems):
            click.echo(
                "error: the files hold nothing to import; name files with pools or node classes", err=True
            )
        ctx.exit(EXIT_USER)
    if output is None:
        _print(imported.text.rstrip("\n"))
    else:
        try:
            output.write_text(imported.text, encoding="utf-8")
        except OSError as error:
            raise SpecError(f"cannot write {output}: {error.strerror}") from error
    if any(problem.severity == "error" for problem in imported.problems):
        names = _printable(", ".join(imported.left_out), sys.stderr.encoding) or "what could not be read"
        click.echo(f"error: left out for the errors above: {names}; the rest is written", err=True)
        ctx.exit(EXIT_USER)


def _as_json(problem: Problem) -> dict[str, str | int]:
    return {
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "severity": problem.severity,
        "code": problem.code,
        "message": problem.message,
    }


def _verdict(problems: Sequence[Problem], documents: int, files: int) -> str:
    errors = sum(problem.severity == "error" for problem in problems)
    warnings = len(problems) - errors
    if not problems:
        return f"{_counted(documents, 'document')} in {_counted(files, 'file')}: no problems"
    counts = [_counted(errors, "error")] if errors else []
    counts += [_counted(warnings, "warning")] if warnings else []
    return f"{', '.join(counts)} in {_counted(files, 'file')}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _print(text: str) -> None:
    click.echo(_printable(text, sys.stdout.encoding))


def _printable(text: str, encoding: str | None) -> str:
    """Escape characters that the terminal cannot show, so that printing a message never fails."""
    return text.encode(encoding or "utf-8", "backslashreplace").decode(encoding or "utf-8")
