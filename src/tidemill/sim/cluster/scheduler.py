"""Which pod goes to which node: kube-scheduler's filters, scores, most-allocated packing, its own messages.

`Scheduler` runs a pass one second after anything changed that could let a waiting pod in. The rules are in
`scheduler_filters` and `pod_filters`, preferences in `scoring`, preemption in `preemption`. It knows no job, no
service, no deadline and no rule of the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta

from tidemill.model.nodes import KubeNode
from tidemill.model.pods import Pod, PodShape
from tidemill.model.resources import Amounts
from tidemill.sim.cluster.api_server import ApiServer
from tidemill.sim.cluster.pod_filters import PodFilters, SpreadDomains, spread_domains
from tidemill.sim.cluster.preemption import find_candidate
from tidemill.sim.cluster.scheduler_cache import NodeInfo, pod_requests
from tidemill.sim.cluster.scheduler_filters import matches_node_affinity, reaches_volumes, untolerated_taint
from tidemill.sim.cluster.scoring import count_soft_taints, scores
from tidemill.spec import names

_PASS_DELAY = timedelta(seconds=1)
_SELECTOR_MISMATCH = "node(s) didn't match Pod's node affinity/selector"
_NOT_READY = "node(s) had untolerated taint {node.kubernetes.io/not-ready: }"
_UNSCHEDULABLE = "node(s) were unschedulable"
_VOLUME_ZONE_CONFLICT = "node(s) had volume node affinity conflict"
_NOTHING_HELD = nullcontext()  # no resources are kept for a nominated pod


def node_rejection(shape: PodShape, pinned_to: str, node: KubeNode) -> str:
    """Why this node is out of the question whatever is free on it, in kube-scheduler's words; else empty."""
    if not node.ready:
        return _NOT_READY
    if node.unschedulable:
        return _UNSCHEDULABLE
    labels = dict(node.labels)
    if pinned_to and labels.get(names.LABEL_SOURCE) != pinned_to:
        return _SELECTOR_MISMATCH
    if not matches_node_affinity(shape, labels):
        return _SELECTOR_MISMATCH
    taint = untolerated_taint(shape.tolerations, node.taints)
    if taint is not None:
        return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    return "" if reaches_volumes(shape, labels) else _VOLUME_ZONE_CONFLICT


def choose(requests: Amounts, nodes: Iterable[NodeInfo]) -> NodeInfo | None:
    """The fullest node it still fits on. `nodes` come by name, so that among equals the first name wins."""
    best, least_left = None, float("inf")
    for info in nodes:
        left = info.free_share_after(requests)
        if left is not None and left < least_left:
            best, least_left = info, left
            if not left:
                break
    return best


def explain(requests: Amounts, nodes: Sequence[NodeInfo], rejections: Counter[str]) -> str:
    """The message kube-scheduler would leave on a pod that fits nowhere."""
    total = len(nodes) + rejections.total()
    if not total:
        return "no nodes available to schedule pods"
    counts = (
        Counter(f"Insufficient {name}" for info in nodes for name in info.insufficient(requests)) + rejections
    )
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
    return f"0/{total} nodes are available: {reasons}."


@dataclass(slots=True)
class _SchedulingClass:
    """Pods of one shape, pin, namespace and priority: one question with one answer."""

    layout: int = -1  # of the cluster when all but the last two were worked out
    nodes: list[NodeInfo] = field(default_factory=list)
    rejections: Counter[str] = field(default_factory=Counter)
    has_preferences: bool = False  # it likes some of the nodes better, by their labels and taints
    spread_over: tuple[SpreadDomains, ...] = ()
    preferred_spread_over: tuple[SpreadDomains, ...] = ()  # the same for ScheduleAnyway
    full_at: int = -1  # `openings` when nothing fitted: until that moves, nothing will
    message: str = ""


