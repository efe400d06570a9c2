"""The simulated API server: every pod and node, indexed, with cheap and consistent reads.

With every write it updates what is bound where, what is free, which pods wait and which GPUs are used. It decides
nothing: the scheduler, the kubelets and the controllers do, each in a module of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from tidemill.model.errors import Gone
from tidemill.model.nodes import KubeNode
from tidemill.model.pods import Pod, PodPhase
from tidemill.model.resources import Amounts, amount
from tidemill.sim.cluster.scheduler_cache import BoundPods, NodeInfo, pod_requests
from tidemill.sim.cluster.scheduler_filters import has_pod_rules
from tidemill.sim.timeline import Journal, Timeline
from tidemill.spec import names


def accelerators(amounts: Amounts) -> int:
    """GPUs and Neuron devices alike: what a pod asks for or a node has."""
    return sum(amount(amounts, name) for name in names.ACCELERATORS)


def source_of(node: KubeNode) -> str:
    for key, value in node.labels:
        if key == names.LABEL_SOURCE:
            return value
    return ""


def _age(pod: Pod) -> datetime:
    return pod.created_at


@dataclass(frozen=True, slots=True)
class PodRun:
    """A pod's time on a node, from its start to its end."""

    node: str
    workload: str  # of one without: its own name
    team: str
    gpus: int
    cpu_milli: int
    since: datetime
    until: datetime

    @classmethod
    def of(cls, pod: Pod, until: datetime) -> PodRun:
        requests = pod.shape.requests
        return cls(
            pod.node, pod.workload or pod.full_name, pod.terms.team, accelerators(requests),
            amount(requests, names.CPU), pod.started_at or until, until,
        )  # fmt: skip


