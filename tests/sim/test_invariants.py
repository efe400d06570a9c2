"""The checks themselves: what they excuse and what not, and what a violation says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.sim import scenario_builder as given
from tests.sim.mutants import ignores_budgets, without_limits
from tests.sim.scenario_builder import after, deciding_by, deciding_wrongly, scenario_with, without
from tidemill.model.errors import InvariantViolated
from tidemill.model.plan import Evict, ForceDelete, Launch, Plan, ScaleWorkload, StartDrain, Terminate
from tidemill.model.world import World
from tidemill.sim.invariants import SENTENCES
from tidemill.sim.invariants.money import ends_with_its_money
from tidemill.sim.invariants.truth import covered
from tidemill.spec import Spec

NEVER_DRAINS = without(StartDrain, Evict, ForceDelete)


def idle(spec: Spec, world: World) -> Plan:
    """An engine that does nothing at all."""
    return Plan()


def violation(rehearsal: Any, **how: Any) -> InvariantViolated:
    with pytest.raises(InvariantViolated) as caught:
        rehearsal.run(**how)
    return caught.value


def test_a_violation_carries_the_instant_the_seed_and_the_objects() -> None:
    doomed = scenario_with(reservations=[given.block()], jobs=[given.job(lasts="9h", checkpointEvery="20m")])
    found = violation(doomed, seed=42, decide=NEVER_DRAINS)
    assert (found.number, found.seed, found.at) == (4, 42, "2026-11-17T11:00:00Z")
    assert any("fit-1" in one for one in found.objects)
    assert SENTENCES[4] in str(found)


@pytest.mark.requirement("CB-10")
@pytest.mark.parametrize(
    ("provisioner", "at"),
    [("native", "11:00"), ("asg", "10:59"), ("managed", "10:50"), ("karpenter", "10:50")],
)
def test_a_pod_that_still_runs_at_the_deadline_of_its_provisioner_is_a_violation(
    provisioner: str, at: str
) -> None:
    """The node is taken at that instant too, by AWS or by the hook of its group that ends, so a check afterwards would
    find nobody there."""
    doomed = scenario_with(
        given.pool(provisioner=provisioner),
        reservations=[given.block()],
        jobs=[given.job(lasts="9h", checkpointEvery="20m")],
    )
    assert violation(doomed, decide=NEVER_DRAINS).at == f"2026-11-17T{at}:00Z"


def test_a_node_that_is_retired_under_its_pods_is_a_missed_deadline() -> None:
    doomed = scenario_with(
        reservations=[given.block(duration="28h")],
        jobs=[given.job(lasts="9h", checkpointEvery="20m")],
        faults=[given.fault("30m", "retirement", duration="2h")],
        duration="5h",
    )
    found = violation(doomed, decide=NEVER_DRAINS)
    assert (found.number, found.at) == (4, "2026-11-17T10:00:00Z")


def test_a_pod_lost_to_a_failed_host_is_no_violation() -> None:
    rehearsal = scenario_with(
        reservations=[given.block()], services=[given.service(zeroDowntime=True, minAvailable=2)], duration="2h",
        faults=[given.fault("1h", "node-dies")],
    ).run()  # fmt: skip
    assert rehearsal.cluster.kills
    assert rehearsal.cluster.services["chat"].lowest_ready() == 1


def handed_over(**scenario: Any) -> Any:
    blocks = [
        given.block("a", count=3),
        given.block("b", count=3, zone="us-east-1b", **{"from": "1h"}, duration="28h"),
    ]
    return scenario_with(reservations=blocks, services=[given.service(zeroDowntime=True)], **scenario)


def test_a_service_is_not_excused_by_a_failure_it_had_long_recovered_from() -> None:
    hit = given.fault("30m", "node-dies")
    assert violation(handed_over(faults=[hit]), decide=deciding_wrongly(ignores_budgets)).number == 9


def test_a_promise_that_could_not_be_kept_is_reported_and_no_violation() -> None:
    """The block ends, and there is nowhere to go."""
    doomed = scenario_with(
        reservations=[given.block(count=3)], services=[given.service(zeroDowntime=True)]
    ).run()
    (truth,) = doomed.cluster.services.values()
    assert truth.short_since is not None


PAIRED: dict[str, Any] = {"method": "paired", "mayScale": True, "pairNodeSelector": {"tier": "second"}}
ELSEWHERE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a pair that nobody may scale": ({}, {"handover": {**PAIRED, "mayScale": False}}),
    "nodes with a taint that it does not tolerate": (
        {"taints": [{"key": "team"}]},
        {"handover": PAIRED},
    ),
    "nodes of another namespace": ({"allowedNamespaces": ["research"]}, {"handover": PAIRED}),
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_nodes_that_its_replicas_may_not_use_are_nowhere_to_go(case: str) -> None:
    pool, how = ELSEWHERE[case]
    doomed = scenario_with(
        given.pool(),
        given.pool("second", **pool),
        reservations=[given.block(pool="train"), given.block("b", pool="second", duration="28h")],
        services=[given.service(zeroDowntime=True, **how)],
    ).run()
    assert doomed.cluster.services["chat"].lowest_ready() == 0


@pytest.mark.parametrize(("minimum", "lowest"), [(2, 1), (1, 1)])
def test_a_pair_has_nowhere_to_go_on_nodes_of_its_own_half(minimum: int, lowest: int) -> None:
    """A pair makes replicas first only on the nodes of its other half, which has none here. Within a budget that
    allows it, replicas are evicted one by one to what is left of its own."""
    rehearsal = scenario_with(
        given.pool(),
        given.pool("second"),
        reservations=[
            given.block(pool="train", count=1),
            given.block("b", pool="train", duration="28h", count=3),
        ],
        services=[
            given.service(replicas=2, gpus=8, minAvailable=minimum, zeroDowntime=True, handover=PAIRED),
        ],
    ).run()
    assert rehearsal.cluster.services["chat"].lowest_ready() == lowest


@pytest.mark.parametrize("kept_up", [True, False], ids=["by another pod", "by none"])
def test_a_spread_over_hosts_lets_few_onto_a_node_while_an_emptied_one_is_kept_up(kept_up: bool) -> None:
    """Pods beside them have nowhere to go: a node, which counts as a host without replicas, stays to the end. It ends
    before the forecast is judged, which does not know of spreads."""
    spread = {
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "chat"}},
    }  # fmt: skip
    in_a = {"tier": "train", "topology.kubernetes.io/zone": "us-east-1a"}
    beside = [
        given.service(
            name, replicas=1, gpus=6, cpu="60", memory="100Gi", minAvailable=1, grace="1s", nodeSelector=in_a
        )
        for name in ("one", "two")
    ]
    chat = given.service(
        replicas=3, gpus=2, cpu="10", memory="100Gi", minAvailable=2, zeroDowntime=True, labels={"app": "chat"},
        topologySpreadConstraints=[spread],
    )  # fmt: skip
    rehearsal = scenario_with(
        given.pool(),
        reservations=[
            given.block("a", count=2, zone="us-east-1a"),
            given.block("b", zone="us-east-1b", duration="28h", count=1),
        ],
        services=[chat, *(beside if kept_up else [])],
        duration="3h40m",
    ).run()
    assert (rehearsal.cluster.services["chat"].lowest_ready() < 2) is kept_up


def test_nodes_that_end_as_soon_or_that_another_service_has_are_nowhere_to_go() -> None:
    doomed = scenario_with(
        given.pool(),
        given.pool("second"),
        reservations=[
            given.block(pool="train"),
            given.block("b", pool="second"),
            given.block("c", pool="second", duration="28h", count=1),
        ],
        services=[
            given.service("other", replicas=1, nodeSelector={"tier": "second"}, minAvailable=0),
            given.service(zeroDowntime=True, handover=PAIRED, minAvailable=2),
        ],
    )
    rehearsal = doomed.run()
    assert rehearsal.cluster.services["chat"].lowest_ready() < 2


def test_a_prepaid_slot_that_nobody_launched_into_is_somewhere_to_go() -> None:
    idle = scenario_with(
        given.pool(sources=[{"type": "block"}, {"type": "odcr"}]),
        reservations=[
            given.block(pool="train"),
            given.block("b", type="odcr", pool="train", duration=None),
        ],
        services=[given.service(zeroDowntime=True, handover={"method": "scale", "mayScale": True})],
    )
    found = violation(idle, decide=without(ScaleWorkload))
    assert (found.number, found.objects[0]) == (9, "chat")
    kept = idle.run()
    assert kept.cluster.services["chat"].downtime_s(kept.end) == 0


BLOCK_AND_ODCR = [{"type": "block"}, {"type": "odcr"}]
BY_SCALE = {"method": "scale", "mayScale": True}


def test_a_slot_that_the_limits_free_only_with_its_own_node_is_nowhere_to_go() -> None:
    """The pool may have one node, which is the service's: there is room on the reservation when it is too late."""
    doomed = scenario_with(
        given.pool(sources=BLOCK_AND_ODCR, limits={"nodes": 1}),
        reservations=[
            given.block(pool="train", count=1),
            given.block("b", type="odcr", pool="train", duration=None),
        ],
        services=[given.service(zeroDowntime=True, replicas=1, minAvailable=1, handover=BY_SCALE)],
    ).run()
    assert doomed.cluster.services["chat"].lowest_ready() == 0


