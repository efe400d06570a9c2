"""What the purchase planner found, and when: part of the world, because planning takes longer than a tick may.

A result is dated and names the blocks it counts on: once those have changed it is not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from tidemill.model.offers import ExtensionOffer, Offer, OfferQuery


class PlannerFailure(StrEnum):
    NO_SOLVER = "no-solver"  # HiGHS is not installed
    CRASHED = "crashed"  # the log says why


@dataclass(frozen=True, slots=True)
class PlannedPurchase:
    """A purchase that belongs to the cheapest cover: an offer for a pool, or more time on a block."""

    plan: str
    pool: str
    offer: Offer | ExtensionOffer
    duration: timedelta  # as EC2 was asked for it: a block that starts now is a little shorter or longer
    propose_from: datetime  # before that it may still change
    saves_usd: float  # over going without it


@dataclass(frozen=True, slots=True)
class PlannerResult:
    """The cheapest cover of all calendars together, as of `at`."""

    at: datetime
    basis: tuple[str, ...]  # the blocks and intents it counts on
    choices: tuple[PlannedPurchase, ...] = ()
    learned_gpus: tuple[tuple[str, int], ...] = ()  # by plan: demand learned from use and queue at `at`
    fees_usd: int = 0
    on_demand_usd: float = 0.0
    penalty_usd: float = 0.0  # not money: the stated worth of the uncovered hours
    bound_usd: float = 0.0  # no cover can cost less, of all that EC2 could sell at the rates it showed
    bound_asked_usd: float = 0.0  # ... of the offers that were asked for
    usd_per_gpu_h: float | None = None  # of the demand it covers
    uncovered_gpu_h: float = 0.0
    runner_up: str = ""
    changes: tuple[str, ...] = ()  # what would change the answer
    asks: tuple[OfferQuery, ...] = ()  # the searches of a round that is not over; it has no choices yet
    asks_since: datetime | None = None  # when that round began
    failure: PlannerFailure | None = None  # why there is no plan; a block a week is proposed then
