"""Which pods may start where: enough time, the least sufficient time, and held with a reason otherwise."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.decide import builders as given
from tests.decide.builders import ON_DEMAND, ahead, of, spec, why, world
from tidemill.decide import decide
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.plan import Admit, Launch, Plan
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("CB-13")


def admitted(plan: Plan) -> dict[str, str]:
    return {uid: action.source_label for action in of(plan, Admit) for uid in action.pods}


def on(id: str, source: str, **fields):
    return given.node(id, source=Source(SourceKind.BLOCK, source), **fields)


def test_a_job_that_finishes_before_the_drain_is_admitted_and_told_its_end():
    (admit,) = of(
        decide(spec(), world(given.block(ends_in="10h"), given.node(), given.pod(gpus=8, expected="9h"))),
        Admit,
    )
    assert (admit.pods, admit.source_label, admit.ends_at) == (("uid-train-1",), "cr-1", ahead("9h30m"))


@pytest.mark.parametrize(
    ("expected", "starts"),
    [
        # drain starts 10 minutes before the deadline at 9h30m; a minute goes by before a pod works
        ("9h19m", True),
        ("9h20m", False),
    ],
)
def test_a_job_starts_only_where_it_can_finish_before_the_drain(expected: str, starts: bool):
    waiting = given.pod(gpus=8, expected=expected)
    plan = decide(spec(), world(given.block(ends_in="10h"), given.node(), waiting))
    assert bool(admitted(plan)) is starts


def test_its_own_grace_and_load_count_too():
    there = [given.block(ends_in="10h"), given.node()]
    assert admitted(decide(spec(), world(there, given.pod(gpus=8, expected="9h"))))
    assert not admitted(decide(spec(), world(there, given.pod(gpus=8, expected="9h", load="20m"))))
    assert not admitted(decide(spec(), world(there, given.pod(gpus=8, expected="9h", grace="40m"))))


def test_a_job_that_fits_nowhere_is_held_with_the_reason_and_the_earliest_instant():
    waiting = given.pod(gpus=8, expected="20h")
    coming = given.block("cr-2", starts_in="30h", ends_in="80h")
    plan = decide(spec(), world(given.block(ends_in="10h"), given.node(), coming, waiting))
    assert not admitted(plan)
    held = why(plan, waiting)
    assert held.code == "held"
    assert sentence(held.reason) == (
        "it needs 20h1m and nothing in pool p5 lasts that long; block cr-2 starts 2026-11-17T18:00:00Z"
    )
    assert held.earliest == coming.start + timedelta(minutes=7)  # a node boots in seven minutes


def test_a_job_beside_free_room_that_ends_too_soon_is_told_so_and_not_that_limits_are_reached():
    """Both blocks are full of nodes and so is the pool's limit: more nodes would not help, and time is the reason."""
    dying, lasting = on("i-1", "cr-1"), on("i-2", "cr-2")
    waiting, there = (
        given.pod("waits", gpus=8, expected="20h"),
        given.pod("runs", gpus=8, on=lasting, expected="30h"),
    )
    blocks = [given.block("cr-1", ends_in="10h", count=1), given.block("cr-2", ends_in="100h", count=1)]
    plan = decide(spec(given.pool(limits={"nodes": 2})), world(blocks, dying, lasting, there, waiting))
    assert why(plan, waiting).code == "held"
    assert sentence(why(plan, waiting).reason) == (
        "it needs 20h1m; what is free in pool p5 ends sooner, and what lasts that long is taken"
    )


def test_a_block_to_come_that_is_too_short_is_no_hope():
    waiting = given.pod(gpus=8, expected="20h")
    coming = given.block("cr-2", starts_in="30h", ends_in="40h")
    held = why(decide(spec(), world(given.block(ends_in="10h"), given.node(), coming, waiting)), waiting)
    assert held.earliest is None
    assert "cr-2" not in sentence(held.reason)


@pytest.mark.parametrize(("left", "starts"), [("1h56m", True), ("1h55m", False)])
def test_a_resumable_job_needs_only_load_and_one_checkpoint(left: str, starts: bool):
    # a minute to start + 10 load + 1 h interval + 5 checkpoint; the drain starts 40 minutes before the end
    long = given.pod(gpus=8, expected="300h", load="10m", checkpoint_every="1h", checkpoint_time="5m")
    assert bool(admitted(decide(spec(), world(given.block(ends_in=left), given.node(), long)))) is starts


