"""Which domain each pod goes to, decided on counts before a single node is looked at.

Pods with rules about domains are split by the rules, the others go wherever there is room.
"""

from __future__ import annotations

from collections import Counter

from tidemill.decide.packer.bins import Bin
from tidemill.decide.packer.gangs import has_room_in
from tidemill.decide.packer.host_demand import HostDemand
from tidemill.decide.packer.packing_state import PackingState
from tidemill.decide.packer.pod_counters import HOST, PodCounter, counters_of_existing
from tidemill.decide.packer.pod_groups import GroupedPods, PodGroup
from tidemill.decide.packer.problem import Problem
from tidemill.decide.packer.rank_plan import RankPlan, plan_ranks
from tidemill.decide.packer.supply import Domain
from tidemill.decide.packer.topology_spread import DomainBalancer, DomainShare

_PREPAID_SHARE = 0.5


def add_existing_nodes(problem: Problem, grouped: GroupedPods, packing: PackingState) -> DomainBalancer:
    """A bin for every existing node, in their order. Counts the pods on them, for their host and their domain."""
    supply = packing.supply
    domains_of_nodes = [supply.domain_of(node.labels) for node in problem.nodes]
    balancer = DomainBalancer(supply, grouped, sorted({*domains_of_nodes, *supply.by_domain}))
    known: dict[tuple[int, str], tuple[list[PodCounter], list[PodCounter]]] = {}
    for number, (domain, node) in enumerate(zip(domains_of_nodes, problem.nodes, strict=True)):
        bin = Bin(number, (node.rank, domain), [node.free.get(name, 0) for name in grouped.dimensions])
        bin.node_index, bin.group = number, node.group or number
        for pods in node.existing_pods:
            key = (id(pods.shape), pods.namespace)
            if key not in known:
                known[key] = counters_of_existing(grouped.counters, pods.shape, pods.namespace)
            counting, kept_out = known[key]
            for counter in counting:
                if counter.key == HOST:
                    bin.counts[counter.number] = bin.counts.get(counter.number, 0) + pods.count
                else:
                    balancer.count(counter.number, domain, pods.count)
            for counter in kept_out:
                if counter.key == HOST:  # it allows itself, if it matches
                    own = int(counter in counting)
                    bin.limits[counter.number] = bin.existing_limits[counter.number] = own
                else:
                    balancer.block(counter.number, domain)
            if pods.shape.host_ports:
                bin.ports = (bin.ports or set()) | set(pods.shape.host_ports)
        packing.add(bin)
    _expect_prepaid(grouped, packing, balancer)
    return balancer


def assign_domains(
    groups: list[PodGroup], packing: PackingState, balancer: DomainBalancer, plan: RankPlan | None = None
) -> list[DomainShare]:
    """Groups with rules about domains first. The others follow the load, so that nodes open where pods are."""
    reachable = _ReachableDomains(packing, sorted(balancer.load))
    shares: list[DomainShare] = []
    unconstrained: list[PodGroup] = []
    stuck: list[tuple[PodGroup, list[int], list[Domain]]] = []
    uneven = balancer.is_uneven()
    counted = [group for group in groups if not group.needs_exact_check]
    balancer.expect(counted)
    hosts: HostDemand | None = None
    ordered = sorted(counted, key=lambda group: _difficulty(group, uneven))
    for position, group in enumerate(ordered):
        if stuck and not group.spreads:  # the others level the counts: until then these pods may be ahead
            ahead, stuck = _assign_ahead(stuck, ordered[position:], reachable, balancer)
            shares += ahead
        allowed, exact = reachable.for_rules(group, balancer)
        if not allowed:
            shares.append(DomainShare(group, group.pods, ()))
        elif not group.has_domain_rules:
            unconstrained.append(group)
        elif not exact:
            group.needs_exact_check = (
                True  # domains it cannot reach count for its rules: counting is not enough
            )
        elif plan is not None and plan.is_level(group):
            shares += balancer.assign_as_planned(group, plan.domains_of(group))
        else:
            if group.affinity and plan is not None:
                allowed = [plan.domain_of_rule(group)]
            elif group.affinity:
                allowed = _with_room(group, allowed, packing, balancer)
            wanted = None
            if group.one_per_host and not uneven and balancer.may_be_uneven(group, allowed):
                hosts = hosts or HostDemand(counted, balancer, shares)
                wanted = hosts.by_fillers(group, allowed)
            assigned, left = balancer.assign(group, group.pods, allowed, wanted)
            shares += assigned
            if left:
                stuck.append((group, left, allowed))
    shares += _assign_stuck(stuck, balancer)
    hosts = HostDemand(counted, balancer, shares)
    for group in unconstrained:
        allowed = reachable.of(group)
        # Where a lower rank goes first, it decides about the domain.
        if group.one_per_host and len(allowed) > 1 and not packing.supply.several_ranks:
            start = 0
            for domain, quota in hosts.by_hosts(group, allowed).items():
                if quota:
                    shares.append(DomainShare(group, group.pods[start : start + quota], (domain,)))
                    start += quota
        else:
            shares.append(DomainShare(group, group.pods, tuple(allowed)))
    return shares


