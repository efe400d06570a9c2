"""Sentences about purchases: why one may not be made, why a submit bought nothing, what became of it."""

from __future__ import annotations

from typing import assert_never

from tidemill.model.purchase_reasons import NOTHING_BOUGHT, PurchaseReason, ReasonKind
from tidemill.model.purchases import PurchaseIntent
from tidemill.spec.units import format_instant


def purchase_sentence(reason: PurchaseReason) -> str:
    """One sentence without a full stop, about "it", the purchase."""
    ids = ", ".join(reason.reservation_ids)
    fee, limit = f"${reason.fee_usd:,}", f"${reason.limit_usd:,}"
    match reason.kind:
        case ReasonKind.PROPOSE_ONLY:
            return "the platform only proposes: set approval.mode to buy"
        case ReasonKind.WAITS_FOR_APPROVAL:
            return f"it waits for approval ({reason.approvals} of {reason.approvals_needed})"
        case ReasonKind.OVER_FEE_CEILING:
            return f"up to {fee} is over the ceiling of {limit} for one purchase"
        case ReasonKind.OVER_PLAN_MONTH:
            return f"up to {fee} on top of ${reason.spent_usd:,} is over the {limit} a month of plan {reason.name}"
        case ReasonKind.OVER_MONTH:
            return f"up to {fee} on top of ${reason.spent_usd:,} is over the monthly budget of {limit}"
        case ReasonKind.OVER_AUTO_MONTH:
            return f"{fee} more is over the {limit} a month that need no approval"
        case ReasonKind.APPROVAL_EXPIRED:
            return (
                f"its approval expired {format_instant(reason.at)}" if reason.at else "its approval expired"
            )
        case ReasonKind.LEDGER_IN_MEMORY:
            return "nothing is bought from a ledger in memory: name one in a database"
        case ReasonKind.LEDGER_OF_ANOTHER_DEPLOYMENT:
            return f"this ledger belongs to deployment {reason.name!r}, not to {reason.expected!r}"
        case ReasonKind.BOUGHT_FROM_ANOTHER_LEDGER:
            return (
                f"{ids} were bought for {reason.name!r} from another ledger than this one: use that one, or complete"
                " this one with `tidemill ledger rebuild`"
            )
        case ReasonKind.NO_OFFER:
            return "no offer inside its envelope"
        case ReasonKind.REFUSED_BY_AWS | ReasonKind.REFUSED_BY_LEDGER:
            return reason.detail or reason.code
        case ReasonKind.APPROVED_BY_POLICY:
            return "inside what the policy buys without an approval"
        case ReasonKind.DEARER_THAN_APPROVED:
            return f"only sold from {fee} by now, above its envelope: it needs another approval"
        case ReasonKind.ANSWER_UNKNOWN:
            return "the outcome of the call is unknown"
        case ReasonKind.ANSWER_LOST:
            return "the answer to the call was lost; it is not repeated"
        case ReasonKind.FOUND_BY_TAG:
            return f"found by its tag: {ids}"
        case ReasonKind.FOUND_IN_HISTORY:
            return f"found in the history of {ids}"
        case ReasonKind.FOUND_AFTER_ALL:
            return (
                f"it was {reason.name}, and AWS shows {ids} with its tag: it is recorded as confirmed, and its fee"
                " counts"
            )
        case ReasonKind.MORE_BLOCKS_LISTED:
            return f"AWS now lists its block {ids} too"
        case ReasonKind.FOUND_BY_PERSON:
            return f"{reason.name} found it"
        case ReasonKind.PAYMENT_FAILED:
            return "its payment failed: there is no block, and no fee"
        case ReasonKind.NOT_BOUGHT_SAYS_PERSON:
            return f"{reason.name} made sure that nothing was bought"
        case ReasonKind.COVERED:
            return "its demand is covered by now"
        case ReasonKind.MOSTLY_COVERED:
            return "most of its demand is covered by now: what is left is proposed anew"
        case ReasonKind.EXPIRED:
            return "it expired before it was approved and bought"
        case ReasonKind.REPLACED:
            return "it expired, and a person asked for the same anew"
        case ReasonKind.WINDOW_REMOVED:
            return "its demand window is no longer in the plan"
        case ReasonKind.BLOCK_GONE:
            return "the block it would extend is no longer there"
        case ReasonKind.BLOCK_END_MOVED:
            return "the end of the block it would extend has moved"
        case ReasonKind.REBUILT_FROM_TAGS:
            return "rebuilt from its tags" + ("; its fee is the list price" if reason.fee_estimated else "")
        case ReasonKind.REBUILT_FROM_HISTORY:
            return "rebuilt from the history of extensions"
        case ReasonKind.REBUILT_LOST_ATTEMPT:
            return "rebuilt: an earlier attempt of which nothing is known"
        case ReasonKind.REBUILT_SPENDING:
            return f"rebuilt: {reason.name} says that this was spent besides"
    assert_never(reason.kind)


def purchase_note(intent: PurchaseIntent) -> str:
    """Why it is where it is, and what a person wrote about it; empty: nothing was said."""
    if intent.reason is None:
        return intent.note
    sentence = purchase_sentence(intent.reason)
    sentence = f"not bought: {sentence}" if intent.reason.kind in NOTHING_BOUGHT else sentence
    return f"{sentence}: {intent.note}" if intent.note else sentence
