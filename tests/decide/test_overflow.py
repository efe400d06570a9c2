"""Overflow to capacity paid by the hour: by opt-in, under an hourly and a monthly cap, inside the budget."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.decide import builders as given
from tests.decide.builders import NOW, ON_DEMAND, ahead, of, spec, why, world
from tidemill.catalog import load
from tidemill.decide import decide
from tidemill.decide.overflow import money_runs_out_at
from tidemill.model.capacity import SourceKind
from tidemill.model.plan import Admit, AnnounceEnd, Launch, Plan, StartDrain
from tidemill.model.purchases import Spending
from tidemill.model.reasons import DrainKind
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("PE-18")

P5_USD_H = load().types["p5.48xlarge"].on_demand_usd_h or 0.0


def documents(
    hourly: float = 200,
    monthly: float = 50_000,
    budget: int = 100_000,
    types: Any = ("p5.48xlarge",),
    **fields: Any,
) -> Any:
    overflow = {"type": "on-demand", "maxHourlyUsd": hourly, "maxMonthlyUsd": monthly}
    wanted = {"instanceTypes": list(types)}
    return spec(
        given.pool(sources=[{"type": "block"}, overflow], requirements=wanted, **fields),
        budget={"monthlyUsd": budget},
    )


def launched(plan: Plan) -> int:
    return sum(launch.intent.count for launch in of(plan, Launch) if launch.intent.source == ON_DEMAND)


def spent(hourly_usd: float = 0, fees_usd: int = 0) -> Spending:
    return Spending(fees_usd, ((("p5", SourceKind.ON_DEMAND), hourly_usd),))


@pytest.mark.parametrize(("lead", "nodes"), [("10m", 1), ("1h", 1), ("2h", 0), ("10h", 0)])
def test_no_node_is_launched_that_would_have_to_drain_at_once(lead: str, nodes: int) -> None:
    """The money lasts for two hours. With a drain of two hours it would go as it came, and another one would come."""
    service = given.pod(gpus=8, overflow=True)
    plan = decide(documents(monthly=P5_USD_H * 2, drain={"lead": lead}), world(service))
    assert launched(plan) == nodes


def test_only_a_workload_that_opted_in_overflows():
    shy = given.pod(gpus=8)
    plan = decide(documents(), world(given.block(), shy))
    assert launched(plan) == 0
    assert why(plan, shy).code == "no-capacity"
    assert launched(decide(documents(), world(given.block(), given.pod(gpus=8, overflow=True)))) == 1


def test_what_did_not_opt_in_is_told_so_when_overflow_is_all_there_is():
    shy = given.pod(gpus=8)
    told = why(decide(documents(), world(shy)), shy)
    assert (told.code, sentence(told.reason)) == (
        "held",
        "pool p5 has only overflow capacity now, and it did not opt in",
    )


def test_an_overflow_node_is_not_given_to_a_pod_that_did_not_opt_in():
    up = given.node(source=ON_DEMAND)
    assert not of(decide(documents(), world(up, given.pod(gpus=8, expected="1h"))), Admit)
    assert of(decide(documents(), world(up, given.pod(gpus=8, expected="1h", overflow=True))), Admit)


def test_prepaid_room_comes_before_overflow():
    plan = decide(
        documents(),
        world(
            given.block(), given.node(), given.node("i-2", source=ON_DEMAND), given.pod(gpus=8, overflow=True)
        ),
    )
    assert [admit.source_label for admit in of(plan, Admit)] == ["cr-1"]


@pytest.mark.parametrize(
    ("cap", "expected"),
    [
        (P5_USD_H * 2 + 1, 2),
        (P5_USD_H, 1),
        (P5_USD_H - 1, 0),
        (0, 0),
    ],
)
def test_the_hourly_cap_holds_inside_one_batch(cap: float, expected: int):
    pods = [given.pod(f"p{place}", gpus=8, overflow=True) for place in range(4)]
    plan = decide(documents(hourly=cap), world(pods))
    assert launched(plan) == expected


def test_a_pod_over_the_hourly_cap_is_told_that_it_is_about_money():
    pods = [given.pod(f"p{place}", gpus=8, overflow=True) for place in range(2)]
    plan = decide(documents(hourly=P5_USD_H), world(pods))
    assert [why(plan, one).code for one in pods] == ["launching", "budget"]


def test_the_hourly_cap_is_one_for_all_types_and_zones_of_the_source():
    both = documents(hourly=5, types=("g6.12xlarge", "g6.xlarge"))
    small = given.pod(
        "small", gpus=1, overflow=True, selector={"node.kubernetes.io/instance-type": "g6.xlarge"}
    )
    large = given.pod("large", gpus=4, overflow=True)
    plan = decide(both, world(small, large))
    rate = sum(
        (load().types[one.intent.instance_type].on_demand_usd_h or 0) * one.intent.count
        for one in of(plan, Launch)
    )
    assert rate <= 5


def test_what_already_runs_and_what_is_on_its_way_counts_against_the_hourly_cap():
    waiting = given.pod(gpus=8, overflow=True)
    busy = given.node(source=ON_DEMAND)
    work = given.pod("work", gpus=8, on=busy, overflow=True)
    cap = documents(hourly=P5_USD_H * 1.5)
    assert launched(decide(cap, world(busy, work, waiting))) == 0
    coming = given.launch_intent(source=ON_DEMAND)
    pinned = given.pod("pinned", gpus=8, overflow=True, gated=False, pinned_to="on-demand")
    assert launched(decide(cap, world(coming, pinned, waiting))) == 0


def test_a_gang_overflows_whole_or_not_at_all():
    pods = given.gang(size=3, overflow=True)
    assert launched(decide(documents(hourly=P5_USD_H * 2), world(pods))) == 0
    assert launched(decide(documents(hourly=P5_USD_H * 3), world(pods))) == 3


@pytest.mark.parametrize(
    ("settings", "spending"),
    [
        ({"monthly": 1_000}, spent(hourly_usd=1_000)),
        ({"budget": 30_000}, spent(fees_usd=30_000)),
        ({"budget": 30_000}, Spending(29_000, ((("other", SourceKind.SPOT), 1_000.0),))),
    ],
    ids=["its own monthly cap", "the budget, by block fees", "the budget, by another pool"],
)
def test_nothing_overflows_once_a_months_money_is_spent(settings: dict, spending: Spending):
    waiting = given.pod(gpus=8, overflow=True)
    plan = decide(documents(**settings), world(waiting, spending))
    assert launched(plan) == 0
    assert why(plan, waiting).code == "budget"


def test_without_a_budget_nothing_overflows():
    assert launched(decide(documents(budget=0), world(given.pod(gpus=8, overflow=True)))) == 0


def test_money_that_will_run_out_is_a_deadline():
    # ten hours of one node are left of the monthly cap
    left = P5_USD_H * 10
    up = given.node(source=ON_DEMAND)
    work = given.pod(gpus=8, on=up, overflow=True)
    plan = decide(documents(monthly=1_000 + left), world(up, work, spent(hourly_usd=1_000)))
    (told,) = of(plan, AnnounceEnd)
    assert told.ends_at == ahead("10h")
    assert plan.wake_at == ahead("9h50m")


def test_the_nearer_of_cap_and_budget_is_the_deadline():
    up = given.node(source=ON_DEMAND)
    work = given.pod(gpus=8, on=up, overflow=True)
    tight = documents(monthly=P5_USD_H * 100, budget=int(P5_USD_H * 2))
    (told,) = of(decide(tight, world(up, work)), AnnounceEnd)
    assert ahead("1h58m") <= told.ends_at <= ahead("2h")


@pytest.mark.parametrize(
    ("told", "ends_in_h", "again"),
    [
        ("240h", 270, False),  # it moved away, and is far
        ("240h", 235, False),  # it came nearer, by little
        ("240h", 200, True),
        ("20h", 30, True),  # it moved away, and would be near
        ("20h", 20.5, False),
    ],
)
def test_an_end_of_money_that_moves_with_every_node_is_not_told_each_time(
    told: str, ends_in_h: float, again: bool
) -> None:
    up = given.node("i-1", source=ON_DEMAND)
    work = given.pod(on=up, overflow=True, ends_at=ahead(told))
    plan = decide(documents(monthly=P5_USD_H * ends_in_h), world(up, work))
    assert bool(of(plan, AnnounceEnd)) == again


def test_overflow_nodes_are_drained_before_the_money_is_gone():
    up = given.node(source=ON_DEMAND)
    work = given.pod(gpus=8, on=up, overflow=True)
    nearly = world(up, work, spent(hourly_usd=1_000))
    (started,) = of(decide(documents(monthly=1_000 + P5_USD_H * 0.15), nearly), StartDrain)
    assert (started.reason.kind, started.reason.is_end) == (DrainKind.MONEY_ENDS, True)


def test_a_job_that_the_money_would_not_see_through_is_held():
    waiting = given.pod(gpus=8, overflow=True, expected="20h")
    plan = decide(documents(monthly=P5_USD_H * 10), world(waiting))
    assert launched(plan) == 0
    assert why(plan, waiting).code == "held"
    assert launched(decide(documents(monthly=P5_USD_H * 30), world(waiting))) == 1


def test_a_pool_of_on_demand_alone_is_not_overflow():
    plain = spec(given.pool(sources=[{"type": "on-demand"}]))
    plan = decide(plain, world(given.pod(gpus=8)))
    assert launched(plan) == 1
    assert plan.wake_at is None or plan.wake_at > NOW


def test_a_long_queue_gets_as_many_nodes_as_the_money_lasts_for():
    """$600 are four nodes for two hours and their drain; with a fifth, none of them could finish."""
    papers = documents(hourly=5000, monthly=600)
    for waiting in (4, 5, 9):
        jobs = [given.pod(f"j-{n}", gpus=8, expected="2h", overflow=True) for n in range(waiting)]
        plan = decide(papers, world(jobs))
        assert launched(plan) == 4
        left = [one for one in plan.unmet if one.code != "launching"]
        assert {one.code for one in left} <= {"budget", "held"}
        assert len(left) == waiting - 4


def test_new_work_does_not_take_the_money_from_work_that_runs():
    papers = documents(hourly=5000, monthly=600)
    there = given.node("i-1", source=ON_DEMAND)
    long = given.pod("long", on=there, gpus=8, expected="9h", overflow=True)
    short = [given.pod(f"j-{n}", gpus=8, expected="1h", overflow=True) for n in range(4)]
    assert not of(decide(papers, world(there, long, short)), Launch)
    resumable = given.pod("long", on=there, gpus=8, expected="9h", checkpoint_every="10m", overflow=True)
    assert of(decide(papers, world(there, resumable, short)), Launch)


def test_two_pools_share_the_budget_of_the_platform():
    overflow = {"type": "on-demand", "maxHourlyUsd": 500, "maxMonthlyUsd": 5000}
    both = [
        given.pool(name, sources=[{"type": "block"}, overflow], labels={"for": name})
        for name in ("one", "two")
    ]
    papers = spec(*both, budget={"monthlyUsd": 60})
    jobs = [
        given.pod(f"j-{name}", gpus=8, expected="20m", overflow=True, selector={"for": name})
        for name in ("one", "two")
    ]
    assert launched(decide(papers, world(jobs))) == 1
    assert launched(decide(papers, world(jobs[:1]))) == 1


def test_room_paid_by_the_hour_is_not_kept_for_a_service_that_will_move():
    """Kept for it, the job it was launched for could not use it, and another would be launched."""
    papers = documents()
    old, fresh = given.node("i-1"), given.node("i-2", source=ON_DEMAND)
    chat = given.replica("chat-1", old, gpus=8)
    job = given.pod("job", gpus=8, expected="30h", overflow=True)
    plan = decide(papers, world(given.block(count=1, ends_in="20h"), old, fresh, chat, job))
    assert [uid for action in of(plan, Admit) for uid in action.pods] == [job.uid]


def test_money_for_more_than_a_year_runs_out_at_the_same_instant_at_every_look():
    """If that instant moved with the clock, nodes by the hour would rank anew, and be packed anew, every minute."""
    rich, up = documents(monthly=9e9, budget=2_000_000_000), world(given.node(source=ON_DEMAND))
    looks = [replace(up, now=NOW + timedelta(minutes=minutes)) for minutes in (0, 1, 60, 24 * 60)]
    ends = {money_runs_out_at(rich, look, "p5", SourceKind.ON_DEMAND) for look in looks}
    assert len(ends) == 1
    assert ends.pop() > looks[-1].now + timedelta(days=365)