def plan_domains(groups: list[PodGroup], packing: PackingState, balancer: DomainBalancer) -> RankPlan | None:
    """A plan, where no node is there yet, and counts over one topology key are all that the rules are about."""
    supply, domains = packing.supply, sorted(balancer.load)
    if packing.bins or len(supply.keys) != 1 or len(supply.by_site) < 2:
        return None
    reachable = _ReachableDomains(packing, domains)
    for group in groups:
        if group.needs_exact_check or group.anti_affinity:
            return None
        if not group.has_domain_rules:
            continue
        allowed, exact = reachable.for_rules(group, balancer)
        if not exact or len(allowed) != len(domains):
            return None
        own = [counter for counter, _ in group.affinity] or list(group.counted_by)
        if len(own) != 1 or own != list(group.counted_by) or (group.affinity and group.spreads):
            return None
    return plan_ranks(groups, supply, domains)


def _difficulty(group: PodGroup, uneven: bool) -> tuple[object, ...]:
    """Where counts are uneven, groups with a spread go first: groups without can level the counts afterwards.

    Where they are level, pods that need a host each go first, and the others level the counts.
    """
    first = bool(group.spreads) if uneven else group.one_per_host
    rules = (not group.affinity, not group.anti_affinity, not first)
    return (-group.priority, rules, -group.size, group.pods[0])


def _expect_prepaid(grouped: GroupedPods, packing: PackingState, balancer: DomainBalancer) -> None:
    """Prepaid room counts as if a domain were so much emptier: pods that may choose their domain go there.

    Half of it, for many pods that use it have no choice; and only where ranks tell prepaid nodes from others.
    """
    supply = packing.supply
    if not supply.several_ranks:
        return
    sizes: dict[int, float] = {}
    for group in grouped.groups:
        sizes[group.eligibility] = sizes.get(group.eligibility, 0.0) + group.size * len(group.pods)
    for option_group in supply.option_groups:
        option = option_group.options[0]
        if option.price > 0 or not option_group.stock:
            continue
        count = supply.available(option_group, option.consumes)
        if count < supply.stocks.get(option_group.stock, 0):
            continue  # a limit that it shares with nodes that are not prepaid may be used up by them
        able = sum(size for kind, size in sizes.items() if supply.allowed_options(option_group, kind))
        room = sum(
            option.capacity.get(name, 0) * weight
            for name, weight in zip(supply.dimensions, packing.weights, strict=True)
        )
        balancer.load[option_group.domain] -= (
            _PREPAID_SHARE * count * room * able / (sum(sizes.values()) or 1)
        )


def _with_room(
    group: PodGroup, domains: list[Domain], packing: PackingState, balancer: DomainBalancer
) -> list[Domain]:
    """Pods that must stay together go to a domain with room for all of them, if there is one."""
    roomy = [domain for domain in domains if has_room_in(packing, group, domain, len(group.pods))]
    if len(roomy) == len(domains):
        return domains
    return [domain for domain in roomy if balancer.allows(group, domain, domains)] or domains


