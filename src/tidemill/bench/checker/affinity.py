"""Required pod affinity and anti-affinity between the pods of a final state, existing pods included.

Anti-affinity works both ways: that of an existing pod keeps new pods out. For affinity there must be an order in
which the scheduler could bind the pods one by one, so that each finds the pods it requires.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations

from tidemill.bench.checker.hosts import Fault, Host
from tidemill.bench.checker.pod_counts import LabelledPods, PodLabelCounts
from tidemill.decide.packer.problem import PendingPod, Problem
from tidemill.model.labels import Pairs
from tidemill.sim.cluster.scheduler_filters import PodSelector

AntiAffinityTerm = tuple[str, PodSelector]  # a topology key, and the pods that must not be there
AffinityTerms = tuple[tuple[str, PodSelector], ...]  # all affinity terms of a pod

MOST_PERMUTED = 5  # 5 groups have 120 orders
OTHER_ORDERS = 5  # of more groups; each takes up to a second if they are large


def check_anti_affinity(problem: Problem, hosts: Sequence[Host], labelled: PodLabelCounts) -> Iterator[Fault]:
    pods = problem.pods
    for (key, selector), holders in _with_anti_affinity(pods, hosts).items():
        pending, existing = labelled.count(labelled.selected_by(selector), key)
        for index, number in holders:
            domain = hosts[number].labels.get(key)
            if domain is None:  # a node without the label is in no domain
                continue
            itself = selector.matches(pods[index].namespace, dict(pods[index].shape.labels))
            if pending[domain] + existing[domain] - itself > 0:
                yield Fault(
                    "anti-affinity",
                    f"{pods[index].id} has an anti-affinity to another pod in {key}={domain}",
                    (pods[index].id, hosts[number].name),
                )
    yield from _check_against_existing(problem, hosts, labelled)


def _with_anti_affinity(
    pods: Sequence[PendingPod], hosts: Sequence[Host]
) -> dict[AntiAffinityTerm, list[tuple[int, int]]]:
    holders: dict[AntiAffinityTerm, list[tuple[int, int]]] = {}
    for number, host in enumerate(hosts):
        for index in host.pods:
            for term in pods[index].shape.anti_affinity:
                term_key = (term.topology_key, PodSelector.of_term(term, pods[index].namespace))
                holders.setdefault(term_key, []).append((index, number))
    return holders


def _check_against_existing(
    problem: Problem, hosts: Sequence[Host], labelled: PodLabelCounts
) -> Iterator[Fault]:
    """Pods placed where the anti-affinity of an existing pod keeps them out. Existing pods are not compared."""
    kept_out: dict[AntiAffinityTerm, set[str]] = {}
    for host in hosts:
        for existing in host.existing_pods:
            for term in existing.shape.anti_affinity:
                domain = host.labels.get(term.topology_key)
                if domain is not None:
                    term_key = (term.topology_key, PodSelector.of_term(term, existing.namespace))
                    kept_out.setdefault(term_key, set()).add(domain)
    for (key, selector), domains in kept_out.items():
        for same_labels in labelled.selected_by(selector):
            for number, indexes in same_labels.pods.items():
                domain = hosts[number].labels.get(key)
                if domain in domains:
                    yield Fault(
                        "anti-affinity",
                        f"an existing pod in {key}={domain} has an anti-affinity to {problem.pods[indexes[0]].id}",
                        (problem.pods[indexes[0]].id, hosts[number].name),
                    )


@dataclass(slots=True, eq=False)
class AffinePods:
    """Pods with the same labels and the same affinity, on nodes that are in the same domains for it."""

    same_labels: LabelledPods
    terms: AffinityTerms
    domains: tuple[str | None, ...]  # of each term
    members: list[tuple[int, int]] = field(default_factory=list)  # pod, host

    @property
    def matches_itself(self) -> bool:
        """Whether it may be the first of its kind: it matches its own terms, on nodes that have the labels."""
        if None in self.domains:
            return False
        return all(
            selector.matches(self.same_labels.namespace, self.same_labels.labels)
            for _, selector in self.terms
        )


class _BoundPods:
    """Pods bound so far, by the affinity terms they satisfy: a pod counts if it matches every term."""

    def __init__(self, hosts: Sequence[Host], wanted: set[AffinityTerms]) -> None:
        self._hosts = hosts
        self._matches: dict[AffinityTerms, list[Counter[str]]] = {
            terms: [Counter() for _ in terms] for terms in wanted
        }
        self._satisfied: dict[LabelledPods, list[AffinityTerms]] = {}  # by pods with the same labels

    def add(self, same_labels: LabelledPods, number: int, count: int) -> None:
        satisfied = self._satisfied.get(same_labels)
        if satisfied is None:
            satisfied = self._satisfied[same_labels] = [
                terms
                for terms in self._matches
                if all(m.matches(same_labels.namespace, same_labels.labels) for _, m in terms)
            ]
        for terms in satisfied:
            for (key, _), matches in zip(terms, self._matches[terms], strict=True):
                domain = self._hosts[number].labels.get(key)
                if domain is not None:
                    matches[domain] += count

    def meet_affinity_of(self, affine: AffinePods) -> bool:
        matches = self._matches[affine.terms]
        return all(d is not None and at[d] > 0 for d, at in zip(affine.domains, matches, strict=True))

    def have_no_match_for(self, affine: AffinePods) -> bool:
        return not any(self._matches[affine.terms])


def check_affinity(problem: Problem, hosts: Sequence[Host], labelled: PodLabelCounts) -> Iterator[Fault]:
    """Look for a binding order: the first pods of each kind, then all pods without affinity, then the rest.

    A pod may be the first of its kind if it matches its own terms and no other pod does yet, in the whole cluster.
    Where several groups could be first, the largest is; if that leaves a pod unbound, other orders are tried: all
    of them if there are few groups. With many groups whose terms overlap, the right order may be missed: this errs
    on the side of a fault.
    """
    all_affine, others = _group_by_affinity(problem.pods, hosts, labelled)
    unbound = all_affine
    for order in _orders(all_affine):
        left = _never_bound(order, others, hosts)
        unbound = min(unbound, left, key=len)
        if not unbound:
            break
    for affine in unbound:
        for index, number in affine.members:
            yield Fault(
                "affinity",
                f"{problem.pods[index].id} on {hosts[number].name} finds no pod that its affinity requires",
                (problem.pods[index].id, hosts[number].name),
            )


def _orders(all_affine: list[AffinePods]) -> Iterator[Sequence[AffinePods]]:
    """The orders in which groups may be the first of their kind."""
    if len(all_affine) <= MOST_PERMUTED:
        yield from permutations(all_affine)
        return
    yield all_affine
    for affine in all_affine[:OTHER_ORDERS]:
        yield sorted(all_affine, key=lambda other: other is not affine)


def _never_bound(
    order: Sequence[AffinePods], others: list[tuple[LabelledPods, int, int]], hosts: Sequence[Host]
) -> list[AffinePods]:
    """The groups whose affinity is never met, if groups may be the first of their kind in this order."""
    wanted = {affine.terms for affine in order}
    early, late = _BoundPods(hosts, wanted), _BoundPods(hosts, wanted)
    if wanted:
        _bind_existing((early, late), hosts)
    for same_labels, number, count in others:
        late.add(same_labels, number, count)
    waiting = _bind_all_ready(order, late)
    while waiting:
        first = _bind_first_of_kind(waiting, early, late)
        if not first:
            break
        waiting = _bind_all_ready([affine for affine in waiting if affine not in first], late)
    return waiting


def _bind_all_ready(waiting: Sequence[AffinePods], late: _BoundPods) -> list[AffinePods]:
    """Bind every group whose affinity is met, until there is none; returns the rest."""
    while True:
        unbound: list[AffinePods] = []
        for affine in waiting:
            if late.meet_affinity_of(affine):
                _bind(affine, late)
            else:
                unbound.append(affine)
        if len(unbound) == len(waiting):
            return unbound
        waiting = unbound


def _bind_first_of_kind(waiting: list[AffinePods], early: _BoundPods, late: _BoundPods) -> set[AffinePods]:
    """Bind every group that may be the first of its kind."""
    first = set()
    for affine in waiting:
        if affine.matches_itself and early.have_no_match_for(affine) and not late.meet_affinity_of(affine):
            _bind(affine, early)
            _bind(affine, late)
            first.add(affine)
    return first


def _bind(affine: AffinePods, bound: _BoundPods) -> None:
    for number, count in Counter(number for _, number in affine.members).items():
        bound.add(affine.same_labels, number, count)


def _bind_existing(bounds: Sequence[_BoundPods], hosts: Sequence[Host]) -> None:
    seen: dict[tuple[str, Pairs], LabelledPods] = {}
    for number, host in enumerate(hosts):
        for existing in host.existing_pods:
            key = (existing.namespace, existing.shape.labels)
            same_labels = seen.setdefault(key, LabelledPods(existing.namespace, dict(existing.shape.labels)))
            for bound in bounds:
                bound.add(same_labels, number, existing.count)


def _group_by_affinity(
    pods: Sequence[PendingPod], hosts: Sequence[Host], labelled: PodLabelCounts
) -> tuple[list[AffinePods], list[tuple[LabelledPods, int, int]]]:
    """Pods with affinity in groups, the largest first; and pods without, as (labels, host, how many)."""
    all_affine: dict[tuple[LabelledPods, AffinityTerms, tuple[str | None, ...]], AffinePods] = {}
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
            affine = all_affine.setdefault(
                (same_labels, terms, domains), AffinePods(same_labels, terms, domains)
            )
            affine.members.append((index, number))
    ordered = sorted(all_affine.values(), key=lambda affine: -len(affine.members))
    return ordered, [(same_labels, number, count) for (same_labels, number), count in others.items()]
