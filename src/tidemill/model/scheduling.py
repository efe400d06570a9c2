"""What Kubernetes looks at when it places a pod: requests, and every rule about nodes and about other pods.

Kubernetes' meaning in a form that hashes, so that pods of one template are one class. The rules themselves
are in `decide.rules`; nothing here knows a node, a cluster or where a shape was read from.
"""

from __future__ import annotations

from dataclasses import dataclass

# Resource name -> amount in base units (cpu in milli, memory in bytes, everything else counted), sorted by
# name. A tuple and not a dict, so that shapes hash and equal shapes are one class.
Amounts = tuple[tuple[str, int], ...]
Pairs = tuple[tuple[str, str], ...]


def amount(amounts: Amounts, name: str) -> int:
    """How much of `name` there is; 0 when it is not listed."""
    for key, value in amounts:
        if key == name:
            return value
    return 0


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """`key` empty with operator Exists tolerates everything; `effect` empty matches every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Expression:
    """One requirement on a label: In, NotIn, Exists, DoesNotExist, Gt, Lt (the last two on nodes only)."""

    key: str
    operator: str = "In"
    values: tuple[str, ...] = ()


# Expressions that must all hold. An empty one holds for everything.
Selector = tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class PodTerm:
    """Other pods, by label, and the kind of place in which to be with them or apart from them."""

    topology_key: str
    selector: Selector
    namespaces: tuple[str, ...] = ()  # empty: the pod's own


@dataclass(frozen=True, slots=True)
class Spread:
    """A topologySpreadConstraint."""

    topology_key: str
    selector: Selector
    max_skew: int = 1
    hard: bool = True  # DoNotSchedule; False: ScheduleAnyway
    min_domains: int = 1
    match_label_keys: tuple[str, ...] = ()
    honor_affinity: bool = True  # nodeAffinityPolicy: only places its own selector and affinity allow count
    honor_taints: bool = False  # nodeTaintsPolicy


@dataclass(frozen=True, slots=True)
class PodShape:
    """What the scheduler looks at. Pods of one template share one shape object."""

    requests: Amounts = ()
    node_selector: Pairs = ()
    tolerations: tuple[Toleration, ...] = ()
    labels: Pairs = ()  # what other pods' selectors see
    node_terms: tuple[Selector, ...] = ()  # required node affinity: one must hold; empty: none required
    preferred_nodes: tuple[tuple[int, Selector], ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    preferred_affinity: tuple[tuple[int, PodTerm], ...] = ()
    preferred_anti_affinity: tuple[tuple[int, PodTerm], ...] = ()
    spread: tuple[Spread, ...] = ()
    host_ports: tuple[tuple[str, int, str], ...] = ()  # protocol, port, host IP ("" or 0.0.0.0: all of them)
    volume_zones: tuple[str, ...] = ()  # zones its bound volumes can be reached from; empty: no such volume

    @property
    def sociable(self) -> bool:
        """Where other pods are matters to it, as a rule or as a wish."""
        return bool(
            self.spread
            or self.anti_affinity
            or self.affinity
            or self.host_ports
            or self.preferred_affinity
            or self.preferred_anti_affinity
        )


def spread_selector(spread: Spread, labels: Pairs) -> Selector:
    """Whom a pod with these labels is spread among: matchLabelKeys adds its own value of each key."""
    own = dict(labels)
    more = tuple(Expression(key, "In", (own[key],)) for key in spread.match_label_keys if key in own)
    return (*spread.selector, *more)