class ApiServer:
    """Pods in order of creation, nodes by name. Objects are frozen: a change is a `put`."""

    def __init__(
        self, timeline: Timeline, journal: Journal, wake: Callable[[str], None], *, verbose: bool = False
    ) -> None:
        self.timeline = timeline
        self.journal = journal
        self.wake = wake
        self.verbose = verbose
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, KubeNode] = {}  # kept in the order of names
        self.node_infos: dict[str, NodeInfo] = {}
        self.bound_pods: BoundPods | None = None  # from the first pod on that has rules about other pods
        self.lowest_priority = 0  # of all pods there ever were: nobody with no more than that can preempt
        self.shown_only: set[str] = set()  # uids of pods that a Job is yet to make: nobody schedules them
        self.waiting: dict[str, None] = {}  # uids the scheduler may place, in order of arrival
        self.unbound: dict[str, Pod] = {}  # without a node, held ones too, in the order of `pods`
        self.work_on: Counter[str] = Counter()  # by node, bound non-daemon pods
        self.gang_changes: list[str] = []  # the name of a gang for every change of a pod of it, in order
        self.touched: list[str] = []  # the name of a node for every change of it or of a pod on it, in order
        self.replicas: dict[str, Pod] = {}  # by uid: bound pods that are neither a job's nor a daemon
        self.gpus_used: Counter[str] = Counter()  # by source label, running non-daemon pods
        self.gpus_ready: Counter[str] = Counter()  # by source label, nodes open to pods
        self.pods_on_source: Counter[str] = Counter()  # by source label, bound non-daemon pods
        self.emptied_at: dict[str, datetime] = {}  # source label -> when the last of them left
        self.pod_runs: list[PodRun] = []  # non-daemon pods that ended
        self.starts: list[Pod] = []  # non-daemon pods as they started
        # Counters: a reader that has seen the same value knows that nothing changed.
        self.pod_changes = 0
        self.node_changes = 0
        self.gpu_changes = 0
        self.layout = 0  # moves when a node's labels, taints or readiness did: static filters are stale
        self.openings = (
            0  # moves when resources may have become free: pods that did not fit are worth another look
        )
        self.request_scheduling: Callable[[], None] = lambda: (
            None
        )  # called when a waiting pod may fit somewhere
        self._bound: dict[str, dict[str, None]] = {}
        self._pods_on: dict[str, tuple[Pod, ...]] = {}  # by node; a missing entry is made when it is read
        self._pods_read: tuple[Pod, ...] | None = ()
        self._nodes_read: tuple[KubeNode, ...] | None = ()

    # --- reading ------------------------------------------------------------------------------------

    def pod(self, uid: str) -> Pod:
        pod = self.pods.get(uid)
        if pod is None:
            raise Gone(f"there is no pod {uid}")
        return pod

    def node(self, name: str) -> KubeNode:
        node = self.nodes.get(name)
        if node is None:
            raise Gone(f"there is no node {name}")
        return node

    def on(self, node: str) -> tuple[Pod, ...]:
        """Pods bound there, terminating ones and daemons included."""
        known = self._pods_on.get(node)
        if known is None:
            pods, bound = self.pods, self._bound.get(node)
            if bound is None:
                return ()
            known = self._pods_on[node] = tuple([pods[uid] for uid in bound])
        return known

    def pods_by_node(self) -> dict[str, tuple[Pod, ...]]:
        """A new dict; the tuples of nodes where nothing changed are the same objects as before."""
        known = self._pods_on
        if len(known) < len(self._bound):
            for node in self._bound.keys() - known.keys():
                self.on(node)
        return known.copy()

    def all_pods(self) -> tuple[Pod, ...]:
        if self._pods_read is None:
            pods = self.pods.values()
            # A Job that is suspended again is shown with its old age.
            self._pods_read = tuple(sorted(pods, key=_age) if self.shown_only else pods)
        return self._pods_read

    def all_nodes(self) -> tuple[KubeNode, ...]:
        if self._nodes_read is None:
            self._nodes_read = tuple(self.nodes.values())
        return self._nodes_read

    # --- pods ---------------------------------------------------------------------------------------

    def create_pod(self, pod: Pod, part_of: str) -> None:
        self.put_pod(pod)
        if self.verbose:
            self.journal.add("pod-created", pod.full_name, part_of)
        self.wake(f"{pod.full_name} was created")

    def put_pod(self, pod: Pod) -> None:
        """Create or replace. Binding (`node` filled in) takes the pod's requests out of what the node has free."""
        before = self.pods.get(pod.uid)
        self.pods[pod.uid] = pod
        self._pods_read = None
        self._pods_on.pop(pod.node, None)
        self._note_change(pod)
        if pod.node:
            self.unbound.pop(pod.uid, None)
            self.touched.append(pod.node)
            if not pod.daemon and not pod.of_job:
                self.replicas[pod.uid] = pod
        else:
            self.unbound[pod.uid] = pod
        if before is None:
            self._first_seen(pod)
        if pod.node and (before is None or not before.node):
            self._bound[pod.node][pod.uid] = None
            self.node_infos[pod.node].take(pod_requests(pod.shape))
            self._pod_moved(pod, +1)
        if pod.phase is PodPhase.RUNNING and (before is None or before.phase is not PodPhase.RUNNING):
            self._count_used(pod, +1)
            if not pod.daemon:
                self.starts.append(pod)
        held = pod.gated or pod.held_by_others or pod.uid in self.shown_only
        if pod.node or held or pod.deleting_until is not None:
            self.waiting.pop(pod.uid, None)
        else:
            if pod.uid not in self.waiting:
                self.waiting[pod.uid] = None
                self.request_scheduling()
        if self.bound_pods is not None:
            self._update_bound_pods(self.bound_pods, before, pod)

    def drop_pod(self, uid: str) -> Pod:
        pod = self.pods.pop(uid)
        self.shown_only.discard(uid)
        self._pods_read = None
        self._pods_on.pop(pod.node, None)
        self._note_change(pod)
        self.unbound.pop(uid, None)
        self.waiting.pop(uid, None)
        if pod.phase is PodPhase.RUNNING:
            self._count_used(pod, -1)
            if not pod.daemon:
                self.pod_runs.append(PodRun.of(pod, self.timeline.now()))
        if pod.node:
            del self._bound[pod.node][uid]
            self.touched.append(pod.node)
            self.replicas.pop(uid, None)
            self.node_infos[pod.node].give_back(pod_requests(pod.shape))
            if self.bound_pods is not None:
                self.bound_pods.pod_gone(pod)
            self.openings += 1
            self._pod_moved(pod, -1)
            self.request_scheduling()
        return pod

    def _note_change(self, pod: Pod) -> None:
        self.pod_changes += 1
        if pod.gang is not None:
            self.gang_changes.append(pod.gang.name)

    def _first_seen(self, pod: Pod) -> None:
        if pod.terms.priority < self.lowest_priority:
            self.lowest_priority = pod.terms.priority
        if self.bound_pods is None and has_pod_rules(pod.shape):
            others = (other for other in self.pods.values() if other is not pod)
            self.bound_pods = BoundPods(self.node_infos, others)

    def _update_bound_pods(self, bound: BoundPods, before: Pod | None, pod: Pod) -> None:
        """A bound pod can satisfy the affinity of another, and one that leaves can even out a spread."""
        if not pod.node:
            return
        if before is None or not before.node:
            bound.pod_bound(pod)
        elif pod.deleting_until is not None and before.deleting_until is None:
            bound.pod_terminating(pod)
        else:
            return
        self.openings += 1
        self.request_scheduling()

    def _count_used(self, pod: Pod, sign: int) -> None:
        count = 0 if pod.daemon else accelerators(pod.shape.requests)
        if count:
            self.gpus_used[source_of(self.nodes[pod.node])] += sign * count
            self.gpu_changes += 1

    def _pod_moved(self, pod: Pod, sign: int) -> None:
        """Idle timers start from here. Daemon pods do not count: they come with the node."""
        if not pod.daemon:
            node = self.nodes[pod.node]
            source = source_of(node)
            self.pods_on_source[source] += sign
            self.work_on[pod.node] += sign
            if self.pods_on_source[source] == 0:
                self.emptied_at[source] = self.timeline.now()
            self.nodes[pod.node] = self.node_infos[pod.node].node = replace(
                node, last_pod_event_at=self.timeline.now()
            )
            self._nodes_read = None
            self.node_changes += 1

    # --- nodes --------------------------------------------------------------------------------------

    def add_node(self, node: KubeNode, capacity: Amounts) -> None:
        """`capacity` is what the scheduler counts on; the kubelet may not have all of it yet."""
        self.node_infos[node.name] = NodeInfo(node, capacity)
        self._bound[node.name] = {}
        self._write_node(None, node)
        self.nodes = dict(sorted(self.nodes.items()))

    def put_node(self, node: KubeNode) -> None:
        before = self.nodes[node.name]
        self.node_infos[node.name].node = node
        self._write_node(before, node)

    def drop_node(self, name: str) -> KubeNode:
        """Its pods must be gone already."""
        assert not self._bound[name], f"{name} still has pods"
        node = self.nodes.pop(name)
        del self.node_infos[name], self._bound[name], self.work_on[name]
        self._pods_on.pop(name, None)
        self._count_ready(node, -1)
        self._nodes_read = None
        self.touched.append(name)
        self.node_changes += 1
        self.layout += 1
        self.request_scheduling()
        return node

    def _write_node(self, before: KubeNode | None, node: KubeNode) -> None:
        self.nodes[node.name] = node
        self._nodes_read = None
        self.touched.append(node.name)
        self.node_changes += 1
        self.layout += 1
        self.openings += 1
        if before is not None:
            self._count_ready(before, -1)
        self._count_ready(node, +1)
        self.request_scheduling()

    def _count_ready(self, node: KubeNode, sign: int) -> None:
        opened = node.ready and all(taint.key != names.TAINT_STARTUP for taint in node.taints)
        count = accelerators(node.allocatable) if opened and node.check != "failed" else 0
        if count:
            self.gpus_ready[source_of(node)] += sign * count
            self.gpu_changes += 1
