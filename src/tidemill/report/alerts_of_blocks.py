"""Alerts about blocks: not paid, smaller than what was bought, or near the last moment to extend them.

Pure, like `alerts`, whose other half this is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tidemill.alerts import Alert, AlertKind, Severity
from tidemill.decide.blocks.demand import held_for, missing
from tidemill.decide.blocks.extend import EXTENDABLE_UNTIL
from tidemill.spec import Spec
from tidemill.spec.models import CapacityPlan, DemandWindow
from tidemill.spec.units import format_instant
from tidemill.world import PurchaseIntent, PurchaseState, Reservation, ReservationState, SourceKind, World

_TO_COME = (ReservationState.SCHEDULED, ReservationState.ACTIVE)


def about_blocks(spec: Spec, world: World) -> Iterator[Alert]:
    owner = spec.platform.spec.deployment
    for block in world.reservations:
        if block.state is ReservationState.PAYMENT_FAILED and block.owner == owner:
            yield _not_paid(block)
    held = {one.id: one for one in world.reservations}
    for intent in world.purchases:
        if intent.state is PurchaseState.CONFIRMED and not intent.extends:
            yield from _short_delivery(intent, [held[one] for one in intent.reservation_ids if one in held])
    for plan in spec.plans.values():
        for window in plan.spec.demand:
            yield from _closing(spec, world, plan, window)


def _not_paid(block: Reservation) -> Alert:
    """The same key as that of its intent, which says so a tick later."""
    return Alert(
        f"payment-failed/{block.intent_id or block.id}",
        AlertKind.PAYMENT_FAILED,
        Severity.CRITICAL,
        block.intent_id or block.id,
        f"The payment of the block {block.id} failed",
        "The block will not come: put the account's payment in order, and approve what is proposed in its place.",
        (
            ("block", block.id),
            ("pool", block.pool),
            ("what", f"{block.count} x {block.instance_type}"),
            ("was to start", format_instant(block.start)),
        ),
    )


def _short_delivery(intent: PurchaseIntent, blocks: list[Reservation]) -> Iterator[Alert]:
    """UltraServers are bought whole, and their intent counts them, not instances."""
    if len(blocks) < len(intent.reservation_ids) or any(one.ultraserver for one in blocks):
        return
    came, asked = sum(one.count for one in blocks), intent.envelope.count
    if came >= asked or not all(one.state in _TO_COME for one in blocks):
        return
    ids = ", ".join(one.id for one in blocks)
    yield Alert(
        f"short-delivery/{intent.id}/{came}",
        AlertKind.SHORT_DELIVERY,
        Severity.ERROR,
        intent.id,
        f"{ids} has {came} of {asked} instances",
        "Fewer came than were paid for: open a case with AWS Support; pods that do not fit wait or overflow.",
        (
            ("block", ids),
            ("pool", intent.pool),
            ("type", intent.envelope.instance_type),
            ("fee", f"${intent.fee_usd:,}"),
        ),
    )


def _closing(spec: Spec, world: World, plan: CapacityPlan, window: DemandWindow) -> Iterator[Alert]:
    """Of blocks whose end comes before the demand's, where nothing else covers the rest."""
    lead = spec.platform.spec.alerts.extension_lead
    pool = plan.spec.pool
    if not window.start - lead <= world.now < window.end:
        return
    for block in held_for(spec, world.reservations, pool, window):
        end = block.end
        if block.kind is not SourceKind.BLOCK or end is None or not world.now < end < window.end:
            continue
        if world.now < end - EXTENDABLE_UNTIL - lead or block.extension_pending_to is not None:
            continue
        longer = [replace(one, end=window.end) if one is block else one for one in world.reservations]
        short = missing(spec, world.reservations, pool, window, world.now)
        if missing(spec, longer, pool, window, world.now) < short:
            yield _closes(block, plan, window, short)


def _closes(block: Reservation, plan: CapacityPlan, window: DemandWindow, short: int) -> Alert:
    assert block.end is not None
    closes, end = format_instant(block.end - EXTENDABLE_UNTIL), format_instant(block.end)
    return Alert(
        f"extension-closing/{block.id}/{end}",
        AlertKind.EXTENSION_CLOSING,
        Severity.WARNING,
        block.id,
        f"{block.id} can be extended until {closes}, and its demand goes on",
        f"Extend it with `tidemill extend {block.id}` or see to its successor before {closes}; after that EC2 takes no"
        " extension.",
        (
            ("block", block.id),
            ("pool", plan.spec.pool),
            ("what", f"{block.count} x {block.instance_type}"),
            ("block ends", end),
            ("demand", f"{plan.name}/{window.name}, until {format_instant(window.end)}"),
            ("instances lacking", str(short)),
        ),
    )
