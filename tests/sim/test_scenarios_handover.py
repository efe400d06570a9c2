"""Services handed from block to block through the whole loop: by each method, over seeds, with crashes in between."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import actions_done, after, journal_lines, last_pod_left_at, scenario_with
from tidemill.cli.playback import observe_and_decide
from tidemill.decide.context import DecisionContext
from tidemill.decide.handover.forecast import forecast
from tidemill.model.capacity import ReservationState
from tidemill.model.plan import Evict, RestartWorkload, ScaleWorkload, StartDrain
from tidemill.report.handover import hand_over
from tidemill.report.status import status
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.wording import sentence

ROLLOUT = {"method": "rollout", "maxSurge": 2, "maxUnavailable": 0}
SCALE = {"method": "scale", "mayScale": True}
PAIRED = {
    "method": "paired", "mayScale": True, "kind": "StatefulSet", "pairNodeSelector": {"tier": "second"},
}  # fmt: skip
EVICT = {"method": "evict"}
METHODS: dict[str, dict[str, Any]] = {"rollout": ROLLOUT, "scale": SCALE, "paired": PAIRED, "evict": EVICT}
SEEDS = range(20)
# EC2 takes block a's nodes at 11:00, three and a half hours into the scenario.
DEADLINE = after("3h30m")


def two_blocks(
    handover: dict[str, Any], *, second_from: str = "1h", second_for: str = "28h", **fields: Any
) -> given.PreparedScenario:
    """Eight replicas on the four nodes of a, at least seven of them promised; b has as many nodes."""
    chat = {
        "replicas": 8, "minAvailable": 7, "gpus": 4, "cpu": "40", "memory": "400Gi", "load": "8m",
        "zeroDowntime": True, "handover": handover,
    }  # fmt: skip
    paired = handover.get("method") == "paired"
    b = {"count": 4, "zone": "us-east-1b", "from": second_from, "duration": second_for}
    return scenario_with(
        given.pool(),
        *([given.pool("second")] if paired else []),
        reservations=[
            given.block("a", count=4, pool="train"),
            given.block("b", pool="second" if paired else "train", **b),
        ],
        services=[given.service(**{**chat, **fields.pop("chat", {})})],
        duration="5h",
        **fields,
    )


def downtime_s(rehearsal: Rehearsal) -> int:
    return rehearsal.cluster.services["chat"].downtime_s(rehearsal.end)


def sources_of(rehearsal: Rehearsal) -> set[str]:
    """What the replicas that are ready stand on."""
    on = {node.name: node.source for node in rehearsal.cluster.nodes.values()}
    names = {id_: name for name, id_ in rehearsal.cloud.names.items()}
    return {names[on[pod.node]] for pod in rehearsal.cluster.pods.values() if not pod.daemon and pod.ready}


@pytest.mark.requirement("CB-8")
@pytest.mark.requirement("CB-9")
@pytest.mark.parametrize("method", METHODS)
def test_with_enough_overlap_no_method_costs_a_second_on_any_seed(method: str) -> None:
    prepared = two_blocks(METHODS[method])
    for seed in SEEDS:
        rehearsal = prepared.run(seed)
        chat = rehearsal.cluster.services["chat"]
        assert downtime_s(rehearsal) == 0, seed
        assert chat.ready == 8
        assert sources_of(rehearsal) == {"b"}
        assert not any(row.forced for row in rehearsal.cluster.evictions), seed
        assert not rehearsal.cluster.kills


@pytest.mark.requirement("CB-9")
@pytest.mark.parametrize("method", METHODS)
def test_the_successors_replicas_are_ready_before_the_old_ones_go(method: str) -> None:
    """At every instant of the move at least the minimum is ready, and no pod of a is told to go before b has one."""
    rehearsal = two_blocks(METHODS[method]).prepare()
    rehearsal.run_until(after("2h"))
    on = {node.name: node.source for node in rehearsal.cluster.nodes.values()}
    a = rehearsal.cloud.names["a"]
    b_was_ready = False
    while rehearsal.step():
        pods = [
            pod for pod in rehearsal.cluster.pods.values() if pod.workload.endswith(("/chat", "/chat-pair"))
        ]
        ready = sum(pod.ready for pod in pods)
        left = sum(on.get(pod.node) == a and pod.deleting_until is None for pod in pods)
        b_was_ready = b_was_ready or any(pod.ready and on.get(pod.node) != a for pod in pods)
        assert ready >= 7
        if method != "evict":  # which takes one from above the minimum first
            assert left == 8 or b_was_ready
            assert ready >= 8


@pytest.mark.parametrize("method", ["rollout", "scale", "paired"])
def test_a_method_that_starts_new_replicas_first_evicts_nobody(method: str) -> None:
    rehearsal = two_blocks(METHODS[method]).run()
    assert not actions_done(rehearsal, Evict)
    restarts, scalings = actions_done(rehearsal, RestartWorkload), actions_done(rehearsal, ScaleWorkload)
    assert (len(restarts), len(scalings)) == ((1, 0) if method == "rollout" else (0, 2))
    last = max(
        row.at for row in rehearsal.journal.lines if row.kind in ("service-scaled", "service-restarted")
    )
    assert actions_done(rehearsal, StartDrain)[0][0] <= last < DEADLINE


@pytest.mark.parametrize("method", METHODS)
def test_the_drain_starts_as_early_as_its_method_needs_and_not_much_earlier(method: str) -> None:
    """8 minutes to load and one to start: two at a time in 4 waves, all at once, or one by one."""
    needs = {"rollout": 4 * 9 + 1 + 1.5, "scale": 9 + 1 + 1.5, "paired": 9 + 1 + 1.5, "evict": 8 * (9 + 1)}
    began = actions_done(two_blocks(METHODS[method]).run(), StartDrain)[0][0]
    assert DEADLINE - began == timedelta(minutes=needs[method] + 2)


COLD: dict[str, dict[str, Any]] = {
    "an on-demand reservation": {"type": "odcr"},
    "a block of a pool that keeps one node warm": {"warm": 1},
    "a block of a Karpenter pool": {"provisioner": "karpenter"},
}


@pytest.mark.parametrize("cold", COLD)
@pytest.mark.parametrize("method", METHODS)
def test_prepaid_slots_without_nodes_are_asked_for_in_time(method: str, cold: str) -> None:
    """Nobody keeps nodes up there: they come for pending replicas, which must ask before their own nodes end."""
    prepared, how = two_blocks(METHODS[method]), dict(COLD[cold])
    kind = how.pop("type", "block")
    sources = [{"type": "block"}, *([{"type": "odcr"}] if kind == "odcr" else [])]
    goes_to = "second" if method == "paired" else "train"
    pools = {**prepared.spec.pools, goes_to: given.pool(goes_to, sources=sources, **how)}
    a, b = prepared.scenario.spec.reservations
    b = b.model_copy(update={"type": kind, "duration": None if kind == "odcr" else b.duration})
    changed = prepared.scenario.spec.model_copy(update={"reservations": (a, b)})
    scenario = prepared.scenario.model_copy(update={"spec": changed})
    rehearsal = replace(prepared, spec=replace(prepared.spec, pools=pools), scenario=scenario).run()
    assert downtime_s(rehearsal) == 0
    assert sources_of(rehearsal) == {"b"}
    assert not any(row.forced for row in rehearsal.cluster.evictions)


@pytest.mark.parametrize("step", ["before:restart", "after:restart", "before:scale", "after:scale"])
@pytest.mark.parametrize("method", ["rollout", "scale", "paired"])
def test_an_engine_that_dies_between_two_steps_goes_on_where_it_stopped(method: str, step: str) -> None:
    """Armed twice, for the first step and for the next: the second engine may die as well."""
    crashes = [given.fault("30m", "engine-crash", step=step), given.fault("31m", "engine-crash", step=step)]
    rehearsal = two_blocks(METHODS[method], faults=crashes).run()
    assert downtime_s(rehearsal) == 0
    chat = rehearsal.cluster.services["chat"]
    assert (chat.ready, sum(one.replicas for one in chat.sets), sum(one.added for one in chat.sets)) == (
        8,
        8,
        0,
    )
    assert sources_of(rehearsal) == {"b"}
    assert len(journal_lines(rehearsal, "service-restarted")) == (method == "rollout")
    assert len(journal_lines(rehearsal, "service-scaled")) == (0 if method == "rollout" else 2)


@pytest.mark.parametrize("second_from", ["1h", "3h20m"])
@pytest.mark.parametrize("method", METHODS)
def test_ticking_every_second_gives_the_same_hand_over(method: str, second_from: str) -> None:
    rehearsal = two_blocks(METHODS[method], second_from=second_from)
    asleep, awake = rehearsal.run(), rehearsal.run(every_second=True)
    assert [(one.at, one.action) for one in awake.done] == [(one.at, one.action) for one in asleep.done]


def test_an_extension_in_the_middle_of_a_hand_over_takes_back_what_was_added() -> None:
    """Asked for at 10:25 and paid at 10:52: five minutes after eight more replicas were asked for."""
    extension = {"at": "2h55m", "block": "a", "by": "1d", "payment": "succeeds", "settlesAfter": "27m"}
    rehearsal = two_blocks(SCALE, extensions=[extension]).prepare()
    rehearsal.run_until(after("3h21m"))
    assert rehearsal.cluster.services["chat"].sets[0].added == 8
    rehearsal.run()
    chat = rehearsal.cluster.services["chat"].sets[0]
    assert (chat.replicas, chat.added) == (8, 0)
    assert downtime_s(rehearsal) == 0


def test_a_minimum_that_only_an_annotation_asks_for_is_kept_too() -> None:
    how = {**EVICT, "minAvailable": 7}
    for seed in range(5):
        rehearsal = two_blocks(how, chat={"minAvailable": 0}).run(seed)
        assert downtime_s(rehearsal) == 0
        assert len(rehearsal.cluster.evictions) == 8


def test_a_load_that_is_longer_than_it_says_is_measured_and_the_drain_starts_earlier_for_it() -> None:
    honest = actions_done(two_blocks(EVICT).run(), StartDrain)[0][0]
    boasting = two_blocks(EVICT, chat={"declaredLoad": "1m"})
    for seed in range(5):
        rehearsal = boasting.run(seed)
        assert actions_done(rehearsal, StartDrain)[0][0] == honest
        assert downtime_s(rehearsal) == 0


def test_replicas_without_a_destination_are_not_evicted_while_a_successor_is_about_to_start() -> None:
    """One by one they would begin at 09:38; b comes at 10:00, and until its nodes are Ready nobody leaves."""
    rehearsal = two_blocks(EVICT, second_from="2h30m").prepare()
    rehearsal.run_until(after("2h34m"))
    assert actions_done(rehearsal, StartDrain)
    assert not actions_done(rehearsal, Evict)
    rehearsal.run()
    assert actions_done(rehearsal, Evict)
    last = last_pod_left_at(rehearsal, "a")
    assert last is not None
    assert last <= DEADLINE


# --- too little overlap: said beforehand, and so it comes ---------------------------------------------


def said_and_was(prepared: given.PreparedScenario, seed: int) -> tuple[int, int]:
    """How long the service would be short, as reckoned three hours before, and how long it was; in seconds."""
    rehearsal = prepared.prepare(seed)
    rehearsal.run_until(after("20m"))
    world, _ = observe_and_decide(rehearsal)
    (one,) = forecast(DecisionContext(rehearsal.spec, world))
    rehearsal.run()
    lasts = one.short.lasts if one.short is not None else timedelta(0)
    assert lasts is not None
    return int(lasts.total_seconds()), downtime_s(rehearsal)


@pytest.mark.requirement("CB-9")
@pytest.mark.parametrize(
    ("second_from", "method"),
    [("2h30m", "evict"), *((start, method) for start in ("3h20m", "4h") for method in METHODS)],
)
def test_with_too_little_overlap_a_service_is_short_for_the_predicted_time(
    second_from: str, method: str
) -> None:
    """What is left is chance: four nodes do not boot exactly as four others did."""
    rehearsal = two_blocks(METHODS[method], second_from=second_from)
    pairs = [said_and_was(rehearsal, seed) for seed in SEEDS]
    wrong_s = [abs(said - was) for said, was in pairs]
    assert sum(wrong_ <= 60 for wrong_ in wrong_s) >= 18
    assert max(wrong_s) <= 100
    if second_from == "4h":
        assert min(was for _, was in pairs) > 45 * 60


def test_the_plan_of_the_running_engine_names_mitigations_with_prices() -> None:
    rehearsal = two_blocks(ROLLOUT, second_from="4h").prepare()
    rehearsal.run_until(after("20m"))
    (warning,) = rehearsal.plan.warnings
    assert warning.about == "Deployment/chat"
    assert "fewer than 7 ready for 46m" in sentence(warning.reason) or "for 47m" in sentence(warning.reason)
    assert "by a day (about $3,6" in sentence(warning.reason)
    assert "a bridge on demand (about $2" in sentence(warning.reason)


def test_an_extension_by_a_day_is_a_way_out() -> None:
    extension = {"at": "1h", "block": "a", "by": "1d", "payment": "succeeds"}
    rehearsal = two_blocks(SCALE, second_from="4h", second_for="72h", extensions=[extension]).prepare()
    rehearsal.run_until(after("2h"))
    assert not rehearsal.plan.warnings
    rehearsal.run()
    assert downtime_s(rehearsal) == 0


def test_a_bridge_on_demand_is_a_way_out() -> None:
    sources = [{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 500, "maxMonthlyUsd": 5000}]
    bridged = two_blocks(SCALE, second_from="4h", chat={"overflow": True})
    pools = {"train": given.pool(sources=sources, limits={"nodes": 16})}
    documents = replace(bridged.spec, pools=pools, platform=given.platform(budget={"monthlyUsd": 20000}))
    for seed in range(5):
        rehearsal = given.PreparedScenario(documents, bridged.scenario).prepare(seed)
        rehearsal.run_until(after("20m"))
        assert not rehearsal.plan.warnings
        rehearsal.run()
        assert downtime_s(rehearsal) == 0


def test_a_pair_that_came_too_late_takes_over_all_the_same() -> None:
    rehearsal = two_blocks(PAIRED, second_from="4h").run()
    first, second = rehearsal.cluster.services["chat"].sets
    assert (first.replicas, second.replicas) == (0, 8)
    assert rehearsal.cluster.services["chat"].ready == 8


# --- pins ---------------------------------------------------------------------------------------------

ID_A, ID_B = "cr-0aaaaaaaaaaaaaaaa", "cr-0bbbbbbbbbbbbbbbb"


def pinned_to(*ids: str) -> given.PreparedScenario:
    rehearsal = two_blocks(SCALE)
    a, b = rehearsal.scenario.spec.reservations
    inner = rehearsal.scenario.spec.model_copy(
        update={"reservations": (a.model_copy(update={"id": ID_A}), b.model_copy(update={"id": ID_B}))}
    )
    pools = {"train": given.pool(sources=[{"type": "block", "ids": list(ids)}])}
    return given.PreparedScenario(
        replace(rehearsal.spec, pools=pools), rehearsal.scenario.model_copy(update={"spec": inner})
    )


@pytest.mark.requirement("CB-18")
def test_a_pin_that_names_the_successor_too_is_handed_over_without_a_second_of_downtime() -> None:
    for seed in range(5):
        rehearsal = pinned_to(ID_A, ID_B).run(seed)
        assert downtime_s(rehearsal) == 0
        assert sources_of(rehearsal) == {"b"}


@pytest.mark.requirement("CB-18")
def test_a_pin_that_does_not_name_the_successor_is_kept_and_a_warning_says_what_to_write() -> None:
    rehearsal = pinned_to(ID_A).prepare()
    rehearsal.run_until(after("30m"))
    about = {warning.about: sentence(warning.reason) for warning in rehearsal.plan.warnings}
    assert f"write ids: [{ID_A}, {ID_B}]" in about["pool train"]
    rehearsal.run()
    assert {node.source for node in rehearsal.cluster.nodes.values()} == {ID_A}


# --- the successor is bought, and taken into use -------------------------------------------------------


def with_bought_successor(duration: str = "60h", **pool: Any) -> given.PreparedScenario:
    """Block a ends on the 19th; the window lacks two instances from then on, and an hour beside it costs a day more."""
    window = {"name": "next", "from": "2026-11-18T11:30:00Z", "to": "2026-11-20T11:00:00Z", "instances": 2}
    on = {"karpenter": {"version": "1.8.2"}, "nodeRole": "arn:aws:iam::123456789012:role/ml-node"}
    budget = {"perPurchaseUsd": 9000, "monthlyUsd": 20000}
    return scenario_with(
        given.pool(**pool),
        on=given.platform(budget=budget, approval={"mode": "one"}, **on),
        plans=[
            given.plan(
                demand=[{**window, "instanceType": given.P5}], extend={"policy": "never"}, overlap="1h"
            )
        ],
        decisions=[{"at": "1h", "window": "next", "verdict": "approve", "by": "finance"}],
        reservations=[given.block("a", id=ID_A, pool="train", duration="52h")],
        services=[given.service(zeroDowntime=True, handover=SCALE)],
        duration=duration,
    )


def served_by(rehearsal: Rehearsal) -> set[str]:
    on = {node.name: node.source for node in rehearsal.cluster.nodes.values()}
    return {on[pod.node] for pod in rehearsal.cluster.pods.values() if pod.ready and not pod.daemon}


@pytest.mark.requirement("CB-8")
def test_a_successor_bought_by_a_plan_is_used_and_the_service_moves_there() -> None:
    rehearsal = with_bought_successor().run()
    (bought,) = [reservation for reservation in rehearsal.cloud.all_reservations() if reservation.intent_id]
    assert bought.pool == "train"
    assert served_by(rehearsal) == {bought.id}
    assert downtime_s(rehearsal) == 0


@pytest.mark.requirement("CB-18")
@pytest.mark.parametrize("provisioner", ["native", "asg", "managed", "karpenter"])
def test_a_pool_pinned_to_one_id_is_handed_over_to_the_successor_that_its_plan_buys(provisioner: str) -> None:
    """The id that the documents name ends, nobody edits them, and no second of downtime is seen."""
    source = {"type": "block", "ids": [ID_A]}
    pinned = with_bought_successor(provisioner=provisioner, sources=[source])
    rehearsal = pinned.prepare()
    rehearsal.run_until(after("50h"))
    (bought,) = [reservation for reservation in rehearsal.cloud.all_reservations() if reservation.intent_id]
    world, plan = observe_and_decide(rehearsal)
    (row,) = status(rehearsal.spec, world, plan).pools
    assert (row.pinned_to, row.pin_inherited_by) == ((ID_A,), (bought.id,))
    (note,) = hand_over(rehearsal.spec, world, ID_A, bought.id).notes
    assert f"it is pinned to {ID_A}; the pin moves on to {bought.id}, bought for it" in note
    rehearsal.run()
    ended = rehearsal.cloud.reservation(ID_A)
    assert ended is not None
    assert ended.state is ReservationState.EXPIRED
    assert served_by(rehearsal) == {bought.id}
    assert downtime_s(rehearsal) == 0


@pytest.mark.requirement("TR-11")
def test_a_block_that_overlaps_by_hours_is_known_when_it_is_bought_and_takes_a_service_over_in_time():
    """Block a is over at 11:30 of the first day; b is bought two hours before that."""
    blocks = [given.block("a"), given.block("b", duration="1d", overlap="2h", **{"from": "4h"})]
    chat = given.service(load="5m", minAvailable=1, zeroDowntime=True)
    rehearsal = scenario_with(reservations=blocks, services=[chat], duration="6h").prepare()
    rehearsal.run_until(after("1h59m"))
    assert len(rehearsal.cloud.all_reservations()) == 1
    rehearsal.run_until(after("2h1m"))
    _, bought = rehearsal.cloud.all_reservations()
    assert (bought.state, bought.start) == (ReservationState.ACTIVE, after("2h"))
    assert bought.end == after("28h")
    rehearsal.run()
    assert rehearsal.cluster.services["chat"].downtime_s(rehearsal.end) == 0
