"""What kube-scheduler would say of one pod and one node. None of our own rules are here.

Selectors, required node affinity, taints, volume zones and resources. Rules about where *other* pods are need
more than one node and are not here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidemill.model.labels import Expression, Selector, Taint, Toleration
from tidemill.model.pods import PodShape
from tidemill.spec import names

HostPort = tuple[str, int, str]  # protocol, port, host IP
_EVERY_ADDRESS = ("", "0.0.0.0")
_INTEGER = re.compile(r"[+-]?[0-9]+")  # what Go's ParseInt reads; Python's int() would also take "1_000"
_INT64 = range(-(2**63), 2**63)  # ... and what it has room for


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    return all(holds(one, labels) for one in selector)


def holds(one: Expression, labels: Mapping[str, str]) -> bool:
    value = labels.get(one.key)
    match one.operator:
        case "In":
            return value in one.values
        case "NotIn":  # true where the label is absent, as in Kubernetes
            return value not in one.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(one, value)
    return False


def _compares(one: Expression, value: str | None) -> bool:
    """Whole numbers of 64 bits only: anything else compares as false, as in Kubernetes."""
    if value is None or len(one.values) != 1:
        return False
    if not (_INTEGER.fullmatch(value) and _INTEGER.fullmatch(one.values[0])):
        return False
    here, bound = int(value), int(one.values[0])
    if here not in _INT64 or bound not in _INT64:
        return False
    return here > bound if one.operator == "Gt" else here < bound


def tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    for toleration in tolerations:
        if toleration.effect and toleration.effect != taint.effect:
            continue
        if toleration.operator == "Exists" and toleration.key in ("", taint.key):
            return True
        if toleration.operator == "Equal" and toleration.key == taint.key and toleration.value == taint.value:
            return True
    return False


def tolerated(shape: PodShape, taints: tuple[Taint, ...]) -> bool:
    for taint in taints:
        if taint.effect != "PreferNoSchedule" and not tolerates(shape.tolerations, taint):
            return False
    return True


def wanted(shape: PodShape, labels: Mapping[str, str]) -> bool:
    """Node selector and required node affinity: what a pod says of nodes."""
    for key, value in shape.node_selector:
        if labels.get(key) != value:
            return False
    return _affine(shape, labels)


def reaches_volumes(shape: PodShape, labels: Mapping[str, str]) -> bool:
    return not shape.volume_zones or labels.get(names.LABEL_ZONE) in shape.volume_zones


def admitted(shape: PodShape, labels: Mapping[str, str]) -> bool:
    """Node selector, required node affinity and the zones of its volumes."""
    return wanted(shape, labels) and reaches_volumes(shape, labels)


def admits(shape: PodShape, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> bool:
    """As `admitted`, and taints; a host its selector names is asked for separately (`wants_host`)."""
    for key, value in shape.node_selector:
        if labels.get(key) != value and key != names.LABEL_HOSTNAME:
            return False
    return _affine(shape, labels) and reaches_volumes(shape, labels) and tolerated(shape, taints)


def _affine(shape: PodShape, labels: Mapping[str, str]) -> bool:
    return not shape.node_terms or any(selects(term, labels) for term in shape.node_terms)


def wants_host(shape: PodShape) -> str:
    """The host that a pod's node selector names; empty: any."""
    for key, value in shape.node_selector:
        if key == names.LABEL_HOSTNAME:
            return value
    return ""


def ports_clash(one: HostPort, other: HostPort) -> bool:
    """Same protocol and port, on addresses that meet."""
    if (one[0] or "TCP", one[1]) != (other[0] or "TCP", other[1]):
        return False
    return one[2] == other[2] or one[2] in _EVERY_ADDRESS or other[2] in _EVERY_ADDRESS
