"""What EC2 would sell, and what it says it sold: offers of blocks and of extensions, the searches that found them,
and the history of extensions. Part of the world, like all facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Offer:
    """What EC2 would sell right now. First come, first served: it may be gone at the next call."""

    id: str
    instance_type: str
    zone: str
    count: int
    start: datetime
    end: datetime
    fee_usd: int
    ultraserver: bool = False


@dataclass(frozen=True, slots=True)
class OfferQuery:
    """A search. `earliest_start` and `latest_end` are EC2's StartDateRange and EndDateRange."""

    instance_type: str
    count: int
    duration: timedelta
    earliest_start: datetime
    latest_end: datetime
    zones: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OfferSearch:
    """A dated answer to a search."""

    query: OfferQuery
    at: datetime
    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class ExtensionOffer:
    """So much more time on a block, for a fee. `start` is the end it has now."""

    id: str
    reservation_id: str
    start: datetime
    end: datetime
    fee_usd: int


@dataclass(frozen=True, slots=True)
class ExtensionQuery:
    reservation_id: str
    duration: timedelta


@dataclass(frozen=True, slots=True)
class ExtensionSearch:
    """A dated answer; no offers, with the reason, where EC2 said that the block cannot be extended."""

    query: ExtensionQuery
    at: datetime
    offers: tuple[ExtensionOffer, ...]
    refused: str = ""


class ExtensionState(StrEnum):
    PAYMENT_PENDING = "payment-pending"
    PAYMENT_FAILED = "payment-failed"
    PAYMENT_SUCCEEDED = "payment-succeeded"


@dataclass(frozen=True, slots=True)
class Extension:
    """One that was bought, as EC2's history tells it. It carries no tags: it is known by the offer it came from."""

    offer_id: str
    reservation_id: str
    asked_at: datetime
    end: datetime
    fee_usd: int
    state: ExtensionState
