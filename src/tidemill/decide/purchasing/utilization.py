"""Whether a block was worth its money: what little-used blocks cover is not bought again by itself."""

from __future__ import annotations

from tidemill.decide.context import DecisionContext
from tidemill.decide.purchasing.coverage import held_for
from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow


def lets_lapse(context: DecisionContext, plan: CapacityPlan, window: DemandWindow) -> bool:
    """The plan lets little-used blocks lapse, and all that serve this window now were little used."""
    wanted = plan.spec.extend.min_utilisation
    if not wanted:
        return False
    serving = held_for(context.spec, context.world.reservations, plan.spec.pool, window)
    shares = [share for block in serving if (share := used_share(context, block.id)) is not None]
    if not shares or max(shares) >= wanted:
        return False
    context.warn(
        window.name,
        f"its blocks were used {max(shares):.0%} of the time, less than the {wanted:.0%} the plan asks for: "
        "they lapse, and no more is bought for it",
    )
    return True


def used_share(context: DecisionContext, reservation_id: str) -> float | None:
    """Accelerator hours with a pod on them, of those that were ours to use; None: less than a day to judge by."""
    return next(
        (
            use.used_h / use.held_h
            for use in context.world.uses
            if use.reservation_id == reservation_id and use.held_h >= 24 * use.accelerators
        ),
        None,
    )
