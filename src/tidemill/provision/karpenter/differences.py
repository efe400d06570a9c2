"""The difference between Karpenter's objects in the cluster and those that should exist, as changes with reasons. Pure.

Ours are the objects with our owner's and our pool's label; all others are neither changed nor removed. A pool with an
error in its documents keeps its objects: a mistake in a document ends no node.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

from tidemill.model.world import World
from tidemill.provision.karpenter import removal
from tidemill.provision.karpenter.objects import Object, Objects
from tidemill.provision.karpenter.removal import pool_of
from tidemill.provision.removal_reasons import Ends, Evidence
from tidemill.spec import Spec, names

# In the order they are created: a NodePool names its node class. They are removed in the reverse order.
KINDS = ("EC2NodeClass", "NodeClass", "NodePool")
_TERMS = "capacityReservationSelectorTerms"
Key = tuple[str, str]


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


@dataclass(frozen=True, slots=True)
class Differences:
    changes: tuple[ObjectChange, ...] = ()
    warnings: tuple[str, ...] = ()


def differences(
    spec: Spec, wanted: Objects, existing: Iterable[Object], world: World, ends: Ends = dict
) -> Differences:
    """`existing`: all objects of these kinds, ours and others'. `ends`: of reservations, as the ledger has them."""
    evidence = Evidence.of(spec, world.now, world.reservations, ends)
    listed = {key_of(manifest): manifest for manifest in existing}
    ours = {key: manifest for key, manifest in listed.items() if is_ours(spec, manifest)}
    # Objects of others with a name we want: nothing of that pool is changed.
    taken = [manifest for manifest in wanted.objects if key_of(manifest) in listed.keys() - ours.keys()]
    frozen = wanted.unwritten | {pool_of(manifest) for manifest in taken}
    applied = {key_of(manifest): manifest for manifest in wanted.objects if pool_of(manifest) not in frozen}
    unwanted = [
        manifest for key, manifest in ours.items() if key not in applied and pool_of(manifest) not in frozen
    ]
    staying = [
        manifest
        for manifest in unwanted
        if manifest["kind"] == "NodePool" and not removal.may_be_removed(manifest, world, evidence)
    ]
    puts = [_put(_with_terms_of(staying, manifest, listed), ours) for manifest in _in_order(applied.values())]
    closing = [
        _change(removal.closed(node_pool), "no document asks for it")
        for node_pool in staying
        if not removal.is_closed(node_pool)
    ]
    node_pools = (
        manifest for manifest in (*listed.values(), *applied.values()) if manifest["kind"] == "NodePool"
    )
    used_classes = {_node_class_of(node_pool) for node_pool in node_pools}
    removed = [
        manifest for manifest in unwanted if manifest not in staying and key_of(manifest) not in used_classes
    ]
    with_nodes = [
        node_pool for node_pool in staying if any(removal.runs_in(node, node_pool) for node in world.nodes)
    ]
    return Differences(
        (*(put for put in puts if put is not None), *closing, *map(_removal, reversed(_in_order(removed)))),
        (
            *map(_taken, taken),
            *(removal.waiting_sentence(node_pool, spec, world) for node_pool in with_nodes),
        ),
    )


def is_ours(spec: Spec, manifest: Object) -> bool:
    """People label their own objects with `deployment: NAME`; nobody else writes the pool's label."""
    labels = manifest["metadata"].get("labels", {})
    return labels.get(names.TAG_OWNER) == spec.platform.spec.deployment and bool(labels.get(names.TAG_POOL))


def key_of(manifest: Object) -> Key:
    return manifest["kind"], manifest["metadata"]["name"]


# --- objects that should exist ----------------------------------------------------------------------


def _put(wanted: Object, ours: Mapping[Key, Object]) -> ObjectChange | None:
    old = ours.get(key_of(wanted))
    if old is None:
        return ObjectChange("create", _with_digest(wanted), "a source of its pool needs it")
    if differing := _differing(wanted, old):
        return _change(wanted, f"{', '.join(differing)} changed")
    if _applied_digest(old) != _digest(wanted):  # it still has a field that we no longer set
        return _change(wanted, "fields were removed")
    return None


def _with_terms_of(staying: Iterable[Object], wanted: Object, listed: Mapping[Key, Object]) -> Object:
    """Nodes drift when their node class no longer selects their reservation. So it keeps selecting the reservations of
    NodePools that stay."""
    old = listed.get(key_of(wanted))
    if old is None or key_of(wanted) not in {_node_class_of(node_pool) for node_pool in staying}:
        return wanted
    terms = wanted["spec"].get(_TERMS, [])
    more = [term for term in old["spec"].get(_TERMS, []) if term not in terms]
    return {**wanted, "spec": {**wanted["spec"], _TERMS: [*terms, *more]}} if more else wanted


def _taken(manifest: Object) -> str:
    return (
        f"{manifest['kind']} {manifest['metadata']['name']} exists and is somebody else's: nothing changes for pool"
        f" {pool_of(manifest)} until one of them has another name"
    )


# --- objects that exist -----------------------------------------------------------------------------


def _node_class_of(node_pool: Object) -> Key:
    """Also of a NodePool that is removed now: its nodes still need the node class, which is removed later."""
    ref = node_pool["spec"].get("template", {}).get("spec", {}).get("nodeClassRef", {})
    return ref.get("kind", ""), ref.get("name", "")


def _removal(manifest: Object) -> ObjectChange:
    return ObjectChange("remove", manifest, "its source is over or its pool is gone, and no node needs it")


def _change(wanted: Object, reason: str) -> ObjectChange:
    return ObjectChange("change", _with_digest(wanted), reason)


def _in_order(objects: Iterable[Object]) -> list[Object]:
    return sorted(objects, key=lambda manifest: KINDS.index(manifest["kind"]))


# --- comparison -------------------------------------------------------------------------------------


def _digest(manifest: Object) -> str:
    """A digest of all fields we set. An annotation on the object keeps the one that was applied last."""
    text = json.dumps(manifest["spec"], sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _applied_digest(manifest: Object) -> str:
    return str(manifest["metadata"].get("annotations", {}).get(names.APPLIED, ""))


def _with_digest(manifest: Object) -> Object:
    return {
        **manifest,
        "metadata": {**manifest["metadata"], "annotations": {names.APPLIED: _digest(manifest)}},
    }


def _differing(ours: Object, theirs: Object) -> list[str]:
    has = theirs["spec"]
    return [key for key, value in ours["spec"].items() if key not in has or not _is_part_of(value, has[key])]


def _is_part_of(ours: Any, theirs: Any) -> bool:
    """Fields that the API server fills in, or that people add, are no difference."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        return all(key in theirs and _is_part_of(value, theirs[key]) for key, value in ours.items())
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        return len(ours) == len(theirs) and all(map(_is_part_of, ours, theirs))
    return bool(ours == theirs)
