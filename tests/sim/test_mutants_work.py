"""Engines that are wrong on purpose about work, and the real one in the same scenarios."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim import mutants_work as mutants
from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import PreparedScenario, deciding_wrongly, scenario_with, without
from tidemill.model.errors import InvariantViolated
from tidemill.model.plan import Admit, AnnounceEnd, AnnounceNodeEnd, Launch, RequestCheckpoint, StartDrain

SLOW_TO_STOP = scenario_with(
    reservations=[given.block()], jobs=[given.job(lasts="9h", checkpointEvery="20m", grace="5m")]
)
# It comes an hour before the block is emptied, and needs seven.
TOO_LONG = scenario_with(reservations=[given.block()], jobs=[given.job(lasts="7h", at=["2h30m"])])
# ... with its first checkpoint after two.
SAVES_TOO_LATE = scenario_with(
    reservations=[given.block()], jobs=[given.job(lasts="7h", checkpointEvery="2h", at=["2h30m"])]
)
NOT_SERVED = scenario_with(
    given.pool(allowedNamespaces=["research"]),
    reservations=[given.block()],
    jobs=[given.job()],
    duration="2h",
)
NOT_OPTED_IN = scenario_with(
    given.pool(
        sources=[{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 900, "maxMonthlyUsd": 9000}]
    ),
    on=given.platform(budget={"monthlyUsd": 9000}),
    jobs=[given.job()],
    duration="2h",
)
TWO_ZONES = scenario_with(
    reservations=[
        given.block("a", count=1, duration="28h"),
        given.block("b", count=1, zone="us-east-1b", duration="28h"),
    ],
    jobs=[given.job(nodes=2)],
    duration="2h",
)
STARTS_OVER = scenario_with(
    reservations=[given.block(duration="28h")], jobs=[given.job(lasts="7h")], duration="6h"
)
NOT_TO_BE_DISRUPTED = scenario_with(
    reservations=[given.block(duration="52h")],
    jobs=[given.job(lasts="7h", doNotDisrupt=True)],
    duration="3h",
)
SERVED = scenario_with(reservations=[given.block()], services=[given.service()], duration="3h")
EXTENDED = scenario_with(
    reservations=[given.block()],
    extensions=[{"at": "1h", "block": "a", "by": "24h", "payment": "succeeds", "settlesAfter": "10m"}],
    deadlineAgent=True,
    duration="3h",
)
CAPPED = scenario_with(
    on=given.platform(namespaceLimits=[{"namespaces": ["default", "training"], "gpus": 8}]),
    reservations=[given.block(duration="28h")],
    jobs=[given.job(), given.job("second")],
    duration="4h",
)
PREPAID = scenario_with(reservations=[given.block(duration="28h")], jobs=[given.job()], duration="4h")
BY_THE_HOUR = scenario_with(given.pool(sources=[{"type": "on-demand"}]), jobs=[given.job()], duration="4h")
WAITING_GANG = scenario_with(
    reservations=[given.block(duration="28h")], jobs=[given.job(nodes=2)], duration="4h"
)

CASES: dict[str, tuple[int, PreparedScenario, Any]] = {
    "drains with 35 s of 300 s grace": (5, SLOW_TO_STOP, mutants.tells_pods_half_a_minute_before),
    "starts 7 h of work an hour before the end": (
        17,
        TOO_LONG,
        deciding_wrongly(mutants.admits_whatever_fits),
    ),
    "starts work that saves nothing before the end": (
        17,
        SAVES_TOO_LATE,
        deciding_wrongly(mutants.admits_whatever_fits),
    ),
    "starts work in a pool for others": (17, NOT_SERVED, deciding_wrongly(mutants.admits_whatever_fits)),
    "starts more than a namespace may use": (22, CAPPED, deciding_wrongly(mutants.admits_whatever_fits)),
    "overflows without opt-in": (17, NOT_OPTED_IN, mutants.opts_everybody_in),
    "starts a gang in two zones": (17, TWO_ZONES, deciding_wrongly(mutants.admits_each_of_a_gang_elsewhere)),
    "restarts jobs every hour": (18, STARTS_OVER, deciding_wrongly(mutants.restarts_jobs_every_hour)),
    "stops what must not be disrupted": (
        18,
        NOT_TO_BE_DISRUPTED,
        deciding_wrongly(mutants.stops_everything_after_an_hour),
    ),
    "asks nobody for a checkpoint": (18, SLOW_TO_STOP, without(RequestCheckpoint)),
    "tells no pod its end": (20, SERVED, without(AnnounceEnd)),
    "tells no node that its end moved": (20, EXTENDED, without(AnnounceNodeEnd)),
    "gives back no node by the hour": (21, BY_THE_HOUR, without(StartDrain)),
    "admits nothing to a block": (13, PREPAID, without(Admit)),
    "admits no gang to a block": (13, WAITING_GANG, without(Admit)),
    "does nothing with a block": (19, PREPAID, mutants.does_nothing),
    "does nothing for a gang": (19, WAITING_GANG, mutants.does_nothing),
    "does nothing by the hour": (19, BY_THE_HOUR, mutants.does_nothing),
    "launches nothing by the hour, and says that it does": (15, BY_THE_HOUR, without(Launch)),
}


@pytest.mark.parametrize("name", CASES)
def test_an_engine_that_is_wrong_about_work_trips_its_invariant_and_the_real_one_none(name: str) -> None:
    number, prepared, decide = CASES[name]
    with pytest.raises(InvariantViolated) as caught:
        prepared.run(decide=decide)
    assert caught.value.number == number, str(caught.value)
    ran = prepared.run()
    assert ran.timeline.now() == ran.end
