"""Topology spread (DoNotSchedule), checked on the final state: no pod is in a domain that exceeds its skew.

Stricter than the scheduler, which checks once, when it binds: a state that holds at the end does not depend on the
order in which pods are bound. Domains are those of existing nodes and those that an option could bring.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidemill.bench.checker.hosts import Fault, Host
from tidemill.bench.checker.pod_counts import PodLabelCounts
from tidemill.decide.packer.problem import PendingPod, Problem
from tidemill.model.labels import Selector, Taint, Toleration
from tidemill.model.pods import PodShape, Spread
from tidemill.sim.cluster.scheduler_filters import PodSelector, matches_node_affinity, untolerated_taint
from tidemill.spec.names import LABEL_HOSTNAME


@dataclass(frozen=True, slots=True)
class Counted:
    """Which nodes count for a pod's constraint: its policies, and every hard topology key it names."""

    keys: frozenset[str]
    node_selector: tuple[tuple[str, str], ...] = ()
    node_terms: tuple[Selector, ...] = ()
    tolerations: tuple[Toleration, ...] | None = None  # None: taints are not looked at

    def includes(self, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> bool:
        if not self.keys <= labels.keys():
            return False
        if self.tolerations is not None and untolerated_taint(self.tolerations, taints) is not None:
            return False
        return matches_node_affinity(
            PodShape(node_selector=self.node_selector, node_terms=self.node_terms), labels
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """One constraint, the same for every pod it is the same for."""

    topology_key: str
    selector: PodSelector
    max_skew: int
    min_domains: int
    counted: Counted


def rules_of(shape: PodShape, namespace: str) -> list[Rule]:
    hard = [spread for spread in shape.spread if spread.hard]
    keys = frozenset(spread.topology_key for spread in hard)
    return [
        Rule(
            spread.topology_key,
            PodSelector.of_spread(spread, namespace, shape.labels),
            spread.max_skew,
            spread.min_domains,
            _counted(spread, shape, keys),
        )
        for spread in hard
    ]


def _counted(spread: Spread, shape: PodShape, keys: frozenset[str]) -> Counted:
    return Counted(
        keys,
        shape.node_selector if spread.honor_affinity else (),
        shape.node_terms if spread.honor_affinity else (),
        shape.tolerations if spread.honor_taints else None,
    )


def option_domains(problem: Problem, rule: Rule) -> set[str]:
    """The domains that new nodes could bring. Of host names: one that no node has yet."""
    domains = set()
    for option in problem.options:
        labels = {**option.labels, LABEL_HOSTNAME: ""}
        if rule.counted.includes(labels, option.taints):
            domains.add(labels[rule.topology_key])
    return domains


def check_spread(problem: Problem, hosts: Sequence[Host], labelled: PodLabelCounts) -> Iterator[Fault]:
    for rule, holders in _holders(problem.pods, hosts).items():
        counting = _counting(rule, hosts)
        pods, existing_pods = labelled.count(labelled.selected_by(rule.selector), rule.topology_key, counting)
        domains = {hosts[number].labels[rule.topology_key] for number in counting}
        domains |= option_domains(problem, rule)
        least = min((pods[domain] + existing_pods[domain] for domain in domains), default=0)
        if len(domains) < rule.min_domains:
            least = 0
        for domain, (pod, number) in holders.items():
            where = f"{rule.topology_key}={domain}"
            if domain is None:
                yield Fault(
                    "spread",
                    f"{problem.pods[pod].id} is spread by {rule.topology_key}, which {hosts[number].name} lacks",
                    (problem.pods[pod].id, hosts[number].name),
                )
            elif pods[domain] + existing_pods[domain] - least > rule.max_skew:
                yield Fault(
                    "spread",
                    f"{problem.pods[pod].id} is in {where} with {pods[domain] + existing_pods[domain]} that it is "
                    f"spread among; another domain has {least}, and it allows a skew of {rule.max_skew}",
                    (problem.pods[pod].id, where),
                )


def _counting(rule: Rule, hosts: Sequence[Host]) -> set[int]:
    by_kind: dict[int, bool] = {}
    for host in hosts:
        if host.kind not in by_kind:
            by_kind[host.kind] = rule.counted.includes(host.labels, host.taints)
    return {number for number, host in enumerate(hosts) if by_kind[host.kind]}


def _holders(
    pods: Sequence[PendingPod], hosts: Sequence[Host]
) -> dict[Rule, dict[str | None, tuple[int, int]]]:
    """By rule and domain: one pod (and its host) that has the rule there; one stands for all."""
    holders: dict[Rule, dict[str | None, tuple[int, int]]] = {}
    known: dict[tuple[object, ...], list[Rule]] = {}
    for number, host in enumerate(hosts):
        for index in host.pods:
            shape, namespace = pods[index].shape, pods[index].namespace
            if not shape.spread:
                continue
            key = (shape.spread, namespace, shape.labels, *_placement(shape))
            rules = known.get(key)
            if rules is None:
                rules = known[key] = rules_of(shape, namespace)
            for rule in rules:
                domain = host.labels.get(rule.topology_key)
                holders.setdefault(rule, {}).setdefault(domain, (index, number))
    return holders


def _placement(shape: PodShape) -> tuple[object, ...]:
    return shape.node_selector, shape.node_terms, shape.tolerations
