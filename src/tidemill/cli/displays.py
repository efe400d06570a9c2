"""Two ways to watch: a screen that is drawn anew, and lines that are printed once."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

import click
from rich.console import Console
from rich.live import Live

from tidemill.cli.playback import Playback
from tidemill.render.actions_text import Weight
from tidemill.render.figures import short_instant
from tidemill.render.live_view import BANNER, screen
from tidemill.render.narrative import Told


class Show(Protocol):
    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def told(self, fresh: list[Told]) -> None:
        """Called once a frame, with what is new since the last."""
        ...


class ScreenShow:
    """The alternate screen: what was in the terminal before is there again afterwards."""

    def __init__(self, playback: Playback, console: Console | None = None) -> None:
        self._playback = playback
        self._console = console or Console()
        self._live = Live(console=self._console, screen=True, auto_refresh=False)

    def __enter__(self) -> ScreenShow:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def told(self, fresh: list[Told]) -> None:
        width, height = self._console.size
        self._live.update(screen(self._playback.frame(), width, height), refresh=True)


class LineShow:
    """One line per thing worth a line, for pipes, logs and people who prefer it."""

    def __init__(self, playback: Playback) -> None:
        self._playback = playback

    def __enter__(self) -> LineShow:
        rehearsal = self._playback.rehearsal
        click.echo(BANNER)
        hours = (rehearsal.end - rehearsal.start).total_seconds() / 3600
        click.echo(
            f"{self._playback.title}, seed {rehearsal.seed}: {hours:g} hours from "
            f"{short_instant(rehearsal.start)} UTC; Ctrl-C ends it with a summary"
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        click.echo("")

    def told(self, fresh: list[Told]) -> None:
        for one in fresh:
            mark = "*" if one.weight is Weight.TURN else " "
            click.echo(f"{short_instant(one.at)}:{one.at:%S} {mark} {one.who:<7}{one.words}")
