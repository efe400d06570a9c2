"""What daemon pods take on nodes, remembered after the nodes are gone.

Before a pool has a node, what its daemons take is a guess. Without this memory a guess that was too small would be made
again as soon as the node it launched is given back: launch, find no room, give back, launch. It is lost when
the engine restarts, which costs one launch more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from tidemill.model.nodes import Node, Overhead
from tidemill.model.pods import Pod, daemon_requests

_Kind = tuple[str, str]  # pool, instance type


class Overheads:
    def __init__(self) -> None:
        self._known: dict[_Kind, Overhead] = {}
        self._measured: dict[str, _Kind] = {}  # by node, while it is there
        self._answer: tuple[Overhead, ...] = ()

    def note(
        self,
        changed: Iterable[Node],
        gone: Iterable[str],
        bound: Mapping[str, tuple[Pod, ...]],
        now: datetime,
    ) -> None:
        """`changed`: nodes that are not as they were at the last look; `gone`: those that are no longer listed."""
        before = dict(self._known)
        for key in gone:
            self._leaves(key, now)
        for node in changed:
            instance, kube = node.instance, node.kube
            if instance is None or not instance.pool:
                continue
            if kube is None or not kube.ready:
                self._leaves(node.key, now)
                continue
            taken = daemon_requests(bound.get(kube.name, ()))
            if taken:
                kind = self._measured[node.key] = (instance.pool, instance.instance_type)
                self._known[kind] = Overhead(*kind, tuple(sorted(taken.items())), now)
        if self._known != before:
            self._answer = tuple(self._known[kind] for kind in sorted(self._known))

    def _leaves(self, key: str, now: datetime) -> None:
        kind = self._measured.pop(key, None)
        if kind is not None:
            last = self._known[kind]
            self._known[kind] = Overhead(*kind, last.taken, now)

    @property
    def known(self) -> tuple[Overhead, ...]:
        return self._answer
