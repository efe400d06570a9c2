"""Who pays for what: shares of hours, idle to the owner, and everything adds up."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.decide.builders import NOW
from tidemill.report.costs import Costs, Paid, Use, costs, rounded


def use(
    gpus: int = 4, *, of: int = 8, hours: float = 1, after: float = 0, team: str = "vision", **fields: str
) -> Use:
    since = NOW + timedelta(hours=after)
    return Use(
        fields.get("pool", "p5"), team, fields.get("workload", "Job/a"), gpus, gpus / of, since,
        since + timedelta(hours=hours),
    )  # fmt: skip


def paid(*uses: Use, hours: float = 10, usd_h: float = 80.0, gpus: int = 8, **fields: object) -> Paid:
    """Eight GPUs for ten hours, $10 an hour each; $20 on demand."""
    facts: dict = {"pool": "p5", "on_demand_usd_per_hour": 160.0, **fields}
    return Paid(
        gpus=gpus, usd_per_hour=usd_h, since=NOW, until=NOW + timedelta(hours=hours), uses=uses, **facts
    )


@pytest.mark.requirement("PE-16")
def test_who_uses_gpus_pays_their_share_and_the_owner_pays_for_the_rest():
    told = costs([paid(use(4, hours=2), use(8, after=5, hours=1, team="speech", workload="Job/b"))])
    (pool,) = told.pools
    assert (pool.gpu_hours_used, pool.gpu_hours_idle) == (16, 64)
    assert (pool.used_usd, pool.idle_usd) == (160, 640)
    assert [(team.team, team.gpu_hours, team.usd) for team in told.teams] == [
        ("speech", 8, 80),
        ("vision", 8, 80),
    ]
    assert [job.workload for job in told.jobs] == ["Job/a", "Job/b"]


@pytest.mark.requirement("PE-16")
def test_the_saving_counts_idle_hours_against_the_pool_and_not_against_who_worked():
    told = costs([paid(use(8, hours=4))])
    assert told.teams[0].on_demand_usd == 640
    assert told.teams[0].saving_usd == 320
    assert told.pools[0].on_demand_usd == 640
    assert told.pools[0].saving_usd == 640 - 800


@pytest.mark.requirement("PE-16")
def test_work_of_another_pool_on_a_block_is_that_pools_and_idle_stays_with_the_owner():
    told = {pool.pool: pool for pool in costs([paid(use(8, hours=4, pool="guest"))]).pools}
    assert (told["guest"].used_usd, told["guest"].idle_usd) == (320, 0)
    assert (told["p5"].used_usd, told["p5"].idle_usd) == (0, 480)


def test_hours_outside_what_is_paid_cost_nothing():
    told = costs([paid(use(8, hours=30, after=-10))])
    assert told.pools[0].gpu_hours_used == 80
    assert told.pools[0].idle_usd == 0


def test_a_type_without_a_price_leaves_no_half_comparison():
    told = costs([paid(use(8)), paid(use(8), on_demand_usd_per_hour=None)])
    assert told.pools[0].on_demand_usd is None
    assert told.pools[0].saving_usd is None
    assert told.teams[0].saving_usd is None
    assert told.jobs[0].saving_usd is None


def test_nothing_paid_is_nothing():
    assert costs([]) == Costs()
    assert costs([]).total_usd == 0


def test_what_is_shown_is_rounded():
    third = rounded(costs([paid(use(1, hours=1 / 3))])).jobs[0]
    assert (third.gpu_hours, third.usd) == (0.333, 3.33)


uses = st.builds(
    use,
    st.integers(1, 8),
    hours=st.floats(0, 20),
    after=st.floats(-5, 15),
    team=st.sampled_from(["", "vision", "speech"]),
    pool=st.sampled_from(["p5", "guest"]),
    workload=st.sampled_from(["Job/a", "Job/b", "Deployment/chat"]),
)
capacity = st.builds(
    lambda some, hours, usd_h, outside, pool: paid(
        *some, hours=hours, usd_h=usd_h, outside_usd=outside, pool=pool
    ),
    st.lists(uses, max_size=4),
    st.floats(0, 100),
    st.floats(0, 500),
    st.floats(0, 1000),
    st.sampled_from(["p5", "", "other"]),
)


@pytest.mark.requirement("PE-16")
@given(st.lists(capacity, max_size=5))
def test_everything_adds_up(some: list[Paid]):
    told = costs(some)
    all_usd = sum(one.hours * one.usd_per_hour + one.outside_usd for one in some)
    assert told.total_usd == pytest.approx(all_usd, abs=1e-6)
    assert sum(team.usd for team in told.teams) == pytest.approx(told.used_usd, abs=1e-6)
    assert sum(job.usd for job in told.jobs) == pytest.approx(told.used_usd, abs=1e-6)
    hours = sum(pool.gpu_hours_used + pool.gpu_hours_idle for pool in told.pools)
    assert hours == pytest.approx(sum(one.hours * one.gpus for one in some), abs=1e-6)
