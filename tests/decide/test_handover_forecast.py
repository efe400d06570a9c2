"""The forecast of a hand-over follows the rules by which it is then done: the same room, limits, caps and order."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.decide import builders as given
from tests.decide.builders import ago, ahead, spec, world
from tidemill.decide.context import DecisionContext
from tidemill.decide.handover.forecast import ServiceForecast, forecast
from tidemill.decide.handover.move_schedule import Move, Room
from tidemill.model.nodes import Node
from tidemill.model.pods import DisruptionBudget, Method, Pod, Workload
from tidemill.spec import Spec

# A node of the pool costs $55.04 an hour on demand.
OVERFLOW = {"maxHourlyUsd": 900, "maxMonthlyUsd": 90_000}
A = given.block("cr-1", ends_in="24h", count=2)  # its nodes must be empty in 23 hours and a half
ON_A = [given.node(f"i-{number}", launched="60m", opened_at=ago("51m")) for number in (1, 2)]


def replicas(name: str, on: list[Node], **fields: Any) -> list[Pod]:
    """Each takes a whole node, is started within a minute and loads for eight."""
    made = [
        given.replica(f"{name}-{number}", on=one, gpus=8, load="8m", workload=f"Deployment/{name}", **fields)
        for number, one in enumerate(on)
    ]
    return [replace(pod, ready_at=ago("22m"), bound_at=ago("31m")) for pod in made]


def service(pods: list[Pod], method: Method | None = None, **fields: Any) -> Workload:
    one = pods[0]
    return Workload(one.workload, "ml", len(pods), len(pods), one.shape, one.terms, method, **fields)


def with_overflow(caps: dict[str, Any] = OVERFLOW, monthly_usd: int = 90_000, **fields: Any) -> Spec:
    sources = [{"type": "block"}, {"type": "on-demand", **caps}]
    return spec(given.pool(sources=sources, **fields), budget={"monthlyUsd": monthly_usd})


def outlook(documents: Spec, *things: Any) -> ServiceForecast:
    (one,) = forecast(DecisionContext(documents, world(A, *ON_A, *things)))
    return one


# --- by the hour ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("documents", "seats"),
    [
        (with_overflow(), 2),
        (with_overflow({**OVERFLOW, "maxHourlyUsd": 60}), 1),
        (with_overflow({**OVERFLOW, "maxHourlyUsd": 50}), 0),
        (with_overflow({**OVERFLOW, "maxMonthlyUsd": 20}), 0),
        (with_overflow(monthly_usd=0), 0),
        (with_overflow(limits={"nodes": 3}), 1),
        (with_overflow(limits={"nodes": 2}), 0),
    ],
    ids=[
        "all",
        "cap pays one",
        "cap pays none",
        "too little for an hour",
        "no budget",
        "limit of 3",
        "limit of 2",
    ],
)
def test_nodes_by_the_hour_are_promised_for_as_many_replicas_as_may_be_launched(documents, seats) -> None:
    pods = replicas("chat", ON_A, overflow=True)
    one = outlook(
        documents,
        pods,
        service(pods, Method.SCALE, may_scale=True),
        DisruptionBudget("Deployment/chat", 2, 0),
    )
    assert one.bridged == (seats > 0)
    if seats == 2:
        assert one.short is None
    else:
        assert one.short is not None
        assert one.short.lasts is None  # nobody knows when the others will have a node


def test_what_the_money_of_a_month_pays_is_promised_to_one_service_and_not_to_two() -> None:
    """Two services leave two blocks at once, and the hourly cap pays one node."""
    b = given.block("cr-2", ends_in="24h", count=1)
    on_b = given.node("i-3", source=b.source, launched="60m", opened_at=ago("51m"))
    first, second = replicas("chat", ON_A[:1], overflow=True), replicas("draw", [on_b], overflow=True)
    seen = world(
        A, b, ON_A[:1], on_b, first, second,
        *(service(pods, Method.SCALE, may_scale=True) for pods in (first, second)),
        *(DisruptionBudget(pods[0].workload, 1, 0) for pods in (first, second)),
    )  # fmt: skip
    documents = with_overflow({**OVERFLOW, "maxHourlyUsd": 60})
    found = forecast(DecisionContext(documents, seen))
    assert [(one.workload.name, one.bridged) for one in found] == [
        ("Deployment/chat", True),
        ("Deployment/draw", False),
    ]
    (asked_alone,) = forecast(DecisionContext(documents, seen), only="cr-2")
    assert asked_alone == found[1]


# --- prepaid --------------------------------------------------------------------------------------------


def test_a_successor_whose_nodes_do_not_fit_beside_those_that_end_is_full_only_when_they_are_gone() -> None:
    """B starts hours before A ends, and the pool may have two nodes, which are A's."""
    b = given.block("cr-2", ends_in="90h", starts_in="2h", count=2)
    pods = replicas("chat", ON_A)
    things = (b, pods, service(pods), DisruptionBudget("Deployment/chat", 1, 1))
    assert outlook(spec(given.pool(limits={"nodes": 4})), *things).short is None
    at_its_limit = outlook(spec(given.pool(limits={"nodes": 2})), *things)
    assert at_its_limit.short is not None
    assert at_its_limit.short.lasts is not None
    up = at_its_limit.short.since + at_its_limit.short.lasts
    assert up == ahead("23h30m") + timedelta(minutes=9 + 9)  # A's deadline, a boot, a start and a load


