"""When the same thing may be proposed again, after people said no to it or said nothing.

Each time the question comes back later: who said no this morning is not asked tonight and tomorrow and every day.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from tidemill.model.purchases import PurchaseIntent, PurchaseState

# After a person said no, or a search found nothing, the question is not asked again sooner.
PROPOSE_AGAIN_AFTER = timedelta(hours=6)
# ... and, however often it was in vain, not later: a window comes nearer meanwhile.
MAX_BACKOFF = timedelta(days=2)
# What is void so soon after it was made would be void again: a proposal must not come and go at every tick.
SHORT_LIFE = timedelta(minutes=10)


def propose_again_at(before: Sequence[PurchaseIntent]) -> datetime | None:
    """From when on, given what became of the earlier proposals (oldest first); None: at once.

    A proposal that expired is made anew at once the first time: its approval may have come while nothing was offered.
    """
    in_vain = 0
    last: PurchaseIntent | None = None
    for one in before:
        if one.state is PurchaseState.REFUSED or _expired(one):
            in_vain, last = in_vain + 1, one
        else:
            in_vain, last = 0, None
    if last is None or last.state_at is None:
        return None
    doubled = in_vain - 1 if last.state is PurchaseState.REFUSED else in_vain - 2
    return (
        last.state_at if doubled < 0 else last.state_at + min(PROPOSE_AGAIN_AFTER * 2**doubled, MAX_BACKOFF)
    )


def _expired(intent: PurchaseIntent) -> bool:
    """Voided because its time was over; what was covered after a while, or dropped from the plan, was not in vain."""
    over_at = intent.state_at if intent.state is PurchaseState.VOIDED else None
    if over_at is None:
        return False
    return over_at >= intent.envelope.expires_at or over_at - intent.proposed_at < SHORT_LIFE
