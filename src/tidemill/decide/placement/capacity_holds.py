"""Room that is kept from an instant on: for services whose source ends, or for a gang that has waited long.

A hold is dated: a job that is done before it may use the room until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tidemill.decide.context import DecisionContext, NodeView
from tidemill.decide.placement.candidate_nodes import CandidateGroup, CandidateNode, Candidates
from tidemill.decide.queue_item import QueueItem
from tidemill.decide.scheduler_rules import admits
from tidemill.model.capacity import PREPAID
from tidemill.model.pods import Pod, PodShape
from tidemill.model.resources import Resources


@dataclass(slots=True)
class CapacityHold:
    """From an instant on, in one pool: pods that still run then must fit beside what is kept."""

    since: datetime
    group: CandidateGroup  # one group with such nodes: its pool says how long a pod is assumed to run
    # The gang it is kept for: the gang and every item before it in the queue ignore the hold.
    beyond: QueueItem | None = None


def capacity_holds(candidates: Candidates) -> list[CapacityHold]:
    """One for each instant from which room is kept, in order."""
    by_instant: dict[tuple[datetime, int], CapacityHold] = {}
    for group in candidates.groups.values():
        for candidate in group.nodes:
            if candidate.claimed_from is not None:
                key = (candidate.claimed_from, id(candidate.claimed_by))
                by_instant.setdefault(key, CapacityHold(candidate.claimed_from, group, candidate.claimed_by))
    return sorted(by_instant.values(), key=lambda one: one.since)


def unclaimed(candidate: CandidateNode, held: Sequence[CapacityHold]) -> Resources:
    """What is free of it for a pod that must respect these holds."""
    if any(candidate.claimed_from == one.since and candidate.claimed_by is one.beyond for one in held):
        return candidate.unclaimed()
    return candidate.free


def hold_for_services(context: DecisionContext, candidates: Candidates) -> None:
    """For every replica on a source that ends: the first prepaid node of its pool that outlives the source."""
    leaving = [
        (view.drain_from, view, pod)
        for view in context.views
        if view.facts.movers and view.drain_from is not None
        for pod in view.facts.movers
    ]
    rooms = list(candidates.all_nodes()) if leaving else []
    under_way = _under_way(context) if leaving else {}
    for when, view, pod in sorted(leaving, key=lambda one: (one[0], one[1].node.name, one[2].name)):
        if under_way.get(pod.workload, 0) > 0:
            under_way[pod.workload] -= 1
            continue
        shape = _goes_as(context, pod)
        candidate = next(
            (candidate for candidate in rooms if _suits(candidate, view, shape, pod.shape is not shape)), None
        )
        if candidate is not None:
            candidate.claim(shape.requests, when)


def _under_way(context: DecisionContext) -> dict[str, int]:
    """By workload that creates new replicas before the old ones go: how many. Those are pending pods already."""
    found: dict[str, int] = {}
    for workload in context.workloads.values():
        if workload.added:
            found[workload.name] = workload.added
        elif workload.rolling:
            found[workload.name] = workload.replicas
        elif workload.pair and workload.replicas and context.workloads.get(workload.pair) is not None:
            found[workload.name] = context.workloads[workload.pair].replicas
    return found


def _goes_as(context: DecisionContext, pod: Pod) -> PodShape:
    """The shape of its replacement: its own, or that of the workload it is paired with."""
    workload = context.workloads.get(pod.workload)
    pair = context.workloads.get(workload.pair) if workload is not None else None
    return pair.shape if pair is not None else pod.shape


def _suits(candidate: CandidateNode, view: NodeView, shape: PodShape, elsewhere: bool) -> bool:
    group = candidate.group
    if group.template is None or group.source == view.source:
        return False
    if not elsewhere and group.template is not view.facts.template:
        return False
    if group.source.kind not in PREPAID:
        return False  # hourly nodes are launched when the replicas come; keeping them would only cost money
    ends, leaves = group.end.drain_from, view.deadline
    if ends is not None and leaves is not None and ends <= leaves:
        return False
    return admits(shape, group.labels, group.taints) and candidate.unclaimed().fits(shape.requests)
