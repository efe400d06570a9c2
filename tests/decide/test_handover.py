"""Hand-overs, rule by rule: how long things take, what each method needs, its next step, what is said beforehand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.decide import builders as given
from tests.decide.builders import NOW, ago, ahead, of, spec, world
from tidemill.decide import decide
from tidemill.decide.context import DecisionContext
from tidemill.decide.handover.destinations import boot_of
from tidemill.decide.handover.forecast import ServiceForecast, forecast
from tidemill.decide.handover.mitigations import mitigations
from tidemill.decide.purchasing.planner.mitigations import Mitigation
from tidemill.decide.service_moves import high, in_effect, lacking, loading, nth_of
from tidemill.engine.observe import budgets
from tidemill.model.capacity import ReservationState, Source, SourceKind
from tidemill.model.nodes import Node
from tidemill.model.offers import ExtensionOffer, ExtensionQuery, ExtensionSearch
from tidemill.model.plan import (
    Admit,
    Evict,
    ForceDelete,
    Launch,
    Plan,
    RestartWorkload,
    ScaleWorkload,
    StartDrain,
)
from tidemill.model.pods import DisruptionBudget, Method, Pod, Workload
from tidemill.model.reasons import DrainKind, DrainReason, InstanceEnd, InstanceEndKind
from tidemill.model.world import World
from tidemill.spec import Spec
from tidemill.spec.default_durations import BOOT, LOAD
from tidemill.wording import sentence
from tidemill.wording.handover import requirement_sentence
from tidemill.wording.planning import mitigation_sentence

CHAT = "Deployment/chat"
B = Source(SourceKind.BLOCK, "cr-2")
DRAIN: dict[str, Any] = {"drain_reason": given.block_ends(datetime(2026, 11, 16, 12, 20, tzinfo=UTC))}
MINUTE = timedelta(minutes=1)


def chat(number: int, on: Node | None = None, **fields: Any) -> Pod:
    """A replica that takes a whole node and loads for eight minutes."""
    made = given.replica(f"chat-{number}", on=on, gpus=8, load="8m", grace="1m", **fields)
    return replace(made, ready_at=ago("22m"), bound_at=ago("31m")) if on is not None and made.ready else made


def service(method: Method | None = Method.EVICT, name: str = CHAT, **fields: Any) -> Workload:
    one = chat(0)
    defaults: dict[str, Any] = {
        "replicas": 2,
        "ready": 2,
        "max_surge": 1,
        "max_unavailable": 0,
        "may_scale": True,
    }
    return Workload(name, "ml", shape=one.shape, terms=one.terms, method=method, **{**defaults, **fields})


A1, A2 = (given.node(f"i-{number}", "draining", **DRAIN) for number in (1, 2))
B1, B2 = (
    given.node(f"i-{number}", source=B, launched="40m", joined="35m", opened_at=ago("33m"))
    for number in (3, 4)
)
ENDS = given.block("cr-1", ends_in="50m", count=2)  # its nodes must be empty in twenty minutes
LASTS = given.block("cr-2", ends_in="48h", count=2)
ON_A = [chat(1, A1), chat(2, A2)]
BUDGET = DisruptionBudget(CHAT, 1, 1)


def draining(workload: Workload, *more: Any, onto: bool = True, pods: list[Pod] | None = None) -> Plan:
    """Both replicas on A, whose nodes are being drained; with `onto`, B's nodes are Ready."""
    there = [A1, A2, *([B1, B2] if onto else [])]
    pods = ON_A if pods is None else pods
    return decide(spec(), world(ENDS, LASTS, *there, *pods, workload, BUDGET, *more))


# --- how long things take -----------------------------------------------------------------------------


def test_a_high_percentile_counts_and_not_the_mean() -> None:
    assert high([n * MINUTE for n in (1, 1, 1, 1, 1, 1, 1, 1, 5, 30)]) == 5 * MINUTE
    assert high([3 * MINUTE, 9 * MINUTE, 4 * MINUTE]) == 9 * MINUTE


def test_of_nodes_that_boot_together_the_first_are_as_quick_as_the_quickest_were() -> None:
    taken = [n * MINUTE for n in (4, 5, 6, 7)]
    assert [nth_of(taken, place, 4) for place in range(4)] == taken
    assert [nth_of(taken, place, 2) for place in range(2)] == [5 * MINUTE, 7 * MINUTE]
    assert nth_of([BOOT], 3, 8) == BOOT


