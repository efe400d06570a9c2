"""How large a group should be, and which instance came of which intent. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidemill.model.capacity import Source, SourceKind
from tidemill.model.nodes import Instance, InstanceState
from tidemill.model.purchases import LaunchIntent, LaunchState
from tidemill.ports.compute import Group, GroupShape, Member, TemplateVersion
from tidemill.provision.group_sizes import UNSEEN_FOR, assign_intents, missing_instances, target_size
from tidemill.provision.group_spec import GroupKey

NOW = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
BLOCK = Source(SourceKind.BLOCK, "cr-1")
PLACE = GroupKey("train", BLOCK, "p5.48xlarge", "us-east-1a")


def after(seconds: int) -> datetime:
    return NOW + timedelta(seconds=seconds)


def intent(id_: str, count: int, at: int = 0, **given: Any) -> LaunchIntent:
    settings: dict[str, Any] = {
        "id": id_, "pool": "train", "source": BLOCK, "instance_type": "p5.48xlarge", "zone": "us-east-1a",
        "count": count, "provisioner": "asg", "written_at": after(at), "state": LaunchState.ASKED,
    }  # fmt: skip
    return LaunchIntent(**settings | given)


def instance(id_: str, at: int, **given: Any) -> Instance:
    settings: dict[str, Any] = {
        "id": id_, "instance_type": "p5.48xlarge", "zone": "us-east-1a", "source": BLOCK,
        "state": InstanceState.RUNNING, "launched_at": after(at), "owner": "mill", "pool": "train",
        "provisioner": "asg",
    }  # fmt: skip
    return Instance(**settings | given)


def group(*members: tuple[str, str], desired: int = 0, maximum: int = 8) -> Group:
    shape = GroupShape("g", TemplateVersion("lt-1", "lt", 1), ("subnet-1",), maximum, ())
    return Group(shape, 0, desired, (), tuple(Member(id_, state) for id_, state in members))


# --- whose ----------------------------------------------------------------------------------------------


def test_the_oldest_instance_goes_to_the_oldest_intent():
    instances = [instance("i-3", 30), instance("i-1", 10), instance("i-2", 20)]
    found = assign_intents(instances, [intent("b", 2, at=5), intent("a", 1, at=0)], {})
    assert found == {"i-1": "a", "i-2": "b", "i-3": "b"}


def test_an_instance_belongs_to_one_intent_for_good():
    """Its intent was settled, and another one of the same place is open: that one waits for an instance of its own."""
    instances = [instance("i-1", 10)]
    before = assign_intents(instances, [intent("a", 1)], {})
    later = intent("b", 1, at=30)
    assert assign_intents(instances, [later], before) == {"i-1": "a"}
    assert missing_instances(PLACE, [later], before) == 1


def test_an_instance_launched_long_before_an_intent_is_not_assigned_to_it():
    old = instance("i-1", -int(UNSEEN_FOR.total_seconds()) - 1)
    assert assign_intents([old], [intent("a", 1)], {}) == {}


def test_an_instance_that_a_schedule_launched_a_moment_before_is_assigned_to_the_intent():
    assert assign_intents([instance("i-1", -5)], [intent("a", 1)], {}) == {"i-1": "a"}


@pytest.mark.parametrize(
    "other",
    [{"pool": "serve"}, {"zone": "us-east-1b"}, {"source": Source(SourceKind.BLOCK, "cr-2")}, {"owner": ""},
     {"provisioner": "native"}],
)  # fmt: skip
def test_instances_of_another_group_are_not_assigned(other: dict[str, Any]):
    assert assign_intents([instance("i-1", 10, **other)], [intent("a", 1)], {}) == {}


def test_only_open_intents_of_groups_miss_instances():
    launches = [
        intent("a", 2),
        intent("b", 2, state=LaunchState.WRITTEN),
        intent("c", 2, state=LaunchState.FAILED),
        intent("d", 2, provisioner="native"),
        intent("e", 2, zone="us-east-1b"),
    ]
    assert missing_instances(PLACE, launches, {"i-1": "a"}) == 3


# --- how large ------------------------------------------------------------------------------------------


def test_the_size_is_the_staying_members_plus_the_missing_instances():
    members = group(("i-1", "InService"), ("i-2", "Pending"), ("i-3", "Terminating:Wait"), desired=2)
    assert target_size(members, 2, ["i-1", "i-2", "i-3"]) == 4
    assert target_size(members, 0, ["i-1", "i-2", "i-3"]) == 2


@pytest.mark.parametrize("aside", ["Standby", "EnteringStandby"])
def test_members_in_standby_do_not_count_for_the_size(aside: str):
    """People put it into Standby, and the group wants one fewer since: nothing is launched or ended for that."""
    full = group(("i-1", aside), ("i-2", "InService"), ("i-3", "InService"), desired=2)
    assert target_size(full, 0, ["i-1", "i-2", "i-3"]) == 2
    assert target_size(full, 1, ["i-1", "i-2", "i-3"]) == 3


def test_computing_the_size_twice_changes_nothing():
    empty = group(desired=0)
    first = target_size(empty, 2, [])
    assert target_size(group(desired=first), 2, []) == first


def test_members_that_ec2_does_not_list_yet_count_as_missing_instances():
    """The group has launched two and no reading of instances shows them: they are not asked for again."""
    two = group(("i-1", "Pending"), ("i-2", "Pending"), desired=2)
    assert target_size(two, 2, []) == 2
    assert target_size(two, 3, []) == 3


def test_the_size_is_never_above_the_maximum_nor_below_the_staying_members():
    full = group(("i-1", "InService"), ("i-2", "InService"), desired=5, maximum=2)
    assert target_size(full, 4, ["i-1", "i-2"]) == 2
    assert target_size(full, 0, ["i-1", "i-2"]) == 2
