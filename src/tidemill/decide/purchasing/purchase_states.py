"""A purchase's life as a table: which state may follow which, and by what.

Blocks and extensions live it alike. The ledger refuses every move that is not here, so that no bug elsewhere can
buy what was refused, or forget what may have been bought.

    proposed ⇄ approved ⇄ submitted ─ confirmed ─ failed (its payment)
        └────────┴─ refused, voided   └─ unknown ─ confirmed or failed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemill.model.purchases import PurchaseState as State


@dataclass(frozen=True, slots=True)
class Move:
    before: State
    after: State
    by: str


LIFE: Final = (
    Move(State.PROPOSED, State.PROPOSED, "an approval that is not yet enough"),
    Move(State.PROPOSED, State.APPROVED, "the approvals the policy asks for"),
    Move(State.PROPOSED, State.REFUSED, "one no"),
    Move(State.PROPOSED, State.VOIDED, "expired, covered by now, or no longer in the plan"),
    Move(State.APPROVED, State.APPROVED, "no offer inside the envelope just now"),
    Move(State.APPROVED, State.REFUSED, "one no, before it was submitted"),
    Move(State.APPROVED, State.PROPOSED, "only sold outside the envelope: another is put to approval"),
    Move(State.APPROVED, State.VOIDED, "expired, covered by now, or no longer in the plan"),
    Move(State.APPROVED, State.SUBMITTED, "written before the call: from here on it may have been bought"),
    Move(State.SUBMITTED, State.CONFIRMED, "EC2's answer, or found by its tag or in the history"),
    Move(State.SUBMITTED, State.APPROVED, "EC2's definite no"),
    Move(State.SUBMITTED, State.UNKNOWN, "no answer: it may have been bought, and is never submitted again"),
    Move(State.UNKNOWN, State.CONFIRMED, "found by its tag or in the history, or a person found it"),
    Move(State.UNKNOWN, State.FAILED, "a person made sure that nothing was bought"),
    Move(State.CONFIRMED, State.CONFIRMED, "another of its blocks shows: an UltraServer is one each"),
    *(
        Move(state, State.CONFIRMED, "AWS shows a block with its tag, whatever was believed before")
        for state in (State.PROPOSED, State.APPROVED, State.FAILED, State.VOIDED, State.REFUSED)
    ),
    Move(State.CONFIRMED, State.FAILED, "its payment failed: there is no block, and no fee"),
)

_MOVES: Final = {(move.before, move.after) for move in LIFE}
# While one of these covers a demand nothing else is proposed for it.
OPEN: Final = (State.PROPOSED, State.APPROVED, State.SUBMITTED, State.UNKNOWN)
# What may have been bought counts as bought until it is certain that it was not.
MAY_COST: Final = (State.SUBMITTED, State.UNKNOWN, State.CONFIRMED)


def may_follow(before: State, after: State) -> bool:
    return (before, after) in _MOVES
