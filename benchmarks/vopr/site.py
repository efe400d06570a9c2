"""What the documents of one platform share: where it is, when it begins, what it could use. Drawn first."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from benchmarks.vopr.draw import Draw, Json
from tidemill.catalog import InstanceType, load

REGIONS = ("us-east-1", "us-west-2", "eu-north-1", "ap-northeast-1")
# Where calendars are hard: ends of months and years, leap days, the day a month has and another has not.
HARD_DATES = (
    datetime(2026, 12, 30, tzinfo=UTC),
    datetime(2027, 1, 31, tzinfo=UTC),
    datetime(2027, 2, 27, tzinfo=UTC),
    datetime(2028, 2, 27, tzinfo=UTC),
    datetime(2028, 2, 29, tzinfo=UTC),
    datetime(2027, 3, 31, tzinfo=UTC),
    datetime(2027, 4, 30, tzinfo=UTC),
)
HARD_TIMES = ((0, 0), (11, 29), (11, 30), (11, 31), (11, 0), (10, 50), (23, 59), (12, 0), (6, 0), (8, 0))


@dataclass(slots=True)
class DrawnPool:
    """A pool that was drawn, and what others need to know of it."""

    name: str
    types: list[InstanceType]
    labels: dict[str, str]
    zones: list[str]  # in which it may have nodes
    tolerate: list[str]  # taint keys beside the usual one
    document: Json
    sources: list[str]
    most_nodes: int
    namespaces: list[str] = field(default_factory=list)

    @property
    def blocks(self) -> bool:
        return "block" in self.sources

    @property
    def block_types(self) -> list[InstanceType]:
        return [kind for kind in self.types if kind.block or kind.ultraserver]


@dataclass(slots=True)
class Site:
    draw: Draw
    region: str
    zones: list[str]
    start: datetime
    days: int
    crowded: bool  # one of the few with many pods, nodes or blocks
    tags: dict[str, str]
    pools: list[DrawnPool] = field(default_factory=list)
    node_classes: list[str] = field(default_factory=list)
    fees_usd: list[float] = field(default_factory=list)  # of what its plans would buy, about
    windows: list[tuple[str, float]] = field(default_factory=list)  # name, and when it begins in hours

    @property
    def hours(self) -> float:
        return self.days * 24

    def at(self, hours: float) -> datetime:
        """An instant of the scenario, to the minute."""
        return self.start + timedelta(minutes=round(hours * 60))


def drawn_site(draw: Draw, days: int) -> Site:
    region = draw.choice(REGIONS)
    zones = [f"{region}{letter}" for letter in "abcdef"[: draw.of((1, 1), (2, 4), (3, 3), (4, 1))]]
    date = draw.choice(HARD_DATES) if draw.chance(0.4) else datetime(2026, 11, 1, tzinfo=UTC) + timedelta(
        days=draw.randrange(700)
    )  # fmt: skip
    hour, minute = draw.choice(HARD_TIMES) if draw.chance(0.7) else (draw.randrange(24), draw.randrange(60))
    tags = {"cost-centre": "ml"} if draw.chance(0.3) else {}
    return Site(draw, region, zones, date.replace(hour=hour, minute=minute), days, draw.chance(0.03), tags)


def types_sold_as_blocks() -> list[InstanceType]:
    return [kind for kind in load().types.values() if kind.block or kind.ultraserver]
