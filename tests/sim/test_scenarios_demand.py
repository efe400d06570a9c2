"""Demand through the whole loop: nodes for pods that wait, no others, overflow inside its caps."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import actions_done, after, journal_lines, scenario_with
from tidemill.model.capacity import SourceKind
from tidemill.model.plan import Launch, StartDrain
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.wording import sentence

ON_DEMAND: list[dict[str, Any]] = [{"type": "on-demand"}]


# --- PE-3 ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("PE-3")
def test_a_pending_gpu_pod_gets_a_matching_instance_and_runs() -> None:
    rehearsal = scenario_with(
        given.pool(sources=ON_DEMAND), jobs=[given.job(at=("10m",))], duration="1h30m"
    ).run()
    ((at, launch),) = actions_done(rehearsal, Launch)
    assert at - after("10m") <= timedelta(seconds=11)  # the batch window is ten seconds at most
    assert (launch.intent.instance_type, launch.intent.count) == ("p5.48xlarge", 1)
    assert rehearsal.cluster.jobs["fit-1"].state == "finished"


@pytest.mark.requirement("PE-3")
@pytest.mark.parametrize(
    ("types", "asks"),
    [
        (["trn1.32xlarge"], {"gpus": 0, "neuron": 16, "cpu": "8", "memory": "64Gi"}),
        (["p5.48xlarge"], {"gpus": 8, "efa": 32}),
        (["g6.xlarge"], {"gpus": 0, "cpu": "2", "memory": "4Gi"}),
    ],
    ids=["neuron", "efa", "plain-cpu"],
)
def test_neuron_efa_and_plain_cpu_pods_get_their_nodes_too(types: list[str], asks: dict[str, Any]) -> None:
    wanted = given.pool(sources=ON_DEMAND, requirements={"instanceTypes": types})
    rehearsal = scenario_with(wanted, jobs=[given.job(**asks)], duration="1h30m").run()
    assert rehearsal.cluster.jobs["fit-1"].state == "finished"
    assert {history.now.instance_type for history in rehearsal.cloud.instance_histories.values()} == set(
        types
    )


@pytest.mark.requirement("PE-3")
def test_a_spot_or_on_demand_launch_that_finds_no_capacity_is_followed_by_the_next_source() -> None:
    either = given.pool(sources=[{"type": "spot"}, {"type": "on-demand"}])
    faults = [given.fault("0s", "no-capacity", target="spot", duration="1h")]
    rehearsal = scenario_with(either, jobs=[given.job()], faults=faults, duration="1h").run()
    assert {history.now.source.kind for history in rehearsal.cloud.instance_histories.values()} == {
        SourceKind.ON_DEMAND
    }
    assert rehearsal.cluster.jobs["fit-1"].started is not None


# --- PE-6 ---------------------------------------------------------------------------------------------


def emptied(at: tuple[str, ...]) -> Rehearsal:
    wanted = given.pool(sources=ON_DEMAND, disruption={"consolidateAfter": "10m"})
    return scenario_with(wanted, jobs=[given.job(at=at, lasts="15m")], duration="3h").run()


@pytest.mark.requirement("PE-6")
def test_an_empty_node_goes_after_consolidate_after_although_its_daemon_pods_stay() -> None:
    rehearsal = emptied(("0s",))
    finished = rehearsal.cluster.jobs["fit-1"].finished
    ((drained, _),) = actions_done(rehearsal, StartDrain)
    assert finished is not None
    assert timedelta(0) <= drained - finished - timedelta(minutes=10) <= timedelta(seconds=1)
    assert not list(rehearsal.cloud.alive())


@pytest.mark.requirement("PE-6")
def test_the_timer_starts_anew_when_a_pod_comes_and_goes() -> None:
    """The second job comes within the ten minutes, runs on the same node, and only then the clock runs."""
    rehearsal = emptied(("0s", "28m"))
    finished = rehearsal.cluster.jobs["fit-2"].finished
    ((drained, _),) = actions_done(rehearsal, StartDrain)
    assert finished is not None
    assert len(rehearsal.cloud.instance_histories) == 1
    assert timedelta(0) <= drained - finished - timedelta(minutes=10) <= timedelta(seconds=1)


# --- PE-18 --------------------------------------------------------------------------------------------


def overflow(hourly_usd: int, monthly_usd: int, budget_usd: int = 100_000, **fields: Any) -> Rehearsal:
    """A job an hour for three days; the block is small, and only some jobs may leave it."""
    sources = [
        {"type": "block"},
        {"type": "on-demand", "maxHourlyUsd": hourly_usd, "maxMonthlyUsd": monthly_usd},
    ]
    hours = tuple(f"{hour}h" for hour in range(1, 72, 2))
    return scenario_with(
        given.pool(sources=sources, disruption={"consolidateAfter": "5m"}),
        on=given.platform(budget={"monthlyUsd": budget_usd}),
        reservations=[given.block(count=1, duration="76h")],
        jobs=[
            given.job(at=hours, lasts="5h", checkpointEvery="30m"),
            given.job("may", at=hours, lasts="3h", **fields),
        ],
        duration="3d",
    ).run()


def on_demand_usd(rehearsal: Rehearsal) -> float:
    return rehearsal.cloud.hourly_usd()[SourceKind.ON_DEMAND]


@pytest.mark.requirement("PE-18")
def test_overflow_is_only_for_workloads_that_opted_in() -> None:
    assert on_demand_usd(overflow(200, 5000)) == 0
    rehearsal = overflow(200, 5000, overflow=True)
    used = {name for name, one in rehearsal.cluster.jobs.items() if "on-demand" in one.sources}
    assert used
    assert all(name.startswith("may-") for name in used)


@pytest.mark.requirement("PE-18")
@pytest.mark.parametrize(("monthly_usd", "budget_usd"), [(800, 100_000), (5000, 700)], ids=["cap", "budget"])
def test_overflow_stays_inside_its_caps_and_the_budget_over_days(monthly_usd: int, budget_usd: int) -> None:
    rehearsal = overflow(120, monthly_usd, budget_usd, overflow=True, checkpointEvery="20m", grace="2m")
    ceiling = min(monthly_usd, budget_usd)
    assert ceiling * 0.5 < on_demand_usd(rehearsal) <= ceiling
    assert not rehearsal.cluster.cut_short


@pytest.mark.requirement("PE-18")
def test_overflow_stays_inside_its_hourly_cap_when_many_jobs_come_at_once() -> None:
    sources = [{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 120, "maxMonthlyUsd": 5000}]
    jobs = [given.job(at=("0s",) * 5 + ("3m",) * 3, overflow=True)]
    rehearsal = scenario_with(
        given.pool(sources=sources), on=given.platform(budget={"monthlyUsd": 9000}), jobs=jobs, duration="4h"
    ).run()
    assert len([one for one in rehearsal.cluster.jobs.values() if one.state == "finished"]) >= 5


@pytest.mark.requirement("PE-18")
def test_pods_that_the_overflow_cap_holds_back_get_a_reason() -> None:
    rehearsal = overflow(10, 5000, overflow=True)
    assert on_demand_usd(rehearsal) == 0
    waiting = [sentence(unmet.reason) for unmet in rehearsal.plan.unmet if "may-" in unmet.name]
    assert waiting
    assert not journal_lines(rehearsal, "job-failed")
