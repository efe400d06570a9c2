"""The rules between pods, kept as running counts: may this pod come here now, with all who are there already?

The reference packer puts pods one at a time and asks before each. What it keeps true after every step is what
the checker demands of the final state. Counts can be taken back, so that half a gang leaves no trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.checker.affinity import Together
from tests.checker.hosts import Host
from tests.checker.spread import Rule, option_domains, rules_of
from tidemill.decide.packer.problem import Problem
from tidemill.model.labels import Pairs
from tidemill.model.pods import PodShape
from tidemill.sim.cluster.scheduler_filters import PodSelector


@dataclass(slots=True, eq=False)
class AntiAffinityCounts:
    """One anti-affinity term: where those are whom it means, and where those are who carry it."""

    key: str
    selector: PodSelector
    meant: Counter[str] = field(default_factory=Counter)
    carriers: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, eq=False)
class AffinityCounts:
    """The affinity terms of a pod: by term, where pods are that match all of them."""

    terms: Together
    met: list[Counter[str]]


@dataclass(slots=True, eq=False)
class SpreadCounts:
    """One spread rule: how many it counts in each domain, and where those are who carry it."""

    rule: Rule
    domains: set[str]
    counts: Counter[str] = field(default_factory=Counter)
    carriers: Counter[str] = field(default_factory=Counter)
    _counted: dict[int, bool] = field(default_factory=dict)

    def counts_on(self, host: Host) -> bool:
        if host.kind not in self._counted:
            self._counted[host.kind] = self.rule.counted.includes(host.labels, host.taints)
        return self._counted[host.kind]

    def too_full(self, domain: str, coming: int) -> bool:
        """Whether the domain would be, once `coming` more are in it."""
        least = 0
        if len(self.domains) >= self.rule.min_domains:
            least = min(self.counts[d] + (coming if d == domain else 0) for d in self.domains)
        return self.counts[domain] + coming - least > self.rule.max_skew


@dataclass(slots=True, eq=False)
class Rules:
    """What one kind of pod minds, and who minds it."""

    matches_itself: bool
    affinity: AffinityCounts | None
    anti_affinity: list[AntiAffinityCounts]
    spreads: list[SpreadCounts]
    anti_affinity_of_others: list[AntiAffinityCounts]
    affinity_of_others: list[AffinityCounts]
    counted_by: list[SpreadCounts]


class RuleCounts:
    def __init__(self, problem: Problem, hosts: Iterable[Host]) -> None:
        self._problem = problem
        self._anti_affinity: dict[tuple[str, PodSelector], AntiAffinityCounts] = {}
        self._affinity: dict[Together, AffinityCounts] = {}
        self._spreads: dict[Rule, SpreadCounts] = {}
        self._rules: dict[tuple[object, ...], Rules] = {}
        self._register(hosts)
        for host in hosts:
            for existing in host.existing_pods:
                rules = self.rules(existing.shape, existing.namespace)
                self.put(rules, host, existing.count, existing_pods=True)

    def _register(self, hosts: Iterable[Host]) -> None:
        """Every rule there is, before the first pod is counted."""
        for pod in self._problem.pods:
            self._learn(pod.shape, pod.namespace, existing=False)
        for host in hosts:
            for existing in host.existing_pods:
                self._learn(existing.shape, existing.namespace, existing=True)
        for host in hosts:
            for spreads in self._spreads.values():
                if spreads.counts_on(host):
                    spreads.domains.add(host.labels[spreads.rule.topology_key])

    def _learn(self, shape: PodShape, namespace: str, *, existing: bool) -> None:
        for term in shape.anti_affinity:
            key = (term.topology_key, PodSelector.of_term(term, namespace))
            self._anti_affinity.setdefault(key, AntiAffinityCounts(*key))
        if existing:  # whom it sought and how it was spread was settled when it came
            return
        terms = together(shape, namespace)
        if terms:
            self._affinity.setdefault(terms, AffinityCounts(terms, [Counter() for _ in terms]))
        for rule in rules_of(shape, namespace):
            if rule not in self._spreads:
                self._spreads[rule] = SpreadCounts(rule, option_domains(self._problem, rule))

    def rules(self, shape: PodShape, namespace: str) -> Rules:
        key = (
            namespace,
            shape.labels,
            shape.affinity,
            shape.anti_affinity,
            shape.spread,
            *((shape.node_selector, shape.node_terms, shape.tolerations) if shape.spread else ()),
        )
        found = self._rules.get(key)
        if found is None:
            found = self._rules[key] = self._compile(shape, namespace, shape.labels)
        return found

    def _compile(self, shape: PodShape, namespace: str, pairs: Pairs) -> Rules:
        labels = dict(pairs)
        terms = together(shape, namespace)
        apart = [(t.topology_key, PodSelector.of_term(t, namespace)) for t in shape.anti_affinity]
        return Rules(
            matches_itself=all(selector.matches(namespace, labels) for _, selector in terms),
            affinity=self._affinity.get(terms),
            anti_affinity=[self._anti_affinity[key] for key in apart],
            spreads=[self._spreads[rule] for rule in rules_of(shape, namespace) if rule in self._spreads],
            anti_affinity_of_others=[
                a for a in self._anti_affinity.values() if a.selector.matches(namespace, labels)
            ],
            affinity_of_others=[
                s for s in self._affinity.values() if all(m.matches(namespace, labels) for _, m in s.terms)
            ],
            counted_by=[d for d in self._spreads.values() if d.rule.selector.matches(namespace, labels)],
        )

    def allows(self, rules: Rules, host: Host) -> bool:
        """Whether the pod may come, by its own rules and by those of everybody there."""
        labels = host.labels
        for avoided in rules.anti_affinity:
            if avoided.meant[labels.get(avoided.key, "")]:
                return False
        for avoided in rules.anti_affinity_of_others:
            if avoided.carriers[labels.get(avoided.key, "")]:
                return False
        return self._meets_affinity(rules, host) and self._keeps_spread(rules, host)

    def _meets_affinity(self, rules: Rules, host: Host) -> bool:
        affinity = rules.affinity
        if affinity is None:
            return True
        domains = [host.labels.get(key) for key, _ in affinity.terms]
        if None in domains:
            return False
        if all(met[domain or ""] for met, domain in zip(affinity.met, domains, strict=True)):
            return True
        return rules.matches_itself and not any(met.total() for met in affinity.met)

    def _keeps_spread(self, rules: Rules, host: Host) -> bool:
        for spreads in rules.spreads:
            domain = host.labels.get(spreads.rule.topology_key)
            if domain is None:
                return False
            if spreads.too_full(domain, int(spreads in rules.counted_by)):
                return False
        for spreads in rules.counted_by:
            domain = host.labels.get(spreads.rule.topology_key)
            if domain is None or not spreads.carriers[domain] or not spreads.counts_on(host):
                continue
            if spreads.too_full(domain, 1):
                return False
        return True

    def put(self, rules: Rules, host: Host, count: int, *, existing_pods: bool = False) -> None:
        """Count `count` pods in, or out where it is negative."""
        labels = host.labels
        for avoided in rules.anti_affinity:
            if avoided.key in labels:
                avoided.carriers[labels[avoided.key]] += count
        for avoided in rules.anti_affinity_of_others:
            if avoided.key in labels:
                avoided.meant[labels[avoided.key]] += count
        for affinity in rules.affinity_of_others:
            for (key, _), met in zip(affinity.terms, affinity.met, strict=True):
                if key in labels:
                    met[labels[key]] += count
        for spreads in rules.counted_by:
            if spreads.rule.topology_key in labels and spreads.counts_on(host):
                spreads.counts[labels[spreads.rule.topology_key]] += count
        for spreads in rules.spreads if not existing_pods else ():
            if spreads.rule.topology_key in labels:
                spreads.carriers[labels[spreads.rule.topology_key]] += count


def together(shape: PodShape, namespace: str) -> Together:
    return tuple((t.topology_key, PodSelector.of_term(t, namespace)) for t in shape.affinity)
