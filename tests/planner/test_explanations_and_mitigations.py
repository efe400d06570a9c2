"""What the plan says of itself: prices, the runner-up, what would change it, and the four ways to zero downtime."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.planner.asked import Asked, asked, block, day, extension, needs, offer
from tidemill.wording.planning import mitigation_sentence

MINUTES = timedelta(minutes=1)
WARM = 20 * MINUTES


def relay(**fields: object) -> Asked:
    """A block that ends on day 2, and a week of demand that goes on after it. Uncovered hours hurt little."""
    demand = needs((0, 9, 4), warm_up=WARM, penalty_usd_gpu_h=15.0)
    defaults: dict[str, object] = {
        "owned": (block("cr-a", -5, 2, fee_usd=7 * 3_600),), "offers": (offer("cb-b", 2, 7, 25_200),),
    }  # fmt: skip
    return asked(demand, on_demand_usd_h=55.04, until=day(9), **{**defaults, **fields})


def ways(question: Asked) -> dict[str, tuple[float | None, str]]:
    return {way.means: (way.usd, way.offer) for way in question.plan().hand_overs[0].ways}


@pytest.mark.requirement("CB-9")
def test_a_hand_over_says_how_long_the_gap_between_two_blocks_on_the_grid_is():
    found = relay().plan().hand_overs[0]
    assert (found.before, found.after, found.at, found.gpus) == ("cr-a", "cb-b", day(2), 32)
    assert found.gap == found.gap_back_to_back == 50 * MINUTES  # EC2 takes 30 before the end, nodes need 20


def test_all_four_ways_are_priced_from_offers_where_there_are_any():
    found = ways(
        relay(
            offers=(
                offer("cb-b", 2, 7, 25_200),
                offer("cb-longer", 1, 8, 29_500, zone="b"),
                offer("cb-now", -1 / 24, 5 + 1 / 24, 19_000, zone="c"),
            ),
            extensions=(extension("cbe-1", "cr-a", 3, 3_900),),
        )
    )
    assert found["a-day-more-of-b"] == (4_300, "cb-longer")
    assert found["a-days-extension-of-a"] == (3_900, "cbe-1")
    assert found["a-start-now-block"] == (19_000, "cb-now")
    assert found["an-on-demand-bridge"][0] == pytest.approx(
        55.04 * 4 * 70 / 60
    )  # the gap, and its own warm-up


def test_ways_ec2_does_not_offer_are_estimated_and_say_so():
    found = ways(relay())
    assert found["a-day-more-of-b"] == (3_600, "")
    assert found["a-days-extension-of-a"] == (3_600, "")
    assert found["a-start-now-block"] == (None, "")
    words = {way.means: mitigation_sentence(way.note) for way in relay().plan().hand_overs[0].ways}
    assert "estimated" in words["a-day-more-of-b"]


def test_a_days_extension_is_not_priced_by_an_offer_of_weeks():
    longer = (extension("cbe-28", "cr-a", 2 + 28, 28 * 4_000), extension("cbe-7", "cr-a", 2 + 7, 7 * 3_900))
    question = relay(extensions=longer, offers=(offer("cb-b", 2, 7, 20_000),))
    assert ways(question)["a-days-extension-of-a"] == (3_900, "")  # a day of the nearest that EC2 showed
    (note,) = (way.note for way in question.plan().hand_overs[0].ways if way.means == "a-days-extension-of-a")
    assert "estimated at the rate of cbe-7, an extension by 7d" in mitigation_sentence(note)


def test_an_offer_that_is_replaced_by_one_of_weeks_is_extended_at_its_own_rate():
    demand = needs((0, 6, 4), warm_up=WARM, penalty_usd_gpu_h=15.0)
    first, second = offer("cb-a", 0, 2, 7_200), offer("cb-b", 2, 4, 14_400)
    weeks = offer("cb-weeks", 0, 28, 28 * 3_600)
    day_more = offer("cb-more", 0, 3, 11_000)
    question = asked(demand, offers=(first, second, weeks), until=day(6))
    assert ways(question)["a-days-extension-of-a"] == (3_600, "")
    question = asked(demand, offers=(first, second, weeks, day_more), until=day(6))
    assert ways(question)["a-days-extension-of-a"] == (3_800, "cb-more")


def test_the_cheapest_mitigation_comes_first_and_unavailable_ones_last():
    prices = [way.usd for way in relay().plan().hand_overs[0].ways]
    known = [usd for usd in prices if usd is not None]
    assert prices == [*sorted(known), None]


def test_a_service_that_must_not_be_short_is_bridged_by_the_plan_itself():
    dear = needs((0, 9, 4), warm_up=WARM, penalty_usd_gpu_h=500.0)
    found = relay(demand=(dear,)).plan()
    bridge = next(one for one in found.cover.on_demand if one.start > day(1))
    assert (bridge.start, bridge.end) == (day(2) - 30 * MINUTES, day(2) + WARM)
    assert all(one.start >= day(8) for one in found.cover.uncovered)


def test_overlapping_blocks_leave_no_gap():
    found = relay(owned=(block("cr-a", -5, 2), block("cr-b", 1, 9)), offers=()).plan().hand_overs
    assert [(one.after, one.gap) for one in found if one.before == "cr-a"] == [("cr-b", timedelta(0))]


def test_a_block_that_is_not_needed_at_its_end_is_no_hand_over():
    question = asked(needs((0, 1, 4)), owned=(block("cr-a", -5, 2),), until=day(9))
    assert question.plan().hand_overs == ()


def test_the_runner_up_says_why_it_lost():
    offers = (offer("cb-a", 0, 7, 20_000), offer("cb-b", 0, 7, 21_000, zone="b"))
    second = asked(needs((0, 7, 4)), offers=offers).plan().runner_up
    assert second is not None
    assert second.cover.ids == {"cb-b"}
    assert second.dearer_usd == pytest.approx(1_000)
    assert second.why == "it takes cb-b and leaves cb-a: $1,000 more in fees"


def test_at_the_price_it_names_on_demand_costs_the_same():
    demand, week = needs((0, 7, 4), wind_down=timedelta(0)), (offer("cb-a", 0, 7, 20_000),)
    found = asked(demand, on_demand_usd_h=55.04, offers=week).plan()
    even = found.sensitivity.worths[0].on_demand_below_usd_h
    assert even == pytest.approx(20_000 / (4 * 7 * 24))
    assert asked(demand, on_demand_usd_h=even * 1.01, offers=week).plan().cover.ids == {"cb-a"}
    assert not asked(demand, on_demand_usd_h=even * 0.99, offers=week).plan().cover.ids


def test_at_the_penalty_it_names_leaving_it_uncovered_costs_the_same():
    week = (offer("cb-a", 0, 7, 20_000),)
    found = asked(needs((0, 7, 4), wind_down=timedelta(0)), offers=week).plan()
    even = found.sensitivity.worths[0].penalty_below_usd_gpu_h
    assert even is not None
    for factor, ids in ((1.01, {"cb-a"}), (0.99, set())):
        demand = needs((0, 7, 4), wind_down=timedelta(0), penalty_usd_gpu_h=even * factor)
        assert asked(demand, offers=week).plan().cover.ids == ids


def test_the_plan_gives_the_price_of_a_gpu_hour_as_bought_and_as_used():
    demand = needs((0, 3, 4), wind_down=timedelta(0))
    found = asked(demand, offers=(offer("cb-a", 0, 7, 21_504),)).plan()
    assert found.usd_per_gpu_h_bought == pytest.approx(21_504 / (7 * 24 * 32))
    assert found.usd_per_gpu_h_used == pytest.approx(21_504 / (3 * 24 * 32))


def test_uncovered_demand_says_what_would_cover_it():
    words = asked(needs((0, 3, 4), penalty_usd_gpu_h=2.0), on_demand_usd_h=55.04).plan().sensitivity.words
    assert words == (
        "2,304 GPU-hours of serve stay uncovered at $2.00 each; on-demand would take over from about $6.88",
    )
