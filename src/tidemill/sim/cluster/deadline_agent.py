"""A small daemon on every node that ends its pods in time, whether or not an engine is there (CB-16).

It knows what a node can know by itself: the end it was launched with, or was told of since, and the pods it runs. It
deletes them as a kubelet that shuts down does: with their whole grace, without the eviction API and its disruption
budgets. It acts later than an engine would, because the engine is gentler. One object holds all agents of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from tidemill.model.nodes import KubeNode
from tidemill.model.pods import Pod
from tidemill.model.reasons import DrainKind, DrainReason
from tidemill.sim.cluster.api_server import ApiServer, source_of
from tidemill.sim.cluster.kubelet import Kubelets

# Between the end of the last grace and the deadline. The engine keeps a minute, so the engine comes first.
SPARE = timedelta(seconds=30)
# From then on no new pod is let onto the node: it could not be given its grace.
CLOSES = timedelta(minutes=5)


class DeadlineAgents:
    def __init__(self, api: ApiServer, kubelets: Kubelets, close: Callable[[str, DrainReason], None]) -> None:
        self._api, self._kubelets, self._close = api, kubelets, close
        self._next: dict[str, Callable[[], None]] = {}  # by node: cancels its next look
        self.on_delete: Callable[[Pod], None] = lambda pod: None  # for the record

    def look(self, name: str) -> None:
        """Called when the node joins, its end changes, a pod is bound, and whenever a pod is due."""
        cancel = self._next.pop(name, None)
        if cancel is not None:
            cancel()
        node = self._api.nodes.get(name)
        if node is None or node.ends_at is None or not node.ready:
            return
        now = self._api.timeline.now()
        staying = [pod for pod in self._pods(name) if pod.deleting_until is None]
        due = [node.ends_at - pod.terms.grace - SPARE for pod in staying]
        closes = min([node.ends_at - CLOSES, *due])
        if now >= closes and node.draining_since is None:
            self._close_node(node, node.ends_at)
        self._delete_due_pods(name, node.ends_at, now)
        later = min((at for at in (closes, *due) if at > now), default=None)
        if later is not None:
            self._next[name] = self._api.timeline.at(later, lambda: self.look(name))

    def _close_node(self, node: KubeNode, ends_at: datetime) -> None:
        """With the reason an engine would give, so that one that comes back goes on from here, or takes it back."""
        self._close(node.name, DrainReason(DrainKind.SOURCE_ENDS, at=ends_at, name=source_of(node)))
        self._api.journal.add("node-closed", node.name, "its deadline agent lets no new pods onto it")
        self._api.wake(f"{node.name} closed itself")

    def _delete_due_pods(self, name: str, ends_at: datetime, now: datetime) -> None:
        for pod in self._pods(name):
            if pod.deleting_until is None and now >= ends_at - pod.terms.grace - SPARE:
                self.on_delete(pod)
                self._kubelets.delete(pod)

    def _pods(self, name: str) -> list[Pod]:
        return [pod for pod in self._api.on(name) if not pod.daemon]