def test_slots_are_not_judged_where_a_fault_strikes_that_was_armed_long_before() -> None:
    """It waits for the next node that comes up there, which is the one that the service was to move to."""
    hit = scenario_with(
        given.pool(sources=BLOCK_AND_ODCR),
        reservations=[
            given.block(pool="train", count=1),
            given.block("b", type="odcr", pool="train", duration=None, count=4),
        ],
        services=[
            given.service(zeroDowntime=True, replicas=1, gpus=8, minAvailable=1, handover=BY_SCALE),
        ],
        faults=[given.fault("30m", "never-joins")],
    ).run()
    assert hit.cluster.services["chat"].lowest_ready() == 0


def test_a_replica_that_makes_way_for_a_service_of_higher_priority_is_no_violation() -> None:
    """Which of two services has the only node left is kube-scheduler's to decide, and budgets do not stop it."""
    alone: dict[str, Any] = {"gpus": 8, "handover": BY_SCALE, "grace": "10m"}
    rehearsal = scenario_with(
        reservations=[
            given.block("a", count=1),
            given.block("b", count=1, zone="us-east-1b", **{"from": "1h"}, duration="28h"),
        ],
        services=[
            given.service("first", replicas=1, minAvailable=0, priority=1, **{**alone, "handover": {}}),
            given.service(replicas=2, minAvailable=1, zeroDowntime=True, **alone, **{"from": "1h10m"}),
        ],
    ).run()
    assert rehearsal.cluster.services["chat"].lowest_ready() == 0


