"""What `kubectl get` shows of our objects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.spec.test_accept import GOOD, NODE_CLASS, platform, pool
from tidemill.report.object_status import Projection, block_statuses, document_status
from tidemill.report.rows import BlockRow, Money, NodeRow, PoolRow, Status
from tidemill.spec.accept import Accepted, accept

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
AHEAD = timedelta(days=30)  # the engine's clock is ahead of the wall's, as on a simulated account


def seen(ends_in: timedelta = timedelta(hours=30)) -> Projection:
    accepted = accept(GOOD, Accepted())
    assert accepted.spec is not None
    end = NOW + AHEAD + ends_in
    block = BlockRow(
        "cr-1", "november", "block", "train", "p5.48xlarge", 2, "us-east-1a", "active", 16, 9000,
        NOW + AHEAD - timedelta(days=1), None, None, None, end, 2, 1,
    )  # fmt: skip
    nodes = tuple(
        NodeRow(
            f"n{i}", f"i-{i}", "train", "p5.48xlarge", "cr-1", "us-east-1a", "ready", 8, 4, (), None, None, ""
        )
        for i in range(2)
    )
    row = PoolRow(
        "train", ("p5.48xlarge",), 16, 8, 24, {"ready": 2}, ("november",), None, None, end, 1, 0.0, 0.0
    )
    status = Status(NOW + AHEAD, (row,), (block,), nodes, (), (), Money(9000, 12.5, 1000, 0.0), (), None)
    return Projection(accepted.spec, status, NOW, lambda instant: instant - AHEAD)


def test_a_pool_shows_ready_and_wanted_gpus_its_block_and_when_it_ends_by_the_walls_clock():
    told = document_status(pool(), accept(GOOD, Accepted()), NOW, seen())
    assert (told["gpus"], told["block"], told["endsIn"]) == ("16/24", "november", "1d6h")
    assert told["endsAt"] == "2026-11-17T18:00:00Z"
    assert told["nodes"] == {"ready": 2}


def test_a_platform_shows_what_the_month_costs():
    told = document_status(platform(), accept(GOOD, Accepted()), NOW, seen())
    assert (told["monthUsd"], told["budgetUsd"], told["approval"]) == (9012.5, 1000, "propose")


def test_a_block_shows_how_much_of_it_is_used():
    told = block_statuses(seen())["cr-1"]
    assert (told["used"], told["state"], told["pool"], told["feeUsd"]) == ("8/16", "active", "train", 9000)


@pytest.mark.parametrize(
    ("left", "shown"),
    [
        (timedelta(days=3, hours=4, minutes=59), "3d4h"),
        (timedelta(hours=5, minutes=44), "5h30m"),
        (timedelta(minutes=64), "1h"),
        (timedelta(minutes=3), "<5m"),
        (timedelta(seconds=-1), "over"),
    ],
)
def test_what_is_left_is_rounded_down_so_that_the_object_is_seldom_written(left: timedelta, shown: str):
    assert block_statuses(seen(left))["cr-1"]["endsIn"] == shown


def test_before_the_first_tick_only_acceptance_is_told():
    told = document_status(NODE_CLASS, accept(GOOD, Accepted()), NOW)
    assert told["conditions"][0]["status"] == "True"
    assert "pools" not in told


def test_the_time_of_a_condition_is_when_it_changed():
    before = "2026-11-01T00:00:00Z"
    old = {"type": "Accepted", "status": "True", "lastTransitionTime": before}
    thing = pool() | {"status": {"conditions": [old]}}
    told = document_status(thing, accept((platform(), NODE_CLASS, thing), Accepted()), NOW)
    assert told["conditions"][0]["lastTransitionTime"] == before
    wrong = pool(generation=2, nodeClassName="nope") | {"status": {"conditions": [old]}}
    told = document_status(wrong, accept((platform(), NODE_CLASS, wrong), accept(GOOD, Accepted())), NOW)
    assert told["conditions"][0]["lastTransitionTime"] == "2026-11-16T12:00:00Z"
    assert told["conditions"][0]["observedGeneration"] == told["observedGeneration"] == 2
