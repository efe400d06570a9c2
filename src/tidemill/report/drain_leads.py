"""Why a source starts to drain when it does: the pods that make its lead long, told in advance.

Computed from the same parts as the lead itself; what it names is what one would change to drain later.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from tidemill.decide.context import DecisionContext, NodeView
from tidemill.decide.deadlines import SHORTEST_LEAD, pod_lead
from tidemill.decide.service_moves import at_once, in_effect, services_lead
from tidemill.model.pods import Method, Pod
from tidemill.spec.units import format_duration

_NAMED = 3


def slowest(context: DecisionContext, views: list[NodeView]) -> tuple[timedelta | None, tuple[str, ...]]:
    """The longest lead of these nodes and who asks for it; nobody, where it is the shortest there is."""
    drained = [view for view in views if view.deadline is not None and view.drain_from is not None]
    leads = {
        id(view): view.deadline - view.drain_from for view in drained if view.deadline and view.drain_from
    }
    if not leads:
        return None, ()
    lead = max(leads.values())
    first = [view for view in drained if leads[id(view)] == lead]
    names = [] if lead <= SHORTEST_LEAD else sorted({*_asking(context, first, lead)})
    more = (f"and {len(names) - _NAMED} more",) if len(names) > _NAMED else ()
    return lead, (*names[:_NAMED], *more)


def _asking(context: DecisionContext, views: list[NodeView], lead: timedelta) -> Iterator[str]:
    for view in views:
        pool = view.pool
        checkpoint = pool.spec.drain.checkpoint if pool is not None else True
        if pool is not None and pool.spec.drain.lead == lead:
            yield f"pool {pool.name} asks for {format_duration(lead)}"
        for pod in view.pods:
            if pod_lead(pod, checkpoint=checkpoint) == lead:
                yield f"{pod.full_name} ({_needs(pod, checkpoint)})"
    deadline = views[0].deadline
    assert deadline is not None
    services: dict[str, list[Pod]] = {}
    for pod in context.moving_together(views, deadline):
        services.setdefault(pod.workload, []).append(pod)
    for workload, pods in services.items():
        if services_lead(timedelta(0), pods, context.workloads, context.disruptions_at_once) == lead:
            yield from _moving(context, workload, len(pods))


def _moving(context: DecisionContext, name: str, leaving: int) -> Iterator[str]:
    """Of a service without a minimum all go at once: it asks for no time of its own."""
    workload, allowed = context.workloads.get(name), context.disruptions_at_once.get(name)
    method = in_effect(workload, context.workloads) if workload is not None else Method.EVICT
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
