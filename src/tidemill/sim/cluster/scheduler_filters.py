"""kube-scheduler's rules about one pod and one node, read anew from its documentation and source.

The simulated scheduler and Karpenter bind by these, and the tests' checker judges by them. They share no code with
`tidemill.decide` on purpose: a wrong rule there shows as a pod that stays Pending or lands elsewhere in a rehearsal.
Rules that count the pods on other nodes are in `pod_filters`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.model.labels import Expression, Pairs, Selector, Taint, Toleration
from tidemill.model.pods import PodShape, PodTerm, Spread
from tidemill.model.resources import Amounts
from tidemill.spec import names

HostPort = tuple[str, int, str]  # protocol, port, host IP
Labels = Mapping[str, str]
# PreferNoSchedule is a preference: it filters nothing.
_FILTERING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
_ANY_ADDRESS = "0.0.0.0"
_INTEGER = re.compile(r"[+-]?[0-9]+")  # what Go's ParseInt reads; Python's int() would also take "1_000"


# --- labels -------------------------------------------------------------------------------------------


def matches(selector: Selector, labels: Labels) -> bool:
    """Whether every expression holds. The empty selector matches everything."""
    for expression in selector:
        if not matches_expression(expression, labels):
            return False
    return True


def matches_expression(expression: Expression, labels: Labels) -> bool:
    value = labels.get(expression.key)
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
    own, limit = int(value), int(bound)
    if max(abs(own), abs(limit)) >= 2**63:  # ParseInt has 64 bits, and reports the rest as an error
        return False
    return own > limit if expression.operator == "Gt" else own < limit


# --- one pod and one node -----------------------------------------------------------------------------


def matches_node_affinity(shape: PodShape, labels: Labels) -> bool:
    """NodeAffinity: the node selector, and one of the required terms."""
    for key, value in shape.node_selector:
        if labels.get(key) != value:
            return False
    return not shape.node_terms or any(matches(term, labels) for term in shape.node_terms)


def tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def untolerated_taint(tolerations: tuple[Toleration, ...], taints: tuple[Taint, ...]) -> Taint | None:
    """TaintToleration: the first taint that keeps the pod out."""
    for taint in taints:
        if taint.effect in _FILTERING_EFFECTS and not tolerates(tolerations, taint):
            return taint
    return None


def reaches_volumes(shape: PodShape, labels: Labels) -> bool:
    """VolumeZone: the node is in a zone from which the pod's bound volumes can be attached."""
    return not shape.volume_zones or labels.get(names.LABEL_ZONE) in shape.volume_zones


def ports_conflict(port: HostPort, taken: HostPort) -> bool:
    """NodePorts: same protocol and port, on addresses that overlap. "" and 0.0.0.0 overlap with every address."""
    if (port[0] or "TCP", port[1]) != (taken[0] or "TCP", taken[1]):
        return False
    addresses = {port[2] or _ANY_ADDRESS, taken[2] or _ANY_ADDRESS}
    return len(addresses) == 1 or _ANY_ADDRESS in addresses


def insufficient(requests: Amounts, free: Mapping[str, int]) -> list[str]:
    """NodeResourcesFit: the resources there is too little of. A request of zero fits everywhere."""
    return [name for name, count in requests if count > 0 and count > free.get(name, 0)]


# --- pods, by their labels ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Which pods a rule is about: a label selector, and the namespaces in which it looks."""

    selector: Selector
    namespaces: tuple[str, ...]

    @classmethod
    def of_term(cls, term: PodTerm, namespace: str) -> PodSelector:
        """A term that names no namespaces is about those of its own pod's namespace."""
        return cls(term.selector, term.namespaces or (namespace,))

    @classmethod
    def of_spread(cls, spread: Spread, namespace: str, labels: Pairs) -> PodSelector:
        """matchLabelKeys adds the pod's own value of each key; a key that the pod lacks is ignored."""
        own = dict(labels)
        narrowed = tuple(Expression(key, "In", (own[key],)) for key in spread.match_label_keys if key in own)
        return cls(spread.selector + narrowed, (namespace,))

    def matches(self, namespace: str, labels: Labels) -> bool:
        return namespace in self.namespaces and matches(self.selector, labels)


def counts_for_spread(spread: Spread, shape: PodShape, labels: Labels, taints: tuple[Taint, ...]) -> bool:
    """PodTopologySpread: whether a node that has the topology keys counts (nodeAffinityPolicy, nodeTaintsPolicy)."""
    if spread.honor_taints and untolerated_taint(shape.tolerations, taints) is not None:
        return False
    return not spread.honor_affinity or matches_node_affinity(shape, labels)


def has_pod_rules(shape: PodShape) -> bool:
    """It has rules or preferences about where other pods are."""
    return bool(
        shape.spread
        or shape.affinity
        or shape.anti_affinity
        or shape.host_ports
        or shape.preferred_affinity
        or shape.preferred_anti_affinity
    )
