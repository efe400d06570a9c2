"""Keeps the groups in AWS as the documents and the blocks want them; runs once per tick.

It carries out what `group_changes` lists, and sets sizes whose call was lost or whose intent ended. A change that fails
never stops the others: it is tried again at the next tick, and logged once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import assert_never

from tidemill.model.errors import Gone, Retryable, TidemillError
from tidemill.model.nodes import INSTANCE_ENDED_STATES, Instance
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
    removal_reason,
)
from tidemill.provision.group_launcher import GroupLauncher
from tidemill.provision.group_sizes import launches_through_groups, open_intents
from tidemill.provision.group_spec import (
    GROUP_PROVISIONERS,
    GroupKey,
    GroupSpec,
    TemplateInputsOf,
    is_for_a_reservation,
)
from tidemill.provision.group_state import GroupState
from tidemill.provision.removal_reasons import Ends, Evidence
from tidemill.provision.wanted_groups import WantedGroups, identity, remaining_allowances, wanted_groups
from tidemill.spec import Spec
from tidemill.spec.compute_pool import Provisioner

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
        ends: Ends = dict,
    ) -> None:
        """`ends`: the paid ends of reservations, as the ledger has them."""
        self._spec, self._compute, self._state, self._launcher = spec, compute, group_state, launcher
        self._ends = ends
        self._launches, self._template_inputs = launches, template_inputs
        self._reconciled_state: tuple[object, ...] = ()
        self._reconciled_at: datetime | None = None
        self._warnings: tuple[Warning, ...] = ()
        self._logged: set[tuple[str, str]] = set()
        self._unfinished = False
        self._refused: list[tuple[str, str]] = []  # what AWS refused at the last look, and why
        self._launch_waits = False
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
        self._launch_waits = self._has_waiting_launch()
        return self._warnings

    @property
    def waits(self) -> bool:
        """A launch waits until EKS has created or changed a node group. EKS tells nobody when it has."""
        return self._launch_waits

    def planned(self, world: World) -> tuple[Change, ...]:
        """What it would do, for `tidemill plan`. Changes nothing."""
        if not self._has_groups(world):
            return ()
        self._state.reservations = world.reservations
        wanted, (hourly, unmade) = self._wanted_groups(world), self._hourly_groups()
        return group_changes(
            (*wanted.groups, *hourly), self._existing_groups(), world.now, self._evidence(world),
            unmade=wanted.unmade | unmade,
        ).now  # fmt: skip

    def problems(self, world: World) -> tuple[tuple[str, str], ...]:
        """The blocks for which no group can be made, and why."""
        return self._wanted_groups(world).problems if self._has_groups(world) else ()

    # --- one reconciliation -------------------------------------------------------------------------

    def _reconcile(self, world: World) -> None:
        self._unfinished, self._refused = False, []
        wanted, (hourly, unmade) = self._wanted_groups(world), self._hourly_groups()
        groups, unmade = (*wanted.groups, *hourly), wanted.unmade | unmade
        existing, evidence = self._existing_groups(), self._evidence(world)
        # What has nodes is compared as well: somebody may have turned EKS's node repair on (MG-7).
        with_nodes = (*wanted.groups, *self._hourly_groups(world)[0])
        found = group_changes(with_nodes, existing, world.now, evidence, self._joined_roles, unmade)
        for change in found.now:
            self._try(change.about, partial(self._carry_out, change))
        if found.now:  # once for all: each node group takes a call of its own
            self._state.invalidate(node_groups=any(_is_about_eks(change) for change in found.now))
        for group_spec in groups:
            self._try(group_spec.name, partial(self._launcher.resize_to_need, group_spec))
        self._shrink_unwanted({(each.managed, each.name) for each in groups} | unmade, evidence)
        problems = (*wanted.problems, *found.waiting, *self._refused, *_problems_of_node_groups(existing))
        self._warnings = tuple(self._warn(groups, problems))
        # What failed for now is tried at the next tick; what AWS refused, when something changes or after a while.
        self._reconciled_state = () if self._unfinished else self._fingerprint(world)
        self._reconciled_at = world.now

    def _shrink_unwanted(self, known: Collection[tuple[bool, str]], evidence: Evidence) -> None:
        """Groups that nothing launches from any more: an hourly one without open launches, or one with a reason."""
        by_name = {node_group.shape.name: node_group for node_group in self._state.node_groups}
        for group in self._state.groups:
            name = group.node_group or group.shape.name
            tagged = by_name.get(name) if group.node_group else group
            if (bool(group.node_group), name) in known or tagged is None:
                continue
            if not is_for_a_reservation(name) or removal_reason(tagged, evidence) is not None:
                self._try(group.shape.name, partial(self._launcher.shrink_unwanted, group))

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
            if isinstance(error, Retryable):
                self._unfinished = True
            else:  # it will be refused at each look: people should know
                self._refused.append((about, str(error)))
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

    def _has_waiting_launch(self) -> bool:
        managed_launches = any(
            intent.provisioner == Provisioner.MANAGED.value for intent in open_intents(self._launches())
        )
        known = self._state.known_node_groups if managed_launches else ()
        return any(node_group.status in managed.AT_WORK for node_group in known)

    def _evidence(self, world: World) -> Evidence:
        return Evidence.of(self._spec, world.now, world.reservations, self._ends)

    def _hourly_groups(
        self, world: World | None = None
    ) -> tuple[list[GroupSpec], frozenset[tuple[bool, str]]]:
        """Groups of spot and on-demand capacity with open launch intents; of a world, those with instances too. And
        those of them about which something could not be found out."""
        keys = {GroupKey.of(intent) for intent in open_intents(self._launches()) if not intent.source.id}
        for node in world.nodes if world is not None else ():
            instance = node.instance
            if instance is not None and _is_hourly_member(instance) and instance.pool in self._spec.pools:
                keys.add(GroupKey.of(instance))
        found: list[GroupSpec] = []

        def add(key: GroupKey) -> None:
            found.append(self._launcher.spec_of(key))

        for key in sorted(keys, key=str):
            self._try(key.pool, partial(add, key))
        known = (identity(self._spec, key) for key in keys if key.pool in self._spec.pools)
        return found, frozenset(known) - {(each.managed, each.name) for each in found}

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


def _is_hourly_member(instance: Instance) -> bool:
    through_group = launches_through_groups(instance.provisioner) and not instance.source.id
    return through_group and instance.state not in INSTANCE_ENDED_STATES


def _is_about_eks(change: Change) -> bool:
    match change:
        case PutGroup(group_spec):
            return group_spec.managed
        case RemoveGroup(managed=by_eks):
            return by_eks
        case _:
            return False


def uses_groups(spec: Spec) -> bool:
    return any(pool.spec.provisioner in GROUP_PROVISIONERS for pool in spec.pools.values())
