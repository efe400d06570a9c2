"""Opens the nodes that a plan has for pods that need a host each, and puts these there.

Rank by rank. A pod that may open its node opens it. Where it may not, because a lower rank still has one for it, a
small pod that may opens the node, and the two share it: the largest of the one with the smallest of the other.
"""

from __future__ import annotations

from collections import deque

from tidemill.decide.packer.host_demand import can_share
from tidemill.decide.packer.packing_state import PackingState
from tidemill.decide.packer.pod_groups import PodGroup
from tidemill.decide.packer.rank_plan import RankPlan
from tidemill.decide.packer.supply import Domain, OptionGroup
from tidemill.decide.packer.topology_spread import DomainShare


def open_planned(plan: RankPlan, shares: list[DomainShare], packing: PackingState) -> list[DomainShare]:
    """Returns the shares without the pods that are placed."""
    hosts = _PlannedHosts(plan, shares, packing)
    sources: dict[tuple[object, ...], list[OptionGroup]] = {}
    for option_group in sorted(packing.supply.option_groups, key=lambda of: (of.rank, of.number)):
        key = (option_group.rank, option_group.stock, option_group.budget)
        sources.setdefault(key, []).append(option_group)
    for source in sources.values():
        hosts.open(source)
    return hosts.left()


class _PlannedHosts:
    def __init__(self, plan: RankPlan, shares: list[DomainShare], packing: PackingState) -> None:
        self._packing, self._shares = packing, shares
        self._taken: dict[int, int] = {}  # pods that are placed or spoken for, by share
        self._back: dict[int, list[int]] = {}  # pods that found no host after all
        self._quotas: dict[int, list[tuple[DomainShare, list[int]]]] = {}  # by option group
        alone = [share for share in shares if plan.is_alone(share.group)]
        for share in alone:
            start = 0
            for number, count in plan.hosts_of(share.group, len(share.pods)):
                if packing.supply.option_groups[number].domain in share.domains and count:
                    self._quotas.setdefault(number, []).append((share, share.pods[start : start + count]))
                    start += count
            self._taken[id(share)] = start
        others = [s for s in shares if not plan.is_alone(s.group) and not s.group.needs_exact_check]
        self._openers = sorted(others, key=lambda share: share.group.size)
        self._alone = alone[0].group if alone else None

    def left(self) -> list[DomainShare]:
        found = []
        for share in self._shares:
            pods = share.pods[self._taken.get(id(share), 0) :] + self._back.get(id(share), [])
            if pods:
                found.append(
                    share if len(pods) == len(share.pods) else DomainShare(share.group, pods, share.domains)
                )
        return found

    def open(self, source: list[OptionGroup]) -> None:
        """The nodes of one source, in whichever of its domains."""
        waiting: list[tuple[float, DomainShare, int]] = []
        for option_group in source:
            for share, pods in self._quotas.get(option_group.number, ()):
                done = 0
                if self._opens_here(share.group, share.domains, option_group):
                    while done < len(pods) and self._open(option_group, share.group, pods[done]):
                        done += 1
                waiting += [(share.group.size, share, pod) for pod in pods[done:]]
        waiting.sort(key=lambda row: (-row[0], row[2]))
        progress = True
        while waiting and progress:
            openers = self._find_openers(source, len(waiting))
            before, waiting, progress = waiting, [], False
            for row in before:
                if openers and self._open_shared(row[1].group, row[2], openers):
                    progress = True
                else:
                    waiting.append(row)
        for _, share, pod in waiting:
            self._back.setdefault(id(share), []).append(pod)

    def _open(self, option_group: OptionGroup, group: PodGroup, pod: int) -> bool:
        rung = self._rung(option_group, group, [group])
        if rung < 0:
            return False
        bin = self._packing.new_bin(group, option_group, rung)
        bin.add_pods(group, [pod])
        self._packing.add_opened(bin)
        return True

    def _open_shared(
        self, group: PodGroup, pod: int, openers: deque[tuple[DomainShare, int, OptionGroup]]
    ) -> bool:
        share, opener, option_group = openers[0]
        both = self._rung(option_group, share.group, [group, share.group])
        only = self._rung(option_group, group, [group])
        if min(both, only) < 0:
            return False
        if self._price(option_group, share.group, both) > self._price(option_group, group, only):
            return False  # beside the smallest opener a larger node would be needed
        bin = self._packing.new_bin(share.group, option_group, both)
        bin.add_pods(share.group, [opener])
        if not (self._packing.may_use(group, bin) and bin.max_more(group)):
            return False
        openers.popleft()
        self._packing.add_opened(bin)
        self._taken[id(share)] = self._taken.get(id(share), 0) + 1
        self._packing.put(bin, group, [pod])
        return True

    def _price(self, option_group: OptionGroup, group: PodGroup, rung: int) -> float:
        ladder = self._packing.supply.ladder(option_group, group.eligibilities)
        assert ladder is not None
        return ladder.prices[rung]

    def _rung(self, option_group: OptionGroup, opener: PodGroup, groups: list[PodGroup]) -> int:
        """The cheapest that holds one pod of each group, on the ladder of the opener; -1: there is none now."""
        supply = self._packing.supply
        ladder = supply.ladder(option_group, opener.eligibilities)
        if ladder is None or (option_group.stock and supply.stocks.get(option_group.stock, 0) < 1):
            return -1
        used = [0] * len(supply.dimensions)
        for group in groups:
            for dimension, amount in group.requests:
                used[dimension] += amount
        rung = ladder.cheapest_rung(used)
        if rung < 0 or not supply.within_limits(option_group, ladder.options[rung].consumes):
            return -1
        return rung

    # --- who may open a node here ---

    def _find_openers(
        self, source: list[OptionGroup], count: int
    ) -> deque[tuple[DomainShare, int, OptionGroup]]:
        """Small pods for which no lower rank has a node, and that can share it with those that need one each."""
        found: deque[tuple[DomainShare, int, OptionGroup]] = deque()
        assert self._alone is not None
        refused: set[tuple[object, ...]] = set()
        for share in self._openers:
            group = share.group
            where = next((one for one in source if one.domain in share.domains), None)
            kind = (group.eligibility, share.domains)
            pods = share.pods[self._taken.get(id(share), 0) :]
            if where is None or kind in refused or not pods:
                continue
            if not can_share(self._alone, (group.host_counted_by, group.host_limits)):
                continue
            if not self._opens_here(group, share.domains, where):
                refused.add(kind)
                continue
            found += [(share, pod, where) for pod in pods]
            if len(found) >= count:
                break
        return found

    def _opens_here(self, group: PodGroup, domains: tuple[Domain, ...], option_group: OptionGroup) -> bool:
        for site in self._packing.sites(domains):
            if site[0] >= option_group.rank:
                break
            if self._packing.cheapest_opening(group, site) is not None:
                return False
        return bool(self._packing.supply.allowed_options(option_group, group.eligibility))
