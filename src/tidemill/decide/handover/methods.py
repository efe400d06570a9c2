"""What each way to move needs, and what is lacking. Without it nothing is promised, and replicas are evicted.

Facts of the documents and the cluster only; whether there is room, and when, is `outlook`'s and `steps`'.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.model.pods import Method, Workload
from tidemill.spec import names

Workloads = Mapping[str, Workload]


def in_effect(workload: Workload, workloads: Workloads) -> Method:
    """How it will move: as it asks, or by eviction if what that needs is not there."""
    asked = workload.method or Method.EVICT
    return Method.EVICT if asked is not Method.EVICT and lacking(workload, workloads) else asked


def lacking(workload: Workload, workloads: Workloads) -> tuple[str, ...]:
    """What the method it asks for needs and does not have: each with what to change."""
    match workload.method:
        case Method.ROLLOUT:
            return tuple(_for_rollout(workload))
        case Method.SCALE:
            return tuple(_for_scale(workload))
        case Method.PAIRED:
            return tuple(_for_pair(workload, workloads))
    return ()


def _is_stateful(workload: Workload) -> bool:
    return workload.name.startswith("StatefulSet/")


def _for_rollout(workload: Workload) -> list[str]:
    if _is_stateful(workload):
        return [f"a StatefulSet has no surge: annotate it {names.HANDOVER}: paired and give it a second set"]
    found = []
    if workload.max_surge < 1:
        found.append("maxSurge is 0: set it to 1 or more")
    if workload.max_unavailable > 0:
        found.append(f"maxUnavailable comes to {workload.max_unavailable}: set it to 0")
    return found


def _for_scale(workload: Workload) -> list[str]:
    if _is_stateful(workload):
        instead = f"annotate it {names.HANDOVER}: paired and give it a second set"
        return [f"a StatefulSet gives back its newest replicas and not those that should leave: {instead}"]
    return _may_scale(workload)


def _may_scale(workload: Workload) -> list[str]:
    if workload.may_scale:
        return []
    return [f'nobody says that its replicas may be changed: annotate it {names.MAY_SCALE}: "true"']


def _for_pair(workload: Workload, workloads: Workloads) -> list[str]:
    found = _may_scale(workload)
    pair = workloads.get(workload.pair)
    if not workload.pair:
        found.append(f"it names no second set: annotate it {names.HANDOVER_PAIR}: its kind and name")
    elif pair is None:
        found.append(f"there is no {workload.pair}: deploy it with 0 replicas, for another pool")
    elif pair.shape.node_selector == workload.shape.node_selector:
        found.append(f"{pair.name} selects the same nodes: give it a pool of its own")
    return found