def test_boot_is_measured_from_launch_to_the_first_pod_it_may_take_and_has_a_default_before() -> None:
    measured = DecisionContext(
        spec(), world(LASTS, B1, given.node("i-5", source=B, launched="90m", opened_at=ago("81m")))
    )
    boot = boot_of(measured, measured.templates["p5"])
    assert (boot.length, boot.basis, boot.samples) == (9 * MINUTE, "measured", 2)
    fresh = DecisionContext(spec(), world(LASTS))
    assert boot_of(fresh, fresh.templates["p5"]).length == BOOT


def test_a_pool_that_never_had_a_node_boots_as_others_of_its_type_did() -> None:
    context = DecisionContext(spec(given.pool(), given.pool("other")), world(LASTS, B1))
    assert boot_of(context, context.templates["other"]).basis == "measured"


def test_load_is_measured_or_else_declared_or_else_a_default() -> None:
    declared = chat(1)
    assert loading(declared.terms, [declared]).basis == "declared"
    slow = replace(chat(2, A1), started_at=ago("40m"), ready_at=ago("20m"))
    measured = loading(declared.terms, [*ON_A, slow])
    assert (measured.length, measured.basis, measured.samples) == (20 * MINUTE, "measured", 3)
    silent = given.replica("chat-9")
    assert loading(silent.terms, [silent]).length == LOAD


def test_the_drain_starts_earlier_for_a_load_that_was_measured_longer_than_it_is_declared() -> None:
    def drain_from(ready: str) -> timedelta:
        on = given.node("i-1")
        one = replace(chat(1, on), ready_at=ago(ready))
        context = DecisionContext(
            spec(), world(given.block(ends_in="5h"), on, one, service(), DisruptionBudget(CHAT, 1, 0))
        )
        (view,) = context.views
        assert view.drain_from is not None
        assert view.deadline is not None
        return view.deadline - view.drain_from

    assert drain_from(ready="22m") == 12 * MINUTE  # 8 to load, 1 to start, 1 of grace, 2 to spare
    assert drain_from(ready="10m") == 24 * MINUTE


# --- what a method needs ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (service(Method.ROLLOUT, max_surge=0), "maxSurge is 0"),
        (service(Method.ROLLOUT, max_unavailable=1), "maxUnavailable comes to 1: set it to 0"),
        (service(Method.ROLLOUT, "StatefulSet/chat"), "a StatefulSet has no surge"),
        (service(Method.SCALE, may_scale=False), 'annotate it tidemill.dev/may-scale: "true"'),
        (service(Method.SCALE, "StatefulSet/chat"), "gives back its newest replicas"),
        (service(Method.PAIRED, may_scale=False, pair="Deployment/fine"), "tidemill.dev/may-scale"),
        (service(Method.PAIRED), "it names no second set"),
        (service(Method.PAIRED, pair="Deployment/green"), "there is no Deployment/green"),
        (service(Method.PAIRED, pair="Deployment/same"), "selects the same nodes"),
    ],
)
def test_without_what_a_method_needs_replicas_are_evicted_and_the_plan_says_what_to_change(
    workload: Workload, words: str
) -> None:
    same, fine = (service(name=f"Deployment/{name}") for name in ("same", "fine"))
    fine = replace(fine, shape=replace(fine.shape, node_selector=(("tier", "green"),)))
    others = {one.name: one for one in (same, fine)}
    (missing,) = lacking(workload, others)
    lack = requirement_sentence(missing)
    assert words in lack
    assert in_effect(workload, others) is Method.EVICT
    pods = [replace(one, workload=workload.name) for one in ON_A]
    said = decide(spec(), world(ENDS, A1, A2, *pods, workload, *others.values())).warnings
    (warning,) = [one for one in said if one.about == f"hand-over of {workload.name}"]
    assert lack in sentence(warning.reason)
    assert "nothing is promised" in sentence(warning.reason)


@pytest.mark.parametrize("method", [Method.ROLLOUT, Method.SCALE, Method.EVICT, None])
def test_with_what_it_needs_nothing_is_lacking(method: Method | None) -> None:
    assert not lacking(service(method), {})
    assert in_effect(service(method), {}) is (method or Method.EVICT)


# --- the next step ------------------------------------------------------------------------------------