def test_a_resumable_job_that_is_shorter_than_its_interval_needs_no_more_than_itself():
    short = given.pod(gpus=8, expected="10m", checkpoint_every="24h", checkpoint_time="5m")
    assert admitted(decide(spec(), world(given.block(ends_in="2h"), given.node(), short)))


def test_a_job_goes_to_the_block_that_ends_first_among_those_that_last():
    blocks = [
        given.block("cr-long", ends_in="100h"),
        given.block("cr-mid", ends_in="30h"),
        given.block("cr-short", ends_in="5h"),
    ]
    nodes = [on("i-1", "cr-long"), on("i-2", "cr-mid"), on("i-3", "cr-short")]
    for expected, source in (("2h", "cr-short"), ("20h", "cr-mid"), ("50h", "cr-long")):
        plan = decide(spec(), world(blocks, nodes, given.pod(gpus=8, expected=expected)))
        assert admitted(plan) == {"uid-train-1": source}


def test_a_pod_that_does_not_say_runs_as_long_as_its_pool_assumes():
    there = [given.block(ends_in="10h"), given.node(), given.pod(gpus=8)]
    assert admitted(decide(spec(given.pool(defaultDuration="9h")), world(there)))
    assert not admitted(decide(spec(given.pool(defaultDuration="12h")), world(there)))


def test_a_gate_comes_off_only_when_a_node_is_ready():
    for phase in ("launched", "joined", "registering", "verifying"):
        young = given.node(phase=phase, launched="3m", joined="1m")
        waiting = given.pod(gpus=8)
        plan = decide(spec(), world(given.block(), young, waiting))
        assert not admitted(plan)
        assert why(plan, waiting).code == "starting"


def test_room_is_promised_once():
    pods = [given.pod("a", gpus=8), given.pod("b", gpus=8)]
    plan = decide(spec(), world(given.block(), given.node(), pods))
    assert len(admitted(plan)) == 1


def test_a_pod_that_was_admitted_keeps_its_room_until_it_is_bound():
    promised = given.pod("promised", gpus=8, gated=False, pinned_to="cr-1")
    plan = decide(
        spec(), world(given.block(), given.node(), promised, given.pod("newer", gpus=8, priority=100))
    )
    assert admitted(plan) == {}


def test_a_namespace_that_a_pool_does_not_serve_is_not_admitted_there():
    plan = decide(
        spec(given.pool(allowedNamespaces=["research"])),
        world(given.block(), given.node(), given.pod(gpus=8)),
    )
    assert not admitted(plan)
    allowed = given.pod(gpus=8, namespace="research")
    assert admitted(
        decide(spec(given.pool(allowedNamespaces=["research"])), world(given.block(), given.node(), allowed))
    )


def test_room_that_a_service_will_move_into_is_not_given_to_a_job_that_would_still_be_there():
    old, new = on("i-1", "cr-old"), on("i-2", "cr-new")
    blocks = [given.block("cr-old", ends_in="4h"), given.block("cr-new", ends_in="100h")]
    serving = given.replica(on=old, gpus=8)
    long = decide(spec(), world(blocks, old, new, serving, given.pod(gpus=8, expected="20h")))
    assert admitted(long) == {}
    # A job that is done before the service comes may use the room until then.
    short = decide(spec(), world(blocks, old, new, serving, given.pod(gpus=8, expected="1h")))
    assert admitted(short) == {"uid-train-1": "cr-new"}


def test_a_pod_pinned_to_a_source_that_is_gone_is_made_anew_if_somebody_would():
    orphan = given.pod(gpus=8, gated=False, pinned_to="cr-gone")
    plan = decide(spec(), world(given.block(), given.node(), orphan))
    assert [type(action).__name__ for action in plan.actions if getattr(action, "pod", "") == orphan.uid] == [
        "Recreate"
    ]
    bare = given.pod(gpus=8, gated=False, pinned_to="cr-gone", workload="")
    plan = decide(spec(), world(given.block(), given.node(), bare))
    assert not [action for action in plan.actions if getattr(action, "pod", "") == bare.uid]
    assert why(plan, bare).code == "impossible"
    assert "nothing would create it again" in sentence(why(plan, bare).reason)


def test_a_service_is_never_held_for_time():
    serving = given.replica(gpus=8)
    plan = decide(spec(), world(given.block(ends_in="2h"), given.node(), serving))
    assert not plan.unmet
    assert not of(plan, Launch)


