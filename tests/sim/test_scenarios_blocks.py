"""Blocks through the whole loop: bought, delivered, warmed, extended or not, drained in time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import actions_done, after, journal_lines, last_pod_left_at, scenario_with
from tidemill.model.capacity import ReservationState, SourceKind
from tidemill.model.plan import Launch, StartDrain, Terminate
from tidemill.model.purchases import PurchaseState
from tidemill.sim.scenario.rehearsal import Rehearsal

BUYER = given.platform(budget={"perPurchaseUsd": 9000, "monthlyUsd": 20000}, approval={"mode": "one"})
APPROVAL = {"at": "1h", "window": "sprint", "verdict": "approve", "by": "finance"}


def states_of_the_bought_block(rehearsal: Rehearsal) -> list[ReservationState]:
    """Every state the engine saw the block in, in order."""
    seen: list[ReservationState] = []
    while rehearsal.step():
        for reservation in rehearsal.world.reservations if rehearsal.world else ():
            if reservation.intent_id and (not seen or seen[-1] is not reservation.state):
                seen.append(reservation.state)
    return seen


# --- CB-5, CB-11, CB-12, CB-14 ------------------------------------------------------------------------


@pytest.mark.requirement("CB-5")
def test_a_block_is_followed_from_its_payment_to_its_end() -> None:
    rehearsal = scenario_with(on=BUYER, plans=[given.plan()], decisions=[APPROVAL], duration="54h").prepare()
    assert states_of_the_bought_block(rehearsal) == [
        ReservationState.PAYMENT_PENDING,
        ReservationState.SCHEDULED,
        ReservationState.ACTIVE,
        ReservationState.EXPIRED,
    ]


@pytest.mark.requirement("CB-5")
def test_the_future_count_of_a_block_that_is_not_active_yet_is_known() -> None:
    rehearsal = scenario_with(on=BUYER, plans=[given.plan()], decisions=[APPROVAL], duration="3h").run()
    assert rehearsal.world is not None
    (coming,) = rehearsal.world.reservations
    assert (coming.state, coming.count, coming.available) == (ReservationState.SCHEDULED, 2, 0)


@pytest.mark.requirement("CB-5")
def test_a_payment_that_fails_is_followed_by_a_new_proposal_and_not_by_a_second_purchase() -> None:
    faults = [given.fault("30m", "payment-fails")]
    again = {**APPROVAL, "at": "20h"}
    rehearsal = scenario_with(
        on=BUYER, plans=[given.plan()], decisions=[APPROVAL, again], faults=faults, duration="24h"
    ).prepare()
    states = states_of_the_bought_block(rehearsal)
    assert states[:2] == [ReservationState.PAYMENT_PENDING, ReservationState.PAYMENT_FAILED]
    intents = [purchase.intent_id for purchase in rehearsal.cloud.purchases]
    assert len(intents) == len(set(intents)) == 2
    first, second = rehearsal.ledger.purchases()
    assert (first.state, second.state) == (PurchaseState.FAILED, PurchaseState.CONFIRMED)
    # What was never paid is not counted as spent.
    assert rehearsal.ledger.spending(rehearsal.timeline.now()).fees_usd == second.fee_usd


@pytest.mark.requirement("CB-11")
def test_a_delivered_block_gets_all_its_nodes_at_once_although_nobody_waits() -> None:
    rehearsal = scenario_with(
        reservations=[given.block(**{"from": "1h"}, duration="3h")], duration="2h"
    ).run()
    (launch,) = actions_done(rehearsal, Launch)
    assert launch[0] - after("1h") <= timedelta(seconds=5)
    assert launch[1].intent.count == 2
    assert rehearsal.cluster.gpus_ready() == 16


@pytest.mark.requirement("CB-12")
def test_prepaid_nodes_stay_up_empty_while_the_block_lives_unless_the_pool_says_so() -> None:
    empty = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "10m"}
    kept = scenario_with(given.pool(disruption=empty), reservations=[given.block()], duration="3h").run()
    assert not actions_done(kept, Terminate)
    saving = given.pool(warm=False, disruption={**empty, "consolidateBlocks": True})
    saved = scenario_with(
        saving, reservations=[given.block()], jobs=[given.job(lasts="20m")], duration="3h"
    ).run()
    assert len(actions_done(saved, Terminate)) == 1


@pytest.mark.requirement("CB-14")
def test_block_odcr_spot_and_on_demand_pools_work_side_by_side() -> None:
    hourly = {"requirements": {"instanceFamilies": ["g6"]}, "limits": {"gpus": 8}}
    small: dict[str, Any] = {"gpus": 1, "cpu": "2", "memory": "8Gi"}
    rehearsal = scenario_with(
        given.pool(sources=[{"type": "block"}, {"type": "odcr"}]),
        given.pool("spot", sources=[{"type": "spot"}], **hourly),
        given.pool(
            "plain",
            sources=[{"type": "on-demand"}],
            **hourly | {"requirements": {"instanceFamilies": ["g6e"]}},
        ),
        reservations=[given.block(count=1), given.block("standing", type="odcr", count=1, duration=None)],
        jobs=[
            given.job(at=("0s", "0s")),
            given.job("sift", nodeSelector={"tier": "spot"}, **small),
            given.job("look", nodeSelector={"tier": "plain"}, **small),
        ],
        duration="2h",
    ).run()
    assert {one.state for one in rehearsal.cluster.jobs.values()} == {"finished"}
    kinds = {history.now.source.kind for history in rehearsal.cloud.instance_histories.values()}
    assert kinds == set(SourceKind)
    families = {
        (history.now.pool, history.now.instance_type.partition(".")[0])
        for history in rehearsal.cloud.instance_histories.values()
    }
    assert families == {("train", "p5"), ("spot", "g6"), ("plain", "g6e")}


# --- CB-10: every provisioner has its own deadline -----------------------------------------------------

GB200 = {"requirements": {"instanceTypes": ["p6e-gb200.36xlarge"]}}


@pytest.mark.requirement("CB-10")
@pytest.mark.parametrize(
    ("settings", "before_end"),
    [
        ({"provisioner": "native"}, timedelta(minutes=30)),
        ({"provisioner": "asg"}, timedelta(minutes=30)),
        ({"provisioner": "managed"}, timedelta(minutes=40)),
        ({"provisioner": "karpenter"}, timedelta(minutes=40)),
        ({"provisioner": "native", **GB200}, timedelta(minutes=60)),
        ({"provisioner": "managed", **GB200}, timedelta(minutes=60)),
    ],
    ids=["native", "asg", "managed", "karpenter", "ultraserver", "managed-ultraserver"],
)
def test_the_last_pod_is_gone_before_the_deadline_of_its_provisioner(
    settings: dict[str, Any], before_end: timedelta
) -> None:
    gb200 = settings.get("requirements") is not None
    size: dict[str, Any] = {"gpus": 4, "cpu": "64", "memory": "500Gi"} if gb200 else {}
    rehearsal = scenario_with(
        given.pool(**settings),
        reservations=[
            given.block(instanceType="p6e-gb200.36xlarge" if gb200 else given.P5, count=9 if gb200 else 3)
        ],
        services=[given.service(**size)],
        jobs=[
            given.job(lasts="9h", checkpointEvery="20m", checkpointTime="4m", grace="3m", **size),
        ],
    ).prepare()
    deadline = given.BLOCK_END - before_end
    rehearsal.run_until(deadline - timedelta(seconds=1))
    left = [pod.full_name for pod in rehearsal.cluster.pods.values() if pod.node and not pod.daemon]
    assert not left
    last = last_pod_left_at(rehearsal, "a")
    assert last is not None
    assert deadline - timedelta(minutes=15) < last <= deadline  # and not much too early: it is paid for
    rehearsal.run()
    assert not rehearsal.cluster.kills
    assert not rehearsal.cluster.cut_short


@pytest.mark.requirement("CB-10")
def test_a_long_grace_and_a_slow_checkpoint_start_the_drain_earlier() -> None:
    def first_drain(**fields: Any) -> datetime:
        jobs = [given.job(lasts="9h", checkpointEvery="20m", **fields)]
        rehearsal = scenario_with(reservations=[given.block()], jobs=jobs).run()
        assert not rehearsal.cluster.cut_short
        return actions_done(rehearsal, StartDrain)[0][0]

    quick = first_drain(grace="30s", checkpointTime="30s")
    slow = first_drain(grace="15m", checkpointTime="10m")
    assert quick - slow >= timedelta(minutes=15)


@pytest.mark.requirement("CB-10")
def test_a_pod_that_never_acknowledges_its_checkpoint_is_still_evicted_in_time() -> None:
    deaf = given.job(lasts="9h", checkpointEvery="20m", checkpointTime="4m", acknowledges=False, grace="2m")
    rehearsal = scenario_with(reservations=[given.block()], jobs=[deaf]).run()
    assert rehearsal.cluster.evictions
    assert not rehearsal.cluster.kills
    assert not rehearsal.cluster.cut_short


# --- CB-7: drains follow the end that is paid ----------------------------------------------------------


def extended(payment: str, *, at: str = "2h", settles: str = "10m") -> Rehearsal:
    extension = {"at": at, "block": "a", "by": "1d", "payment": payment, "settlesAfter": settles}
    return scenario_with(
        reservations=[given.block()],
        jobs=[given.job(lasts="20h", checkpointEvery="20m", grace="2m")],
        extensions=[extension],
        duration="29h",
    ).run()


@pytest.mark.requirement("CB-7")
def test_an_extension_that_is_paid_moves_the_drain_by_its_whole_length() -> None:
    rehearsal = extended("succeeds")
    assert journal_lines(rehearsal, "block-extended")
    assert min(at for at, _ in actions_done(rehearsal, StartDrain)) > given.BLOCK_END
    assert rehearsal.cluster.jobs["fit-1"].state == "finished"
    assert rehearsal.cluster.jobs["fit-1"].restarts == 0


@pytest.mark.requirement("CB-7")
def test_an_extension_whose_payment_fails_leaves_the_drain_where_it_was() -> None:
    rehearsal = extended("fails")
    assert journal_lines(rehearsal, "extension-failed")
    last = last_pod_left_at(rehearsal, "a")
    assert last is not None
    assert last <= given.BLOCK_END - timedelta(minutes=30)
    assert rehearsal.cluster.jobs["fit-1"].state != "finished"


@pytest.mark.requirement("CB-7")
def test_an_extension_paid_after_the_drain_began_keeps_the_pods_that_are_still_there() -> None:
    """Asked for at 10:25 and paid at 10:55: the drain for 11:00 is under way, nobody dies, work goes on."""
    rehearsal = extended("succeeds", at="2h55m", settles="30m")
    assert journal_lines(rehearsal, "block-extended")
    assert not rehearsal.cluster.kills
    assert rehearsal.cluster.jobs["fit-1"].state == "finished"


# --- buying --------------------------------------------------------------------------------------------


def test_nothing_is_bought_before_an_approval_and_one_block_after_it() -> None:
    rehearsal = scenario_with(on=BUYER, plans=[given.plan()], decisions=[APPROVAL], duration="5h").prepare()
    rehearsal.run_until(after("59m59s"))
    assert not rehearsal.cloud.purchases
    rehearsal.run()
    (intent,) = rehearsal.ledger.purchases()
    assert intent.state is PurchaseState.CONFIRMED
    assert len(rehearsal.cloud.purchases) == 1
