"""Auto Scaling groups of the simulated account: how they meet their size, and what holds them back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.sim.account import OWNER, ZONES, Account
from tests.sim.scaling import make_group, states
from tidemill.model.errors import Gone, Refused
from tidemill.model.nodes import InstanceState
from tidemill.sim.cloud.scaling_group import LifecycleHook, ScheduledAction


@pytest.fixture
def account() -> Account:
    return Account()


def test_a_group_launches_up_to_its_size_with_its_tags(account: Account):
    block = account.block(count=3)
    group = make_group(account, block, desired=2)
    account.wait("2m")
    assert states(group) == ["InService", "InService"]
    for instance in account.cloud.instances():
        assert (instance.source, instance.zone) == (block.source, block.zone)
        assert (instance.owner, instance.pool, instance.provisioner) == (OWNER, "train", "asg")
    assert account.reservation("a").available == 1


def test_a_group_before_its_block_fails_in_ec2_s_words_and_scales_once_it_is_active(account: Account):
    block = account.block(start="1d")
    group = make_group(account, block, desired=2)
    account.wait("1h")
    assert not group.members
    assert "is scheduled, not active" in (group.launch_error or "")
    failed = [activity for activity in group.activities if activity.status == "Failed"]
    assert 3 < len(failed) < 15  # less and less often: 30 s, 1, 2, 4, 8, then every 10 minutes
    account.until(block.start + timedelta(minutes=12))
    assert states(group) == ["InService", "InService"]
    assert group.launch_error is None


def test_a_block_with_fewer_slots_gives_what_it_has_and_the_group_keeps_asking(account: Account):
    group = make_group(account, account.block(count=1), desired=2)
    account.wait("5m")
    assert states(group) == ["InService"]
    assert "fewer than asked for" in (group.launch_error or "") or "no free slot" in (
        group.launch_error or ""
    )


def test_a_dead_instance_is_replaced_by_the_group_itself(account: Account):
    group = make_group(account, account.block(count=3), desired=2)
    account.wait("2m")
    died = account.cloud.kill_instance()
    account.wait("10m")
    assert died not in group.members
    assert len(group.staying()) == 2


def test_a_suspended_process_does_nothing_until_it_is_resumed(account: Account):
    group, groups = make_group(account, account.block(count=3), desired=1), account.cloud.groups
    account.wait("2m")
    groups.suspend("g")
    groups.set_desired("g", 2)
    died = account.cloud.kill_instance()
    account.wait("10m")
    assert list(group.members) == [died]
    groups.resume("g", ["Launch"])
    account.wait("5m")
    assert len(group.members) == 2
    groups.resume("g")
    account.wait("5m")
    assert died not in group.members
    assert len(group.staying()) == 2
    with pytest.raises(Refused, match="Sleep is not a valid scaling process"):
        groups.suspend("g", ["Sleep"])


def test_after_the_block_s_end_it_keeps_trying_and_failing(account: Account):
    block = account.block()
    group = make_group(account, block, desired=2)
    assert block.end is not None
    account.until(block.end + timedelta(hours=1))
    assert not group.staying()
    before = len(group.activities)
    account.wait("1h")
    assert len(group.activities) > before
    assert "is expired, not active" in (group.launch_error or "")


def test_lowering_the_size_lets_the_group_choose(account: Account):
    group = make_group(account, account.block(), desired=2)
    account.wait("2m")
    oldest = next(iter(group.members))
    account.cloud.groups.set_desired("g", 1)
    account.wait("5m")
    assert oldest not in group.members
    assert account.cloud.instance_histories[oldest].ended_by == "group"


def test_a_member_goes_by_its_name_and_the_group_wants_one_fewer(account: Account):
    group = make_group(account, account.block(), desired=2)
    account.wait("2m")
    newest = list(group.members)[-1]
    account.cloud.groups.terminate(newest, decrement=True)
    account.cloud.groups.terminate(newest, decrement=True)  # asked twice, counted once
    account.wait("10m")
    assert group.desired == 1
    assert newest not in group.members
    assert len(group.members) == 1
    with pytest.raises(Gone):
        account.cloud.groups.terminate(newest, decrement=True)


def test_without_decrement_it_is_replaced(account: Account):
    group = make_group(account, account.block(count=3), desired=2)
    account.wait("2m")
    gone = next(iter(group.members))
    account.cloud.groups.terminate(gone, decrement=False)
    account.wait("10m")
    assert gone not in group.members
    assert states(group) == ["InService", "InService"]


def test_a_size_outside_the_bounds_is_refused(account: Account):
    make_group(account, account.block(), maximum=2)
    with pytest.raises(Refused, match="above max value 2"):
        account.cloud.groups.set_desired("g", 3)
    with pytest.raises(Refused) as refused:
        make_group(account, None)
    assert refused.value.code == "AlreadyExists"


def test_a_group_with_members_is_not_deleted(account: Account):
    group = make_group(account, account.block(), desired=1)
    account.wait("2m")
    with pytest.raises(Refused) as refused:
        account.cloud.groups.delete("g")
    assert refused.value.code == "ResourceInUse"
    account.cloud.groups.terminate(next(iter(group.members)), decrement=True)
    account.wait("5m")
    account.cloud.groups.delete("g")
    assert account.cloud.groups.all() == ()


@pytest.mark.requirement("TR-10")
def test_a_group_in_another_zone_than_its_block_never_gets_an_instance(account: Account):
    group = make_group(account, account.block(), desired=1, zones=(ZONES[1],))
    account.wait("2h")
    assert not group.members
    assert "holds p5.48xlarge in" in (group.launch_error or "")


# --- scheduled actions --------------------------------------------------------------------------------


@pytest.mark.requirement("SM-4")
def test_a_scheduled_action_fires_once_and_is_gone(account: Account):
    group = make_group(account, account.block())
    account.cloud.groups.put_schedule("g", ScheduledAction("up", account.now + timedelta(hours=1), desired=2))
    account.wait("1h2m")
    assert states(group) == ["InService", "InService"]
    assert not group.schedules


@pytest.mark.requirement("SM-4")
def test_the_same_name_moves_a_scheduled_action_and_the_past_is_refused(account: Account):
    groups = account.cloud.groups
    group = make_group(account, account.block())
    groups.put_schedule("g", ScheduledAction("up", account.now + timedelta(hours=1), desired=2))
    groups.put_schedule("g", ScheduledAction("up", account.now + timedelta(hours=3), desired=1))
    account.wait("2h")
    assert not group.members
    account.wait("1h2m")
    assert len(group.members) == 1
    with pytest.raises(Refused, match="in the past"):
        groups.put_schedule("g", ScheduledAction("up", account.now, desired=1))


def test_two_actions_at_one_instant_are_refused(account: Account):
    at = account.now + timedelta(hours=1)
    make_group(account, account.block())
    account.cloud.groups.put_schedule("g", ScheduledAction("up", at, desired=2))
    with pytest.raises(Refused) as refused:
        account.cloud.groups.put_schedule("g", ScheduledAction("down", at, desired=0))
    assert refused.value.code == "AlreadyExists"


# --- hooks --------------------------------------------------------------------------------------------


def held(account: Account, heartbeat_s: int = 600) -> str:
    """A group of one whose instance waits in its hook; the instance's id."""
    block = account.reservation("a") if account.cloud.reservation("a") else account.block()
    group = make_group(account, block, desired=1)
    account.cloud.groups.hooks.put(group, LifecycleHook("drain", heartbeat_s, "CONTINUE"))
    account.wait("2m")
    (instance_id,) = group.members
    account.cloud.groups.set_desired("g", 0)
    account.wait("10s")
    assert states(group) == ["Terminating:Wait"]
    return instance_id


