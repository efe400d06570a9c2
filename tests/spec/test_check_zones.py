"""Capacity in a zone without subnets cannot be used, so it is reported before it is bought."""

from __future__ import annotations

import pytest

from tests.spec.conftest import Reader
from tests.spec.documents import NODE_CLASS, PLATFORM, block, joined, messages, plan, pool, scenario, window

ELSEWHERE = PLATFORM.replace("us-east-1a", "us-east-1b")
BLOCK_POOL = pool("sources: [{type: block}]")


def test_refuses_a_reservation_where_the_platform_has_no_subnets(read: Reader) -> None:
    played = scenario(f"reservations: [{block()}]")
    (problem,) = read(joined(ELSEWHERE, played)).errors
    assert problem.code == "zone"
    assert problem.message == (
        "the platform has no subnets in 'us-east-1a': reservation 'a' could not be used;"
        " it has them in us-east-1b"
    )
    assert messages(read(joined(PLATFORM, played))) == []


def test_refuses_to_buy_where_the_platform_has_no_subnets(read: Reader) -> None:
    bought = plan(window() + ", zones: [us-east-1b, us-east-1a]")
    (problem,) = read(joined(ELSEWHERE, NODE_CLASS, BLOCK_POOL, bought)).errors
    assert problem.message.startswith("the platform has no subnets in 'us-east-1a': a block bought there")


@pytest.mark.parametrize(
    "written",
    [
        pool("sources: [{type: on-demand, zones: [us-east-1a]}]"),
        pool().replace("[p5.48xlarge]}", "[p5.48xlarge], zones: [us-east-1a]}"),
    ],
    ids=["source", "requirements"],
)
def test_warns_of_a_pool_that_names_a_zone_without_subnets(read: Reader, written: str) -> None:
    (problem,) = read(joined(ELSEWHERE, NODE_CLASS, written)).problems
    assert (problem.code, problem.severity) == ("zone", "warning")
    assert messages(read(joined(PLATFORM, NODE_CLASS, written))) == []


@pytest.mark.parametrize("subnets", ["{}", "{us-east-1a: []}"])
def test_warns_once_of_a_platform_without_subnets(read: Reader, subnets: str) -> None:
    bare = PLATFORM.replace("{us-east-1a: [subnet-0a1]}", subnets)
    played = scenario(f"reservations: [{block()}]")
    (problem,) = read(joined(bare, NODE_CLASS, BLOCK_POOL, played)).problems
    assert (problem.code, problem.severity) == ("zone", "warning")
    assert problem.message.startswith(
        "the platform has no subnets, so its pools cannot launch nodes and nothing is bought"
    )


def test_a_platform_alone_needs_no_subnets_yet(read: Reader) -> None:
    assert messages(read(PLATFORM.replace("{us-east-1a: [subnet-0a1]}", "{}"))) == []
