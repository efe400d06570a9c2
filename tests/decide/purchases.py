"""Words for money: windows that lack capacity, offers, intents and verdicts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from tests.decide.builders import NOW, ZONE, ago, ahead, plan, pool, spec
from tidemill.model.offers import Offer, OfferQuery, OfferSearch
from tidemill.model.purchases import Envelope, PurchaseIntent, PurchaseState, Verdict
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan

GENEROUS = {"perPurchaseUsd": 100_000, "monthlyUsd": 500_000}
# The default window opens in two days at noon: the block starts on the grid half an hour before.
GRID = NOW.replace(hour=11, minute=30) + timedelta(days=2)


def buying(mode: str = "one", *, document: CapacityPlan | None = None, **platform: Any) -> Spec:
    """A platform that may buy, with a week of four p5.48xlarge to cover."""
    approval = {"mode": mode, **platform.pop("approval", {})}
    money = {"budget": GENEROUS, **platform}
    return spec(pool(), document or plan(), approval=approval, **money)


def envelope(**fields: Any) -> Envelope:
    defaults: dict[str, Any] = {
        "instance_type": "p5.48xlarge", "count": 4, "duration": timedelta(days=14),
        "earliest_start": GRID - timedelta(days=1), "latest_start": ahead("2d1h"),
        "earliest_end": ahead("9d"), "zones": (ZONE,), "max_fee_usd": 30_000, "expires_at": ahead("24h"),
    }  # fmt: skip
    return Envelope(**{**defaults, **fields})


def yes(who: str = "ana") -> Verdict:
    return Verdict(who, ago("1h"), approved=True)


def intent(state: str = "proposed", *, approved_by: tuple[str, ...] = (), **fields: Any) -> PurchaseIntent:
    defaults: dict[str, Any] = {
        "id": "tp-1", "plan": "november", "pool": "p5", "window": "week", "proposer": "tidemill-engine",
        "proposed_at": ago("2h"), "envelope": envelope(**fields.pop("inside", {})),
        "verdicts": tuple(yes(who) for who in approved_by),
    }  # fmt: skip
    return PurchaseIntent(state=PurchaseState(state), **{**defaults, **fields})


def offer(id: str = "cb-1", *, fee_usd: int = 25_000, **fields: Any) -> Offer:
    defaults: dict[str, Any] = {
        "instance_type": "p5.48xlarge", "zone": ZONE, "count": 4, "start": GRID,
        "end": GRID + timedelta(days=14),
    }  # fmt: skip
    return Offer(id, fee_usd=fee_usd, **{**defaults, **fields})


def search(query: OfferQuery, *offers: Offer, at: datetime = NOW) -> OfferSearch:
    return OfferSearch(query, at, offers)
