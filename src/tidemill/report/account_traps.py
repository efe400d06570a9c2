"""What will go wrong in an AWS account as it is, each with what to do about it, the worst first. Pure.

The rules look at what exists, whoever made it; `spec.check` finds traps in documents. What could not be read is not
judged. Codes are stable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.catalog import Catalog
from tidemill.model.capacity import LIVE_STATES, SECURED_STATES, Reservation, ReservationState, SourceKind
from tidemill.model.ec2_facts import (
    EKS_SCALES_DOWN_BEFORE_END,
    EXTENSION_CLOSES_BEFORE_END,
    KARPENTER_DRAINS_BEFORE_END,
)
from tidemill.model.nodes import InstanceState
from tidemill.report.instance_endings import by_reservation, has_no_owner, killed_at, size_at
from tidemill.report.survey import ScalingGroup, Survey
from tidemill.spec.units import format_duration


@dataclass(frozen=True, slots=True)
class Trap:
    """Something that will go wrong, and what to do about it. `code` is stable."""

    code: str
    about: str  # a reservation or a group
    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class AccountView:
    survey: Survey
    catalog: Catalog

    @property
    def now(self) -> datetime:
        return self.survey.at

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        return self.survey.reservations or ()

    def groups_with_reservations(self) -> Iterator[tuple[ScalingGroup, Reservation]]:
        """Every group with every reservation that it launches into and that is not over."""
        groups = by_reservation(self.survey.groups)
        for reservation in self.reservations:
            if reservation.state in LIVE_STATES:
                for group in groups.get(reservation.id, ()):
                    yield group, reservation


def minute(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M}"


# Warn a day before the end: EC2 sells blocks for a later day more often than for now.
_ENDS_SOON = timedelta(days=1)
_HOUR = timedelta(hours=1)


def payments_are_open(account: AccountView) -> Iterator[Trap]:
    for block in account.reservations:
        if block.state is ReservationState.PAYMENT_FAILED:
            yield Trap(
                "payment-failed", block.id, f"the payment of {block.id} failed: EC2 will not deliver it",
                "fix the account's payment method, then buy another block",
            )  # fmt: skip
        elif block.state is ReservationState.PAYMENT_PENDING:
            yield Trap(
                "payment-pending", block.id, f"{block.id} is not paid yet: EC2 delivers it only if the payment"
                " succeeds",
                "check it again: the payment fails 5 minutes before the start, or 12 hours after the purchase",
            )  # fmt: skip


def extensions_are_open(account: AccountView) -> Iterator[Trap]:
    for block in account.reservations:
        if block.extension_pending_to is not None and block.end is not None:
            yield Trap(
                "extension-pending",
                block.id,
                f"the extension of {block.id} to {minute(block.extension_pending_to)} is not paid yet: the block"
                " still ends at "
                f"{minute(block.end)}, and scheduled actions for that end stay",
                "plan for a failed payment; move the scheduled actions when it is paid",
            )


def blocks_end_without_a_successor(account: AccountView) -> Iterator[Trap]:
    for block in account.reservations:
        end = block.end
        if (
            block.kind is not SourceKind.BLOCK
            or block.state not in SECURED_STATES
            or end is None
            or block.extension_pending_to
        ):
            continue
        lasting = sum(other.count for other in account.reservations if _follows(other, block))
        if not account.now < end <= account.now + _ENDS_SOON or lasting >= block.count:
            continue
        extend_until = end - EXTENSION_CLOSES_BEFORE_END
        after = f"only {lasting} instances" if lasting else "no instances"
        yield Trap(
            "ends-without-successor",
            block.id,
            f"{block.id} ({block.count} x {block.instance_type}) ends {minute(end)}, and {after} of its type are"
            " reserved after that",
            f"tidemill extend {block.id} --by 1d until {minute(extend_until)}, or buy the next: tidemill offers"
            f" {block.instance_type}"
            if account.now < extend_until
            else f"it is too late to extend it; buy the next: tidemill offers {block.instance_type}",
        )


def blocks_idle(account: AccountView) -> Iterator[Trap]:
    for block in account.reservations:
        if block.state is ReservationState.ACTIVE and block.available > 0:
            usd_h = idle_usd_h(block, account.catalog)
            cost = "" if usd_h is None else f", ${usd_h:,.2f} an hour"
            yield Trap(
                "idle",
                block.id,
                f"{block.available} of {block.count} x {block.instance_type} on {block.id} are paid for and not"
                f" used{cost}",
                "launch instances into it"
                if block.owner
                else f"launch instances into it, or give it to a pool: tidemill adopt {block.id}",
            )


def karpenter_is_too_late(account: AccountView) -> Iterator[Trap]:
    held = {block.id: block for block in account.reservations if block.ultraserver}
    late = {
        machine.instance.source.id for machine in account.survey.machines if machine.node_pool
    } & held.keys()
    for id_ in sorted(late):
        killed, end = killed_at(held[id_]), held[id_].end
        if killed is not None and end is not None:
            yield Trap(
                "TR-14",
                id_,
                f"Karpenter drains its nodes on {id_} at {minute(end - KARPENTER_DRAINS_BEFORE_END)}, but EC2"
                " starts to "
                f"terminate the UltraServer at {minute(killed)}, before that",
                f"drain the nodes yourself before {minute(killed)}, or use a Tidemill pool",
            )


def machines_have_nobody(account: AccountView) -> Iterator[Trap]:
    members = {id_ for group in account.survey.groups for id_ in group.members}
    for block in account.reservations:
        killed = killed_at(block)
        alone = [
            machine.instance.id
            for machine in account.survey.machines
            if machine.instance.source.id == block.id
            and machine.instance.id not in members
            and machine.instance.state is not InstanceState.SHUTTING_DOWN
            and has_no_owner(machine)
        ]
        if alone and killed is not None:
            yield Trap(
                "nobody-drains",
                block.id,
                f"nobody manages {', '.join(sorted(alone)[:4])}"
                f"{f' and {len(alone) - 4} more' if len(alone) > 4 else ''} on {block.id}: nothing drains them"
                " before EC2 "
                f"terminates them at {minute(killed)}",
                f"drain and terminate them before {minute(killed)}; they have no group, no Karpenter and no deployment",
            )


def idle_usd_h(reservation: Reservation, catalog: Catalog) -> float | None:
    """What its unused instances cost an hour: from the fee if it is known, else from the list price; None: no price."""
    if not reservation.available or reservation.state is not ReservationState.ACTIVE:
        return 0.0
    if reservation.fee_usd and reservation.end is not None and reservation.count:
        return (
            reservation.fee_usd
            * reservation.available
            / reservation.count
            / ((reservation.end - reservation.start) / _HOUR)
        )
    known = catalog.types.get(reservation.instance_type)
    usd_h = known and (known.block_usd_h if reservation.kind is SourceKind.BLOCK else known.on_demand_usd_h)
    return None if not usd_h else usd_h * reservation.available


def _follows(other: Reservation, first: Reservation) -> bool:
    """Whether it exists when the first ends, and lasts longer. Reservations of other deployments do not count."""
    if other.id == first.id or other.instance_type != first.instance_type or other.state not in LIVE_STATES:
        return False
    if other.owner not in ("", first.owner):
        return False
    assert first.end is not None
    return other.start <= first.end and (other.end is None or other.end > first.end)


# EKS sets its action some seconds off the whole minute.
_ABOUT = timedelta(minutes=5)


def groups_outlive_their_block(account: AccountView) -> Iterator[Trap]:
    for group, block in account.groups_with_reservations():
        killed = killed_at(block)
        if killed is None or account.now >= killed or group.schedules is None:
            continue
        stays = size_at(group, killed, account.now)
        if not stays.size:
            continue
        theirs = next((action for action in group.schedules if action.by_eks), None)
        if theirs is not None and theirs.at >= killed:
            yield Trap(
                "TR-14",
                group.name,
                f"EKS scales {group.called} to 0 at {minute(theirs.at)}, but EC2 starts to terminate UltraServer"
                f" {block.id} "
                f"at {minute(killed)}, before that",
                f"drain it yourself before {minute(killed)}: aws eks update-nodegroup-config … desiredSize=0",
            )
            continue
        yield Trap(
            "outlives-block",
            group.name,
            f"{group.called} still has size {stays.size} when EC2 terminates the instances of {block.id} at"
            f" {minute(killed)}: "
            "they end without a drain, and afterwards every launch of the group fails",
            _schedule_fix(group, killed),
        )


def hooks_are_cut_short(account: AccountView) -> Iterator[Trap]:
    for group, block in account.groups_with_reservations():
        killed = killed_at(block)
        if killed is None or group.node_group or group.hooks is None or not group.maximum:
            continue
        if not group.hooks:
            yield Trap(
                "no-terminate-hook",
                group.name,
                f"{group.called} on {block.id} has no terminate hook: when it scales in, nodes end while pods run"
                " on them",
                "aws autoscaling put-lifecycle-hook with EC2_INSTANCE_TERMINATING, and something that drains and "
                "completes it (the Node Termination Handler, or a Tidemill pool)",
            )
            continue
        shrinking, longest_s = (
            size_at(group, killed, account.now),
            max(hook.heartbeat_s for hook in group.hooks),
        )
        starts = shrinking.zero_since
        if starts is not None and shrinking.by and starts + timedelta(seconds=longest_s) > killed:
            left = format_duration(killed - starts)
            yield Trap(
                "hook-too-long",
                group.name,
                f"{group.called} goes to 0 at {minute(starts)} and its hook waits up to "
                f"{format_duration(timedelta(seconds=longest_s))}; EC2 terminates the instances {left} later in"
                " any case",
                f"scale in earlier, or let the hook wait at most {left}",
            )


def eks_action_is_behind(account: AccountView) -> Iterator[Trap]:
    for group, block in account.groups_with_reservations():
        for action in group.schedules or ():
            if (
                action.by_eks
                and block.end is not None
                and block.end - action.at > EKS_SCALES_DOWN_BEFORE_END + _ABOUT
            ):
                yield Trap(
                    "eks-action-behind",
                    group.name,
                    f"EKS scales {group.called} to 0 at {minute(action.at)}, but {block.id} lasts until"
                    f" {minute(block.end)}: EKS "
                    "did not move its action after the extension",
                    "only EKS can move its action: set the size again afterwards, or create another node group on"
                    " the block",
                )


def subnets_are_outside_the_zone(account: AccountView) -> Iterator[Trap]:
    for group, block in account.groups_with_reservations():
        zones = {id_: account.survey.zones[id_] for id_ in group.subnets if id_ in account.survey.zones}
        outside = sorted(f"{id_} ({zone})" for id_, zone in zones.items() if zone != block.zone)
        if outside:
            only = (
                "none of its subnets is in the zone"
                if len(outside) == len(group.subnets)
                else "launches into those fail"
            )
            yield Trap(
                "TR-10",
                group.name,
                f"{group.called} has subnets outside {block.zone}, the zone of {block.id}: "
                f"{', '.join(outside)}; {only}",
                "the subnets of a node group cannot be changed: create another one with subnets of the zone only"
                if group.node_group
                else f"set its VPCZoneIdentifier to subnets in {block.zone} only",
            )


def groups_launch_beside_the_block(account: AccountView) -> Iterator[Trap]:
    for group, block in account.groups_with_reservations():
        beside = group.target.fallback
        if not beside and block.kind is SourceKind.BLOCK and "capacity-block" not in group.target.markets:
            beside = (
                "its launch template has the block, but not InstanceMarketOptions.MarketType capacity-block"
            )
        if beside:
            yield Trap(
                "launches-beside",
                group.name,
                f"{group.called} may launch on-demand instances instead of {block.id}, or fail: {beside}",
                "use one launch template with MarketType capacity-block and the reservation's id, and no mixed"
                " instances",
            )


def groups_have_lost_their_block(account: AccountView) -> Iterator[Trap]:
    if account.survey.reservations is None:
        return
    usable = {reservation.id for reservation in account.reservations if reservation.state in LIVE_STATES}
    usable |= {reservation.id for reservation in account.survey.unread}  # it is there
    for group in account.survey.groups:
        lost = [id_ for id_ in group.target.reservations if id_.startswith("cr-") and id_ not in usable]
        if lost and len(lost) == len(group.target.reservations) and group.desired:
            yield Trap(
                "block-is-gone",
                group.name,
                f"{group.called} has size {group.desired} on {', '.join(lost)}, which is over or does not exist: "
                "every launch fails",
                f"set its size to 0, or point its launch template at a block that lasts; then delete {group.name}",
            )


def _schedule_fix(group: ScalingGroup, killed: datetime) -> str:
    if group.node_group:
        return f"set its desired size to 0 before {minute(killed)}: EKS has no scheduled action for it"
    wait_s = max((hook.heartbeat_s for hook in group.hooks or ()), default=600)
    at = killed - timedelta(seconds=wait_s) - timedelta(minutes=5)
    return (
        f"aws autoscaling put-scheduled-update-group-action --auto-scaling-group-name {group.name} "
        f"--scheduled-action-name before-the-end --start-time {at:%Y-%m-%dT%H:%M:%SZ} --min-size 0 --desired-capacity 0"
    )


RULES: tuple[Callable[[AccountView], Iterator[Trap]], ...] = (
    payments_are_open,
    groups_outlive_their_block,
    groups_have_lost_their_block,
    groups_launch_beside_the_block,
    subnets_are_outside_the_zone,
    hooks_are_cut_short,
    eks_action_is_behind,
    karpenter_is_too_late,
    machines_have_nobody,
    extensions_are_open,
    blocks_end_without_a_successor,
    blocks_idle,
)


def traps(survey: Survey, catalog: Catalog) -> tuple[Trap, ...]:
    account = AccountView(survey, catalog)
    return tuple(trap for rule in RULES for trap in rule(account))
