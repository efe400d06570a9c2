"""Keeps the groups as the documents and the blocks want them, beside the engine's ticks.

It makes, changes and removes what `group_changes` lists, and meets sizes whose call was lost or whose intent ended. One
change that fails never stops the others: it is tried again at the next look, and told once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import assert_never

from tidemill.model.capacity import SECURED_STATES
from tidemill.model.errors import Gone, Retryable, TidemillError
from tidemill.model.plan import Warning
from tidemill.model.purchases import LaunchIntent
from tidemill.model.world import World
from tidemill.ports.compute import Compute
from tidemill.provision import managed
from tidemill.provision.asg import early_scale_down_warning, early_scale_downs
from tidemill.provision.group_changes import (
    Change,
    DropSchedule,
    ExistingGroups,
    LetNodesJoin,
    PutGroup,
    PutSchedule,
    RemoveGroup,
    RemoveTemplate,
    group_changes,
)
from tidemill.provision.group_launcher import GroupLauncher
from tidemill.provision.group_sizes import open_intents
from tidemill.provision.group_spec import GROUP_PROVISIONERS, GroupKey, GroupSpec, TemplateInputsOf
from tidemill.provision.group_state import GroupState
from tidemill.provision.wanted_groups import WantedGroups, remaining_allowances, wanted_groups
from tidemill.spec import Spec

log = logging.getLogger("tidemill.provision")

# Somebody may have changed a group by hand: it is looked at this often though nothing here changed.
LOOK_EVERY = timedelta(minutes=5)


class GroupReconciler:
    def __init__(
        self,
        spec: Spec,
        compute: Compute,
        sight: GroupState,
        grouped: GroupLauncher,
        launches: Callable[[], Sequence[LaunchIntent]],
        makings: TemplateInputsOf,
    ) -> None:
        self._spec, self._compute, self._sight, self._grouped = spec, compute, sight, grouped
        self._launches, self._makings = launches, makings
        self._reconciled_state: tuple[object, ...] = ()
        self._reconciled_at: datetime | None = None
        self._warnings: tuple[Warning, ...] = ()
        self._told: set[tuple[str, str]] = set()
        self._unfinished = False
        self._let_in: set[str] = set()  # roles whose nodes may join, as this process has seen

    def reconcile(self, world: World) -> tuple[Warning, ...]:
        """What people should know of; the same as before while nothing changed."""
        if not (world.cloud_ok and world.ledger_ok) or not self._concerns(world):
            return self._warnings
        try:
            if self._is_due(world):
                self._keep(world)
        except TidemillError as error:
            self._tell("groups", str(error))
        return self._warnings

    def planned(self, world: World) -> tuple[Change, ...]:
        """What it would do, for `tidemill plan`: nothing is changed."""
        if not self._concerns(world):
            return ()
        self._sight.reservations = world.reservations
        groups = (*self._wanting(world).groups, *self._by_the_hour())
        return group_changes(groups, self._there(), world.now, live_reservations(world)).now

    def problems(self, world: World) -> tuple[tuple[str, str], ...]:
        """About which blocks nothing can be made, and why."""
        return self._wanting(world).problems if self._concerns(world) else ()

    # --- one look -----------------------------------------------------------------------------------

    def _keep(self, world: World) -> None:
        self._unfinished = False
        wanting = self._wanting(world)
        groups = (*wanting.groups, *self._by_the_hour())
        there = self._there()
        found = group_changes(groups, there, world.now, live_reservations(world), self._let_in)
        for change in found.now:
            self._try(change.about, lambda change=change: self._carry_out(change))  # type: ignore[misc]
        if found.now:  # once: every node group is described by a call of its own
            self._sight.invalidate(node_groups=any(_is_about_eks(one) for one in found.now))
        for own in groups:
            self._try(own.name, lambda own=own: self._grouped.resize_to_need(own))  # type: ignore[misc]
        known = {(own.managed, own.name) for own in groups}
        for group in self._sight.groups:
            if (bool(group.node_group), group.node_group or group.shape.name) not in known:
                self._try(group.shape.name, lambda group=group: self._grouped.empty(group))  # type: ignore[misc]
        self._warnings = tuple(self._warn(groups, (*wanting.problems, *found.waiting, *_said_by_eks(there))))
        # What AWS had no time for is tried at the next tick; what it refused, when something changed or after a while.
        self._reconciled_state, self._reconciled_at = (
            () if self._unfinished else self._state(world),
            world.now,
        )

    def _carry_out(self, change: Change) -> None:
        log.info("%s %s: %s", change.verb, change.about, change.reason)
        compute = self._compute
        match change:
            case PutGroup(own):
                self._grouped.put(own)
            case PutSchedule(group, schedule):
                compute.put_schedule(group, schedule)
            case DropSchedule(group, name):
                compute.delete_schedule(group, name)
            case RemoveGroup(name, managed=True):
                compute.delete_node_group(name)
            case RemoveGroup(name):
                compute.delete_group(name)
            case RemoveTemplate(name):
                compute.delete_template(name)
            case LetNodesJoin(role):
                compute.let_nodes_join(role)
                self._let_in.add(role)
            case _:
                assert_never(change)

    def _try(self, about: str, do: Callable[[], None]) -> None:
        try:
            do()
        except Gone:
            self._sight.invalidate(node_groups=True)
        except TidemillError as error:
            self._unfinished |= isinstance(error, Retryable)
            self._tell(about, str(error))

    def _tell(self, about: str, sentence: str) -> None:
        if (about, sentence) not in self._told:
            self._told.add((about, sentence))
            log.warning("%s: %s", about, sentence)

    # --- what it goes by ----------------------------------------------------------------------------

    def _concerns(self, world: World) -> bool:
        """Pools without groups cost no call, and need no permission."""
        return uses_groups(self._spec) or any(
            node.instance is not None
            and node.instance.provisioner in (one.value for one in GROUP_PROVISIONERS)
            for node in world.nodes
        )

    def _is_due(self, world: World) -> bool:
        late = self._reconciled_at is None or world.now - self._reconciled_at >= LOOK_EVERY
        return late or self._state(world) != self._reconciled_state

    def _state(self, world: World) -> tuple[object, ...]:
        return world.reservations, tuple(self._launches()), self._sight.groups, self._sight.node_groups

    def _wanting(self, world: World) -> WantedGroups:
        room = remaining_allowances(self._spec, world.nodes, self._launches())
        return wanted_groups(self._spec, world.reservations, world.now, self._makings, room)

    def _by_the_hour(self) -> list[GroupSpec]:
        """Groups of hourly capacity that somebody still waits for."""
        places = {GroupKey.of(one) for one in open_intents(self._launches()) if not one.source.id}
        found: list[GroupSpec] = []
        for place in sorted(places, key=str):
            self._try(place.pool, lambda place=place: found.append(self._grouped.spec_of(place)))  # type: ignore[misc]
        return found

    def _there(self) -> ExistingGroups:
        return ExistingGroups.of(self._sight.groups, self._sight.node_groups, self._compute.templates())

    def _warn(self, groups: Sequence[GroupSpec], said: Iterable[tuple[str, str]]) -> list[Warning]:
        told = [Warning(about, sentence) for about, sentence in said]
        there = self._sight.there
        for own in groups:
            group = there.behind(own)
            if group is None:
                continue
            if own.over_at is not None:
                lead = self._spec.pools[own.place.pool].spec.drain.lead or timedelta(0)
                sentences = (
                    early_scale_down_warning(group, one, own.over_at, lead)
                    for one in early_scale_downs(group, own.over_at)
                )
                told += [Warning(own.name, sentence) for sentence in sentences if sentence]
            if off := sorted({"Launch", "Terminate"} & set(group.shape.suspended)):
                sentence = (
                    f"somebody suspended {' and '.join(off)} of it: resume it, or nodes neither come nor go"
                )
                told.append(Warning(own.name, sentence))
            if group.launch_error is not None and group.desired > sum(one.counts for one in group.members):
                told.append(Warning(own.name, f"it could not launch: {group.launch_error}"))
        return told


def _said_by_eks(there: ExistingGroups) -> Iterable[tuple[str, str]]:
    """Also of node groups that no group stands behind, or that nobody wants any more."""
    complaints = ((name, managed.problem_of(one)) for name, one in there.node_groups.items())
    return ((name, sentence) for name, sentence in complaints if sentence)


def _is_about_eks(change: Change) -> bool:
    match change:
        case PutGroup(own):
            return own.managed
        case RemoveGroup(managed=by_eks):
            return by_eks
        case _:
            return False


def live_reservations(world: World) -> frozenset[str]:
    return frozenset(one.id for one in world.reservations if one.state in SECURED_STATES)


def uses_groups(spec: Spec) -> bool:
    return any(pool.spec.provisioner in GROUP_PROVISIONERS for pool in spec.pools.values())
