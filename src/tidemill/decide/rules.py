"""What the Kubernetes scheduler would say: selectors, taints and resources, and nothing of ours."""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.spec import names
from tidemill.world import Amounts, Pod, PodShape, Taint, Toleration


def tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    for one in tolerations:
        if one.effect and one.effect != taint.effect:
            continue
        if one.operator == "Exists" and one.key in ("", taint.key):
            return True
        if one.operator == "Equal" and one.key == taint.key and one.value == taint.value:
            return True
    return False


def admits(shape: PodShape, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> bool:
    """Selector and taints, without resources; the host name is asked for separately (`wants_host`)."""
    for key, value in shape.node_selector:
        if labels.get(key) != value and key != names.LABEL_HOSTNAME:
            return False
    for taint in taints:
        if taint.effect != "PreferNoSchedule" and not tolerates(shape.tolerations, taint):
            return False
    return True


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
