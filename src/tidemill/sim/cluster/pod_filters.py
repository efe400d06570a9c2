"""kube-scheduler's filters about other pods: NodePorts, PodTopologySpread, InterPodAffinity.

Worked out once for a pod and the cluster as it stands, then asked node by node, in kube-scheduler's words.
Rules of one pod and one node are in `scheduler_filters`; preferences are in `scoring`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemill.model.pods import PodShape, Spread
from tidemill.sim.cluster.scheduler_cache import BoundPods, NodeInfo, PodClass
from tidemill.sim.cluster.scheduler_filters import PodSelector, counts_for_spread
from tidemill.spec import names

PORTS_TAKEN = "node(s) didn't have free ports for the requested pod ports"
NO_TOPOLOGY_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
SKEW_TOO_LARGE = "node(s) didn't match pod topology spread constraints"
NO_AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
ANTI_AFFINITY_OF_OTHERS = "node(s) didn't satisfy existing pods anti-affinity rules"


@dataclass(frozen=True, slots=True)
class SpreadDomains:
    """The nodes over which a spread constraint counts, each with its domain; they change only with the nodes."""

    rule: Spread
    domains: Mapping[str, str]  # node -> value of the topology key

    def counts(self, bound: BoundPods, shape: PodShape, namespace: str) -> Counter[str]:
        """Pods by domain, terminating ones left out; a domain without any is there with 0."""
        counts = Counter(dict.fromkeys(self.domains.values(), 0))
        for pod_class in bound.matching(PodSelector.of_spread(self.rule, namespace, shape.labels)):
            for node, pods in pod_class.staying_by_node.items():
                domain = self.domains.get(node)
                if domain is not None:
                    counts[domain] += pods
        return counts


def spread_domains(
    shape: PodShape, pinned_to: str, nodes: Iterable[NodeInfo], *, hard: bool
) -> tuple[SpreadDomains, ...]:
    """One for each constraint of a kind. Only nodes that have the keys of all of them count, for any of them."""
    rules = [rule for rule in shape.spread if rule.hard is hard]
    with_keys = [info for info in nodes if all(rule.topology_key in info.labels for rule in rules)]
    return tuple(
        SpreadDomains(
            rule,
            {
                info.node.name: info.labels[rule.topology_key]
                for info in with_keys
                if _counts(rule, shape, pinned_to, info)
            },
        )
        for rule in rules
    )


def _counts(rule: Spread, shape: PodShape, pinned_to: str, info: NodeInfo) -> bool:
    """A pin is a node selector. A node that is cordoned or not Ready has a taint that says so."""
    if rule.honor_taints and (info.node.unschedulable or not info.node.ready):
        return False
    if rule.honor_affinity and pinned_to and info.labels.get(names.LABEL_SOURCE) != pinned_to:
        return False
    return counts_for_spread(rule, shape, info.labels, info.node.taints)


class PodFilters:
    """Whether a pod of this shape may join the pods that are bound now."""

    def __init__(
        self, shape: PodShape, namespace: str, bound: BoundPods, spread_over: Iterable[SpreadDomains]
    ) -> None:
        self._shape = shape
        self._ports_taken = bound.nodes_with_ports_taken(shape.host_ports) if shape.host_ports else set()
        self._spreads = [_SpreadFilter(domains, bound, shape, namespace) for domains in spread_over]
        own = PodClass(shape, namespace, dict(shape.labels))
        self._avoided_by_others = _avoided_by_others(own, bound)
        self._avoids = {
            (term.topology_key, value)
            for term in shape.anti_affinity
            for value in bound.count(term.topology_key, bound.matching(PodSelector.of_term(term, namespace)))
        }
        self._affinity = _affinity_counts(shape, namespace, bound) if shape.affinity else []
        # The first of a kind that requires its own kind may go anywhere, or none of them would ever start.
        self._is_first = not any(self._affinity) and all(
            own.matches(PodSelector.of_term(term, namespace)) for term in shape.affinity
        )

    def rejection(self, info: NodeInfo) -> str:
        """Why not this node; empty: it may go there."""
        if info.node.name in self._ports_taken:
            return PORTS_TAKEN
        labels = info.labels
        for spread in self._spreads:
            reason = spread.rejection(labels)
            if reason:
                return reason
        if self._affinity and not self._meets_affinity(labels):
            return NO_AFFINITY
        if self._avoids and any(labels.get(key) == value for key, value in self._avoids):
            return ANTI_AFFINITY
        if self._avoided_by_others and any(
            labels.get(key) == value for key, value in self._avoided_by_others
        ):
            return ANTI_AFFINITY_OF_OTHERS
        return ""

    def _meets_affinity(self, labels: Mapping[str, str]) -> bool:
        keys = [term.topology_key for term in self._shape.affinity]
        if not all(key in labels for key in keys):
            return False
        return self._is_first or all(
            counts[labels[key]] for key, counts in zip(keys, self._affinity, strict=True)
        )


class _SpreadFilter:
    """One spread constraint: how full the emptiest domain is, and by how much another may be fuller."""

    def __init__(self, domains: SpreadDomains, bound: BoundPods, shape: PodShape, namespace: str) -> None:
        self._rule = rule = domains.rule
        self._counts = domains.counts(bound, shape, namespace)
        self._least = min(self._counts.values(), default=0)
        if len(self._counts) < rule.min_domains:
            self._least = 0  # a domain that is yet to come counts as empty
        selector = PodSelector.of_spread(rule, namespace, shape.labels)
        self._own = int(selector.matches(namespace, dict(shape.labels)))

    def rejection(self, labels: Mapping[str, str]) -> str:
        domain = labels.get(self._rule.topology_key)
        if domain is None:
            return NO_TOPOLOGY_LABEL
        skew = self._counts[domain] + self._own - self._least
        return SKEW_TOO_LARGE if skew > self._rule.max_skew else ""


def _avoided_by_others(own: PodClass, bound: BoundPods) -> set[tuple[str, str]]:
    """Domains that bound pods keep free of pods like this one, by their own anti-affinity."""
    return {
        (term.topology_key, value)
        for pod_class in bound.with_pod_rules
        if pod_class.by_node
        for term in pod_class.shape.anti_affinity
        if own.matches(PodSelector.of_term(term, pod_class.namespace))
        for value in bound.count(term.topology_key, (pod_class,))
    }


def _affinity_counts(shape: PodShape, namespace: str, bound: BoundPods) -> list[Counter[str]]:
    """By affinity term: where pods are that match *all* terms, as kube-scheduler reads several of them."""
    first, *rest = [PodSelector.of_term(term, namespace) for term in shape.affinity]
    matching = [
        pod_class
        for pod_class in bound.matching(first)
        if all(pod_class.matches(selector) for selector in rest)
    ]
    return [bound.count(term.topology_key, matching) for term in shape.affinity]
