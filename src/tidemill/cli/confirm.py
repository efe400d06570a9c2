"""Asking before something that cannot be undone. The default is no, and silence is not a yes."""

from __future__ import annotations

import sys

import click

from tidemill.model.errors import SpecError


def confirmed(question: str, *, yes: bool) -> bool:
    """`yes`: the person said so on the command line. SpecError: nobody is there to answer."""
    if yes:
        return True
    click.echo(f"{question} [y/N] ", err=True, nl=False)
    answer = sys.stdin.readline() if sys.stdin is not None else ""
    if not answer:
        click.echo("", err=True)
        raise SpecError("nobody answered, so nothing was done; --yes answers beforehand")
    return answer.strip().lower() in ("y", "yes")
