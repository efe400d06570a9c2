"""May this pod be where those pods are? kube-scheduler's filters NodePorts, PodTopologySpread, InterPodAffinity.

Worked out once for a pod and the cluster as it stands, then asked node by node, in kube-scheduler's words.
Rules of one pod and one node are in `scheduler`; wishes are in `wishes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemill.decide.scheduler_rules import selects, tolerated, wanted
from tidemill.model.pods import PodShape, Spread, spread_selector
from tidemill.sim.cluster.bound_pods import Company, Group
from tidemill.sim.cluster.free_resources import Room
from tidemill.spec import names

NO_PORT = "node(s) didn't have free ports for the requested pod ports"
NO_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
UNEVEN = "node(s) didn't match pod topology spread constraints"
LONELY = "node(s) didn't match pod affinity rules"
TOO_CLOSE = "node(s) didn't match pod anti-affinity rules"
NOT_WELCOME = "node(s) didn't satisfy existing pods anti-affinity rules"


@dataclass(frozen=True, slots=True)
class Field:
    """The nodes over which a spread rule counts, each with its domain; they change only with the nodes."""

    rule: Spread
    domains: Mapping[str, str]  # node -> value of the topology key

    def counts(self, company: Company, shape: PodShape, namespace: str) -> Counter[str]:
        """Pods by domain, terminating ones left out; a domain without any is there with 0."""
        found = Counter(dict.fromkeys(self.domains.values(), 0))
        for group in company.meant(spread_selector(self.rule, shape.labels), (namespace,)):
            for node, pods in group.staying.items():
                domain = self.domains.get(node)
                if domain is not None:
                    found[domain] += pods
        return found


def fields(shape: PodShape, pinned_to: str, rooms: Iterable[Room], *, hard: bool) -> tuple[Field, ...]:
    """One for each rule of a kind. Only nodes that have the keys of all of them count, for any of them."""
    rules = [rule for rule in shape.spread if rule.hard is hard]
    having = [room for room in rooms if all(rule.topology_key in room.labels for rule in rules)]
    return tuple(
        Field(
            rule,
            {
                room.node.name: room.labels[rule.topology_key]
                for room in having
                if _counts(rule, shape, pinned_to, room)
            },
        )
        for rule in rules
    )


def _counts(rule: Spread, shape: PodShape, pinned_to: str, room: Room) -> bool:
    """A pin is a node selector. A node that is not Ready or cordoned carries a taint that says so."""
    if rule.honor_taints:
        shut = room.node.unschedulable or not room.node.ready
        if shut or not tolerated(shape, room.node.taints):
            return False
    if not rule.honor_affinity:
        return True
    if pinned_to and room.labels.get(names.LABEL_SOURCE) != pinned_to:
        return False
    return wanted(shape, room.labels)


class Neighbours:
    """What a pod of this shape would meet, as things stand now."""

    def __init__(
        self, shape: PodShape, namespace: str, company: Company, spread_over: Iterable[Field]
    ) -> None:
        self._shape = shape
        self._no_port = company.ports_taken(shape.host_ports) if shape.host_ports else set()
        self._spreads = [_Even(field, company, shape, namespace) for field in spread_over]
        self._not_welcome = _refusals(shape, namespace, company)
        self._too_close = {
            (term.topology_key, value)
            for term in shape.anti_affinity
            for value in company.count(term.topology_key, company.meant_by(term, namespace))
        }
        self._wanted = _company_of(shape, namespace, company) if shape.affinity else []
        own = Group(shape, namespace, dict(shape.labels))
        # The first of a kind that wants its own kind may go anywhere, or none of them would ever start.
        self._first = not any(self._wanted) and all(own.is_meant_by(one, namespace) for one in shape.affinity)

    def objection(self, room: Room) -> str:
        """Empty: none."""
        if room.node.name in self._no_port:
            return NO_PORT
        labels = room.labels
        for spread in self._spreads:
            reason = spread.objection(labels)
            if reason:
                return reason
        if self._wanted and not self._has_company(labels):
            return LONELY
        if self._too_close and any(labels.get(key) == value for key, value in self._too_close):
            return TOO_CLOSE
        if self._not_welcome and any(labels.get(key) == value for key, value in self._not_welcome):
            return NOT_WELCOME
        return ""

    def _has_company(self, labels: Mapping[str, str]) -> bool:
        keys = [term.topology_key for term in self._shape.affinity]
        if not all(key in labels for key in keys):
            return False
        return self._first or all(found[labels[key]] for key, found in zip(keys, self._wanted, strict=True))


class _Even:
    """One spread rule: how full the emptiest domain is, and by how much another may be fuller."""

    def __init__(self, field: Field, company: Company, shape: PodShape, namespace: str) -> None:
        self._rule = rule = field.rule
        self._counts = field.counts(company, shape, namespace)
        self._least = min(self._counts.values(), default=0)
        if len(self._counts) < rule.min_domains:
            self._least = 0  # a domain that is yet to come counts as empty
        self._own = int(selects(spread_selector(rule, shape.labels), dict(shape.labels)))

    def objection(self, labels: Mapping[str, str]) -> str:
        domain = labels.get(self._rule.topology_key)
        if domain is None:
            return NO_LABEL
        skew = self._counts[domain] + self._own - self._least
        return UNEVEN if skew > self._rule.max_skew else ""


def _refusals(shape: PodShape, namespace: str, company: Company) -> set[tuple[str, str]]:
    """Places that pods which are there already keep free of pods like this one."""
    own = Group(shape, namespace, dict(shape.labels))
    return {
        (term.topology_key, value)
        for group in company.minding
        if group.at
        for term in group.shape.anti_affinity
        if own.is_meant_by(term, group.namespace)
        for value in company.count(term.topology_key, (group,))
    }


def _company_of(shape: PodShape, namespace: str, company: Company) -> list[Counter[str]]:
    """By affinity term: where pods are that *all* terms mean, as kube-scheduler reads several of them."""
    first, *rest = shape.affinity
    mates = [
        group
        for group in company.meant_by(first, namespace)
        if all(group.is_meant_by(term, namespace) for term in rest)
    ]
    return [company.count(term.topology_key, mates) for term in shape.affinity]
