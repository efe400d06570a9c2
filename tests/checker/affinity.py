"""Required pod affinity and anti-affinity between the pods of a final state, residents included.

Anti-affinity works both ways: a resident's keeps new pods out. Affinity must be reachable: there must be an
order in which the scheduler would have bound the pods one by one, each finding the company it requires.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations

from tests.checker.fault import Fault
from tests.checker.hosts import Host
from tests.checker.pod_counts import LabelledPods, PodLabelCounts
from tidemill.decide.packer.problem import PendingPod, Problem
from tidemill.model.labels import Pairs
from tidemill.sim.cluster.scheduler_filters import PodSelector

Apart = tuple[str, PodSelector]  # a topology key, and whom not to meet there
Together = tuple[tuple[str, PodSelector], ...]  # all affinity terms of a pod

FEW, TRIES = (
    5,
    5,
)  # 5 parties have 120 orders; more parties are given 5 other ways, each a second if they are large


def check_anti_affinity(problem: Problem, hosts: Sequence[Host], labelled: PodLabelCounts) -> Iterator[Fault]:
    pods = problem.pods
    for (key, selector), holders in _kept_apart(pods, hosts).items():
        asked, existing = labelled.count(labelled.meant_by(selector), key)
        for index, number in holders:
            domain = hosts[number].labels.get(key)
            if domain is None:  # a node without the key is in no domain: nobody can be met there
                continue
            itself = selector.matches(pods[index].namespace, dict(pods[index].shape.labels))
            if asked[domain] + existing[domain] - itself > 0:
                yield Fault(
                    "anti-affinity",
                    f"{pods[index].id} meets a pod it must not meet in {key}={domain}",
                    (pods[index].id, hosts[number].name),
                )
    yield from _against_residents(problem, hosts, labelled)


def _kept_apart(pods: Sequence[PendingPod], hosts: Sequence[Host]) -> dict[Apart, list[tuple[int, int]]]:
    holders: dict[Apart, list[tuple[int, int]]] = {}
    for number, host in enumerate(hosts):
        for index in host.pods:
            for term in pods[index].shape.anti_affinity:
                apart = (term.topology_key, PodSelector.of_term(term, pods[index].namespace))
                holders.setdefault(apart, []).append((index, number))
    return holders


def _against_residents(problem: Problem, hosts: Sequence[Host], labelled: PodLabelCounts) -> Iterator[Fault]:
    """Pods put where a resident requires not to meet them. Residents among themselves are not our doing."""
    closed: dict[Apart, set[str]] = {}
    for host in hosts:
        for existing in host.existing_pods:
            for term in existing.shape.anti_affinity:
                domain = host.labels.get(term.topology_key)
                if domain is not None:
                    apart = (term.topology_key, PodSelector.of_term(term, existing.namespace))
                    closed.setdefault(apart, set()).add(domain)
    for (key, selector), domains in closed.items():
        for same_labels in labelled.meant_by(selector):
            for number, indexes in same_labels.pods.items():
                domain = hosts[number].labels.get(key)
                if domain in domains:
                    yield Fault(
                        "anti-affinity",
                        f"a resident of {key}={domain} must not meet {problem.pods[indexes[0]].id}",
                        (problem.pods[indexes[0]].id, hosts[number].name),
                    )


@dataclass(slots=True, eq=False)
class Party:
    """Asks of one crowd with the same affinity, on nodes that are in the same domains for it."""

    same_labels: LabelledPods
    terms: Together
    domains: tuple[str | None, ...]  # one a term
    members: list[tuple[int, int]] = field(default_factory=list)  # ask, host

    @property
    def matches_itself(self) -> bool:
        """Whether it may be the first of its kind: company for itself, on nodes that have the keys."""
        if None in self.domains:
            return False
        return all(
            selector.matches(self.same_labels.namespace, self.same_labels.labels)
            for _, selector in self.terms
        )


class _Standing:
    """Pods bound so far, as those see them who look for company: a pod counts if it matches every term."""

    def __init__(self, hosts: Sequence[Host], wanted: set[Together]) -> None:
        self._hosts = hosts
        self._met: dict[Together, list[Counter[str]]] = {
            terms: [Counter() for _ in terms] for terms in wanted
        }
        self._sought: dict[LabelledPods, list[Together]] = {}  # the terms that pods of a crowd satisfy

    def add(self, same_labels: LabelledPods, number: int, count: int) -> None:
        sought = self._sought.get(same_labels)
        if sought is None:
            sought = self._sought[same_labels] = [
                terms
                for terms in self._met
                if all(m.matches(same_labels.namespace, same_labels.labels) for _, m in terms)
            ]
        for terms in sought:
            for (key, _), met in zip(terms, self._met[terms], strict=True):
                domain = self._hosts[number].labels.get(key)
                if domain is not None:
                    met[domain] += count

    def welcomes(self, party: Party) -> bool:
        met = self._met[party.terms]
        return all(d is not None and at[d] > 0 for d, at in zip(party.domains, met, strict=True))

    def nobody_for(self, party: Party) -> bool:
        return not any(self._met[party.terms])


def check_affinity(problem: Problem, hosts: Sequence[Host], labelled: PodLabelCounts) -> Iterator[Fault]:
    """Look for a binding order: first the pods that start a company, then all that need none, then the rest.

    A pod may be the first of its kind where it would be company for itself and nobody else matches yet, in
    the whole cluster. Where several could be, the largest party is, and if that leaves somebody alone other
    ways are tried: all of them where parties are few. Where they are many, an order that only a tangle of
    overlapping terms calls for may be missed: this errs on the side of a fault.
    """
    parties, others = _parties(problem.pods, hosts, labelled)
    alone = parties
    for order in _orders(parties):
        left = _left_alone(order, others, hosts)
        alone = min(alone, left, key=len)
        if not alone:
            break
    for party in alone:
        for index, number in party.members:
            yield Fault(
                "affinity",
                f"{problem.pods[index].id} on {hosts[number].name} lacks the company it requires",
                (problem.pods[index].id, hosts[number].name),
            )


def _orders(parties: list[Party]) -> Iterator[Sequence[Party]]:
    """In which order parties are asked whether they start."""
    if len(parties) <= FEW:
        yield from permutations(parties)
        return
    yield parties
    for party in parties[:TRIES]:
        yield sorted(parties, key=lambda other: other is not party)


def _left_alone(
    order: Sequence[Party], others: list[tuple[LabelledPods, int, int]], hosts: Sequence[Host]
) -> list[Party]:
    """Who never finds company if those start who may, in this order of preference."""
    wanted = {party.terms for party in order}
    early, late = _Standing(hosts, wanted), _Standing(hosts, wanted)
    if wanted:
        _bind_residents((early, late), hosts)
    for same_labels, number, count in others:
        late.add(same_labels, number, count)
    waiting = _settle(order, late)
    while waiting:
        starting = _start(waiting, early, late)
        if not starting:
            break
        waiting = _settle([party for party in waiting if party not in starting], late)
    return waiting


def _settle(waiting: Sequence[Party], late: _Standing) -> list[Party]:
    """Bind whoever finds company, until nobody does. Who is left?"""
    while True:
        alone: list[Party] = []
        for party in waiting:
            if late.welcomes(party):
                _bind(party, late)
            else:
                alone.append(party)
        if len(alone) == len(waiting):
            return alone
        waiting = alone


def _start(waiting: list[Party], early: _Standing, late: _Standing) -> set[Party]:
    """Let every party start that may, before all who do not need to be early."""
    starting = set()
    for party in waiting:
        if party.matches_itself and early.nobody_for(party) and not late.welcomes(party):
            _bind(party, early)
            _bind(party, late)
            starting.add(party)
    return starting


def _bind(party: Party, standing: _Standing) -> None:
    for number, count in Counter(number for _, number in party.members).items():
        standing.add(party.same_labels, number, count)


def _bind_residents(standings: Sequence[_Standing], hosts: Sequence[Host]) -> None:
    seen: dict[tuple[str, Pairs], LabelledPods] = {}
    for number, host in enumerate(hosts):
        for existing in host.existing_pods:
            key = (existing.namespace, existing.shape.labels)
            same_labels = seen.setdefault(key, LabelledPods(existing.namespace, dict(existing.shape.labels)))
            for standing in standings:
                standing.add(same_labels, number, existing.count)


def _parties(
    pods: Sequence[PendingPod], hosts: Sequence[Host], labelled: PodLabelCounts
) -> tuple[list[Party], list[tuple[LabelledPods, int, int]]]:
    """Parties, the largest first; and every ask that requires no company, as (crowd, host, how many)."""
    parties: dict[tuple[LabelledPods, Together, tuple[str | None, ...]], Party] = {}
    others: Counter[tuple[LabelledPods, int]] = Counter()
    for number, host in enumerate(hosts):
        for index in host.pods:
            pod = pods[index]
            same_labels = labelled.of(pod.namespace, pod.shape.labels)
            if not pod.shape.affinity:
                others[same_labels, number] += 1
                continue
            terms = tuple((t.topology_key, PodSelector.of_term(t, pod.namespace)) for t in pod.shape.affinity)
            domains = tuple(host.labels.get(key) for key, _ in terms)
            party = parties.setdefault((same_labels, terms, domains), Party(same_labels, terms, domains))
            party.members.append((index, number))
    ordered = sorted(parties.values(), key=lambda party: -len(party.members))
    return ordered, [(same_labels, number, count) for (same_labels, number), count in others.items()]
