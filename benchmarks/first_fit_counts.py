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
from tests.checker.spread import Rule, flavour_domains, rules_of
from tidemill.decide.packer.problem import Problem
from tidemill.model.labels import Pairs
from tidemill.model.pods import PodShape
from tidemill.sim.cluster.scheduler_filters import PodSelector


@dataclass(slots=True, eq=False)
class Avoided:
    """One anti-affinity term: where those are whom it means, and where those are who carry it."""

    key: str
    selector: PodSelector
    meant: Counter[str] = field(default_factory=Counter)
    carriers: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, eq=False)
class Sought:
    """The affinity terms of a pod: by term, where pods are that match all of them."""

    terms: Together
    met: list[Counter[str]]


@dataclass(slots=True, eq=False)
class Dealt:
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
class Manners:
    """What one kind of pod minds, and who minds it."""

    likes_itself: bool
    sought: Sought | None
    avoids: list[Avoided]
    dealt: list[Dealt]
    avoided_by: list[Avoided]
    company_for: list[Sought]
    counted_by: list[Dealt]


class Tallies:
    def __init__(self, problem: Problem, hosts: Iterable[Host]) -> None:
        self._problem = problem
        self._avoided: dict[tuple[str, PodSelector], Avoided] = {}
        self._sought: dict[Together, Sought] = {}
        self._dealt: dict[Rule, Dealt] = {}
        self._manners: dict[tuple[object, ...], Manners] = {}
        self._register(hosts)
        for host in hosts:
            for resident in host.residents:
                manners = self.manners(resident.shape, resident.namespace)
                self.put(manners, host, resident.count, residents=True)

    def _register(self, hosts: Iterable[Host]) -> None:
        """Every rule there is, before the first pod is counted."""
        for ask in self._problem.asks:
            self._learn(ask.shape, ask.namespace, resident=False)
        for host in hosts:
            for resident in host.residents:
                self._learn(resident.shape, resident.namespace, resident=True)
        for host in hosts:
            for dealt in self._dealt.values():
                if dealt.counts_on(host):
                    dealt.domains.add(host.labels[dealt.rule.topology_key])

    def _learn(self, shape: PodShape, namespace: str, *, resident: bool) -> None:
        for term in shape.anti_affinity:
            key = (term.topology_key, PodSelector.of_term(term, namespace))
            self._avoided.setdefault(key, Avoided(*key))
        if resident:  # whom it sought and how it was spread was settled when it came
            return
        terms = together(shape, namespace)
        if terms:
            self._sought.setdefault(terms, Sought(terms, [Counter() for _ in terms]))
        for rule in rules_of(shape, namespace):
            if rule not in self._dealt:
                self._dealt[rule] = Dealt(rule, flavour_domains(self._problem, rule))

    def manners(self, shape: PodShape, namespace: str) -> Manners:
        key = (
            namespace,
            shape.labels,
            shape.affinity,
            shape.anti_affinity,
            shape.spread,
            *((shape.node_selector, shape.node_terms, shape.tolerations) if shape.spread else ()),
        )
        found = self._manners.get(key)
        if found is None:
            found = self._manners[key] = self._manners_of(shape, namespace, shape.labels)
        return found

    def _manners_of(self, shape: PodShape, namespace: str, pairs: Pairs) -> Manners:
        labels = dict(pairs)
        terms = together(shape, namespace)
        apart = [(t.topology_key, PodSelector.of_term(t, namespace)) for t in shape.anti_affinity]
        return Manners(
            likes_itself=all(selector.matches(namespace, labels) for _, selector in terms),
            sought=self._sought.get(terms),
            avoids=[self._avoided[key] for key in apart],
            dealt=[self._dealt[rule] for rule in rules_of(shape, namespace) if rule in self._dealt],
            avoided_by=[a for a in self._avoided.values() if a.selector.matches(namespace, labels)],
            company_for=[
                s for s in self._sought.values() if all(m.matches(namespace, labels) for _, m in s.terms)
            ],
            counted_by=[d for d in self._dealt.values() if d.rule.selector.matches(namespace, labels)],
        )

    def welcome(self, manners: Manners, host: Host) -> bool:
        """Whether the pod may come, by its own rules and by those of everybody there."""
        labels = host.labels
        for avoided in manners.avoids:
            if avoided.meant[labels.get(avoided.key, "")]:
                return False
        for avoided in manners.avoided_by:
            if avoided.carriers[labels.get(avoided.key, "")]:
                return False
        return self._finds_company(manners, host) and self._keeps_the_deal(manners, host)

    def _finds_company(self, manners: Manners, host: Host) -> bool:
        sought = manners.sought
        if sought is None:
            return True
        domains = [host.labels.get(key) for key, _ in sought.terms]
        if None in domains:
            return False
        if all(met[domain or ""] for met, domain in zip(sought.met, domains, strict=True)):
            return True
        return manners.likes_itself and not any(met.total() for met in sought.met)

    def _keeps_the_deal(self, manners: Manners, host: Host) -> bool:
        for dealt in manners.dealt:
            domain = host.labels.get(dealt.rule.topology_key)
            if domain is None:
                return False
            if dealt.too_full(domain, int(dealt in manners.counted_by)):
                return False
        for dealt in manners.counted_by:
            domain = host.labels.get(dealt.rule.topology_key)
            if domain is None or not dealt.carriers[domain] or not dealt.counts_on(host):
                continue
            if dealt.too_full(domain, 1):
                return False
        return True

    def put(self, manners: Manners, host: Host, count: int, *, residents: bool = False) -> None:
        """Count `count` pods in, or out where it is negative."""
        labels = host.labels
        for avoided in manners.avoids:
            if avoided.key in labels:
                avoided.carriers[labels[avoided.key]] += count
        for avoided in manners.avoided_by:
            if avoided.key in labels:
                avoided.meant[labels[avoided.key]] += count
        for sought in manners.company_for:
            for (key, _), met in zip(sought.terms, sought.met, strict=True):
                if key in labels:
                    met[labels[key]] += count
        for dealt in manners.counted_by:
            if dealt.rule.topology_key in labels and dealt.counts_on(host):
                dealt.counts[labels[dealt.rule.topology_key]] += count
        for dealt in manners.dealt if not residents else ():
            if dealt.rule.topology_key in labels:
                dealt.carriers[labels[dealt.rule.topology_key]] += count


def together(shape: PodShape, namespace: str) -> Together:
    return tuple((t.topology_key, PodSelector.of_term(t, namespace)) for t in shape.affinity)
