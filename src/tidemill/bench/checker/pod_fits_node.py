"""May this pod run on this node? Labels, taints, volumes and groups.

The Kubernetes rules are those of the simulated scheduler, which shares no code with the packer. Rules about other
pods are in `spread` and `affinity`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.bench.checker.hosts import Host
from tidemill.decide.packer.problem import PendingPod
from tidemill.sim.cluster.scheduler_filters import matches_node_affinity, reaches_volumes, untolerated_taint


def node_faults(pod: PendingPod, host: Host) -> Iterator[tuple[str, str]]:
    """Every rule between this pod and this node that does not hold, as (kind, what is wrong)."""
    shape = pod.shape
    if not matches_node_affinity(shape, host.labels):
        yield "node-affinity", "its node selector or required node affinity does not match the labels"
    taint = untolerated_taint(shape.tolerations, host.taints)
    if taint is not None:
        yield "taint", f"it does not tolerate {taint.key}={taint.value}:{taint.effect}"
    if not reaches_volumes(shape, host.labels):
        yield "volume-zone", f"its volumes can be reached from {', '.join(shape.volume_zones)} only"
    if host.group in pod.refuses:
        yield "refused", f"it may not use {host.group}"


def eligibility_key(pod: PendingPod) -> tuple[object, ...]:
    """All that `node_faults` reads of a pod: pods with equal keys have the same faults on the same kind of node."""
    shape = pod.shape
    return (
        shape.node_selector,
        shape.node_terms,
        shape.tolerations,
        shape.volume_zones,
        pod.refuses,
    )
