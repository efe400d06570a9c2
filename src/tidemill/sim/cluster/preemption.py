"""Which pods to delete so that a more important pod fits: kube-scheduler's preemption.

On each node all pods of lower priority are left out of the count; those that can stay after all are put back, the
most important first. Of the nodes that would do, the one whose loss is smallest. It only reads: every count is as
before when it returns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tidemill.model.pods import Pod
from tidemill.sim.cluster.api_server import ApiServer
from tidemill.sim.cluster.scheduler_cache import BoundPods, NodeInfo, pod_requests


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node, and the pods that would have to leave it."""

    info: NodeInfo
    victims: tuple[Pod, ...]  # empty: the pods that are terminating there free enough
    over_budget: int  # how many of them a disruption budget would protect

    @property
    def loss(self) -> tuple[object, ...]:
        """In the order in which kube-scheduler compares: budgets, the highest priority, all priorities, how many."""
        priorities = sorted((pod.terms.priority for pod in self.victims), reverse=True)
        # Of equally important victims the youngest have lost least.
        started = max((-_started(pod).timestamp() for pod in self.victims), default=0.0)
        return (
            self.over_budget,
            priorities[:1],
            sum(priorities),
            len(priorities),
            started,
            self.info.node.name,
        )


def find_candidate(
    pod: Pod,
    nodes: Iterable[NodeInfo],
    api: ApiServer,
    fits: Callable[[NodeInfo], bool],
    allowances: Mapping[str, int],
) -> Candidate | None:
    """`fits` judges a node as the cluster stands at that moment; `allowances` are the budgets', by workload."""
    candidates = (_candidate(pod, info, api, fits, allowances) for info in nodes)
    return min(
        (candidate for candidate in candidates if candidate is not None),
        key=lambda candidate: candidate.loss,
        default=None,
    )


def _candidate(
    pod: Pod,
    info: NodeInfo,
    api: ApiServer,
    fits: Callable[[NodeInfo], bool],
    allowances: Mapping[str, int],
) -> Candidate | None:
    lower = [
        other
        for other in api.on(info.node.name)
        if not other.daemon and other.terms.priority < pod.terms.priority
    ]
    if not lower:
        return None
    bound = api.bound_pods
    for other in lower:
        _leave_out(info, bound, other)
    if not fits(info):
        for other in lower:
            _put_back(info, bound, other)
        return None
    protected = _protected(lower, allowances)
    staying = [other for other in lower if other.deleting_until is None]
    # Protected ones are the first to be put back, then the most important, then those that started first.
    staying.sort(key=lambda other: (other.uid not in protected, -other.terms.priority, _started(other)))
    victims = []
    for other in staying:
        _put_back(info, bound, other)
        if not fits(info):
            _leave_out(info, bound, other)
            victims.append(other)
    for other in (*victims, *(other for other in lower if other.deleting_until is not None)):
        _put_back(info, bound, other)
    return Candidate(info, tuple(victims), sum(victim.uid in protected for victim in victims))


def _protected(pods: Iterable[Pod], allowances: Mapping[str, int]) -> set[str]:
    """Those that a budget would not let go any more, if they left in order of priority and age."""
    protected, leaving = set(), Counter[str]()
    for pod in sorted(pods, key=lambda pod: (-pod.terms.priority, _started(pod))):
        if pod.ready and pod.deleting_until is None and pod.workload in allowances:
            leaving[pod.workload] += 1
            if leaving[pod.workload] > allowances[pod.workload]:
                protected.add(pod.uid)
    return protected


def _started(pod: Pod) -> datetime:
    return pod.started_at or pod.created_at


def _leave_out(info: NodeInfo, bound: BoundPods | None, pod: Pod) -> None:
    info.give_back(pod_requests(pod.shape))
    if bound is not None:
        bound.pod_gone(pod)


def _put_back(info: NodeInfo, bound: BoundPods | None, pod: Pod) -> None:
    info.take(pod_requests(pod.shape))
    if bound is not None:
        bound.pod_bound(pod)
