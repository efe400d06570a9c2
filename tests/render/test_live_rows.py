"""Rows of the live view: the words and the instant beside them are about the same thing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tidemill.render.display_names import DisplayNames
from tidemill.render.live_rows import block_cells
from tidemill.report.rows import BlockRow

NOW = datetime(2026, 11, 20, 6, 0, tzinfo=UTC)
END = NOW.replace(hour=11, minute=30)
BLOCK = BlockRow(
    id="cr-1", name="a", kind="block", pool="train", type="p5.48xlarge", count=4, zone="us-east-1a", state="active",
    gpus=32, fee_usd=10_000, start=NOW - timedelta(days=3), drain_from=END - timedelta(minutes=50),
    deadline=END - timedelta(minutes=30), kill_at=END - timedelta(minutes=30), end=END, nodes_up=4, pods=3,
)  # fmt: skip


def words(now: datetime) -> list[str]:
    return [cell.plain for cell in block_cells(BLOCK, now, DisplayNames({}), 200)][-2:]


def test_a_block_that_drains_later_shows_when_the_drain_starts_and_then_its_deadline() -> None:
    assert words(NOW) == ["drains in 4h 40m", "10:40 UTC"]
    assert words(END - timedelta(minutes=45)) == ["DRAINING 3 pods, 15m", "11:00 UTC"]
