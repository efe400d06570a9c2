"""What the ledger keeps: intents of launches and purchases, verdicts, adoptions, money. Part of the world.

Every launch and every purchase is written as an intent first, so that a crash neither loses nor doubles it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from tidemill.model.capacity import Reservation, Source, SourceKind
from tidemill.model.purchase_reasons import PurchaseReason


class LaunchState(StrEnum):
    WRITTEN = "written"  # the call may or may not have been made: repeat it, the id is its ClientToken
    ASKED = "asked"  # of a group, which launches when it likes: what comes is listed with the intent's id
    LAUNCHED = "launched"  # the call answered; `instance_ids` came of it
    FAILED = "failed"
    SHORT = "short"  # fewer came than were asked for: `instance_ids`
    NEVER_READY = "never-ready"  # of one instance: it was given up before it was ever a Ready node
    SETTLED = "settled"  # all it made has been seen, or it expired


@dataclass(frozen=True, slots=True)
class LaunchIntent:
    """So many instances of a type, from a source, in a zone, for a pool."""

    id: str
    pool: str
    source: Source
    instance_type: str
    zone: str
    count: int
    provisioner: str
    written_at: datetime
    state: LaunchState = LaunchState.WRITTEN
    state_at: datetime | None = None
    instance_ids: tuple[str, ...] = ()
    failure: str = ""  # the error's label: no-capacity, retryable, …; of one never Ready: why it was given up
    node_class: str = ""  # of one never Ready: the fingerprint of the NodeClass that it was made from
    least: int = 1  # with fewer, none is launched: a gang needs so many. A group gives what it can
    answer: str = ""  # of one that failed: what AWS said, shown to people as it is and never read
    failing_since: datetime | None = (
        None  # launches there failed one after the other before it; None: none did
    )

    @property
    def in_flight(self) -> int:
        """How many instances it may have made or be making, those already seen included."""
        if self.state is LaunchState.LAUNCHED:
            return len(self.instance_ids)
        return self.count if self.state in (LaunchState.WRITTEN, LaunchState.ASKED) else 0


class PurchaseState(StrEnum):
    """The life of a purchase. Blocks and extensions live it alike.

    proposed ⇄ approved ⇄ submitted ─ confirmed ─ failed (its payment)
        └────────┴─ refused, voided   └─ unknown ─ confirmed or failed
    """

    PROPOSED = "proposed"
    APPROVED = "approved"
    REFUSED = "refused"
    SUBMITTED = "submitted"  # written before the call: from here on the outcome may be unknown
    CONFIRMED = "confirmed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    VOIDED = "voided"  # no longer needed, or expired; never submitted


_P: Final = PurchaseState
# Nothing was sent to EC2: people may still decide on it.
NOT_SUBMITTED: Final = (_P.PROPOSED, _P.APPROVED)
# It may have been bought, and nobody knows.
IN_DOUBT: Final = (_P.SUBMITTED, _P.UNKNOWN)
# While one of these covers a demand nothing else is proposed for it.
OPEN: Final = (*NOT_SUBMITTED, *IN_DOUBT)
# What may have been bought counts as bought until it is certain that it was not.
MAY_COST: Final = (*IN_DOUBT, _P.CONFIRMED)

# Which state may follow which, and by what. The ledger refuses every other transition, so that no bug elsewhere can
# buy what was refused, or forget what may have been bought.
TRANSITIONS: Final[Mapping[tuple[PurchaseState, PurchaseState], str]] = {
    (_P.PROPOSED, _P.PROPOSED): "an approval that is not yet enough",
    (_P.PROPOSED, _P.APPROVED): "the approvals the policy asks for",
    (_P.PROPOSED, _P.REFUSED): "one no",
    (_P.PROPOSED, _P.VOIDED): "expired, covered by now, or no longer in the plan",
    (_P.APPROVED, _P.APPROVED): "no offer inside the envelope just now",
    (_P.APPROVED, _P.REFUSED): "one no, before it was submitted",
    (_P.APPROVED, _P.PROPOSED): "only sold outside the envelope: another envelope is put to approval",
    (_P.APPROVED, _P.VOIDED): "expired, covered by now, or no longer in the plan",
    (_P.APPROVED, _P.SUBMITTED): "written before the call: from here on it may have been bought",
    (_P.SUBMITTED, _P.CONFIRMED): "EC2's answer, or found by its tag or in the history",
    (_P.SUBMITTED, _P.APPROVED): "EC2's definite no",
    (_P.SUBMITTED, _P.UNKNOWN): "no answer: it may have been bought, and is never submitted again",
    (_P.UNKNOWN, _P.CONFIRMED): "found by its tag or in the history, or a person found it",
    (_P.UNKNOWN, _P.FAILED): "a person made sure that nothing was bought",
    (_P.CONFIRMED, _P.CONFIRMED): "AWS lists another of its blocks: each UltraServer is one",
    (_P.CONFIRMED, _P.FAILED): "its payment failed: there is no block, and no fee",
    **{
        (state, _P.CONFIRMED): "AWS shows a block with its tag, whatever was believed before"
        for state in (_P.PROPOSED, _P.APPROVED, _P.FAILED, _P.VOIDED, _P.REFUSED)
    },
}


@dataclass(frozen=True, slots=True)
class Envelope:
    """What an approval binds. Offers vanish; the best one inside the envelope is bought at submit."""

    instance_type: str
    count: int
    duration: timedelta
    earliest_start: datetime
    latest_start: datetime
    earliest_end: datetime  # a block that ends sooner does not cover what it is bought for
    zones: tuple[str, ...]
    max_fee_usd: int
    expires_at: datetime
    planned_start: datetime | None = (
        None  # of the offer that was proposed; None: any inside the envelope is as good
    )

    @classmethod
    def of_extension(
        cls, block: Reservation, start: datetime, end: datetime, max_fee_usd: int, expires_at: datetime
    ) -> Envelope:
        """This very block, longer by what lies between `start` and `end`."""
        return cls(
            block.instance_type,
            block.count,
            end - start,
            start,
            start,
            end,
            (block.zone,),
            max_fee_usd,
            expires_at,
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """A person's decision on a proposal; `who` is a proved identity."""

    who: str
    at: datetime
    approved: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class PurchaseIntent:
    id: str
    plan: str  # the CapacityPlan it serves
    pool: str
    window: str  # which demand window of the plan, so that a window is covered once
    envelope: Envelope
    proposer: str
    proposed_at: datetime
    state: PurchaseState = PurchaseState.PROPOSED
    state_at: datetime | None = None
    verdicts: tuple[Verdict, ...] = ()
    reservation_ids: tuple[str, ...] = ()
    fee_usd: int = 0
    reason: PurchaseReason | None = None  # why it is in this state, where the state alone does not say
    note: str = ""  # what a person wrote about it; no program reads it
    extends: str = ""  # the reservation an extension is for; empty: a new block
    offer_id: str = ""  # what was submitted: an extension takes no tags and is looked up by it
    # ... and from when to when it lasts. Until AWS shows it, which may take minutes, nothing else tells.
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits on the money of this month, checked at submit: for everything, for the fees of purchases that nobody
    approved, and for the fees of one plan."""

    month_usd: int
    auto_month_usd: int | None = None
    plan_month_usd: int | None = None


@dataclass(frozen=True, slots=True)
class BlockHours:
    """Accelerator hours of a block that the pods of a team used; the line without a team has the total."""

    reservation_id: str
    pool: str
    team: str = ""
    used_h: float = 0.0
    held_h: float = 0.0


@dataclass(frozen=True, slots=True)
class BlockUse:
    """Accelerator hours of a block since it started: with a pod on them, and in total."""

    reservation_id: str
    accelerators: int
    used_h: float
    held_h: float


@dataclass(frozen=True, slots=True)
class ShownReservation:
    """What AWS last showed of an adopted reservation: enough to count on it while AWS does not list it."""

    kind: SourceKind
    instance_type: str
    zone: str
    count: int
    start: datetime
    end: datetime | None
    lives: bool = True  # paid or being paid, and not over


@dataclass(frozen=True, slots=True)
class Pause:
    """A person paused the engine, or let it go on."""

    paused: bool
    who: str
    at: datetime
    reason: str = ""  # in their words: shown to people, never read


@dataclass(frozen=True, slots=True)
class Adoption:
    """A person declared that a reservation bought elsewhere belongs to the platform. Its tags alone prove nothing:
    anybody may write those."""

    reservation_id: str
    pool: str  # empty: any pool whose requirements allow the type
    who: str
    at: datetime
    shown: ShownReservation | None = None  # as AWS last showed it; None: it never did
    given_up: bool = False  # the adoption was undone


@dataclass(frozen=True, slots=True)
class CostLine:
    """An instance paid by the hour: from `since` until it ended, or until now."""

    instance_id: str
    pool: str
    kind: SourceKind
    usd_per_hour: float
    since: datetime
    until: datetime | None = None
    team: str = ""  # the team it is charged to, if only one uses it
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Spending:
    """Money spent this calendar month (UTC): block fees, and money by the hour, by pool and kind."""

    fees_usd: int = 0
    hourly_usd: tuple[tuple[tuple[str, SourceKind], float], ...] = ()
    plan_fees_usd: tuple[tuple[str, int], ...] = ()  # the fees again, by the CapacityPlan they served

    def fees_of(self, plan: str) -> int:
        return dict(self.plan_fees_usd).get(plan, 0)

    @property
    def total_usd(self) -> float:
        return self.fees_usd + sum(usd for _, usd in self.hourly_usd)

    def hourly(self, pool: str, kind: SourceKind) -> float:
        return dict(self.hourly_usd).get((pool, kind), 0.0)


NOTHING_SPENT = Spending()