@pytest.mark.parametrize(("monthly_usd", "ended"), [(55, 8), (4000, 0)])
def test_nodes_by_the_hour_whose_money_is_over_are_ended_rightly(monthly_usd: int, ended: int) -> None:
    """A replica takes one of the nodes that were launched for a gang, and the cap an hour allows no other: the rest are
    kept until their money is over, and had no work."""
    hourly = {"type": "on-demand", "maxHourlyUsd": 60, "maxMonthlyUsd": monthly_usd}
    small: dict[str, Any] = {"gpus": 1, "cpu": "1", "memory": "1Gi", "overflow": True}
    rehearsal = scenario_with(
        given.pool(
            sources=[{"type": "block"}, hourly],
            requirements={"instanceTypes": ["p5.4xlarge"]},
            limits={"nodes": 18},
            disruption={"consolidationPolicy": "Never"},
        ),
        on=given.platform(budget={"monthlyUsd": 4000}),
        jobs=[given.job(nodes=8, at=["1m"], expected="8m", **small)],
        services=[given.service(replicas=1, minAvailable=0, **small, **{"from": "3m"})],
        duration="58m",
    ).run()
    histories = list(rehearsal.cloud.instance_histories.values())
    assert sum(one.ended_by == "engine" for one in histories) == ended
    over = {ends_with_its_money(rehearsal._truth, one, timedelta(minutes=30)) for one in histories}
    assert over == {ended > 0}


