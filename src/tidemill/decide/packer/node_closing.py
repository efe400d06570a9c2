"""Closes nodes that pods opened for want of a host, where hosts that were opened later can take their pods.

Pods that need a host each are placed first, and the others open nodes afterwards, which are hosts as well. The dearest
nodes go first. Only of ranks that could give more such nodes anyway: what they give back opens no lower rank to
anybody. Pods with rules about domains stay in theirs.
"""

from __future__ import annotations

from tidemill.decide.packer.bins import Bin
from tidemill.decide.packer.packing_state import PackingState
from tidemill.decide.packer.pod_groups import PodGroup
from tidemill.decide.packer.supply import Domain, Site

_MOST_PODS = 16  # a node with more is rarely emptied


def close_nodes(packing: PackingState, group_of: list[PodGroup | None]) -> None:
    """`group_of` is by pod; pods without a group (members of gangs) stay where they are."""
    if packing.supply.several_ranks and any(group is not None and group.one_per_host for group in group_of):
        closing = _Closing(packing, group_of)
        for bin in closing.candidates():
            closing.close(bin)


class _Closing:
    def __init__(self, packing: PackingState, group_of: list[PodGroup | None]) -> None:
        self._packing, self._group_of = packing, group_of
        self._everywhere = tuple(sorted({domain for _, domain in packing.by_site}))
        self._in_vain: set[tuple[object, ...]] = set()  # pods that found no node: there are only ever fewer

    def candidates(self) -> list[Bin]:
        supply, nodes = self._packing.supply, len(self._packing.bins)
        found: list[tuple[float, int, int, Bin]] = []
        for bin in self._packing.bins:
            if bin.ladder is None or bin.option_group is None or not 0 < len(bin.pods) <= _MOST_PODS:
                continue
            price, consumes = bin.ladder.prices[bin.rung], bin.ladder.options[bin.rung].consumes
            if price > 0 and supply.available(bin.option_group, consumes) >= nodes:
                found.append((-price, len(bin.pods), bin.number, bin))
        return [bin for *_, bin in sorted(found)]

    def close(self, bin: Bin) -> bool:
        """Whether all its pods found another node."""
        groups: list[tuple[bool, float, int, PodGroup]] = []
        for pod in bin.pods:
            group = self._group_of[pod]
            if group is None or group.host_affinity or group.needs_exact_check:
                return False
            groups.append((not group.one_per_host, -group.size, pod, group))  # the hardest first
        moved: list[tuple[int, PodGroup, Bin]] = []
        for _, _, pod, group in sorted(groups):
            domains = (bin.site[1],) if group.has_domain_rules else self._everywhere
            kind = (group.eligibility, group.requests, group.blocked_by, domains)
            target = self._find_node(group, bin, domains) if kind not in self._in_vain else None
            if target is None:
                if not moved:
                    self._in_vain.add(kind)
                for one, its_group, there in reversed(moved):
                    self._move(one, its_group, there, bin)
                return False
            self._move(pod, group, bin, target)
            moved.append((pod, group, target))
        self._packing.close(bin)
        return True

    def _find_node(self, group: PodGroup, bin: Bin, domains: tuple[Domain, ...]) -> Bin | None:
        packing = self._packing
        for site in packing.sites(domains):
            if self._may_have_room(group, site):
                target = packing.find_fit(group, site, bin)
                if target is not None:
                    return target
        return None

    def _may_have_room(self, group: PodGroup, site: Site) -> bool:
        index = self._packing.indexes.get(site)
        return (
            index is not None
            and index.has_bin_for(group.blocked_by)
            and self._packing.can_use_site(group, site)
        )

    def _move(self, pod: int, group: PodGroup, source: Bin, target: Bin) -> None:
        staying = [self._group_of[other] for other in source.pods if other != pod]
        self._packing.remove_pod(source, group, pod, staying)
        self._packing.put(target, group, [pod])
