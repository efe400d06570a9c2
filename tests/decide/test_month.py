"""The platform's budget for a month holds for every pool that is paid by the hour, with and without prepaid sources."""

from __future__ import annotations

from typing import Any

import pytest

from tests.decide import builders as given
from tests.decide.builders import NOW, ON_DEMAND, hourly_pool, of, spec, why, world
from tests.decide.purchases import buying, intent
from tests.sim.scenario_builder import P5, job, platform, pool, scenario_with
from tidemill.catalog import load
from tidemill.decide import decide
from tidemill.model.alerts import AlertKind
from tidemill.model.capacity import SourceKind
from tidemill.model.plan import AnnounceEnd, Launch, StartDrain
from tidemill.model.purchases import Spending
from tidemill.model.reasons import DrainKind, HoldKind
from tidemill.report.alerts import alerts
from tidemill.spec import Spec
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("PE-18")
P5_USD_H = load().types["p5.48xlarge"].on_demand_usd_h or 0.0


def documents(budget: float, **fields: Any) -> Spec:
    return spec(hourly_pool("p5", "p5.48xlarge", **fields), budget={"monthlyUsd": round(budget)})


def spent(usd: float) -> Spending:
    return Spending(0, ((("p5", SourceKind.ON_DEMAND), usd),))


def test_a_pool_by_the_hour_launches_nothing_once_the_month_is_spent():
    waits = given.pod(gpus=8, expected="1h")
    plan = decide(documents(10_000), world(waits, spent(10_000)))
    assert not of(plan, Launch)
    assert why(plan, waits).reason.kind is HoldKind.MONTH_SPENT
    assert of(decide(documents(10_000), world(waits, spent(9_000))), Launch)


def test_it_launches_no_more_than_the_month_lasts_for():
    jobs = [given.pod(f"job-{each}", gpus=8, expected="10h") for each in range(6)]
    plan = decide(documents(P5_USD_H * 25), world(jobs))
    assert sum(launch.intent.count for launch in of(plan, Launch)) == 2
    assert HoldKind.NOTHING_LASTS in {one.reason.kind for one in plan.unmet}


def test_new_work_does_not_take_the_month_from_work_that_runs():
    on = given.node(source=ON_DEMAND)
    runs = given.pod("runs", on=on, gpus=8, expected="10h")
    waits = given.pod("waits", gpus=8, expected="1h")
    plan = decide(documents(P5_USD_H * 12), world(on, runs, waits))
    assert not of(plan, Launch)
    assert why(plan, waits).reason.kind is HoldKind.MONTH_TOO_SHORT


def test_its_nodes_are_drained_before_the_month_is_overrun():
    on = given.node(source=ON_DEMAND)
    work = given.pod("works", on=on, gpus=8, expected="30h", grace="1m", checkpoint_every="10m")
    near = decide(documents(10_000), world(on, work, spent(10_000 - P5_USD_H / 10)))
    (started,) = of(near, StartDrain)
    assert started.reason.kind is DrainKind.MONEY_ENDS
    far = decide(documents(10_000), world(on, work, spent(0)))
    assert not of(far, StartDrain)


def test_a_month_that_pays_for_all_of_it_has_no_end():
    on = given.node(source=ON_DEMAND)
    work = given.pod("works", on=on, gpus=8, expected="30h")
    plan = decide(documents(P5_USD_H * 24 * 31 + 1), world(on, work, spent(0)))
    assert not of(plan, AnnounceEnd)


def test_next_month_has_a_budget_of_its_own():
    """NOW is the 16th at noon: 348 hours are left of the month, and the budget pays for 400."""
    on = given.node(source=ON_DEMAND)
    work = given.pod("works", on=on, gpus=8, expected="30h")
    (told,) = of(decide(documents(P5_USD_H * 400), world(on, work)), AnnounceEnd)
    assert abs((told.ends_at - NOW).total_seconds() / 3600 - (348 + 400)) < 0.1


def test_without_a_budget_its_limits_are_all_that_holds_it():
    waits = given.pod(gpus=8, expected="1h")
    assert of(decide(spec(hourly_pool("p5", "p5.48xlarge")), world(waits, spent(1e6))), Launch)


def test_a_purchase_that_is_held_back_says_that_the_money_went_by_the_hour_and_where():
    by_the_hour = Spending(
        1_000, ((("g6", SourceKind.ON_DEMAND), 70_000.0), (("p5", SourceKind.SPOT), 9_000.0))
    )
    of_ = buying(budget={"perPurchaseUsd": 90_000, "monthlyUsd": 100_000})
    there = world(intent("approved", approved_by=("ana",)), by_the_hour)
    plan = decide(of_, there)
    (warning,) = (one for one in plan.warnings if one.about == "tp-1")
    assert sentence(warning.reason) == (
        "up to $30,000 on top of $80,000 is over the monthly budget of $100,000; $79,000 of it was by the hour,"
        " most by pool g6"
    )
    (alert,) = alerts(of_, there, plan, ())
    assert alert.kind is AlertKind.APPROVAL_WAITING
    assert "most by pool g6" in alert.text


def test_a_rehearsed_pool_by_the_hour_stays_within_the_month():
    """Eight nodes could use $1,400 in less than two hours; invariant 3 judges it every hour."""
    by_the_hour = pool(sources=[{"type": "on-demand"}], requirements={"instanceTypes": [P5]})
    jobs = [job(lasts="40m", at=[f"{each * 10}m" for each in range(24)])]
    rehearsal = scenario_with(
        by_the_hour, on=platform(budget={"monthlyUsd": 1_400}), jobs=jobs, duration="8h"
    ).run()
    cost = sum(rehearsal.cloud.hourly_usd().values())
    assert 700 < cost <= 1_400