def test_a_rollout_touches_the_template_once_the_old_nodes_are_shut_and_new_ones_are_ready() -> None:
    plan = draining(service(Method.ROLLOUT))
    (restart,) = of(plan, RestartWorkload)
    assert (restart.workload, restart.token) == (CHAT, "cr-1@2026-11-16T12:20:00Z")
    assert not of(plan, Evict)


def test_a_rollout_that_is_under_way_is_left_alone_and_one_that_is_done_is_not_begun_again() -> None:
    token = "cr-1@2026-11-16T12:20:00Z"
    rolling = draining(service(Method.ROLLOUT, restarted_for=token, rolling=True))
    assert not of(rolling, RestartWorkload)
    assert not of(rolling, Evict)
    over = draining(service(Method.ROLLOUT, restarted_for=token))
    assert not of(over, RestartWorkload)
    assert len(of(over, Evict)) == 1  # who was not made anew goes like anybody, within the budget


@pytest.mark.parametrize("method", list(Method))
def test_nobody_moves_before_there_is_somewhere_to_go_if_it_comes_in_time(method: Method) -> None:
    """B's nodes were launched a minute ago: they will be Ready before the replicas' last turn comes."""
    coming = [given.node(f"i-{number}", "launched", source=B, launched="1m") for number in (3, 4)]
    pair = service(Method.PAIRED, "Deployment/green", replicas=0, ready=0, pair=CHAT)
    other = replace(pair, shape=replace(pair.shape, node_selector=(("tidemill.dev/pool", "p5"),)))
    plan = draining(service(method, pair="Deployment/green"), other, *coming, onto=False)
    assert not of(plan, Evict)
    assert not of(plan, RestartWorkload)
    assert not of(plan, ScaleWorkload)
    assert plan.wake_at is not None


@pytest.mark.parametrize("method", [Method.ROLLOUT, Method.SCALE, Method.EVICT])
def test_with_nothing_to_come_they_serve_until_their_last_turn_and_are_then_evicted_within_their_budget(
    method: Method,
) -> None:
    """Their turn is what a pod needs before the deadline: a minute of grace, 90 s of signal, two minutes to spare."""
    before = decide(spec(), world(ENDS, A1, A2, *ON_A, service(method), BUDGET))
    assert not of(before, Evict)
    assert before.wake_at is not None
    assert before.wake_at <= ahead("15m30s")
    then = decide(spec(), world(ENDS, A1, A2, *ON_A, service(method), BUDGET, now=ahead("15m30s")))
    assert len(of(then, Evict)) == 1


def test_what_may_be_launched_by_the_hour_is_asked_for_at_once_unless_what_is_prepaid_comes_in_time() -> None:
    caps = {"maxHourlyUsd": 900, "maxMonthlyUsd": 90_000}
    documents = spec(
        given.pool(sources=[{"type": "block"}, {"type": "on-demand", **caps}]), budget={"monthlyUsd": 90_000}
    )
    opted_in = replace(service(Method.SCALE), terms=replace(chat(0).terms, overflow=True))
    alone = decide(documents, world(ENDS, A1, A2, *ON_A, opted_in, BUDGET))
    assert len(of(alone, ScaleWorkload)) == 1
    coming = [given.node(f"i-{number}", "launched", source=B, launched="1m") for number in (3, 4)]
    followed = decide(documents, world(ENDS, LASTS, A1, A2, *coming, *ON_A, opted_in, BUDGET))
    assert not of(followed, ScaleWorkload)
    assert not of(decide(documents, world(ENDS, A1, A2, *ON_A, service(Method.SCALE), BUDGET)), ScaleWorkload)


def test_no_method_holds_back_the_last_safe_moment() -> None:
    soon = given.block("cr-1", ends_in="31m", count=2)  # its deadline is in a minute
    rolling = service(Method.ROLLOUT, rolling=True)
    plan = decide(spec(), world(soon, LASTS, A1, A2, B1, B2, *ON_A, rolling, BUDGET))
    assert len(of(plan, ForceDelete)) == 2


def test_scaling_adds_as_many_as_leave_and_notes_that_they_are_its_own() -> None:
    (up,) = of(draining(service(Method.SCALE)), ScaleWorkload)
    assert (up.workload, up.replicas, up.added, up.going) == (CHAT, 4, 2, ())


