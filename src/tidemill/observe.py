"""Ports -> World: one look at everything, joined up per node.

What cannot be read just now is replaced by what was last read, and said so: drains and terminations go on
from the last known facts, while nothing new is bought or launched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemill.errors import PortError
from tidemill.ports import Clock, Cloud, Cluster, Ledger
from tidemill.world import (
    Instance,
    KubeNode,
    LaunchIntent,
    Node,
    OfferSearch,
    PurchaseIntent,
    Reservation,
    Spending,
    World,
)


class Observer:
    """Remembers the last reading only to survive a failing call and to keep unchanged objects identical."""

    def __init__(self, clock: Clock, cloud: Cloud, cluster: Cluster, ledger: Ledger) -> None:
        self._clock, self._cloud, self._cluster, self._ledger = clock, cloud, cluster, ledger
        self._reservations: Sequence[Reservation] | None = None
        self._instances: Sequence[Instance] | None = None
        self._books: tuple[tuple[LaunchIntent, ...], tuple[PurchaseIntent, ...], Spending] | None = None
        self._joined_from: tuple[object, object] = (None, None)
        self._nodes: tuple[Node, ...] = ()

    def look(self, searches: Iterable[OfferSearch] = ()) -> World:
        """Raises Retryable only if the cluster, or at the very first look AWS or the ledger, cannot be read."""
        view = self._cluster.view()
        cloud_ok = self._read_cloud()
        ledger_ok = self._read_ledger()
        assert self._reservations is not None and self._instances is not None and self._books is not None
        launches, purchases, spending = self._books
        return World(
            now=self._clock.now(),
            reservations=tuple(self._reservations),
            nodes=self._join(self._instances, view.nodes),
            pods=view.pods,
            budgets=view.budgets,
            launches=launches,
            purchases=purchases,
            searches=tuple(searches),
            spending=spending,
            ledger_ok=ledger_ok,
            cloud_ok=cloud_ok,
            pods_by_node=view.pods_by_node,
        )

    def _read_cloud(self) -> bool:
        try:
            self._reservations, self._instances = self._cloud.reservations(), self._cloud.instances()
        except PortError:
            if self._instances is None:
                raise
            return False
        return True

    def _read_ledger(self) -> bool:
        try:
            spending = self._ledger.spending(self._clock.now())
            self._books = (self._ledger.launches(), self._ledger.purchases(), spending)
        except PortError:
            if self._books is None:
                raise
            return False
        return True

    def _join(self, instances: Sequence[Instance], kube_nodes: tuple[KubeNode, ...]) -> tuple[Node, ...]:
        if self._joined_from[0] is instances and self._joined_from[1] is kube_nodes:
            return self._nodes
        kubes = {kube.instance_id: kube for kube in kube_nodes}
        before = {node.key: node for node in self._nodes}
        nodes = []
        for instance in instances:
            kube = kubes.pop(instance.id, None)
            old = before.get(instance.id)
            same = old is not None and old.instance is instance and old.kube is kube
            nodes.append(old if same and old is not None else Node(instance, kube))
        nodes.extend(Node(None, kube) for kube in kubes.values())
        self._joined_from, self._nodes = (instances, kube_nodes), tuple(nodes)
        return self._nodes
