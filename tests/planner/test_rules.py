"""What EC2 sells, what money allows, and where work must stand: the plan never asks for anything else."""

from __future__ import annotations

import sys
from datetime import timedelta

import pytest

from tests.planner.asked import GRID, NOW, P5, Asked, asked, block, day, extension, needs, offer
from tidemill.decide.purchasing.planner import plan
from tidemill.decide.purchasing.planner.inputs import (
    Ceilings,
    DatedOffer,
    PlannerInputs,
    TypePrice,
    newest_offers,
)
from tidemill.model.capacity import ReservationState
from tidemill.model.errors import SpecError
from tidemill.model.offers import OfferQuery, OfferSearch
from tidemill.wording.planning import offer_refusal_sentence

WEEK = needs((0, 7, 4))


def left_out(question: Asked) -> dict[str, str]:
    return {one.id: offer_refusal_sentence(one.why) for one in question.plan().left_out}


@pytest.mark.requirement("CB-2")
@pytest.mark.parametrize("days", [15, 20, 180])
def test_refuses_a_duration_ec2_does_not_sell(days):
    question = asked(WEEK, offers=(offer("cb-odd", 0, days, 10), offer("cb-week", 0, 7, 9_000)))
    assert question.plan().cover.ids == {"cb-week"}
    assert "sells no block" in left_out(question)["cb-odd"]


@pytest.mark.requirement("CB-2")
def test_refuses_more_than_64_instances_in_a_block():
    question = asked(needs((0, 7, 65)), offers=(offer("cb-big", 0, 7, 10, count=65),))
    assert not question.plan().cover.ids
    assert "1 to 64" in left_out(question)["cb-big"]


@pytest.mark.requirement("CB-2")
def test_never_more_than_256_instances_on_a_date():
    offers = tuple(offer(f"cb-{n}", 0, 7, 1_000, count=64, zone="abcde"[n]) for n in range(5))
    question = asked(needs((0, 7, 320)), offers=offers)
    assert len(question.plan().cover.buys) == 4
    assert len(question.but(owned=(block("cr-1", -1, 5, count=10, pool="other"),)).plan().cover.buys) == 3
    assert len(question.but(held_elsewhere=200).plan().cover.buys) == 0


@pytest.mark.requirement("CB-2")
def test_the_day_of_a_hand_over_counts_both_blocks():
    offers = tuple(offer(f"cb-{n}", n % 2 * 7, 7, 1_000, count=64, zone="abcdef"[n]) for n in range(6))
    assert len(asked(needs((0, 14, 256)), offers=offers).plan().cover.buys) == 4


def test_a_start_now_block_may_be_a_little_shorter_or_longer():
    short = offer("cb-now", -1 / 24, 2 + 1 / 24, 1_000)
    assert asked(needs((0, 1.9, 4)), offers=(short,)).plan().cover.ids == {"cb-now"}
    later = offer("cb-later", 3 - 1 / 24, 2 + 1 / 24, 1_000)
    assert "cb-later" in left_out(asked(WEEK, offers=(later,)))


def test_offers_that_are_old_too_near_or_too_far_are_left_out():
    offers = (offer("cb-near", 0, 7, 10), offer("cb-far", 57, 7, 10))
    why = left_out(asked(WEEK, offers=offers, lead=timedelta(hours=3), until=day(70)))
    assert "sooner than 3h" in why["cb-near"]
    assert "8 weeks" in why["cb-far"]
    seen = DatedOffer(offer("cb-old", 0, 7, 10), NOW - timedelta(hours=1))
    question = asked(WEEK)
    found = plan(PlannerInputs(question.demand, (), (seen,), (), question.prices, question.policy))
    assert "seen 1h ago" in offer_refusal_sentence(found.left_out[0].why)


def test_only_the_newest_answer_to_a_question_counts():
    query = OfferQuery(P5, 4, timedelta(days=7), NOW, day(30))
    searches = (
        OfferSearch(query, NOW, (offer("cb-new", 0, 7, 10),)),
        OfferSearch(query, NOW - timedelta(minutes=9), (offer("cb-gone", 0, 7, 5),)),
    )
    assert [one.offer.id for one in newest_offers(searches)] == ["cb-new"]