def test_scaling_waits_for_room_for_all_of_them() -> None:
    taken = chat(8, B1, workload="Deployment/other")
    assert not of(draining(service(Method.SCALE), taken), ScaleWorkload)


def test_scaling_gives_back_only_when_all_are_ready_elsewhere_and_says_who_goes() -> None:
    more = service(Method.SCALE, replicas=4, added=2, ready=3)
    one_ready = [*ON_A, chat(3, B1), replace(chat(4, B2), ready=False)]
    waiting = draining(more, pods=one_ready)
    assert not of(waiting, ScaleWorkload)
    assert not of(waiting, Evict)
    (down,) = of(draining(more, pods=[*ON_A, chat(3, B1), chat(4, B2)]), ScaleWorkload)
    assert (down.replicas, down.added, down.going) == (2, 0, ("uid-chat-1", "uid-chat-2"))


def test_what_was_added_is_taken_back_when_nobody_has_to_leave_any_more() -> None:
    more = service(Method.SCALE, replicas=4, added=2)
    (down,) = of(decide(spec(), world(LASTS, B1, B2, chat(3, B1), chat(4, B2), more)), ScaleWorkload)
    assert (down.replicas, down.added, down.going) == (2, 0, ())


def test_room_is_not_kept_twice_for_a_replica_and_for_the_one_that_takes_its_place() -> None:
    """B has room for three: two for replicas, whether they are still on A or there already, and one for a job."""
    job = given.pod("fit", gpus=8)
    third = given.node("i-5", source=B, launched="40m", opened_at=ago("33m"))
    under_way = service(Method.SCALE, replicas=4, added=2)
    loading_there = [replace(chat(3, B1), ready=False), replace(chat(4, B2), ready=False)]
    there = draining(under_way, third, job, pods=[*ON_A, *loading_there])
    assert [one.pods for one in of(there, Admit)] == [(job.uid,)]
    crowded = draining(service(Method.ROLLOUT), third, job, given.pod("fit-2", gpus=8))
    assert len(of(crowded, Admit)) == 1  # room for the other two is kept


def paired(**second: Any) -> Plan:
    """The second set is for a pool of its own, which has B."""
    b = [replace(one, instance=replace(one.instance, pool="green")) for one in (B1, B2) if one.instance]
    labelled = [
        replace(one, kube=replace(one.kube, labels=(("tidemill.dev/pool", "green"),)))
        for one in b
        if one.kube
    ]
    first = service(Method.PAIRED, pair="Deployment/green")
    other = service(Method.PAIRED, "Deployment/green", pair=CHAT, **{"replicas": 0, "ready": 0, **second})
    other = replace(other, shape=replace(other.shape, node_selector=(("tidemill.dev/pool", "green"),)))
    lasts = replace(LASTS, pool="green")
    return decide(
        spec(given.pool(), given.pool("green")),
        world(ENDS, lasts, A1, A2, *labelled, *ON_A, first, other, BUDGET),
    )


def test_a_pair_comes_up_first_and_the_first_set_goes_when_it_is_ready() -> None:
    (up,) = of(paired(), ScaleWorkload)
    assert (up.workload, up.replicas) == ("Deployment/green", 2)
    assert not of(paired(replicas=2, ready=1), ScaleWorkload)
    assert not of(paired(replicas=2, ready=1), Evict)
    (down,) = of(paired(replicas=2, ready=2), ScaleWorkload)
    assert (down.workload, down.replicas) == (CHAT, 0)


def test_replicas_of_a_pair_that_end_as_soon_take_over_from_nobody() -> None:
    """Both halves counted the other's, and each was scaled up and down in turn."""
    first = service(Method.PAIRED, pair="Deployment/green")
    other = service(Method.PAIRED, "Deployment/green", pair=CHAT)
    other = replace(other, shape=replace(other.shape, node_selector=(("tidemill.dev/pool", "green"),)))
    there = [given.node(f"i-{number}", "draining", source=B, **DRAIN) for number in (3, 4)]
    green = [
        replace(chat(number, on), workload="Deployment/green") for number, on in enumerate(there, start=3)
    ]
    ends = replace(LASTS, end=ENDS.end, pool="green")
    made = decide(
        spec(given.pool(), given.pool("green")),
        world(ENDS, ends, A1, A2, *there, *ON_A, *green, first, other, BUDGET),
    )
    assert not of(made, ScaleWorkload)


