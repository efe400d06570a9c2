"""The geometry of a rehearsal's timeline: ticks, lanes of nodes, step paths, and a close-up of each block's end.

x is seconds from the start. The browser stretches the charts to the width of the page, so that zooming in shows the
exact instant. The only markup made here is SVG path data.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise

from tidemill.model.ec2_facts import grid_at_or_after
from tidemill.render.figures import day, span
from tidemill.render.rehearsal_facts import Ending
from tidemill.sim.scenario.outcome import BlockRow, NodeSpan, Outcome, Series, ServiceRow

# About 450 bytes each; a month of short-lived spot nodes must not make the page too large.
MAX_NODES_DRAWN = 1_200
# Above this many points a step path is averaged over equal slots of time; about 9 bytes a point.
MAX_POINTS = 20_000
SLOTS = 4_000
_OPEN_NODES = 40  # a group with more nodes than this starts collapsed


@dataclass(frozen=True, slots=True)
class Axis:
    start: datetime
    end: datetime

    @property
    def length_s(self) -> int:
        return max(1, int((self.end - self.start).total_seconds()))

    def x(self, at: datetime) -> int:
        """Seconds from the start, kept inside the picture."""
        return min(self.length_s, max(0, int((at - self.start).total_seconds())))

    def left(self, at: datetime) -> str:
        """The same as a CSS percentage, for elements that must not be stretched."""
        return f"{100 * self.x(at) / self.length_s:.4f}%"

    def holds(self, at: datetime) -> bool:
        return self.start <= at <= self.end


@dataclass(frozen=True, slots=True)
class Tick:
    left: str
    label: str  # empty: a line without a label
    kind: str  # day, grid (11:30 UTC, when blocks start and end) or hour


def ticks(axis: Axis) -> tuple[Tick, ...]:
    """Days, 11:30 UTC of each day, and hours where the run is short. About a dozen labels at most."""
    midnight = axis.start.astimezone(UTC).replace(hour=0, minute=0, second=0)
    days = (axis.end - midnight) // timedelta(days=1) + 1
    every = -(-days // 10)  # days between two labels
    found: list[tuple[datetime, str, str]] = []
    for number in range(days):
        begin = midnight + timedelta(days=number)
        found.append((begin, day(begin) if number % every == 0 else "", "day"))
        if days <= 14:
            found.append((grid_at_or_after(begin), "11:30" if days <= 7 else "", "grid"))
        if days <= 2:
            hours = (hour for hour in range(3, 24, 3) if hour != 12)  # noon would overlap the 11:30 label
            found += [(begin + timedelta(hours=hour), f"{hour:02}:00", "hour") for hour in hours]
    return tuple(Tick(axis.left(at), label, kind) for at, label, kind in sorted(found) if axis.holds(at))


@dataclass(frozen=True, slots=True)
class Bar:
    phase: str
    x: int
    width: int


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node as drawn."""

    id: str
    type: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """The nodes of one source. A lane holds nodes that follow each other, as the slots of a block do."""

    source: str
    block: BlockRow | None
    lanes: tuple[tuple[DrawnNode, ...], ...]
    node_count: int
    left_out: int
    alive: tuple[tuple[int, float], ...]  # number of nodes at each change, including those not drawn

    @property
    def opened(self) -> bool:
        return self.node_count <= _OPEN_NODES


def drawn_node(node: NodeSpan, axis: Axis) -> DrawnNode:
    begins = [at for _, at in node.phases[1:]] + [node.gone_at or axis.end]
    bars = (
        Bar(phase, axis.x(at), axis.x(until) - axis.x(at))
        for (phase, at), until in zip(node.phases, begins, strict=False)
        if phase != "gone"
    )
    return DrawnNode(node.id, node.type, tuple(bar for bar in bars if bar.width > 0))


