"""How large a group should be, and which of its instances came of which intent. Pure.

A size is always computed, never counted up: the members that stay, plus what open intents still miss. So a crash
between the ledger and the call loses nothing, asking twice changes nothing, and an intent that ends lowers it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from tidemill.model.nodes import Instance
from tidemill.model.purchases import LaunchIntent, LaunchState
from tidemill.ports.compute import Group
from tidemill.provision.group_spec import GROUP_PROVISIONERS, GroupKey, GroupSpec

_OPEN = (LaunchState.WRITTEN, LaunchState.ASKED)
_GROUPED = frozenset(one.value for one in GROUP_PROVISIONERS)
# What came up to so long before an intent was written may not have been listed yet when it was decided on: a schedule
# brings the same nodes up at a block's start as the engine does. Errs on the side of launching a minute later.
UNSEEN_FOR = timedelta(seconds=90)


def launches_through_groups(provisioner: str) -> bool:
    return provisioner in _GROUPED


def open_intents(launches: Iterable[LaunchIntent]) -> list[LaunchIntent]:
    """Those of groups that may still bring something, oldest first."""
    found = [one for one in launches if one.state in _OPEN and launches_through_groups(one.provisioner)]
    return sorted(found, key=lambda one: (one.written_at, one.id))


def assign_intents(
    instances: Iterable[Instance], launches: Iterable[LaunchIntent], before: Mapping[str, str]
) -> dict[str, str]:
    """Instance id -> intent id: the oldest instance to the oldest intent of its place that still misses one.

    `before` is what this said the last time: an instance belongs to one intent for good, also when that is settled.
    """
    grouped = [one for one in instances if launches_through_groups(one.provisioner) and one.owner]
    mine = {one.id: before[one.id] for one in grouped if one.id in before}
    open_by_place: dict[GroupKey, list[LaunchIntent]] = {}
    for intent in open_intents(launches):
        open_by_place.setdefault(GroupKey.of(intent), []).append(intent)
    taken: dict[str, int] = {}
    for intent_id in mine.values():
        taken[intent_id] = taken.get(intent_id, 0) + 1
    for one in sorted(grouped, key=lambda each: (each.launched_at, each.id)) if open_by_place else ():
        if one.id in mine:
            continue
        for intent in open_by_place.get(GroupKey.of(one), ()):
            if taken.get(intent.id, 0) < intent.count and one.launched_at >= intent.written_at - UNSEEN_FOR:
                mine[one.id] = intent.id
                taken[intent.id] = taken.get(intent.id, 0) + 1
                break
    return mine


def missing_instances(
    place: GroupKey, launches: Iterable[LaunchIntent], attributed: Mapping[str, str]
) -> int:
    """How many instances the open intents of a place have not been given yet."""
    given: dict[str, int] = {}
    for intent_id in attributed.values():
        given[intent_id] = given.get(intent_id, 0) + 1
    return sum(
        max(0, one.count - given.get(one.id, 0))
        for one in open_intents(launches)
        if GroupKey.of(one) == place
    )


def maximum_size(own: GroupSpec, group: Group | None) -> int:
    """The largest size it may be given. A reservation can shrink below the members that stay: a group that is told so
    lowers its size and chooses whom to end, and EKS refuses less than a node group wants."""
    if group is None:
        return own.maximum
    staying = sum(one.counts for one in group.members)
    return max(own.maximum, staying, group.desired if own.managed else 0)


def target_size(group: Group, missing_instances: int, listed: Iterable[str]) -> int:
    """Never less than the members that stay: the group would choose whom to end. Members that no list of instances
    shows yet are what intents miss, or will be once they are shown."""
    staying = [one.instance_id for one in group.members if one.counts]
    seen = set(listed)
    unseen = sum(one not in seen for one in staying)
    return min(group.shape.maximum, len(staying) + max(0, missing_instances - unseen))
