"""Where pods are and will be, for pods with rules about other pods: no node is launched on which they could not run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from tidemill.model.nodes import KubeNode
from tidemill.model.pods import Pod
from tidemill.ports import ClusterView
from tidemill.sim.cluster.pod_filters import PodFilters, spread_domains
from tidemill.sim.cluster.scheduler_cache import BoundPods, NodeInfo
from tidemill.spec import names


class PlannedPods:
    """The bound pods of one reading, and those that were given a node that is coming."""

    def __init__(self, view: ClusterView, now: datetime) -> None:
        self._now = now
        self._nodes = {node.name: NodeInfo(node, ()) for node in view.nodes}
        bound = [pod for pod in view.pods if pod.node in self._nodes]
        self._bound = BoundPods(self._nodes, bound)

    def add_node(self, name: str, labels: Mapping[str, str]) -> None:
        self._nodes[name] = self._info(name, labels)

    def place(self, pod: Pod, name: str) -> None:
        self._bound.pod_bound(replace(pod, node=name))

    def allows(self, pod: Pod, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the pod may run on this node, which is coming or could be launched."""
        info = self._nodes.get(name) or self._info(name, labels)
        domains = spread_domains(pod.shape, pod.pinned_to, [*self._nodes.values(), info], hard=True)
        return not PodFilters(pod.shape, pod.namespace, self._bound, domains).rejection(info)

    def _info(self, name: str, labels: Mapping[str, str]) -> NodeInfo:
        own = tuple(sorted({**labels, names.LABEL_HOSTNAME: name}.items()))
        return NodeInfo(KubeNode(name, "", self._now, True, (), own), ())
