"""What can go wrong with the simulated AWS, when a scenario says so."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.sim.account import ON_DEMAND, SPOT, START, Account, tags
from tidemill.model.errors import NoCapacity, OutcomeUnknown, Retryable
from tidemill.model.nodes import InstanceState
from tidemill.model.reasons import InstanceEnd, InstanceEndKind

DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


def test_launches_fail_as_often_as_asked_and_only_where_aimed():
    account = Account()
    account.cloud.fail_next_launches(2, target="train")
    assert account.launch(ON_DEMAND, pool="serve")
    for _ in range(2):
        with pytest.raises(Retryable):
            account.launch(ON_DEMAND, pool="train")
    assert account.launch(ON_DEMAND, pool="train")


def test_a_launch_can_fail_with_no_capacity():
    account = Account()
    account.block(name="a")
    account.cloud.fail_next_launches(1, error="no-capacity", target="a")
    assert account.launch(ON_DEMAND)
    with pytest.raises(NoCapacity):
        account.launch(account.reservation("a").source)


def test_a_shortage_lasts_as_long_as_it_says():
    account = Account()
    account.cloud.no_capacity_for(timedelta(minutes=10), "spot")
    account.wait("9m59s")
    with pytest.raises(NoCapacity):
        account.launch(SPOT)
    assert account.launch(ON_DEMAND)
    account.wait("1s")
    assert account.launch(SPOT)


def test_throttling_stops_every_call_until_it_ends():
    account = Account()
    (instance_id,) = account.launch(ON_DEMAND)
    offer = account.offers()[0]
    account.cloud.throttle(timedelta(minutes=5))
    calls = (
        account.cloud.reservations,
        account.cloud.instances,
        account.offers,
        lambda: account.cloud.purchase(offer.id, ()),
        lambda: account.launch(ON_DEMAND),
        lambda: account.cloud.terminate(instance_id),
    )
    for call in calls:
        with pytest.raises(Retryable, match="throttled"):
            call()
    account.wait("5m")
    for call in calls:
        call()


def test_a_purchase_can_time_out_after_it_was_made():
    account = Account()
    account.cloud.timeout_after_commit(1, "purchase")
    with pytest.raises(OutcomeUnknown):
        account.buy(intent="p-1")
    account.wait("90s")
    (block,) = account.cloud.reservations()
    assert block.intent_id == "p-1"
    assert len(account.cloud.purchases) == 1


def test_a_launch_that_timed_out_is_found_again_by_its_intent():
    account = Account()
    intent = account.intent(ON_DEMAND, count=3)
    account.cloud.timeout_after_commit(1, "launch")
    with pytest.raises(OutcomeUnknown):
        account.cloud.launch(intent, tags())
    assert set(account.cloud.launch(intent, tags())) == set(account.cloud.instance_histories)
    assert len(account.cloud.instance_histories) == 3


def test_a_host_failure_ends_one_running_instance():
    account = Account()
    first, second = account.launch(ON_DEMAND, count=2)
    assert account.cloud.kill_instance() is None, "none is running yet"
    account.wait("1m")
    assert account.cloud.kill_instance("train") == first
    assert account.states([first]) == {InstanceState.SHUTTING_DOWN}
    assert account.cloud.instance_histories[first].ended_by == "hardware"
    assert account.states([second]) == {InstanceState.RUNNING}
    assert account.cloud.kill_instance("nobody") is None


def test_a_host_failure_strikes_instances_of_others_only_by_their_id():
    account = Account()
    account.block()
    (stranger,) = account.cloud.add_foreign_instance("a")
    account.wait("1m")
    assert account.cloud.kill_instance() is None
    assert account.cloud.kill_instance(stranger) == stranger


def test_a_spot_interruption_is_announced_two_minutes_ahead():
    account = Account()
    account.launch(ON_DEMAND)
    (spot,) = account.launch(SPOT)
    account.wait("1m")
    assert account.cloud.interrupt_spot() == spot
    assert account.instance(spot).ends_at == account.now + 2 * MINUTE
    assert account.wakes[-1] == (account.now, f"instance-ending {spot}")
    account.wait("1m59s")
    assert account.states([spot]) == {InstanceState.RUNNING}
    account.wait("1s")
    assert account.states([spot]) == {InstanceState.SHUTTING_DOWN}


def test_a_retirement_is_announced_a_day_ahead():
    account = Account()
    (instance_id,) = account.launch(ON_DEMAND)
    account.wait("1m")
    assert account.cloud.retire(instance_id) == instance_id
    retired = account.instance(instance_id)
    assert (retired.ends_at, retired.ends_why) == (account.now + DAY, InstanceEnd(InstanceEndKind.RETIREMENT))
    account.wait("1d")
    assert account.states([instance_id]) == {InstanceState.SHUTTING_DOWN}


def test_only_the_next_payment_fails():
    account = Account()
    account.cloud.fail_next_payment()
    failed, paid = account.buy(intent="p-1"), account.buy(intent="p-2")
    account.wait("1d")
    assert [purchase.paid for purchase in account.cloud.purchases] == [False, True]
    assert account.reservation(failed.id).state != account.reservation(paid.id).state


def test_a_lost_wake_is_never_delivered_but_a_read_shows_the_change():
    account = Account()
    account.block(start="1d")
    account.wakes.clear()
    account.cloud.lose_events(1)
    account.wait("1d")
    assert account.wakes == []
    assert account.cloud.reservations()[0].available == 2


def test_wakes_come_twice_or_late():
    account = Account()
    block = account.block(start="1d")
    account.wakes.clear()
    account.cloud.double_events(1)
    account.wait("1d")
    assert account.wakes == [(START + DAY, f"block-active {block.id}")] * 2
    account.wakes.clear()
    account.cloud.delay_events(1, timedelta(minutes=7))
    account.until(START + 3 * DAY - 30 * MINUTE)
    assert account.wakes == []
    account.wait("7m")
    assert account.wakes == [(account.now, f"block-closing {block.id}")]
