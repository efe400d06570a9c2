"""An account as it is: blocks and their deadlines, what would end when and whose it is, groups, traps. Read only.

A read model like the others: plain data for the terminal and for programs. It needs no document; with documents it
also tells what of the account Tidemill would own, and what it could take in.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tidemill.catalog import Catalog
from tidemill.model.capacity import LIVE_STATES, SECURED_STATES, Reservation, ReservationState, SourceKind
from tidemill.model.ec2_facts import EXTENSION_CLOSES_BEFORE_END
from tidemill.report.account_traps import traps
from tidemill.report.block_traps import idle_usd_h
from tidemill.report.instance_endings import Ending, by_reservation, endings, killed_at, size_at
from tidemill.report.survey import Missed, ScalingGroup, Survey
from tidemill.report.trap import Trap
from tidemill.spec import Spec
from tidemill.spec.compute_pool import matches

Held = Literal["ours", "another's", "untracked"]


@dataclass(frozen=True, slots=True)
class BlockSeen:
    """A Capacity Block, or an on-demand reservation: then `kill_at` is None, nothing ends with it."""

    id: str
    kind: str
    type: str
    count: int
    zone: str
    state: str
    start: datetime
    end: datetime | None
    kill_at: datetime | None  # when EC2 starts ending its instances
    extend_until: datetime | None  # the last moment to buy more time
    extension_pending_to: datetime | None
    used: int  # instances that are seen on it
    unseen: int  # slots that are taken and show no instance: another account's, or still being cleaned up
    free: int
    held: Held  # by its owner tag alone: what the ledger knows is told by `tidemill blocks`
    owner: str
    pool: str
    fee_usd: int
    idle_usd_h: float | None  # what its free slots cost; None: no price is known
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ActionSeen:
    name: str
    at: datetime
    desired: int | None
    minimum: int | None
    maximum: int | None
    eks: bool  # made by EKS, never to be touched


@dataclass(frozen=True, slots=True)
class GroupSeen:
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
    actions: tuple[ActionSeen, ...]
    hook_s: int | None  # how long its terminate hook waits; None: it has none
    hooks_known: bool
    zero_at: datetime | None
    in_time: bool | None  # at zero before EC2 takes the block back; None: nothing does, or nobody knows
    trouble: str


@dataclass(frozen=True, slots=True)
class Claim:
    """What Tidemill would do with a block, by the documents."""

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
    deployment: str  # of the documents; empty: there are none
    blocks: tuple[BlockSeen, ...] | None  # None: AWS would not tell
    endings: tuple[Ending, ...]
    groups: tuple[GroupSeen, ...]
    other_groups: int  # that have nothing to do with a reservation
    untracked: tuple[str, ...]
    traps: tuple[Trap, ...]
    claims: tuple[Claim, ...]
    not_read: tuple[Missed, ...]


def inspection(survey: Survey, catalog: Catalog, spec: Spec | None = None) -> Inspection:
    deployment = spec.platform.spec.deployment if spec is not None else ""
    on = Counter(one.instance.source.id for one in survey.machines)
    aimed = by_reservation(survey.groups)
    blocks = tuple(
        _block(one, catalog, deployment, on[one.id], tuple(each.name for each in aimed.get(one.id, ())))
        for one in sorted(
            survey.reservations or (), key=lambda one: (one.end is None, one.end or one.start, one.id)
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
        groups=tuple(_group(one, survey) for one in survey.groups),
        other_groups=survey.other_groups,
        untracked=tuple(one.id for one in blocks if one.held == "untracked" and one.state in LIVE_STATES),
        traps=traps(survey, catalog),
        claims=() if spec is None else tuple(_claim(one, spec) for one in survey.reservations or ()),
        not_read=survey.missed,
    )


def _block(
    one: Reservation, catalog: Catalog, deployment: str, used: int, groups: tuple[str, ...]
) -> BlockSeen:
    extendable = one.kind is SourceKind.BLOCK and one.state in SECURED_STATES and one.end is not None
    return BlockSeen(
        id=one.id,
        kind=one.kind.value,
        type=one.instance_type,
        count=one.count,
        zone=one.zone,
        state=one.state.value,
        start=one.start,
        end=one.end,
        kill_at=killed_at(one),
        extend_until=one.end - EXTENSION_CLOSES_BEFORE_END if extendable and one.end else None,
        extension_pending_to=one.extension_pending_to,
        used=used,
        unseen=max(0, one.count - one.available - used) if one.state is ReservationState.ACTIVE else 0,
        free=one.available,
        held=_held(one, deployment),
        owner=one.owner,
        pool=one.pool,
        fee_usd=one.fee_usd,
        idle_usd_h=idle_usd_h(one, catalog),
        groups=groups,
    )


def _held(one: Reservation, deployment: str) -> Held:
    if not one.owner:
        return "untracked"
    return "ours" if one.owner == deployment else "another's"


def _group(group: ScalingGroup, survey: Survey) -> GroupSeen:
    held = {one.id: one for one in survey.reservations or ()}
    ends = [
        killed
        for id_ in group.aim.reservations
        if id_ in held and held[id_].state in LIVE_STATES and (killed := killed_at(held[id_])) is not None
    ]
    known = bool(ends) and group.schedules is not None
    zero = size_at(group, min(ends), survey.at).zero_since if known else None
    return GroupSeen(
        name=group.name,
        kind="node-group" if group.node_group else "auto-scaling-group",
        node_group=group.node_group,
        cluster=group.cluster,
        owner=group.owner,
        reservations=group.aim.reservations,
        minimum=group.minimum,
        desired=group.desired,
        maximum=group.maximum,
        members=len(group.members),
        zones=tuple(sorted({survey.zones[id_] for id_ in group.subnets if id_ in survey.zones})),
        actions=tuple(
            ActionSeen(one.name, one.at, one.desired, one.minimum, one.maximum, one.theirs)
            for one in group.schedules or ()
        ),
        hook_s=max((one.heartbeat_s for one in group.hooks or ()), default=None),
        hooks_known=group.hooks is not None,
        zero_at=zero,
        in_time=zero is not None if known else None,
        trouble=group.trouble,
    )


# --- with documents -----------------------------------------------------------------------------------


def _claim(one: Reservation, spec: Spec) -> Claim:
    deployment, pools = spec.platform.spec.deployment, _could_use(one, spec)
    if one.state not in LIVE_STATES:
        return Claim(one.id, "leave", pools, "it is over")
    if one.owner == deployment:
        return Claim(
            one.id, "own", pools, "it carries our owner tag; it is ours where the ledger knows it too"
        )
    if one.owner:
        return Claim(one.id, "leave", pools, f"it is deployment {one.owner}'s")
    if one.kind is not SourceKind.BLOCK:
        return Claim(
            one.id, "leave", pools, "an on-demand reservation without our owner tag is used by nobody of ours"
        )
    if pools:
        return Claim(one.id, "adopt", pools, f"tidemill adopt {one.id} --pool {pools[0]}")
    return Claim(one.id, "leave", pools, _why_no_pool(one, spec))


def _could_use(one: Reservation, spec: Spec) -> tuple[str, ...]:
    kind = spec.catalog.types.get(one.instance_type)
    if kind is None or not spec.platform.spec.subnets.get(one.zone):
        return ()
    return tuple(name for name, pool in spec.pools.items() if matches(kind, pool.spec.requirements))


def _why_no_pool(one: Reservation, spec: Spec) -> str:
    if not spec.platform.spec.subnets.get(one.zone):
        return f"the platform has no subnets in {one.zone} (TR-10): add them to use it"
    return f"no pool allows {one.instance_type}"
