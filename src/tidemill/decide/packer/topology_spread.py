"""Which domain each pod goes to, decided on counts before a single node is looked at.

Spread, affinity and anti-affinity over domains (zones, mostly) only ask how many pods of a kind a domain has.
The rules are kept for the final state, whatever the order in which the scheduler binds: a counter that
somebody watches stays level even when pods come that do not mind it themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill.decide.packer.pod_groups import Crowd, Crowds
from tidemill.decide.packer.supply import Domain, Ground


@dataclass(slots=True)
class Share:
    """So many asks of a crowd, for any of these domains."""

    crowd: Crowd
    asks: list[int]
    domains: tuple[Domain, ...]


@dataclass(slots=True)
class Tally:
    """Counts of the counters over the values of their keys, and how strictly somebody watches each."""

    counts: list[dict[str, int]]
    skew: dict[tuple[int, str], int] = field(
        default_factory=dict
    )  # where somebody minds: the smallest skew asked for
    barred: set[tuple[int, str]] = field(default_factory=set)  # an anti-affine pod is there


class Dealer:
    def __init__(self, ground: Ground, found: Crowds, domains: list[Domain]) -> None:
        self._ground = ground
        self._position = {key: place for place, key in enumerate(ground.keys)}
        self._keys = [counter.key for counter in found.counters]
        self.tally = Tally([{} for _ in found.counters])
        self._domains = domains
        self.load: dict[Domain, float] = dict.fromkeys(domains, 0.0)
        self.barred: set[int] = set()  # counters that an anti-affine pod keeps out of some domain
        self.minded: set[int] = set()  # counters that somebody who stands there watches, or is barred by
        self._levels: dict[tuple[int, int], str] = {}
        self._values: dict[tuple[str, int], dict[str, tuple[Domain, ...]]] = {}

    def key_of(self, counter: int) -> str:
        return self._keys[counter]

    # --- what is there already ---

    def count(self, counter: int, domain: Domain, pods: int) -> None:
        value = self._value(counter, domain)
        counts = self.tally.counts[counter]
        counts[value] = counts.get(value, 0) + pods

    def _value(self, counter: int, domain: Domain) -> str:
        return domain[self._position[self._keys[counter]]]

    def is_uneven(self) -> bool:
        """Does any counter differ between domains by more than the usual skew?"""
        for counter, counts in enumerate(self.tally.counts):
            if counts:
                heights = [self._height(counter, domain) for domain in self._domains]
                if max(heights) - min(heights) > 1:
                    return True
        return False

    # --- dealing ---

    def deal(self, crowd: Crowd, asks: list[int], domains: list[Domain]) -> tuple[list[Share], list[int]]:
        """Shares of a crowd's asks over these domains, and those that no domain may take as things stand."""
        pods = len(asks)
        quick = (
            self._deal_together(crowd, pods, domains)
            if crowd.company
            else self._deal_level(crowd, pods, domains)
        )
        quotas = quick if quick is not None else self._deal_one_by_one(crowd, pods, domains)
        shares, start, load = [], 0, self.load
        for within, count in quotas:
            shares.append(Share(crowd, asks[start : start + count] if count < pods else asks, within))
            for domain in within:
                load[domain] += count * crowd.size / len(within)
            start += count
        return shares, asks[start:]

    def _deal_together(
        self, crowd: Crowd, pods: int, domains: list[Domain]
    ) -> list[tuple[tuple[Domain, ...], int]] | None:
        """Who wants its own kind, and nothing else: all of them where the first one goes."""
        if crowd.spreads or crowd.apart or any(counter in self.minded for counter in crowd.moves):
            return None
        domain = self._best(crowd, domains)
        if domain is None:
            return []
        for counter in crowd.moves:
            self.count(counter, domain, pods)
        return [((domain,), pods)]

    def _deal_level(
        self, crowd: Crowd, pods: int, domains: list[Domain]
    ) -> list[tuple[tuple[Domain, ...], int]] | None:
        """The usual case at once: one counter to keep level, and rules that are met wherever it is kept so."""
        key = self._level_key(crowd)
        if not key or crowd.moves[0] in self.barred:
            return None
        within, tallies = self._by_value(key, domains), self.tally.counts
        for counter, rule, _ in crowd.spreads:
            there = [tallies[counter].get(value, 0) for value in within]
            if max(there) - min(there) > rule.max_skew or len(within) < rule.min_domains:
                return None
        counts, load = tallies[crowd.moves[0]], self.load
        heights = sorted([(counts.get(value, 0), load[of[0]], value) for value, of in within.items()])
        quotas = _fill_level([height for height, _, _ in heights], pods)
        dealt = []
        for (height, _, value), quota in zip(heights, quotas, strict=True):
            if quota:
                counts[value] = height + quota
                dealt.append((within[value], quota))
                for counter, rule, _ in crowd.spreads:
                    self._watch(counter, value, rule.max_skew)
        return dealt

    def _level_key(self, crowd: Crowd) -> str:
        """The one key over which a crowd is kept level, if that is all there is to it; empty: it is not."""
        known = self._levels.get((id(crowd.moves), id(crowd.spreads)))  # shared by crowds with the same rules
        if known is None:
            known = ""
            if len(crowd.moves) == 1 and not crowd.apart and not crowd.company:
                moved = crowd.moves[0]
                known = self._keys[moved]
                for counter, _, own in crowd.spreads:
                    if self._keys[counter] != known or (own and counter != moved):
                        known = ""
            self._levels[(id(crowd.moves), id(crowd.spreads))] = known
        return known

    def _by_value(self, key: str, domains: list[Domain]) -> dict[str, tuple[Domain, ...]]:
        """The domains of each value of a key. The same list of domains gives the same answer."""
        known = self._values.get((key, id(domains)))
        if known is None:
            place = self._position[key]
            values: dict[str, list[Domain]] = {}
            for domain in domains:
                values.setdefault(domain[place], []).append(domain)
            known = self._values[(key, id(domains))] = {value: tuple(of) for value, of in values.items()}
        return known

    def _watch(self, counter: int, value: str, skew: int) -> None:
        """A pod that minds this counter stands in the domain with this value."""
        self.minded.add(counter)
        known = self.tally.skew.get((counter, value))
        self.tally.skew[(counter, value)] = skew if known is None else min(known, skew)

    def bar(self, counter: int, domain: Domain) -> None:
        self.barred.add(counter)
        self.minded.add(counter)
        self.tally.barred.add((counter, self._value(counter, domain)))

    def _deal_one_by_one(
        self, crowd: Crowd, pods: int, domains: list[Domain]
    ) -> list[tuple[tuple[Domain, ...], int]]:
        quotas: dict[Domain, int] = {}
        for _ in range(pods):
            domain = self._best(crowd, domains)
            if domain is None:
                break
            quotas[domain] = quotas.get(domain, 0) + 1
            self.load[domain] += crowd.size * 1e-9  # so that ties rotate; the whole is added afterwards
            for counter in crowd.moves:
                self.count(counter, domain, 1)
            for counter, rule, _ in crowd.spreads:
                self._watch(counter, self._value(counter, domain), rule.max_skew)
            for counter, _ in crowd.apart:
                self.bar(counter, domain)
        return [((domain,), count) for domain, count in quotas.items()]

    def _best(self, crowd: Crowd, domains: list[Domain]) -> Domain | None:
        allowed = [domain for domain in domains if self.allows(crowd, domain, domains)]
        if not allowed:
            return None

        def heights(domain: Domain) -> tuple[int, float]:
            moved = sum(
                self.tally.counts[counter].get(self._value(counter, domain), 0) for counter in crowd.moves
            )
            return moved, self.load[domain]

        return min(allowed, key=heights)

    def allows(self, crowd: Crowd, domain: Domain, domains: list[Domain]) -> bool:
        """Would everybody be content, the pods that are there included, with one more of this crowd here?"""
        for counter, rule, own in crowd.spreads:
            if (
                self._height(counter, domain) + own - self._lowest(counter, domains, rule.min_domains)
                > rule.max_skew
            ):
                return False
        for counter, _ in crowd.apart:
            if self._height(counter, domain) > 0:
                return False
        for counter, own_match in crowd.company:
            if self._height(counter, domain) == 0 and not (
                own_match and not any(self.tally.counts[counter].values())
            ):
                return False
        for counter in crowd.moves:
            if (counter, self._value(counter, domain)) in self.tally.barred:
                return False
            skew = self.tally.skew.get((counter, self._value(counter, domain)))
            if (
                skew is not None
                and self._height(counter, domain) + 1 - self._lowest(counter, domains, 1) > skew
            ):
                return False
        return True

    def _height(self, counter: int, domain: Domain) -> int:
        return self.tally.counts[counter].get(self._value(counter, domain), 0)

    def _lowest(self, counter: int, domains: list[Domain], min_domains: int) -> int:
        values = {self._value(counter, domain) for domain in domains}
        if len(values) < min_domains:
            return 0
        counts = self.tally.counts[counter]
        return min(counts.get(value, 0) for value in values)


def _fill_level(heights: list[int], pods: int) -> list[int]:
    """Pour pods onto columns of these heights (lowest first) so that the lowest rise first."""
    quotas = [0] * len(heights)
    level, columns = heights[0], 1
    while pods > 0:
        while columns < len(heights) and heights[columns] <= level:
            columns += 1
        upto = heights[columns] if columns < len(heights) else None
        rise = pods // columns if upto is None else min(pods // columns, upto - level)
        if rise == 0:
            for place in range(pods):
                quotas[place] += 1
            return quotas
        for place in range(columns):
            quotas[place] += rise
        pods -= rise * columns
        level += rise
    return quotas
