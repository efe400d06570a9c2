"""What the simulated EC2 sells, and what it refuses to."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.account import GB200, START, ZONES, Account
from tidemill.model.ec2_facts import LEGAL_DURATIONS
from tidemill.model.errors import NoCapacity, SpecError

DAY = timedelta(days=1)


def on_grid(instant: datetime) -> bool:
    return (instant.hour, instant.minute, instant.second) == (11, 30, 0)


@pytest.mark.requirement("CB-2")
def test_refuses_a_duration_ec2_does_not_sell_and_names_the_nearest():
    with pytest.raises(SpecError, match="180d is not a duration EC2 sells; the nearest: 175d and 182d"):
        Account().offers(duration=timedelta(days=180))


@pytest.mark.requirement("CB-2")
@pytest.mark.parametrize("count", [0, 65])
def test_refuses_a_size_no_block_has(count):
    with pytest.raises(SpecError, match="1 to 64 instances"):
        Account().offers(count=count)


@pytest.mark.requirement("CB-2")
def test_offers_nothing_past_256_instances_on_a_date():
    account = Account()
    start = START + timedelta(days=3)
    for number in range(4):
        account.block(name=f"b{number}", start="3d", duration="2d", count=60)
    assert account.offers(count=16, earliest_start=start, latest_end=start + 2 * DAY)
    assert not account.offers(count=17, earliest_start=start, latest_end=start + 2 * DAY)
    later = start + 3 * DAY
    assert account.offers(count=17, earliest_start=later, latest_end=later + 2 * DAY)


@pytest.mark.requirement("CB-2")
def test_a_purchase_past_256_on_a_date_fails_though_the_offer_was_shown():
    account = Account()
    offer = account.offers(count=20, earliest_start=START + DAY)[0]
    for number in range(4):
        account.block(name=f"b{number}", start="1d", duration="14d", count=60)
    with pytest.raises(NoCapacity, match="sold out"):
        account.cloud.purchase(offer.id, ())


def test_refuses_an_instance_type_nobody_knows_and_has_no_blocks_of_others():
    account = Account()
    with pytest.raises(SpecError, match=r"p9\.huge"):
        account.offers(instance_type="p9.huge")
    assert account.offers(instance_type="g6.xlarge") == ()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    minute=st.integers(0, 3 * 24 * 60),
    duration=st.sampled_from(LEGAL_DURATIONS[:16]),
    count=st.integers(1, 64),
    ahead=st.timedeltas(timedelta(0), timedelta(days=60)),
    room=st.timedeltas(timedelta(0), timedelta(days=30)),
    offers=st.sampled_from(["plenty", "scarce"]),
)
def test_every_offer_keeps_the_rules_of_the_grid(seed, minute, duration, count, ahead, room, offers):
    account = Account(seed=seed, start=START + timedelta(minutes=minute), offers=offers)
    earliest, latest = account.now + ahead, account.now + ahead + duration + room
    found = account.offers(
        count=count, duration=duration, earliest_start=earliest, latest_end=latest, zones=ZONES[:2]
    )
    assert len(found) <= 6
    assert [offer.fee_usd for offer in found] == sorted(offer.fee_usd for offer in found)
    for offer in found:
        assert on_grid(offer.end)
        assert earliest <= offer.start
        assert offer.end <= latest
        assert timedelta(minutes=30) <= offer.start - account.now <= timedelta(weeks=8)
        assert offer.zone in ZONES[:2]
        if on_grid(offer.start):
            assert offer.end - offer.start == duration
        else:
            assert offer.start - account.now < timedelta(minutes=40)
            assert abs(offer.end - offer.start - duration) < DAY
            assert offer.end - offer.start >= timedelta(hours=2)


def test_a_start_now_offer_comes_slightly_shorter_and_slightly_longer():
    account = Account(start=START + timedelta(hours=5))
    found = account.offers(zones=ZONES[:1], latest_end=START + 3 * DAY)
    now_offers = [offer for offer in found if not on_grid(offer.start)]
    lengths = sorted(offer.end - offer.start for offer in now_offers)
    assert len(lengths) == 2
    assert lengths[0] < timedelta(days=2) < lengths[1]
    assert all(offer.start.minute % 2 == 1 for offer in now_offers)


def test_the_fee_is_the_catalog_rate_for_the_exact_time_within_15_percent():
    account = Account(start=START + timedelta(hours=5))
    fees = set()
    for offer in account.offers():
        list_price = 37.76 * offer.count * ((offer.end - offer.start) / timedelta(hours=1))
        assert 0.85 * list_price - 1 <= offer.fee_usd <= 1.15 * list_price + 1
        fees.add(round(offer.fee_usd / list_price, 3))
    assert len(fees) > 1, "offers differ by day and zone"


def test_the_same_query_at_the_same_instant_gives_the_same_offers():
    curious, direct = Account(), Account()
    curious.offers(count=7)
    curious.offers(instance_type="p4d.24xlarge")
    assert curious.offers() == curious.offers() == direct.offers()
    assert Account(seed=8).offers() != direct.offers()


def test_an_empty_market_sells_nothing():
    assert Account(offers="none").offers() == ()


def test_a_scarce_market_loses_its_offers_within_minutes():
    account = Account(offers="scarce")
    offer = account.offers(earliest_start=START + DAY, latest_end=START + 30 * DAY)[0]
    account.wait("10m")
    with pytest.raises(NoCapacity, match="no longer sold"):
        account.cloud.purchase(offer.id, ())


def test_a_scarce_market_sells_out():
    account = Account(offers="scarce")
    window = {"earliest_start": START + DAY, "latest_end": START + 4 * DAY, "count": 4}
    offer = account.offers(**window)[0]
    bought = 0
    while offer.id in [other.id for other in account.offers(**window)]:
        bought += len(account.cloud.purchase(offer.id, ()))
    assert 1 <= bought <= 4, "a zone has at most 16"
    with pytest.raises(NoCapacity, match="sold out"):
        account.cloud.purchase(offer.id, ())
    assert offer.id not in [other.id for other in account.offers(**window)]


def test_an_offer_that_starts_now_cannot_be_bought_when_its_start_is_near():
    account = Account(start=START + timedelta(hours=5))
    offer = next(offer for offer in account.offers() if not on_grid(offer.start))
    account.until(offer.start - timedelta(minutes=15))
    with pytest.raises(NoCapacity):
        account.cloud.purchase(offer.id, ())


@pytest.mark.parametrize(("count", "blocks"), [(9, [9]), (18, [18]), (27, [9, 9, 9]), (36, [18, 18])])
def test_ultraservers_are_bought_whole_and_each_is_a_block_of_its_own(count, blocks):
    account = Account()
    offer = account.offers(instance_type=GB200, count=count)[0]
    assert offer.ultraserver
    bought = account.cloud.purchase(offer.id, ())
    assert [block.count for block in bought] == blocks
    assert all(block.ultraserver for block in bought)
    assert sum(block.fee_usd for block in bought) == offer.fee_usd
    assert len({block.id for block in bought}) == len(blocks)


def test_refuses_part_of_an_ultraserver():
    with pytest.raises(SpecError, match="by the UltraServer"):
        Account().offers(instance_type=GB200, count=10)
