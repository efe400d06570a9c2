"""The life of a block: payment, start, extension, end."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from tests.sim.account import GB200, OWNER, START, Account, tags
from tidemill.model.capacity import ReservationState
from tidemill.model.errors import NoCapacity, Refused
from tidemill.model.nodes import InstanceState
from tidemill.spec.units import parse_duration

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


# --- states -----------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-5")
def test_a_block_goes_from_payment_to_schedule_to_service_to_its_end():
    account = Account()
    block = account.buy(count=3)
    assert (block.state, block.count, block.available) == (ReservationState.PAYMENT_PENDING, 3, 0)
    account.wait("6m")
    scheduled = account.reservation(block.id)
    assert (scheduled.state, scheduled.count, scheduled.available) == (ReservationState.SCHEDULED, 3, 0)
    account.until(block.start - timedelta(seconds=1))
    assert account.reservation(block.id).available == 0
    account.until(block.start)
    active = account.reservation(block.id)
    assert (active.state, active.available) == (ReservationState.ACTIVE, 3)
    assert block.end is not None
    account.until(block.end)
    assert account.reservation(block.id).state is ReservationState.EXPIRED
    assert [reason for _, reason in account.wakes if reason.startswith("block-")] == [
        f"block-scheduled {block.id}",
        f"block-active {block.id}",
        f"block-closing {block.id}",
        f"block-expired {block.id}",
    ]


@pytest.mark.requirement("CB-5")
def test_a_failed_payment_is_known_five_minutes_before_the_start():
    account = Account(start=START + 5 * HOUR)
    account.cloud.fail_next_payment()
    offer = next(offer for offer in account.offers() if offer.start.minute != 30)
    block = account.cloud.purchase(offer.id, tags())[0]
    account.until(block.start - 5 * MINUTE - timedelta(seconds=1))
    assert account.reservation(block.id).state is ReservationState.PAYMENT_PENDING
    account.wait("1s")
    assert account.reservation(block.id).state is ReservationState.PAYMENT_FAILED
    account.until(offer.end)
    assert account.reservation(block.id).state is ReservationState.PAYMENT_FAILED
    assert not account.journal_lines("block-active")


@pytest.mark.requirement("CB-5")
def test_a_failed_payment_is_known_after_twelve_hours_when_the_start_is_far():
    account = Account()
    account.cloud.fail_next_payment()
    block = account.buy(earliest_start=START + 3 * DAY)
    account.until(START + 12 * HOUR - timedelta(seconds=1))
    assert account.reservation(block.id).state is ReservationState.PAYMENT_PENDING
    account.wait("1s")
    assert account.reservation(block.id).state is ReservationState.PAYMENT_FAILED
    assert account.journal_lines("payment-failed") == [START + 12 * HOUR]


def test_a_purchase_is_seen_by_its_buyer_at_once_and_by_readers_later():
    account = Account()
    seen_after = []
    for number in range(8):
        block = account.buy(intent=f"p-{number}")
        bought_at = account.now
        while block.id not in [reservation.id for reservation in account.cloud.reservations()]:
            account.wait("1s")
        seen_after.append(account.now - bought_at)
    assert timedelta(0) <= min(seen_after) < max(seen_after) <= timedelta(seconds=90)


def test_buying_twice_buys_two_blocks():
    account = Account()
    offer = account.offers(earliest_start=START + DAY)[0]
    first, second = (account.cloud.purchase(offer.id, tags(intent="p-1"))[0] for _ in range(2))
    assert first.id != second.id
    assert re.fullmatch(r"cr-[0-9a-f]{17}", first.id)
    assert [purchase.intent_id for purchase in account.cloud.purchases] == ["p-1", "p-1"]
    assert sum(purchase.fee_usd for purchase in account.cloud.purchases) == 2 * offer.fee_usd


def test_a_purchase_carries_its_tags():
    block = Account().buy(intent="p-9")
    assert (block.owner, block.pool, block.intent_id) == (OWNER, "train", "p-9")
    assert set(block.tags) == set(tags(intent="p-9"))


def test_an_ended_block_is_listed_for_a_day():
    account = Account()
    block = account.block(duration="1d")
    account.until(START + 2 * DAY - MINUTE)
    assert [reservation.id for reservation in account.cloud.reservations()] == [block.id]
    account.wait("1m")
    assert account.cloud.reservations() == ()
    assert [reservation.id for reservation in account.cloud.all_reservations()] == [block.id]


def test_a_read_returns_the_same_objects_for_what_did_not_change():
    account = Account()
    changing, still = account.block(name="a"), account.block(name="b")
    before = account.cloud.reservations()
    assert account.cloud.reservations() is before
    account.launch(changing.source)
    after = account.cloud.reservations()
    assert after is not before
    assert after[0] != before[0]
    assert after[1] is before[1] is still


# --- what a scenario brings along -------------------------------------------------------------------


def test_a_block_of_the_scenario_is_active_at_once_and_ends_on_the_grid():
    account = Account(start=START + 20 * HOUR)  # 07:30
    block = account.block(duration="2d")
    assert (block.state, block.available) == (ReservationState.ACTIVE, 2)
    assert account.now - HOUR < block.start <= account.now
    assert block.end == START + 3 * DAY
    assert account.cloud.names == {"a": block.id}


@pytest.mark.parametrize(
    ("start", "begins"), [("3h", START + 3 * HOUR), ("20h", START + DAY), ("24h", START + DAY)]
)
def test_a_block_of_the_scenario_that_starts_on_a_later_day_starts_on_the_grid(start, begins):
    account = Account()
    block = account.block(start=start)
    assert (block.state, block.start) == (ReservationState.SCHEDULED, begins)
    account.until(begins)
    assert account.reservation(block.id).state is ReservationState.ACTIVE


def test_a_block_bought_elsewhere_has_no_owner_tag():
    assert (Account().block(owned=False).owner, Account().block().owner) == ("", OWNER)


def test_a_short_delivery_shows_at_the_start():
    account = Account()
    block = account.block(start="1d", count=8, delivered=6)
    assert block.count == 8
    account.until(block.start)
    assert (account.reservation("a").count, account.reservation("a").available) == (6, 6)


def test_a_short_delivery_strikes_the_block_it_names():
    account = Account()
    for name in ("a", "b"):
        account.block(name=name, start="1d", count=8)
    account.cloud.short_delivery(3, "b")
    account.wait("1d")
    assert [account.reservation(name).count for name in ("a", "b")] == [8, 5]


# --- extensions -------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-7")
def test_the_end_moves_only_when_the_extension_is_paid():
    account = Account()
    block = account.block(duration="2d")
    account.cloud.extend("a", DAY, settles_after=timedelta(minutes=20))
    account.wait("19m")
    pending = account.reservation("a")
    assert (pending.end, pending.extension_pending_to) == (block.end, START + 3 * DAY)
    account.wait("1m")
    paid = account.reservation("a")
    assert (paid.end, paid.extension_pending_to) == (START + 3 * DAY, None)
    assert paid.fee_usd > block.fee_usd
    assert paid.id == block.id


@pytest.mark.requirement("CB-7")
def test_the_end_stays_when_the_extension_is_not_paid():
    account = Account()
    block = account.block(duration="2d")
    account.cloud.extend("a", DAY, payment_succeeds=False)
    account.wait("10m")
    failed = account.reservation("a")
    assert (failed.end, failed.extension_pending_to, failed.fee_usd) == (block.end, None, block.fee_usd)
    account.until(START + 2 * DAY)
    assert account.reservation("a").state is ReservationState.EXPIRED


@pytest.mark.requirement("CB-7")
def test_an_extension_unpaid_35_minutes_before_the_end_fails():
    account = Account()
    account.block(duration="2d")
    account.until(START + 2 * DAY - HOUR)
    account.cloud.extend("a", DAY, settles_after=timedelta(minutes=30))
    account.until(START + 2 * DAY - 35 * MINUTE)
    assert account.journal_lines("extension-failed") == [START + 2 * DAY - 35 * MINUTE]
    assert account.reservation("a").end == START + 2 * DAY


@pytest.mark.requirement("CB-7")
def test_instances_live_on_past_the_old_end_when_the_extension_is_paid():
    account = Account()
    block = account.block(duration="2d")
    ids = account.launch(block.source, count=2)
    account.cloud.extend("a", DAY)
    account.until(START + 2 * DAY + HOUR)
    assert account.states(ids) == {InstanceState.RUNNING}
    assert account.reservation("a").state is ReservationState.ACTIVE
    account.until(START + 3 * DAY)
    assert account.journal_lines("block-reclaim") == [START + 3 * DAY - 30 * MINUTE]
    assert account.journal_lines("block-expired") == [START + 3 * DAY]


@pytest.mark.requirement("CB-7")
def test_a_scale_down_at_the_old_end_fires_while_the_extension_is_not_paid():
    account = Account()
    block = account.block(duration="2d")
    ids = account.launch(block.source, provisioner="managed")
    account.until(START + 2 * DAY - HOUR)
    account.cloud.extend("a", DAY, settles_after=timedelta(minutes=23))
    account.until(START + 2 * DAY - 30 * MINUTE)
    assert account.journal_lines("provisioner-scale-down") == [START + 2 * DAY - 40 * MINUTE]
    assert account.states(ids) == {InstanceState.TERMINATED}
    assert account.reservation("a").end == START + 3 * DAY


@pytest.mark.parametrize(
    ("wait", "by", "why"),
    [
        ("0s", timedelta(days=15), "15d is not a duration EC2 sells; the nearest: 14d and 21d"),
        ("0s", timedelta(days=182), "longer than 182d in all"),
        ("47h1s", DAY, "from 56 days to 1 hour before its end"),
        ("2d", DAY, "is expired"),
    ],
)
def test_refuses_an_extension_against_the_rules(wait, by, why):
    account = Account()
    account.block(duration="2d")
    account.until(START + parse_duration(wait))
    with pytest.raises(Refused, match=why):
        account.cloud.extend("a", by)


def test_refuses_an_extension_too_early_while_one_is_pending_or_of_no_block():
    account = Account()
    account.block(name="long", duration="63d")
    account.block(name="soon", duration="2d")
    account.block(name="odcr", type="odcr", duration=None)
    account.cloud.extend("soon", DAY)
    for name, why in (
        ("long", "56 days"),
        ("soon", "pending"),
        ("odcr", "not a Capacity Block"),
        ("x", "no block"),
    ):
        with pytest.raises(Refused, match=why):
            account.cloud.extend(name, DAY)


# --- the end ----------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-10")
@pytest.mark.parametrize(
    ("provisioner", "instance_type", "minutes", "by"),
    [
        ("native", "p5.48xlarge", 30, "ec2"),
        ("asg", "p5.48xlarge", 30, "ec2"),
        ("managed", "p5.48xlarge", 40, "eks"),
        ("karpenter", "p5.48xlarge", 40, "karpenter"),
        ("native", GB200, 60, "ec2"),
        ("karpenter", GB200, 60, "ec2"),  # Karpenter's forty minutes come too late for an UltraServer
    ],
)
def test_instances_end_when_the_first_of_ec2_and_their_provisioner_acts(
    provisioner, instance_type, minutes, by
):
    account = Account()
    block = account.block(instance_type=instance_type, count=9, duration="1d")
    ids = account.launch(block.source, instance_type=instance_type, count=2, provisioner=provisioner)
    taken_at = START + DAY - minutes * MINUTE
    account.until(taken_at - timedelta(seconds=1))
    assert account.states(ids) == {InstanceState.RUNNING}
    account.until(taken_at)
    assert account.states(ids) == {InstanceState.SHUTTING_DOWN}
    account.wait("3m")
    assert account.states(ids) == {InstanceState.TERMINATED}
    assert {account.cloud.instance_histories[one].ended_by for one in ids} == {by}


def test_a_block_that_was_emptied_in_time_is_not_reclaimed():
    account = Account()
    block = account.block(duration="1d")
    (instance_id,) = account.launch(block.source)
    account.until(START + DAY - 31 * MINUTE)
    account.cloud.terminate(instance_id)
    account.until(START + DAY)
    assert not account.journal_lines("block-reclaim")


def test_nothing_launches_on_a_block_that_is_being_taken_back():
    account = Account()
    block = account.block(duration="1d")
    account.until(START + DAY - 30 * MINUTE)
    assert account.reservation("a").available == 0
    with pytest.raises(NoCapacity, match="no free slot"):
        account.launch(block.source)
