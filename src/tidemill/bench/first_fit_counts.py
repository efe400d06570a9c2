"""The rules between pods as running counts: may this pod be placed here now?

First fit places one pod at a time and asks before each. What holds after every step is what the checker demands of the
final state. Counts can be taken back, so that half a gang leaves no trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tidemill.bench.checker.affinity import AffinityTerms
from tidemill.bench.checker.hosts import Host
from tidemill.bench.checker.spread import Rule, option_domains, rules_of
from tidemill.decide.packer.problem import Problem
from tidemill.model.labels import Pairs
from tidemill.model.pods import PodShape
from tidemill.sim.cluster.scheduler_filters import PodSelector


@dataclass(slots=True, eq=False)
class AntiAffinityCounts:
    """One anti-affinity term: where the pods are that it matches, and where the pods are that have it."""

    key: str
    selector: PodSelector
    matching: Counter[str] = field(default_factory=Counter)
    carriers: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, eq=False)
class AffinityCounts:
    """The affinity terms of a pod: by term, where the pods are that match all of them."""

    terms: AffinityTerms
    met: list[Counter[str]]


@dataclass(slots=True, eq=False)
class SpreadCounts:
    """One spread rule: how many pods it counts in each domain, and where the pods are that have it."""

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
    """The rules of one kind of pod, and the rules of others that are about it."""

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
        self._affinity: dict[AffinityTerms, AffinityCounts] = {}
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
            self._register_rules(pod.shape, pod.namespace, existing=False)
        for host in hosts:
            for existing in host.existing_pods:
                self._register_rules(existing.shape, existing.namespace, existing=True)
        for host in hosts:
            for spread in self._spreads.values():
                if spread.counts_on(host):
                    spread.domains.add(host.labels[spread.rule.topology_key])

    def _register_rules(self, shape: PodShape, namespace: str, *, existing: bool) -> None:
        for term in shape.anti_affinity:
            key = (term.topology_key, PodSelector.of_term(term, namespace))
            self._anti_affinity.setdefault(key, AntiAffinityCounts(*key))
        if existing:  # its affinity and its spread were checked when it was bound
            return
        terms = affinity_terms(shape, namespace)
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
        terms = affinity_terms(shape, namespace)
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
        """Whether the pod may be placed, by its own rules and by those of all other pods."""
        labels = host.labels
        for term in rules.anti_affinity:
            if term.matching[labels.get(term.key, "")]:
                return False
        for term in rules.anti_affinity_of_others:
            if term.carriers[labels.get(term.key, "")]:
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
        for spread in rules.spreads:
            domain = host.labels.get(spread.rule.topology_key)
            if domain is None:
                return False
            if spread.too_full(domain, int(spread in rules.counted_by)):
                return False
        for spread in rules.counted_by:
            domain = host.labels.get(spread.rule.topology_key)
            if domain is None or not spread.carriers[domain] or not spread.counts_on(host):
                continue
            if spread.too_full(domain, 1):
                return False
        return True

    def put(self, rules: Rules, host: Host, count: int, *, existing_pods: bool = False) -> None:
        """Count `count` pods in, or out where it is negative."""
        labels = host.labels
        for term in rules.anti_affinity:
            if term.key in labels:
                term.carriers[labels[term.key]] += count
        for term in rules.anti_affinity_of_others:
            if term.key in labels:
                term.matching[labels[term.key]] += count
        for affinity in rules.affinity_of_others:
            for (key, _), met in zip(affinity.terms, affinity.met, strict=True):
                if key in labels:
                    met[labels[key]] += count
        for spread in rules.counted_by:
            if spread.rule.topology_key in labels and spread.counts_on(host):
                spread.counts[labels[spread.rule.topology_key]] += count
        for spread in rules.spreads if not existing_pods else ():
            if spread.rule.topology_key in labels:
                spread.carriers[labels[spread.rule.topology_key]] += count


def affinity_terms(shape: PodShape, namespace: str) -> AffinityTerms:
    return tuple((t.topology_key, PodSelector.of_term(t, namespace)) for t in shape.affinity)
