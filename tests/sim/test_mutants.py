"""For each invariant an engine that is wrong on purpose: it violates that invariant, and the real one does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.sim import mutants
from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import PreparedScenario, deciding_by, deciding_wrongly, scenario_with, without
from tidemill.model.errors import InvariantViolated
from tidemill.model.nodes import InstanceState
from tidemill.model.plan import Evict, ForceDelete, Recreate, StartDrain, Terminate
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec import Spec

# --- the scenarios they run in ------------------------------------------------------------------------

ONE_BLOCK = scenario_with(
    reservations=[given.block()], jobs=[given.job(lasts="40m", at=("0s", "10m", "2h45m"), grace="2m")]
)
LONG_WORK = scenario_with(
    reservations=[given.block()], jobs=[given.job(lasts="9h", checkpointEvery="20m", grace="2m")]
)
TIGHT = scenario_with(
    given.pool(sources=[{"type": "on-demand"}], limits={"nodes": 2}),
    jobs=[given.job(at=("0s", "1s", "2s", "3s"))],
)
BUYER = given.platform(budget={"perPurchaseUsd": 9000, "monthlyUsd": 9000}, approval={"mode": "one"})
PURCHASE = scenario_with(
    on=BUYER,
    plans=[given.plan()],
    duration="5h",
    decisions=[{"at": "2h", "window": "sprint", "verdict": "approve", "by": "finance"}],
)
UNAPPROVED = scenario_with(on=BUYER, plans=[given.plan()], duration="5h")
POOR = given.platform(budget={"perPurchaseUsd": 100, "monthlyUsd": 100}, approval={"mode": "one"})
TOO_DEAR = replace(PURCHASE, spec=replace(PURCHASE.spec, platform=POOR))
OVERFLOWING = scenario_with(
    given.pool(sources=[{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 60, "maxMonthlyUsd": 1000}]),
    on=given.platform(budget={"monthlyUsd": 5000}),
    jobs=[given.job(overflow=True, at=("0s", "1s", "2s"))],
)
STILLBORN = scenario_with(
    reservations=[given.block()], faults=[given.fault("0s", "never-joins")], duration="2h"
)
NO_GPUS = scenario_with(
    reservations=[given.block()], faults=[given.fault("0s", "gpus-never-register")], duration="2h"
)
IDLE_ON_DEMAND = scenario_with(
    given.pool(sources=[{"type": "on-demand"}]), jobs=[given.job(lasts="10m")], duration="2h"
)
GANG = scenario_with(reservations=[given.block()], jobs=[given.job(nodes=2, lasts="1h")], duration="2h")
# Two hours are left when it loses a member: less than twice its grace and ten minutes.
SLOW_GANG = scenario_with(
    reservations=[given.block(duration="28h")],
    jobs=[given.job(nodes=2, lasts="9h", grace="1h", checkpointEvery="10m")],
    faults=[given.fault("1h", "node-dies")],
    duration="3h",
)
HAND_OVER = scenario_with(
    reservations=[
        given.block("a"),
        given.block("b", zone="us-east-1b", **{"from": "1h"}, duration="28h"),
    ],
    services=[given.service(zeroDowntime=True)],
)
SCALED = scenario_with(
    reservations=[given.block("a"), given.block("b", zone="us-east-1b", **{"from": "1h"}, duration="28h")],
    services=[given.service(zeroDowntime=True, handover={"method": "scale", "mayScale": True})],
)
PAIRED = scenario_with(
    given.pool(),
    given.pool("second"),
    reservations=[
        given.block("a", pool="train"),
        given.block("b", pool="second", zone="us-east-1b", **{"from": "1h"}, duration="28h"),
    ],
    services=[
        given.service(
            zeroDowntime=True,
            handover={"method": "paired", "mayScale": True, "pairNodeSelector": {"tier": "second"}},
        )
    ],
)
WARM = scenario_with(reservations=[given.block(duration="28h")], duration="4h")
WARM_FOR_LONG = scenario_with(reservations=[given.block(duration="28h")], duration="14h")
STRANGER = scenario_with(given.pool(warm=2), reservations=[given.block(count=3)], duration="1h")
NOT_OURS = scenario_with(reservations=[given.block(owned=False)], jobs=[given.job()], duration="1h")


def a_stranger_comes(rehearsal: Rehearsal) -> None:
    def come() -> None:
        rehearsal.cloud.add_foreign_instance("a")

    rehearsal.timeline.after(timedelta(minutes=20), come)


CASES: dict[str, tuple[int, PreparedScenario, dict[str, Any]]] = {
    "launches on a full block": (
        1,
        ONE_BLOCK,
        {"decide": deciding_wrongly(mutants.launches_on_a_full_block), "cloud": mutants.LeakyCloud},
    ),
    "ignores limits": (2, TIGHT, {"decide": deciding_by(mutants.without_limits)}),
    "buys twice": (3, PURCHASE, {"cloud": mutants.RetryingCloud}),
    "overflows over its cap": (3, OVERFLOWING, {"decide": deciding_by(mutants.without_caps)}),
    "never drains": (4, LONG_WORK, {"decide": without(StartDrain, Evict, ForceDelete)}),
    "believes in ends ten minutes later": (20, LONG_WORK, {"decide": mutants.ten_minutes_late}),
    "kills without grace": (5, ONE_BLOCK, {"decide": deciding_wrongly(mutants.kills_at_once)}),
    "ends nodes under their pods": (
        5,
        ONE_BLOCK,
        {"decide": deciding_wrongly(mutants.ends_nodes_under_pods)},
    ),
    "removes nodes under their pods": (
        5,
        ONE_BLOCK,
        {"decide": deciding_wrongly(mutants.removes_nodes_under_pods)},
    ),
    "acts in any order": (6, ONE_BLOCK, {"decide": mutants.in_any_order()}),
    "keeps what never joined": (7, STILLBORN, {"decide": without(Terminate)}),
    "keeps what never registered GPUs": (7, NO_GPUS, {"decide": without(Terminate)}),
    "keeps what it drained": (7, IDLE_ON_DEMAND, {"decide": without(Terminate)}),
    "admits half a gang": (8, GANG, {"decide": deciding_wrongly(mutants.admits_the_first_of_a_gang)}),
    "lets the rest of a gang run on": (8, SLOW_GANG, {"decide": without(Recreate)}),
    "moves a service all at once": (9, HAND_OVER, {"decide": deciding_wrongly(mutants.ignores_budgets)}),
    "swaps a pair before it is Ready": (
        9,
        PAIRED,
        {"decide": deciding_wrongly(mutants.breaks_before_it_makes)},
    ),
    "lets go before others are Ready": (
        9,
        SCALED,
        {"decide": deciding_wrongly(mutants.lets_go_when_more_are_asked_for)},
    ),
    "repeats itself": (10, ONE_BLOCK, {"decide": deciding_wrongly(mutants.opens_nodes_for_ever)}),
    "goes round in circles": (18, ONE_BLOCK, {"decide": deciding_wrongly(mutants.restarts_jobs_for_ever)}),
    "launches and gives back in turn": (
        14,
        WARM,
        {"decide": deciding_wrongly(mutants.gives_back_what_it_warms)},
    ),
    "launches and ends before they join": (
        14,
        WARM,
        {"decide": deciding_wrongly(mutants.launches_and_regrets)},
    ),
    "launches and gives back now and then": (
        10,
        WARM_FOR_LONG,
        {"decide": deciding_wrongly(mutants.gives_back_now_and_then)},
    ),
    "launches on a stranger's block": (11, NOT_OURS, {"decide": mutants.takes_what_it_sees}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_engine_trips_its_invariant(name: str) -> None:
    number, rehearsal, how = CASES[name]
    with pytest.raises(InvariantViolated) as caught:
        rehearsal.run(**how)
    assert caught.value.number == number, str(caught.value)


@pytest.mark.parametrize("name", CASES)
def test_the_real_engine_keeps_every_invariant_in_the_same_scenario(name: str) -> None:
    _, rehearsal, how = CASES[name]
    wrong = (
        "decide" if "decide" in how else "cloud"
    )  # what is broken there; a leaky cloud alone breaks nothing
    ran = rehearsal.run(**{key: value for key, value in how.items() if key != wrong})
    assert ran.timeline.now() == ran.end  # a violation would have stopped it before
    assert ran.ticks > 1


@pytest.mark.requirement("PE-23")
def test_an_engine_that_ends_a_strangers_instance_trips_number_11_and_the_real_one_leaves_it() -> None:
    wrong = STRANGER.prepare(decide=deciding_wrongly(mutants.ends_strangers))
    a_stranger_comes(wrong)
    with pytest.raises(InvariantViolated) as caught:
        wrong.run()
    assert caught.value.number == 11
    real = STRANGER.prepare()
    a_stranger_comes(real)
    real.run()
    strangers = [history for history in real.cloud.instance_histories.values() if not history.now.owner]
    assert [history.now.state for history in strangers] == [InstanceState.RUNNING]


@pytest.mark.requirement("CB-3")
@pytest.mark.parametrize(
    ("rehearsal", "believed"),
    [(TOO_DEAR, mutants.rich), (UNAPPROVED, mutants.approving_itself)],
    ids=["budget", "approval"],
)
def test_an_engine_that_buys_by_other_rules_trips_number_3_and_the_real_one_buys_nothing(
    rehearsal: PreparedScenario, believed: Callable[[Spec], Spec]
) -> None:
    wrong = rehearsal.prepare(decide=deciding_by(believed))
    wrong.spec = believed(wrong.spec)  # what acts believes it too, as after a wrong deployment
    wrong.crash_engine("")
    with pytest.raises(InvariantViolated) as caught:
        wrong.run()
    assert caught.value.number == 3
    assert not rehearsal.run().cloud.purchases


@pytest.mark.parametrize("away_from", ["3h20m", "3h26m"])
def test_an_engine_that_was_absent_for_the_last_safe_minute_violates_nothing(away_from: str) -> None:
    gone = given.fault(away_from, "engine-absent", duration="1h")
    absent = scenario_with(
        reservations=[given.block()], jobs=[given.job(lasts="9h", checkpointEvery="20m")], faults=[gone]
    )
    rehearsal = absent.run()
    assert rehearsal.cluster.kills


def test_an_engine_that_was_only_restarted_before_the_deadline_has_no_excuse() -> None:
    crash = given.fault("3h28m", "engine-crash")
    restarted = scenario_with(
        reservations=[given.block()], jobs=[given.job(lasts="9h", checkpointEvery="20m")], faults=[crash]
    )
    with pytest.raises(InvariantViolated) as caught:
        restarted.run(decide=without(StartDrain, Evict, ForceDelete))
    assert caught.value.number == 4
    assert not restarted.run().cluster.kills


def test_nodes_that_never_join_are_replaced_and_no_thrash() -> None:
    """Ten of them within the hour: the fault of the machines, not of the engine."""
    stillborn = [given.fault("0s", "never-joins", count=10)]
    rehearsal = scenario_with(
        reservations=[given.block(count=8, duration="28h")], faults=stillborn, duration="3h"
    ).run()
    assert len(rehearsal.cloud.instance_histories) >= 18
