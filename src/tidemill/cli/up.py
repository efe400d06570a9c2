"""`tidemill up`: watch the engine run a scenario on the simulator, on an accelerated clock.

Needs no AWS account and reads no credentials. It ends with the scenario, after `--for`, or on Ctrl-C. In all three
cases the terminal is restored, the summary is printed and the exit code is 0.
"""

from __future__ import annotations

import math
import os
import sys
import time
from types import TracebackType
from typing import Protocol

import click
from rich.console import Console
from rich.live import Live

from tidemill.cli.loading import DEMO, load_scenario
from tidemill.cli.playback import Pace, Playback
from tidemill.cli.snapshot_file import SnapshotFile
from tidemill.cli.terminal import duration_s, sigterm_as_interrupt
from tidemill.engine.planner_thread import ThreadExecutor
from tidemill.model.errors import InvariantViolated
from tidemill.render.figures import short_instant
from tidemill.render.live_view import BANNER, screen
from tidemill.render.narrative import NarrativeLine, Weight
from tidemill.render.rehearsal_text import summary
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.sim.scenario.tally import tally

# Seconds between frames: short enough for a clock that runs smoothly, long enough to leave the processor idle.
_FRAME_S = 0.12
# The whole scenario takes this long unless --for or --speed is given.
_WALL_S = 150.0
# Share of the wall time that is planned for the scenario; the rest is slack for a slow machine.
_USED_SHARE = 0.92


def _not_nan(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """click's range check lets `nan` pass, because every comparison with it is false."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is not a number; write for example 600", ctx, parameter)
    return value


@click.command(short_help="Watch the engine run a simulated day.")
@click.argument("scenario", nargs=-1, metavar="[SCENARIO…]")
@click.option("--for", "for_s", callback=duration_s, metavar="TIME", help="End after this time, such as 60s.")
@click.option(
    "--speed", type=click.FloatRange(1, 1e9), callback=_not_nan, metavar="N",
    help="Virtual seconds per second, constant.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of all random draws."
)
@click.option("--plain", is_flag=True, help="Print lines instead of a screen. Default without a terminal.")
@click.pass_context
def up(
    ctx: click.Context, scenario: tuple[str, ...], for_s: float | None, speed: float | None, seed: int, plain: bool
) -> None:  # fmt: skip
    """Watch the engine run SCENARIO (YAML files; default: the demo day that ships with Tidemill).

    Everything is simulated: no AWS account, no credentials, no money. Without --speed the whole scenario takes two and
    a half minutes, or the time given with --for, and the clock slows down where something happens. Ctrl-C ends it and
    prints the summary. While it runs, `tidemill status`, `plan` and `why POD` in another terminal show the same
    instant.
    """
    files = scenario or (DEMO,)
    spec, document = load_scenario(files)
    rehearsal = Rehearsal(spec, document, seed, planner_executor=ThreadExecutor)
    pace = Pace(rehearsal.end, wall_s=_USED_SHARE * (for_s or _WALL_S), speed=speed)
    playback = Playback(rehearsal, document.name, pace)
    can_draw = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    display: Display = ScreenDisplay(playback) if can_draw and not plain else LineDisplay(playback)
    began = time.monotonic()
    violation = None
    with sigterm_as_interrupt():
        try:
            with display:
                play(playback, display, for_s)
        except KeyboardInterrupt:
            pass  # the user asked to stop: print the summary so far
        except InvariantViolated as error:
            violation = error
    wall_s = time.monotonic() - began
    outcome = tally(rehearsal, scenario=" ".join(files), files=files, wall_s=wall_s, violation=violation)
    console = Console()
    console.print(summary(outcome, console.width, console.is_terminal))
    ctx.exit(1 if outcome.invariant_violations else 0)


def play(playback: Playback, display: Display, for_s: float | None) -> None:
    """Draw frames until the scenario is over or the time is up. Sleeps between frames."""
    began = last = time.monotonic()
    with SnapshotFile(playback) as snapshot_file:
        while not playback.over and (for_s is None or last - began < for_s):
            time.sleep(max(0.0, last + _FRAME_S - time.monotonic()))
            now = time.monotonic()
            news = playback.advance(passed_s=now - last, elapsed_s=now - began, within_s=_FRAME_S)
            last = now
            display.update(news)
            snapshot_file.write()


# --- two displays: a screen that is redrawn, and lines that are printed once --------------------------


class Display(Protocol):
    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def update(self, news: list[NarrativeLine]) -> None:
        """Called once per frame, with what happened since the last one."""
        ...


class ScreenDisplay:
    """Draws on the terminal's alternate screen, so the earlier content comes back at the end."""

    def __init__(self, playback: Playback, console: Console | None = None) -> None:
        self._playback = playback
        self._console = console or Console()
        self._live = Live(console=self._console, screen=True, auto_refresh=False)

    def __enter__(self) -> ScreenDisplay:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def update(self, news: list[NarrativeLine]) -> None:
        width, height = self._console.size
        self._live.update(screen(self._playback.frame(), width, height), refresh=True)


class LineDisplay:
    """Prints one line per event, for pipes and logs."""

    def __init__(self, playback: Playback) -> None:
        self._playback = playback

    def __enter__(self) -> LineDisplay:
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

    def update(self, news: list[NarrativeLine]) -> None:
        for line in news:
            mark = "*" if line.weight is Weight.TURN else " "
            click.echo(f"{short_instant(line.at)}:{line.at:%S} {mark} {line.who:<7}{line.text}")