def test_a_promise_without_a_minimum_is_no_promise() -> None:
    """`validate` says that it has no effect. Its only replica moves when its block ends, and is away for minutes."""
    one = given.service(zeroDowntime=True, replicas=1, minAvailable=0)
    blocks = [given.block("a"), given.block("b", duration="28h")]
    moved = scenario_with(reservations=blocks, services=[one], duration="6h").run()
    (truth,) = moved.cluster.services.values()
    assert truth.lowest_ready() == 0


def test_an_instance_that_never_joined_while_aws_was_throttled_is_given_more_time() -> None:
    stuck = [given.fault("0s", "never-joins"), given.fault("10m", "throttle", duration="30m")]
    rehearsal = scenario_with(reservations=[given.block()], faults=stuck, duration="2h").run()
    assert rehearsal.cluster.gpus_ready() == 16


@pytest.mark.requirement("PE-5")
@pytest.mark.parametrize("limits", [None, {}])
def test_a_pool_without_limits_may_launch_nothing(limits: dict[str, int] | None) -> None:
    limitless = scenario_with(given.pool(limits=limits), reservations=[given.block()], duration="1h")
    assert not limitless.run().cloud.instance_histories
    assert violation(limitless, decide=deciding_by(without_limits)).number == 2


@pytest.mark.requirement("CB-3")
@pytest.mark.parametrize(
    ("approval", "words", "bought"),
    [
        ({"mode": "propose"}, ["ann"], 0),
        ({"mode": "one"}, [], 0),
        ({"mode": "one"}, ["tidemill-engine"], 0),
        ({"mode": "one"}, ["ann"], 1),
        ({"mode": "one", "approvers": ["bea"]}, ["ann"], 0),
        ({"mode": "two"}, ["ann"], 0),
        ({"mode": "two"}, ["ann", "ann"], 0),
        ({"mode": "two"}, ["ann", "bea"], 1),
        ({"mode": "auto", "autoMaxFeeUsd": 9000}, [], 1),
        ({"mode": "auto", "autoMaxFeeUsd": 100}, [], 0),
    ],
)
def test_every_approval_policy_buys_exactly_when_it_should(
    approval: dict[str, Any], words: list[str], bought: int
) -> None:
    decisions = [
        {"at": f"{hour}h", "window": "sprint", "verdict": "approve", "by": who}
        for hour, who in enumerate(words, start=1)
    ]
    rehearsal = scenario_with(
        on=given.platform(budget={"perPurchaseUsd": 9000, "monthlyUsd": 20000}, approval=approval),
        plans=[given.plan()],
        decisions=decisions,
        duration="4h",
    ).run()
    assert len(rehearsal.cloud.purchases) == bought


def test_an_engine_that_does_nothing_breaks_no_safety_invariant_but_leaves_a_pod_waiting() -> None:
    rehearsal = scenario_with(reservations=[given.block()], jobs=[given.job()]).prepare(decide=idle)
    with pytest.raises(InvariantViolated) as caught:
        rehearsal.run()
    assert caught.value.number == 19
    assert not [one for one in rehearsal.done if isinstance(one.action, Launch | Terminate)]


def test_overlapping_absences_count_once() -> None:
    spans = [(after("10m"), after("30m")), (after("20m"), after("40m")), (after("2h"), after("3h"))]
    assert covered(spans, after("0s"), after("1h")) == timedelta(minutes=30)
    assert covered(spans, after("15m"), after("25m")) == timedelta(minutes=10)
    assert covered(spans, after("45m"), after("1h")) == timedelta(0)
