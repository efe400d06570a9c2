"""Every block the account can see: its owner, its state, the time it has left, and what is to be done next.

A read model like the others: plain data for the terminal, pages and programs. Nothing is decided here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from tidemill.decide.read_models import deadline_of
from tidemill.engine.ownership import with_true_owners
from tidemill.model.capacity import (
    OVER_STATES,
    SECURED_STATES,
    UNKNOWN_START,
    Reservation,
    ReservationState,
    SourceKind,
)
from tidemill.model.ec2_facts import (
    DAY,
    EXTENSION_CLOSES_BEFORE_END,
    EXTENSION_OPENS_BEFORE_END,
    LONGEST_BLOCK,
)
from tidemill.model.nodes import INSTANCE_SLOT_STATES, Instance
from tidemill.model.purchases import Adoption, PurchaseIntent
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import Provisioner

Held = Literal["bought", "adopted", "untracked", "another's"]

_NOT_KNOWN = "?"
# From here on the report says that a block ends soon.
_SOON = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Holding:
    id: str
    type: str
    count: int  # before the start: what will come
    zone: str
    state: str
    start: datetime | None  # None: its record has none that can be read
    end: datetime | None
    deadline: datetime | None  # by when its nodes are drained
    extendable_from: datetime | None
    extendable_until: datetime | None
    extension_pending_to: datetime | None
    held: Held
    owner: str  # the deployment of its owner tag, or ours
    pool: str
    intent: str
    fee_usd: int
    used: int  # instances on it, those of others included
    strangers: int
    free: int
    next: str  # what is to be done, or what comes
    unread: str = ""  # what of its record could not be read; then only id, tags and owner are certain


@dataclass(frozen=True, slots=True)
class HoldingRecords:
    """What the ledger knows about reservations."""

    purchases: tuple[PurchaseIntent, ...]
    adoptions: tuple[Adoption, ...]


def holdings(
    spec: Spec,
    reservations: Iterable[Reservation],
    instances: Iterable[Instance],
    books: HoldingRecords,
    now: datetime,
) -> tuple[Holding, ...]:
    """Blocks only, the soonest to end first."""
    owner = spec.platform.spec.deployment
    blocks = [reservation for reservation in reservations if reservation.kind is SourceKind.BLOCK]
    claimed = with_true_owners(blocks, books.purchases, books.adoptions, owner, now)
    unread = [block for block in blocks if block.unread]
    taken = {block.id for block in unread}
    claimed = (*(block for block in claimed if block.id not in taken), *unread)
    on = Counter[str]()
    strangers = Counter[str]()
    for instance in instances:
        if instance.state in INSTANCE_SLOT_STATES:
            on[instance.source.id] += 1
            strangers[instance.source.id] += instance.owner != owner
    found = [_holding(spec, block, books, now, on[block.id], strangers[block.id]) for block in claimed]
    return tuple(sorted(found, key=lambda one: (one.end or one.start or now, one.id)))


def _holding(
    spec: Spec, block: Reservation, books: HoldingRecords, now: datetime, used: int, strangers: int
) -> Holding:
    held = _held(spec, block, books)
    pool = spec.pools.get(block.pool)
    provisioner = pool.spec.provisioner if pool is not None else Provisioner.NATIVE
    live = block.state in SECURED_STATES and block.end is not None
    return Holding(
        id=block.id,
        type=block.instance_type or _NOT_KNOWN,
        count=block.count,
        zone=block.zone or _NOT_KNOWN,
        state=block.state.value,
        start=None if block.start == UNKNOWN_START else block.start,
        end=block.end,
        deadline=deadline_of(block, provisioner),
        extendable_from=block.end - EXTENSION_OPENS_BEFORE_END if live and block.end else None,
        extendable_until=block.end - EXTENSION_CLOSES_BEFORE_END if live and block.end else None,
        extension_pending_to=block.extension_pending_to,
        held=held,
        owner=block.owner,
        pool=block.pool,
        intent=block.intent_id,
        fee_usd=block.charged_usd,
        used=used,
        strangers=strangers,
        free=block.available,
        next=_next(
            block,
            held,
            provisioner,
            now,
            tagged_ours=dict(block.tags).get(names.TAG_OWNER) == spec.platform.spec.deployment,
        ),
        unread=block.unread,
    )


def _held(spec: Spec, block: Reservation, books: HoldingRecords) -> Held:
    if any(adoption.reservation_id == block.id and not adoption.given_up for adoption in books.adoptions):
        return "adopted"
    if block.owner == spec.platform.spec.deployment:
        return "bought"
    return "another's" if block.owner else "untracked"


def _next(
    block: Reservation, held: Held, provisioner: Provisioner, now: datetime, *, tagged_ours: bool
) -> str:
    state = block.state
    if block.unread:
        return (
            f"its record cannot be read ({block.unread}): it counts as there, and nothing is bought beside it"
        )
    if state is ReservationState.PAYMENT_FAILED:
        return "its payment failed: it will not come, and its demand is open again"
    if state in OVER_STATES:
        return "it is over"
    if not block.listed:
        return "missing from DescribeCapacityReservations; treated as held until its end"
    if held == "another's":
        return f"nothing: it belongs to deployment {block.owner}"
    if held == "untracked" and tagged_ours:
        return "it has our owner tag, and this ledger does not know it: `tidemill adopt` or `tidemill ledger rebuild`"
    if held == "untracked":
        return f"bought elsewhere: adopt it with `tidemill adopt {block.id}`"
    if state is ReservationState.PAYMENT_PENDING:
        return "its payment is pending: it comes only if the payment succeeds"
    if block.extension_pending_to == UNKNOWN_START:
        return "the record of its extension cannot be read: it counts as not paid yet, and no other is bought"
    if block.extension_pending_to is not None:
        return f"its extension to {_at(block.extension_pending_to)} is not paid yet, and the payment may fail"
    if state is ReservationState.SCHEDULED:
        come = "instance comes" if block.count == 1 else "instances come"
        return f"{block.count} {come} {_at(block.start)}"
    return _running(block, provisioner, now)


def _running(block: Reservation, provisioner: Provisioner, now: datetime) -> str:
    end, deadline = block.end, deadline_of(block, provisioner)
    if end is None or deadline is None:
        return "it has no end"
    if now >= deadline:
        return "EC2 takes its instances back"
    if now >= end - EXTENSION_CLOSES_BEFORE_END:
        return f"drained by {_at(deadline)}; too late to extend"
    if end + DAY - block.start > LONGEST_BLOCK:
        return f"drained by {_at(deadline)}; it has the maximum length"
    if now >= end - _SOON:
        return (
            f"extend it until {_at(end - EXTENSION_CLOSES_BEFORE_END)}, or it is drained by {_at(deadline)}"
        )
    return f"drained by {_at(deadline)}"


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M}"