def test_a_hook_holds_an_instance_until_the_action_is_completed(account: Account):
    events: list[tuple[str, str]] = []
    account.cloud.events.listeners.append(
        lambda kind, source, detail: events.append((kind, str(detail.get("EC2InstanceId"))))
    )
    instance_id = held(account)
    assert ("EC2 Instance-terminate Lifecycle Action", instance_id) in events
    account.wait("5m")
    assert account.states([instance_id]) == {InstanceState.RUNNING}
    group = account.cloud.groups.get("g")
    account.cloud.groups.hooks.complete(group, "drain", instance_id=instance_id)
    account.wait("3m")
    assert account.states([instance_id]) == {InstanceState.TERMINATED}
    with pytest.raises(Gone):
        account.cloud.groups.hooks.complete(group, "drain", instance_id=instance_id)


def test_a_hook_times_out_and_a_heartbeat_gives_more_time(account: Account):
    instance_id = held(account, heartbeat_s=600)
    account.wait("9m")
    account.cloud.groups.hooks.heartbeat(account.cloud.groups.get("g"), "drain", instance_id=instance_id)
    account.wait("9m")
    assert account.states([instance_id]) == {InstanceState.RUNNING}
    account.wait("2m")
    assert account.states([instance_id]) <= {InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED}


def test_heartbeats_end_after_a_hundred(account: Account):
    instance_id = held(account, heartbeat_s=30)
    group = account.cloud.groups.get("g")
    for _ in range(170):
        if not group.members or group.members[instance_id].wait is None:
            break
        account.cloud.groups.hooks.heartbeat(group, "drain", instance_id=instance_id)
        account.wait("20s")
    assert account.states([instance_id]) <= {InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED}


def test_no_hook_holds_back_the_end_of_a_block(account: Account):
    block = account.block()
    assert block.end is not None
    account.until(block.end - timedelta(minutes=35))
    instance_id = held(account, heartbeat_s=7200)
    account.until(block.end - timedelta(minutes=26))
    assert account.cloud.instance_histories[instance_id].ended_by == "ec2"
    assert account.states([instance_id]) == {InstanceState.TERMINATED}


def test_heartbeats_are_between_half_a_minute_and_two_hours(account: Account):
    group = make_group(account, account.block())
    for heartbeat_s in (29, 7201):
        with pytest.raises(Refused, match="HeartbeatTimeout"):
            account.cloud.groups.hooks.put(group, LifecycleHook("drain", heartbeat_s))


def test_a_group_of_somebody_else_has_no_owner(account: Account):
    make_group(account, account.block(), desired=1, propagated=(("team", "research"),))
    account.wait("1m")
    (one,) = account.cloud.instances()
    assert (one.owner, one.provisioner) == ("", "")
