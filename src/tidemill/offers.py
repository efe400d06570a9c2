"""What EC2 would sell: Capacity Block offers, and the searches that found them. Part of the world, like all facts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


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
