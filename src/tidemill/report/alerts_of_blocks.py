"""Alerts about blocks: not paid, smaller than what was bought, not filled, or near the last moment to extend them.

Pure, like `alerts`, which calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from tidemill.decide.read_models import (
    calendar_demand,
    extended,
    first_gap,
    held_for,
    missing_gpus,
    with_expected,
)
from tidemill.model.alerts import Alert, AlertKind, Severity
from tidemill.model.capacity import SECURED_STATES, Reservation, ReservationState, SourceKind
from tidemill.model.ec2_facts import EXTENSION_CLOSES_BEFORE_END, LEGAL_DURATIONS, TAG_BOUGHT_COUNT
from tidemill.model.plan import Plan
from tidemill.model.purchases import PurchaseIntent, PurchaseState
from tidemill.model.warning_reasons import BlockNotFilled
from tidemill.model.world import World
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow
from tidemill.spec.units import format_instant

SHORTEST = LEGAL_DURATIONS[0]  # no extension is shorter


def about_blocks(spec: Spec, world: World) -> Iterator[Alert]:
    owner = spec.platform.spec.deployment
    for block in world.reservations:
        if block.state is ReservationState.PAYMENT_FAILED and block.owner == owner:
            yield _not_paid(block)
    bought = [
        purchase
        for purchase in world.purchases
        if purchase.state is PurchaseState.CONFIRMED and not purchase.extends
    ]
    held = {reservation.id: reservation for reservation in world.reservations} if bought else {}
    for intent in bought:
        yield from _short_delivery(
            intent,
            [held[reservation_id] for reservation_id in intent.reservation_ids if reservation_id in held],
        )
    counted = {id_ for intent in bought for id_ in intent.reservation_ids}
    for block in world.reservations:
        if block.owner == owner and block.id not in counted:
            yield from _short_of_its_tag(block)
    yield from _closing(spec, world)


def _short_of_its_tag(block: Reservation) -> Iterator[Alert]:
    """A block that was bought elsewhere: EC2's own tag says how many instances it was to have."""
    written = dict(block.tags).get(TAG_BOUGHT_COUNT, "")
    asked = int(written) if written.isascii() and written.isdigit() and len(written) < 10 else 0
    if block.kind is not SourceKind.BLOCK or block.ultraserver or block.count >= asked:
        return
    if block.state not in SECURED_STATES or not block.listed:
        return
    yield Alert(
        f"short-delivery/{block.id}/{block.count}",
        AlertKind.SHORT_DELIVERY,
        Severity.ERROR,
        block.id,
        f"{block.id} has {block.count} of {asked} instances",
        "Fewer came than were paid for: open a case with AWS Support; pods that do not fit wait or overflow.",
        (("block", block.id), ("pool", block.pool), ("type", block.instance_type), ("bought", "elsewhere")),
    )


def _not_paid(block: Reservation) -> Alert:
    """It has the key of the alert that its intent raises a tick later."""
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
    if len(blocks) < len(intent.reservation_ids) or any(block.ultraserver for block in blocks):
        return
    came, asked = sum(block.count for block in blocks), intent.envelope.count
    if came >= asked or not all(block.state in SECURED_STATES for block in blocks):
        return
    ids = ", ".join(block.id for block in blocks)
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


def not_filled(plan: Plan) -> Iterator[Alert]:
    """As the plan warns of it, so that `status` and the alert say the same."""
    for reason in (warning.reason for warning in plan.warnings):
        if not isinstance(reason, BlockNotFilled):
            continue
        since = format_instant(reason.since)
        yield Alert(
            f"block-not-filled/{reason.block}/{since}",
            AlertKind.BLOCK_NOT_FILLED,
            Severity.ERROR,
            reason.block,
            f"{reason.block} is paid for, and EC2 launches nothing into {reason.free} of its {reason.count} instances",
            "Launches are tried again every ten minutes at the latest: open a case with AWS Support with the block and"
            " the answer below; meanwhile pods wait or overflow.",
            (
                ("block", reason.block),
                ("pool", reason.pool),
                ("since", since),
                *((("AWS says", reason.answer),) if reason.answer else ()),
            ),
        )


def _closing(spec: Spec, world: World) -> Iterator[Alert]:
    """Blocks that end before the demand they serve, where nothing else covers the rest. One whose extension was
    submitted is left out until its outcome is known: that has an alert of its own."""
    near = {one.id: one.end for one in world.reservations if _is_near(spec, world, one)}
    if not near:
        return
    held = with_expected(world.reservations, world.purchases, spec.platform.spec.deployment, firm=True)
    for block in (one for one in held if one.id in near and one.end == near[one.id]):
        for plan in spec.plans.values():
            short = _lacks_without(spec, world.now, held, plan, block)
            if short:
                yield _closes(block, plan, short)
                break  # one alert a block, whoever needs it


def _is_near(spec: Spec, world: World, block: Reservation) -> bool:
    """The last moment to extend it is less than the lead of the platform away, and no extension is under way."""
    if block.state not in SECURED_STATES or block.end is None or block.extension_pending_to is not None:
        return False
    if block.owner != spec.platform.spec.deployment or block.kind is not SourceKind.BLOCK:
        return False
    lead = spec.platform.spec.alerts.extension_lead
    return block.end - EXTENSION_CLOSES_BEFORE_END - lead <= world.now < block.end


def _lacks_without(
    spec: Spec, now: datetime, held: Sequence[Reservation], plan: CapacityPlan, block: Reservation
) -> str:
    """The demand of the plan that this block would cover if it were extended; empty: none."""
    assert block.end is not None
    if block.pool not in ("", plan.spec.pool):
        return ""
    for window in plan.spec.demand:
        if window.start <= block.end < window.end and _covers(spec, now, held, plan, window, block):
            return f"{plan.name}/{window.name}, until {format_instant(window.end)}"
    if plan.spec.calendar is None:
        return ""
    # Learned demand is left out: what the queue may need next week is no reason to page somebody now.
    demand = calendar_demand(spec, plan.name, 0)
    longer = _extended(held, block, block.end + SHORTEST, "")
    after = (block.end - demand.wind_down, block.end + SHORTEST - demand.wind_down)
    without, with_it = (missing_gpus(spec, demand, blocks, *after) for blocks in (held, longer))
    return f"the calendar of {plan.name}" if with_it != without else ""


def _covers(
    spec: Spec,
    now: datetime,
    held: Sequence[Reservation],
    plan: CapacityPlan,
    window: DemandWindow,
    block: Reservation,
) -> bool:
    if block not in held_for(spec, held, plan.spec.pool, window):
        return False
    short, less_short = (
        first_gap(spec, blocks, plan.spec.pool, window, now)
        for blocks in (held, _extended(held, block, window.end, window.name))
    )
    return short is not None and (less_short is None or less_short.amount < short.amount)


def _extended(
    held: Sequence[Reservation], block: Reservation, end: datetime, window: str
) -> list[Reservation]:
    assert block.end is not None
    longer = extended(block, block.end, end, window)
    return [longer if one.id == block.id else one for one in held]


def _closes(block: Reservation, plan: CapacityPlan, demand: str) -> Alert:
    assert block.end is not None
    closes, end = format_instant(block.end - EXTENSION_CLOSES_BEFORE_END), format_instant(block.end)
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
            ("demand", demand),
        ),
    )
