"""In which order shares are filled: who forces hosts first, then the large before the small, which fill gaps."""

from __future__ import annotations

from tidemill.decide.packer.best_fit import pour
from tidemill.decide.packer.filler import Filler
from tidemill.decide.packer.node_growth import make_room, raise_floor
from tidemill.decide.packer.pod_groups import Crowd
from tidemill.decide.packer.strategy import USUAL, Ahead, Hosts, Strategy
from tidemill.decide.packer.supply import Domain
from tidemill.decide.packer.topology_spread import Share

# Priority, how choosy it is about hosts, size, needs, domains, eligibility: what is filled in one go, and when.
_Turn = tuple[int, int, float, tuple[tuple[int, int], ...], tuple[Domain, ...], int]


def fill(shares: list[Share], filler: Filler, strategy: Strategy = USUAL) -> list[int]:
    """Who forces hosts opens them first, who minds company comes next; the large before the small, which fill gaps."""
    left: list[int] = []
    groups: dict[_Turn, list[Share]] = {}
    for share in shares:
        crowd = share.crowd
        size = -crowd.size if strategy.large_first else crowd.size
        tier = _tier(share, filler, strategy)
        turn: _Turn = (-crowd.priority, tier, size, crowd.wants, share.domains, crowd.eligibility)
        groups.setdefault(turn, []).append(share)
    raised = False
    for turn in sorted(groups):
        if turn[1] and not raised and strategy.floors:
            raised = True
            _raise_floors([groups[other] for other in groups if other >= turn], filler)
        queue = [
            (share.crowd, share.asks) for share in sorted(groups[turn], key=lambda share: share.crowd.since)
        ]
        sites = filler.sites(turn[4])
        for site in sites:
            queue = pour(filler, queue, site)
            if not queue:
                break
        for place, (crowd, asks) in enumerate(queue):
            coming = 1
            if strategy.ahead is not Ahead.ONE:
                coming = sum(len(rest) for _, rest in queue[place:])
            if strategy.ahead is Ahead.EVERYBODY:
                coming += _others_to_come(crowd, [groups[other] for other in groups if other > turn])
            left += make_room(filler, crowd, asks, sites, coming)
    return left


def _others_to_come(crowd: Crowd, groups: list[list[Share]]) -> int:
    """As how many pods of this crowd those of later turns count, by what the crowd needs most."""
    leading, amount = crowd.wants[0]
    wanted = sum(
        dict(share.crowd.wants).get(leading, 0) * len(share.asks) for group in groups for share in group
    )
    return wanted // amount


def _tier(share: Share, filler: Filler, strategy: Strategy) -> int:
    crowd = share.crowd
    if strategy.choosy_first:
        return filler.choices(crowd, share.domains)
    if strategy.hosts is Hosts.FIRST:
        return 0 if crowd.solitary else 1 if crowd.host_caps else 2
    return 1 + (strategy.hosts is Hosts.LAST and crowd.solitary)


def _raise_floors(groups: list[list[Share]], filler: Filler) -> None:
    """What is still to come, by domain and dimension, is what the new bins there should be able to hold."""
    demand: dict[Domain, list[int]] = {}
    for group in groups:
        first = group[0]  # they have the same needs and the same domains
        if len(first.domains) == 1:
            sums = demand.setdefault(first.domains[0], [0] * len(filler.ground.dimensions))
            pods = sum([len(share.asks) for share in group])
            for place, amount in first.crowd.wants:
                sums[place] += amount * pods
    for domain, sums in demand.items():
        sites = filler.sites((domain,))
        if len(sites) == 1:
            raise_floor(filler, sites[0], sums)
