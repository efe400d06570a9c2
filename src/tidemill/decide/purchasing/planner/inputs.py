"""What the purchase planner is asked: who needs what, what may be bought at what price, and within which limits.

Plain facts, dated where they age. Where they come from (documents, EC2's answers, the ledger) is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from tidemill.decide.purchasing.planner.calendar import Calendar
from tidemill.model.ec2_facts import EARLIEST_START, TERMINATES_BEFORE_END
from tidemill.model.offers import Offer, OfferSearch

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class PoolDemand:
    """What one pool needs, of which types, where, and what it costs not to have it.

    A block serves from `warm_up` after its start (boot, registration, model load: measured) until `wind_down`
    before its paid end (EC2 terminates 30 minutes before it, managed node groups and Karpenter act 40 before,
    UltraServers end 60 before). Between two blocks back to back nobody serves for the sum of both.
    """

    pool: str
    calendar: Calendar
    types: tuple[str, ...]
    penalty_usd_gpu_h: float  # what an uncovered GPU-hour is worth; the planner pays up to this to cover it
    unit: Literal["gpus", "instances"] = "gpus"
    zones: tuple[str, ...] = ()  # empty: any
    one_zone: bool = False  # multi-node work: at any instant only what stands in one zone counts
    warm_up: timedelta = timedelta(0)
    wind_down: timedelta = TERMINATES_BEFORE_END
    # A purchase is made this long before it starts, and its fee counts in that month; None: at once.
    buy_ahead: timedelta | None = None
    per_purchase_usd: int | None = None  # ceilings of its own, where they are lower than those of the whole
    monthly_usd: int | None = None


@dataclass(frozen=True, slots=True)
class TypePrice:
    """An instance type: its accelerators, and the on-demand alternative. No price: not to be had, or not allowed."""

    gpus: int
    on_demand_usd_h: float | None = None
    on_demand_most: int | None = None  # instances at once (a quota); None: as many as are needed


Prices = Mapping[str, TypePrice]


@dataclass(frozen=True, slots=True)
class DatedOffer:
    """An offer, and when EC2 showed it."""

    offer: Offer
    at: datetime


@dataclass(frozen=True, slots=True)
class ExtensionOffer:
    """What EC2 asks for moving the end of a block we hold to a later one."""

    id: str
    block: str  # the reservation's id
    end: datetime
    fee_usd: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Money that may go out. Fees count in the month they are paid, hours on demand when they run."""

    per_purchase_usd: int
    monthly_usd: int
    spent_usd: float = 0.0  # this calendar month (UTC), purchases in doubt included
    whole_usd: float | None = None  # everything this plan may cost, if that is limited too
    spent_for_usd: tuple[tuple[str, float], ...] = ()  # of the month's, by the pool it was spent for


@dataclass(frozen=True, slots=True)
class Policy:
    now: datetime
    until: datetime  # demand after it is not seen, and a block that outlasts it is charged in full
    ceilings: Ceilings
    # EC2 sells from about 30 minutes ahead; whoever waits for approvals plans further ahead than that.
    lead: timedelta = EARLIEST_START
    offers_fresh: timedelta = timedelta(minutes=30)  # first come, first served: what is older may be gone
    held_elsewhere: int = 0  # instances on blocks of other accounts of the organization, against the 256
    gap: float = 0.005  # stop when this share of the cost is all that could still be saved; 1 % is promised
    most_nodes: int = 2000  # of the search tree. A limit on work, not on time: the same answer on any machine


def newest_offers(searches: Iterable[OfferSearch]) -> tuple[DatedOffer, ...]:
    """What the latest answer to each question showed; an offer shown by several counts as seen last."""
    latest: dict[object, OfferSearch] = {}
    for search in searches:
        before = latest.get(search.query)
        if before is None or search.at > before.at:
            latest[search.query] = search
    found: dict[str, DatedOffer] = {}
    for search in sorted(latest.values(), key=lambda one: one.at):
        found |= {offer.id: DatedOffer(offer, search.at) for offer in search.offers}
    return tuple(found[id_] for id_ in sorted(found))
