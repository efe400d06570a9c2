"""What the Kubernetes scheduler would say of one pod and one node, and nothing of ours.

Selectors, required node affinity, taints, volume zones and resources. Rules about where *other* pods are need
more than one node and are not here.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.spec import names
from tidemill.world import Amounts, Expression, Pod, PodShape, Selector, Taint, Toleration


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    return all(holds(one, labels) for one in selector)


def holds(one: Expression, labels: Mapping[str, str]) -> bool:
    value = labels.get(one.key)
    match one.operator:
        case "In":
            return value in one.values
        case "NotIn":  # true of a label that is not there, as in Kubernetes
            return value not in one.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            if value is None or not value.lstrip("-").isdigit():
                return False
            bound = int(one.values[0])
            return int(value) > bound if one.operator == "Gt" else int(value) < bound
    return False


def tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    for one in tolerations:
        if one.effect and one.effect != taint.effect:
            continue
        if one.operator == "Exists" and one.key in ("", taint.key):
            return True
        if one.operator == "Equal" and one.key == taint.key and one.value == taint.value:
            return True
    return False


def tolerated(shape: PodShape, taints: tuple[Taint, ...]) -> bool:
    for taint in taints:
        if taint.effect != "PreferNoSchedule" and not tolerates(shape.tolerations, taint):
            return False
    return True


def admitted(shape: PodShape, labels: Mapping[str, str]) -> bool:
    """Node selector, required node affinity and the zones of its volumes."""
    for key, value in shape.node_selector:
        if labels.get(key) != value:
            return False
    return _placed_well(shape, labels)


def admits(shape: PodShape, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> bool:
    """As `admitted`, and taints; a host its selector names is asked for separately (`wants_host`)."""
    for key, value in shape.node_selector:
        if labels.get(key) != value and key != names.LABEL_HOSTNAME:
            return False
    return _placed_well(shape, labels) and tolerated(shape, taints)


def _placed_well(shape: PodShape, labels: Mapping[str, str]) -> bool:
    if shape.node_terms and not any(selects(term, labels) for term in shape.node_terms):
        return False
    return not shape.volume_zones or labels.get(names.LABEL_ZONE) in shape.volume_zones


def wants_host(shape: PodShape) -> str:
    """The one host a pod insists on, by its selector; empty: any."""
    for key, value in shape.node_selector:
        if key == names.LABEL_HOSTNAME:
            return value
    return ""


def fits(requests: Amounts, free: Mapping[str, int]) -> bool:
    if free.get(names.PODS, 0) < 1:
        return False
    for name, wanted in requests:
        if wanted > 0 and free.get(name, 0) < wanted:
            return False
    return True


def left_over(allocatable: Amounts, pods: tuple[Pod, ...]) -> dict[str, int]:
    """What a node has left beside the pods bound to it."""
    free = dict(allocatable)
    for pod in pods:
        for name, wanted in pod.shape.requests:
            free[name] = free.get(name, 0) - wanted
    free[names.PODS] = free.get(names.PODS, 0) - len(pods)
    return free
