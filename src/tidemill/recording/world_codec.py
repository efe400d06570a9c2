"""A world as plain data for msgpack: whole, or what changed since the one before.

A long list is written as splices: where, how many members went, and those that came instead. Unchanged members are the
same objects in two worlds, so what changed is found by comparing whole stretches. Reading gives the same sharing back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from operator import attrgetter, is_
from typing import Any, cast, get_type_hints

import msgspec
from pydantic import TypeAdapter

from tidemill.model.nodes import Node
from tidemill.model.planner_result import PlannerResult
from tidemill.model.pods import Pod, PodShape
from tidemill.model.world import World
from tidemill.recording.secrets import clean, without_secrets

# What a world may have many of. The other fields are written whole when they change.
_SPLICED = frozenset(("reservations", "nodes", "pods", "workloads", "launches", "purchases", "overheads"))
# `pods_by_node` is an index of the pods, written as ids; a planner's result has a union that msgspec cannot tell apart.
_INDEX, _BY_PYDANTIC = "pods_by_node", "planner_result"
_FIELDS = tuple(field.name for field in fields(World) if field.name not in ("now", _INDEX))
_values_of = attrgetter(*_FIELDS)
_TYPES = get_type_hints(World)
_AT_ONCE = 128  # members compared without a look at the result
# How many members may have gone and come where two lists differ, the likely first: some that changed, then others.
_SHIFTS = (
    *((n, n) for n in range(1, 4)),
    *sorted(((m, n) for m in range(9) for n in range(9) if m != n), key=lambda pair: (sum(pair), pair)),
)

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_planner_result: TypeAdapter[PlannerResult | None] = TypeAdapter(PlannerResult | None)


class Splice(msgspec.Struct, array_like=True):
    """Of a list: `removed` members from `at` on (of the old list) went, and `items` are there instead."""

    at: int
    removed: int
    items: msgspec.Raw


class WorldFrame(msgspec.Struct, array_like=True):
    now: datetime
    whole: bool  # begins anew; else what changed
    values: dict[str, msgspec.Raw]  # fields that are written whole
    splices: dict[str, list[Splice]]
    bound: dict[str, list[str] | None]  # by node: ids of its pods; None: it has none any more


_values = {name: msgspec.msgpack.Decoder(_TYPES[name]) for name in _FIELDS if name != _BY_PYDANTIC}


class WorldEncoder:
    """Frames, each relative to the one before."""

    def __init__(self) -> None:
        self._last: World | None = None
        self._last_values: tuple[Any, ...] = ()

    def restart(self) -> None:
        """The next frame is whole."""
        self._last = None

    def frame(self, world: World) -> WorldFrame:
        last, self._last = self._last, world
        before, self._last_values = self._last_values, _values_of(world)
        frame = WorldFrame(world.now.astimezone(UTC), last is None, {}, {}, {})
        if last is None:
            for name, value in zip(_FIELDS, self._last_values, strict=True):
                frame.values[name] = msgspec.Raw(_encode(name, value))
            frame.bound.update(_bound({}, world.pods_by_node, world.pods_by_node))
            return frame
        touched: set[str] = set()  # nodes that a changed pod is on, or was
        for place, (old, value) in enumerate(zip(before, self._last_values, strict=True)):
            if value is old or value == old:
                continue
            name = _FIELDS[place]
            if name not in _SPLICED:
                frame.values[name] = msgspec.Raw(_encode(name, value))
                continue
            changes = frame.splices[name] = []
            for at, removed, start, stop in splices(old, value):
                items = value[start:stop]
                changes.append(Splice(at, removed, msgspec.Raw(_encode(name, items))))
                if name == "pods":
                    touched.update(pod.node for pod in (*items, *old[at : at + removed]))
        index, known = world.pods_by_node, last.pods_by_node
        if index is not known and (touched or index.keys() != known.keys()):
            frame.bound.update(_bound(known, index, touched | (index.keys() ^ known.keys())))
        return frame


def _bound(
    before: Mapping[str, tuple[Pod, ...]], now: Mapping[str, tuple[Pod, ...]], nodes: Iterable[str]
) -> Iterator[tuple[str, list[str] | None]]:
    for node in nodes:
        pods, was = now.get(node), before.get(node)
        if pods is None:
            if was is not None:
                yield node, None
            continue
        ids = [pod.uid for pod in pods]
        if was is None or ids != [pod.uid for pod in was]:
            yield node, ids


def _encode(name: str, value: Any) -> bytes:
    """Without what looks like a secret. Of pods and nodes only what somebody says of them is free text."""
    match name:
        case "pods":
            return _encoder.encode([_quiet(pod) if pod.message else pod for pod in value])
        case "nodes":
            return _encoder.encode(
                [
                    _quiet_node(node) if node.kube is not None and node.kube.check_message else node
                    for node in value
                ]
            )
        case "planner_result":
            value = _planner_result.dump_python(value, mode="json")
    return clean(_encoder.encode(value))


def _quiet(pod: Pod) -> Pod:
    return replace(pod, message=without_secrets(pod.message))


def _quiet_node(node: Node) -> Node:
    assert node.kube is not None
    kube = replace(node.kube, check_message=without_secrets(node.kube.check_message))
    return replace(node, kube=kube)


def splices(old: Sequence[object], new: Sequence[object]) -> Iterator[tuple[int, int, int, int]]:
    """What turns one into the other: at which place of the old one how many went, and `new[start:stop]` came."""
    at = start = 0
    while True:
        alike = _alike(old, new, at, start)
        at, start = at + alike, start + alike
        if at == len(old) and start == len(new):
            return
        went, came = _agree_again(old, new, at, start)
        yield at, went, start, start + came
        at, start = at + went, start + came


def _alike(old: Sequence[object], new: Sequence[object], at: int, start: int) -> int:
    """How many members from there on are equal. Stretches are compared in C, by identity first: every tick asks."""
    most = min(len(old) - at, len(new) - start)
    for passed in range(0, most, _AT_ONCE):
        size = min(_AT_ONCE, most - passed)
        one = old[at + passed : at + passed + size]
        other = new[start + passed : start + passed + size]
        if one != other:
            return passed + bytes(map(is_, one, other)).index(0)
    return most


def _agree_again(old: Sequence[object], new: Sequence[object], at: int, start: int) -> tuple[int, int]:
    """How many members went and came here. Where they do not agree again soon, all but the common end is new."""
    few, fewer = len(old) - at, len(new) - start
    for went, came in _SHIFTS:
        if went < few and came < fewer and old[at + went] is new[start + came]:
            return went, came
    left, came = len(old) - at, len(new) - start
    tail, most = 0, min(left, came)
    while tail < most and old[len(old) - 1 - tail] is new[len(new) - 1 - tail]:
        tail += 1
    return left - tail, came - tail


class WorldDecoder:
    """Worlds from frames, in the order they were written; the first must be whole."""

    def __init__(self) -> None:
        self._world: World | None = None
        self._bound: dict[str, list[str]] = {}  # ids of the pods on each node
        self._shapes: dict[PodShape, PodShape] = {}

    def world(self, frame: WorldFrame) -> World:
        given: dict[str, Any] = {name: self._value(name, raw) for name, raw in frame.values.items()}
        if not frame.whole:
            if self._world is None:
                raise msgspec.ValidationError("a segment begins with a whole world, and this one does not")
            for name, changes in frame.splices.items():
                given[name] = self._spliced(name, getattr(self._world, name), changes)
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

    def _spliced(self, name: str, old: Sequence[Any], changes: Sequence[Splice]) -> tuple[Any, ...]:
        parts: list[Any] = []
        done = 0
        for change in changes:
            parts += old[done : change.at]
            parts += self._value(name, change.items)
            done = change.at + change.removed
        return (*parts, *old[done:])

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
