"""Purchases: what became of each, which may be submitted now, and what must be proposed for the plans.

Fail closed: no approval, no budget, a ledger or an AWS that cannot be read, or any doubt about an earlier call means
that nothing is bought. An approval binds an envelope, not an offer; the best offer inside it is taken at submit.
"""

from __future__ import annotations

from tidemill.decide.context import DecisionContext
from tidemill.decide.purchasing.coverage import with_expected
from tidemill.decide.purchasing.planner_proposals import propose_for_calendars
from tidemill.decide.purchasing.reconcile import advance_purchase
from tidemill.decide.purchasing.window_proposals import cover_window
from tidemill.model.plan import SubmitPurchase
from tidemill.model.purchase_reasons import PurchaseWarning, PurchaseWarningKind
from tidemill.model.purchases import PurchaseIntent
from tidemill.model.world import World
from tidemill.spec import Spec


def manage_purchases(context: DecisionContext) -> None:
    if not (context.world.ledger_ok and context.world.cloud_ok):
        return  # earlier purchases are found later, and new ones wait until both can be read
    by_window: dict[tuple[str, str], list[PurchaseIntent]] = {}
    for intent in context.world.purchases:
        by_window.setdefault((intent.plan, intent.window), []).append(intent)
        advance_purchase(context, intent)
    _warn_of_unlisted_reservations(context)
    if context.world.unread:
        return  # what is missing cannot be told beside reservations that nobody can read
    held = with_expected(context.world.reservations, context.world.purchases, context.owner)
    for plan in context.spec.plans.values():
        for window in plan.spec.demand:
            cover_window(context, plan, window, by_window.get((plan.name, window.name), []), held)
    propose_for_calendars(context, by_window, held)


def purchases_to_submit(spec: Spec, world: World) -> tuple[SubmitPurchase, ...]:
    """What `decide` would submit, for a process that only buys and sees neither pods nor nodes."""
    if world.pause is not None or not (world.ledger_ok and world.cloud_ok):
        return ()
    context = DecisionContext(spec, world)
    for intent in world.purchases:
        advance_purchase(context, intent)
    return tuple(action for action in context.actions if isinstance(action, SubmitPurchase))


def _warn_of_unlisted_reservations(context: DecisionContext) -> None:
    """Adopted ones only: an unlisted purchase is warned of by `advance_purchase`. And those that cannot be read."""
    for unread in context.world.unread:
        warning = PurchaseWarning(PurchaseWarningKind.UNREAD, unread.id, detail=unread.unread)
        context.warn(unread.id, warning)
    for reservation in context.world.reservations:
        if not reservation.listed and reservation.owner == context.owner and not reservation.intent_id:
            context.warn(reservation.id, PurchaseWarning(PurchaseWarningKind.UNLISTED, reservation.id))
