"""What a ledger says everything cost so far, by pool and team: fees by the accelerator hours of their blocks, and what
was paid by the hour.

Hours of blocks were sampled by the engine and are right to minutes; hours it did not see are neither used nor idle, and
their share of the fee stays outside. What is paid by the hour counts as used: the ledger does not know its idle hours.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tidemill.catalog import Catalog
from tidemill.catalog.price_comparison import on_demand_usd
from tidemill.model.capacity import SourceKind
from tidemill.model.purchases import Adoption, BlockHours, CostLine, PurchaseIntent, PurchaseState
from tidemill.report.costs import CostAccounts, Costs

_HOUR = timedelta(hours=1)


@dataclass(slots=True)
class _Bought:
    """A block, or the several that one purchase made, with their extensions: one fee, one rate."""

    pool: str
    instance_type: str
    fee_usd: float = 0.0
    gpu_hours: float = 0.0  # that were paid for
    held_h: float = 0.0  # that the engine saw
    used: list[BlockHours] = field(default_factory=list)


def ledger_costs(
    catalog: Catalog,
    purchases: Iterable[PurchaseIntent],
    hours: Iterable[BlockHours],
    lines: Iterable[CostLine],
    now: datetime,
) -> Costs:
    books, bought = CostAccounts(), _bought(catalog, purchases)
    for hour in hours:
        block = bought.get(hour.reservation_id)
        if block is None:  # adopted: its fee is not in this ledger
            block = bought[hour.reservation_id] = _Bought(hour.pool, "")
        block.held_h += hour.held_h
        if hour.used_h:
            block.used.append(hour)
    for block in {id(one): one for one in bought.values()}.values():
        _enter(catalog, books, block)
    for line in lines:
        _enter_line(catalog, books, line, now)
    return books.costs()


@dataclass(frozen=True, slots=True)
class NotCounted:
    """What the sums leave out: past hours of bought blocks that no engine saw, and blocks without a fee."""

    unobserved_gpu_hours: float
    unobserved_usd: float
    without_fee: tuple[str, ...]  # adopted blocks: their fee is not in this ledger


def not_counted(
    catalog: Catalog,
    purchases: Iterable[PurchaseIntent],
    hours: Iterable[BlockHours],
    adoptions: Iterable[Adoption],
    now: datetime,
) -> NotCounted:
    purchases = list(purchases)
    bought = _bought(catalog, purchases)
    seen: dict[str, float] = {}
    for hour in hours:
        seen[hour.reservation_id] = seen.get(hour.reservation_id, 0.0) + hour.held_h
    extended = {
        one.extends: one.end or one.envelope.earliest_end
        for one in sorted(purchases, key=lambda one: one.end or one.envelope.earliest_end)
        if one.extends and one.state is PurchaseState.CONFIRMED
    }
    gpu_hours = usd = 0.0
    for one in purchases:
        if one.state is not PurchaseState.CONFIRMED or one.extends or not one.reservation_ids:
            continue
        block, kind = bought[one.reservation_ids[0]], catalog.types.get(one.envelope.instance_type)
        start, end = one.start or one.envelope.latest_start, one.end or one.envelope.earliest_end
        end = max([end, *(extended[id_] for id_ in one.reservation_ids if id_ in extended)])
        past_h = (
            max(timedelta(0), min(now, end) - start) / _HOUR * one.envelope.count * (kind.gpus if kind else 0)
        )
        missed_h = max(0.0, past_h - sum(seen.get(id_, 0.0) for id_ in one.reservation_ids))
        gpu_hours += missed_h
        usd += missed_h * (block.fee_usd / block.gpu_hours if block.gpu_hours else 0.0)
    adopted = (one.reservation_id for one in adoptions if not one.given_up)
    return NotCounted(
        round(gpu_hours, 1), round(usd, 2), tuple(sorted(id_ for id_ in adopted if id_ not in bought))
    )


def _bought(catalog: Catalog, purchases: Iterable[PurchaseIntent]) -> dict[str, _Bought]:
    """By reservation. An extension adds to its block, in whatever order they are listed."""
    paid = [purchase for purchase in purchases if purchase.state is PurchaseState.CONFIRMED]
    found: dict[str, _Bought] = {}
    for one in sorted(paid, key=lambda one: bool(one.extends)):
        ids = (one.extends,) if one.extends else one.reservation_ids
        if not ids:
            continue
        block = found.get(ids[0]) or _Bought(one.pool, one.envelope.instance_type)
        kind = catalog.types.get(one.envelope.instance_type)
        block.fee_usd += one.fee_usd
        block.gpu_hours += one.envelope.count * (kind.gpus if kind else 0) * (one.envelope.duration / _HOUR)
        found |= dict.fromkeys(ids, block)
    return found


def _enter(catalog: Catalog, books: CostAccounts, block: _Bought) -> None:
    rate = block.fee_usd / block.gpu_hours if block.gpu_hours else 0.0
    kind = catalog.types.get(block.instance_type)
    used_h = 0.0
    for one in block.used:
        listed = None if kind is None else on_demand_usd(kind, one.used_h)
        books.use(one.pool, one.team, "", one.used_h, one.used_h * rate, listed)
        used_h += one.used_h
    idle_h = max(0.0, block.held_h - used_h)
    listed = None if kind is None else on_demand_usd(kind, idle_h)
    books.rest(block.pool, idle_h, idle_h * rate, block.fee_usd - (used_h + idle_h) * rate, listed)


def _enter_line(catalog: Catalog, books: CostAccounts, line: CostLine, now: datetime) -> None:
    lasted_h = max(0.0, ((line.until or now) - line.since) / _HOUR)
    # Spot has another price than on demand; of the rest the two are the same, and the type need not be known.
    listed = lasted_h * line.usd_per_hour if line.kind is not SourceKind.SPOT else None
    books.use(line.pool, line.team, "", lasted_h * line.gpus, lasted_h * line.usd_per_hour, listed)