def test_services_that_leave_two_blocks_do_not_count_on_the_same_node() -> None:
    """C has one node, and outlives A and B."""
    b = given.block("cr-2", ends_in="24h", count=1)
    c = given.block("cr-3", ends_in="90h", count=1)
    on_b, on_c = (
        given.node(id, source=one.source, launched="60m", opened_at=ago("51m"))
        for id, one in (("i-3", b), ("i-4", c))
    )
    first, second = replicas("chat", ON_A[:1]), replicas("draw", [on_b])
    seen = world(
        A, b, c, ON_A[:1], on_b, on_c, first, second, service(first), service(second),
        *(DisruptionBudget(pods[0].workload, 1, 0) for pods in (first, second)),
    )  # fmt: skip
    lasts = [one.short and one.short.lasts for one in forecast(DecisionContext(spec(), seen))]
    assert lasts == [timedelta(minutes=9), None]


def test_replicas_on_another_block_that_ends_with_it_keep_no_minimum() -> None:
    """Two of three leave A and one leaves B, at the same time, and there is nowhere to go."""
    b, lasting = given.block("cr-2", ends_in="24h", count=1), given.block("cr-2", ends_in="90h", count=1)
    on_b = given.node("i-3", source=b.source, launched="60m", opened_at=ago("51m"))
    pods = replicas("chat", [*ON_A, on_b])
    things = (*ON_A, on_b, pods, service(pods, Method.SCALE, may_scale=True))
    budget = DisruptionBudget("Deployment/chat", 1, 2)
    (alone,) = forecast(DecisionContext(spec(), world(A, lasting, *things, budget)), only="cr-1")
    assert alone.short is None
    for ending in ("cr-1", "cr-2"):
        (one,) = forecast(DecisionContext(spec(), world(A, b, *things, budget)), only=ending)
        assert one.short is not None
        assert one.short.lasts is None


def test_by_when_a_service_has_left_reckons_with_jobs_that_are_done_before() -> None:
    """A job that needs an hour to leave makes the drain begin an hour before. Without it, it begins later."""
    c = given.block("cr-3", ends_in="90h", count=2)
    on_c = [given.node(id, source=c.source, launched="60m", opened_at=ago("51m")) for id in ("i-4", "i-5")]
    pods = replicas("chat", ON_A[:1])
    job = given.pod("train", on=ON_A[1], gpus=8, grace="1h")
    beside, alone = (outlook(spec(), c, on_c, pods, service(pods), *more) for more in ([job], []))
    assert beside.drain_from < alone.drain_from
    assert beside.moved_by == alone.moved_by


