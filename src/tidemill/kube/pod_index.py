"""Pods in order of creation, and by node; tuples are made anew only where something changed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from datetime import datetime

from tidemill.model.pods import Pod

_Place = tuple[datetime, str]
# From here on sorting everything once is quicker than inserting one by one.
_MANY = 500


class PodIndex:
    def __init__(self) -> None:
        self.by_uid: dict[str, Pod] = {}
        self._places: list[_Place] = []
        self._ordered: list[Pod] = []
        self._bound: dict[str, dict[str, Pod]] = {}
        self._on: dict[str, tuple[Pod, ...]] = {}  # by node; a missing entry is made when it is read
        self._all: tuple[Pod, ...] | None = ()
        self._by_node: dict[str, tuple[Pod, ...]] | None = {}

    def put(self, pod: Pod) -> None:
        before = self.by_uid.get(pod.uid)
        if before is not None and before.created_at != pod.created_at:  # the clock was set anew
            self.drop(pod.uid)
            before = None
        self.by_uid[pod.uid] = pod
        place = (pod.created_at, pod.uid)
        if before is None:
            index = bisect_left(self._places, place)
            self._places.insert(index, place)
            self._ordered.insert(index, pod)
        else:
            self._ordered[bisect_left(self._places, place)] = pod
        self._all = None
        self._move(before, pod)

    def put_all(self, pods: Iterable[Pod]) -> None:
        pods = list(pods)
        if len(pods) < _MANY:
            for pod in pods:
                self.put(pod)
            return
        for pod in pods:
            self._move(self.by_uid.get(pod.uid), pod)
            self.by_uid[pod.uid] = pod
        self._ordered = sorted(self.by_uid.values(), key=_place)
        self._places = [_place(pod) for pod in self._ordered]
        self._all = None

    def drop(self, uid: str) -> Pod | None:
        pod = self.by_uid.pop(uid, None)
        if pod is None:
            return None
        index = bisect_left(self._places, _place(pod))
        del self._places[index], self._ordered[index]
        self._all = None
        self._move(pod, None)
        return pod

    def _move(self, before: Pod | None, after: Pod | None) -> None:
        if before is not None and before.node and (after is None or after.node != before.node):
            there = self._bound[before.node]
            del there[before.uid]
            if not there:
                del self._bound[before.node]
            self._stale(before.node)
        if after is not None and after.node:
            self._bound.setdefault(after.node, {})[after.uid] = after
            self._stale(after.node)

    def _stale(self, node: str) -> None:
        self._on.pop(node, None)
        self._by_node = None

    def on(self, node: str) -> Iterable[Pod]:
        return self._bound.get(node, {}).values()

    def all(self) -> tuple[Pod, ...]:
        if self._all is None:
            self._all = tuple(self._ordered)
        return self._all

    def by_node(self) -> dict[str, tuple[Pod, ...]]:
        """A new dict when something changed; the tuples of nodes where nothing did are the same objects."""
        if self._by_node is None:
            for node in self._bound.keys() - self._on.keys():
                self._on[node] = tuple(sorted(self._bound[node].values(), key=_place))
            self._by_node = self._on.copy()
        return self._by_node


def _place(pod: Pod) -> _Place:
    return pod.created_at, pod.uid
