"""Reservations that will disappoint: unpaid, idle, ending with nothing after them, or with nobody to empty them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from tidemill.catalog import Catalog
from tidemill.model.capacity import LIVE_STATES, SECURED_STATES, Reservation, ReservationState, SourceKind
from tidemill.model.ec2_facts import EXTENSION_CLOSES_BEFORE_END, KARPENTER_DRAINS_BEFORE_END
from tidemill.model.nodes import InstanceState
from tidemill.report.instance_endings import killed_at, whose
from tidemill.report.trap import Scene, Trap
from tidemill.report.trap import written as _at

# By then somebody should know what comes next: blocks are sold for a later day more readily than for now.
_SOON = timedelta(days=1)
_HOUR = timedelta(hours=1)


def payments_are_open(scene: Scene) -> Iterator[Trap]:
    for one in scene.reservations:
        if one.state is ReservationState.PAYMENT_FAILED:
            yield Trap(
                "payment-failed", one.id, f"the payment of {one.id} failed: it will not come",
                "buy another, and see to the account's payment method first",
            )  # fmt: skip
        elif one.state is ReservationState.PAYMENT_PENDING:
            yield Trap(
                "payment-pending", one.id, f"{one.id} is not paid: it comes only if the payment succeeds",
                "it fails 5 minutes before the start, or 12 hours after the purchase: look again before that",
            )  # fmt: skip


def extensions_are_open(scene: Scene) -> Iterator[Trap]:
    for one in scene.reservations:
        if one.extension_pending_to is not None and one.end is not None:
            yield Trap(
                "extension-pending",
                one.id,
                f"the extension of {one.id} to {_at(one.extension_pending_to)} is not paid: it still ends "
                f"{_at(one.end)}, and everything scheduled for that goes on",
                "plan for it to fail; move scheduled actions once it is paid",
            )


def blocks_end_without_a_successor(scene: Scene) -> Iterator[Trap]:
    for one in scene.reservations:
        end = one.end
        if (
            one.kind is not SourceKind.BLOCK
            or one.state not in SECURED_STATES
            or end is None
            or one.extension_pending_to
        ):
            continue
        lasts = sum(other.count for other in scene.reservations if _follows(other, one))
        if not scene.now < end <= scene.now + _SOON or lasts >= one.count:
            continue
        last = end - EXTENSION_CLOSES_BEFORE_END
        less = f"only {lasts} of its type last longer" if lasts else "nothing of its type lasts longer"
        yield Trap(
            "ends-without-successor",
            one.id,
            f"{one.id} ({one.count} x {one.instance_type}) ends {_at(end)}, and {less}",
            f"tidemill extend {one.id} --by 1d until {_at(last)}, or buy the next: tidemill offers {one.instance_type}"
            if scene.now < last
            else f"too late to extend: tidemill offers {one.instance_type}",
        )


def blocks_idle(scene: Scene) -> Iterator[Trap]:
    for one in scene.reservations:
        if one.state is ReservationState.ACTIVE and one.available > 0:
            usd_h = idle_usd_h(one, scene.catalog)
            cost = "" if usd_h is None else f", ${usd_h:,.2f} an hour"
            yield Trap(
                "idle",
                one.id,
                f"{one.available} of {one.count} x {one.instance_type} on {one.id} are paid for and not used{cost}",
                "launch into it"
                if one.owner
                else f"launch into it, or `tidemill adopt {one.id}` gives it to a pool",
            )


def karpenter_is_too_late(scene: Scene) -> Iterator[Trap]:
    held = {one.id: one for one in scene.reservations if one.ultraserver}
    late = {one.instance.source.id for one in scene.survey.machines if one.node_pool} & held.keys()
    for id_ in sorted(late):
        killed, end = killed_at(held[id_]), held[id_].end
        if killed is not None and end is not None:
            yield Trap(
                "TR-14",
                id_,
                f"Karpenter empties its nodes on {id_} at {_at(end - KARPENTER_DRAINS_BEFORE_END)}, and EC2 starts "
                f"ending the UltraServer at {_at(killed)}, before that",
                f"drain them yourself before {_at(killed)}, or use a pool that does",
            )


def machines_have_nobody(scene: Scene) -> Iterator[Trap]:
    members = {id_ for group in scene.survey.groups for id_ in group.members}
    for block in scene.reservations:
        killed = killed_at(block)
        alone = [
            one.instance.id
            for one in scene.survey.machines
            if one.instance.source.id == block.id
            and one.instance.id not in members
            and one.instance.state is not InstanceState.SHUTTING_DOWN
            and whose(one, None, "").startswith("nobody")
        ]
        if alone and killed is not None:
            yield Trap(
                "nobody-drains",
                block.id,
                f"on {block.id} there is nobody's {', '.join(sorted(alone)[:4])}"
                f"{f' and {len(alone) - 4} more' if len(alone) > 4 else ''}: nothing empties what EC2 ends at "
                f"{_at(killed)}",
                f"empty and end it before {_at(killed)}; no group, no Karpenter and no deployment does",
            )


def idle_usd_h(one: Reservation, catalog: Catalog) -> float | None:
    """What its free slots cost by the hour: of what was paid where that is known, else by the list; None: no price."""
    if not one.available or one.state is not ReservationState.ACTIVE:
        return 0.0
    if one.fee_usd and one.end is not None and one.count:
        return one.fee_usd * one.available / one.count / ((one.end - one.start) / _HOUR)
    known = catalog.types.get(one.instance_type)
    usd_h = known and (known.block_usd_h if one.kind is SourceKind.BLOCK else known.on_demand_usd_h)
    return None if not usd_h else usd_h * one.available


def _follows(other: Reservation, one: Reservation) -> bool:
    """It is there when the first ends, and stays. What another deployment holds is no help."""
    if other.id == one.id or other.instance_type != one.instance_type or other.state not in LIVE_STATES:
        return False
    if other.owner not in ("", one.owner):
        return False
    assert one.end is not None
    return other.start <= one.end and (other.end is None or other.end > one.end)
