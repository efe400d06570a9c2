"""Pods that are alike form one group (an equivalence class): what is true of one pod is worked out once for all.

A shape is compiled into small integers: what it requests of each resource, which nodes it may use, and (in
`pod_counters`) which counters its rules need. Nothing here knows a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from tidemill.decide.packer.pod_counters import HOST, CounterRegistry, PodCounter, Thresholds
from tidemill.decide.packer.problem import PendingPod, Problem
from tidemill.model.pods import PodShape, Spread
from tidemill.model.resources import Amounts
from tidemill.spec import names

UNLIMITED = 1 << 60
# A gang runs in one zone, on one source of one pool: that is what its pods are pinned to.
GANG_KEYS = tuple(sorted((names.LABEL_ZONE, names.LABEL_SOURCE, names.LABEL_POOL)))


@dataclass(slots=True, eq=False)
class PodGroup:
    """Pods of one shape that may use the same nodes. `pods` are indexes into Problem.pods, the oldest first."""

    shape: PodShape
    namespace: str
    priority: int
    refuses: frozenset[str]
    pods: list[int]
    pending_since: float = 0.0  # of the oldest pod
    requests: tuple[tuple[int, int], ...] = ()  # (dimension, amount), the dominant dimension first
    size: float = 0.0  # its share of a typical node, for sorting
    eligibility: int = 0  # groups with the same number may use the same nodes
    eligibilities: frozenset[int] = frozenset()  # just this one, as a set
    selects_hostname: bool = False  # it names hosts: nodes of one node group are not all alike to it
    # The fields of its CompiledRules, copied here because the inner loops read them.
    host_counted_by: tuple[int, ...] = ()
    host_limits: tuple[tuple[int, int, int], ...] = ()
    host_affinity: tuple[tuple[int, bool], ...] = ()
    counted_by: tuple[int, ...] = ()
    spreads: tuple[tuple[int, Spread, int], ...] = ()
    anti_affinity: tuple[tuple[int, int], ...] = ()
    affinity: tuple[tuple[int, bool], ...] = ()
    blocked_by: int = 0
    counter_bits: tuple[tuple[int, int, tuple[tuple[int, int], ...]], ...] = ()
    one_per_host: bool = False
    ports: tuple[tuple[str, int, str], ...] = ()
    needs_exact_check: bool = False
    has_host_rules: bool = False  # other pods on its host matter to it, or it matters to them

    @property
    def has_domain_rules(self) -> bool:
        """Its domain matters: to itself, or to a pod whose rules count it."""
        return bool(self.counted_by or self.spreads or self.anti_affinity or self.affinity)


@dataclass(slots=True)
class GroupedPods:
    groups: list[PodGroup] = field(default_factory=list)  # of single pods
    gangs: list[PodGroup] = field(default_factory=list)  # of members of gangs
    counters: list[PodCounter] = field(default_factory=list)
    dimensions: list[str] = field(default_factory=list)  # resources, numbered
    weights: list[float] = field(default_factory=list)  # what a unit of each is worth; the number of pods: 0
    thresholds: Thresholds = field(default_factory=dict)
    bit_count: int = 0
    keys: tuple[str, ...] = ()  # topology keys other than the host name, sorted

    def group_of(self) -> dict[int, PodGroup]:
        """By index of the pod."""
        return {pod: group for group in (*self.groups, *self.gangs) for pod in group.pods}


def group_pods(problem: Problem) -> GroupedPods:
    """Group the pods, number the counters, and compile every group."""
    grouped, registry, eligibilities = GroupedPods(), CounterRegistry(), _Eligibilities()
    members_of_groups = equal_pods(problem)
    firsts = [problem.pods[members[0]] for members in members_of_groups]
    grouped.dimensions = number_dimensions({first.shape.requests for first in firsts})
    vectors = RequestVectors(problem, grouped.dimensions)
    compiled = [registry.compile(first.shape, first.namespace) for first in firsts]
    existing = {
        (id(pods.shape), pods.namespace): pods for node in problem.nodes for pods in node.existing_pods
    }
    for pods in existing.values():
        registry.add_anti_affinity(pods.shape, pods.namespace)
    registry.complete()
    for first, members, rules in zip(firsts, members_of_groups, compiled, strict=True):
        requests, size = vectors.of(first.shape)
        eligibility, eligibility_set, selects_hostname = eligibilities.of(first)
        group = PodGroup(
            first.shape, first.namespace, first.priority, first.refuses, members, first.pending_since, requests,
            size, eligibility, eligibility_set, selects_hostname, host_counted_by=rules.host_counted_by,
            host_limits=rules.host_limits, host_affinity=rules.host_affinity, counted_by=rules.counted_by,
            spreads=rules.spreads, anti_affinity=rules.anti_affinity, affinity=rules.affinity,
            blocked_by=rules.blocked_by, counter_bits=rules.counter_bits, one_per_host=rules.one_per_host,
            ports=first.shape.host_ports, needs_exact_check=rules.needs_exact_check,
            has_host_rules=bool(rules.blocked_by or rules.host_affinity or first.shape.host_ports),
        )  # fmt: skip
        (grouped.gangs if first.gang is not None else grouped.groups).append(group)
    grouped.weights, grouped.counters = vectors.weights, registry.counters
    grouped.thresholds, grouped.bit_count = registry.thresholds, registry.bit_count
    keys = {counter.key for counter in registry.counters} - {HOST}
    if grouped.gangs:
        keys.update(GANG_KEYS)
    grouped.keys = tuple(sorted(keys))
    return grouped


_TERMS = attrgetter("namespace", "priority", "refuses", "gang")


def equal_pods(problem: Problem) -> list[list[int]]:
    """Pods of one shape object on the same terms, the oldest first."""
    pods = problem.pods
    members_by_key: dict[tuple[int, tuple[object, ...]], list[int]] = {}
    shapes = [id(pod.shape) for pod in pods]
    for number, key in enumerate(zip(shapes, map(_TERMS, pods), strict=True)):
        members = members_by_key.get(key)
        if members is None:
            members_by_key[key] = [number]
        else:
            members.append(number)
    ages = [pod.pending_since for pod in pods]
    if ages != sorted(ages):
        for members in members_by_key.values():
            members.sort(key=lambda member: (pods[member].pending_since, member))
    return list(members_by_key.values())


def number_dimensions(requests: Iterable[Amounts]) -> list[str]:
    """Accelerators first, then CPU: bins are sorted by the first dimension that a pod requests."""
    requested = {name for amounts in requests for name, amount in amounts if amount > 0}
    first = [name for name in (*names.ACCELERATORS, names.CPU, names.MEMORY) if name in requested]
    return [*first, *sorted(requested - set(first) - {names.PODS}), names.PODS]


class RequestVectors:
    """Requests as numbered dimensions, the largest share of a typical node first."""

    def __init__(self, problem: Problem, dimensions: Sequence[str]) -> None:
        self._index = {name: dimension for dimension, name in enumerate(dimensions)}
        self._typical = _typical_node(problem, dimensions)
        self.weights = [1 / amount for amount in self._typical[:-1]] + [0.0]
        self._known: dict[Amounts, tuple[tuple[tuple[int, int], ...], float]] = {}

    def of(self, shape: PodShape) -> tuple[tuple[tuple[int, int], ...], float]:
        known = self._known.get(shape.requests)
        if known is None:
            shares = [
                (amount / self._typical[self._index[name]], self._index[name], amount)
                for name, amount in shape.requests
                if amount > 0 and name != names.PODS
            ]
            shares.sort(reverse=True)
            vector = (*[(dimension, amount) for _, dimension, amount in shares], (self._index[names.PODS], 1))
            known = self._known[shape.requests] = (vector, sum([share for share, _, _ in shares]))
        return known


def _typical_node(problem: Problem, dimensions: Sequence[str]) -> list[float]:
    """The median capacity on offer in each dimension: a request is large or small compared with it."""
    typical = []
    for name in dimensions:
        amounts = [amount for option in problem.options if (amount := option.capacity.get(name, 0)) > 0]
        if not amounts:
            for node in problem.nodes:
                if (amount := node.free.get(name, 0)) > 0:
                    amounts += [amount] * (1 + node.left_out)
        amounts.sort()
        typical.append(float(amounts[len(amounts) // 2]) if amounts else 1.0)
    return typical


class _Eligibilities:
    """Pods that may use the same nodes, rules between pods aside, have the same eligibility number."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[int, frozenset[int], bool]] = {}

    def of(self, pod: PendingPod) -> tuple[int, frozenset[int], bool]:
        """The number, the number as a set, and whether the pod selects hosts by name."""
        shape = pod.shape
        key = (shape.node_selector, shape.node_terms, shape.tolerations, shape.volume_zones, pod.refuses)
        known = self._known.get(key)
        if known is None:
            number = len(self._known)
            known = self._known[key] = (number, frozenset((number,)), selects_hostname(shape))
        return known


def selects_hostname(shape: PodShape) -> bool:
    return any(label == HOST for label, _ in shape.node_selector) or any(
        expression.key == HOST for term in shape.node_terms for expression in term
    )