def test_the_same_capacity_in_two_offers_is_not_bought_twice():
    same = (offer("cb-4", 0, 7, 1_000, count=4), offer("cb-2", 0, 7, 400, count=2))
    assert asked(needs((0, 7, 6)), offers=same).plan().cover.ids == {"cb-4"}


@pytest.mark.requirement("CB-6")
def test_extends_where_that_is_cheaper_and_rebooks_where_it_is_not():
    question = asked(needs((0, 9, 4)), owned=(block("cr-1", -5, 2),), offers=(offer("cb-1", 2, 7, 20_000),))
    cheap, dear = extension("cbe-1", "cr-1", 9, 19_000), extension("cbe-1", "cr-1", 9, 25_000)
    assert question.but(extensions=(cheap,)).plan().cover.ids == {"cbe-1"}
    assert question.but(extensions=(dear,)).plan().cover.ids == {"cb-1"}


@pytest.mark.requirement("CB-6")
@pytest.mark.parametrize(
    ("held", "end"),
    [
        (block("cr-1", -5, 2, extension_pending_to=day(3)), 9),
        (block("cr-1", -5, 2, state=ReservationState.PAYMENT_PENDING), 9),
        (block("cr-1", -5, 2), 2 + 15),
        (block("cr-1", -170, 2), 2 + 14),
        (block("cr-1", 0, 70, state=ReservationState.SCHEDULED), 77),
    ],
    ids=["one-pending", "not-paid", "no-legal-length", "over-182-days", "window-not-open"],
)
def test_never_asks_for_an_extension_ec2_would_refuse(held, end):
    one = extension("cbe-1", "cr-1", end, 1)
    assert "cbe-1" in left_out(asked(needs((0, 80, 4)), owned=(held,), extensions=(one,), until=day(80)))


def test_the_budget_is_never_exceeded_and_the_plan_says_that_it_binds():
    offers = (offer("cb-a", 0, 7, 20_000, count=2), offer("cb-b", 0, 7, 21_000, count=2, zone="b"))
    question = asked(WEEK, offers=offers, ceilings=Ceilings(30_000, 50_000, spent_usd=20_000))
    found = question.plan()
    assert found.cover.ids == {"cb-a"}
    assert found.sensitivity.budget_binds
    assert "budget binds" in found.sensitivity.words[0]
    rich = question.but(ceilings=Ceilings(30_000, 50_000)).plan()
    assert rich.cover.ids == {"cb-a", "cb-b"}
    assert not rich.sensitivity.budget_binds


def test_one_purchase_over_its_ceiling_is_left_out():
    question = asked(WEEK, offers=(offer("cb-a", 0, 7, 20_000),), ceilings=Ceilings(10_000, 90_000))
    assert "ceiling of $10,000" in left_out(question)["cb-a"]


def test_a_month_that_is_overspent_buys_nothing():
    question = asked(WEEK, on_demand_usd_h=1.0, offers=(offer("cb-a", 0, 7, 1),))
    found = question.but(ceilings=Ceilings(10, 10, spent_usd=99.0)).plan()
    assert found.cover.cost.spent_usd == 0


def test_hours_on_demand_are_bought_whole_even_where_money_runs_out():
    found = asked(WEEK, on_demand_usd_h=10.0, ceilings=Ceilings(10_000, 2_500)).plan()
    assert [one.instances for one in found.cover.on_demand] == [1]
    assert found.cover.cost.on_demand_usd == pytest.approx(1_680)


def test_multi_node_work_is_kept_in_one_zone():
    offers = (
        offer("cb-a", 0, 7, 10_000, count=2),
        offer("cb-b", 0, 7, 10_000, count=2, zone="b"),
        offer("cb-big", 0, 7, 27_000, count=4),
    )
    assert asked(needs((0, 7, 4)), offers=offers).plan().cover.ids == {"cb-a", "cb-b"}
    assert asked(needs((0, 7, 4), one_zone=True), offers=offers).plan().cover.ids == {"cb-big"}


