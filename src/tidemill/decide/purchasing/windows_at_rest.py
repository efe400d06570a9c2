"""Demand windows that asked for nothing at the last decision, and until when that holds.

It follows from the documents, the reservations, the purchases and the clock: while the first three are the very same
objects, nothing but an instant at which coverage changes can end it. Most plans have many windows, and few of them ask
for anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidemill.decide.context import DecisionContext
from tidemill.model.capacity import Reservation
from tidemill.model.purchases import PurchaseIntent
from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow


@dataclass(frozen=True, slots=True)
class _Rest:
    window: DemandWindow
    reservations: tuple[Reservation, ...]
    purchases: tuple[PurchaseIntent, ...]
    since: datetime
    until: datetime | None  # None: for ever


class WindowsAtRest:
    """Part of a decision's memory, which is emptied when the documents change."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Rest] = {}

    def still(self, context: DecisionContext, plan: CapacityPlan, window: DemandWindow) -> bool:
        """Whether it still asks for nothing; then the decision wakes when that may change."""
        rest, world = self._known.get((plan.name, window.name)), context.world
        if rest is None or rest.window is not window or rest.reservations is not world.reservations:
            return False
        if rest.purchases is not world.purchases or context.now < rest.since:
            return False
        if rest.until is not None and context.now >= rest.until:
            return False
        context.wake(rest.until)
        return True

    def note(
        self,
        context: DecisionContext,
        plan: CapacityPlan,
        window: DemandWindow,
        changes_at: list[datetime],
    ) -> None:
        """It asks for nothing before the first of these instants that is yet to come."""
        until = min((at for at in changes_at if at > context.now), default=None)
        world = context.world
        self._known[plan.name, window.name] = _Rest(
            window, world.reservations, world.purchases, context.now, until
        )
