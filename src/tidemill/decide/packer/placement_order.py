"""The order in which pods are placed, and the choices of one attempt.

The usual order: first the pods that need a host each and so force nodes open, then the large pods, then the small
ones, which fill the gaps. Each strategy is better on some problems, none on all. `restarts` says which are tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidemill.decide.packer.best_fit import place_best_fit
from tidemill.decide.packer.host_pairs import open_pairs
from tidemill.decide.packer.limited_ranks import LimitedRanks
from tidemill.decide.packer.node_growth import grow_evenly, grow_or_open, open_evenly
from tidemill.decide.packer.packing_state import PackingState
from tidemill.decide.packer.planned_hosts import open_planned
from tidemill.decide.packer.pod_groups import PodGroup
from tidemill.decide.packer.rank_plan import RankPlan
from tidemill.decide.packer.supply import Domain
from tidemill.decide.packer.topology_spread import DomainShare


class OnePerHost(Enum):
    """When the pods that keep each other off their hosts are placed."""

    FIRST = 0  # they force nodes open, and the others fill them
    BY_SIZE = 1  # with all others: they do not take a scarce large node that a large pod needs whole
    LAST = 2  # on the nodes that the others opened


class Ahead(Enum):
    """For which pods a new node is chosen."""

    ONE = 0  # the next pod
    ALIKE = 1  # the waiting pods with the same requests
    ALL = 2  # every pod still to come


@dataclass(frozen=True, slots=True)
class Strategy:
    """The first value of every field is what a large problem gets."""

    one_per_host: OnePerHost = OnePerHost.FIRST
    ahead: Ahead = Ahead.ONE
    grow_first: bool = True  # new nodes grow evenly before they are filled
    fewest_choices_first: bool = False  # a pod that may use few nodes goes before one that may use many
    large_first: bool = True
    gangs_first: bool = True  # before the single pods of the same priority
    place_first: frozenset[int] | None = (
        None  # pods that go before all others; then pods are placed one by one
    )


USUAL = Strategy()

# So many unlike pods are placed apart from the others, on nodes of their own: the nodes that they are compared with fit
# into the processor's cache, and every tenth of them has all sizes. Not where nodes exist or a lower rank goes first.
_PART = 10_000

# Priority, tier, price elsewhere or number of choices, size, requests, domains, eligibility: pods that are placed in
# one go, and when.
_Turn = tuple[int, int, float, float, tuple[tuple[int, int], ...], tuple[Domain, ...], int]


def place_in_order(
    shares: list[DomainShare], packing: PackingState, strategy: Strategy = USUAL, plan: RankPlan | None = None
) -> list[int]:
    """Place the pods of all shares; returns the pods without a node."""
    if plan is not None:
        shares = open_planned(plan, shares, packing)
    parts = max(1, len(shares) // _PART)
    if parts == 1 or packing.bins or packing.supply.several_ranks:
        return _place_together(shares, packing, strategy, plan)
    unplaced: list[int] = []
    for part in range(parts):
        packing.set_aside()
        unplaced += _place_together(shares[part::parts], packing, strategy)
    packing.bring_back()
    return unplaced


def _place_together(
    shares: list[DomainShare], packing: PackingState, strategy: Strategy, plan: RankPlan | None = None
) -> list[int]:
    unplaced: list[int] = []
    batches: dict[_Turn, list[DomainShare]] = {}
    several_ranks = packing.supply.several_ranks
    limited: LimitedRanks | None = None
    if strategy.one_per_host is OnePerHost.FIRST and not strategy.fewest_choices_first:
        shares = open_pairs(shares, packing)
        limited = LimitedRanks(shares, packing)
    seats = limited is not None and limited.seats > 0
    for share in limited.shares if limited is not None else shares:
        group = share.group
        tier = _tier(share, packing, strategy)
        # Of the pods that force nodes open the small go first to a rank that is limited: it gives more small nodes.
        # Where those are open already, the pods that would pay most elsewhere go first.
        large_first = strategy.large_first and (tier > 0 or seats or not several_ranks)
        size = -group.size if large_first else group.size
        first = -limited.price_elsewhere(share) if limited is not None and seats and tier == 0 else 0.0
        if plan is not None and tier == 2:
            first = float(plan.choices(group, share.domains))
        turn: _Turn = (
            -group.priority, tier, first, size, group.requests, share.domains, group.eligibility,
        )  # fmt: skip
        batches.setdefault(turn, []).append(share)
    turns = sorted(batches)
    tier = 0
    for position, turn in enumerate(turns):
        if turn[1] > tier and strategy.grow_first:
            _make_room(
                [batches[other] for other in turns[position:]], packing, grow=tier == 0, open=turn[1] == 2
            )
            tier = turn[1]
        by_age = sorted(batches[turn], key=lambda share: share.group.pending_since)
        queue = [(share.group, share.pods) for share in by_age]
        sites = packing.sites(turn[5])
        if limited is not None and seats and turn[1] == 0:
            queue = limited.open_prepaid(queue, turn[5])
        fill_first = plan.in_order(queue[0][0], sites) if plan is not None and queue else sites
        for site in fill_first:
            if not queue:
                break
            queue = place_best_fit(packing, queue, site)
        for position, (group, pods) in enumerate(queue):
            ahead = 1
            if strategy.ahead is not Ahead.ONE:
                ahead = sum(len(rest) for _, rest in queue[position:])
            if strategy.ahead is Ahead.ALL:
                ahead += _equivalent_pods(group, [batches[other] for other in batches if other > turn])
            unplaced += grow_or_open(packing, group, pods, sites, ahead)
    return unplaced


def _tier(share: DomainShare, packing: PackingState, strategy: Strategy) -> int:
    group = share.group
    if strategy.fewest_choices_first:
        return packing.count_choices(group, share.domains)
    if strategy.one_per_host is OnePerHost.FIRST:
        return 0 if group.one_per_host else 1 if group.host_limits else 2
    return 1 + (strategy.one_per_host is OnePerHost.LAST and group.one_per_host)


def _make_room(batches: list[list[DomainShare]], packing: PackingState, *, grow: bool, open: bool) -> None:
    """Let the new bins of each domain grow until they could hold the pods that are bound for it, and open more."""
    demand: dict[Domain, dict[int, list[int]]] = {}
    first_group: dict[Domain, PodGroup] = {}
    for share in (share for batch in batches for share in batch):
        if len(share.domains) == 1:
            domain, group = share.domains[0], share.group
            first_group.setdefault(domain, group)
            by_rules = demand.setdefault(domain, {})
            sums = by_rules.get(group.blocked_by)
            if sums is None:
                sums = by_rules[group.blocked_by] = [0] * len(packing.supply.dimensions)
            for dimension, amount in group.requests:
                sums[dimension] += amount * len(share.pods)
    for domain, sums_by_rules in demand.items():
        sites = packing.sites((domain,))
        if len(sites) == 1:
            if grow:
                grow_evenly(packing, sites[0], sums_by_rules)
            if open:
                open_evenly(packing, first_group[domain], sites[0], sums_by_rules)


def _equivalent_pods(group: PodGroup, batches: list[list[DomainShare]]) -> int:
    """As how many pods of this group the pods of later batches count, by its dominant dimension."""
    dominant, amount = group.requests[0]
    wanted = sum(
        dict(share.group.requests).get(dominant, 0) * len(share.pods) for batch in batches for share in batch
    )
    return wanted // amount