class Scheduler:
    """Runs one pass per instant, and none when nothing waits or nothing could have changed."""

    def __init__(
        self,
        api: ApiServer,
        bind: Callable[[Pod, str], None],
        preempt: Callable[[Pod, Pod], None],
        allowances: Callable[[], Mapping[str, int]],
    ) -> None:
        """`preempt` deletes the first pod for the second; `allowances` are the disruption budgets'."""
        self._api = api
        self._bind = bind
        self._preempt = preempt
        self._allowances = allowances
        self._classes: dict[tuple[PodShape, str, str, int], _SchedulingClass] = {}
        self.nominated: dict[str, str] = {}  # a pod whose victims are leaving -> the node they leave
        self._due = False
        self.passes = 0
        self.left_waiting: list[Callable[[], None]] = []  # called after a pass that left pods without a node

    def request_pass(self) -> None:
        """Something changed: run a pass, a second from now."""
        if not self._due and self._api.waiting:
            self._due = True
            self._api.timeline.after(_PASS_DELAY, self._pass)

    def fitting(self, pod: Pod, nodes: Iterable[str]) -> list[str]:
        """The nodes to which this pod could be bound as things are; a gate on it is not looked at."""
        pod_class, requests = self._class_of(pod), pod_requests(pod.shape)
        filters, eligible = self._pod_filters(pod, pod_class), set(map(id, pod_class.nodes))
        return [
            name
            for name in nodes
            if id(info := self._api.node_infos[name]) in eligible
            and info.free_share_after(requests) is not None
            and (filters is None or not filters.rejection(info))
        ]

    def _pass(self) -> None:
        self._due = False
        self.passes += 1
        if self.nominated:
            self._forget_nominees()
        waiting = [self._api.pods[uid] for uid in self._api.waiting]
        waiting.sort(key=lambda pod: (-pod.terms.priority, pod.created_at, pod.name))
        for pod in waiting:
            if pod.uid in self._api.waiting:  # binding another may have failed a gang and let this one go
                self._schedule(pod)
        if self._api.waiting:
            for listener in self.left_waiting:
                listener()

    def _schedule(self, pod: Pod) -> None:
        pod_class = self._class_of(pod)
        if pod_class.full_at != self._api.openings:
            with self._holding_back(pod) if self.nominated else _NOTHING_HELD:
                info = self._node_for(pod, pod_class)
                if info is None:
                    pod_class.message = self._explanation(pod, pod_class)
            if info is not None:
                self.nominated.pop(pod.uid, None)
                self._bind(pod, info.node.name)
                return
            pod_class.full_at = self._api.openings
            if pod.terms.priority > self._api.lowest_priority:
                self._preempt_for(pod, pod_class)
        if pod.message != pod_class.message:
            self._api.put_pod(replace(pod, message=pod_class.message))

    def _class_of(self, pod: Pod) -> _SchedulingClass:
        shape = pod.shape
        key = (shape, pod.pinned_to, pod.namespace, pod.terms.priority)
        pod_class = self._classes.get(key)
        if pod_class is None:
            pod_class = self._classes[key] = _SchedulingClass()
        if pod_class.layout != self._api.layout:
            pod_class.layout, pod_class.full_at = self._api.layout, -1
            pod_class.nodes, pod_class.rejections = [], Counter()
            nodes = [self._api.node_infos[name] for name in self._api.nodes]
            for info in nodes:
                reason = node_rejection(shape, pod.pinned_to, info.node)
                if reason:
                    pod_class.rejections[reason] += 1
                else:
                    pod_class.nodes.append(info)
            pod_class.has_preferences = bool(shape.preferred_nodes) or any(
                count_soft_taints(shape, info) for info in pod_class.nodes
            )
            if shape.spread:
                pod_class.spread_over = spread_domains(shape, pod.pinned_to, nodes, hard=True)
                pod_class.preferred_spread_over = spread_domains(shape, pod.pinned_to, nodes, hard=False)
        return pod_class

    # --- one pod and all nodes ----------------------------------------------------------------------

    def _node_for(self, pod: Pod, pod_class: _SchedulingClass) -> NodeInfo | None:
        requests, bound = pod_requests(pod.shape), self._api.bound_pods
        if bound is None and not pod_class.has_preferences:
            return choose(requests, pod_class.nodes)
        filters = self._pod_filters(pod, pod_class)
        fitting = [
            (info, left)
            for info in pod_class.nodes
            if (left := info.free_share_after(requests)) is not None
            and (filters is None or not filters.rejection(info))
        ]
        nodes = [info for info, _ in fitting]
        if len(nodes) < 2:
            return nodes[0] if nodes else None
        scored = scores(pod.shape, pod.namespace, nodes, bound, pod_class.preferred_spread_over)
        order = range(len(fitting))  # of equals the first name, as `choose` does
        return nodes[min(order, key=lambda index: (-scored[index], fitting[index][1], index))]

    def _pod_filters(self, pod: Pod, pod_class: _SchedulingClass) -> PodFilters | None:
        bound = self._api.bound_pods
        if bound is None:
            return None
        return PodFilters(pod.shape, pod.namespace, bound, pod_class.spread_over)

    def _explanation(self, pod: Pod, pod_class: _SchedulingClass) -> str:
        requests, filters = pod_requests(pod.shape), self._pod_filters(pod, pod_class)
        if filters is None:
            return explain(requests, pod_class.nodes, pod_class.rejections)
        too_small = [info for info in pod_class.nodes if info.insufficient(requests)]
        rejected = Counter(
            reason
            for info in pod_class.nodes
            if not info.insufficient(requests) and (reason := filters.rejection(info))
        )
        return explain(requests, too_small, pod_class.rejections + rejected)

    # --- preemption ---------------------------------------------------------------------------------

    def _preempt_for(self, pod: Pod, pod_class: _SchedulingClass) -> None:
        """A pod whose victims are still leaving preempts nobody else until they have left."""
        api, nominated = self._api, self.nominated.get(pod.uid)
        if nominated is not None and any(other.deleting_until is not None for other in api.on(nominated)):
            return
        requests = pod_requests(pod.shape)

        def fits(info: NodeInfo) -> bool:
            if info.free_share_after(requests) is None:
                return False
            filters = self._pod_filters(pod, pod_class)
            return filters is None or not filters.rejection(info)

        with self._holding_back(pod):
            candidate = find_candidate(pod, pod_class.nodes, api, fits, self._allowances())
        self.nominated.pop(pod.uid, None)
        if candidate is not None:
            self.nominated[pod.uid] = candidate.info.node.name
            for victim in candidate.victims:
                if victim.uid in api.pods:  # the end of one can end its whole job
                    self._preempt(api.pods[victim.uid], pod)
            api.openings += 1  # the next of its kind has another question: what else could be freed?

    @contextmanager
    def _holding_back(self, pod: Pod) -> Iterator[None]:
        """What is being freed for others of no lower priority counts as taken; their pod rules do not yet."""
        held = []
        for uid, node in self.nominated.items():
            other = self._api.pods.get(uid)
            if other is not None and uid != pod.uid and other.terms.priority >= pod.terms.priority:
                held.append((self._api.node_infos[node], pod_requests(other.shape)))
        for info, requests in held:
            info.take(requests)
        try:
            yield
        finally:
            for info, requests in held:
                info.give_back(requests)

    def _forget_nominees(self) -> None:
        """Those that do not wait any more, and those whose node has gone."""
        over = [
            uid
            for uid, node in self.nominated.items()
            if uid not in self._api.waiting or node not in self._api.nodes
        ]
        for uid in over:
            del self.nominated[uid]
        self._api.openings += bool(over)
