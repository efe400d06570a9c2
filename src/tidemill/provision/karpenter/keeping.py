"""Keeps Karpenter's objects as the documents and the blocks want them, beside the engine's ticks.

What is there and carries our owner label is ours; nothing else is looked at twice. The difference is a list of changes
with reasons; one that fails never stops the others and is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from tidemill.decide.nodes import deadline_of
from tidemill.errors import Gone, SpecError, TidemillError
from tidemill.plan import Warning
from tidemill.provision.karpenter import Object, Objects, objects
from tidemill.spec import Spec, names
from tidemill.spec.models import ComputePool, Provisioner
from tidemill.world import World

log = logging.getLogger("tidemill.provision")

# In the order they are made: a NodePool names its node class. Removed the other way round.
KINDS = ("EC2NodeClass", "NodeClass", "NodePool")
# Somebody may have changed one by hand.
LOOK_EVERY = timedelta(minutes=5)


class KubeObjects(Protocol):
    """Objects of the API server that are no pods and no nodes. Raises what the ports do."""

    def apply(self, wanted: Mapping[str, Any]) -> None:
        """Make it, or change the fields that are given (server-side apply). Refused: it does not take it."""
        ...

    def remove(self, kind: str, name: str) -> None:
        """Gone: there is none."""
        ...

    def listed(self, kind: str) -> Sequence[Mapping[str, Any]]:
        """All of a kind; none where the cluster does not know the kind."""
        ...


@dataclass(frozen=True, slots=True)
class ObjectChange:
    verb: Literal["create", "change", "remove"]
    wanted: Object
    reason: str

    @property
    def kind(self) -> str:
        return str(self.wanted["kind"])

    @property
    def name(self) -> str:
        return str(self.wanted["metadata"]["name"])

    @property
    def about(self) -> str:
        return f"{self.kind} {self.name}"


def object_changes(wanted: Iterable[Object], there: Iterable[Object]) -> tuple[ObjectChange, ...]:
    """`there`: ours alone. Fields that somebody else added stay theirs."""
    known = {_key(each): each for each in there}
    listed = []
    for each in sorted(wanted, key=lambda one: KINDS.index(one["kind"])):
        old = known.pop(_key(each), None)
        if old is None:
            listed.append(ObjectChange("create", each, "a source of its pool needs it"))
        elif not _is_part_of(each["spec"], old["spec"]):
            listed.append(ObjectChange("change", each, f"{', '.join(_differing(each, old))} changed"))
    gone = sorted(known.values(), key=lambda one: KINDS.index(one["kind"]), reverse=True)
    return (*listed, *(ObjectChange("remove", each, "its source is over, or its pool left") for each in gone))


class KarpenterKeeper:
    def __init__(self, spec: Spec, kube: KubeObjects) -> None:
        self._spec, self._kube = spec, kube
        self._seen: object = None
        self._looked_at: datetime | None = None
        self._warnings: tuple[Warning, ...] = ()
        self._told: set[str] = set()

    def keep(self, world: World) -> tuple[Warning, ...]:
        """What people should know of; the same as before while nothing changed."""
        if not world.cloud_ok or not self._is_due(world):
            return self._warnings
        try:
            wanted = self.wanted(world)
            for change in object_changes(wanted.objects, self._ours()):
                self._carry_out(change)
        except TidemillError as error:  # asked again at the next tick
            self._tell(str(error))
            return self._warnings
        self._warnings = tuple(Warning("karpenter", sentence) for sentence in wanted.warnings)
        self._seen, self._looked_at = self._state(world), world.now
        return self._warnings

    def planned(self, world: World) -> tuple[ObjectChange, ...]:
        """What it would do, for `tidemill plan`."""
        return object_changes(self.wanted(world).objects, self._ours())

    def wanted(self, world: World) -> Objects:
        """Of all pools; one that cannot be written down leaves the others alone, and is told about."""
        made: list[Object] = []
        told: list[str] = []
        for pool in left_to_karpenter(self._spec):
            try:
                found = objects(self._spec, pool, world.reservations, world.now)
            except SpecError as error:
                told.append(str(error))
                continue
            made += found.objects
            told += found.warnings
        return Objects(tuple(made), tuple(told))

    def _ours(self) -> list[Object]:
        owner = self._spec.platform.spec.deployment
        return [
            each
            for kind in KINDS
            for each in self._kube.listed(kind)
            if each["metadata"].get("labels", {}).get(names.TAG_OWNER) == owner
        ]

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
            self._tell(f"{change.about}: {error}")

    def _is_due(self, world: World) -> bool:
        late = self._looked_at is None or world.now - self._looked_at >= LOOK_EVERY
        return late or self._state(world) != self._seen

    def _state(self, world: World) -> object:
        """A block whose deadline passed changes what is wanted though nothing about it changed."""
        ends = ((one.id, deadline_of(one, Provisioner.KARPENTER)) for one in world.reservations)
        return world.reservations, tuple(id_ for id_, end in ends if end is not None and end <= world.now)

    def _tell(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            log.warning("%s", sentence)


def left_to_karpenter(spec: Spec) -> list[ComputePool]:
    return [pool for pool in spec.pools.values() if pool.spec.provisioner is Provisioner.KARPENTER]


def _key(one: Object) -> tuple[str, str]:
    return one["kind"], one["metadata"]["name"]


def _is_part_of(ours: Any, theirs: Any) -> bool:
    """The API server fills in defaults: what it added is no difference."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        return all(key in theirs and _is_part_of(value, theirs[key]) for key, value in ours.items())
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        return len(ours) == len(theirs) and all(map(_is_part_of, ours, theirs))
    return bool(ours == theirs)


def _differing(ours: Object, theirs: Object) -> list[str]:
    has = theirs["spec"]
    return [key for key, value in ours["spec"].items() if key not in has or not _is_part_of(value, has[key])]
