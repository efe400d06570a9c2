"""Repair: where pods found no room, or have rules that counting by domain cannot promise, look at them one by one.

Pods whose rules do not hold are removed (a gang whole), and new nodes without pods are closed. Then every pod without
a node tries the bins there are and one new one at a time, with every rule checked exactly. In the end a pod that has
another choice is ejected for a pod that has none. What still finds no node stays unplaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from heapq import heapify, heappop, heappush

from tidemill.decide.packer.bins import Bin, fit_count, free_after
from tidemill.decide.packer.constraint_state import PlacedPods
from tidemill.decide.packer.exact_placement import ExactPlacer
from tidemill.decide.packer.packing_state import PackingState
from tidemill.decide.packer.pod_groups import GroupedPods, PodGroup
from tidemill.decide.packer.problem import Problem
from tidemill.decide.packer.spread_levels import SpreadLevels
from tidemill.decide.packer.supply import Site
from tidemill.spec import names

# Bins that are tried for ejection for one unplaced pod, in the order they were opened, and how many pods with the
# same rules are tried in vain: where no pod has another choice, that is soon known.
_EJECTION_BINS, _EJECTION_PODS = 200, 4


def needs_repair(grouped: GroupedPods, unplaced: list[int]) -> bool:
    """Counting by domain is exact unless a pod found no room, or has a rule that counting cannot promise."""
    if unplaced or any(group.needs_exact_check for group in grouped.groups):
        return True
    return any(group.has_domain_rules or group.has_host_rules for group in grouped.gangs)


def repair(
    problem: Problem,
    grouped: GroupedPods,
    packing: PackingState,
    unplaced: list[int],
    place_first: Container[int] = (),
) -> list[int]:
    """The pods that are unplaced in the end. `place_first` go before others of the same priority."""
    placer = ExactPlacer(problem, grouped, packing)
    left = set(unplaced) | _Violations(placer).remove_all()
    _close_empty(placer)
    left -= _place_all(placer, left, place_first)
    if left and problem.budgets:
        _downsize_all(placer)
        left -= _place_all(placer, left, place_first)
    if left:
        ejection = _Ejection(placer)
        left -= {batch[0] for batch in _in_order(placer, left, place_first) if ejection.place(batch[0])}
    if any(group.affinity or group.host_affinity for group in placer.group_of.values()):
        left |= _mend_affinity(placer, place_first)
    return sorted(left)


# --- pods whose rules do not hold -------------------------------------------------------------------------


class _Violations:
    """Removes pods whose rules do not hold, lowest priority and last placed first, until all rules hold."""

    def __init__(self, placer: ExactPlacer) -> None:
        self._placer, self._state = placer, placer.state
        self._removed: set[int] = set()
        self._queue: list[tuple[int, int, PlacedPods]] = []
        self._with_rule: dict[SpreadLevels, list[PlacedPods]] = {}
        self._members: dict[tuple[str, str], list[tuple[PlacedPods, int]]] = {}
        for placed in self._state.all_placed():
            for levels, _, _ in self._state.rules(placed.group).spreads:
                self._with_rule.setdefault(levels, []).append(placed)
            for pod in placed.pods:
                gang = _gang(placer.problem, pod)
                if gang is not None:
                    self._members.setdefault(gang, []).append((placed, pod))

    def remove_all(self) -> set[int]:
        violated = (placed for placed in self._state.all_placed() if not self._state.is_satisfied(placed))
        self._queue = [_entry(placed) for placed in violated]
        heapify(self._queue)
        while True:
            while self._queue:
                placed = heappop(self._queue)[2]
                if placed.pods and not self._state.is_satisfied(placed):
                    self._remove(placed, placed.pods[-1])
            unmet = [(placed, pod) for placed in self._state.unmet_affinity() for pod in placed.pods]
            if not unmet:
                return self._removed
            for placed, pod in unmet:
                if pod not in self._removed:
                    self._remove(placed, pod)

    def _remove(self, placed: PlacedPods, pod: int) -> None:
        """With the rest of its gang, if it has one. Then the rules of others may not hold any more."""
        gang = _gang(self._placer.problem, pod)
        self._state.lowered.clear()
        for of, member in self._members[gang] if gang is not None else [(placed, pod)]:
            if member not in self._removed:
                self._placer.remove(of, member)
                self._removed.add(member)
        affected = {id(placed): placed}
        for levels in self._state.lowered:
            affected |= {id(other): other for other in self._with_rule.get(levels, ())}
        for other in affected.values():
            if other.pods and not self._state.is_satisfied(other):
                heappush(self._queue, _entry(other))


def _entry(placed: PlacedPods) -> tuple[int, int, PlacedPods]:
    return (placed.group.priority, -placed.pods[-1], placed)


def _gang(problem: Problem, pod: int) -> tuple[str, str] | None:
    gang = problem.pods[pod].gang
    return (problem.pods[pod].namespace, gang.name) if gang is not None else None


def _mend_affinity(placer: ExactPlacer, place_first: Container[int]) -> set[int]:
    """Place again those that were the first of their kind until others of it went elsewhere; returns the unplaced.

    The scheduler may bind the others first, and then refuses them.
    """
    if not placer.state.unmet_affinity():
        return set()
    unmet = _Violations(placer).remove_all()
    _close_empty(placer)
    unplaced = unmet - _place_all(placer, unmet, place_first)
    if placer.state.unmet_affinity():
        unplaced |= _Violations(placer).remove_all()
        _close_empty(placer)
    return unplaced


# --- new nodes that are not needed, or larger than needed -------------------------------------------------


def _close_empty(placer: ExactPlacer) -> None:
    """Close new nodes without pods, and give back what they took of stocks and limits."""
    empty = [bin for bin in placer.packing.bins if bin.node_index < 0 and not bin.pods]
    for bin in empty:
        placer.packing.close(bin)
    placer.state.releases += len(empty)


def _downsize_all(placer: ExactPlacer) -> None:
    """Make every new node as small as it can be: a larger type counts against the limits of its pool."""
    for bin in placer.packing.bins:
        if bin.node_index < 0:
            before = bin.rung
            placer.packing.downsize(bin)
            placer.state.releases += bin.rung != before


# --- pods without a node ----------------------------------------------------------------------------------


def _place_all(placer: ExactPlacer, pods: Iterable[int], place_first: Container[int]) -> set[int]:
    """In passes, because one pod may be what the affinity of another waits for; returns the pods placed."""
    placed: set[int] = set()
    waiting = _in_order(placer, pods, place_first)
    while waiting:
        groups = (placer.group_of[batch[0]] for batch in waiting)
        placer.find_infeasible({id(group): group for group in groups}.values())
        left = []
        for batch in waiting:
            if _place(placer, batch):
                placed.update(batch)
            else:
                left.append(batch)
        if len(left) == len(waiting):
            break
        waiting = left
    return placed


def _in_order(placer: ExactPlacer, pods: Iterable[int], place_first: Container[int]) -> list[list[int]]:
    """Gangs, and single pods: the highest priority first, then the largest."""
    batches: dict[object, list[int]] = {}
    for pod in sorted(pods):
        batches.setdefault(_gang(placer.problem, pod) or pod, []).append(pod)
    group_of = placer.group_of

    def turn(batch: list[int]) -> tuple[float, ...]:
        size = sum([group_of[pod].size for pod in batch])
        return (-group_of[batch[0]].priority, batch[0] not in place_first, -len(batch), -size, batch[0])

    return sorted(batches.values(), key=turn)


def _place(placer: ExactPlacer, batch: list[int]) -> bool:
    gang = placer.problem.pods[batch[0]].gang
    if gang is None:
        return placer.place(batch[0]) is not None
    if len(batch) < gang.size:
        return False
    keys = placer.packing.supply.keys
    home = [keys.index(key) for key in (names.LABEL_ZONE, names.LABEL_SOURCE, names.LABEL_POOL)]
    by_home: dict[tuple[str, ...], list[Site]] = {}
    for site in placer.sites():
        by_home.setdefault(tuple(site[1][key] for key in home), []).append(site)
    return any(_place_gang_in(placer, batch, sites) for sites in by_home.values())


def _place_gang_in(placer: ExactPlacer, batch: list[int], sites: list[Site]) -> bool:
    """The whole gang in one zone, on one source of one pool, or no member."""
    state = placer.state
    releases = state.releases
    done: list[tuple[Bin, int]] = []
    for pod in batch:
        bin = placer.place(pod, sites)
        if bin is None:
            for used, member in reversed(done):
                placer.remove(state.placed_on[used.number][id(placer.group_of[member])], member)
                if used.node_index < 0:
                    (placer.packing.downsize if used.pods else placer.packing.close)(used)
            state.releases = releases  # everything is as before
            return False
        done.append((bin, pod))
    return True


# --- ejection ---------------------------------------------------------------------------------------------


class _Ejection:
    """Moves a pod that has another choice away from a node that an unplaced pod needs.

    Only pods without rules that no rule counts are moved: moving them breaks no rule.
    """

    def __init__(self, placer: ExactPlacer) -> None:
        self._placer = placer
        self._in_vain: Counter[object] = Counter()  # pods tried, by their rules
        self._with_rules = {
            id(group) for group in placer.group_of.values() if group.has_domain_rules or group.has_host_rules
        }
        self._stuck: set[int] = set()  # groups that have no other bin now

    def place(self, pod: int) -> bool:
        placer = self._placer
        group = placer.group_of[pod]
        rules = placer.rule_key(group)
        if (
            placer.problem.pods[pod].gang is not None
            or self._in_vain[rules] >= _EJECTION_PODS
            or placer.checks_left <= 0
        ):
            return False
        # An earlier ejection may have left room to spare.
        if placer.place(pod) is None and not self._eject_for(group, pod):
            self._in_vain[rules] += 1
            return False
        return True

    def _eject_for(self, group: PodGroup, pod: int) -> bool:
        placer, left = self._placer, _EJECTION_BINS
        for site in placer.allowed_sites(group, placer.sites()):
            for bin in placer.packing.by_site.get(site, ()):
                if not bin.pods:
                    continue
                left -= 1
                if left < 0 or placer.checks_left <= 0:
                    return False
                movable = self._movable(group, bin)
                if movable and placer.may_join(group, bin) and self._move_one(movable):
                    placer.put(bin, pod)
                    return True
        return False

    def _movable(self, group: PodGroup, bin: Bin) -> list[PlacedPods]:
        """Pods that would leave enough room for one of the group."""
        here = self._placer.state.placed_on.get(bin.number, {})
        self._placer.checks_left -= len(here)
        pods = self._placer.problem.pods
        return [
            placed
            for number, placed in here.items()
            if number not in self._with_rules
            and number not in self._stuck
            and fit_count(free_after(bin.free, placed.group.requests, -1), group.requests) > 0
            and pods[placed.pods[-1]].gang is None
        ]

    def _move_one(self, movable: list[PlacedPods]) -> bool:
        """Whether one of them found another bin."""
        for placed in movable:
            pod = placed.pods[-1]
            if self._placer.place(pod, other_than=placed.bin) is not None:
                self._placer.remove(placed, pod)
                self._stuck.clear()
                return True
            self._stuck.add(id(placed.group))
        return False
