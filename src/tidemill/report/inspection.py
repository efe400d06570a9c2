"""An AWS account as it is: blocks and their deadlines, when instances end and who owns them, groups, traps. Read only.

A read model: plain data for the terminal and for programs. It needs no documents. With documents it also says which
blocks Tidemill owns and which it could adopt.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tidemill.catalog import Catalog
from tidemill.model.capacity import LIVE_STATES, SECURED_STATES, Reservation, ReservationState, SourceKind
from tidemill.model.ec2_facts import EXTENSION_CLOSES_BEFORE_END
from tidemill.report.account_traps import Trap, idle_usd_h, traps
from tidemill.report.instance_endings import Ending, by_reservation, endings, killed_at, size_at
from tidemill.report.survey import NotRead, ScalingGroup, Survey
from tidemill.spec import Spec
from tidemill.spec.compute_pool import matches

# `blocks` says bought or adopted, which only the ledger knows; here only tags are read.
Held = Literal["tagged", "another's", "untracked"]


@dataclass(frozen=True, slots=True)
class InspectedBlock:
    """A Capacity Block or an On-Demand Capacity Reservation. For the latter `kill_at` is None."""

    id: str
    kind: str
    type: str
    count: int
    zone: str
    state: str
    start: datetime
    end: datetime | None
    kill_at: datetime | None  # when EC2 starts to terminate its instances
    extend_until: datetime | None  # the last moment to buy an extension
    extension_pending_to: datetime | None
    used: int  # instances on it
    unseen: int  # used slots without a visible instance: of another account, or being cleaned up
    free: int
    held: Held  # by its owner tag only; `tidemill blocks` shows what the ledger knows
    owner: str
    pool: str
    fee_usd: int
    idle_usd_h: float | None  # cost of its unused slots; None: no price is known
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InspectedAction:
    name: str
    at: datetime
    desired: int | None
    minimum: int | None
    maximum: int | None
    eks: bool  # EKS made it; never change it


@dataclass(frozen=True, slots=True)
class InspectedGroup:
    name: str
    kind: Literal["auto-scaling-group", "node-group"]
    node_group: str
    cluster: str
    owner: str
    reservations: tuple[str, ...]
    minimum: int
    desired: int
    maximum: int
    members: int
    zones: tuple[str, ...]
    actions: tuple[InspectedAction, ...]
    hook_s: int | None  # heartbeat timeout of its terminate hook; None: no hook
    hooks_known: bool
    zero_at: datetime | None
    in_time: (
        bool | None
    )  # at zero before EC2 terminates the instances; None: there is no such time, or it is not known
    trouble: str


@dataclass(frozen=True, slots=True)
class Claim:
    """What Tidemill would do with a block, according to the documents."""

    id: str
    would: Literal["own", "adopt", "leave"]
    pools: tuple[str, ...]  # that could use it
    why: str


@dataclass(frozen=True, slots=True)
class Inspection:
    at: datetime
    region: str
    account: str
    who: str
    deployment: str  # of the documents; empty: no documents
    blocks: tuple[InspectedBlock, ...] | None  # None: could not be read
    endings: tuple[Ending, ...]
    groups: tuple[InspectedGroup, ...]
    other_groups: int  # groups without a reservation
    untracked: tuple[str, ...]
    traps: tuple[Trap, ...]
    claims: tuple[Claim, ...]
    not_read: tuple[NotRead, ...]
    unread: tuple[str, ...] = ()  # ids that AWS lists with a record that cannot be read: in no list above


def inspection(survey: Survey, catalog: Catalog, spec: Spec | None = None) -> Inspection:
    deployment = spec.platform.spec.deployment if spec is not None else ""
    on = Counter(machine.instance.source.id for machine in survey.machines)
    aimed = by_reservation(survey.groups)
    blocks = tuple(
        _block(
            block, catalog, deployment, on[block.id], tuple(group.name for group in aimed.get(block.id, ()))
        )
        for block in sorted(
            survey.reservations or (),
            key=lambda block: (block.end is None, block.end or block.start, block.id),
        )
    )
    return Inspection(
        at=survey.at,
        region=survey.region,
        account=survey.who.split(":")[4] if survey.who.count(":") >= 5 else "",
        who=survey.who,
        deployment=deployment,
        blocks=None if survey.reservations is None else blocks,
        endings=endings(survey, deployment),
        groups=tuple(_group(group, survey) for group in survey.groups),
        other_groups=survey.other_groups,
        untracked=tuple(
            block.id for block in blocks if block.held == "untracked" and block.state in LIVE_STATES
        ),
        traps=traps(survey, catalog),
        claims=() if spec is None else tuple(_claim(block, spec) for block in survey.reservations or ()),
        not_read=survey.missed,
        unread=tuple(one.id for one in survey.unread),
    )


def _block(
    reservation: Reservation, catalog: Catalog, deployment: str, used: int, groups: tuple[str, ...]
) -> InspectedBlock:
    extendable = (
        reservation.kind is SourceKind.BLOCK
        and reservation.state in SECURED_STATES
        and reservation.end is not None
    )
    return InspectedBlock(
        id=reservation.id,
        kind=reservation.kind.value,
        type=reservation.instance_type,
        count=reservation.count,
        zone=reservation.zone,
        state=reservation.state.value,
        start=reservation.start,
        end=reservation.end,
        kill_at=killed_at(reservation),
        extend_until=reservation.end - EXTENSION_CLOSES_BEFORE_END
        if extendable and reservation.end
        else None,
        extension_pending_to=reservation.extension_pending_to,
        used=used,
        unseen=max(0, reservation.count - reservation.available - used)
        if reservation.state is ReservationState.ACTIVE
        else 0,
        free=reservation.available,
        held=_held(reservation, deployment),
        owner=reservation.owner,
        pool=reservation.pool,
        fee_usd=reservation.charged_usd,
        idle_usd_h=idle_usd_h(reservation, catalog),
        groups=groups,
    )


def _held(reservation: Reservation, deployment: str) -> Held:
    if not reservation.owner:
        return "untracked"
    return "tagged" if reservation.owner == deployment else "another's"


def _group(group: ScalingGroup, survey: Survey) -> InspectedGroup:
    held = {reservation.id: reservation for reservation in survey.reservations or ()}
    ends = [
        killed
        for id_ in group.target.reservations
        if id_ in held and held[id_].state in LIVE_STATES and (killed := killed_at(held[id_])) is not None
    ]
    known = bool(ends) and group.schedules is not None
    zero = size_at(group, min(ends), survey.at).zero_since if known else None
    return InspectedGroup(
        name=group.name,
        kind="node-group" if group.node_group else "auto-scaling-group",
        node_group=group.node_group,
        cluster=group.cluster,
        owner=group.owner,
        reservations=group.target.reservations,
        minimum=group.minimum,
        desired=group.desired,
        maximum=group.maximum,
        members=len(group.members),
        zones=tuple(sorted({survey.zones[id_] for id_ in group.subnets if id_ in survey.zones})),
        actions=tuple(
            InspectedAction(
                action.name, action.at, action.desired, action.minimum, action.maximum, action.by_eks
            )
            for action in group.schedules or ()
        ),
        hook_s=max((hook.heartbeat_s for hook in group.hooks or ()), default=None),
        hooks_known=group.hooks is not None,
        zero_at=zero,
        in_time=zero is not None if known else None,
        trouble=group.trouble,
    )


# --- with documents -----------------------------------------------------------------------------------


def _claim(reservation: Reservation, spec: Spec) -> Claim:
    deployment, pools = spec.platform.spec.deployment, _could_use(reservation, spec)
    if reservation.state not in LIVE_STATES:
        return Claim(reservation.id, "leave", pools, "it is over")
    if reservation.owner == deployment:
        return Claim(
            reservation.id, "own", pools, "it has our owner tag; Tidemill uses it if the ledger knows it too"
        )
    if reservation.owner:
        return Claim(reservation.id, "leave", pools, f"it belongs to deployment {reservation.owner}")
    if reservation.kind is not SourceKind.BLOCK:
        return Claim(
            reservation.id,
            "leave",
            pools,
            "no pool uses an On-Demand Capacity Reservation without our owner tag",
        )
    if pools:
        return Claim(reservation.id, "adopt", pools, f"tidemill adopt {reservation.id} --pool {pools[0]}")
    return Claim(reservation.id, "leave", pools, _why_no_pool(reservation, spec))


def _could_use(reservation: Reservation, spec: Spec) -> tuple[str, ...]:
    kind = spec.catalog.types.get(reservation.instance_type)
    if kind is None or not spec.platform.spec.subnets.get(reservation.zone):
        return ()
    return tuple(name for name, pool in spec.pools.items() if matches(kind, pool.spec.requirements))


def _why_no_pool(reservation: Reservation, spec: Spec) -> str:
    if not spec.platform.spec.subnets.get(reservation.zone):
        return f"the platform has no subnets in {reservation.zone} (TR-10); add some to use it"
    return f"no pool allows {reservation.instance_type}"
