"""Sentences about purchases: why one may not be made, why a submit bought nothing, what became of it."""

from __future__ import annotations

from typing import assert_never

from tidemill.model.offers import ExtensionOffer
from tidemill.model.purchase_reasons import (
    NOTHING_BOUGHT,
    ProposalReason,
    PurchaseReason,
    PurchaseWarning,
    PurchaseWarningKind,
    ReasonKind,
    SearchKind,
    SearchReason,
)
from tidemill.model.purchases import PurchaseIntent
from tidemill.spec.units import format_instant
from tidemill.wording.templates import Sentence, fill


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
        case ReasonKind.APPROVED:
            return "approved and inside the budget"
        case ReasonKind.TRIED_AGAIN:
            return "approved; trying again for an offer inside its envelope"
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


# --- searches, proposals and warnings -----------------------------------------------------------------

_SEARCHES: dict[SearchKind, Sentence[SearchReason]] = {
    SearchKind.WINDOW_SHORT: "window {window} of plan {plan} lacks {count:instance}",
    SearchKind.WINDOW_OUTLASTS_BLOCK: "window {window} of plan {plan} outlasts it",
    SearchKind.REPLAN: "the calendars are planned anew",
}
_WARNINGS: dict[PurchaseWarningKind, Sentence[PurchaseWarning]] = {
    PurchaseWarningKind.UNLISTED: (
        "missing from DescribeCapacityReservations; treated as held until its end, and nothing is bought in its place."
        " If it is really gone, say `tidemill adopt {name} --undo`"
    ),
    PurchaseWarningKind.OUTCOME_UNKNOWN: (
        "the outcome of this purchase is unknown and it is not repeated: it is recorded as confirmed if AWS shows it;"
        " look in the EC2 console, and then say `tidemill settle {name}`"
    ),
    PurchaseWarningKind.SEVERAL_BLOCKS: (
        "AWS shows several blocks with its tag ({reservation_ids}): was it bought twice? Only the first is counted"
    ),
    PurchaseWarningKind.NO_LONGER_LISTED: (
        "AWS no longer lists {reservation_ids}: if its payment failed, say `tidemill settle {name} --not-bought`, and"
        " its demand is planned anew"
    ),
    PurchaseWarningKind.NO_PLANNER: "a block is bought for each week, because nothing can be planned: {detail}",
    PurchaseWarningKind.NO_OFFER: lambda warning: (
        f"EC2 offers no block of {warning.count} {warning.instance_type} for it now"
        + (
            f"; an extension of {warning.name} would be ${warning.fee_usd:,} for all of its {warning.of}:"
            " `tidemill extend`"
            if warning.name
            else ""
        )
    ),
    PurchaseWarningKind.TOO_DEAR: lambda warning: (
        f"the cheapest is ${warning.fee_usd:,}, more than the ${warning.limit_usd:,} it may cost"
    ),
    PurchaseWarningKind.TOO_LONG: "it lacks more time than the longest block lasts, 182 days",
    PurchaseWarningKind.LITTLE_USED: lambda warning: (
        f"its blocks were used {warning.used:.0%} of the time, less than the {warning.wanted:.0%} the plan asks for:"
        " they lapse, and no more is bought for it"
    ),
}


def search_sentence(reason: SearchReason) -> str:
    return fill(_SEARCHES[reason.kind], reason)


def purchase_warning_sentence(warning: PurchaseWarning) -> str:
    return fill(_WARNINGS[warning.kind], warning)


def proposal_sentence(reason: ProposalReason) -> str:
    offer = reason.offer
    if isinstance(offer, ExtensionOffer):
        what = f"{offer.reservation_id} until {format_instant(offer.end)}"
    else:
        what = f"{offer.count} {offer.instance_type} from {format_instant(offer.start)}"
    what = f"{what}, about ${offer.fee_usd:,}"
    if reason.saves_usd is not None:
        return f"{what}: it saves ${reason.saves_usd:,.0f} over going without it"
    return what if reason.new_block_usd is None else f"{what}; a new block would be ${reason.new_block_usd:,}"
