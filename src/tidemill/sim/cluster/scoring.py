"""kube-scheduler's scores for preferences: soft taints, node affinity, inter-pod affinity, topology spread.

Each plugin's score is brought to 0..100 over the nodes that passed the filters and weighed as in the default
profile. Simplified: preferences come before how full a node is (Kubernetes adds that in with weight 1), scores are
not rounded, and there are no default spread constraints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from math import log

from tidemill.model.pods import PodShape, PodTerm
from tidemill.sim.cluster.pod_filters import SpreadDomains
from tidemill.sim.cluster.scheduler_cache import BoundPods, NodeInfo, PodClass
from tidemill.sim.cluster.scheduler_filters import PodSelector, matches, tolerates
from tidemill.spec import names

# Weights of the plugins in kube-scheduler's default profile.
_TAINT_TOLERATION, _NODE_AFFINITY, _TOPOLOGY_SPREAD, _POD_AFFINITY = 3, 2, 2, 2
_REQUIRED_AFFINITY_WEIGHT = 1  # hardPodAffinityWeight: what a bound pod's required affinity attracts with
_MAX_SCORE = 100.0


def count_soft_taints(shape: PodShape, info: NodeInfo) -> int:
    """PreferNoSchedule taints it does not tolerate."""
    return sum(
        taint.effect == "PreferNoSchedule" and not tolerates(shape.tolerations, taint)
        for taint in info.node.taints
    )


def scores(
    shape: PodShape,
    namespace: str,
    nodes: Sequence[NodeInfo],
    bound: BoundPods | None,
    spread_over: Sequence[SpreadDomains],
) -> list[float]:
    """One for each node, the higher the better; all alike for a pod without preferences."""
    total = [0.0] * len(nodes)

    def add(weight: int, plugin_scores: Iterable[float]) -> None:
        for index, score in enumerate(plugin_scores):
            total[index] += weight * score

    taints = [count_soft_taints(shape, info) for info in nodes]
    if any(taints):
        most = max(taints)
        add(_TAINT_TOLERATION, (_MAX_SCORE - _MAX_SCORE * count / most for count in taints))
    if shape.preferred_nodes:
        add(_NODE_AFFINITY, _node_affinity_scores(shape, nodes))
    if bound is not None:
        add(_POD_AFFINITY, _pod_affinity_scores(shape, namespace, nodes, bound))
        if spread_over:
            add(_TOPOLOGY_SPREAD, _spread_scores(shape, namespace, nodes, bound, spread_over))
    return total


def _node_affinity_scores(shape: PodShape, nodes: Sequence[NodeInfo]) -> list[float]:
    weights = [
        float(sum(weight for weight, term in shape.preferred_nodes if matches(term, info.labels)))
        for info in nodes
    ]
    most = max(weights, default=0.0)
    return [_MAX_SCORE * weight / most for weight in weights] if most else weights


def _pod_affinity_scores(
    shape: PodShape, namespace: str, nodes: Sequence[NodeInfo], bound: BoundPods
) -> Iterable[float]:
    """What it prefers about pods that are bound, and what those prefer about it."""
    weights: Counter[tuple[str, str]] = Counter()  # by topology key and domain

    def add(weight: int, key: str, classes: Iterable[PodClass]) -> None:
        for value, pods in bound.count(key, classes).items():
            weights[key, value] += weight * pods

    for weight, term in _preferred_terms(shape):
        add(weight, term.topology_key, bound.matching(PodSelector.of_term(term, namespace)))
    own = PodClass(shape, namespace, dict(shape.labels))
    for pod_class in bound.with_pod_rules:
        required = ((_REQUIRED_AFFINITY_WEIGHT, term) for term in pod_class.shape.affinity)
        for weight, term in chain(_preferred_terms(pod_class.shape), required):
            if pod_class.by_node and own.matches(PodSelector.of_term(term, pod_class.namespace)):
                add(weight, term.topology_key, (pod_class,))
    if not weights:
        return ()
    found = [
        sum(weight for (key, value), weight in weights.items() if info.labels.get(key) == value)
        for info in nodes
    ]
    low, high = min(found), max(found)
    return [_MAX_SCORE * (score - low) / (high - low) for score in found] if high > low else ()


def _preferred_terms(shape: PodShape) -> Iterator[tuple[int, PodTerm]]:
    """With their weights; of anti-affinity these are negative."""
    yield from shape.preferred_affinity
    for weight, term in shape.preferred_anti_affinity:
        yield -weight, term


def _spread_scores(
    shape: PodShape,
    namespace: str,
    nodes: Sequence[NodeInfo],
    bound: BoundPods,
    spread_over: Sequence[SpreadDomains],
) -> Iterable[float]:
    """The fewer matching pods are in a node's domains the better; a node without one of the keys scores nothing."""
    keys = [domains.rule.topology_key for domains in spread_over]
    with_keys = [info for info in nodes if all(key in info.labels for key in keys)]
    counters = [
        _spread_cost(domains, domains.counts(bound, shape, namespace), with_keys) for domains in spread_over
    ]
    costs = {info.node.name: sum(cost(info) for cost in counters) for info in with_keys}
    low, high = min(costs.values(), default=0.0), max(costs.values(), default=0.0)
    by_node = {
        name: _MAX_SCORE * (high + low - cost) / high if high else _MAX_SCORE for name, cost in costs.items()
    }
    return [by_node.get(info.node.name, 0.0) for info in nodes]


def _spread_cost(
    domains: SpreadDomains, counts: Counter[str], nodes: Sequence[NodeInfo]
) -> Callable[[NodeInfo], float]:
    """A key with many values weighs more, else host names would count for nothing beside zones."""
    key = domains.rule.topology_key
    values = len(nodes) if key == names.LABEL_HOSTNAME else len({info.labels[key] for info in nodes})
    weight, slack = log(values + 2), domains.rule.max_skew - 1
    return lambda info: counts[info.labels[key]] * weight + slack
