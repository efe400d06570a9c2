"""What is true in the simulated cluster: the state that reports, invariants and other autoscalers read.

Nothing here changes the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from tidemill.model.nodes import KubeNode
from tidemill.model.pods import Pod, PodPhase
from tidemill.model.resources import Amounts
from tidemill.sim.cluster.api_server import ApiServer, PodRun
from tidemill.sim.cluster.jobs import Jobs
from tidemill.sim.cluster.kubelet import Kill, Kubelets
from tidemill.sim.cluster.node_lifecycle import NodeLifecycle, NodeTruth
from tidemill.sim.cluster.scheduler import Scheduler
from tidemill.sim.cluster.services import Services
from tidemill.sim.cluster.workloads import JobTruth, ServiceTruth, held_tolerated


class ClusterTruth:
    def __init__(
        self,
        api: ApiServer,
        jobs: Jobs,
        services: Services,
        kubelets: Kubelets,
        nodes: NodeLifecycle,
        scheduler: Scheduler,
    ) -> None:
        self._api = api
        self._jobs = jobs
        self._services = services
        self._kubelets = kubelets
        self._nodes = nodes
        self._scheduler = scheduler

    @property
    def jobs(self) -> Mapping[str, JobTruth]:
        return self._jobs.by_name

    @property
    def gang_changes(self) -> Sequence[str]:
        """The name of a job of several pods for every change of one of its pods so far, in order."""
        return self._api.gang_changes

    @property
    def touched(self) -> Sequence[str]:
        """The name of a node for every change of it or of a pod on it so far, in order."""
        return self._api.touched

    @property
    def replicas(self) -> Iterable[Pod]:
        """Bound pods that are neither a job's nor a daemon."""
        return self._api.replicas.values()

    @property
    def services(self) -> Mapping[str, ServiceTruth]:
        return self._services.by_name

    @property
    def nodes(self) -> Mapping[str, NodeTruth]:
        """Every node there ever was, by instance id."""
        return self._nodes.history

    @property
    def node_faults(self) -> Sequence[datetime]:
        """When faults struck nodes that came up, in order: whenever they were armed, their time is now."""
        return self._nodes.struck_at

    def nominated_to(self, node: str) -> Iterator[Pod]:
        """Pods that wait for the victims of their preemption to leave this node."""
        for uid, where in self._scheduler.nominated.items():
            if where == node and uid in self._api.pods:
                yield self._api.pods[uid]

    def node_truth(self, name: str) -> NodeTruth | None:
        """By the name of its Kubernetes node, whether it is still there or not."""
        return self._nodes.by_name.get(name)

    @property
    def kills(self) -> list[Kill]:
        """Pods that died with their node."""
        return self._kubelets.kills

    @property
    def starts(self) -> Sequence[Pod]:
        """Every start of a pod of a workload so far, in order, as the pod was then."""
        return self._api.starts

    @property
    def pods(self) -> Mapping[str, Pod]:
        """By uid, unfinished ones."""
        return self._api.pods

    def pods_on(self, node: str) -> tuple[Pod, ...]:
        """Bound there, terminating ones and daemons included; by node name or instance id."""
        return self._api.on(self._nodes.node_name(node) if node in self._nodes.history else node)

    @property
    def unbound(self) -> Iterable[Pod]:
        """Pods without a node, in order of creation."""
        return self._api.unbound.values()

    def kube_node(self, name: str) -> KubeNode | None:
        return self._api.nodes.get(name)

    def without_work(self) -> list[KubeNode]:
        """Nodes to which no pod but daemons is bound, by name."""
        work = self._api.work_on
        return [node for name, node in self._api.nodes.items() if not work.get(name)]

    def fitting(self, pod: Pod, nodes: Iterable[str]) -> list[str]:
        """Those of the nodes to which kube-scheduler would bind a waiting pod, once it is admitted."""
        admitted = replace(pod, shape=held_tolerated(pod.shape)) if pod.gated else pod
        return self._scheduler.fitting(admitted, nodes)

    def emptied_at(self, source_label: str) -> datetime | None:
        """When the last non-daemon pod left the nodes of a source; None: some are there, or none ever was."""
        if self._api.pods_on_source[source_label]:
            return None
        return self._api.emptied_at.get(source_label)

    @property
    def changes(self) -> tuple[int, int, int]:
        """Counters of pod, node and GPU changes: equal means nothing changed."""
        return self._api.pod_changes, self._api.node_changes, self._api.gpu_changes

    @property
    def layout(self) -> int:
        """Moves when a node joined, went, or changed otherwise than by pods that came and went."""
        return self._api.layout

    def gpus_used(self) -> int:
        """Accelerators of running pods, those still terminating included."""
        return self._api.gpus_used.total()

    def gpus_ready(self) -> int:
        """Accelerators on nodes that are open to pods."""
        return self._api.gpus_ready.total()

    def pod_runs(self, until: datetime) -> Iterator[PodRun]:
        """The time of every non-daemon pod on its node so far."""
        yield from self._api.pod_runs
        for pod in self._api.pods.values():
            if pod.phase is PodPhase.RUNNING and not pod.daemon:
                yield PodRun.of(pod, until)

    def gpus_used_by_source(self) -> dict[str, int]:
        return dict(+self._api.gpus_used)

    def gpus_ready_by_source(self) -> dict[str, int]:
        return dict(+self._api.gpus_ready)

    @property
    def left_waiting(self) -> list[Callable[[], None]]:
        """Called when the scheduler found no node for a pod: another autoscaler may launch one."""
        return self._scheduler.left_waiting

    @property
    def daemon_requests(self) -> Amounts:
        """What daemon pods take of every node."""
        return self._nodes.daemon.requests

    @property
    def pods_have_rules(self) -> bool:
        """Whether some pod had a rule about where other pods are."""
        return self._api.bound_pods is not None
