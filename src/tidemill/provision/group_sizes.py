"""How large a group should be, and which launch intent each of its instances belongs to. Pure.

A size is always computed, never incremented: the members that stay, plus the instances that open intents still miss. So
a crash between the ledger and the call loses nothing, a second call changes nothing, and an intent that ends lowers it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta

from tidemill.model.nodes import Instance
from tidemill.model.purchases import LaunchIntent, LaunchState
from tidemill.ports.compute import Group
from tidemill.provision.group_spec import GROUP_PROVISIONERS, GroupKey, GroupSpec

_OPEN = (LaunchState.WRITTEN, LaunchState.ASKED)
_GROUP_PROVISIONERS = frozenset(provisioner.value for provisioner in GROUP_PROVISIONERS)
# An instance that started up to so long before an intent was written may not have been listed when the engine decided:
# a schedule brings up the same nodes at a block's start as the engine does. Errs on the side of launching later.
UNSEEN_FOR = timedelta(seconds=90)


def launches_through_groups(provisioner: str) -> bool:
    return provisioner in _GROUP_PROVISIONERS


def open_intents(launches: Iterable[LaunchIntent]) -> list[LaunchIntent]:
    """The intents of groups that may still bring instances, oldest first."""
    found = [
        intent for intent in launches if intent.state in _OPEN and launches_through_groups(intent.provisioner)
    ]
    return sorted(found, key=lambda intent: (intent.written_at, intent.id))


def assign_intents(
    instances: Iterable[Instance], launches: Iterable[LaunchIntent], before: Mapping[str, str]
) -> dict[str, str]:
    """Instance id -> intent id: the oldest instance goes to the oldest intent of its group that still misses one.

    `before` is the last answer: an instance belongs to one intent for good, also when that intent is settled.
    """
    grouped = [
        instance for instance in instances if launches_through_groups(instance.provisioner) and instance.owner
    ]
    intent_of = {instance.id: before[instance.id] for instance in grouped if instance.id in before}
    open_by_key: dict[GroupKey, list[LaunchIntent]] = {}
    for intent in open_intents(launches):
        open_by_key.setdefault(GroupKey.of(intent), []).append(intent)
    if not open_by_key:
        return intent_of
    assigned = Counter(intent_of.values())
    for instance in sorted(grouped, key=lambda instance: (instance.launched_at, instance.id)):
        if instance.id in intent_of:
            continue
        for intent in open_by_key.get(GroupKey.of(instance), ()):
            in_time = instance.launched_at >= intent.written_at - UNSEEN_FOR
            if assigned[intent.id] < intent.count and in_time:
                intent_of[instance.id] = intent.id
                assigned[intent.id] += 1
                break
    return intent_of


def missing_instances(key: GroupKey, launches: Iterable[LaunchIntent], intent_of: Mapping[str, str]) -> int:
    """How many instances the open intents of a group have not been assigned yet."""
    assigned = Counter(intent_of.values())
    return sum(
        max(0, intent.count - assigned[intent.id])
        for intent in open_intents(launches)
        if GroupKey.of(intent) == key
    )


def maximum_size(group_spec: GroupSpec, group: Group | None) -> int:
    """The MaxSize of a group. A reservation can shrink below the members that stay. A lower MaxSize would then make the
    group end instances of its own choice, and EKS refuses a maximum below the desired size."""
    if group is None:
        return group_spec.maximum
    staying = sum(member.counts for member in group.members)
    return max(group_spec.maximum, staying, group.desired if group_spec.managed else 0)


def target_size(group: Group, missing: int, listed: Iterable[str]) -> int:
    """Never less than the members that stay: the group would end instances of its own choice. A member that EC2 does
    not list yet will be assigned to an intent once it is listed, so it counts as one of the missing."""
    staying = [member.instance_id for member in group.members if member.counts]
    seen = set(listed)
    unlisted = sum(instance_id not in seen for instance_id in staying)
    return min(group.shape.maximum, len(staying) + max(0, missing - unlisted))
