"""Karpenter's objects as they are and as they should be: the difference, as changes with reasons. Pure.

Ours is what carries our owner's and our pool's label; what is somebody else's is neither changed nor removed. A pool
whose objects cannot be said keeps those it has: a slip in a document ends no node.
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
from tidemill.spec import Spec, names

# In the order they are made: a NodePool names its node class. Removed the other way round.
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


def differences(spec: Spec, wanted: Objects, there: Iterable[Object], world: World) -> Differences:
    """`there`: all of these kinds, ours and others'."""
    listed = {key_of(one): one for one in there}
    ours = {key: one for key, one in listed.items() if is_ours(spec, one)}
    taken = [object_ for object_ in wanted.objects if key_of(object_) in listed.keys() - ours.keys()]
    frozen = wanted.unwritten | {pool_of(one) for one in taken}
    asked = {key_of(one): one for one in wanted.objects if pool_of(one) not in frozen}
    unasked = [one for key, one in ours.items() if key not in asked and pool_of(one) not in frozen]
    staying = [one for one in unasked if one["kind"] == "NodePool" and not removal.may_be_removed(one, world)]
    puts = [_put(_with_terms_of(staying, one, listed), ours) for one in _in_order(asked.values())]
    closing = [
        _change(removal.closed(one), "nothing asks for it") for one in staying if not removal.is_closed(one)
    ]
    named = {_node_class_of(one) for one in (*listed.values(), *asked.values()) if one["kind"] == "NodePool"}
    gone = [one for one in unasked if one not in staying and key_of(one) not in named]
    alive = [one for one in staying if any(removal.runs_in(node, one) for node in world.nodes)]
    return Differences(
        (*(put for put in puts if put is not None), *closing, *map(_removal, reversed(_in_order(gone)))),
        (*map(_taken, taken), *(removal.waiting_sentence(one, spec, world) for one in alive)),
    )


def is_ours(spec: Spec, object_: Object) -> bool:
    """People write `deployment: NAME` on things of their own; the pool's label is written by nobody else."""
    labels = object_["metadata"].get("labels", {})
    return labels.get(names.TAG_OWNER) == spec.platform.spec.deployment and bool(labels.get(names.TAG_POOL))


def key_of(object_: Object) -> Key:
    return object_["kind"], object_["metadata"]["name"]


# --- what is asked for ------------------------------------------------------------------------------


def _put(wanted: Object, ours: Mapping[Key, Object]) -> ObjectChange | None:
    old = ours.get(key_of(wanted))
    if old is None:
        return ObjectChange("create", _marked(wanted), "a source of its pool needs it")
    if differing := _differing(wanted, old):
        return _change(wanted, f"{', '.join(differing)} changed")
    if _mark_of(old) != _mark(wanted):  # what is not asked for any more is still in it
        return _change(wanted, "what was asked for changed")
    return None


def _with_terms_of(staying: Iterable[Object], wanted: Object, listed: Mapping[Key, Object]) -> Object:
    """A reservation that its node class no longer selects makes its nodes drift: those of a NodePool that stays are
    selected until it goes."""
    old = listed.get(key_of(wanted))
    if old is None or key_of(wanted) not in {_node_class_of(one) for one in staying}:
        return wanted
    terms = wanted["spec"].get(_TERMS, [])
    more = [term for term in old["spec"].get(_TERMS, []) if term not in terms]
    return {**wanted, "spec": {**wanted["spec"], _TERMS: [*terms, *more]}} if more else wanted


def _taken(object_: Object) -> str:
    return (
        f"{object_['kind']} {object_['metadata']['name']} is there and somebody else's: nothing is changed for pool"
        f" {pool_of(object_)} until it has another name, or the pool has"
    )


# --- what is there ----------------------------------------------------------------------------------


def _node_class_of(node_pool: Object) -> Key:
    """Also of one that is about to go: its nodes are still made from it, and it goes at a later look."""
    ref = node_pool["spec"].get("template", {}).get("spec", {}).get("nodeClassRef", {})
    return ref.get("kind", ""), ref.get("name", "")


def _removal(object_: Object) -> ObjectChange:
    return ObjectChange("remove", object_, "its source is over, or its pool left, and no node needs it")


def _change(wanted: Object, reason: str) -> ObjectChange:
    return ObjectChange("change", _marked(wanted), reason)


def _in_order(objects: Iterable[Object]) -> list[Object]:
    return sorted(objects, key=lambda object_: KINDS.index(object_["kind"]))


# --- the same, or not -------------------------------------------------------------------------------


def _mark(object_: Object) -> str:
    """Short for all that we ask of it. Kept on the object, it tells what was asked for last."""
    written = json.dumps(object_["spec"], sort_keys=True, default=str)
    return blake2b(written.encode(), digest_size=8).hexdigest()


def _mark_of(object_: Object) -> str:
    return str(object_["metadata"].get("annotations", {}).get(names.APPLIED, ""))


def _marked(object_: Object) -> Object:
    return {**object_, "metadata": {**object_["metadata"], "annotations": {names.APPLIED: _mark(object_)}}}


def _differing(ours: Object, theirs: Object) -> list[str]:
    has = theirs["spec"]
    return [key for key, value in ours["spec"].items() if key not in has or not _is_part_of(value, has[key])]


def _is_part_of(ours: Any, theirs: Any) -> bool:
    """The API server fills in defaults: what it added is no difference. Fields that people add stay theirs."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        return all(key in theirs and _is_part_of(value, theirs[key]) for key, value in ours.items())
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        return len(ours) == len(theirs) and all(map(_is_part_of, ours, theirs))
    return bool(ours == theirs)
