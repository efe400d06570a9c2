"""After filling: let a node be smaller by moving the one pod that is too much for the smaller type, or exchanging it.

Worth its time only where much is left over: where crowds keep each other off hosts, or types come in large steps.
Moves stay on the site, so nothing about domains changes; every move is paid back by the price of a step down.
"""

from __future__ import annotations

from tidemill.decide.packer.bins import Bin
from tidemill.decide.packer.filler import Filler
from tidemill.decide.packer.pod_groups import Crowd
from tidemill.decide.packer.supply import Site
from tidemill.decide.packer.swaps import exchange

# Below this share of what new nodes hold being left over, there is little to win.
_WORTH = 0.06
_GAIN = 0.002  # another pass is worth it while the last one won more than this


def polish(filler: Filler, crowd_of: list[Crowd | None]) -> None:
    for site, bins in filler.by_site.items():
        new = [one for one in bins if one.ladder is not None and one.asks]
        for one in new:
            filler.shrink(one)
        before = float("inf")
        while new and before - (now := _left_over(filler, new)) > _GAIN and now > _WORTH:
            before = now
            _step_down(filler, site, new, crowd_of)
            exchange(filler, site, new, crowd_of)


def _left_over(filler: Filler, bins: list[Bin]) -> float:
    """The share left over of the dimension that is used most."""
    weights = filler.weights
    held = [0] * len(weights)
    used = [0] * len(weights)
    for one in bins:
        assert one.ladder is not None
        free = one.free
        for place, amount in enumerate(one.ladder.capacities[one.rung]):
            held[place] += amount
            used[place] += amount - free[place]
    return min(
        (1 - b / a for a, b, weight in zip(held, used, weights, strict=True) if a and weight), default=0.0
    )


def _step_down(filler: Filler, site: Site, bins: list[Bin], crowd_of: list[Crowd | None]) -> None:
    """Those that are least over the smaller type first: what they shed is small and fits elsewhere."""
    for one in sorted(bins, key=lambda one: (_excess(filler, one), one.number)):
        while one.rung > 0 and len(one.asks) > 1:
            shed = _too_much(one, crowd_of)
            if shed is None:
                break
            ask, crowd = shed
            target = filler.find(crowd, site, one)
            if target is None:
                break
            filler.move(ask, crowd, one, target, [crowd_of[other] for other in one.asks if other != ask])


def _excess(filler: Filler, one: Bin) -> float:
    assert one.ladder is not None
    if one.rung == 0:
        return float("inf")
    below = one.ladder.capacities[one.rung - 1]
    return sum(
        (used - cap) * weight
        for used, cap, weight in zip(one.used, below, filler.weights, strict=True)
        if used > cap
    )


def _too_much(one: Bin, crowd_of: list[Crowd | None]) -> tuple[int, Crowd] | None:
    """The smallest pod without which the next smaller type would do."""
    assert one.ladder is not None
    below = one.ladder.capacities[one.rung - 1]
    over = [
        (place, used - cap)
        for place, (used, cap) in enumerate(zip(one.used, below, strict=True))
        if used > cap
    ]
    best: tuple[float, int, Crowd] | None = None
    for ask in one.asks:
        crowd = crowd_of[ask]
        if crowd is None or crowd.host_company or (best is not None and crowd.size >= best[0]):
            continue
        wants = dict(crowd.wants)
        if all(wants.get(place, 0) >= amount for place, amount in over):
            best = (crowd.size, ask, crowd)
    return (best[1], best[2]) if best is not None else None
