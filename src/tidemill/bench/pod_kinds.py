"""Equal pods are one kind: bounds and exact programs count kinds instead of pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemill.bench.checker.hosts import Host
from tidemill.bench.checker.pod_fits_node import eligibility_key, node_faults
from tidemill.decide.packer.problem import PendingPod, Problem
from tidemill.sim.cluster.scheduler_filters import PodSelector
from tidemill.spec.names import LABEL_HOSTNAME, PODS


@dataclass(slots=True)
class PodKind:
    """`count` pods that no rule tells apart."""

    pod: PendingPod
    requests: Mapping[str, int]  # one of `pods` included
    one_per_host: bool  # two of it may not share a host
    count: int = 0

    def most_on(self, host: Host) -> int:
        """How many of it one such node holds; 0 if it may not use the node."""
        wanted = ((name, amount) for name, amount in self.requests.items() if amount > 0)
        most = min(max(host.room.get(name, 0), 0) // amount for name, amount in wanted)
        if most == 0 or next(node_faults(self.pod, host), None) is not None:
            return 0
        return 1 if self.one_per_host else most


def pod_kinds(problem: Problem, *, gangs: bool = True) -> list[PodKind]:
    """The kinds of a problem; with `gangs`, pods of different gangs are of different kinds."""
    kinds: dict[tuple[object, ...], PodKind] = {}
    for pod in problem.pods:
        shape = pod.shape
        gang = pod.gang.name if gangs and pod.gang is not None else None
        rules = (shape.affinity, shape.anti_affinity, shape.spread, shape.host_ports)
        key = (shape.requests, pod.namespace, shape.labels, rules, gang, eligibility_key(pod))
        kind = kinds.get(key)
        if kind is None:
            requests = {**dict(shape.requests), PODS: 1}
            kind = kinds[key] = PodKind(pod, requests, one_per_host=bool(apart((pod,))))
        kind.count += 1
    return list(kinds.values())


def apart(pods: Iterable[PendingPod]) -> dict[PodSelector, list[PendingPod]]:
    """Pods with a host anti-affinity that matches themselves: no two of a list may share a host."""
    found: dict[PodSelector, list[PendingPod]] = {}
    for pod in pods:
        for term in pod.shape.anti_affinity:
            if term.topology_key == LABEL_HOSTNAME:
                selector = PodSelector.of_term(term, pod.namespace)
                if selector.matches(pod.namespace, dict(pod.shape.labels)):
                    found.setdefault(selector, []).append(pod)
    return found
