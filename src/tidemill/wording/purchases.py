"""Sentences about purchases: why one may not be made, why a submit bought nothing, what became of it."""

from __future__ import annotations

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
from tidemill.model.purchases import PurchaseIntent, Verdict
from tidemill.spec.units import format_instant
from tidemill.wording.templates import Sentence, fill

_REASONS: dict[ReasonKind, Sentence[PurchaseReason]] = {
    ReasonKind.PROPOSE_ONLY: "the platform only proposes: to buy, set approval.mode to one, two or auto",
    ReasonKind.WAITS_FOR_APPROVAL: "it waits for approval ({approvals} of {approvals_needed})",
    ReasonKind.OVER_FEE_CEILING: lambda reason: (
        f"up to ${reason.fee_usd:,} is over the ceiling of ${reason.limit_usd:,} for one purchase"
    ),
    ReasonKind.OVER_PLAN_MONTH: lambda reason: (
        f"up to ${reason.fee_usd:,} on top of ${reason.spent_usd:,} is over the ${reason.limit_usd:,} a month of plan"
        f" {reason.name}"
    ),
    ReasonKind.OVER_MONTH: lambda reason: (
        f"up to ${reason.fee_usd:,} on top of ${reason.spent_usd:,} is over the monthly budget of"
        f" ${reason.limit_usd:,}"
        + (
            f"; ${reason.hourly_usd:,} of it was by the hour, most by pool {reason.name}"
            if reason.hourly_usd
            else ""
        )
    ),
    ReasonKind.OVER_AUTO_MONTH: lambda reason: (
        f"${reason.fee_usd:,} more is over the ${reason.limit_usd:,} a month that need no approval"
    ),
    ReasonKind.APPROVAL_EXPIRED: "its approval expired {at}",
    ReasonKind.POOL_CANNOT_LAUNCH: (
        "nodes of pool {name} could never join the cluster, so nothing is bought for it: {expected}"
    ),
    ReasonKind.LEDGER_IN_MEMORY: "nothing is bought from a ledger in memory: name one in a database",
    ReasonKind.LEDGER_OF_ANOTHER_DEPLOYMENT: "this ledger belongs to deployment '{name}', not to '{expected}'",
    ReasonKind.BOUGHT_FROM_ANOTHER_LEDGER: (
        "{reservation_ids} were bought for '{name}' from another ledger than this one: use that one, or complete this"
        " one with `tidemill ledger rebuild`"
    ),
    ReasonKind.RESERVATIONS_UNREAD: (
        "AWS lists {reservation_ids} and the record cannot be read ({detail}): it may be what would be bought again"
    ),
    ReasonKind.NO_OFFER: "no offer inside its envelope",
    ReasonKind.REFUSED_BY_AWS: lambda reason: reason.detail or reason.code,
    ReasonKind.REFUSED_BY_LEDGER: lambda reason: reason.detail or reason.code,
    ReasonKind.POOL_REMOVED: "its pool {name} is no longer in the documents, so nothing could use it",
    ReasonKind.NO_BLOCK_SOURCE: "pool {name} has no source of type block, so it could not use it",
    ReasonKind.TYPE_EXCLUDED: "the requirements of pool {name} exclude {instance_type}, so it could not use it",
    ReasonKind.NO_SUBNET: lambda reason: (
        f"the platform has no subnet in {', '.join(reason.zones) or 'any zone'}, so nothing could start there; "
        + (
            f"it has them in {', '.join(reason.usable_zones)}"
            if reason.usable_zones
            else "list them in spec.subnets of the Platform"
        )
    ),
    ReasonKind.ZONE_EXCLUDED: lambda reason: (
        f"pool {reason.name} cannot use a block in {', '.join(reason.zones) or 'any zone with subnets'}"
        + (f"; it may be in {', '.join(reason.usable_zones)}" if reason.usable_zones else "")
    ),
    ReasonKind.TAGS_NOT_SELECTED: (
        "pool {name} uses only blocks with the tags {expected}, and a block that is bought would not have them; add"
        " them to the Platform's spec.tags"
    ),
    ReasonKind.PINNED_TO_IDS: (
        "pool {name} uses only {reservation_ids} and what is bought for it, and this block is neither; add its id"
        " to the pool's ids"
    ),
    ReasonKind.OVER_POOL_LIMITS: "the limits of pool {name} allow {most} x {instance_type}, not {count}",
    ReasonKind.NO_ROOM_BESIDE_BLOCKS: (
        "the limits of pool {name} allow {most} x {instance_type} beside its other blocks for most of that time, not"
        " {count}"
    ),
    ReasonKind.APPROVED: "approved and inside the budget",
    ReasonKind.TRIED_AGAIN: "approved; trying again for an offer inside its envelope",
    ReasonKind.APPROVED_BY_POLICY: "inside what the policy buys without an approval",
    ReasonKind.DEARER_THAN_APPROVED: lambda reason: (
        f"only sold from ${reason.fee_usd:,} by now, above its envelope: it needs another approval"
    ),
    ReasonKind.ANSWER_UNKNOWN: lambda reason: (
        "the outcome of the call is unknown"
        + (f": {reason.detail}" if reason.detail else "")
        + (f", request id {reason.request_id}" if reason.request_id else "")
    ),
    ReasonKind.ANSWER_LOST: "the answer to the call was lost; it is not repeated",
    ReasonKind.FOUND_BY_TAG: "found by its tag: {reservation_ids}",
    ReasonKind.FOUND_IN_HISTORY: "found in the history of {reservation_ids}",
    ReasonKind.FOUND_AFTER_ALL: (
        "it was {name}, and AWS shows {reservation_ids} with its tag: it is recorded as confirmed, and its fee counts"
    ),
    ReasonKind.MORE_BLOCKS_LISTED: "AWS now lists its block {reservation_ids} too",
    ReasonKind.FOUND_BY_PERSON: "{name} found it",
    ReasonKind.PAYMENT_FAILED: "its payment failed: there is no block, and no fee",
    ReasonKind.NOT_BOUGHT_SAYS_PERSON: "{name} made sure that nothing was bought",
    ReasonKind.COVERED: "its demand is covered by now",
    ReasonKind.MOSTLY_COVERED: "most of its demand is covered by now: what is left is proposed anew",
    ReasonKind.WORSE_THAN_APPROVED: lambda reason: fill(
        f"the best that is sold now costs ${reason.fee_usd:,} and starts {{at}}, worse than what was approved: it is"
        " proposed anew",
        reason,
    ),
    ReasonKind.EXPIRED: "it expired before it was approved and bought",
    ReasonKind.REPLACED: "it expired, and a person asked for the same anew",
    ReasonKind.WINDOW_REMOVED: "its demand window is no longer in the plan",
    ReasonKind.BLOCK_GONE: "the block it would extend is no longer there",
    ReasonKind.BLOCK_END_MOVED: "the end of the block it would extend has moved",
    ReasonKind.REBUILT_FROM_TAGS: lambda reason: (
        "rebuilt from its tags" + ("; its fee is the list price" if reason.fee_estimated else "")
    ),
    ReasonKind.REBUILT_FROM_HISTORY: "rebuilt from the history of extensions",
    ReasonKind.REBUILT_LOST_ATTEMPT: "rebuilt: an earlier attempt of which nothing is known",
    ReasonKind.REBUILT_SPENDING: "rebuilt: {name} says that this was spent besides",
}