def test_one_node_that_aws_takes_alone_does_not_make_a_whole_service_anew() -> None:
    alone = given.node(
        "i-1",
        "draining",
        ends_in="20m",
        drain_reason=DrainReason(
            DrainKind.INSTANCE_ENDS, at=ahead("20m"), instance_end=InstanceEnd(InstanceEndKind.RETIREMENT)
        ),
    )
    rolls = service(Method.ROLLOUT)
    plan = decide(spec(), world(given.block(), LASTS, alone, B1, B2, chat(1, alone), rolls, BUDGET))
    assert not of(plan, RestartWorkload)
    assert of(plan, Evict)


def test_a_minimum_that_only_an_annotation_asks_for_is_a_budget() -> None:
    asked = service(min_available=1, ready=2)
    assert budgets((), [asked]) == (DisruptionBudget(CHAT, 1, 1),)
    written = (DisruptionBudget(CHAT, 2, 0),)
    assert budgets(written, [asked]) is written


# --- what is said beforehand --------------------------------------------------------------------------


def beforehand(
    documents: Spec | None = None,
    *more: Any,
    ends_in: str = "24h",
    second: dict[str, Any] | None = None,
    **fields: Any,
) -> tuple[DecisionContext, World]:
    """Two replicas on A's two nodes, which boot in nine minutes, and a successor that starts when A ends."""
    nodes = [given.node(f"i-{number}", launched="60m", opened_at=ago("51m")) for number in (1, 2)]
    pods = [chat(number, on) for number, on in enumerate(nodes)]
    follows = given.block("cr-2", **{"ends_in": "90h", "starts_in": ends_in, "count": 2, **(second or {})})
    held = given.block("cr-1", ends_in=ends_in, count=2, fee_usd=2000)
    workload = service(**fields)
    seen = world(held, *([follows] if second != {} else []), *nodes, *pods, workload, BUDGET, *more)
    return DecisionContext(documents or spec(), seen), seen


def outlook(context: DecisionContext) -> ServiceForecast:
    (one,) = forecast(context)
    return one


def test_back_to_back_a_service_is_short_from_the_last_safe_moment_until_the_successor_serves() -> None:
    """Forced two minutes before the deadline of 11:30; B starts at 12:00, boots in 9 and loads in 8 minutes."""
    one = outlook(beforehand()[0])
    assert one.short is not None
    assert one.short.since == ahead("23h28m")
    assert one.short.lasts == timedelta(minutes=2 + 30 + 9 + 8 + 1)
    assert one.overlap == timedelta(0)
    assert one.needed == timedelta(minutes=9 + 2 * (1 + 8 + 1) + 2)


def test_a_service_that_starts_in_no_time_at_all_is_reckoned_with_too() -> None:
    context, seen = beforehand()
    at_once = tuple(replace(one, bound_at=one.started_at, ready_at=one.started_at) for one in seen.pods)
    by_node = {one.node: (one,) for one in at_once}
    quick = replace(
        seen, pods=at_once, pods_by_node=by_node, workloads=(replace(context.world.workloads[0]),)
    )
    one = outlook(DecisionContext(spec(), quick))
    assert one.short is not None
    assert one.short.lasts == timedelta(minutes=2 + 30 + 9, seconds=1)


def test_a_day_of_overlap_is_enough() -> None:
    one = outlook(beforehand(second={"starts_in": "2h"})[0])
    assert one.short is None
    assert one.overlap == timedelta(hours=21, minutes=30)


def test_a_service_that_has_enough_replicas_elsewhere_is_not_short() -> None:
    kept = given.node("i-9", source=Source(SourceKind.BLOCK, "cr-9"), launched="60m", opened_at=ago("51m"))
    context, _ = beforehand(
        None, kept, chat(9, kept), given.block("cr-9", ends_in="90h", count=1), replicas=3
    )
    found = {one.source.id: one for one in forecast(context)}
    assert found["cr-1"].short is None


def test_a_minimum_that_is_all_it_has_is_missed_for_as_long_as_each_takes() -> None:
    _, seen = beforehand(second={"starts_in": "2h"})
    strict = replace(seen, budgets=(DisruptionBudget(CHAT, 2, 0),))
    one = outlook(DecisionContext(spec(), strict))
    assert one.short is not None
    assert one.short.lasts == 2 * timedelta(minutes=9)
    (warning,) = [each for each in decide(spec(), strict).warnings if each.about == CHAT]
    assert "rollout or scale" in sentence(warning.reason)
    rollout = replace(strict, workloads=(service(Method.ROLLOUT),))
    assert outlook(DecisionContext(spec(), rollout)).short is None


