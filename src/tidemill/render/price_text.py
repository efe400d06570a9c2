"""What a pod costs, which cheaper type would hold it, and what blocks would cost on demand, in one line each."""

from __future__ import annotations

from tidemill.render.figures import counted, usd
from tidemill.report import PodPrice, TypePrice


def price_text(price: PodPrice | None) -> str:
    """Empty if no useful price is known."""
    if price is None:
        return ""
    if price.node is None:
        return _waiting(price)
    return _prepaid(price, price.node) if price.prepaid else _running(price, price.node)


def on_demand_text(delivered_usd: float, used_usd: float | None, unpriced: tuple[str, ...]) -> str:
    """What the hours of blocks that are over would have cost on demand; empty before there are any."""
    if not delivered_usd:
        return f"no on-demand price is known for {', '.join(unpriced)}" if unpriced else ""
    used = f" (used hours {usd(used_usd)})" if used_usd is not None else ""
    without = f", without {', '.join(unpriced)}: no price known" if unpriced else ""
    return f"hours of blocks that are over: on demand {usd(delivered_usd)}{used}{without}"


def _prepaid(price: PodPrice, node: TypePrice) -> str:
    shared = f", shared with {counted(price.neighbours, 'other pod')}" if price.neighbours else ""
    if node.usd_per_hour is None:
        return f"Its node is prepaid; no on-demand price is known for {node.type}."
    return f"Its node is prepaid; on demand a {node.type} would be {usd(node.usd_per_hour)} an hour{shared}."


def _running(price: PodPrice, node: TypePrice) -> str:
    if node.usd_per_hour is None:
        return ""
    cost = f"{usd(node.usd_per_hour)} an hour" + (" on demand" if price.paid_as == "spot" else "")
    best = price.in_pools
    best_usd = best.usd_per_hour if best else None
    if price.neighbours:
        line = f"It shares {node.type}, {cost}, with {counted(price.neighbours, 'other pod')}"
        if best and best_usd is not None:
            line += f"; alone it would need {best.type} at {usd(best_usd)}"
    elif best and best_usd is not None and best_usd < node.usd_per_hour:
        line = f"It runs alone on {node.type}, {cost}; {best.type} at {usd(best_usd)} would hold it"
    else:
        line = f"It runs alone on {node.type}, {cost}"
        if best and best_usd is not None:
            line += ", the cheapest type of its pools that holds it"
    return f"{line}.{_outside(price)}"


def _waiting(price: PodPrice) -> str:
    best, other = price.in_pools, price.in_catalog
    if best is None:
        if other is None or other.usd_per_hour is None:
            return ""
        return f"No type of its pools holds it; {_named(other)} at {usd(other.usd_per_hour)} an hour would."
    if best.usd_per_hour is None:
        return f"{best.type} of its pools holds it; no on-demand price is known."
    cost = f"{usd(best.usd_per_hour)} an hour on demand"
    return f"The cheapest type of its pools that holds it is {best.type}, {cost}.{_outside(price)}"


def _outside(price: PodPrice) -> str:
    """Names the GPU: another type may have another one, and only people know whether it will do."""
    other = price.in_catalog
    if other is None or other.usd_per_hour is None:
        return ""
    return f" Outside its pools {_named(other)} at {usd(other.usd_per_hour)} would hold it."


def _named(price: TypePrice) -> str:
    return f"{price.type} ({price.accelerators})" if price.accelerators else price.type
