"""Costs in the terminal and on the page: pools with idle hours, teams, and the most expensive workloads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.render.test_rehearsal_text import shown
from tidemill.render.cost_rows import JOBS_SHOWN, TEAMS_SHOWN, cost_rows, left_out
from tidemill.render.rehearsal_page import page
from tidemill.report.costs import Costs, PoolCost, TeamCost, WorkloadCost
from tidemill.sim.scenario.outcome import AlertRow, Outcome

COSTS = Costs(
    (
        PoolCost("train", 1055.1, 1248.9, 4632.54, 5483.46, 0.0, 7259.08, -2856.92),
        PoolCost("", 0.0, 12.0, 0.0, 99.5, 0.0, None, None),
    ),
    (TeamCost("research", 767.1, 3368.03, 5277.62, 1909.59), TeamCost("", 10.0, 9.0, None, None)),
    tuple(WorkloadCost(f"Job/<i>{place}", "research", 1.0, 2.0, 3.0, 1.0) for place in range(JOBS_SHOWN + 3)),
)


@pytest.fixture
def charged(outcome: Outcome) -> Outcome:
    return replace(outcome, costs=COSTS)


@pytest.mark.requirement("PE-16")
def test_pools_teams_and_the_most_expensive_workloads_have_a_line_each(charged: Outcome) -> None:
    lines = [" ".join(line.split()) for line in shown(charged, 80).splitlines()]
    assert "pool train 1,055 1,249 $10,116 $7,259 -$2,857" in lines
    assert "pool any pool 0 12.0 $99.50 – –" in lines
    assert "team research 767 $3,368 $5,278 $1,910" in lines
    assert "team no team 10.0 $9.00 – –" in lines
    assert sum(line.startswith("workload Job/") for line in lines) == JOBS_SHOWN
    assert "and 3 more: see --json" in lines
    assert all(len(line) <= 80 for line in shown(charged, 80).splitlines())


def test_without_costs_there_is_no_table(outcome: Outcome) -> None:
    assert "charged to" not in shown(outcome)
    assert 'id="costs"' not in page(outcome)


@pytest.mark.requirement("PE-16")
def test_the_page_has_the_table_with_its_names_escaped(charged: Outcome) -> None:
    text = page(charged)
    assert 'id="costs"' in text
    assert "Job/&lt;i&gt;0" in text
    assert "Job/<i>" not in text


def test_many_teams_are_shortened_and_counted() -> None:
    many = replace(
        COSTS, teams=tuple(replace(COSTS.teams[0], team=f"t{place}") for place in range(13)), jobs=()
    )
    assert sum(row.kind == "team" for row in cost_rows(many)) == TEAMS_SHOWN
    assert left_out(many) == 3


@pytest.mark.requirement("NT-1")
def test_alerts_are_counted_by_kind(outcome: Outcome) -> None:
    one = AlertRow("k", "offer-gone", "error", "tp-1", "t", "t", (), outcome.start, None, 1, ())
    told = shown(replace(outcome, alerts=(one, one, replace(one, kind="payment-failed"))))
    assert "2 offer-gone, 1 payment-failed (not sent)" in told
