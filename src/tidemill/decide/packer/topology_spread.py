"""How many pods each domain has and may have: quotas per domain.

Spread, affinity and anti-affinity over domains (zones, mostly) only ask how many pods that match a selector a domain
has. The rules are kept for the final state, whatever the order in which the scheduler binds: a counter that a placed
pod's rule watches stays level even when pods come that have no such rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemill.decide.packer.pod_groups import GroupedPods, PodGroup
from tidemill.decide.packer.supply import Domain, Supply

_Quotas = list[tuple[tuple[Domain, ...], int]]  # so many pods for any of these domains


@dataclass(slots=True)
class DomainShare:
    """Pods of a group, for any of these domains."""

    group: PodGroup
    pods: list[int]
    domains: tuple[Domain, ...]


class DomainBalancer:
    """Splits pod groups over domains, on counts alone."""

    def __init__(self, supply: Supply, grouped: GroupedPods, domains: list[Domain]) -> None:
        self._position = {key: position for position, key in enumerate(supply.keys)}
        self._keys = [counter.key for counter in grouped.counters]
        self._domains = domains
        self.load: dict[Domain, float] = dict.fromkeys(domains, 0.0)
        self._counts: list[dict[str, int]] = [{} for _ in grouped.counters]  # by counter, by value of its key
        self._strictest_skew: dict[tuple[int, str], int] = {}  # by counter and value, of the pods there
        self._blocked_values: set[tuple[int, str]] = set()  # counter and value: an anti-affinity is there
        self._blocked: set[int] = set()  # the counters among them
        self._constrained: set[int] = set()  # counters that the rule of a placed pod is about
        self._expected: Counter[int] = Counter()  # pods that are not assigned yet, by counter
        self._targets: dict[int, dict[Domain, int]] = {}  # by counter: the level of each domain in the end
        self._level_keys: dict[tuple[int, int], str] = {}
        self._domains_by_value: dict[tuple[str, int], dict[str, tuple[Domain, ...]]] = {}

    def key_of(self, counter: int) -> str:
        return self._keys[counter]

    def count(self, counter: int, domain: Domain, pod_count: int) -> None:
        value = self._value(counter, domain)
        counts = self._counts[counter]
        counts[value] = counts.get(value, 0) + pod_count

    def block(self, counter: int, domain: Domain) -> None:
        """A pod in this domain has an anti-affinity to the pods of this counter."""
        self._blocked.add(counter)
        self._constrained.add(counter)
        self._blocked_values.add((counter, self._value(counter, domain)))

    def _value(self, counter: int, domain: Domain) -> str:
        return domain[self._position[self._keys[counter]]]

    def _count_in(self, counter: int, domain: Domain) -> int:
        return self._counts[counter].get(self._value(counter, domain), 0)

    def is_uneven(self) -> bool:
        """Whether any counter differs between domains by more than the usual skew."""
        for counter, counts in enumerate(self._counts):
            if counts:
                levels = [self._count_in(counter, domain) for domain in self._domains]
                if max(levels) - min(levels) > 1:
                    return True
        return False

    # --- quotas ---

    def expect(self, groups: Iterable[PodGroup]) -> None:
        """The groups that are going to be assigned."""
        self._expected = Counter()
        for group in groups:
            for counter in group.counted_by:
                self._expected[counter] += len(group.pods)

    def may_be_uneven(self, group: PodGroup, domains: list[Domain]) -> bool:
        """Whether a group without rules about domains may go where it likes: pods to come level the counts."""
        key = self._level_key(group)
        return (
            bool(key)
            and not group.spreads
            and group.counted_by[0] not in self._constrained
            and len(self._by_value(key, domains)) == len(domains)
        )

    def assign(
        self,
        group: PodGroup,
        pods: list[int],
        domains: list[Domain],
        wanted: Mapping[Domain, int] | None = None,
    ) -> tuple[list[DomainShare], list[int]]:
        """Shares of a group's pods over these domains, and the pods that no domain may take now."""
        pod_count = len(pods)
        quotas: _Quotas | None = None
        if wanted is not None:
            quotas = self._assign_as_wanted(group, wanted)
            if rest := pod_count - sum(count for _, count in quotas):
                quotas += self._assign_evenly(group, rest, domains) or []
        elif group.affinity:
            quotas = self._assign_together(group, pod_count, domains)
        else:
            quotas = self._assign_evenly(group, pod_count, domains)
        if quotas is None:
            quotas = self._assign_one_by_one(group, pod_count, domains)
        shares, start, load = [], 0, self.load
        for within, count in quotas:
            shares.append(
                DomainShare(group, pods[start : start + count] if count < pod_count else pods, within)
            )
            for domain in within:
                load[domain] += count * group.size / len(within)
            start += count
        return shares, pods[start:]

    def assign_as_planned(self, group: PodGroup, wanted: Mapping[Domain, int]) -> list[DomainShare]:
        """As wanted, up to the level that all domains have in the end; the rest where that is not reached yet.

        For counters all of whose pods are assigned here and may go to every domain: then all end level.
        """
        counter, pods, shares = group.counted_by[0], group.pods, []
        targets = self._targets.get(counter)
        if targets is None:
            total = sum(self._counts[counter].values()) + self._expected[counter]
            each, more = divmod(total, len(wanted))
            targets = {domain: each + (n < more) for n, domain in enumerate(sorted(wanted))}
            self._targets[counter] = targets
        room = {domain: targets[domain] - self._count_in(counter, domain) for domain in wanted}
        quotas = {domain: min(quota, room[domain]) for domain, quota in wanted.items()}
        left = len(pods) - sum(quotas.values())
        for domain in sorted(wanted, key=lambda domain: quotas[domain] - room[domain]):
            more = min(left, room[domain] - quotas[domain])
            quotas[domain] += more
            left -= more
        start = 0
        for domain, quota in quotas.items():
            if quota:
                self.count(counter, domain, quota)
                self.load[domain] += quota * group.size
                for rule_counter, rule, _ in group.spreads:
                    self._note_spread(rule_counter, self._value(rule_counter, domain), rule.max_skew)
                shares.append(DomainShare(group, pods[start : start + quota], (domain,)))
                start += quota
        return shares

    def assign_ahead(
        self, group: PodGroup, pods: list[int], domains: list[Domain], flexible: Mapping[int, int]
    ) -> tuple[list[DomainShare], list[int]]:
        """Pods that only the level of their own kind keeps out, where the pods to come will level it.

        `flexible` is how many pods to come each counter counts that may go to any of these domains.
        """
        key = self._level_key(group)
        if not key or group.counted_by[0] in self._blocked or any(own for _, _, own in group.spreads):
            return [], pods
        counter, shares, start = group.counted_by[0], [], 0
        within = self._by_value(key, domains)
        counts = self._counts[counter]
        for value, of in within.items():
            others = sorted([counts.get(other, 0) for other in within if other != value])
            if not others or start == len(pods) or not self._own_spreads_hold(group, of[0], domains):
                continue
            quotas = _even_quotas(others, flexible.get(counter, 0))
            reached = min([level + quota for level, quota in zip(others, quotas, strict=True)])
            room = reached - counts.get(value, 0)
            if room <= 0:
                continue
            share = DomainShare(group, pods[start : start + room], of)
            counts[value] = counts.get(value, 0) + len(share.pods)
            for rule_counter, rule, _ in group.spreads:
                self._note_spread(rule_counter, self._value(rule_counter, of[0]), rule.max_skew)
            for domain in of:
                self.load[domain] += len(share.pods) * group.size / len(of)
            shares.append(share)
            start += len(share.pods)
        return shares, pods[start:]

    def _own_spreads_hold(self, group: PodGroup, domain: Domain, domains: list[Domain]) -> bool:
        return all(
            self._count_in(counter, domain) + own - self._lowest_count(counter, domains, rule.min_domains)
            <= rule.max_skew
            for counter, rule, own in group.spreads
        )

    def _assign_together(self, group: PodGroup, pod_count: int, domains: list[Domain]) -> _Quotas | None:
        """Pods that require their own kind and have no other rule: all where the first one goes. None: not so."""
        if (
            group.spreads
            or group.anti_affinity
            or any(counter in self._constrained for counter in group.counted_by)
        ):
            return None
        domain = self._best_domain(group, domains)
        if domain is None:
            return []
        for counter in group.counted_by:
            self.count(counter, domain, pod_count)
        return [((domain,), pod_count)]

    def _assign_as_wanted(self, group: PodGroup, wanted: Mapping[Domain, int]) -> _Quotas:
        """As wanted, up to the level that the pods to come can reach in every domain."""
        counter = group.counted_by[0]
        counts = self._counts[counter]
        level = -(-(sum(counts.values()) + self._expected[counter]) // len(wanted))
        quotas: _Quotas = []
        for domain, quota in wanted.items():
            value = self._value(counter, domain)
            quota = min(quota, level - counts.get(value, 0))
            if quota > 0:
                self.count(counter, domain, quota)
                self._expected[counter] -= quota
                quotas.append(((domain,), quota))
        return quotas

    def _assign_evenly(self, group: PodGroup, pod_count: int, domains: list[Domain]) -> _Quotas | None:
        """The usual case at once: one counter to keep level, and no rule that needs more. None: not so."""
        key = self._level_key(group)
        if not key or group.counted_by[0] in self._blocked:
            return None
        within, counted_by = self._by_value(key, domains), group.counted_by[0]
        for counter, rule, _ in group.spreads:
            here = [self._counts[counter].get(value, 0) for value in within]
            # The lowest get its pods first: only a rule about other pods can be broken before they are level.
            if (counter != counted_by and max(here) - min(here) > rule.max_skew) or len(
                within
            ) < rule.min_domains:
                return None
        counts, load = self._counts[counted_by], self.load
        levels = sorted([(counts.get(value, 0), load[of[0]], value) for value, of in within.items()])
        quotas = []
        for (level, _, value), quota in zip(
            levels, _even_quotas([row[0] for row in levels], pod_count), strict=True
        ):
            if quota:
                counts[value] = level + quota
                self._expected[counted_by] -= quota
                quotas.append((within[value], quota))
                for counter, rule, _ in group.spreads:
                    self._note_spread(counter, value, rule.max_skew)
        return quotas

    def _level_key(self, group: PodGroup) -> str:
        """The one key over which a group is kept level, if it has no other rule; else empty."""
        identity = (id(group.counted_by), id(group.spreads))  # groups with the same rules share these tuples
        known = self._level_keys.get(identity)
        if known is None:
            known = ""
            if len(group.counted_by) == 1 and not group.anti_affinity and not group.affinity:
                counted_by = group.counted_by[0]
                known = self._keys[counted_by]
                for counter, _, own in group.spreads:
                    if self._keys[counter] != known or (own and counter != counted_by):
                        known = ""
            self._level_keys[identity] = known
        return known

    def _by_value(self, key: str, domains: list[Domain]) -> dict[str, tuple[Domain, ...]]:
        """The domains of each value of a key, remembered by the list object."""
        known = self._domains_by_value.get((key, id(domains)))
        if known is None:
            position = self._position[key]
            values: dict[str, list[Domain]] = {}
            for domain in domains:
                values.setdefault(domain[position], []).append(domain)
            known = {value: tuple(of) for value, of in values.items()}
            self._domains_by_value[(key, id(domains))] = known
        return known

    def _note_spread(self, counter: int, value: str, skew: int) -> None:
        """A pod with a spread rule about this counter is placed in the domain with this value."""
        self._constrained.add(counter)
        known = self._strictest_skew.get((counter, value))
        self._strictest_skew[(counter, value)] = skew if known is None else min(known, skew)

    def _assign_one_by_one(self, group: PodGroup, pod_count: int, domains: list[Domain]) -> _Quotas:
        quotas: dict[Domain, int] = {}
        for _ in range(pod_count):
            domain = self._best_domain(group, domains)
            if domain is None:
                break
            quotas[domain] = quotas.get(domain, 0) + 1
            self.load[domain] += group.size * 1e-9  # so that ties rotate; the whole is added afterwards
            for counter in group.counted_by:
                self.count(counter, domain, 1)
            for counter, rule, _ in group.spreads:
                self._note_spread(counter, self._value(counter, domain), rule.max_skew)
            for counter, _ in group.anti_affinity:
                self.block(counter, domain)
        return [((domain,), count) for domain, count in quotas.items()]

    def _best_domain(self, group: PodGroup, domains: list[Domain]) -> Domain | None:
        """Of the domains that may take one more pod, the one with the fewest of its kind, then the least load."""
        allowed = [domain for domain in domains if self.allows(group, domain, domains)]
        if not allowed:
            return None

        def level(domain: Domain) -> tuple[int, float]:
            return sum(self._count_in(counter, domain) for counter in group.counted_by), self.load[domain]

        return min(allowed, key=level)

    def allows(self, group: PodGroup, domain: Domain, domains: list[Domain]) -> bool:
        """Whether one more pod of this group keeps all rules: its own, and those of the pods placed here."""
        if not self._own_spreads_hold(group, domain, domains):
            return False
        for counter, _ in group.anti_affinity:
            if self._count_in(counter, domain) > 0:
                return False
        for counter, own_match in group.affinity:
            is_first = own_match and not any(self._counts[counter].values())
            if self._count_in(counter, domain) == 0 and not is_first:
                return False
        for counter in group.counted_by:
            value = self._value(counter, domain)
            if (counter, value) in self._blocked_values:
                return False
            skew = self._strictest_skew.get((counter, value))
            if skew is not None:
                lowest = self._lowest_count(counter, domains, 1)
                if self._count_in(counter, domain) + 1 - lowest > skew:
                    return False
        return True

    def _lowest_count(self, counter: int, domains: list[Domain], min_domains: int) -> int:
        values = {self._value(counter, domain) for domain in domains}
        if len(values) < min_domains:
            return 0
        counts = self._counts[counter]
        return min(counts.get(value, 0) for value in values)


def _even_quotas(levels: list[int], pod_count: int) -> list[int]:
    """How many pods each domain gets so that the lowest rise first. `levels` are sorted."""
    quotas = [0] * len(levels)
    level, rising = levels[0], 1
    while pod_count > 0:
        while rising < len(levels) and levels[rising] <= level:
            rising += 1
        upto = levels[rising] if rising < len(levels) else None
        rise = pod_count // rising if upto is None else min(pod_count // rising, upto - level)
        if rise == 0:
            for position in range(pod_count):
                quotas[position] += 1
            return quotas
        for position in range(rising):
            quotas[position] += rise
        pod_count -= rise * rising
        level += rise
    return quotas
