"""What the planner asks EC2 next: the blocks of the cheapest cover over everything that could be sold."""

from __future__ import annotations

from datetime import timedelta

import pytest

from benchmarks.planner_market import compare, draw
from tests.planner.asked import DAY, NOW, P5, Asked, block, day, needs, offer
from tidemill.decide.purchasing.planner.market_cover import market_cover
from tidemill.decide.purchasing.planner.seen_market import SeenMarket
from tidemill.model.offers import Offer, OfferQuery, OfferSearch

ZONES = ("a", "b")
HALF_AN_HOUR = 1 / 48  # of a day: a block serves so long less than it lasts


def search(first: float, last: float, days: int, *offers: Offer, count: int = 4) -> OfferSearch:
    """Of every start from one day to another."""
    return OfferSearch(OfferQuery(P5, count, days * DAY, day(first), day(last + days)), NOW, offers)


def market(*searches: OfferSearch) -> SeenMarket:
    return SeenMarket(searches, NOW, {P5: 40.0}, {})


def six(days: int = 7, **fees: int) -> list[Offer]:
    """Four instances from each of the first three days in both zones, dearer by the day."""
    return [offer(f"{zone}{n}", n, days, 20_000 + 1_000 * n, zone=zone) for n in range(3) for zone in ZONES]


# --- what answers tell --------------------------------------------------------------------------------


def test_what_a_full_answer_does_not_show_is_expected_to_cost_at_least_its_last_offer():
    seen = market(search(0, 9, 7, *six()))
    assert seen.expected_usd_h(P5, "a", day(0)) == pytest.approx(20_000 / (4 * 7 * 24))
    assert seen.expected_usd_h(P5, "a", day(5)) == pytest.approx(22_000 / (4 * 7 * 24))
    assert seen.expected_usd_h(P5, "a", day(20)) == pytest.approx(
        20_000 / (4 * 7 * 24)
    )  # nobody asked: the lowest


def test_what_a_short_answer_does_not_show_is_not_sold_in_that_size_nor_longer():
    seen = market(search(0, 3, 7, *six()[:2]))
    windows = {(one.zone, one.start, one.duration.days): one.most for one in seen.windows(P5, ZONES, day(14))}
    assert windows["a", day(0), 7] == 64
    assert windows["a", day(2), 7] == windows["a", day(2), 14] == 2
    assert windows["a", day(2), 3] == 64
    assert windows["a", day(9), 7] == 64
    hopeful = {
        (one.zone, one.start, one.end): one.most for one in seen.windows(P5, ZONES, day(14), hopeful=True)
    }
    assert hopeful["a", day(2), day(9)] == 3


# --- the cheapest cover of everything -----------------------------------------------------------------


def cover(asked: Asked, seen: SeenMarket, **in_zone: str) -> list[tuple[str, float, float, int]]:
    found = market_cover(asked.inputs, seen, in_zone=in_zone)
    return sorted(
        (one.window.zone, (one.window.start - day(0)) / DAY, (one.window.end - day(0)) / DAY, one.instances)
        for one in found.picks
    )


def test_stairs_are_covered_by_blocks_of_the_height_of_each_step():
    stairs = needs((1, 8 - HALF_AN_HOUR, 3), (3, 8 - HALF_AN_HOUR, 2), zones=ZONES)
    found = cover(Asked((stairs,)), market())
    assert [(start, end, count) for _, start, end, count in found] == [(1, 8, 3), (3, 8, 2)]


def test_a_block_of_a_type_that_nobody_asks_for_counts_for_nobody():
    """Another pool's: its price is not even asked for."""
    needed = needs((1, 8 - HALF_AN_HOUR, 3), zones=ZONES)
    others = block("cr-of-others", 0, 14, instance_type="trn2.48xlarge", pool="batch")
    found = cover(Asked((needed,), owned=(others,)), market())
    assert [(start, end, count) for _, start, end, count in found] == [(1, 8, 3)]


def test_more_than_64_instances_are_taken_from_several_windows():
    large = needs((1, 4, 150), zones=("a", "b", "c"), wind_down=timedelta(0))
    found = cover(Asked((large,)), market())
    assert sorted(count for *_, count in found) == [22, 64, 64]
    assert len({zone for zone, *_ in found}) == 3


def test_a_cheaper_start_a_day_before_is_worth_a_day_more():
    dear = [offer(f"{zone}{n}", n, 1, 4_000, zone=zone) for n in range(1, 8) for zone in ZONES]
    days = [search(n, n, 1, *(one for one in dear if one.start == day(n))) for n in range(1, 8)]
    seen = market(search(0, 0, 8, offer("cheap", 0, 8, 20_000)), *days)
    assert cover(Asked((needs((1, 8 - HALF_AN_HOUR, 4), zones=ZONES),)), seen) == [("a", 0, 8, 4)]


def test_work_that_needs_one_zone_is_covered_in_the_zone_that_is_given():
    two = needs((1, 4, 100), zones=ZONES, wind_down=timedelta(0), one_zone=True)
    assert {zone for zone, *_ in cover(Asked((two,)), market(), serve="b")} == {"b"}


# --- the whole round ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2, 5, 6])
def test_the_plan_is_within_two_percent_of_the_best_that_the_market_sells(number):
    found = compare(draw(number))
    assert found.dearer <= 0.02
    assert found.bound_holds
    assert found.searches <= 48


def test_work_that_needs_one_zone_is_within_two_percent_of_a_best_that_may_mix_zones():
    assert compare(draw(2, one_zone=True)).good


@pytest.mark.slow
@pytest.mark.parametrize("number", range(7, 51))
def test_of_fifty_calendars_every_plan_is_within_two_percent_of_the_best(number):
    assert compare(draw(number)).good
