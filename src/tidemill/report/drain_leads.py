"""Why a source starts to drain when it does: the pods that make its lead long, told in advance.

Computed from the same parts as the lead itself; what it names is what one would change to drain later.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from tidemill.decide.context import Draft, Life
from tidemill.decide.handover.durations import at_once, services_lead
from tidemill.decide.handover.methods import in_effect
from tidemill.decide.nodes import SHORTEST_LEAD, pod_lead
from tidemill.model.world import Method, Pod
from tidemill.spec.units import format_duration

_NAMED = 3


def slowest(draft: Draft, lives: list[Life]) -> tuple[timedelta | None, tuple[str, ...]]:
    """The longest lead of these nodes and who asks for it; nobody, where it is the shortest there is."""
    drained = [life for life in lives if life.deadline is not None and life.drain_from is not None]
    leads = {
        id(life): life.deadline - life.drain_from for life in drained if life.deadline and life.drain_from
    }
    if not leads:
        return None, ()
    lead = max(leads.values())
    first = [life for life in drained if leads[id(life)] == lead]
    names = [] if lead <= SHORTEST_LEAD else sorted({*_asking(draft, first, lead)})
    more = (f"and {len(names) - _NAMED} more",) if len(names) > _NAMED else ()
    return lead, (*names[:_NAMED], *more)


def _asking(draft: Draft, lives: list[Life], lead: timedelta) -> Iterator[str]:
    for life in lives:
        pool = life.pool
        checkpoint = pool.spec.drain.checkpoint if pool is not None else True
        if pool is not None and pool.spec.drain.lead == lead:
            yield f"pool {pool.name} asks for {format_duration(lead)}"
        for pod in life.pods:
            if pod_lead(pod, checkpoint=checkpoint) == lead:
                yield f"{pod.full_name} ({_needs(pod, checkpoint)})"
    deadline = lives[0].deadline
    assert deadline is not None
    services: dict[str, list[Pod]] = {}
    for pod in draft.moving_together(lives, deadline):
        services.setdefault(pod.workload, []).append(pod)
    for workload, pods in services.items():
        if services_lead(timedelta(0), pods, draft.workloads, draft.disruptions_at_once) == lead:
            yield from _moving(draft, workload, len(pods))


def _moving(draft: Draft, name: str, leaving: int) -> Iterator[str]:
    """Of a service without a minimum all go at once: it asks for no time of its own."""
    workload, allowed = draft.workloads.get(name), draft.disruptions_at_once.get(name)
    method = in_effect(workload, draft.workloads) if workload is not None else Method.EVICT
    if workload is not None and method is not Method.EVICT:
        count = at_once(workload, method, leaving, allowed or 1)
        yield f"{name} ({workload.replicas} replicas by {method.value}, {count} at a time)"
    elif allowed is not None:
        yield f"{name} ({leaving} replicas, {allowed} at a time)"


def _needs(pod: Pod, checkpoint: bool) -> str:
    grace = f"{format_duration(pod.terms.grace)} grace"
    if checkpoint and pod.terms.checkpoint_every is not None and pod.terms.checkpoint_time:
        return f"{grace}, {format_duration(pod.terms.checkpoint_time)} checkpoint"
    return grace
