"""Scenarios run over the wire: the engine, boto3, the AWS protocol, the simulated account; and the same result."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.scenario_builder import (
    PreparedScenario,
    after,
    block,
    fault,
    job,
    journal_lines,
    plan,
    platform,
    pool,
    scenario_with,
    service,
)
from tests.wire.rehearsing import on_the_wire
from tidemill.model.purchases import PurchaseState
from tidemill.sim.scenario.rehearsal import Rehearsal

WAYS = ("native", "asg", "managed")
ROLE = "arn:aws:iam::123456789012:role/node"
PLATFORM = platform(nodeRole=ROLE)
BUYER = platform(
    nodeRole=ROLE, budget={"perPurchaseUsd": 9000, "monthlyUsd": 20000}, approval={"mode": "one"}
)
APPROVAL = {"at": "1h", "window": "sprint", "verdict": "approve", "by": "finance"}


def story(rehearsal: Rehearsal) -> list[tuple[object, str, str]]:
    """Everything that happened, to whom and when."""
    return [(line.at, line.kind, line.about) for line in rehearsal.journal.lines]


def both(prepared: PreparedScenario, monkeypatch: pytest.MonkeyPatch, seed: int = 1) -> Rehearsal:
    """Over the wire, with the same story as in process."""
    with on_the_wire(prepared, monkeypatch, seed) as rehearsal:
        rehearsal.run()
    assert story(rehearsal) == story(prepared.run(seed))
    return rehearsal


def ended_by(rehearsal: Rehearsal) -> set[str]:
    return {history.ended_by for history in rehearsal.cloud.instance_histories.values()}


@pytest.mark.requirement("SM-3")
@pytest.mark.requirement("MG-4")
@pytest.mark.parametrize("way", WAYS)
def test_a_delivered_block_gets_nodes_runs_jobs_and_is_empty_at_the_kill_time(
    way: str, monkeypatch: pytest.MonkeyPatch
):
    rehearsal = both(
        scenario_with(
            pool(provisioner=way),
            on=PLATFORM,
            reservations=[block(**{"from": "30m"}, duration="3h30m")],
            jobs=[
                job(at=["0s", "1h"], lasts="40m"),
                job("long", at=["2h"], lasts="9h", checkpointEvery="10m"),
            ],
        ),
        monkeypatch,
    )
    assert rehearsal.cluster.jobs["fit-1"].state == rehearsal.cluster.jobs["fit-2"].state == "finished"
    assert ended_by(rehearsal) == {"engine"}
    assert not rehearsal.cloud.groups.all()


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_block_is_found_bought_delivered_used_and_drained(way: str, monkeypatch: pytest.MonkeyPatch):
    rehearsal = both(
        scenario_with(
            pool(provisioner=way),
            on=BUYER,
            plans=[plan()],
            decisions=[APPROVAL],
            jobs=[job(at=["29h"], lasts="40m")],
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
    rehearsal = both(
        scenario_with(
            pool(provisioner=way),
            on=PLATFORM,
            reservations=[block()],
            jobs=[job(lasts="20h", checkpointEvery="10m")],
            extensions=[{"at": "1h", "block": "a", "by": "1d"}],
            duration="29h",
        ),
        monkeypatch,
    )
    assert rehearsal.cluster.jobs["fit-1"].state == "finished"
    assert ended_by(rehearsal) == {"engine"}
    if way == "asg":
        assert [line.at for line in journal_lines(rehearsal, "schedule-fired")] == [after("27h29m")]


@pytest.mark.slow
@pytest.mark.requirement("CB-9")
@pytest.mark.parametrize("way", WAYS)
def test_two_blocks_hand_a_service_over(way: str, monkeypatch: pytest.MonkeyPatch):
    chat: dict[str, Any] = {
        "replicas": 4, "minAvailable": 3, "gpus": 4, "cpu": "40", "memory": "400Gi", "load": "8m",
        "zeroDowntime": True, "handover": {"method": "rollout", "maxSurge": 2, "maxUnavailable": 0},
    }  # fmt: skip
    b = block("b", pool="train", zone="us-east-1b", duration="28h", **{"from": "1h"})
    rehearsal = both(
        scenario_with(
            pool(provisioner=way),
            on=PLATFORM,
            reservations=[block("a", pool="train"), b],
            services=[service(**chat)],
            duration="5h",
        ),
        monkeypatch,
    )
    assert rehearsal.cluster.services["chat"].downtime_s(rehearsal.end) == 0


@pytest.mark.slow
@pytest.mark.parametrize("way", ["asg", "managed"])
def test_faults_have_the_same_effect_over_the_wire(way: str, monkeypatch: pytest.MonkeyPatch):
    both(
        scenario_with(
            pool(provisioner=way),
            on=PLATFORM,
            reservations=[block(duration="28h")],
            jobs=[job(at=["0s", "1m"], lasts="9h", checkpointEvery="10m")],
            faults=[
                fault("20m", "node-dies"),
                fault("40m", "engine-crash", step="after:terminate"),
                fault("50m", "gpu-fails"),
                fault("80m", "throttle", duration="5m"),
            ],
            duration="2h30m",
        ),
        monkeypatch,
    )
