"""Where a node's capacity comes from: Capacity Blocks, on-demand reservations, spot, on-demand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final

from tidemill.model.ec2_facts import EXTENSION_CLOSES_BEFORE_END, EXTENSION_OPENS_BEFORE_END
from tidemill.model.labels import Pairs


class SourceKind(StrEnum):
    BLOCK = "block"
    ODCR = "odcr"
    SPOT = "spot"
    ON_DEMAND = "on-demand"


# Paid up front: a node on it costs nothing more until it ends. The others are paid by the hour.
PREPAID = (SourceKind.BLOCK, SourceKind.ODCR)


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """Where a node's capacity comes from. `id` is the reservation's; empty for spot and on-demand."""

    kind: SourceKind
    id: str = ""

    @property
    def label(self) -> str:
        """The value of the node label that pods are pinned by."""
        return self.id or self.kind.value


class ReservationState(StrEnum):
    PAYMENT_PENDING = "payment-pending"
    PAYMENT_FAILED = "payment-failed"
    SCHEDULED = "scheduled"
    ACTIVE = "active"
    EXPIRED = "expired"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"
    CANCELLED = "cancelled"


# What the code asks about a state: each set once, here. A block goes payment-pending -> scheduled -> active -> expired,
# or payment-pending -> payment-failed. `unavailable` is neither live nor over: AWS does not say what it means for a
# block, so nothing is launched there and nothing of it is given up.
LIVE_STATES: Final = frozenset(
    {ReservationState.PAYMENT_PENDING, ReservationState.SCHEDULED, ReservationState.ACTIVE}
)  # its capacity is there or may still come
SECURED_STATES: Final = frozenset({ReservationState.SCHEDULED, ReservationState.ACTIVE})  # paid and not over
NOT_STARTED_STATES: Final = frozenset({ReservationState.PAYMENT_PENDING, ReservationState.SCHEDULED})
DELIVERED_STATES: Final = frozenset({ReservationState.ACTIVE, ReservationState.EXPIRED})  # its capacity came
UNPAID_STATES: Final = frozenset({ReservationState.PAYMENT_PENDING, ReservationState.PAYMENT_FAILED})
NEVER_CAME_STATES: Final = frozenset(
    {ReservationState.PAYMENT_FAILED, ReservationState.FAILED, ReservationState.CANCELLED}
)  # over, and its capacity never came
OVER_STATES: Final = NEVER_CAME_STATES | {ReservationState.EXPIRED}


# The start of a reservation whose record has none that can be read.
UNKNOWN_START: Final = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=4096)
def _source(kind: SourceKind, id_: str) -> Source:
    """One object for each reservation: it is asked for many times a tick, and compared as often."""
    return Source(kind, id_)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A Capacity Block, or an on-demand capacity reservation (then `end` may be None).

    `count` is what was bought and what will come (the future count before the start); `available` what EC2
    would let us launch this instant, 0 before the start. A short delivery shows as `count` smaller than
    the envelope asked for. `end` is the paid end: an extension moves it only once its payment succeeded.
    """

    id: str
    kind: SourceKind
    instance_type: str
    zone: str
    count: int
    available: int
    state: ReservationState
    start: datetime
    end: datetime | None
    owner: str = ""  # the deployment it belongs to: tagged so and known to the ledger; empty: not ours
    pool: str = ""  # of its tag, or of its adoption; empty: any pool whose requirements allow the type
    intent_id: str = ""
    fee_usd: int = 0
    ultraserver: bool = False
    extension_pending_to: datetime | None = None  # an extension asked for but not paid: plan for its failure
    tags: Pairs = ()
    listed: bool = True  # False: AWS's list leaves it out just now, and it is counted on all the same
    # What of AWS's record could not be read; empty: nothing. Else only the id and the tags are certain: it is there,
    # and nothing is bought beside it.
    unread: str = ""
    tags_known: bool = True  # False: its tags could not be read either; it may be anybody's
    # By pool: when somebody's scheduled action empties its group, although the block lasts longer. What is launched
    # there before ends then.
    scale_downs: tuple[tuple[str, datetime], ...] = ()
    # From when on, for which demand window: an extension may be for another one than the block. By the ledger; empty
    # until purchases are joined to it.
    bought_for: tuple[tuple[datetime, str], ...] = ()

    @property
    def source(self) -> Source:
        return _source(self.kind, self.id)

    @property
    def charged_usd(self) -> int:
        """What was paid for it; its fee is on its tags also where the payment failed."""
        return 0 if self.state is ReservationState.PAYMENT_FAILED else self.fee_usd

    @property
    def extension_window(self) -> tuple[datetime, datetime] | None:
        """From when to when EC2 sells an extension of it; None: it has no end, is not paid, or has one pending."""
        if self.end is None or self.state not in SECURED_STATES or self.extension_pending_to is not None:
            return None
        return self.end - EXTENSION_OPENS_BEFORE_END, self.end - EXTENSION_CLOSES_BEFORE_END
