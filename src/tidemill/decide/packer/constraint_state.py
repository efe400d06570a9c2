"""Which pods are on which bin, exactly, and whether the rules between pods hold for the final state.

Slower than counting by domain, and used only where counting is not enough: after a pod found no room, and for pods
whose rules are about particular other pods. Every answer is looked up and none goes through all pods: of a batch of
thousands, thousands may be unplaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tidemill.decide.packer.bins import Bin
from tidemill.decide.packer.packing_state import PackingState
from tidemill.decide.packer.pod_counters import HOST, PodCounter, counters_of_existing
from tidemill.decide.packer.pod_groups import GroupedPods, PodGroup
from tidemill.decide.packer.problem import Problem
from tidemill.decide.packer.spread_levels import SpreadLevels
from tidemill.decide.packer.supply import Domain
from tidemill.model.pods import Spread


@dataclass(slots=True, eq=False)
class PlacedPods:
    """Pods of one group on one bin."""

    group: PodGroup
    bin: Bin
    pods: list[int]


@dataclass(slots=True, eq=False)
class Rules:
    """The rules of a pod group, by the counters they are about."""

    counted_by: tuple[PodCounter, ...]
    spreads: tuple[tuple[SpreadLevels, Spread, int], ...]  # and whether it counts itself
    anti_affinity: tuple[PodCounter, ...]
    affinity: tuple[tuple[PodCounter, bool], ...]  # and whether it matches itself
    waits_for: tuple[int, ...]  # counters that may come to allow it as other pods are placed


_Key = tuple[int, str | None]  # counter, value of its topology key


class ConstraintState:
    def __init__(self, problem: Problem, packing: PackingState, grouped: GroupedPods) -> None:
        self.problem, self.packing, self.grouped = problem, packing, grouped
        self.placed_on: dict[int, dict[int, PlacedPods]] = {}  # by number of the bin, by id of the group
        self.releases = 0  # how often room was given back
        self.progress = [0] * len(grouped.counters)  # how often a counter may have come to allow a pod
        self.lowered: set[SpreadLevels] = set()  # whose lowest level fell since this was last cleared
        self.counts: dict[_Key, int] = {}
        self.totals = [0] * len(grouped.counters)
        self._kept_out: dict[_Key, int] = {}  # placed pods there with an anti-affinity to the counted pods
        self._kept_out_by_existing: set[_Key] = set()
        # By rule and value: (skew, min_domains) -> placed pods there that ask for it.
        self._spread_terms: dict[tuple[SpreadLevels, str], dict[tuple[int, int], int]] = {}
        self._levels: dict[tuple[object, ...], SpreadLevels] = {}
        self._levels_by_counter: list[list[SpreadLevels]] = [[] for _ in grouped.counters]
        self._compiled: dict[tuple[int, ...], Rules] = {}
        self._rules_of: dict[int, Rules] = {}
        self._positions = {key: position for position, key in enumerate(packing.supply.keys)}
        for group in (*grouped.groups, *grouped.gangs):
            self.rules(group)
        self._add_existing_pods()
        group_of = grouped.group_of()
        for bin in packing.bins:
            by_group: dict[int, tuple[PodGroup, list[int]]] = {}
            for pod in bin.pods:
                group = group_of[pod]
                by_group.setdefault(id(group), (group, []))[1].append(pod)
            for group, pods in by_group.values():
                self.add(group, bin, pods)

    # --- the rules of a group ---

    def rules(self, group: PodGroup) -> Rules:
        known = self._rules_of.get(id(group))
        if known is None:
            # Groups with the same rules share the tuples they were compiled into.
            key = (
                group.eligibility, id(group.counter_bits), id(group.counted_by), id(group.host_limits),
                id(group.spreads), id(group.anti_affinity), id(group.affinity), id(group.host_affinity),
            )  # fmt: skip
            known = self._compiled.get(key)
            if known is None:
                known = self._compiled[key] = self._compile(group)
            self._rules_of[id(group)] = known
        return known

    def _compile(self, group: PodGroup) -> Rules:
        counters = self.grouped.counters
        # Among the host limits of a group, those of its spreads over hosts come first.
        host_rules = [rule for rule in group.shape.spread if rule.hard and rule.topology_key == HOST]
        host_spreads = [
            (counter, rule, own)
            for (counter, _, own), rule in zip(group.host_limits, host_rules, strict=False)
        ]
        spreads = [*group.spreads, *host_spreads]
        anti_affinity = [counter for counter, _, _ in group.host_limits[len(host_rules) :]]
        anti_affinity += [counter for counter, _ in group.anti_affinity]
        affinity = (*group.affinity, *group.host_affinity)
        return Rules(
            tuple(counters[number] for number in (*group.host_counted_by, *group.counted_by)),
            tuple((self._levels_of(number, group, rule), rule, own) for number, rule, own in spreads),
            tuple(counters[number] for number in anti_affinity),
            tuple((counters[number], own) for number, own in affinity),
            (*[number for number, _, _ in spreads], *[number for number, _ in affinity]),
        )

    def _levels_of(self, number: int, group: PodGroup, rule: Spread) -> SpreadLevels:
        shape = group.shape
        keys = frozenset(spread.topology_key for spread in shape.spread if spread.hard)
        selects = (shape.node_selector, shape.node_terms) if rule.honor_affinity else ()
        key = (number, keys, selects, shape.tolerations if rule.honor_taints else None)
        known = self._levels.get(key)
        if known is None:
            known = self._levels[key] = SpreadLevels(self.problem, self.grouped.counters[number], group, rule)
            values = {
                self.value(bin, rule.topology_key) for bin in self.packing.bins if self._includes(known, bin)
            }
            known.add_domains(value for value in values if value is not None)
            self._levels_by_counter[number].append(known)
        return known

    def _includes(self, levels: SpreadLevels, bin: Bin) -> bool:
        if bin.node_index >= 0:
            node = self.problem.nodes[bin.node_index]
            return levels.includes(bin.group, node.labels, node.taints)
        assert bin.ladder is not None
        option = bin.ladder.options[bin.rung]
        return levels.includes(-id(option), option.labels, option.taints)

    def bits_are_exact(self) -> bool:
        """Whether `Bin.blocked` is exact: it assumes that the emptiest host of every spread is empty."""
        return all(levels.low == 0 for levels in self._levels.values() if levels.counter.key == HOST)

    def counts_alike(self, bin: Bin, rung: int) -> bool:
        """Whether a new bin would count for the same spread rules if it were of another type."""
        assert bin.ladder is not None
        option = bin.ladder.options[rung]
        return all(
            levels.includes(-id(option), option.labels, option.taints) == self._includes(levels, bin)
            for levels in self._levels.values()
            if levels.selective
        )

    def value(self, bin: Bin, key: str) -> str | None:
        """The value of a topology key on a bin; None: the node lacks the label, so it is in no domain."""
        return f"#{bin.number}" if key == HOST else self._value_in(bin.site[1], key)

    def _value_in(self, domain: Domain, key: str) -> str | None:
        return domain[self._positions[key]] or None

    # --- adding and removing pods ---

    def _add_existing_pods(self) -> None:
        known: dict[tuple[int, str], tuple[list[PodCounter], list[PodCounter]]] = {}
        for bin in self.packing.bins:
            for pods in self.problem.nodes[bin.node_index].existing_pods if bin.node_index >= 0 else ():
                key = (id(pods.shape), pods.namespace)
                if key not in known:
                    known[key] = counters_of_existing(self.grouped.counters, pods.shape, pods.namespace)
                counting, kept_out = known[key]
                self._count(counting, bin, pods.count)
                for counter in kept_out:
                    if (value := self.value(bin, counter.key)) is not None:
                        self._kept_out_by_existing.add((counter.number, value))

    def _count(self, counters: Iterable[PodCounter], bin: Bin, pod_count: int) -> None:
        for counter in counters:
            value = self.value(bin, counter.key)
            if value is None:
                continue
            key = (counter.number, value)
            before = self.counts.get(key, 0)
            self.counts[key] = before + pod_count
            self.totals[counter.number] += pod_count
            self.progress[counter.number] += before == 0
            for levels in self._levels_by_counter[counter.number]:
                if self._includes(levels, bin):
                    change = levels.change(value, pod_count)
                    self.progress[counter.number] += change > 0
                    if change < 0:
                        self.lowered.add(levels)

    def add(self, group: PodGroup, bin: Bin, pods: list[int]) -> None:
        here = self.placed_on.setdefault(bin.number, {})
        placed = here.get(id(group))
        if placed is None:
            placed = here[id(group)] = PlacedPods(group, bin, [])
        placed.pods += pods
        self._count_placed(group, bin, len(pods))

    def remove(self, placed: PlacedPods, pod: int) -> None:
        placed.pods.remove(pod)
        if not placed.pods:
            del self.placed_on[placed.bin.number][id(placed.group)]
        self.releases += 1
        self._count_placed(placed.group, placed.bin, -1)

    def _count_placed(self, group: PodGroup, bin: Bin, pod_count: int) -> None:
        rules = self.rules(group)
        self._count(rules.counted_by, bin, pod_count)
        for counter in rules.anti_affinity:
            if (value := self.value(bin, counter.key)) is not None:
                key = (counter.number, value)
                self._kept_out[key] = self._kept_out.get(key, 0) + pod_count
        for levels, rule, _ in rules.spreads:
            if (value := self.value(bin, rule.topology_key)) is not None:
                terms = self._spread_terms.setdefault((levels, value), {})
                term = (rule.max_skew, rule.min_domains)
                terms[term] = terms.get(term, 0) + pod_count

    def all_placed(self) -> Iterator[PlacedPods]:
        for here in self.placed_on.values():
            yield from here.values()

    # --- may one more pod be placed there? ---

    def allows_in_domain(self, group: PodGroup, domain: Domain) -> bool:
        """Whether one more pod of a group keeps all rules in a domain, rules about hosts aside."""
        rules = self.rules(group)
        for levels, rule, own in rules.spreads:
            if rule.topology_key != HOST:
                value = self._value_in(domain, rule.topology_key)
                if value is None or not levels.allows(value, rule.max_skew, rule.min_domains, own):
                    return False
        for counter in rules.anti_affinity:
            if counter.key != HOST and self.counts.get((counter.number, self._value_in(domain, counter.key))):
                return False
        for counter in rules.counted_by:
            key = (counter.number, self._value_in(domain, counter.key) if counter.key != HOST else None)
            if self._kept_out.get(key) or key in self._kept_out_by_existing:
                return False
        values = [
            (counter, self._value_in(domain, counter.key))
            for counter, _ in rules.affinity
            if counter.key != HOST
        ]
        return _meets_affinity(values, self.counts, self._is_first(rules, self.totals))

    def _is_first(self, rules: Rules, totals: list[int]) -> bool:
        """It matches its own affinity, and no other pod in the whole cluster does, for any of its terms."""
        return all(own and not totals[counter.number] for counter, own in rules.affinity)

    def _affinity_values(self, rules: Rules, bin: Bin) -> list[tuple[PodCounter, str | None]]:
        return [(counter, self.value(bin, counter.key)) for counter, _ in rules.affinity]

    def allows(self, group: PodGroup, bin: Bin) -> bool:
        """Whether one more pod of a group on a bin keeps all rules: its own and those of all other pods."""
        rules = self.rules(group)
        if rules.affinity and not _meets_affinity(
            self._affinity_values(rules, bin), self.counts, self._is_first(rules, self.totals)
        ):
            return False
        for levels, rule, own in rules.spreads:
            value = self.value(bin, rule.topology_key)
            if value is None or not levels.allows(value, rule.max_skew, rule.min_domains, own):
                return False
        for counter in rules.anti_affinity:
            value = self.value(bin, counter.key)
            if value is not None and self.counts.get((counter.number, value)):
                return False
        return all(self._others_allow(counter, bin) for counter in rules.counted_by)

    def _others_allow(self, counter: PodCounter, bin: Bin) -> bool:
        """Whether the rules of all other pods allow one more pod of this counter."""
        value = self.value(bin, counter.key)
        if value is None:
            return True
        key = (counter.number, value)
        if self._kept_out.get(key) or key in self._kept_out_by_existing:
            return False
        for levels in self._levels_by_counter[counter.number]:
            terms = self._spread_terms.get((levels, value))
            if terms and self._includes(levels, bin):
                for (skew, min_domains), pod_count in terms.items():
                    if pod_count and not levels.allows(value, skew, min_domains, 1):
                        return False
        return True

    # --- do the rules hold for the pods that are placed? ---

    def is_satisfied(self, placed: PlacedPods) -> bool:
        """Whether the spread and anti-affinity rules of these pods hold. For affinity see `unmet_affinity`."""
        rules, bin = self.rules(placed.group), placed.bin
        for levels, rule, _ in rules.spreads:
            value = self.value(bin, rule.topology_key)
            if value is None or not levels.allows(value, rule.max_skew, rule.min_domains, 0):
                return False
        for counter in rules.anti_affinity:
            value = self.value(bin, counter.key)
            own = counter in rules.counted_by
            if value is not None and self.counts.get((counter.number, value), 0) > own:
                return False
        return not any(
            (counter.number, value) in self._kept_out_by_existing
            for counter in (rules.counted_by if self._kept_out_by_existing else ())
            if (value := self.value(bin, counter.key)) is not None
        )

    def unmet_affinity(self) -> list[PlacedPods]:
        """Pods that the scheduler could bind in no order: each needs another pod that is never there before it."""
        waiting = [
            placed for placed in self.all_placed() if placed.group.affinity or placed.group.host_affinity
        ]
        if not waiting:
            return []
        bound, totals = dict(self.counts), self.totals.copy()
        for placed in waiting:
            self._bind(placed, bound, totals, -1)
        while waiting:
            ready = [placed for placed in waiting if self._may_bind(placed, bound)]
            if not ready:
                ready = [placed for placed in waiting if self._may_bind(placed, bound, totals)][:1]
            if not ready:
                break
            for placed in ready:
                self._bind(placed, bound, totals, +1)
            done = set(ready)
            waiting = [placed for placed in waiting if placed not in done]
        return waiting

    def _bind(self, placed: PlacedPods, bound: dict[_Key, int], totals: list[int], sign: int) -> None:
        for counter in self.rules(placed.group).counted_by:
            value = self.value(placed.bin, counter.key)
            if value is not None:
                key = (counter.number, value)
                bound[key] = bound.get(key, 0) + sign * len(placed.pods)
                totals[counter.number] += sign * len(placed.pods)

    def _may_bind(
        self, placed: PlacedPods, bound: Mapping[_Key, int], totals: list[int] | None = None
    ) -> bool:
        """Every pod it needs is bound. With totals it may also be the first that matches in the whole cluster."""
        rules = self.rules(placed.group)
        first = totals is not None and self._is_first(rules, totals)
        return _meets_affinity(self._affinity_values(rules, placed.bin), bound, first)


def _meets_affinity(
    values: Iterable[tuple[PodCounter, str | None]], counts: Mapping[_Key, int], is_first: bool
) -> bool:
    """A matching pod is in the domain of every term. The first of a kind needs only nodes that have the labels."""
    return all(
        value is not None and (is_first or counts.get((counter.number, value), 0) > 0)
        for counter, value in values
    )
