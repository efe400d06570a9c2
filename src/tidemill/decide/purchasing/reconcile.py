"""One purchase from the ledger: find out what became of it, submit it if it is approved, void it if it is not needed.

Not found is not "not bought": a purchase whose outcome is unknown is never submitted again.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.purchasing.approval import not_granted, over_budget
from tidemill.decide.purchasing.coverage import with_expected
from tidemill.decide.purchasing.purchase_use import missing_changes_at
from tidemill.decide.purchasing.wanted import why_not_wanted
from tidemill.decide.purchasing.window_coverage import window_named
from tidemill.model.capacity import LIVE_STATES, NEVER_CAME_STATES
from tidemill.model.offers import ExtensionState
from tidemill.model.plan import SettlePurchase, SubmitPurchase
from tidemill.model.purchase_reasons import (
    SUBMITTED_BEFORE,
    PurchaseReason,
    PurchaseWarning,
    PurchaseWarningKind,
    ReasonKind,
)
from tidemill.model.purchases import MAY_COST, PurchaseIntent, PurchaseState

# After a submit that bought nothing the next one follows this much later, until the approval expires. It is a search,
# and perhaps a call that AWS refuses: the longer it was in vain, the longer the pause. Offers come at any time, so it
# stays below an hour; in the last hours nothing is left to wait for.
SUBMIT_AGAIN_AFTER = timedelta(minutes=10)
LONGEST_PAUSE = timedelta(hours=1)
_SHARE_OF_THE_TIME_TRIED = 6
_LAST_HOURS = timedelta(hours=2)
# EC2 answers within seconds or not at all; after this long the outcome of a call is unknown.
CALL_ANSWERS_WITHIN = timedelta(minutes=1)
# A payment fails within 12 hours, and EC2 lists a block within minutes. After this long a person must look.
SHOWS_WITHIN = timedelta(days=1)


def advance_purchase(context: DecisionContext, intent: PurchaseIntent) -> None:
    if intent.state not in MAY_COST and reservations_made_by(context, intent):
        _record_found_after_all(context, intent)
        return
    match intent.state:
        case PurchaseState.SUBMITTED | PurchaseState.UNKNOWN:
            _resolve_doubt(context, intent)
        case PurchaseState.CONFIRMED:
            _check_delivery(context, intent)
        case PurchaseState.PROPOSED | PurchaseState.APPROVED:
            if not context.world.unread:  # else it can be told neither that it is needed nor that it is not
                _submit_or_void(context, intent)


# --- what became of it --------------------------------------------------------------------------------


def _record_found_after_all(context: DecisionContext, intent: PurchaseIntent) -> None:
    """EC2 had said no, or a person had settled it, and yet AWS shows it. The block is ours, and its fee is spent."""
    made = reservations_made_by(context, intent)
    reason = PurchaseReason(ReasonKind.FOUND_AFTER_ALL, reservation_ids=made, name=intent.state.value)
    context.warn(intent.id, reason)
    fee_usd = intent.fee_usd or intent.envelope.max_fee_usd
    context.do(SettlePurchase(intent, "confirmed", made, fee_usd, reason))


def _resolve_doubt(context: DecisionContext, intent: PurchaseIntent) -> None:
    made = reservations_made_by(context, intent)
    if made:
        # The fee was written before the call: DescribeCapacityReservations does not return it.
        kind = ReasonKind.FOUND_IN_HISTORY if intent.extends else ReasonKind.FOUND_BY_TAG
        reason = PurchaseReason(kind, reservation_ids=made)
        context.do(SettlePurchase(intent, "confirmed", made, intent.fee_usd, reason))
        return
    due = (intent.state_at or intent.proposed_at) + CALL_ANSWERS_WITHIN
    if intent.state is PurchaseState.SUBMITTED:
        if context.now >= due:
            lost = PurchaseReason(ReasonKind.ANSWER_LOST)
            context.do(SettlePurchase(intent, "unknown", (), intent.fee_usd, lost))
        context.wake(due)
    elif unpaid := _unpaid_reservations(context, intent):
        reason = PurchaseReason(ReasonKind.PAYMENT_FAILED)
        context.do(SettlePurchase(intent, "failed", unpaid, 0, reason))
    else:
        context.warn(intent.id, PurchaseWarning(PurchaseWarningKind.OUTCOME_UNKNOWN, intent.id))


def _unpaid_reservations(context: DecisionContext, intent: PurchaseIntent) -> tuple[str, ...]:
    """The reservations it made, if EC2 shows that none of them was paid."""
    made = [
        reservation
        for reservation in context.world.reservations
        if reservation.intent_id == intent.id and not intent.extends
    ]
    return (
        tuple(sorted(block.id for block in made))
        if all(block.state in NEVER_CAME_STATES for block in made)
        else ()
    )


def reservations_made_by(context: DecisionContext, intent: PurchaseIntent) -> tuple[str, ...]:
    """The reservations this purchase made, or the one it extended; none: AWS shows nothing of it.

    Its tag is on what it made, but anybody can write tags: what was never submitted, or is not what was asked for, or
    is more than that, is not taken for it.
    """
    believed = intent.state in MAY_COST
    if not intent.offer_id and not believed:
        return ()
    if intent.extends:
        extensions = [
            extension
            for extension in context.world.extensions
            if intent.offer_id and extension.offer_id == intent.offer_id
        ]
        seen = any(
            believed or extension.state is not ExtensionState.PAYMENT_FAILED for extension in extensions
        )
        return (intent.extends,) if seen else ()
    made = [
        one
        for one in context.tagged(intent.id)
        if one.instance_type == intent.envelope.instance_type
        and (one.state in LIVE_STATES or (believed and one.id in intent.reservation_ids))
    ]
    if believed:  # a tag is enough to know that it is there; what it is shows once its record can be read
        made += [one for one in context.world.unread if one.intent_id == intent.id]
    if not any(block.ultraserver for block in made):
        known = intent.reservation_ids
        first = [block for block in made if block.id in known] if known else made[:1]
        if len(made) > len(first):
            ids = tuple(block.id for block in made)
            context.warn(intent.id, PurchaseWarning(PurchaseWarningKind.SEVERAL_BLOCKS, reservation_ids=ids))
        made = first
    return tuple(block.id for block in made)


def _check_delivery(context: DecisionContext, intent: PurchaseIntent) -> None:
    """EC2 sends no message about a failed payment: look for it, so that the demand is planned anew."""
    more = set(reservations_made_by(context, intent)) - set(intent.reservation_ids)
    if more:
        ids = tuple(sorted((*intent.reservation_ids, *more)))
        reason = PurchaseReason(ReasonKind.MORE_BLOCKS_LISTED, reservation_ids=tuple(sorted(more)))
        context.do(SettlePurchase(intent, "confirmed", ids, intent.fee_usd, reason))
        return
    if intent.extends:
        payments = [
            extension.state for extension in context.world.extensions if extension.offer_id == intent.offer_id
        ]
        unpaid = bool(payments) and all(state is ExtensionState.PAYMENT_FAILED for state in payments)
    else:
        states = [
            context.reservations[reservation_id].state
            for reservation_id in intent.reservation_ids
            if reservation_id in context.reservations
        ]
        unpaid = bool(states) and all(state in NEVER_CAME_STATES for state in states)
    lost = intent.reservation_ids if not intent.extends else ()
    unread = {one.id for one in context.world.unread}
    confirmed_at = intent.state_at or intent.proposed_at
    if (
        lost
        and not any(id_ in context.reservations or id_ in unread for id_ in lost)
        and context.now < intent.envelope.earliest_end
    ):
        context.wake(confirmed_at + SHOWS_WITHIN)
        if context.now >= confirmed_at + SHOWS_WITHIN:
            context.warn(intent.id, PurchaseWarning(PurchaseWarningKind.NO_LONGER_LISTED, intent.id, lost))
    if unpaid:
        reason = PurchaseReason(ReasonKind.PAYMENT_FAILED)
        context.do(SettlePurchase(intent, "failed", intent.reservation_ids, 0, reason))


# --- what may be bought -------------------------------------------------------------------------------


def _submit_or_void(context: DecisionContext, intent: PurchaseIntent) -> None:
    expires_at = min(intent.envelope.expires_at, intent.envelope.latest_start)
    held = with_expected(
        context.world.reservations, context.world.purchases, context.owner, but=intent.id, firm=True
    )
    void = why_not_wanted(context.spec, intent, held, context.now)
    if void is not None:
        context.do(SettlePurchase(intent, "voided", (), 0, void))
        return
    context.wake(expires_at)
    for at in missing_changes_at(context.spec, held, intent, context.now):
        context.wake(at)
    why_not = why_not_allowed(context, intent)
    if why_not is not None:
        context.warn(intent.id, why_not)
    elif intent.reason is not None and intent.reason.kind in SUBMITTED_BEFORE and intent.state_at is not None:
        again = intent.state_at + _pause(intent, intent.state_at, expires_at)
        context.wake(again)
        if context.now >= again:
            context.do(SubmitPurchase(intent, PurchaseReason(ReasonKind.TRIED_AGAIN)))
    else:
        context.do(SubmitPurchase(intent, PurchaseReason(ReasonKind.APPROVED)))


def _pause(intent: PurchaseIntent, tried_at: datetime, expires_at: datetime) -> timedelta:
    if expires_at - tried_at <= _LAST_HOURS:
        return SUBMIT_AGAIN_AFTER
    allowed_at = max((verdict.at for verdict in intent.verdicts), default=intent.proposed_at)
    minutes = (tried_at - allowed_at) // (_SHARE_OF_THE_TIME_TRIED * timedelta(minutes=1))
    return min(max(SUBMIT_AGAIN_AFTER, timedelta(minutes=minutes)), LONGEST_PAUSE)


def why_not_allowed(context: DecisionContext, intent: PurchaseIntent) -> PurchaseReason | None:
    """Why this may not be bought, or None. The buyer asks again."""
    spending = context.world.spending
    why_not = not_granted(context.spec.platform, intent, spending)
    if why_not is not None:
        return why_not
    plan = context.spec.plans.get(intent.plan)
    window, fee_usd = window_named(plan, intent.window), intent.envelope.max_fee_usd
    return over_budget(context.spec.platform, plan, window, fee_usd, spending)
