"""The verdict of a rehearsal: safe, served, worth it."""

from __future__ import annotations

import pytest

from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import PreparedScenario, scenario_with, without
from tidemill.cli.snapshot_file import take_snapshot
from tidemill.model.errors import InvariantViolated
from tidemill.model.plan import Admit
from tidemill.render.verdict_text import parts
from tidemill.report.ledger_costs import ledger_costs
from tidemill.report.savings import savings
from tidemill.sim.scenario.outcome import Verdict
from tidemill.sim.scenario.tally import tally

pytestmark = pytest.mark.requirement("GB-4")


def judged(scenario: PreparedScenario) -> Verdict:
    return tally(scenario.run(), scenario="test", wall_s=1.0).verdict


def unserved(verdict: Verdict) -> dict[str, tuple[str, ...]]:
    return {row.kind: row.names for row in verdict.unserved}


BUYER = given.platform(budget={"perPurchaseUsd": 9000, "monthlyUsd": 9000}, approval={"mode": "one"})
BUSY = [given.job(lasts="3h", at=("0s", "0s"))]


def test_a_block_that_is_used_most_of_its_time_is_safe_served_and_worth_it() -> None:
    verdict = judged(scenario_with(reservations=[given.block()], jobs=BUSY))
    assert (verdict.safe, verdict.served, verdict.worth_it, verdict.unserved) == (True, True, True, ())
    money = verdict.savings
    assert money.break_even is not None
    assert money.reached is not None
    assert money.on_demand_usd is not None
    assert money.break_even < money.reached
    assert money.saved_usd == pytest.approx(money.on_demand_usd - money.paid_usd, abs=0.02)
    assert money.ahead_usd < 10  # it began some minutes before the rehearsal


def test_a_block_that_is_hardly_used_is_served_but_not_worth_it() -> None:
    verdict = judged(scenario_with(reservations=[given.block()], jobs=[given.job(lasts="20m")]))
    assert (verdict.safe, verdict.served, verdict.worth_it) == (True, True, False)
    money = verdict.savings
    assert money.saved_usd is not None
    assert money.saved_usd < 0
    assert money.break_even is not None
    assert money.reached is not None
    assert money.reached < money.break_even


def test_nothing_bought_and_everything_held_is_not_served() -> None:
    """Nobody approved: the window is empty, and the work that came before it waits."""
    verdict = judged(
        scenario_with(
            on=BUYER, plans=[given.plan()], duration="40h", jobs=[given.job(lasts="1h", at=("30h",))]
        )
    )
    assert (verdict.safe, verdict.served, verdict.worth_it) == (True, False, None)
    assert unserved(verdict) == {"uncovered": ("november/sprint",), "waiting": ("fit-1",)}


def test_a_window_that_was_bought_is_covered() -> None:
    yes = [{"at": "2h", "window": "sprint", "verdict": "approve", "by": "finance"}]
    assert judged(scenario_with(on=BUYER, plans=[given.plan()], duration="40h", decisions=yes)).served


def test_a_job_that_came_too_late_to_be_done_is_no_fault_of_the_plan() -> None:
    late = [given.job(lasts="3h", at=("2h",))]
    assert judged(scenario_with(reservations=[given.block()], jobs=late, duration="4h30m")).served


def test_services_that_were_down_and_jobs_that_were_late_are_not_served() -> None:
    pool = given.pool(limits={"nodes": 1})
    scenario = scenario_with(
        pool,
        reservations=[given.block(count=1)],
        services=[given.service(replicas=2, minAvailable=2)],
        jobs=[given.job(lasts="20m", deadline="30m")],
    )
    verdict = judged(scenario)
    assert not verdict.served
    assert unserved(verdict)["down"] == ("chat",)


def test_a_run_that_stopped_at_a_violation_is_not_judged_further() -> None:
    rehearsal = scenario_with(reservations=[given.block()], jobs=[given.job()]).prepare(decide=without(Admit))
    with pytest.raises(InvariantViolated) as caught:
        rehearsal.run()
    verdict = tally(rehearsal, scenario="test", wall_s=1.0, violation=caught.value).verdict
    assert (verdict.safe, verdict.served) == (False, None)


def test_without_capacity_paid_in_advance_there_is_nothing_to_be_worth() -> None:
    hourly = given.pool(sources=[{"type": "on-demand"}])
    assert judged(scenario_with(hourly, jobs=[given.job()])).worth_it is None


def test_all_views_of_one_rehearsal_have_the_same_savings() -> None:
    """The verdict is the sum of the pools, and the bill is what was paid inside and outside the rehearsal."""
    told = tally(
        scenario_with(reservations=[given.block(duration="28h")], jobs=BUSY).run(), scenario="t", wall_s=1.0
    )
    money = told.verdict.savings
    assert money.saved_usd == pytest.approx(sum(pool.saving_usd or 0 for pool in told.costs.pools), abs=0.02)
    assert money.paid_usd + money.ahead_usd == pytest.approx(told.cost_usd["total"], abs=0.02)
    assert money.idle_usd == pytest.approx(told.cost_usd["idle"], abs=0.02)
    assert told.as_json()["verdict"]["savings"]["saved_usd"] == money.saved_usd


# --- the same figures everywhere ------------------------------------------------------------------------


def test_status_and_costs_show_the_savings_of_the_verdict() -> None:
    """The ledger counts hours in samples of minutes, so its figures are the same to a percent."""
    rehearsal = given.scenario_with(
        given.pool(),
        on=given.platform(budget={"perPurchaseUsd": 9000, "monthlyUsd": 20000}, approval={"mode": "one"}),
        plans=[given.plan()],
        decisions=[{"at": "1h", "window": "sprint", "verdict": "approve", "by": "finance"}],
        jobs=[given.job(lasts="10h", at=("30h",))],
        duration="60h",
    ).prepare()
    rehearsal.run()
    verdict = tally(rehearsal, scenario="test", wall_s=1.0).verdict.savings
    shown = take_snapshot(rehearsal, "one").status.money.savings
    assert shown == verdict
    ledger = rehearsal.ledger
    catalog, hours, lines = rehearsal.spec.catalog, ledger.block_hours(), ledger.cost_lines()
    costs = savings(ledger_costs(catalog, ledger.purchases(), hours, lines, rehearsal.end))
    assert verdict.saved_usd is not None
    assert verdict.paid_usd > 1000
    assert costs.paid_usd == pytest.approx(verdict.paid_usd, rel=0.01)
    assert costs.saved_usd == pytest.approx(verdict.saved_usd, rel=0.01)
    assert costs.break_even == pytest.approx(verdict.break_even, rel=0.01)


def test_a_block_that_has_ended_is_not_paid_for_so_far() -> None:
    result = given.scenario_with(
        given.pool(), reservations=[given.block(duration="4h")], jobs=[given.job()], duration="6h"
    ).run()
    text = "\n".join(
        line for part in parts(tally(result, scenario="test", wall_s=1.0)) for line in part.lines
    )
    assert "GPU-hours, " in text
    assert "so far" not in text
