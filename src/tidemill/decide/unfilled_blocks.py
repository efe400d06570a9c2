"""Paid capacity that EC2 does not let us launch into: somebody has to hear of it, for it is paid while it stands idle.

A full block is no such case: EC2 itself says that it has free slots, and refuses to fill them.
"""

from __future__ import annotations

from tidemill.decide.context import DecisionContext
from tidemill.decide.launches import NO_CAPACITY, NOT_FILLED_AFTER, InFlight
from tidemill.model.capacity import ReservationState
from tidemill.model.warning_reasons import BlockNotFilled


def warn_of_unfilled_blocks(context: DecisionContext, in_flight: InFlight) -> None:
    for (source, _, _), last in sorted(in_flight.failing.items(), key=lambda one: one[1].id):
        reservation = context.reservations.get(source.id)
        if (
            reservation is None
            or reservation.state is not ReservationState.ACTIVE
            or last.failure != NO_CAPACITY
        ):
            continue
        free = reservation.available - in_flight.on(source)
        since = last.failing_since or last.written_at
        if free < 1:
            continue
        if context.now < since + NOT_FILLED_AFTER:
            context.wake(since + NOT_FILLED_AFTER)
            continue
        context.warn(
            reservation.id,
            BlockNotFilled(reservation.id, last.pool, free, reservation.count, since, last.answer),
        )