def way(context: DecisionContext, means: str) -> Mitigation:
    return next(
        mitigation for mitigation in mitigations(context, outlook(context)) if mitigation.means == means
    )


def test_what_would_help_is_priced_and_the_cheapest_comes_first() -> None:
    context, _ = beforehand()
    ways = mitigations(context, outlook(context))
    assert [one.usd is None for one in ways] == sorted(one.usd is None for one in ways)
    prices = [one.usd for one in ways if one.usd is not None]
    assert prices == sorted(prices)
    bridge = way(context, "an-on-demand-bridge")
    assert bridge.usd == pytest.approx(
        2 * 55.04 * (50 + 9 + 8) / 60
    )  # two nodes, the gap, their boot and load
    assert "pool p5 must list on-demand" in mitigation_sentence(bridge.note)
    assert way(context, "a-days-extension-of-a").usd == pytest.approx(2000 * 24 / 25)  # a day at its own rate
    assert way(context, "a-day-more-of-b").usd is None
    assert "cannot be moved" in mitigation_sentence(way(context, "a-day-more-of-b").note)


def test_where_nodes_may_be_launched_by_the_hour_a_scaled_service_is_not_short() -> None:
    caps = {"maxHourlyUsd": 900, "maxMonthlyUsd": 90_000}
    documents = spec(
        given.pool(sources=[{"type": "block"}, {"type": "on-demand", **caps}]), budget={"monthlyUsd": 90_000}
    )
    _, seen = beforehand(documents, method=Method.SCALE)
    assert outlook(DecisionContext(documents, seen)).short is not None  # it has not opted in
    opted_in = replace(seen.workloads[0], terms=replace(seen.workloads[0].terms, overflow=True))
    one = outlook(DecisionContext(documents, replace(seen, workloads=(opted_in,))))
    assert (one.bridged, one.short) == (True, None)


def test_an_extension_that_ec2_has_offered_is_priced_as_offered() -> None:
    offer = ExtensionOffer("cbe-1", "cr-1", ahead("24h"), ahead("48h"), 1777)
    search = ExtensionSearch(ExtensionQuery("cr-1", timedelta(days=1)), NOW, (offer,))
    found = way(beforehand(None, search)[0], "a-days-extension-of-a")
    assert (found.usd, found.offer) == (1777, "cbe-1")


def test_an_extension_by_weeks_is_no_price_of_a_day() -> None:
    offer = ExtensionOffer("cbe-28", "cr-1", ahead("24h"), ahead("696h"), 28 * 1500)
    search = ExtensionSearch(ExtensionQuery("cr-1", timedelta(days=28)), NOW, (offer,))
    found = way(beforehand(None, search)[0], "a-days-extension-of-a")
    assert found.usd == pytest.approx(1500)
    assert not found.offer
    assert "estimated at the rate of cbe-28" in mitigation_sentence(found.note)


@pytest.mark.parametrize("ends_in", ["50m"])
def test_an_extension_is_no_way_out_in_the_last_hour(ends_in: str) -> None:
    context, _ = beforehand(ends_in=ends_in)
    assert way(context, "a-days-extension-of-a").usd is None


def test_the_plan_says_it_as_soon_as_both_blocks_are_known() -> None:
    _, seen = beforehand(ends_in="30d", second={"ends_in": "60d"})
    (warning,) = decide(spec(), seen).warnings
    assert warning.about == CHAT
    assert "fewer than 1 ready for 50m from 2026-12-16T11:28:00Z" in sentence(warning.reason)
    assert "cr-1 must be empty by 2026-12-16T11:30:00Z" in sentence(warning.reason)
    assert "What would help: " in sentence(warning.reason)


def test_that_nobody_follows_is_said_two_days_before_and_not_weeks() -> None:
    _, far = beforehand(ends_in="20d", second={})
    plan = decide(spec(), far)
    assert not plan.warnings
    assert plan.wake_at is not None
    assert plan.wake_at <= ahead("18d")
    _, near = beforehand(ends_in="40h", second={})
    (warning,) = decide(spec(), near).warnings
    assert "nothing that lasts takes over" in sentence(warning.reason)


