"""Keeps the groups in AWS as the documents and the blocks want them; runs once per tick.

It carries out what `group_changes` lists, and sets sizes whose call was lost or whose intent ended. A change that fails
never stops the others: it is tried again at the next tick, and logged once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import assert_never

from tidemill.model.capacity import SECURED_STATES
from tidemill.model.errors import Gone, Retryable, TidemillError
from tidemill.model.plan import Warning
from tidemill.model.purchases import LaunchIntent
from tidemill.model.warning_reasons import ProvisionerMessage
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
from tidemill.provision.group_sizes import launches_through_groups, open_intents
from tidemill.provision.group_spec import GROUP_PROVISIONERS, GroupKey, GroupSpec, TemplateInputsOf
from tidemill.provision.group_state import GroupState
from tidemill.provision.wanted_groups import WantedGroups, remaining_allowances, wanted_groups
from tidemill.spec import Spec

log = logging.getLogger("tidemill.provision")

# People may change a group by hand: groups are compared this often even when nothing here changed.
LOOK_EVERY = timedelta(minutes=5)


class GroupReconciler:
    def __init__(
        self,
        spec: Spec,
        compute: Compute,
        group_state: GroupState,
        launcher: GroupLauncher,
        launches: Callable[[], Sequence[LaunchIntent]],
        template_inputs: TemplateInputsOf,
    ) -> None:
        self._spec, self._compute, self._state, self._launcher = spec, compute, group_state, launcher
        self._launches, self._template_inputs = launches, template_inputs
        self._reconciled_state: tuple[object, ...] = ()
        self._reconciled_at: datetime | None = None
        self._warnings: tuple[Warning, ...] = ()
        self._logged: set[tuple[str, str]] = set()
        self._unfinished = False
        self._joined_roles: set[str] = set()  # roles with an access entry, as far as this process knows

    def reconcile(self, world: World) -> tuple[Warning, ...]:
        """Returns what people should know; the same as before while nothing changed."""
        if not (world.cloud_ok and world.ledger_ok) or not self._has_groups(world):
            return self._warnings
        try:
            if self._is_due(world):
                self._reconcile(world)
        except TidemillError as error:
            self._log_once("groups", str(error))
        return self._warnings

    def planned(self, world: World) -> tuple[Change, ...]:
        """What it would do, for `tidemill plan`. Changes nothing."""
        if not self._has_groups(world):
            return ()
        self._state.reservations = world.reservations
        groups = (*self._wanted_groups(world).groups, *self._hourly_groups())
        return group_changes(groups, self._existing_groups(), world.now, live_reservations(world)).now

    def problems(self, world: World) -> tuple[tuple[str, str], ...]:
        """The blocks for which no group can be made, and why."""
        return self._wanted_groups(world).problems if self._has_groups(world) else ()

    # --- one reconciliation -------------------------------------------------------------------------

    def _reconcile(self, world: World) -> None:
        self._unfinished = False
        wanted = self._wanted_groups(world)
        groups = (*wanted.groups, *self._hourly_groups())
        existing = self._existing_groups()
        found = group_changes(groups, existing, world.now, live_reservations(world), self._joined_roles)
        for change in found.now:
            self._try(change.about, partial(self._carry_out, change))
        if found.now:  # once for all: each node group takes a call of its own
            self._state.invalidate(node_groups=any(_is_about_eks(change) for change in found.now))
        for group_spec in groups:
            self._try(group_spec.name, partial(self._launcher.resize_to_need, group_spec))
        known = {(group_spec.managed, group_spec.name) for group_spec in groups}
        for group in self._state.groups:
            if (bool(group.node_group), group.node_group or group.shape.name) not in known:
                self._try(group.shape.name, partial(self._launcher.shrink_unwanted, group))
        problems = (*wanted.problems, *found.waiting, *_problems_of_node_groups(existing))
        self._warnings = tuple(self._warn(groups, problems))
        # What failed for now is tried at the next tick; what AWS refused, when something changes or after a while.
        self._reconciled_state = () if self._unfinished else self._fingerprint(world)
        self._reconciled_at = world.now

    def _carry_out(self, change: Change) -> None:
        log.info("%s %s: %s", change.verb, change.about, change.reason)
        compute = self._compute
        match change:
            case PutGroup(group_spec):
                self._launcher.put(group_spec)
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
                self._joined_roles.add(role)
            case _:
                assert_never(change)

    def _try(self, about: str, do: Callable[[], None]) -> None:
        try:
            do()
        except Gone:
            self._state.invalidate(node_groups=True)
        except TidemillError as error:
            self._unfinished |= isinstance(error, Retryable)
            self._log_once(about, str(error))

    def _log_once(self, about: str, sentence: str) -> None:
        if (about, sentence) not in self._logged:
            self._logged.add((about, sentence))
            log.warning("%s: %s", about, sentence)

    # --- inputs -------------------------------------------------------------------------------------

    def _has_groups(self, world: World) -> bool:
        """Without groups there is no call, and no permission is needed."""
        return uses_groups(self._spec) or any(
            node.instance is not None and launches_through_groups(node.instance.provisioner)
            for node in world.nodes
        )

    def _is_due(self, world: World) -> bool:
        late = self._reconciled_at is None or world.now - self._reconciled_at >= LOOK_EVERY
        return late or self._fingerprint(world) != self._reconciled_state

    def _fingerprint(self, world: World) -> tuple[object, ...]:
        return world.reservations, tuple(self._launches()), self._state.groups, self._state.node_groups

    def _wanted_groups(self, world: World) -> WantedGroups:
        allowances = remaining_allowances(self._spec, world.nodes, self._launches())
        return wanted_groups(self._spec, world.reservations, world.now, self._template_inputs, allowances)

    def _hourly_groups(self) -> list[GroupSpec]:
        """Groups of spot and on-demand capacity with open launch intents."""
        keys = {GroupKey.of(intent) for intent in open_intents(self._launches()) if not intent.source.id}
        found: list[GroupSpec] = []

        def add(key: GroupKey) -> None:
            found.append(self._launcher.spec_of(key))

        for key in sorted(keys, key=str):
            self._try(key.pool, partial(add, key))
        return found

    def _existing_groups(self) -> ExistingGroups:
        return ExistingGroups.of(self._state.groups, self._state.node_groups, self._compute.templates())

    def _warn(self, groups: Sequence[GroupSpec], problems: Iterable[tuple[str, str]]) -> list[Warning]:
        warnings = [Warning(about, ProvisionerMessage(text)) for about, text in problems]
        existing = self._state.existing
        for group_spec in groups:
            group = existing.behind(group_spec)
            if group is None:
                continue
            sentences: list[str] = []
            if group_spec.deadline is not None:
                lead = self._spec.pools[group_spec.key.pool].spec.drain.lead or timedelta(0)
                sentences += [
                    early_scale_down_warning(group, schedule, group_spec.deadline, lead)
                    for schedule in early_scale_downs(group, group_spec.deadline)
                ]
            if off := sorted({"Launch", "Terminate"} & set(group.shape.suspended)):
                sentences.append(
                    f"somebody suspended {' and '.join(off)} of it: resume it, or nodes neither come nor go"
                )
            lacks_members = group.desired > sum(member.counts for member in group.members)
            if group.launch_error is not None and lacks_members:
                sentences.append(f"it could not launch: {group.launch_error}")
            warnings += [Warning(group_spec.name, ProvisionerMessage(text)) for text in sentences if text]
        return warnings


def _problems_of_node_groups(existing: ExistingGroups) -> Iterable[tuple[str, str]]:
    """Also of node groups that have no Auto Scaling group yet, or that no document wants any more."""
    problems = ((name, managed.problem_of(node_group)) for name, node_group in existing.node_groups.items())
    return ((name, problem) for name, problem in problems if problem)


def _is_about_eks(change: Change) -> bool:
    match change:
        case PutGroup(group_spec):
            return group_spec.managed
        case RemoveGroup(managed=by_eks):
            return by_eks
        case _:
            return False


def live_reservations(world: World) -> frozenset[str]:
    return frozenset(
        reservation.id for reservation in world.reservations if reservation.state in SECURED_STATES
    )


def uses_groups(spec: Spec) -> bool:
    return any(pool.spec.provisioner in GROUP_PROVISIONERS for pool in spec.pools.values())
