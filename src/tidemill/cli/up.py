"""`tidemill up`: watch the engine run a scenario on the simulator, on an accelerated clock.

Needs no account and reads no credentials. Ends by itself, after `--for`, or on Ctrl-C; all three are a good
end: the terminal is restored, the summary is printed and the exit code is 0.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from tidemill.model.errors import InvariantViolated, SpecError

if TYPE_CHECKING:
    from tidemill.cli.displays import Show
    from tidemill.cli.playback import Playback

# Frames a second: enough for a clock that runs smoothly, few enough to leave the processor alone.
_FRAME_S = 0.12
# The whole scenario goes by in this time unless --for or --speed say otherwise.
_WALL_S = 150.0
# The end of the story must not fall off the end of the time: a slow machine lags a little.
_FITTED = 0.92


def demo_path() -> Path:
    """The scenario that ships with Tidemill."""
    return Path(__file__).with_name("demo.yaml")


def duration_s(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    from tidemill.spec.units import parse_duration

    try:
        seconds = parse_duration(value).total_seconds()
    except ValueError as error:
        raise SpecError(f"{parameter.opts[0]}: {error}") from error
    if seconds <= 0:
        raise SpecError(f"{parameter.opts[0]}: '{value}' is no time at all; write for example 60s")
    return seconds


def _a_number(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """`nan` is in every range, as far as comparing tells."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is no number", ctx, parameter)
    return value


@click.command(short_help="Watch the engine run a simulated day.")
@click.argument("scenario", nargs=-1, metavar="[SCENARIO…]")
@click.option(
    "--for", "for_s", callback=duration_s, metavar="TIME", help="End after this much time, such as 60s."
)
@click.option(
    "--speed",
    type=click.FloatRange(1, 1e9),
    callback=_a_number,
    metavar="N",
    help="Virtual seconds per second, constant.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Draws everything random."
)
@click.option(
    "--plain", is_flag=True, help="Print lines instead of a screen; the default without a terminal."
)
@click.pass_context
def up(
    ctx: click.Context,
    scenario: tuple[str, ...],
    for_s: float | None,
    speed: float | None,
    seed: int,
    plain: bool,
) -> None:
    """Watch the engine run SCENARIO (YAML files; default: the day that ships with Tidemill).

    Everything is simulated: no AWS account, no credentials, no money. Without --speed the whole scenario goes
    by in two and a half minutes, or in the time given with --for, slower where something happens. Ctrl-C ends
    it with the same summary as its own end. While it runs, `tidemill status`, `plan` and `why POD` in another
    terminal look at the same instant.
    """
    from tidemill.cli.displays import LineShow, ScreenShow
    from tidemill.cli.loading import DEMO, load_scenario
    from tidemill.cli.pace import Pace
    from tidemill.cli.planner_thread import InThread
    from tidemill.cli.playback import Playback
    from tidemill.sim.scenario.rehearsal import Rehearsal

    files = scenario or (DEMO,)
    spec, document = load_scenario(files)
    rehearsal = Rehearsal(spec, document, seed, beside=InThread)
    pace = Pace(rehearsal.end, wall_s=_FITTED * (for_s or _WALL_S), speed=speed)
    playback = Playback(rehearsal, document.name, pace)
    show: Show = ScreenShow(playback) if _draws() and not plain else LineShow(playback)
    began = time.monotonic()
    violation = None
    with terminated_like_ctrl_c():
        try:
            with show:
                play(playback, show, for_s)
        except KeyboardInterrupt:
            pass  # asked to stop: the summary of what was seen so far follows
        except InvariantViolated as caught:
            violation = caught
    ctx.exit(_summary(playback, " ".join(files), time.monotonic() - began, violation))


def _draws() -> bool:
    """Is there a terminal that can be drawn on?"""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def play(playback: Playback, show: Show, for_s: float | None) -> None:
    """Frame by frame until the scenario is over or the time is up. Sleeps between frames, never spins."""
    from tidemill.cli.snapshot_file import Current

    began = last = time.monotonic()
    with Current(playback) as current:
        while not playback.over and (for_s is None or last - began < for_s):
            time.sleep(max(0.0, last + _FRAME_S - time.monotonic()))
            now = time.monotonic()
            fresh = playback.advance(passed_s=now - last, elapsed_s=now - began, within_s=_FRAME_S)
            last = now
            show.told(fresh)
            current.write()


@contextmanager
def terminated_like_ctrl_c() -> Iterator[None]:
    """`timeout` and service managers send SIGTERM: the terminal must be restored all the same."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _summary(playback: Playback, name: str, wall_s: float, violation: InvariantViolated | None) -> int:
    from rich.console import Console

    from tidemill.render.rehearsal_text import summary
    from tidemill.sim.scenario.tally import tally

    outcome = tally(playback.rehearsal, scenario=name, wall_s=wall_s, violation=violation)
    console = Console()
    console.print(summary(outcome, console.width, console.is_terminal))
    return 1 if outcome.invariant_violations else 0
