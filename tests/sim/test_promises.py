"""Invariant 15: what a person was told comes true."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.sim import mutants
from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import PreparedScenario, deciding_wrongly, scenario_with, without
from tidemill.decide import decide
from tidemill.model.capacity import Reservation, ReservationState
from tidemill.model.errors import InvariantViolated
from tidemill.model.plan import Evict, Launch, Plan, Recreate
from tidemill.model.world import World
from tidemill.sim.cloud.cloud import SimCloud
from tidemill.spec import Spec

HAND_OVER = scenario_with(
    reservations=[given.block("a"), given.block("b", zone="us-east-1b", **{"from": "1h"}, duration="28h")],
    services=[given.service()],
    duration="6h",
)
EARLY = scenario_with(
    given.pool(drain={"lead": "1h"}),
    reservations=[given.block("a"), given.block("b", zone="us-east-1b", **{"from": "1h"}, duration="28h")],
    services=[given.service()],
    duration="6h",
)
ALONE = scenario_with(given.pool(sources=[{"type": "on-demand"}]), jobs=[given.job()], duration="3h")


class EarlyCloud(SimCloud):
    """Says that blocks end two hours before they do."""

    def reservations(self) -> tuple[Reservation, ...]:
        return tuple(
            replace(block, end=block.end - timedelta(hours=2)) if block.end else block
            for block in super().reservations()
        )


GOES_ON = given.plan(
    demand=[
        {
            "name": "sprint",
            "from": "2026-11-17T08:00:00Z",
            "to": "2026-11-20T11:00:00Z",
            "instanceType": given.P5,
            "instances": 2,
        }
    ]
)
CLOSING = scenario_with(plans=[GOES_ON], reservations=[given.block(duration="28h")], duration="26h")

WAITS = scenario_with(
    jobs=[given.job(lasts="3h", expected="3h")],
    reservations=[given.block(duration="26h", count=2, **{"from": "3h"})],
    duration="6h",
)
TOO_LONG = scenario_with(
    jobs=[given.job(lasts="9h", expected="9h")],
    reservations=[given.block(duration="4h", count=2, **{"from": "1h"})],
    duration="4h",
)


def says_an_hour_ago(spec: Spec, world: World) -> Plan:
    plan = decide(spec, world)
    told = tuple(replace(one, earliest=world.now - timedelta(hours=1)) for one in plan.unmet)
    return replace(plan, unmet=told)


def names_the_next_block_to_everybody(spec: Spec, world: World) -> Plan:
    plan = decide(spec, world)
    coming = [block for block in world.reservations if block.state is ReservationState.SCHEDULED]
    if not coming:
        return plan
    block = coming[0]
    told = tuple(
        replace(
            one,
            earliest=block.start + timedelta(minutes=5),
            reason=replace(one.reason, next_block=block.id, next_start=block.start),
        )
        for one in plan.unmet
    )
    return replace(plan, unmet=told)


CASES: dict[str, tuple[PreparedScenario, dict[str, Any], str]] = {
    "a service that falls below its minimum": (
        HAND_OVER,
        {"decide": deciding_wrongly(mutants.ignores_budgets)},
        "was to keep 1",
    ),
    "replicas that do not leave": (EARLY, {"decide": without(Evict, Recreate)}, "was to have left"),
    "a node that is said to come": (ALONE, {"decide": without(Launch)}, "launching"),
    "an instant that is past": (WAITS, {"decide": says_an_hour_ago}, "which is past"),
    "a block that it cannot use": (
        TOO_LONG,
        {"decide": names_the_next_block_to_everybody},
        "which has room, and waits",
    ),
    "an alert with another end": (CLOSING, {"cloud": EarlyCloud}, "says that it ends"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_promise_that_does_not_come_true_trips_number_15_and_the_real_engine_keeps_it(name: str) -> None:
    scenario, wrong, told = CASES[name]
    with pytest.raises(InvariantViolated) as caught:
        scenario.run(**wrong)
    assert caught.value.number == 15, str(caught.value)
    assert told in caught.value.objects[-1]
    scenario.run()


def test_a_forecast_that_a_fault_overtook_is_not_judged() -> None:
    dies = [given.fault("3h10m", "node-dies", target="b")]
    disturbed = replace(HAND_OVER, scenario=_with(HAND_OVER, faults=dies))
    rehearsal = disturbed.run()
    assert any(
        line.kind == "instance-shutting-down" and "hardware" in line.text for line in rehearsal.journal.lines
    )


def _with(prepared: PreparedScenario, **spec: Any) -> Any:
    body = {**prepared.scenario.spec.model_dump(by_alias=True, exclude_unset=True), **spec}
    return type(prepared.scenario).model_validate({"metadata": {"name": "test"}, "spec": body})


@pytest.mark.parametrize(("market", "down"), [({}, False), ({given.P5: 0}, True)], ids=["sold", "sold out"])
def test_a_bridge_that_ec2_has_no_nodes_for_is_not_judged(market: dict[str, int], down: bool) -> None:
    """The forecast says "if EC2 has them", and nobody knows that beforehand."""
    hourly = {"type": "on-demand", "maxHourlyUsd": 500, "maxMonthlyUsd": 5000}
    scale = {"method": "scale", "mayScale": True}
    rehearsal = scenario_with(
        given.pool(sources=[{"type": "block"}, hourly]),
        on=given.platform(budget={"monthlyUsd": 20_000}),
        reservations=[given.block("a")],
        services=[given.service(overflow=True, handover=scale)],
        market={"onDemand": market},
    ).run()
    assert (rehearsal.cluster.services["chat"].lowest_ready() < 1) is down
