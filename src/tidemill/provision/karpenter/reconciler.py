"""Keeps Karpenter's objects in the cluster as the documents and the blocks want them; runs once per tick.

`differences` says what to change; this carries it out. A change that fails never stops the others and is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from tidemill.decide.read_models import affords_a_node, deadline_of
from tidemill.model.errors import Gone, SpecError, TidemillError
from tidemill.model.plan import Warning
from tidemill.model.warning_reasons import ProvisionerMessage
from tidemill.model.world import World
from tidemill.provision.karpenter.differences import KINDS, ObjectChange, differences
from tidemill.provision.karpenter.objects import Object, Objects, karpenter_objects
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

    def reconcile(self, world: World) -> tuple[Warning, ...]:
        """Returns what people should know; the same as before while nothing changed."""
        if not _is_known(world) or not self._is_due(world):
            return self._warnings
        try:
            wanted = self.wanted(world)
            found = differences(self._spec, wanted, self._existing(), world, self._ends)
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
        """Karpenter's nodes wake the engine when they join."""
        return False

    def planned(self, world: World) -> tuple[ObjectChange, ...]:
        """What it would do, for `tidemill plan`. Changes nothing."""
        if not _is_known(world):
            return ()
        return differences(self._spec, self.wanted(world), self._existing(), world, self._ends).changes

    def wanted(self, world: World) -> Objects:
        """The objects of all pools. A pool with an error in its documents keeps its objects, with a warning."""
        made: list[Object] = []
        warnings: list[str] = []
        unwritten: set[str] = set()
        for pool in karpenter_pools(self._spec):
            try:
                spent = self._unaffordable(pool, world)
                found = karpenter_objects(self._spec, pool, world.reservations, world.now, spent)
            except SpecError as error:
                warnings.append(f"{error}; the objects of pool {pool.name} stay as they are")
                unwritten.add(pool.name)
                continue
            made += found.objects
            warnings += found.warnings
        return Objects(tuple(made), tuple(warnings), frozenset(unwritten))

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
        return late or self._state(world) != self._seen

    def _state(self, world: World) -> object:
        """With the deadlines that passed and the money that is spent: they change what is wanted, although the
        reservation is the same."""
        ends = (
            (reservation.id, deadline_of(reservation, Provisioner.KARPENTER))
            for reservation in world.reservations
        )
        over = tuple(id_ for id_, end in ends if end is not None and end <= world.now)
        return (
            world.reservations,
            over,
            [self._unaffordable(pool, world) for pool in karpenter_pools(self._spec)],
        )

    def _unaffordable(self, pool: ComputePool, world: World) -> tuple[str, ...]:
        """Karpenter knows no month: it would launch again what the engine ends for want of money."""
        return tuple(
            source.type for source in pool.spec.sources if not affords_a_node(self._spec, world, pool, source)
        )

    def _log_once(self, sentence: str) -> None:
        if sentence not in self._logged:
            self._logged.add(sentence)
            log.warning("%s", sentence)


def _is_known(world: World) -> bool:
    """While the ledger does not answer, every block looks like somebody else's."""
    return world.cloud_ok and world.ledger_ok


def karpenter_pools(spec: Spec) -> list[ComputePool]:
    return [pool for pool in spec.pools.values() if pool.spec.provisioner is Provisioner.KARPENTER]
