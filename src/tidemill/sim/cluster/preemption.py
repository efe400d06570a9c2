"""Whom to send away so that a more important pod fits: kube-scheduler's preemption.

On each node all pods of lower priority are thought away; those that can stay after all are put back, the most
important first. Of the nodes that would do, the one whose loss is smallest. Nothing is changed here for good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tidemill.model.pods import Pod
from tidemill.sim.cluster.bound_pods import Company
from tidemill.sim.cluster.free_resources import Room, needs
from tidemill.sim.cluster.objects import Objects


@dataclass(frozen=True, slots=True)
class Sacrifice:
    room: Room
    victims: tuple[Pod, ...]  # empty: those that are terminating there already make room enough
    over_budget: int  # how many of them a disruption budget would protect

    @property
    def loss(self) -> tuple[object, ...]:
        """In the order in which kube-scheduler compares: broken budgets, the highest rank, all ranks, how many."""
        ranks = sorted((pod.terms.priority for pod in self.victims), reverse=True)
        # Of equally important victims the youngest have lost least.
        begun = max((-_begun(pod).timestamp() for pod in self.victims), default=0.0)
        return (self.over_budget, ranks[:1], sum(ranks), len(ranks), begun, self.room.node.name)


def least_sacrifice(
    pod: Pod,
    rooms: Iterable[Room],
    objects: Objects,
    fits: Callable[[Room], bool],
    allowances: Mapping[str, int],
) -> Sacrifice | None:
    """`fits` judges a room as the cluster stands at that moment; `allowances` are the budgets', by workload."""
    found = (_sacrifice(pod, room, objects, fits, allowances) for room in rooms)
    return min((one for one in found if one is not None), key=lambda one: one.loss, default=None)


def _sacrifice(
    pod: Pod,
    room: Room,
    objects: Objects,
    fits: Callable[[Room], bool],
    allowances: Mapping[str, int],
) -> Sacrifice | None:
    lesser = [
        other
        for other in objects.on(room.node.name)
        if not other.daemon and other.terms.priority < pod.terms.priority
    ]
    if not lesser:
        return None
    company = objects.company
    for other in lesser:
        _away(room, company, other)
    if not fits(room):
        for other in lesser:
            _back(room, company, other)
        return None
    protected = _protected(lesser, allowances)
    staying = [other for other in lesser if other.deleting_until is None]
    # Protected ones are the first to be let off, then the most important, then the longest at work.
    staying.sort(key=lambda one: (one.uid not in protected, -one.terms.priority, _begun(one)))
    victims = []
    for other in staying:
        _back(room, company, other)
        if not fits(room):
            _away(room, company, other)
            victims.append(other)
    for other in (*victims, *(one for one in lesser if one.deleting_until is not None)):
        _back(room, company, other)
    return Sacrifice(room, tuple(victims), sum(one.uid in protected for one in victims))


def _protected(pods: Iterable[Pod], allowances: Mapping[str, int]) -> set[str]:
    """Those whose going a budget would not allow any more, were they to go in order of age."""
    found, going = set(), Counter[str]()
    for pod in sorted(pods, key=lambda one: (-one.terms.priority, _begun(one))):
        if pod.ready and pod.deleting_until is None and pod.workload in allowances:
            going[pod.workload] += 1
            if going[pod.workload] > allowances[pod.workload]:
                found.add(pod.uid)
    return found


def _begun(pod: Pod) -> datetime:
    return pod.started_at or pod.created_at


def _away(room: Room, company: Company | None, pod: Pod) -> None:
    room.give_back(needs(pod.shape))
    if company is not None:
        company.gone(pod)


def _back(room: Room, company: Company | None, pod: Pod) -> None:
    room.take(needs(pod.shape))
    if company is not None:
        company.came(pod)
