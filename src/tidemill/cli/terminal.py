"""What all verbs share at the terminal: tables, a progress bar, a yes/no question, a duration option, SIGTERM."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import click

from tidemill.model.errors import SpecError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH_WITHOUT_TERMINAL = 220  # wide enough that a pipe never cuts an id that somebody greps for
PROGRESS_AFTER_S = 0.7
PROGRESS_REFRESH_S = 0.1


def console() -> Console:
    from rich.console import Console

    stdout = Console(highlight=False, markup=False)
    if stdout.is_terminal:
        return stdout
    return Console(highlight=False, markup=False, width=WIDTH_WITHOUT_TERMINAL)


def table(*columns: str, right: tuple[str, ...] = (), title: str | None = None) -> Table:
    """An empty table that fits the terminal; the columns named in `right` are aligned to the right."""
    from rich import box

    from tidemill.render.fitting_table import FittingTable

    empty = FittingTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        empty.add_column(column, overflow="fold", justify="right" if column in right else "left")
    return empty


@contextmanager
def progress(label: str) -> Iterator[Callable[[float], None] | None]:
    """A progress bar on stderr, after a moment. Yields a function of the share done (0..1), None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    began = last = time.perf_counter()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
    task = bar.add_task(label, total=1.0)

    def show(share: float) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - last >= PROGRESS_REFRESH_S and now - began >= PROGRESS_AFTER_S:
            last = now
            if not bar.live.is_started:
                bar.start()
            bar.update(task, completed=share)
            bar.refresh()

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()


def confirmed(question: str, *, yes: bool) -> bool:
    """Ask before something that cannot be undone. The default answer is no; `yes` skips the question.

    SpecError: stdin is closed, so nobody can answer.
    """
    if yes:
        return True
    click.echo(f"{question} [y/N] ", err=True, nl=False)
    answer = sys.stdin.readline() if sys.stdin is not None else ""
    if not answer:
        click.echo("", err=True)
        raise SpecError("no answer on stdin, so nothing was done; to answer beforehand, add --yes")
    return answer.strip().lower() in ("y", "yes")


def duration_s(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Option callback: a duration such as 60s, in seconds."""
    if value is None:
        return None
    from tidemill.spec.units import parse_duration

    try:
        seconds = parse_duration(value).total_seconds()
    except ValueError as error:
        raise SpecError(f"{parameter.opts[0]}: {error}") from error
    if seconds <= 0:
        raise SpecError(f"{parameter.opts[0]}: '{value}' is not longer than zero; write for example 60s")
    return seconds


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """`timeout` and service managers send SIGTERM; treat it like Ctrl-C, so that the terminal is restored."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