def test_a_replica_of_a_stateful_set_is_made_again_when_the_old_one_is_gone() -> None:
    c = given.block("cr-3", ends_in="90h", count=2)
    on_c = [given.node(id, source=c.source, launched="60m", opened_at=ago("51m")) for id in ("i-4", "i-5")]
    lasts = []
    for kind in ("Deployment", "StatefulSet"):
        pods = [replace(one, workload=f"{kind}/chat") for one in replicas("chat", ON_A[:1], grace="20m")]
        short = outlook(spec(), c, on_c, pods, service(pods), DisruptionBudget(f"{kind}/chat", 1, 0)).short
        assert short is not None
        assert short.lasts is not None
        lasts.append(short.lasts)
    assert lasts == [timedelta(minutes=9), timedelta(minutes=29)]


# --- the course of a move ---------------------------------------------------------------------------------

DRAIN, TURN, LAST = ahead("1h"), ahead("2h"), ahead("2h5m")
STEP = timedelta(minutes=10)
BOOT = timedelta(minutes=6)


def move(*rooms: Room, method: Method = Method.EVICT, **fields: Any) -> Move:
    defaults: dict[str, Any] = {
        "replicas": 3, "leaving": 3, "enough": 2, "at_once": 1, "never_allowed": False, "step": STEP,
        "drain_from": DRAIN, "turn": TURN, "last_moment": LAST,
        "all_or_none": method in (Method.SCALE, Method.PAIRED),
    }  # fmt: skip
    return Move(method=method, rooms=rooms, **{**defaults, **fields})


def up_at(one: Move) -> datetime:
    short = one.short()
    assert short is not None
    assert short.lasts is not None
    return short.since + short.lasts


def test_waves_wait_for_each_other_and_for_their_room() -> None:
    free = [Room(DRAIN)] * 3
    assert move(*free).done_at == DRAIN + 3 * STEP
    assert move(Room(DRAIN), Room(ahead("1h30m")), Room(ahead("1h30m"))).done_at == ahead("1h30m") + 2 * STEP


def test_rooms_on_one_node_wait_for_one_launch_and_others_for_their_own() -> None:
    together = [Room(DRAIN, BOOT, node=7)] * 3
    apart = [Room(DRAIN, BOOT, node=number) for number in range(3)]
    assert move(*together).done_at == DRAIN + BOOT + 3 * STEP
    assert move(*apart).done_at == DRAIN + 3 * (BOOT + STEP)
    assert move(*apart, method=Method.SCALE, at_once=3).done_at == DRAIN + BOOT + STEP


def test_what_is_left_at_the_last_moment_is_made_again_together() -> None:
    late = ahead("3h")
    assert up_at(move(Room(late), Room(late), Room(late))) == late + STEP
    slow = move(*[Room(DRAIN)] * 3, step=timedelta(minutes=30), enough=3)
    assert up_at(slow) == DRAIN + 3 * timedelta(minutes=30)  # the third was begun before, and goes on
    slower = move(*[Room(DRAIN)] * 3, step=timedelta(minutes=50), enough=3)
    assert up_at(slower) == LAST + timedelta(minutes=50)


def test_a_method_that_makes_all_replicas_first_does_not_begin_with_room_for_some() -> None:
    some = [Room(DRAIN)] * 2
    assert move(*some).short() is None
    assert up_at(move(*some, method=Method.SCALE, at_once=3)) == LAST + STEP


def test_where_the_budget_never_allows_one_they_are_missed_from_the_first_on_and_until_the_last_is_up() -> (
    None
):
    one_by_one = move(*[Room(DRAIN)] * 3, never_allowed=True, enough=3).short()
    assert one_by_one is not None
    assert (one_by_one.since, one_by_one.lasts) == (DRAIN, 3 * STEP)
    without_room = move(Room(DRAIN), never_allowed=True, enough=3).short()
    assert without_room is not None
    assert (without_room.since, without_room.lasts) == (DRAIN, None)
