"""Nodes that never become Ready: the first is replaced at once, several in a row are tried one by one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.decide import builders as given
from tests.decide.builders import NOW, ON_DEMAND, ago, of, spec, why, world
from tidemill.decide import decide
from tidemill.decide.failed_starts import LONGEST_PREPAID_REST, LONGEST_REST
from tidemill.model.capacity import Source
from tidemill.model.plan import Launch, Plan, Terminate
from tidemill.model.purchases import LaunchIntent, LaunchState
from tidemill.model.reasons import HoldKind, LaunchKind
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("MG-5")

HOURLY = given.hourly_pool("g6", "g6.48xlarge", sources=[{"type": "on-demand"}])
LIFE = timedelta(minutes=15)  # until a node that does not join is given up


def failed(number: int, *, at: datetime, **fields: Any) -> LaunchIntent:
    fields = {
        "pool": "g6", "source": ON_DEMAND, "instance_type": "g6.48xlarge", "count": 1, "written_at": at - LIFE,
        "state_at": at, "state": LaunchState.NEVER_READY, "failure": "never-joined", **fields,
    }  # fmt: skip
    return given.launch_intent(f"start-i-{number}", **fields)


def pods(count: int) -> list[Any]:
    return [given.pod(f"job-{number}", gpus=8) for number in range(count)]


def decided(*things: Any, count: int = 4) -> Plan:
    return decide(spec(HOURLY), world(pods(count), *things))


def launched(plan: Plan) -> int:
    return sum(launch.intent.count for launch in of(plan, Launch))


def test_a_node_that_never_joins_is_given_up_and_that_is_written_down():
    dead = given.node(
        "i-1", "launched", pool="g6", source=ON_DEMAND, instance_type="g6.48xlarge", launched="16m"
    )
    (ended,) = of(decided(dead), Terminate)
    assert ended.failed_start is not None
    assert (ended.failed_start.id, ended.failed_start.state) == ("start-i-1", LaunchState.NEVER_READY)
    assert (ended.failed_start.pool, ended.failed_start.failure) == ("g6", "never-joined")


def test_a_node_that_was_ready_once_is_no_failed_start():
    lost = given.node(
        "i-1", "joined", pool="g6", source=ON_DEMAND, instance_type="g6.48xlarge", launched="5h", joined="5h",
        opened_at=ago("4h"), ready_changed_at=ago("10m"),
    )  # fmt: skip
    (ended,) = of(decided(lost), Terminate)
    assert ended.failed_start is None


def test_the_first_that_fails_is_replaced_at_once():
    assert launched(decided(failed(1, at=NOW))) == 4


def test_three_that_fail_at_once_are_followed_by_one_alone():
    plan = decided(*(failed(number, at=NOW) for number in range(3)))
    assert launched(plan) == 1
    waits = why(plan, pods(4)[3])
    assert waits.reason.kind is HoldKind.NODES_NEVER_READY
    assert sentence(waits.reason) == (
        "the last 3 nodes that pool g6 launched of g6.48xlarge never became Ready, so one is being tried alone"
    )


def test_nothing_more_is_launched_while_one_is_tried():
    trial = given.node(
        "i-9", "launched", pool="g6", source=ON_DEMAND, instance_type="g6.48xlarge", launched="2m"
    )
    plan = decided(trial, *(failed(number, at=ago("3m")) for number in range(3)))
    assert launched(plan) == 0
    assert why(plan, pods(4)[3]).reason.kind is HoldKind.NODES_NEVER_READY


@pytest.mark.parametrize(("times", "minutes"), [(2, 5), (3, 10), (4, 20), (5, 40), (6, 60), (12, 60)])
def test_each_time_rests_longer_up_to_an_hour(times: int, minutes: int):
    row = [failed(number, at=NOW - number * timedelta(hours=1)) for number in range(times)]
    resting = decided(*row)
    assert launched(resting) == 0
    assert why(resting, pods(1)[0]).reason.at == NOW + timedelta(minutes=minutes)
    late = timedelta(minutes=minutes)
    rested = [failed(number, at=NOW - late - number * timedelta(hours=1)) for number in range(times)]
    assert launched(decided(*rested)) == 1


def test_one_that_became_ready_clears_the_record():
    row = [failed(number, at=ago("30m") - number * timedelta(hours=1)) for number in range(4)]
    good = given.node(
        "i-9", pool="g6", source=ON_DEMAND, instance_type="g6.48xlarge", launched="20m", joined="15m",
        opened_at=ago("13m"),
    )  # fmt: skip
    assert launched(decided(good, *row)) == 3


def test_failures_hours_apart_are_no_row():
    """Nodes became Ready in between, and are gone again."""
    row = [failed(number, at=NOW - number * timedelta(hours=3)) for number in range(5)]
    assert launched(decided(*row)) == 4


def test_a_changed_node_class_clears_the_record():
    row = [failed(number, at=NOW, node_class="an earlier one") for number in range(4)]
    assert launched(decided(*row)) == 4


def test_another_pool_and_another_type_are_not_held_back():
    row = [failed(number, at=NOW, instance_type="g6.12xlarge") for number in range(4)]
    row += [failed(number + 4, at=NOW, pool="other") for number in range(4)]
    assert launched(decided(*row)) == 4


def test_a_gang_that_needs_more_than_one_gets_one_tried_for_it():
    members = given.gang("g", 2, gpus=8)
    plan = decide(spec(HOURLY), world(members, *(failed(number, at=NOW) for number in range(3))))
    (launch,) = of(plan, Launch)
    assert (launch.intent.count, launch.reason.kind) == (1, LaunchKind.TRIED_ALONE)
    assert sentence(launch.reason) == (
        "the last 3 nodes never became Ready: one is tried before ml/g-0 and its gang get theirs"
    )


def test_nodes_of_a_block_are_tried_more_often_than_those_paid_by_the_hour():
    block, kind = Source(given.BLOCK.kind, "cr-1"), "p5.48xlarge"
    row = [
        failed(number, at=NOW - number * timedelta(hours=1), pool="p5", source=block, instance_type=kind)
        for number in range(6)
    ]
    plan = decide(spec(given.pool()), world(given.block(free=4), given.pod(gpus=8), *row))
    assert launched(plan) == 0
    assert why(plan, given.pod(gpus=8)).reason.at == NOW + LONGEST_PREPAID_REST < NOW + LONGEST_REST


def test_a_block_is_warmed_by_one_node_at_first():
    row = [
        failed(number, at=NOW, pool="p5", source=given.BLOCK, instance_type="p5.48xlarge")
        for number in range(3)
    ]
    plan = decide(spec(given.pool()), world(given.block(free=4), *row))
    assert launched(plan) == 1