def _assign_ahead(
    stuck: list[tuple[PodGroup, list[int], list[Domain]]],
    to_come: list[PodGroup],
    reachable: _ReachableDomains,
    balancer: DomainBalancer,
) -> tuple[list[DomainShare], list[tuple[PodGroup, list[int], list[Domain]]]]:
    shares: list[DomainShare] = []
    left: list[tuple[PodGroup, list[int], list[Domain]]] = []
    known: dict[tuple[Domain, ...], Counter[int]] = {}  # pods to come that may go to all these domains
    for group, pods, allowed in stuck:
        flexible = known.get(tuple(allowed))
        if flexible is None:
            flexible = known[tuple(allowed)] = Counter()
            for other in to_come:
                if (
                    len(other.counted_by) == 1
                    and not (other.spreads or other.affinity or other.anti_affinity)
                    and set(allowed) <= set(reachable.for_rules(other, balancer)[0])
                ):
                    flexible[other.counted_by[0]] += len(other.pods)
        assigned, rest = balancer.assign_ahead(group, pods, allowed, flexible)
        shares += assigned
        if rest:
            left.append((group, rest, allowed))
    return shares, left


def _assign_stuck(
    stuck: list[tuple[PodGroup, list[int], list[Domain]]], balancer: DomainBalancer
) -> list[DomainShare]:
    """Pods that no domain could take may find one now that others have levelled the counts."""
    shares: list[DomainShare] = []
    progress = True
    while stuck and progress:
        before, stuck, progress = stuck, [], False
        for group, pods, allowed in before:
            assigned, left = balancer.assign(group, pods, allowed)
            shares += assigned
            progress |= bool(assigned)
            if left:
                stuck.append((group, left, allowed))
    return shares + [DomainShare(group, pods, ()) for group, pods, _ in stuck]


class _ReachableDomains:
    """The domains where groups of one eligibility could use a node."""

    def __init__(self, packing: PackingState, domains: list[Domain]) -> None:
        self._packing, self._supply, self._domains = packing, packing.supply, domains
        self._bins: dict[Domain, list[Bin]] = {}
        for bin in packing.bins:
            self._bins.setdefault(bin.site[1], []).append(bin)
        self._known: dict[int, list[Domain]] = {}
        self._known_for_rules: dict[tuple[int, int, int], tuple[list[Domain], bool]] = {}

    def of(self, group: PodGroup) -> list[Domain]:
        known = self._known.get(group.eligibility)
        if known is None:
            known = self._known[group.eligibility] = [
                domain for domain in self._domains if self._is_reachable(group, domain)
            ]
        return known

    def _is_reachable(self, group: PodGroup, domain: Domain) -> bool:
        option_groups = self._supply.by_domain.get(domain, ())
        if any(
            self._supply.allowed_options(option_group, group.eligibility) for option_group in option_groups
        ):
            return True
        return any(self._packing.may_use(group, bin) for bin in self._bins.get(domain, ()))

    def for_rules(self, group: PodGroup, balancer: DomainBalancer) -> tuple[list[Domain], bool]:
        """Those that have the labels its rules are about, and whether they are all that count for its spreads.

        With fewer domains than a rule wants, every pod counts against zero: then counting by domain is not exact.
        """
        # Groups with the same rules share the tuples they were compiled into.
        key = (group.eligibility, id(group.spreads), id(group.affinity))
        known = self._known_for_rules.get(key)
        if known is None:
            allowed, supply = self.of(group), self._supply
            if group.spreads or group.affinity:
                allowed = self._with_labels(group, allowed, balancer)
            exact = all(
                len(values := self._values(rule.topology_key, allowed)) >= rule.min_domains
                and supply.counted_values(group, rule) == values
                and not supply.has_uncounted_pods(group, rule, counter)
                for counter, rule, _ in group.spreads
            )
            known = self._known_for_rules[key] = (allowed, exact)
        return known

    def _with_labels(self, group: PodGroup, domains: list[Domain], balancer: DomainBalancer) -> list[Domain]:
        """Without the domains that lack a label its rules are about."""
        counters = [counter for counter, _, _ in group.spreads] + [counter for counter, _ in group.affinity]
        positions = {self._supply.keys.index(balancer.key_of(counter)) for counter in counters}
        if all(domain[position] for domain in domains for position in positions):
            return domains  # the same object: the balancer remembers by it
        return [domain for domain in domains if all(domain[position] for position in positions)]

    def _values(self, key: str, domains: list[Domain]) -> set[str]:
        position = self._supply.keys.index(key)
        return {domain[position] for domain in domains}
