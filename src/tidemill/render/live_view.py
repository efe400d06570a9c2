"""The screen of `tidemill up`: one frame of a rehearsal that is being watched, drawn for any terminal size.

Every row is one line, so that the height is known and nothing jumps. Colour only repeats what words and
glyphs say. Rows that do not fit are left out, and how many is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from textwrap import wrap

from rich.console import Group
from rich.text import Text

from tidemill.render.actions_text import Weight
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
from tidemill.render.names import DisplayNames
from tidemill.render.narrative import Told
from tidemill.report import Status

BANNER = "SIMULATED: no AWS account, no credentials are read, no money is spent"
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")  # strftime's follow the locale
_VOICES = {"engine": ACCENT, "aws": "blue", "people": "magenta", "work": SOFT, "fault": BAD}
_LABEL = 9  # columns of the part names on the left
_TALL = 32  # lines from which there is air between the parts, and a list of nodes
_FEWEST_TOLD = 7
_REMEMBERED = timedelta(minutes=30)  # how long a block that is over stays on the screen
_TELL_ALL = 18  # lines from which routine is told too
_WORDS_FROM = 16  # column at which the words of a told line begin


@dataclass(frozen=True, slots=True)
class Purse:
    """Dollars: block fees paid so far, what of them was used and what lay idle, and money by the hour."""

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
    purse: Purse
    told: tuple[Told, ...]
    names: DisplayNames


def screen(frame: Frame, width: int, height: int) -> Group:
    """At most `height` lines; what was told gets all that the rest leaves."""
    tall = height >= _TALL
    lines = [Text(BANNER.center(width), "reverse bold"), _clock(frame, width)]
    for label, rows, most in _parts(frame, width, height):
        lines += ([Text()] if tall else []) + _part(label, rows, most)
    lines += [Text()] if tall else []
    lines += _told(frame, height - len(lines), width)
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Group(*lines[:height])


def _parts(frame: Frame, width: int, height: int) -> list[tuple[str, Rows, int]]:
    """Label, rows, and the most of them that are shown."""
    status, tall, room = frame.status, height >= _TALL, width - _LABEL
    pools = aligned([pool_cells(row, room) for row in status.pools])
    there = [row for row in status.blocks if row.end is None or frame.now < row.end + _REMEMBERED]
    blocks = aligned([block_cells(row, frame.now, frame.names, room) for row in there])
    waiting = aligned(waiting_cells(status.waiting, frame.names))
    parts: list[tuple[str, Rows, int]] = [
        ("pools", pools, 8 if tall else 4),
        ("blocks", blocks, 8 if tall else 3),
        ("money", _money(frame.purse, room), 2),
        ("waiting", waiting or [Text("nobody", SOFT)], 5 if tall else 2),
    ]
    if tall:
        taken = 3 + sum(1 + min(len(rows), most) for _, rows, most in parts) + 1
        nodes = aligned([node_cells(row, frame.names, room) for row in status.nodes])
        parts.insert(2, ("nodes", nodes, max(0, height - taken - _FEWEST_TOLD - 4)))
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


def _money(purse: Purse, room: int) -> Rows:
    fees = purse.fees_usd
    words = Text.assemble(
        (f"{usd(fees + purse.hourly_usd)} paid", "bold"),
        f"  used {usd(purse.used_usd)}  ",
        (f"idle {usd(purse.idle_usd)} ({percent(purse.idle_usd, purse.used_usd + purse.idle_usd)})", DRAIN),
        f"  ahead {usd(purse.ahead_usd)}  hourly {usd(purse.hourly_usd)}",
    )
    if not fees:
        return [words]
    strip = bar(
        min(room, 71),
        (purse.used_usd / fees, "━", ACCENT),
        (purse.idle_usd / fees, "─", DRAIN),
        (purse.ahead_usd / fees, "╌", SOFT),
    )
    return [words, Text.assemble(*strip)]


def _told(frame: Frame, room: int, width: int) -> list[Text]:
    """The latest at the bottom. Routine makes way for what matters where there is little room."""
    lines: list[Text] = []
    for one in reversed(frame.told):
        if one.weight is Weight.ROUTINE and room < _TELL_ALL:
            continue
        more = told_lines(one, width)
        if len(lines) + len(more) > room:
            break
        lines = more + lines
    return lines


def told_lines(one: Told, width: int) -> list[Text]:
    """One line, or two where the words do not fit."""
    tone = "bold" if one.weight is Weight.TURN else SOFT if one.weight is Weight.ROUTINE else ""
    pieces = wrap(one.words, max(20, width - _WORDS_FROM), max_lines=2, placeholder=" …")
    head = Text.assemble((f"{one.at:%H:%M:%S} ", SOFT), (f"{one.who:<7}", _VOICES.get(one.who, "")))
    return [
        Text.assemble(" " * _WORDS_FROM if number else head, (piece, tone))
        for number, piece in enumerate(pieces)
    ]
