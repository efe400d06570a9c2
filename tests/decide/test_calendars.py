"""Calendars in the decision: what is asked of EC2, what is proposed from advice, and what is left alone."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.decide.builders import NOW, OWNER, ZONE, ahead, block, node, of, pod, pool, spec
from tests.decide.builders import world as a_world
from tests.decide.purchases import GENEROUS, intent
from tidemill.decide import decide
from tidemill.decide.purchasing.learned_demand import learned_gpus
from tidemill.decide.purchasing.offer_queries import (
    ANSWER_FRESH,
    MAX_EXTENSION_SEARCHES,
    MAX_FIRST_SEARCHES,
    MAX_SEARCHES,
    missing_spans,
)
from tidemill.decide.purchasing.planner.inputs import Step
from tidemill.decide.purchasing.planner_proposals import MAX_SEARCHES_PER_TICK
from tidemill.decide.purchasing.planning import run_planner
from tidemill.decide.purchasing.purchase_intents import window_name
from tidemill.decide.purchasing.replan_schedule import basis, next_round_at, planning_round
from tidemill.engine.planner_runner import PlannerRunner
from tidemill.model import offers
from tidemill.model.ec2_facts import is_legal_duration
from tidemill.model.plan import ProposePurchase, SearchOffers, SettlePurchase
from tidemill.model.planner_result import PlannedPurchase, PlannerFailure, PlannerResult
from tidemill.model.purchases import BlockUse, PurchaseState
from tidemill.model.world import World
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan, Extending
from tidemill.wording import sentence

P5, DAY = "p5.48xlarge", timedelta(days=1)
GRID = NOW.replace(hour=11, minute=30) + DAY  # tomorrow's
ALWAYS = {"name": "always", "constant": {"instances": 2}}


def calendar(*entries: dict[str, Any], **fields: Any) -> CapacityPlan:
    given = {
        "instanceTypes": [P5],
        "penaltyUsdPerGpuHour": 20,
        "entries": list(entries or (ALWAYS,)),
        **fields,
    }
    return CapacityPlan.model_validate(
        {"metadata": {"name": "rolling"}, "spec": {"pool": "p5", "calendar": given}}
    )


def buying(*entries: dict[str, Any], pools: Any = None, **fields: Any) -> Spec:
    money = {"budget": {**GENEROUS, "monthlyUsd": 2_000_000}, "approval": {"mode": "one"}}
    return spec(pools or pool(), calendar(*entries, **fields), **money)


def offer(
    id_: str = "cb-1", start: datetime = GRID, days: float = 7, fee_usd: int = 12_000, **fields: Any
) -> offers.Offer:
    defaults: dict[str, Any] = {"instance_type": P5, "zone": ZONE, "count": 2}
    return offers.Offer(id_, start=start, end=start + days * DAY, fee_usd=fee_usd, **{**defaults, **fields})


def query(days: int = 7) -> offers.OfferQuery:
    return offers.OfferQuery(P5, 2, days * DAY, NOW, GRID + (days + 1) * DAY)


def answered(documents: Spec, at: World, sold: Any) -> World:
    """Every question of a wave put to a market: a function from query to offers."""
    wanted = planning_round(documents, at, learned_gpus(documents, at))
    return replace(
        at,
        searches=tuple(offers.OfferSearch(one, at.now, tuple(sold(one))) for one in wanted.offers),
        extension_searches=tuple(
            offers.ExtensionSearch(extension, at.now, ()) for extension in wanted.extensions
        ),
    )


def whole_round(documents: Spec, at: World, sold: Any, runner: PlannerRunner | None = None) -> World:
    """Waves are answered until the planner has a plan."""
    runner = runner or PlannerRunner(documents)
    for _ in range(MAX_SEARCHES):
        at = runner.with_result(answered(documents, at, sold))
        assert at.planner_result is not None
        if not at.planner_result.asks:
            return at
    raise AssertionError("the round has no end")


def market(asked: offers.OfferQuery) -> list[offers.Offer]:
    """On the grid, at the price of the catalog, one offer for each question."""
    start = asked.earliest_start.replace(hour=11, minute=30)
    start += DAY if start < max(asked.earliest_start, NOW + timedelta(minutes=30)) else timedelta(0)
    fee_usd = round(37.76 * 24 * asked.count * (asked.duration / DAY))
    found = offers.Offer(
        f"cb-{start:%m%d}-{asked.duration.days}-{asked.count}", P5, ZONE, asked.count, start, start + asked.duration,
        fee_usd,
    )  # fmt: skip
    return [found] if found.end <= asked.latest_end else []


def advised(documents: Spec, *choices: offers.Offer, at: datetime = NOW, **fields: Any) -> World:
    """A world in which these were shown just now, and advised `at` an instant."""
    shown = tuple(offers.OfferSearch(query(choice.end.day), NOW, (choice,)) for choice in choices)
    world = a_world(**fields.pop("world", {}))
    made = PlannerResult(
        at,
        basis(documents, world.reservations, world.purchases, world.now),
        tuple(
            PlannedPurchase("rolling", "p5", choice, 7 * DAY, fields.get("since", NOW), 1_234.0)
            for choice in choices
        ),
    )
    return replace(world, searches=shown, planner_result=made)


def proposals(documents: Spec, world: World) -> list[str]:
    return [action.intent.window for action in of(decide(documents, world), ProposePurchase)]


# --- what is asked ------------------------------------------------------------------------------------


def test_a_tick_makes_only_a_few_searches_for_what_is_missing():
    documents = buying()
    asked = of(decide(documents, a_world()), SearchOffers)
    assert 0 < len(asked) <= MAX_SEARCHES_PER_TICK
    assert {one.query.count for one in asked} == {2}
    assert {one.query.duration.days for one in asked} <= {*range(1, 8), 63}


def test_a_planning_round_has_a_bounded_number_of_searches_however_long_the_calendar():
    many = [
        {"name": f"run-{n}", "window": {"from": ahead(f"{n}d"), "to": ahead(f"{n}d6h"), "instances": 1 + n}}
        for n in range(0, 54, 2)
    ]
    documents = buying(*many)
    assert len(planning_round(documents, a_world(), {}).offers) == MAX_FIRST_SEARCHES
    assert len(whole_round(documents, a_world(), market).searches) <= MAX_SEARCHES


def test_what_is_missing_is_cut_into_layers_with_breaks_shorter_than_a_day():
    night = [Step(NOW + n * DAY, NOW + n * DAY + timedelta(hours=12), 48) for n in range(4)]
    base = [Step(NOW + n * DAY + timedelta(hours=12), NOW + (n + 1) * DAY, 16) for n in range(4)]
    found = missing_spans(sorted([*night, *base]))
    assert [(one.start, one.end, one.gpus) for one in found] == [
        (NOW, NOW + 4 * DAY, 16),
        (NOW, NOW + 3 * DAY + timedelta(hours=12), 32),
    ]


def test_no_searches_while_nothing_is_missing_soon_and_it_wakes_when_something_will_be():
    documents = buying()
    covered = a_world(block(ends_in="20d", count=2, pool="p5"))
    plan = decide(documents, covered)
    assert not of(plan, SearchOffers)
    due = next_round_at(documents, covered)
    assert due is not None
    assert plan.wake_at is not None
    assert plan.wake_at <= due
    assert ahead("11d") < due < ahead("13d")
    assert of(decide(documents, replace(covered, now=due)), SearchOffers)


def test_after_a_round_the_next_waits_for_the_cadence_or_for_a_change():
    documents = buying(replanEvery="8h")
    world = advised(documents)
    assert next_round_at(documents, world) == NOW + timedelta(hours=8)
    changed = replace(world, reservations=(block(ends_in="2d", count=1, pool="p5"),))
    assert next_round_at(documents, changed) == NOW + timedelta(minutes=10)


# --- what is advised ----------------------------------------------------------------------------------


def test_the_planner_runner_plans_once_every_question_is_answered_and_not_before():
    documents = buying()
    runner, world = PlannerRunner(documents), a_world()
    assert runner.with_result(world).planner_result is None
    asking = runner.with_result(answered(documents, world, market))
    assert asking.planner_result is not None
    assert asking.planner_result.asks
    assert not asking.planner_result.choices
    assert runner.with_result(asking).planner_result == asking.planner_result  # its searches are not answered
    told = whole_round(documents, asking, market, runner).planner_result
    assert told is not None
    assert told.at == NOW
    assert told.bound_usd <= told.bound_asked_usd <= told.fees_usd + told.penalty_usd
    assert told.choices
    assert told.usd_per_gpu_h == pytest.approx(37.76 / 8, rel=0.1)
    again = runner.with_result(replace(world, now=ahead("1h"))).planner_result
    assert again is told


def test_a_market_that_sells_nothing_ends_the_round_after_few_searches():
    world = whole_round(buying(), a_world(), lambda query: [])
    assert not world.planner_result.choices
    assert len(world.searches) < MAX_SEARCHES / 2


def test_a_round_that_is_not_over_begins_anew_when_blocks_change_or_its_answers_are_old():
    documents = buying()
    asking = PlannerRunner(documents).with_result(answered(documents, a_world(), market))
    first = planning_round(documents, a_world(), {}).offers
    assert planning_round(documents, asking, {}).offers[len(first) :]
    assert next_round_at(documents, asking) == NOW
    assert {one.query for one in of(decide(documents, asking), SearchOffers)} <= set(
        asking.planner_result.asks
    ) - set(first)
    changed = replace(asking, reservations=(block(ends_in="2d", count=1, pool="p5"),))
    assert next_round_at(documents, changed) == NOW + timedelta(minutes=10)
    old = replace(asking, now=NOW + ANSWER_FRESH)
    assert next_round_at(documents, old) <= old.now
    assert len(planning_round(documents, old, {}).offers) == len(first)


def test_the_same_world_gives_the_same_planner_result():
    documents = buying(
        ALWAYS,
        {"name": "office", "weekly": {"days": ["mon", "tue"], "from": "08:00", "to": "20:00", "gpus": 32}},
    )
    world = answered(documents, a_world(), market)
    wanted = planning_round(documents, world, {})
    backwards = replace(world, searches=world.searches[::-1])
    assert run_planner(documents, world, wanted, {}) == run_planner(documents, backwards, wanted, {})


def test_what_is_proposed_counts_as_covered_so_that_nothing_is_bought_twice():
    documents = buying()
    asked = intent(
        plan="rolling", window="x",
        inside={"count": 2, "earliest_start": ahead("1h"), "latest_start": ahead("1h"), "earliest_end": ahead("30d")},
    )  # fmt: skip
    world = a_world(asked)
    assert next_round_at(documents, world) > ahead("20d")


# --- what is proposed ---------------------------------------------------------------------------------


@pytest.mark.requirement("CB-8")
def test_a_planned_purchase_that_is_due_becomes_a_proposal_with_its_envelope():
    documents = buying()
    (made,) = of(decide(documents, advised(documents, offer())), ProposePurchase)
    envelope = made.intent.envelope
    assert (made.intent.plan, made.intent.pool) == ("rolling", "p5")
    assert (envelope.latest_start, envelope.earliest_end) == (offer().start, offer().end)
    assert envelope.max_fee_usd == 13_200
    assert made.reason.saves_usd == 1_234.0


def test_a_planned_purchase_that_is_not_due_waits():
    documents = buying()
    later = NOW + timedelta(minutes=20)
    world = advised(documents, offer(), since=later)
    plan = decide(documents, world)
    assert not of(plan, ProposePurchase)
    assert plan.wake_at == later
    assert proposals(documents, replace(world, now=later))


@pytest.mark.requirement("CB-4")
def test_a_planner_result_is_not_used_when_it_is_old_or_its_blocks_have_changed():
    documents = buying()
    world = advised(documents, offer())
    assert proposals(documents, world)
    assert not proposals(documents, replace(world, reservations=(block(ends_in="2d", count=1, pool="p5"),)))
    asked_again = tuple(replace(search, at=ahead("30m")) for search in world.searches)
    assert proposals(documents, replace(world, now=ahead("29m"), searches=asked_again))
    assert not proposals(documents, replace(world, now=ahead("31m"), searches=asked_again))
    assert not proposals(documents, replace(world, ledger_ok=False))


def test_an_offer_that_the_newest_answer_no_longer_shows_is_not_proposed():
    documents = buying()
    world = advised(documents, offer())
    newer = offers.OfferSearch(world.searches[0].query, ahead("1m"), ())
    assert not proposals(documents, replace(world, now=ahead("2m"), searches=(*world.searches, newer)))
    assert not proposals(documents, replace(world, searches=()))


def test_what_a_person_refused_is_not_proposed_again_for_a_while():
    documents = buying()
    name = window_name(PlannedPurchase("rolling", "p5", offer(), 7 * DAY, NOW, ""))
    said_no = intent("refused", plan="rolling", window=name, state_at=NOW - timedelta(hours=1))
    assert not proposals(documents, _with(documents, said_no))
    long_ago = replace(said_no, state_at=NOW - timedelta(hours=7))
    assert proposals(documents, _with(documents, long_ago)) == [name]


def _with(documents: Spec, before: Any) -> World:
    world = replace(advised(documents, offer()), purchases=(before,))
    made = replace(world.planner_result, basis=basis(documents, (), (before,), NOW))  # type: ignore[type-var]
    return replace(world, planner_result=made)


def test_blocks_of_one_zone_are_bought_in_the_zone_they_were_planned_for():
    for one_zone, zones in ((True, (ZONE,)), (False, (ZONE, "us-west-2b"))):
        documents = buying(oneZone=one_zone)
        (made,) = of(decide(documents, advised(documents, offer())), ProposePurchase)
        assert made.intent.envelope.zones == zones


@pytest.mark.requirement("CB-4")
def test_a_proposal_is_void_once_aws_shows_that_its_demand_is_covered():
    documents = buying()
    (made,) = of(decide(documents, advised(documents, offer())), ProposePurchase)
    open_ = replace(a_world(), purchases=(made.intent,))
    assert not of(decide(documents, open_), SettlePurchase)
    bought_elsewhere = block("cr-9", ends_in="20d", count=2, pool="p5")
    (void,) = of(decide(documents, replace(open_, reservations=(bought_elsewhere,))), SettlePurchase)
    assert void.outcome == "voided"
    half = replace(bought_elsewhere, count=1)
    assert not of(decide(documents, replace(open_, reservations=(half,))), SettlePurchase)


@pytest.mark.requirement("CB-6")
def test_an_extension_is_searched_and_proposed_where_it_is_cheaper():
    documents = buying()
    world = a_world(block(ends_in="3d", count=2, pool="p5", fee_usd=10_000))
    wanted = planning_round(documents, world, {})
    assert offers.ExtensionQuery("cr-1", 7 * DAY) in wanted.extensions
    end = ahead("3d")
    more = tuple(
        offers.ExtensionSearch(
            extension,
            NOW,
            (
                offers.ExtensionOffer(
                    f"cbe-{extension.duration.days}", "cr-1", end, end + extension.duration, usd
                ),
            ),
        )
        for extension in wanted.extensions
        for usd in [extension.duration.days * 1_000]
    )
    world = replace(world, extension_searches=more)
    runner = PlannerRunner(documents)
    for _ in range(MAX_SEARCHES):
        world = runner.with_result(replace(answered(documents, world, market), extension_searches=more))
    (made, *_) = of(decide(documents, world), ProposePurchase)
    assert made.intent.extends == "cr-1"
    assert made.intent.envelope.latest_start == end


def test_extensions_are_asked_for_in_lengths_that_ec2_sells_up_to_each_break_in_the_demand():
    runs = [
        {"name": f"run-{n}", "window": {"from": ahead(f"{first}d"), "to": ahead(f"{last}d"), "instances": 2}}
        for n, (first, last) in enumerate([(0, 5), (9, 11), (17, 19)])
    ]
    world = a_world(block(ends_in="3d", count=2, pool="p5", fee_usd=10_000))
    lengths = [one.duration.days for one in planning_round(buying(*runs), world, {}).extensions]
    assert {3, 9, 21} <= set(
        lengths
    )  # the end of each run, half an hour of wind-down after it: 15d and more is 21d
    assert len(lengths) <= MAX_EXTENSION_SEARCHES
    assert all(is_legal_duration(timedelta(days=days)) for days in lengths)
    nearly_longest = replace(world.reservations[0], start=NOW - 177 * DAY)
    longest = planning_round(buying(), replace(world, reservations=(nearly_longest,)), {}).extensions
    assert {one.duration.days for one in longest} == {1, 2}  # 182 days are the most


def test_a_plan_that_never_extends_searches_no_extensions():
    plan = calendar()
    never = plan.spec.model_copy(update={"extend": Extending(policy="never")})
    documents = spec(pool(), plan.model_copy(update={"spec": never}))
    assert not planning_round(documents, a_world(block(ends_in="3d", count=2, pool="p5")), {}).extensions


# --- without the solver, and what nobody wrote down -----------------------------------------------------


def test_without_the_solver_a_block_is_bought_for_each_week_and_it_says_so():
    documents = buying()
    world = replace(a_world(), planner_result=PlannerResult(NOW, (), failure=PlannerFailure.NO_SOLVER))
    plan = decide(documents, world)
    assert any("a block is bought for each week" in sentence(warning.reason) for warning in plan.warnings)
    assert {one.query.count for one in of(plan, SearchOffers)} == {2}


def test_the_planner_runner_says_once_that_the_solver_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)
    told = PlannerRunner(buying()).with_result(a_world()).planner_result
    assert told is not None
    assert told.failure is PlannerFailure.NO_SOLVER


LEARNED = {"name": "learned", "learned": {"mostInstances": 4}}


def test_demand_is_learned_from_use_and_from_pods_that_wait_for_long():
    documents = buying(LEARNED)
    held = block(ends_in="3d", count=2, pool="p5")
    used = BlockUse("cr-1", 16, used_h=300.0, held_h=600.0)
    assert learned_gpus(documents, replace(a_world(held), uses=(used,))) == {"rolling": 8}
    waits = pod("waits", gpus=8, created_at=NOW - timedelta(hours=2))
    assert learned_gpus(documents, replace(a_world(held, waits), uses=(used,))) == {"rolling": 16}
    passing = pod("passing", gpus=8)
    assert learned_gpus(documents, replace(a_world(held, passing), uses=(used,))) == {"rolling": 8}


def test_learned_demand_never_exceeds_its_maximum():
    crowd = [pod(f"waits-{n}", gpus=8, created_at=NOW - timedelta(hours=2)) for n in range(40)]
    assert learned_gpus(buying(LEARNED), a_world(*crowd)) == {"rolling": 32}


def test_a_block_younger_than_a_day_counts_by_the_pods_on_it_now():
    there = node()
    world = a_world(block(ends_in="3d", count=2, pool="p5"), there, pod("runs", gpus=8, on=there))
    assert learned_gpus(buying(LEARNED), world) == {"rolling": 8}
    assert world.reservations[0].owner == OWNER


def test_a_refused_purchase_does_not_count_as_expected():
    documents = buying()
    gone = intent("voided", plan="rolling", window="x")
    assert basis(documents, (), (gone,), NOW) == ()
    assert gone.state is PurchaseState.VOIDED


def test_while_the_planner_runs_it_wakes_before_the_answers_are_too_old():
    documents = buying()
    world = answered(documents, a_world(), market)
    plan = decide(documents, world)
    assert not plan.actions
    assert plan.wake_at == NOW + ANSWER_FRESH
    assert of(decide(documents, replace(world, now=NOW + ANSWER_FRESH)), SearchOffers)
