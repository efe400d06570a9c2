"""The status of each object of ours, as `kubectl get` and `describe` show it. A projection: nothing reads it back but
people, their tools, and this module for the times of conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tidemill.model.purchases import PurchaseState
from tidemill.report.rows import BlockRow, PoolRow, PurchaseRow, Status
from tidemill.spec import Spec
from tidemill.spec.accept import Accepted, Object, generation_of, name_of
from tidemill.spec.crds.status import (
    CapacityBlockStatus,
    CapacityPlanStatus,
    ComputePoolStatus,
    Condition,
    NodeClassStatus,
    ObjectStatus,
    PlatformStatus,
    WindowStatus,
)

ACCEPTED = "Accepted"
_MOST_WINDOWS = 256
_HOUR = timedelta(hours=1)

Wall = Callable[[datetime], datetime]


@dataclass(frozen=True, slots=True)
class Projection:
    """What the engine knows after a tick. `wall`: its clock's instants as the API server's."""

    spec: Spec
    status: Status
    now: datetime  # of the wall
    wall: Wall

    @property
    def used_gpus(self) -> dict[str, int]:
        """By reservation: GPUs that pods have."""
        used: dict[str, int] = {}
        for node in self.status.nodes:
            used[node.source] = used.get(node.source, 0) + node.gpus_used
        return used


def document_status(
    thing: Object, accepted: Accepted, now: datetime, seen: Projection | None = None
) -> dict[str, Any]:
    """Of one document; without a tick only whether it is accepted."""
    verdict = accepted.verdict(thing)
    condition = _condition(thing, verdict.accepted, verdict.reason, verdict.message, now)
    body: ObjectStatus = ObjectStatus()
    name = thing["metadata"]["name"]
    if seen is not None and name_of(thing) in accepted.used:
        body = _BODIES[thing["kind"]](name, seen)
    return _json(
        body.model_copy(update={"observed_generation": generation_of(thing), "conditions": (condition,)})
    )


def _condition(thing: Object, holds: bool, reason: str, message: str, now: datetime) -> Condition:
    """Its time is when it changed: kept from what the object says already."""
    state = "True" if holds else "False"
    since = now.replace(microsecond=0)
    for old in (thing.get("status") or {}).get("conditions") or ():
        if old.get("type") == ACCEPTED and old.get("status") == state:
            since = datetime.fromisoformat(old["lastTransitionTime"])
    return Condition(
        type=ACCEPTED, status=state, reason=reason, message=message[:4096],
        last_transition_time=since, observed_generation=generation_of(thing),
    )  # fmt: skip


def _platform(name: str, seen: Projection) -> PlatformStatus:
    spec = seen.spec.platform.spec
    return PlatformStatus(
        month_usd=round(seen.status.money.fees_usd + seen.status.money.hourly_usd, 2),
        budget_usd=spec.budget.monthly_usd,
        approval=spec.approval.mode,
        waiting_purchases=sum(row.state == PurchaseState.PROPOSED.value for row in seen.status.purchases),
    )


def _node_class(name: str, seen: Projection) -> NodeClassStatus:
    pools = seen.spec.pools.values()
    return NodeClassStatus(pools=tuple(pool.name for pool in pools if pool.spec.node_class_name == name))


def _pool(name: str, seen: Projection) -> ComputePoolStatus:
    row: PoolRow | None = next((row for row in seen.status.pools if row.name == name), None)
    if row is None:
        return ComputePoolStatus()
    return ComputePoolStatus(
        gpus_ready=row.gpus_ready, gpus_used=row.gpus_used, gpus_wanted=row.gpus_wanted,
        gpus=f"{row.gpus_ready}/{row.gpus_wanted}",
        nodes=row.nodes, waiting_pods=row.waiting, block=row.blocks[0] if row.blocks else "",
        drain_from=_instant(row.drain_from, seen), ends_at=_instant(row.ends_at, seen),
        ends_in=_until(row.ends_at, seen), usd_per_hour=round(row.usd_per_hour, 2),
    )  # fmt: skip


def _plan(name: str, seen: Projection) -> CapacityPlanStatus:
    rows = [row for row in seen.status.purchases if row.plan == name]
    bought = sum(bool(row.reservations) for row in rows)
    newest = sorted(rows, key=lambda row: row.proposed_at, reverse=True)[:_MOST_WINDOWS]
    return CapacityPlanStatus(
        windows=tuple(_window(row) for row in newest), purchases=f"{bought}/{len(rows)}" if rows else ""
    )


def _window(row: PurchaseRow) -> WindowStatus:
    return WindowStatus(
        name=row.window, state=row.state, purchase=row.id, blocks=row.reservations,
        fee_usd=row.fee_usd or row.max_fee_usd, message=row.note,
    )  # fmt: skip


_BODIES: Mapping[str, Callable[[str, Projection], ObjectStatus]] = {
    "Platform": _platform,
    "NodeClass": _node_class,
    "ComputePool": _pool,
    "CapacityPlan": _plan,
}


def block_statuses(seen: Projection) -> dict[str, dict[str, Any]]:
    """Of every reservation of ours, by its id."""
    purchases = {id_: row.id for row in seen.status.purchases for id_ in row.reservations}
    used = seen.used_gpus
    return {
        row.id: _json(_block(row, purchases.get(row.id, ""), used.get(row.id, 0), seen))
        for row in seen.status.blocks
    }


def _block(row: BlockRow, purchase: str, used: int, seen: Projection) -> CapacityBlockStatus:
    return CapacityBlockStatus(
        name=row.name, pool=row.pool, purchase=purchase, type=row.type, count=row.count, zone=row.zone,
        state=row.state, start=_instant(row.start, seen), end=_instant(row.end, seen),
        drain_from=_instant(row.drain_from, seen), ends_in=_until(row.end, seen), nodes=row.nodes_up,
        used=f"{used}/{row.gpus}", fee_usd=row.fee_usd,
    )  # fmt: skip


def _instant(instant: datetime | None, seen: Projection) -> datetime | None:
    return None if instant is None else seen.wall(instant).replace(microsecond=0)


def _until(end: datetime | None, seen: Projection) -> str:
    """Rounded down, so that the object is not written at every tick: hours beyond two days, then quarters, then five
    minutes."""
    if end is None:
        return ""
    left = seen.wall(end) - seen.now
    if left <= timedelta(0):
        return "over"
    step = _HOUR if left >= 48 * _HOUR else timedelta(minutes=15 if left >= 2 * _HOUR else 5)
    minutes = int((left // step) * step / timedelta(minutes=1))
    days, hours, minutes = minutes // 1440, minutes % 1440 // 60, minutes % 60
    parts = [f"{count}{unit}" for count, unit in ((days, "d"), (hours, "h"), (minutes, "m")) if count]
    return "".join(parts) or "<5m"


def _json(status: ObjectStatus) -> dict[str, Any]:
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)