def test_a_block_whose_payment_is_pending_is_not_counted_on() -> None:
    context, _ = beforehand()
    unpaid = [
        replace(reservation, state=ReservationState.PAYMENT_PENDING)
        if reservation.id == "cr-2"
        else reservation
        for reservation in context.world.reservations
    ]
    assert (
        outlook(DecisionContext(spec(), replace(context.world, reservations=tuple(unpaid)))).successor is None
    )


# --- pins ---------------------------------------------------------------------------------------------

PINNED = given.pool(sources=[{"type": "block", "ids": ["cr-1"]}])
BOTH = given.pool(sources=[{"type": "block", "ids": ["cr-1", "cr-2"]}])


@pytest.mark.requirement("CB-18")
def test_a_pinned_pool_is_told_when_its_pin_must_name_the_successor_and_what_to_write() -> None:
    held, follows = (
        given.block("cr-1", ends_in="24h"),
        given.block("cr-2", ends_in="90h", starts_in="2h", pool="p5"),
    )
    (warning,) = decide(spec(PINNED), world(held, follows)).warnings
    assert warning.about == "pool p5"
    assert "write ids: [cr-1, cr-2]" in sentence(warning.reason)
    assert not decide(spec(BOTH), world(held, follows)).warnings


@pytest.mark.requirement("CB-18")
@pytest.mark.parametrize(
    "other",
    [
        given.block("cr-2", ends_in="90h", pool="elsewhere"),
        given.block("cr-2", ends_in="90h"),
        given.block("cr-2", ends_in="3h", pool="p5"),
        given.block("cr-2", ends_in="90h", pool="p5", owner="somebody"),
    ],
    ids=["another pool's", "nobody's in particular", "ends sooner", "a stranger's"],
)
def test_a_pin_is_not_called_into_question_by_blocks_that_could_not_follow(other: Any) -> None:
    assert not decide(spec(PINNED), world(given.block("cr-1", ends_in="24h", pool="p5"), other)).warnings


@pytest.mark.requirement("CB-18")
def test_a_pin_to_what_has_ended_is_told_too() -> None:
    over = given.block("cr-1", ends_in="1s", state=ReservationState.EXPIRED)
    follows = given.block("cr-2", ends_in="90h", pool="p5")
    (warning,) = decide(spec(PINNED), world(over, follows)).warnings
    assert "no reservation it is pinned to is left" in sentence(warning.reason)
    assert "write ids: [cr-2]" in sentence(warning.reason)


@pytest.mark.requirement("CB-18")
def test_a_pinned_pool_launches_on_its_own_block_alone_and_with_both_named_on_both() -> None:
    seen = world(given.block("cr-1", free=2), given.block("cr-2", ends_in="90h", free=2))
    alone = {one.intent.source.id for one in of(decide(spec(PINNED), seen), Launch)}
    both = {one.intent.source.id for one in of(decide(spec(BOTH), seen), Launch)}
    assert (alone, both) == ({"cr-1"}, {"cr-1", "cr-2"})


def test_deciding_twice_says_the_same_and_a_new_engine_does_too() -> None:
    _, seen = beforehand()
    documents = spec()
    first = decide(documents, seen)
    assert decide(documents, replace(seen, now=NOW)).warnings == first.warnings
    assert decide(spec(), seen).warnings == first.warnings
    assert not of(first, StartDrain)


@pytest.mark.parametrize(
    ("limits", "goes"),
    [({"nodes": 8}, True), ({"nodes": 2}, False), (None, False)],
    ids=["room", "full", "none"],
)
def test_replicas_are_not_evicted_for_hourly_nodes_that_the_limits_of_the_pool_forbid(limits, goes) -> None:
    """They keep serving until they must leave: asked for in vain they would only be missing."""
    caps = {"maxHourlyUsd": 500, "maxMonthlyUsd": 50_000}
    pool = given.pool(sources=[{"type": "block"}, {"type": "on-demand", **caps}], limits=limits)
    overflowing = [replace(pod, terms=replace(pod.terms, overflow=True)) for pod in ON_A]
    workload = replace(service(), terms=overflowing[0].terms)
    documents = spec(pool, budget={"monthlyUsd": 50_000})
    plan = decide(documents, world(ENDS, A1, A2, *overflowing, workload, BUDGET))
    assert bool(of(plan, Evict)) == goes
