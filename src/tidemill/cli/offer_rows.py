"""Offers as rows: what they cost by the GPU-hour, and beside on-demand. For the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidemill.catalog.block_price import BlockPrice, block_price
from tidemill.cli.session import Desk
from tidemill.cli.tables import table
from tidemill.spec.units import format_duration, format_instant

if TYPE_CHECKING:
    from rich.table import Table

    from tidemill.offer_search.search import Found


def price_of(desk: Desk, one: Found) -> BlockPrice:
    offer = one.offer
    kind = desk.spec.catalog.types[offer.instance_type]
    return block_price(kind, offer.count, offer.end - offer.start, offer.fee_usd)


def against(share: float | None) -> str:
    return "" if share is None else f"{share:+.0%}"


def offer_table(desk: Desk, found: Sequence[Found]) -> Table:
    made = table(
        "id", "type", "zone", "count", "start (UTC)", "end", "hours", "fee", "$/GPU-h", "to on-demand",
        right=("count", "hours", "fee", "$/GPU-h", "to on-demand"),
    )  # fmt: skip
    for one in found:
        offer, price = one.offer, price_of(desk, one)
        made.add_row(
            offer.id, offer.instance_type, offer.zone, str(offer.count), f"{offer.start:%Y-%m-%d %H:%M}",
            f"{offer.end:%Y-%m-%d %H:%M}", f"{price.hours:.1f}".removesuffix(".0"), f"${offer.fee_usd:,}",
            f"{price.usd_per_gpu_h:.2f}", against(price.against_on_demand) or "-",
        )  # fmt: skip
    return made


def offer_json(desk: Desk, one: Found) -> dict[str, Any]:
    offer, price = one.offer, price_of(desk, one)
    return {
        "id": offer.id,
        "type": offer.instance_type,
        "zone": offer.zone,
        "count": offer.count,
        "asked_duration": format_duration(one.question.duration),
        "start": format_instant(offer.start),
        "end": format_instant(offer.end),
        "hours": round(price.hours, 2),
        "fee_usd": offer.fee_usd,
        "usd_per_gpu_h": round(price.usd_per_gpu_h, 4),
        "on_demand_usd_per_gpu_h": price.on_demand_usd_per_gpu_h,
        "against_on_demand": None if price.against_on_demand is None else round(price.against_on_demand, 4),
        "ultraserver": offer.ultraserver,
    }
