"""What a service of a scenario consists of: its Deployment or StatefulSet, its pair, and how both look from outside."""

from __future__ import annotations

from dataclasses import replace

from tidemill.model.pods import Method, Workload
from tidemill.sim.cluster.workloads import ServiceTruth, SetTruth, resolved


def sets_of(truth: ServiceTruth) -> list[SetTruth]:
    """The set itself and, where it has somewhere else to run, the one it is paired with, at nothing."""
    service, how = truth.service, truth.service.handover
    surge = resolved(how.max_surge, service.replicas, up=True) if how.kind == "Deployment" else 0
    missing = resolved(how.max_unavailable, service.replicas, up=False) if how.kind == "Deployment" else 1
    first = SetTruth(
        truth.workload, truth.name, truth.shape, truth.terms, service.replicas, surge,
        missing if surge or missing else 1,
    )  # fmt: skip
    if how.method != "paired" or not how.pair_node_selector:
        return [first]
    shape = replace(truth.shape, node_selector=tuple(sorted(how.pair_node_selector.items())))
    second = SetTruth(
        f"{truth.workload}-pair", f"{truth.name}-pair", shape, truth.terms, 0, surge, first.max_unavailable,
        pair=first.workload,
    )  # fmt: skip
    first.pair = second.workload
    return [first, second]


def reading(truth: ServiceTruth, one: SetTruth, ready: int) -> Workload:
    how = truth.service.handover
    return Workload(
        name=one.workload,
        namespace=truth.namespace,
        replicas=one.replicas,
        ready=ready,
        shape=one.shape,
        terms=one.terms,
        method=Method(how.method),
        min_available=how.min_available,
        max_surge=one.max_surge,
        max_unavailable=one.max_unavailable,
        may_scale=how.may_scale,
        pair=one.pair,
        added=one.added,
        restarted_for=one.restarted_for,
        rolling=bool(one.old),
    )
