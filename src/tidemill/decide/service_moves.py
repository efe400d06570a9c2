"""How a service moves: by rollout, scale, pair or eviction; what each method needs, and how long it takes.

Without what a method needs nothing is promised, and replicas are evicted. Durations are measured where anything was:
nodes and pods carry their own instants, so nothing need be remembered. A high percentile is taken and not the mean:
a node that is slower than usual must be in time too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import Literal

from tidemill.decide.deadlines import MARGIN, REPLACEMENT_START, SIGNAL_LAG, waves_lead
from tidemill.model.nodes import Node
from tidemill.model.pods import Method, Pod, Terms, Workload
from tidemill.model.warning_reasons import MissingRequirement, RequirementKind
from tidemill.spec.default_durations import BOOT, LOAD

Workloads = Mapping[str, Workload]


def in_effect(workload: Workload, workloads: Workloads) -> Method:
    """How it will move: as it asks, or by eviction if a precondition of that method is not met."""
    asked = workload.method or Method.EVICT
    return Method.EVICT if asked is not Method.EVICT and lacking(workload, workloads) else asked


def lacking(workload: Workload, workloads: Workloads) -> tuple[MissingRequirement, ...]:
    """Which preconditions of the method it asks for are not met."""
    match workload.method:
        case Method.ROLLOUT:
            return tuple(_for_rollout(workload))
        case Method.SCALE:
            return tuple(_for_scale(workload))
        case Method.PAIRED:
            return tuple(_for_pair(workload, workloads))
    return ()


def _for_rollout(workload: Workload) -> list[MissingRequirement]:
    if workload.stateful:
        return [MissingRequirement(RequirementKind.ROLLOUT_OF_STATEFULSET)]
    found = []
    if workload.max_surge < 1:
        found.append(MissingRequirement(RequirementKind.MAX_SURGE))
    if workload.max_unavailable > 0:
        found.append(MissingRequirement(RequirementKind.MAX_UNAVAILABLE, count=workload.max_unavailable))
    return found


def _for_scale(workload: Workload) -> list[MissingRequirement]:
    if workload.stateful:
        return [MissingRequirement(RequirementKind.SCALE_OF_STATEFULSET)]
    return _may_scale(workload)


def _may_scale(workload: Workload) -> list[MissingRequirement]:
    if workload.may_scale:
        return []
    return [MissingRequirement(RequirementKind.MAY_SCALE)]


def _for_pair(workload: Workload, workloads: Workloads) -> list[MissingRequirement]:
    found = _may_scale(workload)
    pair = workloads.get(workload.pair)
    if not workload.pair:
        found.append(MissingRequirement(RequirementKind.PAIR_NAMED))
    elif pair is None:
        found.append(MissingRequirement(RequirementKind.PAIR_DEPLOYED, workload.pair))
    elif pair.shape.node_selector == workload.shape.node_selector:
        found.append(MissingRequirement(RequirementKind.PAIR_ON_OTHER_NODES, pair.name))
    return found


# The 90th percentile. Of fewer than ten samples it is the slowest.
HIGH = 0.9


@dataclass(frozen=True, slots=True)
class Span:
    """How long something takes, and where the figure comes from."""

    length: timedelta
    basis: Literal["measured", "declared", "default"]
    samples: int = 0


def high(samples: list[timedelta]) -> timedelta:
    return sorted(samples)[ceil(HIGH * len(samples)) - 1]


def boots(nodes: Iterable[Node]) -> list[timedelta]:
    """From the launch call until a node takes pods: boot, join, registration and check, sorted."""
    return sorted(
        node.kube.opened_at - node.instance.launched_at
        for node in nodes
        if node.kube is not None and node.instance is not None and node.kube.opened_at is not None
    )


def nth_of(samples: list[timedelta], place: int, count: int) -> timedelta:
    """Of `count` that begin together: when the n-th (from 0) is done, if they behave like the samples."""
    return samples[ceil((place + 1) / count * len(samples)) - 1]


def loading(terms: Terms, pods: Iterable[Pod]) -> Span:
    """From container start until a replica is Ready."""
    taken = [
        pod.ready_at - pod.started_at
        for pod in pods
        if pod.ready_at is not None and pod.started_at is not None and pod.ready_at >= pod.started_at
    ]
    if taken:
        return Span(high(taken), "measured", len(taken))
    return Span(terms.load, "declared") if terms.load else Span(LOAD, "default")


def starting(pods: Iterable[Pod]) -> timedelta:
    """From binding to a running container, the median: over many waves slow and quick ones even out."""
    taken = [
        pod.started_at - pod.bound_at
        for pod in pods
        if pod.started_at is not None and pod.bound_at is not None and pod.started_at >= pod.bound_at
    ]
    return sorted(taken)[len(taken) // 2] if taken else REPLACEMENT_START


def at_once(workload: Workload, method: Method, leaving: int, allowed: int) -> int:
    """How many replicas move at one time; `allowed`: how many may be away."""
    if method is Method.ROLLOUT:
        return max(1, workload.max_surge)
    return max(1, leaving if method in (Method.SCALE, Method.PAIRED) else allowed)


def waves(workload: Workload, method: Method, leaving: int, allowed: int) -> int:
    """A rollout replaces every replica, wherever it is."""
    moving = workload.replicas if method is Method.ROLLOUT else leaving
    return -(-moving // at_once(workload, method, leaving, allowed))


def move_time(workload: Workload, method: Method, count: int, load: timedelta) -> timedelta:
    """How long `count` waves take once there is room, the grace of the last one included.

    What is made before it is broken is done before the old ones' own turn comes, which is when pods hear of their end.
    """
    step = REPLACEMENT_START + load
    if method is Method.EVICT:
        return count * (step + workload.terms.grace)
    return count * step + workload.terms.grace + SIGNAL_LAG


def services_lead(
    longest: timedelta,
    pods: list[Pod],
    workloads: Mapping[str, Workload],
    disruptions_at_once: dict[str, int],
    method_of: Callable[[Workload], Method],
    nodes_asked_for: Callable[[str, int], int],
) -> timedelta:
    """How early a source must start to drain for the services on it: as `waves_lead`, and each by its own method.

    `nodes_asked_for`: how many nodes so many replicas of a service may need that are not launched before they ask; who
    moves in waves asks anew in each. Of a load that is both declared and measured the longer counts. Errs early.
    """
    by_workload: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.workload in workloads:
            by_workload.setdefault(pod.workload, []).append(pod)
    methods = {name: method_of(workloads[name]) for name in by_workload}
    evicted = [pod for pod in pods if methods.get(pod.workload, Method.EVICT) is Method.EVICT]
    lead = waves_lead(longest, evicted, disruptions_at_once)
    for name, mine in by_workload.items():
        allowed = disruptions_at_once.get(name)
        if methods[name] is Method.EVICT and allowed is None:
            continue  # no minimum: all go at once
        workload = workloads[name]
        load = max(loading(workload.terms, mine).length, workload.terms.load)
        count = waves(workload, methods[name], len(mine), allowed or 1)
        moving = workload.replicas if methods[name] is Method.ROLLOUT else len(mine)
        boots = min(count, nodes_asked_for(name, moving))  # one after the other
        lead = max(lead, move_time(workload, methods[name], count, load) + boots * BOOT + MARGIN)
    return lead
