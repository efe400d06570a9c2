"""Why a purchase is in the state it is in: a kind and its data. Stored in the ledger as such, and read by programs.

Sentences are made from it in `wording.purchases`. What people type is kept apart, in the intent's `note`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from tidemill.model.offers import ExtensionOffer, Offer


class ReasonKind(StrEnum):
    """The values are stored: do not change them."""

    # It may not be bought now.
    PROPOSE_ONLY = "propose-only"  # approval.mode is propose
    WAITS_FOR_APPROVAL = "waits-for-approval"  # approvals, approvals_needed
    OVER_FEE_CEILING = "over-fee-ceiling"  # fee_usd, limit_usd
    OVER_PLAN_MONTH = "over-plan-month"  # fee_usd, spent_usd, limit_usd, name: the plan
    # fee_usd, spent_usd, limit_usd; hourly_usd: so much of it by the hour, most of that by pool `name`
    OVER_MONTH = "over-month"
    OVER_AUTO_MONTH = "over-auto-month"  # fee_usd, limit_usd: what may be bought without an approval
    # A submit bought nothing, besides for one of the above.
    APPROVAL_EXPIRED = "approval-expired"  # at
    LEDGER_IN_MEMORY = "ledger-in-memory"
    POOL_CANNOT_LAUNCH = "pool-cannot-launch"  # name: the pool; expected: what the documents lack
    LEDGER_OF_ANOTHER_DEPLOYMENT = "ledger-of-another-deployment"  # name: the ledger's, expected: ours
    BOUGHT_FROM_ANOTHER_LEDGER = "bought-from-another-ledger"  # reservation_ids, name: our deployment
    RESERVATIONS_UNREAD = (
        "reservations-unread"  # reservation_ids; detail: what of the first could not be read
    )
    NO_OFFER = "no-offer"
    REFUSED_BY_AWS = "refused-by-aws"  # code, detail
    REFUSED_BY_LEDGER = "refused-by-ledger"  # code, detail
    # Its pool could not use it. In each of them `name` is the pool.
    POOL_REMOVED = "pool-removed"
    NO_BLOCK_SOURCE = "no-block-source"
    TYPE_EXCLUDED = "type-excluded"  # instance_type
    NO_SUBNET = "no-subnet"  # zones: where it would be; usable_zones: where there are subnets
    ZONE_EXCLUDED = "zone-excluded"  # zones: where it would be; usable_zones: where the pool may be
    TAGS_NOT_SELECTED = "tags-not-selected"  # expected: the tags that the pool selects by
    PINNED_TO_IDS = "pinned-to-ids"  # reservation_ids: the only ones that the pool selects
    OVER_POOL_LIMITS = "over-pool-limits"  # instance_type, count, most
    NO_ROOM_BESIDE_BLOCKS = (
        "no-room-beside-blocks"  # instance_type, count, most: beside the pool's other blocks
    )
    # It is submitted.
    APPROVED = "approved"
    TRIED_AGAIN = "tried-again"
    # It goes on.
    APPROVED_BY_POLICY = "approved-by-policy"
    DEARER_THAN_APPROVED = "dearer-than-approved"  # fee_usd
    ANSWER_UNKNOWN = "answer-unknown"  # the call failed and may have bought: code, detail, request_id
    ANSWER_LOST = "answer-lost"  # the engine stopped between the call and its answer
    # It is bought.
    FOUND_BY_TAG = "found-by-tag"  # reservation_ids
    FOUND_IN_HISTORY = "found-in-history"  # reservation_ids
    FOUND_AFTER_ALL = "found-after-all"  # reservation_ids, name: the state it was in
    MORE_BLOCKS_LISTED = "more-blocks-listed"  # reservation_ids
    FOUND_BY_PERSON = "found-by-person"  # name: who
    # It is not bought, and will not be.
    PAYMENT_FAILED = "payment-failed"
    NOT_BOUGHT_SAYS_PERSON = "not-bought-says-person"  # name: who
    COVERED = "covered"
    MOSTLY_COVERED = "mostly-covered"
    WORSE_THAN_APPROVED = "worse-than-approved"  # fee_usd and at: of the best that is sold now
    EXPIRED = "expired"
    REPLACED = "replaced"  # expired, and asked for anew by a person
    WINDOW_REMOVED = "window-removed"
    BLOCK_GONE = "block-gone"  # the one it would extend
    BLOCK_END_MOVED = "block-end-moved"
    # The ledger was lost and rebuilt.
    REBUILT_FROM_TAGS = "rebuilt-from-tags"  # fee_estimated
    REBUILT_FROM_HISTORY = "rebuilt-from-history"
    REBUILT_LOST_ATTEMPT = (
        "rebuilt-lost-attempt"  # an earlier attempt for the same window must have been there
    )
    REBUILT_SPENDING = "rebuilt-spending"  # name: who says so


@dataclass(frozen=True, slots=True)
class PurchaseReason:
    """Beside each kind stands which of these it has."""

    kind: ReasonKind
    fee_usd: int = 0
    spent_usd: int = 0
    limit_usd: int = 0
    hourly_usd: int = 0
    approvals: int = 0
    approvals_needed: int = 0
    reservation_ids: tuple[str, ...] = ()
    name: str = ""
    expected: str = ""
    at: datetime | None = None
    code: str = ""  # of the error: AWS's code, else our label of it
    detail: str = ""  # the error's message, shown to people as it came
    request_id: str = ""  # AWS's id of the call; empty: it did not answer
    fee_estimated: bool = False
    instance_type: str = ""
    zones: tuple[str, ...] = ()
    usable_zones: tuple[str, ...] = ()
    count: int = 0
    most: int = 0


# The pool that it is for could not use it.
UNUSABLE: Final = frozenset(
    {
        ReasonKind.POOL_REMOVED,
        ReasonKind.NO_BLOCK_SOURCE,
        ReasonKind.TYPE_EXCLUDED,
        ReasonKind.NO_SUBNET,
        ReasonKind.ZONE_EXCLUDED,
        ReasonKind.TAGS_NOT_SELECTED,
        ReasonKind.PINNED_TO_IDS,
        ReasonKind.OVER_POOL_LIMITS,
        ReasonKind.NO_ROOM_BESIDE_BLOCKS,
    }
)
# A submit that wrote one of these bought nothing; it is tried again after a pause.
NOTHING_BOUGHT: Final = UNUSABLE | frozenset(
    {
        ReasonKind.PROPOSE_ONLY,
        ReasonKind.WAITS_FOR_APPROVAL,
        ReasonKind.OVER_FEE_CEILING,
        ReasonKind.OVER_PLAN_MONTH,
        ReasonKind.OVER_MONTH,
        ReasonKind.OVER_AUTO_MONTH,
        ReasonKind.APPROVAL_EXPIRED,
        ReasonKind.LEDGER_IN_MEMORY,
        ReasonKind.POOL_CANNOT_LAUNCH,
        ReasonKind.LEDGER_OF_ANOTHER_DEPLOYMENT,
        ReasonKind.BOUGHT_FROM_ANOTHER_LEDGER,
        ReasonKind.RESERVATIONS_UNREAD,
        ReasonKind.NO_OFFER,
        ReasonKind.REFUSED_BY_AWS,
        ReasonKind.REFUSED_BY_LEDGER,
    }
)
# An open purchase with one of these was submitted before: it is not submitted again at every tick.
SUBMITTED_BEFORE: Final = NOTHING_BOUGHT | {ReasonKind.APPROVED_BY_POLICY, ReasonKind.DEARER_THAN_APPROVED}
REBUILT: Final = frozenset(
    {
        ReasonKind.REBUILT_FROM_TAGS,
        ReasonKind.REBUILT_FROM_HISTORY,
        ReasonKind.REBUILT_LOST_ATTEMPT,
        ReasonKind.REBUILT_SPENDING,
    }
)


# --- searches, proposals and warnings -----------------------------------------------------------------


class SearchKind(StrEnum):
    WINDOW_SHORT = "window-short"  # plan, window, count: instances that are missing
    WINDOW_OUTLASTS_BLOCK = "window-outlasts-block"  # plan, window
    REPLAN = "replan"  # all calendars are planned anew


@dataclass(frozen=True, slots=True)
class SearchReason:
    """Why EC2 is asked for offers."""

    kind: SearchKind
    plan: str = ""
    window: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True)
class ProposalReason:
    """What is proposed, as EC2 offers it now, and what speaks for it."""

    offer: Offer | ExtensionOffer
    new_block_usd: int | None = None  # what a new block would cost in place of this extension
    saves_usd: float | None = None  # over going without it, says the planner


class PurchaseWarningKind(StrEnum):
    UNLISTED = "unlisted"  # name: an adopted reservation that AWS does not list
    OUTCOME_UNKNOWN = "outcome-unknown"  # name: the intent
    SEVERAL_BLOCKS = "several-blocks"  # reservation_ids
    NO_LONGER_LISTED = "no-longer-listed"  # reservation_ids, name: the intent
    UNREAD = "unread"  # name: a reservation that may be ours; detail: what of it could not be read
    NO_SOLVER = "no-solver"  # a block is bought for each week
    PLANNER_CRASHED = "planner-crashed"  # likewise
    NO_OFFER = "no-offer"  # count, instance_type; name, of, fee_usd: an extension that is too large
    TOO_DEAR = "too-dear"  # fee_usd, limit_usd
    TOO_LONG = "too-long"
    NOT_TRIED = "not-tried"  # name: the intent, which another process is to submit
    LITTLE_USED = "little-used"  # used, wanted: shares of the time


@dataclass(frozen=True, slots=True)
class PurchaseWarning:
    kind: PurchaseWarningKind
    name: str = ""
    reservation_ids: tuple[str, ...] = ()
    instance_type: str = ""
    count: int = 0
    of: int = 0
    fee_usd: int = 0
    limit_usd: int = 0
    used: float = 0.0
    wanted: float = 0.0
    detail: str = ""
