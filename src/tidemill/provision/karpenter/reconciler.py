"""Keeps Karpenter's objects in the cluster as the documents and the blocks want them; runs once per tick.

`differences` says what to change; this carries it out. A change that fails never stops the others and is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from tidemill.decide.read_models import affordable_usd_h, deadline_of
from tidemill.model.errors import Gone, SpecError, TidemillError
from tidemill.model.plan import Warning
from tidemill.model.warning_reasons import ProvisionerMessage
from tidemill.model.world import World
from tidemill.provision.karpenter import settling
from tidemill.provision.karpenter.differences import KINDS, ObjectChange, differences, is_ours
from tidemill.provision.karpenter.objects import Object, Objects, karpenter_objects
from tidemill.provision.karpenter.removal import pool_of
from tidemill.provision.karpenter.room import demand_of, needs_room
from tidemill.provision.removal_reasons import Ends
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool, Provisioner

log = logging.getLogger("tidemill.provision")

# People may change an object by hand: they are compared this often even when nothing here changed.
LOOK_EVERY = timedelta(minutes=5)


class KubeObjects(Protocol):
    """Objects in the API server other than pods and nodes. Raises the errors of the ports."""

    def apply(self, wanted: Mapping[str, Any]) -> None:
        """Server-side apply: create it or change the fields given here; fields we set before and do not give now are
        removed. Refused: the API server rejects it."""
        ...

    def remove(self, kind: str, name: str) -> None:
        """Gone: there is none."""
        ...

    def listed(self, kind: str) -> Sequence[Mapping[str, Any]]:
        """All of a kind; none where the cluster does not have the kind."""
        ...


class KarpenterReconciler:
    def __init__(self, spec: Spec, kube: KubeObjects, ends: Ends = dict) -> None:
        """`ends`: the paid ends of reservations, as the ledger has them."""
        self._spec, self._kube, self._ends = spec, kube, ends
        self._seen: object = None
        self._looked_at: datetime | None = None
        self._warnings: tuple[Warning, ...] = ()
        self._logged: set[str] = set()
        self._lowered_at: dict[str, datetime] = {}  # by NodePool: when it last lost room
        self._settles = False  # some room was taken, and waits to be given

    def reconcile(self, world: World) -> tuple[Warning, ...]:
        """Returns what people should know; the same as before while nothing changed."""
        if not _is_known(world) or not self._is_due(world):
            return self._warnings
        try:
            existing = self._existing()
            wanted = self._settled(self.wanted(world, existing), existing, world.now)
            found = differences(self._spec, wanted, existing, world, self._ends)
            for change in found.changes:
                self._carry_out(change)
        except TidemillError as error:  # tried again at the next tick
            self._log_once(str(error))
            return self._warnings
        sentences = (*wanted.warnings, *found.warnings)
        self._warnings = tuple(Warning("karpenter", ProvisionerMessage(text)) for text in sentences)
        self._seen, self._looked_at = self._state(world), world.now
        return self._warnings

    @property
    def waits(self) -> bool:
        """For room, before Karpenter may launch in another NodePool. Its nodes wake the engine when they join."""
        return self._settles

    def planned(self, world: World) -> tuple[ObjectChange, ...]:
        """What it would do, for `tidemill plan`. Changes nothing."""
        if not _is_known(world):
            return ()
        existing = self._existing()
        return differences(self._spec, self.wanted(world, existing), existing, world, self._ends).changes

    def wanted(self, world: World, existing: Sequence[Object] = ()) -> Objects:
        """The objects of all pools. A pool with an error in its documents keeps its objects, with a warning."""
        node_pools = self._own_node_pools(existing)
        made: list[Object] = []
        warnings: list[str] = []
        unwritten: set[str] = set()
        for pool in karpenter_pools(self._spec):
            try:
                affordable = self._affordable(pool, world)
                demand = demand_of(self._spec, pool, world, node_pools)
                found = karpenter_objects(self._spec, pool, world.reservations, world.now, affordable, demand)
            except SpecError as error:
                warnings.append(f"{error}; the objects of pool {pool.name} stay as they are")
                unwritten.add(pool.name)
                continue
            made += found.objects
            warnings += found.warnings
        return Objects(tuple(made), tuple(warnings), frozenset(unwritten))

    def _settled(self, wanted: Objects, existing: Sequence[Object], now: datetime) -> Objects:
        """With less room where it is to be taken, and with more only where no other NodePool of the pool lost any for a
        while. A new engine does not know who did, so it waits as well."""
        targets = {_name(manifest): manifest for manifest in wanted.objects if manifest["kind"] == "NodePool"}
        listed = {_name(node_pool): node_pool for node_pool in self._own_node_pools(existing)}
        lowered = {name for name, old in listed.items() if settling.is_lowered(targets.get(name), old)}
        self._lowered_at = {
            name: now if name in lowered else self._lowered_at.get(name, now) for name in listed
        }
        unsettled = [
            (name, pool_of(listed[name]))
            for name, at in self._lowered_at.items()
            if now - at < settling.SETTLES_WITHIN
        ]
        made = tuple(
            settling.not_raised(manifest, listed.get(_name(manifest)))
            if manifest["kind"] == "NodePool"
            and any(pool == pool_of(manifest) and name != _name(manifest) for name, pool in unsettled)
            else manifest
            for manifest in wanted.objects
        )
        self._settles = any(
            one["spec"] != other["spec"] for one, other in zip(made, wanted.objects, strict=True)
        )
        return replace(wanted, objects=made)

    def _own_node_pools(self, existing: Sequence[Object]) -> list[Object]:
        return [
            manifest
            for manifest in existing
            if manifest["kind"] == "NodePool" and is_ours(self._spec, manifest)
        ]

    def _existing(self) -> list[Object]:
        return [manifest for kind in KINDS for manifest in self._kube.listed(kind)]

    def _carry_out(self, change: ObjectChange) -> None:
        log.info("%s %s: %s", change.verb, change.about, change.reason)
        try:
            if change.verb == "remove":
                self._kube.remove(change.kind, change.name)
            else:
                self._kube.apply(change.wanted)
        except Gone:
            pass  # a removal is done
        except TidemillError as error:
            self._log_once(f"{change.about}: {error}")

    def _is_due(self, world: World) -> bool:
        late = self._looked_at is None or world.now - self._looked_at >= LOOK_EVERY
        return late or self._settles or self._state(world) != self._seen

    def _state(self, world: World) -> object:
        """With the deadlines that passed, the money that is spent, what runs and who waits: they change what is wanted,
        although the reservation is the same."""
        ends = (
            (reservation.id, deadline_of(reservation, Provisioner.KARPENTER))
            for reservation in world.reservations
        )
        over = tuple(id_ for id_, end in ends if end is not None and end <= world.now)
        begun = tuple(block.id for block in world.reservations if needs_room(block, world.now))
        return (
            world.reservations,
            over,
            begun,
            [
                (self._affordable(pool, world), demand_of(self._spec, pool, world, ()))
                for pool in karpenter_pools(self._spec)
            ],
        )

    def _affordable(self, pool: ComputePool, world: World) -> dict[str, float]:
        """Karpenter knows no month: it would launch again what the engine ends for want of money."""
        caps = {
            source.type: affordable_usd_h(self._spec, world, pool, source) for source in pool.spec.sources
        }
        return {type_: cap for type_, cap in caps.items() if cap is not None}

    def _log_once(self, sentence: str) -> None:
        if sentence not in self._logged:
            self._logged.add(sentence)
            log.warning("%s", sentence)


def _is_known(world: World) -> bool:
    """While the ledger does not answer, every block looks like somebody else's."""
    return world.cloud_ok and world.ledger_ok


def _name(manifest: Object) -> str:
    return str(manifest["metadata"]["name"])


def karpenter_pools(spec: Spec) -> list[ComputePool]:
    return [pool for pool in spec.pools.values() if pool.spec.provisioner is Provisioner.KARPENTER]
