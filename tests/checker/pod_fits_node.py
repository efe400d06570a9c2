"""May this pod run on this node? Labels, taints, ports and groups, read anew from the kube-scheduler's rules.

Knows no other pod: what pods are to each other is in `neighbours`. Shares no code with the solver, on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tests.checker.hosts import Host
from tidemill.decide.packer.problem import Ask
from tidemill.model.labels import Expression, Selector, Taint, Toleration
from tidemill.model.pods import PodShape
from tidemill.spec.names import LABEL_ZONE

# PreferNoSchedule is a wish and keeps nobody out.
REPELLING = frozenset({"NoSchedule", "NoExecute"})
ANY_ADDRESS = "0.0.0.0"
_INTEGER = re.compile(r"[+-]?[0-9]+")  # what Go's ParseInt reads; Python's int() would also take "1_000"


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether every expression holds. The empty selector selects everything."""
    for expression in selector:
        if not _holds(expression, labels.get(expression.key)):
            return False
    return True


def _holds(expression: Expression, value: str | None) -> bool:
    match expression.operator:
        case "In":
            return value is not None and value in expression.values
        case "NotIn":
            return value is None or value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(expression, value)
        case unknown:
            raise ValueError(f"no such operator: {unknown!r}")


def _compares(expression: Expression, value: str | None) -> bool:
    """Gt and Lt compare integers; anything that is not one compares as false."""
    if value is None or len(expression.values) != 1:
        return False
    bound = expression.values[0]
    if not (_INTEGER.fullmatch(value) and _INTEGER.fullmatch(bound)):
        return False
    return int(value) > int(bound) if expression.operator == "Gt" else int(value) < int(bound)


def wants_node(shape: PodShape, labels: Mapping[str, str]) -> bool:
    """Node selector and required node affinity: terms are alternatives, expressions inside one all hold."""
    for key, value in shape.node_selector:
        if labels.get(key) != value:
            return False
    return not shape.node_terms or any(selects(term, labels) for term in shape.node_terms)


def untolerated(tolerations: tuple[Toleration, ...], taints: tuple[Taint, ...]) -> Taint | None:
    """The first taint that keeps the pod out."""
    for taint in taints:
        if taint.effect in REPELLING and not any(_tolerates(t, taint) for t in tolerations):
            return taint
    return None


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def ports_clash(one: tuple[str, int, str], other: tuple[str, int, str]) -> bool:
    """Same protocol and port, and addresses that meet: an empty one and 0.0.0.0 meet every other."""
    if (one[0] or "TCP", one[1]) != (other[0] or "TCP", other[1]):
        return False
    addresses = {one[2] or ANY_ADDRESS, other[2] or ANY_ADDRESS}
    return len(addresses) == 1 or ANY_ADDRESS in addresses


def misfits(ask: Ask, host: Host) -> Iterator[tuple[str, str]]:
    """Every rule that the node alone breaks for this pod, as (kind, what is wrong)."""
    shape = ask.shape
    if not wants_node(shape, host.labels):
        yield "node-affinity", "its node selector or required node affinity does not match the labels"
    taint = untolerated(shape.tolerations, host.taints)
    if taint is not None:
        yield "taint", f"it does not tolerate {taint.key}={taint.value}:{taint.effect}"
    if shape.volume_zones and host.labels.get(LABEL_ZONE) not in shape.volume_zones:
        yield "volume-zone", f"its volumes can be reached from {', '.join(shape.volume_zones)} only"
    if host.group in ask.refuses:
        yield "refused", f"it may not use {host.group}"


def suitability(ask: Ask) -> tuple[object, ...]:
    """All that `misfits` reads of an ask: equal keys get equal answers on the same kind of node."""
    shape = ask.shape
    return (
        shape.node_selector,
        shape.node_terms,
        shape.tolerations,
        shape.volume_zones,
        ask.refuses,
    )
