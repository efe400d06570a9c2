"""Ranks that can give only a few nodes, and pods that need a host each: who gets one of the few.

Such a pod forces a node open, on the lowest rank that gives it one. A limit on CPUs gives many small nodes or a few
large ones; whoever finds it used up opens a node on a higher rank, which may be far dearer. So the few are opened
first, as small as they can be, by pods that have no lower rank and need no host of their own. Each is a *seat* for a
pod that does. Those who would pay most elsewhere choose first.

Ranks are kept: every node is opened by a pod for which no lower rank had a node at that moment, and pods that join it
there open nothing. Nothing is done where nodes exist: these are used before any node is opened.
"""

from __future__ import annotations

from collections import Counter

from tidemill.decide.packer.best_fit import Queue
from tidemill.decide.packer.packing_state import Opening, PackingState
from tidemill.decide.packer.pod_groups import PodGroup
from tidemill.decide.packer.supply import Domain
from tidemill.decide.packer.topology_spread import DomainShare

_Waiting = Counter[tuple[float, int]]  # pods by their price elsewhere and their eligibility


class LimitedRanks:
    """Of one batch of shares. `seats` is the number of nodes that were opened for pods that need a host each."""

    def __init__(self, shares: list[DomainShare], packing: PackingState) -> None:
        self._packing = packing
        self._prices: dict[tuple[object, ...], float] = {}
        self._wants: dict[tuple[int, float], int] = {}  # pods that want a seat, by option group and price
        self.seats = 0
        self.shares = shares
        alone = [share for share in shares if share.group.one_per_host]
        self._hosts = sum([len(share.pods) for share in alone])
        if alone and not packing.supply.problem.nodes and packing.supply.several_ranks:
            waiting: _Waiting = Counter()
            for share in alone:
                waiting[self.price_elsewhere(share), share.group.eligibility] += len(share.pods)
            self.shares = self._open_seats(waiting)

    def price_elsewhere(self, share: DomainShare) -> float:
        """What a pod of the share pays for a host on the lowest rank that has nodes for all; 0: there is none."""
        group = share.group
        key = (group.eligibility, group.requests, share.domains)
        known = self._prices.get(key)
        if known is None:
            known = self._prices[key] = self._find_price(group, share.domains)
        return known

    def _find_price(self, group: PodGroup, domains: tuple[Domain, ...]) -> float:
        for site in self._packing.sites(domains):
            opening = self._packing.cheapest_opening(group, site)
            if opening is not None and not self._is_limited(group, opening):
                return opening[0]
        return 0.0

    def _is_limited(self, group: PodGroup, opening: Opening) -> bool:
        """Whether not every pod that needs a host could have such a node."""
        _, option_group, rung = opening
        ladder = self._packing.supply.ladder(option_group, group.eligibilities)
        assert ladder is not None
        return self._packing.supply.available(option_group, ladder.options[rung].consumes) < self._hosts

    # --- seats ---

    def _open_seats(self, waiting: _Waiting) -> list[DomainShare]:
        """The shares without the pods that opened a seat. The small open them: they leave most room."""
        taken: dict[int, int] = {}
        without: set[tuple[int, tuple[Domain, ...]]] = set()  # eligibility and domains that open no seat
        others = [share for share in self.shares if not share.group.one_per_host]
        for share in sorted(others, key=lambda share: share.group.size):
            kind = (share.group.eligibility, share.domains)
            if kind not in without and not share.group.needs_exact_check:
                taken[id(share)], more = self._seats_of(share, waiting)
                if not more:
                    without.add(kind)
        return [
            DomainShare(share.group, share.pods[count:], share.domains) if count else share
            for share in self.shares
            if (count := taken.get(id(share), 0)) < len(share.pods)
        ]

    def _seats_of(self, share: DomainShare, waiting: _Waiting) -> tuple[int, bool]:
        """How many pods of a share opened a seat each, and whether larger pods of its kind could open more."""
        packing, group, done = self._packing, share.group, 0
        while done < len(share.pods):
            opening = self._lowest_opening(group, share.domains)
            if opening is None or opening[0] <= 0 or not self._is_limited(group, opening):
                return done, False
            pods = share.pods[done : done + self._wanted(opening, waiting)]
            if not pods:
                return done, False
            bin = packing.new_bin(group, opening[1], opening[2])
            bin.add_pods(group, pods[:1])
            packing.add_opened(bin)
            count = 1 + packing.open_copies(bin, pods, 1)
            done += count
            self.seats += count
        return done, True

    def _wanted(self, opening: Opening, waiting: _Waiting) -> int:
        """How many more pods would rather have such a seat than a host elsewhere."""
        price, option_group, _ = opening
        known = self._wants.get((option_group.number, price))
        if known is None:
            allowed = self._packing.supply.allowed_options
            known = self._wants[option_group.number, price] = sum(
                count
                for (elsewhere, eligibility), count in waiting.items()
                if elsewhere > price and allowed(option_group, eligibility)
            )
        return max(0, known - self.seats)

    def _lowest_opening(self, group: PodGroup, domains: tuple[Domain, ...]) -> Opening | None:
        """The cheapest node of the lowest rank that can give one."""
        best: Opening | None = None
        rank: tuple[int, ...] = ()
        for site in self._packing.sites(domains):
            if best is not None and site[0] != rank:
                break
            opening = self._packing.cheapest_opening(group, site)
            if opening is not None and (best is None or opening[0] < best[0]):
                best, rank = opening, site[0]
        return best

    # --- prepaid nodes ---

    def open_prepaid(self, queue: Queue, domains: tuple[Domain, ...]) -> Queue:
        """A prepaid node for each pod whose lowest rank has one: seats are for others. Returns the rest."""
        left: Queue = []
        for group, pods in queue:
            done = 0
            while done < len(pods):
                opening = self._lowest_opening(group, domains)
                if opening is None or opening[0] > 0:
                    break
                bin = self._packing.open(group, opening[1], opening[2])
                self._packing.put(bin, group, pods[done : done + 1])
                done += 1
            if done < len(pods):
                left.append((group, pods[done:]))
        return left
