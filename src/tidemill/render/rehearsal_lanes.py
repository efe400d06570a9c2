"""The geometry of a rehearsal's timeline: ticks, lanes of nodes, step paths. Seconds from the start are x.

Charts are drawn in those seconds and stretched to the width of the page by the browser, so that zooming in
shows the exact instant and never a rounded pixel. No markup but SVG path data is made here.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise

from tidemill.render.figures import day
from tidemill.sim.scenario.outcome import BlockRow, NodeSpan, Outcome, Series, ServiceRow

# About 450 bytes of page each; a month of churning spot nodes must not make the page unreadable.
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
        """The same as a CSS percentage, for what must not be stretched."""
        return f"{100 * self.x(at) / self.length_s:.4f}%"

    def holds(self, at: datetime) -> bool:
        return self.start <= at <= self.end


@dataclass(frozen=True, slots=True)
class Tick:
    left: str
    label: str  # empty: a line without a word
    kind: str  # day, grid (11:30 UTC, when blocks start and end) or hour


def ticks(axis: Axis) -> tuple[Tick, ...]:
    """Days, the 11:30 UTC of each, and hours where the whole run is short. About a dozen words at most."""
    midnight = axis.start.astimezone(UTC).replace(hour=0, minute=0, second=0)
    days = (axis.end - midnight) // timedelta(days=1) + 1
    every = -(-days // 10)  # so many days between two labels
    found: list[tuple[datetime, str, str]] = []
    for number in range(days):
        begin = midnight + timedelta(days=number)
        found.append((begin, day(begin) if number % every == 0 else "", "day"))
        if days <= 14:
            found.append((begin + timedelta(hours=11, minutes=30), "11:30" if days <= 7 else "", "grid"))
        if days <= 2:
            hours = (hour for hour in range(3, 24, 3) if hour != 12)  # noon would sit on the 11:30 word
            found += [(begin + timedelta(hours=hour), f"{hour:02}:00", "hour") for hour in hours]
    return tuple(Tick(axis.left(at), label, kind) for at, label, kind in sorted(found) if axis.holds(at))


@dataclass(frozen=True, slots=True)
class Bar:
    phase: str
    x: int
    width: int


@dataclass(frozen=True, slots=True)
class Life:
    """A node as drawn."""

    id: str
    type: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """The nodes of one source. A lane holds nodes that follow each other, as the slots of a block do."""

    source: str
    block: BlockRow | None
    lanes: tuple[tuple[Life, ...], ...]
    node_count: int
    left_out: int
    alive: tuple[tuple[int, float], ...]  # how many nodes there were, at each change; all of them counted

    @property
    def opened(self) -> bool:
        return self.node_count <= _OPEN_NODES


def life(node: NodeSpan, axis: Axis) -> Life:
    begins = [at for _, at in node.phases[1:]] + [node.gone_at or axis.end]
    bars = (
        Bar(phase, axis.x(at), axis.x(until) - axis.x(at))
        for (phase, at), until in zip(node.phases, begins, strict=False)
        if phase != "gone"
    )
    return Life(node.id, node.type, tuple(bar for bar in bars if bar.width > 0))


def _lanes(nodes: Iterable[NodeSpan], axis: Axis) -> tuple[tuple[Life, ...], ...]:
    """Greedy interval partition: as many lanes as there ever were nodes at once."""
    lanes: list[list[Life]] = []
    free: list[tuple[datetime, int]] = []  # when each lane is free again
    for node in nodes:
        begin = node.phases[0][1]
        end = max(begin, node.gone_at or axis.end)
        if free and free[0][0] <= begin:
            _, lane = heapq.heappop(free)
        else:
            lane = len(lanes)
            lanes.append([])
        lanes[lane].append(life(node, axis))
        heapq.heappush(free, (end, lane))
    return tuple(tuple(lane) for lane in lanes)


def groups(outcome: Outcome, axis: Axis) -> tuple[Group, ...]:
    """One per block by start, then one per other source by name. Blocks without nodes keep their lane."""
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
        found.append(Group(source, blocks.get(source), lanes, len(nodes), left_out, _alive(nodes, axis)))
    return tuple(found)


def _alive(nodes: Iterable[NodeSpan], axis: Axis) -> tuple[tuple[int, float], ...]:
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
class Curves:
    """GPUs paid, ready and used, ready to be drawn. `slot_s` > 0: averaged over slots of that length."""

    x: tuple[int, ...]
    paid: tuple[float, ...]
    ready: tuple[float, ...]
    used: tuple[float, ...]
    top: int
    slot_s: int = 0

    def points(self, name: str) -> Points:
        return tuple(zip(self.x, getattr(self, name), strict=True))


def curves(series: Series, axis: Axis) -> Curves:
    x = tuple(axis.x(at) for at in series.at)
    top = max((*series.paid, *series.ready, *series.used, 1))
    if len(x) <= MAX_POINTS:
        return Curves(x, series.paid, series.ready, series.used, top)
    slot_s = -(-axis.length_s // SLOTS)
    named = (series.paid, series.ready, series.used)
    paid, ready, used = (_averaged(x, values, slot_s, axis.length_s) for values in named)
    return Curves(tuple(range(0, axis.length_s, slot_s)), paid, ready, used, top, slot_s)


def _averaged(x: Sequence[int], values: Sequence[int], slot_s: int, length_s: int) -> tuple[float, ...]:
    """The mean over time in each slot, so that the area, which is GPU-hours, stays what it was."""
    sums = [0.0] * -(-length_s // slot_s)
    for begin, end, value in zip(x, (*x[1:], length_s), values, strict=True):
        while begin < end:
            slot = begin // slot_s
            until = min(end, (slot + 1) * slot_s)
            sums[slot] += value * (until - begin)
            begin = until
    return tuple(round(total / min(slot_s, length_s - n * slot_s), 2) for n, total in enumerate(sums))


def short_spans(service: ServiceRow, axis: Axis) -> tuple[tuple[int, int], ...]:
    """(x, width) of each time the service was down: the spans its downtime is the sum of."""
    return tuple((axis.x(begin), axis.x(over) - axis.x(begin)) for begin, over in service.down)
