"""Which domain pods go to that need a host each: where other pods will fill those hosts, or already need as many.

Such a pod forces a node open. Whatever shares the node with it must be in its domain and must not be kept out by it,
so the domain is chosen by the pods that could share it and not evenly. designs/0002-solver.md has an example.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemill.decide.packer.pod_groups import PodGroup
from tidemill.decide.packer.supply import Domain
from tidemill.decide.packer.topology_spread import DomainBalancer, DomainShare

_Rules = tuple[tuple[int, ...], tuple[tuple[int, int, int], ...]]  # host counters and host limits of a group


class HostDemand:
    """Of one assignment. `assigned` are the shares of the groups that have no choice of their domain."""

    def __init__(
        self, groups: Iterable[PodGroup], balancer: DomainBalancer, assigned: Sequence[DomainShare]
    ) -> None:
        self._balancer = balancer
        self._flexible: dict[_Rules, float] = {}  # size of the pods that may fill hosts in any domain
        self._fixed: dict[_Rules, dict[Domain, float]] = {}  # of those that have a domain
        self._pods: dict[tuple[int, ...], int] = {}  # pods that need a host each, by the counters they share
        self._hosts: dict[int, dict[Domain, int]] = {}  # hosts that pods of one counter need in a domain
        self._owed: dict[tuple[object, ...], dict[Domain, float]] = {}
        fixed = {id(share.group) for share in assigned}
        for group in groups:
            if group.one_per_host:
                own = own_counters(group)
                self._pods[own] = self._pods.get(own, 0) + len(group.pods)
            elif id(group) not in fixed:
                rules = (group.host_counted_by, group.host_limits)
                self._flexible[rules] = self._flexible.get(rules, 0.0) + group.size * len(group.pods)
        for share in assigned:
            self.count(share)

    def count(self, share: DomainShare) -> None:
        """A share has its domains now."""
        group = share.group
        if group.one_per_host:
            if len(share.domains) == 1:
                for counter in own_counters(group):
                    hosts = self._hosts.setdefault(counter, {})
                    hosts[share.domains[0]] = hosts.get(share.domains[0], 0) + len(share.pods)
            return
        sizes = self._fixed.setdefault((group.host_counted_by, group.host_limits), {})
        for domain in share.domains:
            part = group.size * len(share.pods) / len(share.domains)
            sizes[domain] = sizes.get(domain, 0.0) + part

    def by_fillers(self, group: PodGroup, domains: list[Domain]) -> dict[Domain, int] | None:
        """How many pods each domain gets: in proportion to the pods that could share their hosts.

        None: most of those can still go anywhere, and will go where the hosts are.
        """
        weights = dict.fromkeys(domains, 0.0)
        for rules, sizes in self._fixed.items():
            if can_share(group, rules):
                for domain in domains:
                    weights[domain] += sizes.get(domain, 0.0)
        flexible = sum(size for rules, size in self._flexible.items() if can_share(group, rules))
        if flexible >= sum(weights.values()):
            return None
        for domain in domains:
            weights[domain] += flexible / len(domains)
        return self._split(group, weights)

    def by_hosts(self, group: PodGroup, domains: list[Domain]) -> dict[Domain, int]:
        """How many pods each domain gets: one on each host that others need already, the rest by load."""
        load, total = self._balancer.load, self._pods[own_counters(group)]
        hosts = {
            domain: max((of.get(domain, 0) for of in self._hosts.values()), default=0) for domain in domains
        }
        more = total - sum(hosts.values())
        weights = {domain: float(count) for domain, count in hosts.items()}
        if more > 0:
            every = sum(load[domain] for domain in domains)
            for domain in domains:
                weights[domain] += more * (load[domain] / every if every else 1 / len(domains))
        return self._split(group, weights)

    def _split(self, group: PodGroup, weights: dict[Domain, float]) -> dict[Domain, int]:
        """In proportion to the weights. What rounding gave a domain too much counts for the next group of the kind."""
        pod_count, total = len(group.pods), sum(weights.values())
        owed = self._owed.setdefault((group.host_counted_by, group.host_limits), {})
        for domain, weight in weights.items():
            part = weight / total if total else 1 / len(weights)
            owed[domain] = owed.get(domain, 0.0) + pod_count * part
        quotas = dict.fromkeys(weights, 0)
        left = pod_count
        for domain in sorted(weights, key=lambda domain: -owed[domain]):
            quotas[domain] = min(left, max(0, int(owed[domain])))
            left -= quotas[domain]
        for domain in sorted(weights, key=lambda domain: quotas[domain] - owed[domain])[:left]:
            quotas[domain] += 1
        for domain, quota in quotas.items():
            owed[domain] -= quota
        return quotas


def own_counters(group: PodGroup) -> tuple[int, ...]:
    return tuple([counter for counter, limit, own in group.host_limits if own and limit == 1])


def can_share(group: PodGroup, rules: _Rules) -> bool:
    """Whether pods with these rules could share a host with a pod of the group, in any number."""
    counted_by, limits = rules
    return not any(counter in counted_by for counter, _, _ in group.host_limits) and not any(
        counter in group.host_counted_by for counter, _, _ in limits
    )