def _lanes(nodes: Iterable[NodeSpan], axis: Axis) -> tuple[tuple[DrawnNode, ...], ...]:
    """Greedy interval partition: as many lanes as the most nodes at one time."""
    lanes: list[list[DrawnNode]] = []
    free: list[tuple[datetime, int]] = []  # when each lane is free again
    for node in nodes:
        begin = node.phases[0][1]
        end = max(begin, node.gone_at or axis.end)
        if free and free[0][0] <= begin:
            _, lane = heapq.heappop(free)
        else:
            lane = len(lanes)
            lanes.append([])
        lanes[lane].append(drawn_node(node, axis))
        heapq.heappush(free, (end, lane))
    return tuple(tuple(lane) for lane in lanes)


def source_groups(outcome: Outcome, axis: Axis) -> tuple[SourceGroup, ...]:
    """One group for each block, by start, then one for each other source, by name. Blocks without nodes are
    included."""
    by_source: dict[str, list[NodeSpan]] = {}
    for node in outcome.nodes:
        if node.phases:
            by_source.setdefault(node.source, []).append(node)
    blocks = {block.id: block for block in sorted(outcome.blocks, key=lambda block: (block.start, block.id))}
    left = MAX_NODES_DRAWN
    found = []
    for source in [*blocks, *sorted(set(by_source) - set(blocks))]:
        nodes = sorted(by_source.get(source, ()), key=lambda node: (node.phases[0][1], node.id))
        drawn = nodes[:left]
        left -= len(drawn)
        lanes = _lanes(drawn, axis)
        left_out = len(nodes) - len(drawn)
        found.append(
            SourceGroup(source, blocks.get(source), lanes, len(nodes), left_out, _node_counts(nodes, axis))
        )
    return tuple(found)


def _node_counts(nodes: Iterable[NodeSpan], axis: Axis) -> tuple[tuple[int, float], ...]:
    changes: Counter[int] = Counter()
    for node in nodes:
        changes[axis.x(node.phases[0][1])] += 1
        changes[axis.x(node.gone_at or axis.end)] -= 1
    counts = accumulate(changes[x] for x in sorted(changes))
    return tuple(zip(sorted(changes), counts, strict=True))


Points = Sequence[tuple[int, float]]


def step_area(points: Points, top: float, length_s: int) -> str:
    """A closed path under a step function. y grows downwards, so a value v is drawn at top - v."""
    if not points:
        return ""
    return f"{step_line(points, top, length_s)}V{_number(top)}H{points[0][0]}Z"


def step_line(points: Points, top: float, length_s: int) -> str:
    if not points:
        return ""
    parts = [f"M{points[0][0]} {_number(top - points[0][1])}"]
    for (_, before), (x, value) in pairwise(points):
        if value != before:
            parts.append(f"H{x}V{_number(top - value)}")
    return "".join(parts) + f"H{length_s}"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class GpuCurves:
    """GPUs paid, ready and used, ready to be drawn. `slot_s` > 0: averaged over slots of that length."""

    x: tuple[int, ...]
    paid: tuple[float, ...]
    ready: tuple[float, ...]
    used: tuple[float, ...]
    top: int
    slot_s: int = 0

    def points(self, name: str) -> Points:
        return tuple(zip(self.x, getattr(self, name), strict=True))


