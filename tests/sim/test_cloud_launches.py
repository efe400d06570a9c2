"""Instances: from which source they come, how long things take, what they cost, when slots come back."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from tests.sim.account import ON_DEMAND, OWNER, SPOT, START, ZONES, Account, tags
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.errors import Gone, NoCapacity
from tidemill.model.nodes import InstanceState

SECOND = timedelta(seconds=1)


def test_the_same_intent_gives_the_same_instances():
    account = Account()
    intent = account.intent(account.block(count=4).source, count=2)
    first = account.cloud.launch(intent, tags())
    assert account.cloud.launch(intent, tags()) == first
    account.wait("1h")
    assert account.cloud.launch(intent, tags()) == first
    assert len(account.cloud.instance_histories) == account.cloud.used("a") == 2
    assert all(re.fullmatch(r"i-[0-9a-f]{17}", instance_id) for instance_id in first)


def test_a_block_gives_what_it_has_left_and_then_nothing():
    account = Account()
    block = account.block(count=3)
    assert len(account.launch(block.source, count=2)) == 2
    assert account.reservation("a").available == 1, "deducted at once"
    assert len(account.launch(block.source, count=2)) == 1
    with pytest.raises(NoCapacity, match="no free slot") as refused:
        account.launch(block.source)
    assert refused.value.code == "ReservationCapacityExceeded"
    assert [refusal.intent.id for refusal in account.cloud.refused_launches] == ["l-3"]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"zone": ZONES[1]}, "CapacityReservationMismatch"),
        ({"instance_type": "p4d.24xlarge"}, "CapacityReservationMismatch"),
        ({"source": Source(SourceKind.BLOCK, "cr-0")}, "InvalidCapacityReservationId.NotFound"),
        ({"zone": "eu-west-1a"}, "InvalidParameterValue"),
    ],
)
def test_refuses_a_launch_that_the_reservation_does_not_match(given, code):
    account = Account()
    source = given.pop("source", account.block().source)
    with pytest.raises(NoCapacity) as refused:
        account.launch(source, **given)
    assert refused.value.code == code


def test_refuses_a_launch_on_a_block_that_has_not_started():
    account = Account()
    with pytest.raises(NoCapacity, match="scheduled, not active"):
        account.launch(account.block(start="1d").source)


def test_an_instance_boots_within_a_minute_and_carries_its_tags():
    account = Account()
    ids = account.launch(ON_DEMAND, count=20, pool="serve", provisioner="asg")
    account.until(START + 19 * SECOND)
    assert account.states(ids) == {InstanceState.PENDING}
    account.until(START + 60 * SECOND)
    assert account.states(ids) == {InstanceState.RUNNING}
    one = account.instance(ids[0])
    assert (one.owner, one.pool, one.intent_id, one.provisioner) == (OWNER, "serve", "l-1", "asg")


def test_new_instances_show_within_five_seconds_but_not_all_at_once():
    account = Account()
    account.launch(ON_DEMAND, count=20)
    assert len(account.cloud.instances()) < 20
    account.wait("5s")
    assert len(account.cloud.instances()) == 20


def test_a_slot_comes_back_only_after_minutes_of_clean_up():
    account = Account()
    block = account.block(count=1)
    (instance_id,) = account.launch(block.source)
    account.wait("2m")
    account.cloud.terminate(instance_id)
    while account.instance(instance_id).state is not InstanceState.TERMINATED:
        account.wait("1s")
    terminated_at = account.now
    assert timedelta(seconds=30) <= terminated_at - START - timedelta(minutes=2) <= timedelta(seconds=90)
    assert account.cloud.used("a") == 0
    with pytest.raises(NoCapacity):
        account.launch(block.source)
    while account.reservation("a").available == 0:
        account.wait("1s")
    assert timedelta(minutes=3) <= account.now - terminated_at <= timedelta(minutes=8)
    assert account.wakes[-1] == (account.now, f"slot-free {block.id}")
    assert account.launch(block.source)


def test_terminating_is_idempotent_until_aws_has_forgotten_the_instance():
    account = Account()
    (instance_id,) = account.launch(ON_DEMAND)
    for _ in range(2):
        account.cloud.terminate(instance_id)
    account.wait("10m")
    account.cloud.terminate(instance_id)
    assert [instance.state for instance in account.cloud.instances()] == [InstanceState.TERMINATED]
    account.wait("1h")
    assert account.cloud.instances() == ()
    with pytest.raises(Gone):
        account.cloud.terminate(instance_id)
    with pytest.raises(Gone):
        account.cloud.terminate("i-0")


def test_the_cluster_is_told_every_instance_state():
    account = Account()
    heard: list[InstanceState] = []
    account.cloud.on_instance.append(lambda instance: heard.append(instance.state))
    (instance_id,) = account.launch(ON_DEMAND)
    account.wait("1m")
    account.cloud.terminate(instance_id)
    account.wait("2m")
    assert heard == [InstanceState.RUNNING, InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED]


def test_an_instance_that_is_terminated_while_it_boots_never_runs():
    account = Account()
    (instance_id,) = account.launch(ON_DEMAND)
    account.cloud.terminate(instance_id)
    account.wait("5m")
    assert not account.journal_lines("instance-running")
    assert account.cloud.hourly_usd()[SourceKind.ON_DEMAND] == 0


def test_the_change_counters_stay_where_nothing_changed():
    account = Account()
    block = account.block()
    before = account.cloud.all_reservations(), account.cloud.changes[1]
    account.wait("1h")
    assert account.cloud.all_reservations() is before[0]
    assert account.cloud.changes[1] == before[1]
    (instance_id,) = account.launch(block.source)
    assert account.cloud.all_reservations() != before[0]
    launched = account.cloud.changes[1]
    assert launched != before[1]
    account.wait("1m")
    assert account.cloud.changes[1] != launched
    assert [history.now.id for history in account.cloud.alive()] == [instance_id]


def test_instances_of_others_on_a_block_take_slots_and_have_no_owner_tag():
    account = Account()
    account.block(count=3)
    ids = account.cloud.add_foreign_instance("a", 2)
    assert account.reservation("a").available == 1
    assert {account.instance(one).owner for one in ids} == {""}
    account.wait("5s")
    assert {instance.id for instance in account.cloud.instances()} == set(ids)


# --- sources side by side ---------------------------------------------------------------------------


@pytest.mark.requirement("CB-14")
def test_block_odcr_spot_and_on_demand_work_side_by_side():
    account = Account(on_demand={"g6.xlarge": 3}, spot={"g6.xlarge": 2})
    block = account.block(name="block")
    odcr = account.block(name="odcr", type="odcr", instance_type="g6.xlarge", duration=None)
    ids = (
        *account.launch(block.source, count=2),
        *account.launch(odcr.source, instance_type="g6.xlarge", count=2),
        *account.launch(SPOT, instance_type="g6.xlarge", count=9),
        *account.launch(ON_DEMAND, instance_type="g6.xlarge", count=9),
    )
    account.wait("1m")
    by_source = [account.instance(one).source.kind.value for one in ids]
    assert by_source == ["block"] * 2 + ["odcr"] * 2 + ["spot"] * 2 + ["on-demand"] * 3
    assert account.states(ids) == {InstanceState.RUNNING}
    assert odcr.end is None
    account.until(START + timedelta(days=2))
    assert account.states(ids[:2]) == {InstanceState.TERMINATED}
    assert account.states(ids[2:]) == {InstanceState.RUNNING}


def test_with_fewer_than_the_least_that_is_asked_for_none_is_launched():
    account = Account(on_demand={"g6.xlarge": 2})
    with pytest.raises(NoCapacity, match="2 free of the 3 asked for at least"):
        account.launch(ON_DEMAND, instance_type="g6.xlarge", count=4, least=3)
    assert not account.cloud.instance_histories
    assert len(account.launch(ON_DEMAND, instance_type="g6.xlarge", count=4, least=2)) == 2


@pytest.mark.requirement("CB-14")
def test_a_zone_without_capacity_has_some_again_when_an_instance_ends():
    account = Account(on_demand={"g6.xlarge": 1})
    (instance_id,) = account.launch(ON_DEMAND, instance_type="g6.xlarge")
    with pytest.raises(NoCapacity, match=r"no on-demand g6\.xlarge in us-east-1a"):
        account.launch(ON_DEMAND, instance_type="g6.xlarge")
    assert account.launch(ON_DEMAND, instance_type="g6.xlarge", zone=ZONES[1])
    account.cloud.terminate(instance_id)
    account.wait("90s")
    assert account.launch(ON_DEMAND, instance_type="g6.xlarge")


@pytest.mark.requirement("CB-14")
def test_a_type_without_an_on_demand_price_cannot_be_had_by_the_hour():
    account = Account()
    for source in (ON_DEMAND, SPOT):
        with pytest.raises(NoCapacity, match=r"p5e\.48xlarge is not sold as"):
            account.launch(source, instance_type="p5e.48xlarge")


def test_hours_are_billed_by_the_second_from_running_to_shutting_down():
    account = Account()
    (hourly,) = account.launch(ON_DEMAND)
    (spot,) = account.launch(SPOT)
    account.launch(account.block().source)
    account.wait("5h")
    for instance_id in (hourly, spot):
        account.cloud.terminate(instance_id)
    account.wait("5h")
    spent = account.cloud.hourly_usd()
    hours = {}
    for instance_id in (hourly, spot):
        history = account.cloud.instance_histories[instance_id]
        assert history.running_at is not None
        assert history.shutting_down_at is not None
        hours[instance_id] = (history.shutting_down_at - history.running_at) / timedelta(hours=1)
    assert spent[SourceKind.ON_DEMAND] == pytest.approx(55.04 * hours[hourly])
    assert spent[SourceKind.SPOT] == pytest.approx(55.04 * 0.4 * hours[spot])


def test_a_reservation_is_billed_whether_used_or_not_and_its_instances_outlive_it():
    account = Account()
    odcr = account.block(name="odcr", type="odcr", instance_type="g6.xlarge", count=10, duration="10h")
    (instance_id,) = account.launch(odcr.source, instance_type="g6.xlarge")
    account.wait("20h")
    assert account.states([instance_id]) == {InstanceState.RUNNING}
    spent = account.cloud.hourly_usd()
    assert spent[SourceKind.ODCR] == pytest.approx(10 * 10 * 0.8048)
    assert spent[SourceKind.ON_DEMAND] == pytest.approx(10 * 0.8048)


def test_the_same_seed_gives_the_same_journal():
    def story(seed: int) -> list[object]:
        account = Account(seed=seed)
        block = account.buy(zones=ZONES[:1])
        account.until(block.start)
        account.launch(block.source, count=2)
        account.launch(SPOT)
        account.wait("3d")
        return [*account.journal.lines, *account.wakes]

    assert story(1) == story(1)
    assert story(1) != story(2)