def test_a_block_without_a_pool_is_shared_and_a_block_of_a_pool_is_not():
    pools = (needs((0, 2, 2)), needs((0, 2, 2), pool="train"))
    cut_off = timedelta(minutes=30)
    shared = asked(*pools, owned=(block("cr-1", -1, 3, pool=""),), until=day(3) - cut_off).plan()
    assert not shared.cover.uncovered
    own = asked(*pools, owned=(block("cr-1", -1, 3),), until=day(3) - cut_off).plan()
    assert {one.pool for one in own.cover.uncovered} == {"train"}


def test_demand_in_gpus_takes_whole_instances():
    demand = needs((0, 1, 5), unit="gpus", wind_down=timedelta(0))
    found = asked(demand, on_demand_usd_h=10.0).plan()
    assert [one.instances for one in found.cover.on_demand] == [1]
    assert found.demand_gpu_hours == 5 * 24


def test_demand_in_instances_of_different_sizes_is_refused():
    prices = {P5: TypePrice(8), "p5.4xlarge": TypePrice(1)}
    with pytest.raises(SpecError, match="differ in size"):
        asked(needs((0, 1, 1), types=(P5, "p5.4xlarge")), prices=prices).plan()


def test_an_extension_with_a_pending_payment_does_not_count():
    held = block("cr-1", -5, 2, extension_pending_to=day(9))
    assert asked(needs((0, 9, 4)), owned=(held,)).plan().cover.uncovered[0].start == day(2) - timedelta(
        minutes=30
    )


def test_the_order_of_the_offers_changes_nothing():
    offers = tuple(
        offer(f"cb-{n}", n % 5, 1 + n % 7, 3_000 + 37 * n, count=1 + n % 4, zone="abc"[n % 3])
        for n in range(30)
    )
    question = asked(needs((0, 9, 6), warm_up=timedelta(minutes=20)), on_demand_usd_h=55.04, offers=offers)
    first = question.plan()
    assert question.but(offers=offers[::-1]).plan() == first == question.plan()


def test_without_the_solver_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(SpecError, match=r"pip install highspy"):
        asked(WEEK).plan()


def test_nothing_needed_costs_nothing():
    found = asked(needs((0, 1, 0)), offers=(offer("cb-a", 0, 1, 5),)).plan()
    assert (found.cover.cost.total_usd, found.usd_per_gpu_h_used, found.gap) == (0, None, 0)
    assert found.at == NOW < GRID


def test_the_ceilings_of_a_pool_bind_only_that_pool():
    offers = (offer("cb-a", 0, 7, 20_000), offer("cb-b", 0, 7, 21_000, zone="b"))
    poor, rich = needs((0, 7, 4), pool="poor", monthly_usd=5_000), needs((0, 7, 4), pool="rich")
    found = asked(poor, rich, offers=offers).plan().cover
    assert [(one.pool, one.offer.id) for one in found.buys] == [("rich", "cb-a")]
    dear = needs((0, 7, 4), pool="poor", per_purchase_usd=20_500)
    assert {(one.pool, one.offer.id) for one in asked(dear, rich, offers=offers).plan().cover.buys} == {
        ("poor", "cb-a"),
        ("rich", "cb-b"),
    }


def test_a_fee_counts_in_the_month_in_which_the_purchase_is_due():
    # NOW is the 2nd of November: day 35 is in December, and a week before it still is not November's money.
    offers = (offer("cb-nov", 0, 7, 20_000), offer("cb-dec", 42, 7, 20_000))
    twice = ((0, 7, 4), (42, 49, 4))
    at_once, ahead = needs(*twice), needs(*twice, buy_ahead=timedelta(days=7))
    money = {"offers": offers, "ceilings": Ceilings(30_000, 25_000), "until": day(50)}
    assert len(asked(at_once, **money).plan().cover.buys) == 1
    assert len(asked(ahead, **money).plan().cover.buys) == 2


@pytest.mark.parametrize("instances", [0, 2])
def test_where_nothing_is_offered_in_any_zone_there_is_a_plan_and_no_runner_up(instances):
    found = asked(needs((0, 3, instances), one_zone=True), gap=0.005).plan()
    assert found.cover.ids == frozenset()
    assert found.gap == 0
    assert found.runner_up is None
