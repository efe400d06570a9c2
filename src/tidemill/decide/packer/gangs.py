"""Gangs: all pods in one zone, on one source of one pool, or none at all.

Each gang makes a plan for every domain (where there are gangs, zone, source and pool are part of it), and takes the
cheapest plan that holds it whole. Nothing is taken while it is only planning.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tidemill.decide.packer.bins import Bin
from tidemill.decide.packer.packing_state import PackingState
from tidemill.decide.packer.pod_groups import UNLIMITED, PodGroup
from tidemill.decide.packer.problem import NodeOption, Problem
from tidemill.decide.packer.supply import Domain, OptionGroup, SizeLadder


@dataclass(slots=True)
class _NewNodes:
    """A number of new nodes of one type, with a number of pods on each."""

    option_group: OptionGroup
    option: NodeOption
    rung: int
    pods_each: int
    count: int


@dataclass(slots=True)
class _Plan:
    """How a domain would hold one pod group of a gang: on bins there are, and on new nodes."""

    group: PodGroup
    on_bins: list[tuple[Bin, int]] = field(default_factory=list)
    new: list[_NewNodes] = field(default_factory=list)


def place_gangs(
    problem: Problem, groups: list[PodGroup], packing: PackingState, domains: list[Domain]
) -> list[int]:
    """Place gangs; returns the pods of gangs that fit nowhere whole, or of which not all members are there yet."""
    gangs: dict[tuple[str, str], list[PodGroup]] = {}
    for group in groups:
        first = problem.pods[group.pods[0]]
        assert first.gang is not None
        gangs.setdefault((first.namespace, first.gang.name), []).append(group)
    unplaced: list[int] = []
    too_many: dict[tuple[int, int], int] = {}
    for members in sorted(gangs.values(), key=lambda of: _turn(problem, of)):
        pods = [pod for group in members for pod in group.pods]
        gang = problem.pods[pods[0]].gang
        assert gang is not None
        equal = (id(members[0].shape), members[0].eligibility) if len(members) == 1 else None
        if len(pods) < gang.size or (equal is not None and too_many.get(equal, UNLIMITED) <= len(pods)):
            unplaced += pods
        elif not _place(members, packing, domains):
            unplaced += pods
            if equal is not None:
                too_many[equal] = len(pods)  # room only gets less: as many of the same will not fit either
    return unplaced


def _turn(problem: Problem, groups: list[PodGroup]) -> tuple[object, ...]:
    """By priority, then the largest first, then the oldest.

    A gang that waits too long gets a higher priority from the engine, so age need not count here.
    """
    first = problem.pods[groups[0].pods[0]]
    size = sum(group.size * len(group.pods) for group in groups)
    return (-first.priority, -size, first.pending_since, groups[0].pods[0])


def _place(groups: list[PodGroup], packing: PackingState, domains: list[Domain]) -> bool:
    if len(groups) == 1:
        plans = [plan for domain in domains if (plan := _plan(groups[0], packing, domain)) is not None]
        best = min(plans, key=lambda plan: _cost([plan]), default=None)
        if best is None:
            return False
        _carry_out(best, packing)
        return True
    tried = [(cost, domain) for domain in domains if (cost := _try(groups, packing, domain)) is not None]
    if not tried:
        return False
    _try(groups, packing, min(tried)[1], keep=True)
    return True


def _try(
    groups: list[PodGroup], packing: PackingState, domain: Domain, *, keep: bool = False
) -> tuple[tuple[int, ...], float, int] | None:
    """Place group after group, so that no room is counted twice; then undo it. The cost; None: it does not fit."""
    done: list[tuple[_Plan, list[tuple[Bin, list[int]]]]] = []
    for group in sorted(groups, key=lambda group: (-group.size, group.pods[0])):
        plan = _plan(group, packing, domain)
        if plan is None:
            break
        done.append((plan, _carry_out(plan, packing)))
    whole = len(done) == len(groups)
    cost = _cost([plan for plan, _ in done])
    if not (whole and keep):
        for plan, placed in reversed(done):
            for bin, pods in reversed(placed):
                for pod in pods:
                    packing.remove_pod(bin, plan.group, pod)
                if bin.node_index < 0 and not bin.pods:
                    packing.close(bin)
    return cost if whole else None


def _cost(plans: list[_Plan]) -> tuple[tuple[int, ...], float, int]:
    """The highest rank that is opened, the price, the number of new nodes."""
    new = [nodes for plan in plans for nodes in plan.new]
    return (
        max((nodes.option_group.rank for nodes in new), default=()),
        sum(sum(nodes.option.price * nodes.count for nodes in plan.new) for plan in plans),
        sum(nodes.count for nodes in new),
    )


def _carry_out(plan: _Plan, packing: PackingState) -> list[tuple[Bin, list[int]]]:
    """Returns which pods went to which bin."""
    pods, placed = plan.group.pods, []
    start = 0
    for bin, count in plan.on_bins:
        placed.append((bin, pods[start : start + count]))
        start += count
    for new in plan.new:
        for _ in range(new.count):
            bin = packing.open(plan.group, new.option_group, new.rung)
            placed.append((bin, pods[start : start + new.pods_each]))
            start += new.pods_each
    for bin, members in placed:
        packing.put(bin, plan.group, members)
    return placed


# --- what a domain has to offer ---------------------------------------------------------------------------


def _plan(group: PodGroup, packing: PackingState, domain: Domain) -> _Plan | None:
    plan = _Plan(group)
    missing = len(group.pods)
    for site in packing.sites((domain,)):
        for bin in packing.bins_with_room(group, site):
            if missing and packing.may_use(group, bin):
                count = min(bin.fit_count(group.requests), bin.max_more(group), missing)
                if count > 0:
                    plan.on_bins.append((bin, count))
                    missing -= count
    return plan if missing == 0 else _with_new_nodes(plan, missing, packing, domain)


def _with_new_nodes(plan: _Plan, missing: int, packing: PackingState, domain: Domain) -> _Plan | None:
    """The rest on new nodes: of the one type that is cheapest for all of them, or else of several."""
    types = _types(plan.group, packing, domain)
    enough = [
        replace(nodes, count=count)
        for nodes in types
        if nodes.count >= (count := -(-missing // nodes.pods_each))
    ]
    if enough:
        plan.new = [
            min(enough, key=lambda new: (new.option_group.rank, new.count * new.option.price, new.count))
        ]
        return plan
    available = _AvailableNodes(packing)
    by_price = sorted(
        types, key=lambda new: (new.option_group.rank, new.option.price / new.pods_each, new.rung)
    )
    for nodes in by_price:
        count = min(-(-missing // nodes.pods_each), available.most(nodes.option_group, nodes.option))
        if count > 0:
            available.take(nodes.option_group, nodes.option, count)
            plan.new.append(replace(nodes, count=count))
            missing -= count * nodes.pods_each
            if missing <= 0:
                return plan
    return None


def has_room_in(packing: PackingState, group: PodGroup, domain: Domain, wanted: int) -> bool:
    """Whether a domain has room for this many pods of a group, on bins there are and on new nodes."""
    supply = packing.supply
    for option_group in supply.by_domain.get(domain, ()):  # usually enough of the largest type can be had
        ladder = supply.ladder(option_group, group.eligibilities)
        each = min(_pods_on(ladder, -1, group), _most_per_host(group)) if ladder is not None else 0
        if ladder is None or each <= 0:
            continue
        if supply.available(option_group, ladder.options[-1].consumes) >= -(-wanted // each):
            return True
    for site in packing.sites((domain,)):
        for bin in packing.bins_with_room(group, site):
            if packing.may_use(group, bin):
                wanted -= min(bin.fit_count(group.requests), bin.max_more(group))
                if wanted <= 0:
                    return True
    available = _AvailableNodes(packing)
    for nodes in sorted(_types(group, packing, domain), key=lambda new: -new.pods_each):
        count = min(-(-wanted // nodes.pods_each), available.most(nodes.option_group, nodes.option))
        available.take(nodes.option_group, nodes.option, count)
        wanted -= count * nodes.pods_each
        if wanted <= 0:
            return True
    return False


def _types(group: PodGroup, packing: PackingState, domain: Domain) -> list[_NewNodes]:
    """What could be opened for a group in a domain, and how many of each if nothing else is."""
    most_per_host = _most_per_host(group)
    available, types = _AvailableNodes(packing), []
    for option_group in packing.supply.by_domain.get(domain, ()):
        if option_group.stock and packing.supply.stocks.get(option_group.stock, 0) < 1:
            continue
        ladder = packing.supply.ladder(option_group, group.eligibilities)
        if ladder is None:
            continue
        for rung, option in enumerate(ladder.options):
            each, count = (
                min(_pods_on(ladder, rung, group), most_per_host),
                available.most(option_group, option),
            )
            if each > 0 and count > 0:
                types.append(_NewNodes(option_group, option, rung, each, count))
    return types


def _most_per_host(group: PodGroup) -> int:
    """How many pods of a group their own rules allow on one host."""
    return 1 if group.ports else min((limit for _, limit, own in group.host_limits if own), default=UNLIMITED)


def _pods_on(ladder: SizeLadder, rung: int, group: PodGroup) -> int:
    return min(ladder.capacities[rung][dimension] // amount for dimension, amount in group.requests)


class _AvailableNodes:
    """Stocks and limits as they would be after some nodes were opened."""

    def __init__(self, packing: PackingState) -> None:
        self._stocks = dict(packing.supply.stocks)
        self._budgets = {name: dict(left) for name, left in packing.supply.budgets.items()}

    def most(self, option_group: OptionGroup, option: NodeOption) -> int:
        """How many nodes can still be had."""
        most = self._stocks.get(option_group.stock, 0) if option_group.stock else UNLIMITED
        left = self._budgets.get(option_group.budget, {})
        for name, used in option.consumes.items():
            if used > 0 and name in left:
                most = min(most, left[name] // used)
        return max(most, 0)

    def take(self, option_group: OptionGroup, option: NodeOption, count: int) -> None:
        if option_group.stock:
            self._stocks[option_group.stock] -= count
        left = self._budgets.get(option_group.budget, {})
        for name in left.keys() & option.consumes.keys():
            left[name] -= option.consumes[name] * count
