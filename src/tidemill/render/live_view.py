"""The screen of `tidemill up`: one frame of a rehearsal, for any terminal size.

Every row is one line, so that the height is known and nothing moves. Colour only repeats what the text says. Rows
that do not fit are left out and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from textwrap import wrap

from rich.console import Group
from rich.text import Text

from tidemill.render.display_names import DisplayNames
from tidemill.render.figures import day, percent, usd
from tidemill.render.live_rows import (
    ACCENT,
    BAD,
    DRAIN,
    SOFT,
    Rows,
    aligned,
    bar,
    block_cells,
    node_cells,
    pool_cells,
    waiting_cells,
)
from tidemill.render.narrative import NarrativeLine, Weight
from tidemill.report import Status

BANNER = "SIMULATED: no AWS account, no credentials are read, no money is spent"
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")  # strftime's follow the locale
_SPEAKER_STYLES = {"engine": ACCENT, "aws": "blue", "people": "magenta", "work": SOFT, "fault": BAD}
_LABEL = 9  # columns of the labels on the left
_TALL = 32  # with this many lines there are empty lines between the parts, and a list of nodes
_MIN_NARRATIVE_LINES = 7
_ENDED_BLOCKS_SHOWN_FOR = timedelta(minutes=30)  # after its end
_ROUTINE_FROM_LINES = 18  # with this many lines routine is shown too
_TEXT_COLUMN = 16  # column at which the text of a narrative line begins


@dataclass(frozen=True, slots=True)
class Spending:
    """Dollars: block fees paid so far, the used and idle part of them, and hourly costs."""

    fees_usd: float
    used_usd: float
    idle_usd: float
    hourly_usd: float

    @property
    def ahead_usd(self) -> float:
        return max(0.0, self.fees_usd - self.used_usd - self.idle_usd)


@dataclass(frozen=True, slots=True)
class Frame:
    title: str
    seed: int
    now: datetime
    rate: float  # virtual seconds per second
    share: float  # of the scenario, 0..1
    status: Status
    spending: Spending
    narrative: tuple[NarrativeLine, ...]
    names: DisplayNames


def screen(frame: Frame, width: int, height: int) -> Group:
    """At most `height` lines; the narrative gets what the rest leaves."""
    tall = height >= _TALL
    lines = [Text(BANNER.center(width), "reverse bold"), _clock(frame, width)]
    for label, rows, most in _parts(frame, width, height):
        lines += ([Text()] if tall else []) + _part(label, rows, most)
    lines += [Text()] if tall else []
    lines += _narrative(frame, height - len(lines), width)
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Group(*lines[:height])


def _parts(frame: Frame, width: int, height: int) -> list[tuple[str, Rows, int]]:
    """Label, rows, and how many of them are shown at most."""
    status, tall, room = frame.status, height >= _TALL, width - _LABEL
    pools = aligned([pool_cells(row, room) for row in status.pools])
    recent = [
        row for row in status.blocks if row.end is None or frame.now < row.end + _ENDED_BLOCKS_SHOWN_FOR
    ]
    blocks = aligned([block_cells(row, frame.now, frame.names, room) for row in recent])
    waiting = aligned(waiting_cells(status.waiting, frame.names))
    parts: list[tuple[str, Rows, int]] = [
        ("pools", pools, 8 if tall else 4),
        ("blocks", blocks, 8 if tall else 3),
        ("money", _money(frame.spending, room), 2),
        ("waiting", waiting or [Text("no pods", SOFT)], 5 if tall else 2),
    ]
    if tall:
        taken = 3 + sum(1 + min(len(rows), most) for _, rows, most in parts) + 1
        nodes = aligned([node_cells(row, frame.names, room) for row in status.nodes])
        parts.insert(2, ("nodes", nodes, max(0, height - taken - _MIN_NARRATIVE_LINES - 4)))
    return [part for part in parts if part[1] and part[2]]


def _part(label: str, rows: Rows, most: int) -> list[Text]:
    shown = rows if len(rows) <= most else [*rows[: most - 1], Text(f"and {len(rows) - most + 1} more", SOFT)]
    return [
        Text.assemble((("" if number else label).ljust(_LABEL), SOFT), row)
        for number, row in enumerate(shown)
    ]


def _clock(frame: Frame, width: int) -> Text:
    now, names = frame.now, frame.names
    left = Text.assemble((f"{_DAYS[now.weekday()]} {day(now)} {now:%H:%M:%S} UTC", "bold"))
    if names.is_elsewhere(now):
        left.append(f"  {names.local(now)} {names.zone_name(now)}")
    right = Text.assemble(
        (f"{frame.title}  seed {frame.seed}  ", SOFT),
        f"{frame.rate:,.0f}x  ",
        *bar(12, (frame.share, "━", ACCENT), (1 - frame.share, "╌", SOFT)),
        f" {frame.share:>4.0%}",
    )
    gap = width - left.cell_len - right.cell_len
    return Text.assemble(left, " " * max(2, gap), right)


def _money(purse: Spending, room: int) -> Rows:
    fees = purse.fees_usd
    summary = Text.assemble(
        (f"{usd(fees + purse.hourly_usd)} paid", "bold"),
        f"  used {usd(purse.used_usd)}  ",
        (f"idle {usd(purse.idle_usd)} ({percent(purse.idle_usd, purse.used_usd + purse.idle_usd)})", DRAIN),
        f"  ahead {usd(purse.ahead_usd)}  hourly {usd(purse.hourly_usd)}",
    )
    if not fees:
        return [summary]
    strip = bar(
        min(room, 71),
        (purse.used_usd / fees, "━", ACCENT),
        (purse.idle_usd / fees, "─", DRAIN),
        (purse.ahead_usd / fees, "╌", SOFT),
    )
    return [summary, Text.assemble(*strip)]


def _narrative(frame: Frame, room: int, width: int) -> list[Text]:
    """The latest at the bottom. Routine lines are left out where there is little room."""
    lines: list[Text] = []
    for entry in reversed(frame.narrative):
        if entry.weight is Weight.ROUTINE and room < _ROUTINE_FROM_LINES:
            continue
        more = wrapped_line(entry, width)
        if len(lines) + len(more) > room:
            break
        lines = more + lines
    return lines


def wrapped_line(entry: NarrativeLine, width: int) -> list[Text]:
    """One line, or two if the text does not fit."""
    tone = "bold" if entry.weight is Weight.TURN else SOFT if entry.weight is Weight.ROUTINE else ""
    pieces = wrap(entry.text, max(20, width - _TEXT_COLUMN), max_lines=2, placeholder=" …")
    head = Text.assemble(
        (f"{entry.at:%H:%M:%S} ", SOFT), (f"{entry.who:<7}", _SPEAKER_STYLES.get(entry.who, ""))
    )
    return [
        Text.assemble(" " * _TEXT_COLUMN if number else head, (piece, tone))
        for number, piece in enumerate(pieces)
    ]