def purchase_sentence(reason: PurchaseReason) -> str:
    """One sentence without a full stop, about "it", the purchase."""
    return fill(_REASONS[reason.kind], reason)


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
    PurchaseWarningKind.UNREAD: (
        "AWS lists it and its record cannot be read ({detail}): it counts as there, and nothing is bought until it can"
        " be read"
    ),
    PurchaseWarningKind.NO_SOLVER: (
        "a block is bought for each week: planning purchases needs the HiGHS solver, which cannot be imported:"
        " pip install highspy"
    ),
    PurchaseWarningKind.PLANNER_CRASHED: (
        "a block is bought for each week, because the planner failed; the log says why"
    ),
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
    PurchaseWarningKind.NOT_TRIED: (
        "this purchase may be made, and no purchaser tries it: does `tidemill purchaser` run on this ledger?"
    ),
    PurchaseWarningKind.LITTLE_USED: lambda warning: (
        f"its blocks were used {warning.used:.0%} of the time, less than the {warning.wanted:.0%} the plan asks for:"
        " they lapse, and no more is bought for it"
    ),
}


def verdict_sentence(verdict: Verdict) -> str:
    note = f": {verdict.note}" if verdict.note else ""
    return f"{verdict.who} {'approved' if verdict.approved else 'refused'}{note}"


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
