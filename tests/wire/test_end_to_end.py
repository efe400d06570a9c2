"""Scenarios run over the wire: the engine, boto3, the AWS protocol, the simulated account; and the same result."""

from __future__ import annotations

import pytest

from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import after, journal_lines, scenario_with
from tests.wire.rehearsing import ONE_BLOCK_AND_JOBS, TWO_BLOCKS_AND_A_SERVICE, run_both_ways
from tidemill.model.purchases import PurchaseState
from tidemill.sim.scenario.rehearsal import Rehearsal

WAYS = ("native", "asg", "managed")
ROLE = "arn:aws:iam::123456789012:role/node"
PLATFORM = given.platform(nodeRole=ROLE)
BUYER = given.platform(
    nodeRole=ROLE, budget={"perPurchaseUsd": 9000, "monthlyUsd": 20000}, approval={"mode": "one"}
)
APPROVAL = {"at": "1h", "window": "sprint", "verdict": "approve", "by": "finance"}


def ended_by(rehearsal: Rehearsal) -> set[str]:
    return {history.ended_by for history in rehearsal.cloud.instance_histories.values()}


@pytest.mark.requirement("SM-3")
@pytest.mark.requirement("MG-4")
@pytest.mark.parametrize("way", WAYS)
def test_a_delivered_block_gets_nodes_runs_jobs_and_is_empty_at_the_kill_time(
    way: str, monkeypatch: pytest.MonkeyPatch
):
    rehearsal = run_both_ways(
        scenario_with(
            given.pool(provisioner=way),
            on=PLATFORM,
            **ONE_BLOCK_AND_JOBS,
        ),
        monkeypatch,
    )
    assert rehearsal.cluster.jobs["fit-1"].state == rehearsal.cluster.jobs["fit-2"].state == "finished"
    assert ended_by(rehearsal) == {"engine"}
    assert not rehearsal.cloud.groups.all()


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_block_is_found_bought_delivered_used_and_drained(way: str, monkeypatch: pytest.MonkeyPatch):
    rehearsal = run_both_ways(
        scenario_with(
            given.pool(provisioner=way),
            on=BUYER,
            plans=[given.plan()],
            decisions=[APPROVAL],
            jobs=[given.job(at=["29h"], lasts="40m")],
            duration="54h",
        ),
        monkeypatch,
    )
    (bought,) = rehearsal.ledger.purchases()
    assert bought.state is PurchaseState.CONFIRMED
    assert len(rehearsal.cloud.purchases) == 1
    assert rehearsal.cluster.jobs["fit-1"].state == "finished"
    assert ended_by(rehearsal) == {"engine"}


@pytest.mark.slow
@pytest.mark.requirement("SM-4")
@pytest.mark.requirement("MG-2")
@pytest.mark.parametrize("way", WAYS)
def test_an_extension_moves_the_schedules_and_the_drain(way: str, monkeypatch: pytest.MonkeyPatch):
    rehearsal = run_both_ways(
        scenario_with(
            given.pool(provisioner=way),
            on=PLATFORM,
            reservations=[given.block()],
            jobs=[given.job(lasts="20h", checkpointEvery="10m")],
            extensions=[{"at": "1h", "block": "a", "by": "1d"}],
            duration="29h",
        ),
        monkeypatch,
    )
    assert rehearsal.cluster.jobs["fit-1"].state == "finished"
    assert ended_by(rehearsal) == {"engine"}
    if way == "asg":
        assert [line.at for line in journal_lines(rehearsal, "schedule-fired")] == [after("27h19m")]


@pytest.mark.slow
@pytest.mark.requirement("CB-9")
@pytest.mark.parametrize("way", WAYS)
def test_two_blocks_hand_a_service_over(way: str, monkeypatch: pytest.MonkeyPatch):
    rehearsal = run_both_ways(
        scenario_with(
            given.pool(provisioner=way),
            on=PLATFORM,
            **TWO_BLOCKS_AND_A_SERVICE,
        ),
        monkeypatch,
    )
    assert rehearsal.cluster.services["chat"].downtime_s(rehearsal.end) == 0


@pytest.mark.slow
@pytest.mark.parametrize("way", ["asg", "managed"])
def test_faults_have_the_same_effect_over_the_wire(way: str, monkeypatch: pytest.MonkeyPatch):
    run_both_ways(
        scenario_with(
            given.pool(provisioner=way),
            on=PLATFORM,
            reservations=[given.block(duration="28h")],
            jobs=[given.job(at=["0s", "1m"], lasts="9h", checkpointEvery="10m")],
            faults=[
                given.fault("20m", "node-dies"),
                given.fault("40m", "engine-crash", step="after:terminate"),
                given.fault("50m", "gpu-fails"),
                given.fault("80m", "throttle", duration="5m"),
            ],
            duration="2h30m",
        ),
        monkeypatch,
    )
