"""Why the purchase planner leaves an offer out, and what each way to avoid downtime would mean, as data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class OfferRefusalKind(StrEnum):
    STALE = "stale"  # length: since it was seen
    WRONG_COUNT = "wrong-count"  # count: instances; of: the most a block has
    STARTS_TOO_SOON = "starts-too-soon"  # length: how much time is needed before the start
    STARTS_TOO_FAR_AHEAD = "starts-too-far-ahead"
    STARTS_AFTER_CALENDAR = "starts-after-calendar"
    NO_SUCH_BLOCK = "no-such-block"  # length
    OVER_CEILING = "over-ceiling"  # fee_usd, limit_usd
    NO_POOL = "no-pool"
    # of extensions
    BLOCK_NOT_HELD = "block-not-held"  # name: the block
    BLOCK_NOT_PAID = "block-not-paid"  # name
    EXTENSIONS_CLOSED = "extensions-closed"
    NO_SUCH_EXTENSION = "no-such-extension"  # length


@dataclass(frozen=True, slots=True)
class OfferRefusal:
    kind: OfferRefusalKind
    length: timedelta | None = None
    count: int = 0
    of: int = 0
    fee_usd: int = 0
    limit_usd: int = 0
    name: str = ""


class MitigationNoteKind(StrEnum):
    # It exists: EC2 offers it, or it can be launched. `offer` is the offer's id.
    EXTEND_WITH = "extend-with"  # name: the block; offer
    BUY_EARLIER = "buy-earlier"  # offer
    BUY_START_NOW = "buy-start-now"  # offer
    OVERLAPS = "overlaps"  # name: the successor; days
    BUY_INSTEAD = "buy-instead"  # offer; name: the offer it replaces
    LASTS_LONG_ENOUGH = "lasts-long-enough"  # offer
    RUNS_BESIDE = "runs-beside"  # offer
    BRIDGE = "bridge"  # count; name: the instance type; usd_h of each; pool and workload: who must allow it
    BRIDGE_LATER = "bridge-later"  # count; name: the instance type
    # Its price is estimated at a block's rate. `name` is the block.
    EXTENSION_ESTIMATED = "extension-estimated"  # name, days
    EARLIER_ESTIMATED = "earlier-estimated"  # name, count
    START_NOW_ESTIMATED = "start-now-estimated"  # name, count
    RATE_OF_SUCCESSOR = "rate-of-successor"  # name
    RATE_OF_BLOCK = "rate-of-block"  # name
    RATE_OF_EXTENSION = "rate-of-extension"  # offer, and by how many days
    # There is no such way. `name` is the block, unless said otherwise.
    NOT_A_CAPACITY_BLOCK = "not-a-capacity-block"
    EXTENSION_UNPAID = "extension-unpaid"
    EXTENSIONS_CLOSED = "extensions-closed"
    LONGER_THAN_LONGEST = "longer-than-longest"
    SUCCESSOR_BOUGHT = "successor-bought"  # name: the successor
    NO_SUCCESSOR = "no-successor"
    FEE_UNKNOWN = "fee-unknown"
    NO_OFFER_OVER_GAP = "no-offer-over-gap"
    BRIDGED_ALREADY = "bridged-already"
    NO_ON_DEMAND_PRICE = "no-on-demand-price"  # name: the instance type
    NO_ON_DEMAND_TYPE = "no-on-demand-type"


@dataclass(frozen=True, slots=True)
class MitigationNote:
    kind: MitigationNoteKind
    name: str = ""
    offer: str = ""
    count: int = 0
    days: int = 0
    usd_h: float = 0.0
    pool: str = ""  # it must list on-demand first
    workload: str = ""  # it must opt in first
