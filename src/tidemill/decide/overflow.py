"""Capacity paid by the hour beside prepaid capacity: who may use it, and when its money runs out.

In a pool with a block or odcr source, spot and on-demand are overflow: a workload opts in, an hourly and a
monthly cap hold. All money by the hour stays inside the platform's monthly budget, that of pools without prepaid
sources too: else they would spend what blocks were to be bought with. Only where no budget is written nothing is bought
either, and their limits are all that holds them. Money that runs out is treated like a block that ends: there is a
deadline, and the drain is complete before it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import inf

from tidemill.model.capacity import PREPAID, SourceKind
from tidemill.model.nodes import INSTANCE_ENDED_STATES
from tidemill.model.world import World
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool, SourceSpec

_FAR_H = timedelta(days=365) / timedelta(hours=1)
_MONTH = timedelta(days=31)


def overflow_source(pool: ComputePool, kind: SourceKind) -> SourceSpec | None:
    """The pool's source of this kind if it counts as overflow there."""
    if kind in PREPAID or not any(source.type in ("block", "odcr") for source in pool.spec.sources):
        return None
    return next((source for source in pool.spec.sources if source.type == kind.value), None)


def limited_source(spec: Spec, pool: ComputePool, kind: SourceKind) -> SourceSpec | None:
    """The pool's source of this kind if money limits it: overflow always, others by the platform's monthly budget."""
    overflow = overflow_source(pool, kind)
    if overflow is not None or kind in PREPAID or not spec.platform.spec.budget.monthly_usd:
        return overflow
    return next((source for source in pool.spec.sources if source.type == kind.value), None)


def hourly_rate(spec: Spec, world: World, pool: str | None, kind: SourceKind | None) -> float:
    """Dollars an hour of what runs or is on its way, in one pool and kind, or (None, None) in all."""
    owner = spec.platform.spec.deployment
    rate = 0.0
    seen: dict[str, int] = {}
    for node in world.nodes:
        instance = node.instance
        if instance is None or instance.owner != owner:
            continue
        seen[instance.intent_id] = seen.get(instance.intent_id, 0) + 1
        if instance.state in INSTANCE_ENDED_STATES:
            continue
        if (pool is None or instance.pool == pool) and (kind is None or instance.source.kind is kind):
            rate += spec.catalog.usd_h(instance.instance_type, instance.source.kind)
    for intent in world.launches:
        if (pool is None or intent.pool == pool) and (kind is None or intent.source.kind is kind):
            unseen = intent.in_flight - seen.get(intent.id, 0)
            rate += max(0, unseen) * spec.catalog.usd_h(intent.instance_type, intent.source.kind)
    return rate


def money_left_usd(
    spec: Spec, world: World, source: SourceSpec, pool: str, kind: SourceKind
) -> tuple[float, float]:
    """What is left of this source's monthly cap, and of the platform's monthly budget. Only overflow needs a cap."""
    cap = inf
    if source.max_monthly_usd is not None or overflow_source(spec.pools[pool], kind) is not None:
        cap = (source.max_monthly_usd or 0.0) - world.spending.hourly(pool, kind)
    budget = spec.platform.spec.budget.monthly_usd - world.spending.total_usd
    return cap, budget


def money_runs_out_at(
    spec: Spec,
    world: World,
    pool_name: str,
    kind: SourceKind,
    extra_usd_h: float = 0.0,
    all_extra_usd_h: float | None = None,
) -> datetime | None:
    """The instant at which a source must be empty because a cap or the budget is used up; None: it never is.

    `extra_usd_h` is what would be added to this source, `all_extra_usd_h` to all of the platform (by default the same).
    Rounded down to the minute, so that the same rate gives the same instant at every look. Money that lasts for more
    than a year runs out when a later year begins: an instant so far ahead that moved with the clock would make every
    look another problem to solve.
    """
    pool = spec.pools.get(pool_name)
    source = limited_source(spec, pool, kind) if pool else None
    if pool is None or source is None:
        return None
    cap_left, budget_left = money_left_usd(spec, world, source, pool_name, kind)
    own_rate = hourly_rate(spec, world, pool_name, kind) + extra_usd_h
    whole_rate = hourly_rate(spec, world, None, None)
    whole_rate += extra_usd_h if all_extra_usd_h is None else all_extra_usd_h
    hours = min(
        cap_left / own_rate if own_rate > 0 else _FAR_H,
        budget_left / whole_rate if whole_rate > 0 else _FAR_H,
    )
    if hours >= _FAR_H:
        out = datetime(world.now.year + 2, 1, 1, tzinfo=UTC)
    else:
        out = world.now + timedelta(hours=max(0.0, hours))
    if overflow_source(pool, kind) is None:
        return _beyond_this_month(spec, world.now, out, whole_rate)
    return out.replace(second=0, microsecond=0)


def _beyond_this_month(spec: Spec, now: datetime, out: datetime, usd_h: float) -> datetime | None:
    """A new month has a budget of its own: what it pays for from its first day to its last does not end."""
    month = (now.replace(day=1, hour=0, minute=0, second=0, microsecond=0) + _MONTH).replace(day=1)
    if out >= month:
        lasts = timedelta(hours=spec.platform.spec.budget.monthly_usd / usd_h) if usd_h > 0 else _MONTH
        if lasts >= _MONTH:
            return None
        out = month + lasts
    return out.replace(second=0, microsecond=0)
