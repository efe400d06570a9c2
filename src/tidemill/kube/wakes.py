"""Which changes of the cluster wake the engine, and what is said of them. The list is that of `ports.Cluster`."""

from __future__ import annotations

from tidemill.model.nodes import KubeNode
from tidemill.model.pods import Pod, Workload


def of_pod(before: Pod | None, after: Pod | None, *, failed: bool = False) -> str:
    """Empty: it changes no decision. A pod that merely starts does not."""
    pod = after or before
    if pod is None or pod.daemon:
        return ""
    if before is None:
        return f"{pod.full_name} was created"
    if after is None:
        return f"{pod.full_name} {'failed' if failed else 'is gone'}"
    if after.checkpoint_done_at != before.checkpoint_done_at and after.checkpoint_done_at is not None:
        return f"{pod.full_name} wrote its checkpoint"
    if after.node and not before.node and after.ends_at is None:
        return f"{pod.full_name} was bound to {after.node}"
    if (before.held_by_others and not after.held_by_others) or (before.gated != after.gated and after.gated):
        return f"{pod.full_name} waits for us"
    if after.deleting_until is not None and before.deleting_until is None:
        return f"{pod.full_name} is being deleted"
    return ""


def of_node(before: KubeNode | None, after: KubeNode | None) -> str:
    if before is None or after is None:
        node = before or after
        assert node is not None
        return f"{node.name} {'joined' if before is None else 'is gone'}"
    if before.ready != after.ready:
        return f"{after.name} is {'Ready' if after.ready else 'NotReady'}"
    if before.accelerators_registered_at is None and after.accelerators_registered_at is not None:
        return f"{after.name} registered its accelerators"
    if before.check != after.check:
        return f"{after.name} was checked"
    if before.allocatable != after.allocatable:
        return f"{after.name} has other resources"
    if before.taints != after.taints or before.unschedulable != after.unschedulable:
        return f"{after.name} has other taints"
    return ""


def of_workload(before: Workload | None, after: Workload | None) -> str:
    one = after or before
    assert one is not None
    if before is None or after is None:
        return f"{one.name} {'was created' if before is None else 'is gone'}"
    if before.ready != after.ready:
        return f"{one.name} has {after.ready} ready replicas"
    if before.replicas != after.replicas or before.rolling != after.rolling:
        return f"{one.name} changed"
    return ""