def test_capacity_without_an_end_takes_work_without_an_end():
    forever = given.pod(gpus=1, expected="9000h")
    up = given.node(source=ON_DEMAND, pool="g6", instance_type="g6.xlarge")
    assert admitted(decide(spec(given.hourly_pool()), world(up, forever))) == {"uid-train-1": "on-demand"}


def test_a_pod_is_admitted_to_a_pool_and_not_only_to_a_source_that_pools_share():
    """On-demand nodes of two pools carry the same source label: the pin names the pool too."""
    plan = decide(
        spec(given.hourly_pool("g6")),
        world(given.node(source=ON_DEMAND, pool="g6", instance_type="g6.xlarge"), given.pod(gpus=1)),
    )
    (admit,) = of(plan, Admit)
    assert (admit.source_label, admit.pool) == ("on-demand", "g6")


# --- its word -----------------------------------------------------------------------------------------


def test_a_word_longer_than_the_pool_believes_counts_as_what_it_believes():
    believing = spec(given.pool(maxExpectedDuration="8h"))
    there = [given.block(ends_in="10h"), given.node()]
    (admit,) = of(decide(believing, world(there, given.pod(gpus=8, expected="400h"))), Admit)
    assert sentence(admit.reason).endswith("; it expects to run 16d16h, but pool p5 plans for at most 8h")
    plain = of(decide(believing, world(there, given.pod(gpus=8, expected="8h"))), Admit)
    assert [sentence(one.reason) for one in plain] == ["there is room and time on node-i-1"]


def test_a_capped_word_still_has_to_fit():
    waiting = given.pod(gpus=8, expected="400h")
    plan = decide(
        spec(given.pool(maxExpectedDuration="8h")), world(given.block(ends_in="8h"), given.node(), waiting)
    )
    assert not admitted(plan)
    assert sentence(why(plan, waiting).reason) == "it needs 8h1m and nothing in pool p5 lasts that long"


def test_whoever_says_more_than_the_longest_block_is_taken_to_need_the_longest_block():
    waiting = given.pod(gpus=8, expected="9000h")
    plan = decide(spec(), world(given.block(ends_in="100h"), given.node(), waiting))
    assert sentence(why(plan, waiting).reason) == "it needs 182d1m and nothing in pool p5 lasts that long"


def test_a_cap_counts_per_pod_and_not_for_whoever_asks_for_the_same_time_in_all():
    """Two that need nine hours each, one of them for loading: only the long word is capped."""
    loads, works = (
        given.pod("loads", gpus=8, expected="1h", load="8h"),
        given.pod("works", gpus=8, expected="9h"),
    )
    believing = spec(given.pool(maxExpectedDuration="2h"))
    plan = decide(
        believing, world(given.block(ends_in="6h"), given.node("i-1"), given.node("i-2"), loads, works)
    )
    assert set(admitted(plan)) == {"uid-works"}


def test_the_pool_s_own_default_is_capped_too():
    trusting = spec(given.pool(defaultDuration="20h", maxExpectedDuration="8h"))
    assert admitted(decide(trusting, world(given.block(ends_in="10h"), given.node(), given.pod(gpus=8))))


def test_short_jobs_fill_a_dying_block_to_the_last_useful_minute():
    """Seventeen minutes are left until the drain begins, of which one goes into starting."""
    pods = [given.pod("fits", gpus=4, expected="16m"), given.pod("late", gpus=4, expected="17m")]
    plan = decide(spec(), world(given.block(ends_in="57m"), given.node(), pods))
    assert set(admitted(plan)) == {"uid-fits"}


def test_a_job_too_long_for_the_dying_block_is_sent_to_another_source_if_it_may():
    """Held without the opt-in; with it the pool's on-demand source takes it."""
    mixed = spec(
        given.pool(
            sources=[{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 200, "maxMonthlyUsd": 90000}]
        ),
        budget={"monthlyUsd": 90000},
    )
    there = [given.block(ends_in="3h"), given.node()]
    held = given.pod(gpus=8, expected="20h")
    assert why(decide(mixed, world(there, held)), held).code == "held"
    (launch,) = of(decide(mixed, world(there, given.pod(gpus=8, expected="20h", overflow=True))), Launch)
    assert launch.intent.source == ON_DEMAND
