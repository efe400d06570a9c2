"""A world as plain data for msgpack: whole, or what changed since the one before.

A list of things with ids is written as what is new or different, what is gone, and the order only where it is not the
old one with the new ones behind it. What did not change is the same object in two worlds, which is quickly seen.
Reading gives the same sharing back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from itertools import compress, count
from operator import attrgetter, is_not
from typing import Any, cast, get_type_hints

import msgspec
from pydantic import TypeAdapter

from tidemill.model.planner_result import PlannerResult
from tidemill.model.pods import Pod, PodShape
from tidemill.model.world import World

# What has an id, and a world has many of. The other fields are written whole when they change.
_KEYS: Mapping[str, Callable[[Any], str]] = {
    "reservations": attrgetter("id"),
    "nodes": attrgetter("key"),
    "pods": attrgetter("uid"),
    "workloads": attrgetter("name"),
    "launches": attrgetter("id"),
    "purchases": attrgetter("id"),
}
# `pods_by_node` is an index of the pods, written as ids; a planner's result has a union that msgspec cannot tell apart.
_INDEX, _BY_PYDANTIC = "pods_by_node", "planner_result"
_FIELDS = tuple(field.name for field in fields(World) if field.name not in ("now", _INDEX))
_TYPES = get_type_hints(World)

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_planner_result: TypeAdapter[PlannerResult | None] = TypeAdapter(PlannerResult | None)


class Change(msgspec.Struct, array_like=True):
    """Of a list of things with ids: what lies between an unchanged beginning and an unchanged end."""

    start: int
    removed: int  # how many of the old list there were in between
    gone: list[str]  # of those, the ones that are no more
    items: msgspec.Raw  # new or different ones
    order: list[str] | None = None  # where it is not the old one with the new ones behind it


class WorldFrame(msgspec.Struct, array_like=True):
    now: datetime
    whole: bool  # begins anew; else what changed
    values: dict[str, msgspec.Raw]  # fields that are written whole
    changes: dict[str, Change]
    bound: dict[str, list[str] | None]  # by node: ids of its pods; None: it has none any more


_frame = msgspec.msgpack.Decoder(WorldFrame)
_values = {name: msgspec.msgpack.Decoder(_TYPES[name]) for name in _FIELDS if name != _BY_PYDANTIC}


class WorldEncoder:
    """Frames, each relative to the one before."""

    def __init__(self) -> None:
        self._last: World | None = None

    def restart(self) -> None:
        """The next frame is whole."""
        self._last = None

    def frame(self, world: World) -> WorldFrame:
        last, self._last = self._last, world
        frame = WorldFrame(world.now.astimezone(UTC), last is None, {}, {}, _bound(last, world))
        for name in _FIELDS:
            value = getattr(world, name)
            if last is not None:
                old = getattr(last, name)
                if value is old or value == old:
                    continue
                if name in _KEYS and (change := _change(old, value, _KEYS[name])) is not None:
                    frame.changes[name] = change
                    continue
            frame.values[name] = msgspec.Raw(_encode(name, value))
        return frame


def _bound(last: World | None, world: World) -> dict[str, list[str] | None]:
    before = last.pods_by_node if last is not None else {}
    if before is world.pods_by_node:
        return {}
    found: dict[str, list[str] | None] = {node: None for node in before if node not in world.pods_by_node}
    for node, pods in world.pods_by_node.items():
        if (was := before.get(node)) is not pods:
            ids = [pod.uid for pod in pods]
            if was is None or ids != [pod.uid for pod in was]:
                found[node] = ids
    return found


def _encode(name: str, value: Any) -> bytes:
    if name == _BY_PYDANTIC:
        return _encoder.encode(_planner_result.dump_python(value, mode="json"))
    return _encoder.encode(value)


def _change(old: Sequence[Any], new: Sequence[Any], key: Callable[[Any], str]) -> Change | None:
    """None: ids are not unique, so it is written whole."""
    most = min(len(old), len(new))
    start = _alike(old, new, most)
    tail = _alike(reversed(old), reversed(new), most - start)
    there, here = old[start : len(old) - tail], new[start : len(new) - tail]
    before = {key(one): one for one in there}
    after = {key(one): one for one in here}
    if len(before) != len(there) or len(after) != len(here):
        return None
    gone = [id_ for id_ in before if id_ not in after]
    items = [one for id_, one in after.items() if (was := before.get(id_)) is not one and was != one]
    usual = [id_ for id_ in before if id_ in after]
    usual += [id_ for id_ in after if id_ not in before]
    order = None if usual == list(after) else list(after)
    return Change(start, len(there), gone, msgspec.Raw(_encoder.encode(items)), order)


def _alike(one: Iterable[Any], other: Iterable[Any], most: int) -> int:
    """How many at the beginning are the same objects; in C, because every tick asks."""
    return min(next(compress(count(), map(is_not, one, other)), most), most)


class WorldDecoder:
    """Worlds from frames, in the order they were written; the first must be whole."""

    def __init__(self) -> None:
        self._world: World | None = None
        self._bound: dict[str, list[str]] = {}  # ids of the pods on each node
        self._shapes: dict[PodShape, PodShape] = {}

    def world(self, frame: WorldFrame) -> World:
        given: dict[str, Any] = {name: self._value(name, raw) for name, raw in frame.values.items()}
        if not frame.whole:
            assert self._world is not None, "a recording begins with a whole world"
            for name, change in frame.changes.items():
                given[name] = self._changed(name, getattr(self._world, name), change)
        given["now"] = frame.now
        if "pods" in given or frame.bound or frame.whole:
            pods = given.get("pods", self._world.pods if self._world is not None else ())
            given[_INDEX] = self._index(frame, {pod.uid: pod for pod in pods})
        self._world = World(**given) if frame.whole else replace(cast(World, self._world), **given)
        return self._world

    def _value(self, name: str, raw: msgspec.Raw) -> Any:
        if name == _BY_PYDANTIC:
            return _planner_result.validate_python(msgspec.msgpack.decode(raw))
        value = _values[name].decode(raw)
        return tuple(self._shared(pod) for pod in value) if name == "pods" else value

    def _changed(self, name: str, old: Sequence[Any], change: Change) -> tuple[Any, ...]:
        key, start, end = _KEYS[name], change.start, change.start + change.removed
        things = {key(one): one for one in old[start:end]}
        for id_ in change.gone:
            del things[id_]
        for item in self._value(name, change.items):
            things[key(item)] = item
        between = things.values() if change.order is None else (things[id_] for id_ in change.order)
        return (*old[:start], *between, *old[end:])

    def _index(self, frame: WorldFrame, pods: Mapping[str, Pod]) -> dict[str, tuple[Pod, ...]]:
        if frame.whole:
            self._bound = {}
        for node, ids in frame.bound.items():
            if ids is None:
                self._bound.pop(node, None)
            else:
                self._bound[node] = ids
        return {node: tuple(pods[id_] for id_ in ids) for node, ids in self._bound.items()}

    def _shared(self, pod: Pod) -> Pod:
        """Pods of one template share one shape, as in the world that was recorded."""
        shape = self._shapes.setdefault(pod.shape, pod.shape)
        return pod if shape is pod.shape else replace(pod, shape=shape)


def encode(frame: Any) -> bytes:
    return _encoder.encode(frame)


def decode(data: bytes | msgspec.Raw) -> WorldFrame:
    return _frame.decode(data)