def gpu_curves(series: Series, axis: Axis) -> GpuCurves:
    x = tuple(axis.x(at) for at in series.at)
    top = max((*series.paid, *series.ready, *series.used, 1))
    if len(x) <= MAX_POINTS:
        return GpuCurves(x, series.paid, series.ready, series.used, top)
    slot_s = -(-axis.length_s // SLOTS)
    named = (series.paid, series.ready, series.used)
    paid, ready, used = (_averaged(x, values, slot_s, axis.length_s) for values in named)
    return GpuCurves(tuple(range(0, axis.length_s, slot_s)), paid, ready, used, top, slot_s)


def _averaged(x: Sequence[int], values: Sequence[int], slot_s: int, length_s: int) -> tuple[float, ...]:
    """The mean over time in each slot, so that the area (GPU-hours) does not change."""
    sums = [0.0] * -(-length_s // slot_s)
    for begin, end, value in zip(x, (*x[1:], length_s), values, strict=True):
        while begin < end:
            slot = begin // slot_s
            until = min(end, (slot + 1) * slot_s)
            sums[slot] += value * (until - begin)
            begin = until
    return tuple(round(total / min(slot_s, length_s - n * slot_s), 2) for n, total in enumerate(sums))


def short_spans(service: ServiceRow, axis: Axis) -> tuple[tuple[int, int], ...]:
    """(x, width) of each time the service was down."""
    return tuple((axis.x(begin), axis.x(over) - axis.x(begin)) for begin, over in service.down)


CLOSE_UPS = 24  # blocks with a close-up; the table below has all
_NODES_SHOWN = 16


@dataclass(frozen=True, slots=True)
class Mark:
    """One instant of a block's end. `before_end` reads `T−41m 17s`."""

    kind: str
    label: str
    at: datetime
    left: str
    before_end: str


@dataclass(frozen=True, slots=True)
class CloseUp:
    ending: Ending
    axis: Axis
    marks: tuple[Mark, ...]
    nodes: tuple[DrawnNode, ...]
    nodes_left_out: int
    spare_left: str  # the band from drained to deadline: its left edge; empty: no band
    spare_width: str


def marks(block: BlockRow, axis: Axis) -> tuple[Mark, ...]:
    """In order of time; marks at the same instant are joined."""
    named = [
        ("start", "start", block.start),
        ("drain", "drain from", block.drain_from),
        ("drained", "drained", block.drained_at),
        ("deadline", "deadline", block.deadline),
        ("kill", "kill", block.kill_at),
        ("end", "end", block.end),
    ]
    found: list[Mark] = []
    for kind, label, at in sorted(
        ((kind, label, at) for kind, label, at in named if at is not None), key=lambda mark: mark[2]
    ):
        if not axis.holds(at):
            continue
        before = "T" if at == block.end else f"T−{span(block.end - at)}"
        if found and found[-1].at == at:
            last = found.pop()
            found.append(Mark(last.kind, f"{last.label}, {label}", at, last.left, before))
        else:
            found.append(Mark(kind, label, at, axis.left(at), before))
    return tuple(found)


def close_up(ending: Ending, nodes: tuple[NodeSpan, ...]) -> CloseUp:
    block = ending.block
    first = min(at for at in (block.drain_from, block.drained_at, block.deadline) if at is not None)
    # At most three hours: an early drain is in the text and must not shrink the rest.
    begin = max(first, block.end - timedelta(hours=3)) - timedelta(minutes=10)
    last = max(at for at in (block.end, block.drained_at) if at is not None)
    axis = Axis(max(begin, block.start), last + timedelta(minutes=5))
    alive = [
        n for n in nodes if n.phases and n.phases[0][1] < axis.end and (n.gone_at or axis.end) > axis.start
    ]
    left = width = ""
    if ending.spare is not None and ending.spare > timedelta(0) and block.drained_at is not None:
        since = max(block.drained_at, axis.start)
        left = axis.left(since)
        width = f"{100 * (axis.x(block.deadline) - axis.x(since)) / axis.length_s:.4f}%"
    drawn = tuple(drawn_node(node, axis) for node in alive[:_NODES_SHOWN])
    return CloseUp(ending, axis, marks(block, axis), drawn, max(0, len(alive) - _NODES_SHOWN), left, width)


def close_ups(outcome: Outcome, endings: tuple[Ending, ...]) -> tuple[CloseUp, ...]:
    """Only blocks whose deadline was within the rehearsal; those that went wrong first."""
    ended = [ending for ending in endings if ending.drain not in ("not-yet", "never-delivered")]
    ended.sort(key=lambda ending: (not ending.bad, ending.block.end, ending.block.id))
    return tuple(
        close_up(ending, tuple(node for node in outcome.nodes if node.source == ending.block.id))
        for ending in ended[:CLOSE_UPS]
    )
