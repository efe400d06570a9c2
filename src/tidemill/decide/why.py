"""Why a pod waits, in one sentence, and the earliest instant at which it could run (PE-13).

The question is asked of every pool; the pool that comes closest gives the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidemill.decide.admit import Item, lasts, time_needed
from tidemill.decide.draft import Draft, End
from tidemill.decide.nodes import SHORTEST_LEAD, deadline_of
from tidemill.decide.pack import may_use, refusal
from tidemill.decide.room import (
    BOOT,
    Rooms,
    admits,
    fits,
    node_labels,
    pool_taints,
    tolerates,
    usable_reservations,
)
from tidemill.plan import UnmetCode
from tidemill.spec.match import matching
from tidemill.spec.models import ComputePool
from tidemill.spec.units import format_cpu, format_duration, format_instant, format_memory
from tidemill.world import Pod, Reservation, ReservationState, Source, SourceKind


@dataclass(frozen=True, slots=True)
class Answer:
    closeness: int  # how near the pool came to serving it
    code: UnmetCode
    sentence: str
    earliest: datetime | None = None


def explain(draft: Draft, item: Item, found: Rooms) -> None:
    answers = [_ask(draft, item, pool, found) for pool in draft.spec.pools.values()]
    best = max(answers, key=lambda answer: answer.closeness, default=None)
    if best is None:
        best = Answer(0, "impossible", "there is no compute pool")
    for pod in item.pods:
        draft.hold(pod, best.code, best.sentence, best.earliest)


def _ask(draft: Draft, item: Item, pool: ComputePool, found: Rooms) -> Answer:
    misfit = _misfit(draft, item, pool)
    if misfit is not None:
        return misfit
    if pool.spec.limits is None:
        return Answer(5, "limit", f"pool {pool.name} has no limits, and without limits it launches nothing")
    coming = _next_reservation(draft, item, pool)
    earliest = coming.start + BOOT if coming is not None else None
    later = f"; block {coming.id} starts {format_instant(coming.start)}" if coming is not None else ""
    words = {refusal(draft, item, one) for one in found.openings if one.pool is pool}
    answer = _closest(draft, item, pool, words, found)
    return Answer(answer.closeness, answer.code, answer.sentence + later, answer.earliest or earliest)


def _closest(draft: Draft, item: Item, pool: ComputePool, words: set[str | None], found: Rooms) -> Answer:
    if "limit" in words:
        return Answer(30, "limit", f"pool {pool.name} has reached its limits ({_limits(pool)})")
    if "resting" in words:
        until = min(
            one.resting_until for one in found.openings if one.pool is pool and one.resting_until is not None
        )
        return Answer(
            29, "no-capacity",
            f"EC2 has no capacity for pool {pool.name} now; next try {format_instant(until)}", until,
        )  # fmt: skip
    if "full" in words or _busy(draft, item, pool, found):
        return Answer(28, "no-capacity", f"every node pool {pool.name} can have is taken")
    if "money" in words:
        return Answer(27, "budget", f"the overflow caps or the budget of pool {pool.name} are used up")
    if "time" in words or _too_short(item, pool, found):
        need = format_duration(time_needed(item.terms, pool))
        return Answer(26, "held", f"it needs {need} and nothing in pool {pool.name} lasts that long")
    if "opt-in" in words:
        return Answer(25, "held", f"pool {pool.name} has only overflow capacity now, and it did not opt in")
    if not (draft.world.ledger_ok and draft.world.cloud_ok):
        return Answer(24, "held", "AWS or the ledger cannot be reached, so nothing is launched")
    return Answer(20, "no-capacity", f"pool {pool.name} has no active capacity")


def _misfit(draft: Draft, item: Item, pool: ComputePool) -> Answer | None:
    """The pool could never run it, whatever capacity it had."""
    pod = item.pods[0]
    if pool.spec.allowed_namespaces and pod.namespace not in pool.spec.allowed_namespaces:
        return Answer(1, "impossible", f"pool {pool.name} does not serve namespace {pod.namespace}")
    kinds = matching(draft.spec.catalog, pool.spec.requirements)
    taints = pool_taints(pool)
    source = Source(SourceKind.ON_DEMAND)
    zones = sorted(draft.spec.platform.spec.subnets) or [""]
    for taint in taints:
        if taint.effect != "PreferNoSchedule" and not tolerates(item.shape.tolerations, taint):
            return Answer(2, "impossible", f"it does not tolerate the taint {taint.key} of pool {pool.name}")
    labelled = [
        kind for kind in kinds if any(admits(item.shape, node_labels(pool, source, kind, zone), taints) for zone in zones)
    ]
    if not labelled:
        wanted = ", ".join(f"{key}={value}" for key, value in item.shape.node_selector)
        return Answer(0, "impossible", f"no pool has nodes with the labels it selects ({wanted})")
    if not any(fits(item.shape.requests, dict(kind.allocatable)) for kind in labelled):
        return Answer(3, "impossible", f"it asks for {_asks(pod)}, more than any node of pool {pool.name} has")
    return None


def _next_reservation(draft: Draft, item: Item, pool: ComputePool) -> Reservation | None:
    """The first reservation still to start that would last long enough for it."""
    kinds = {kind.name for kind in matching(draft.spec.catalog, pool.spec.requirements)}
    coming = [
        one
        for wanted in pool.spec.sources
        if wanted.type in ("block", "odcr")
        for one in usable_reservations(draft, pool, wanted)
        if one.state in (ReservationState.SCHEDULED, ReservationState.PAYMENT_PENDING)
        and one.instance_type in kinds
        and one.count >= len(item.pods)
        and _would_last(item, one, pool)
    ]
    return min(coming, key=lambda one: (one.start, one.id), default=None)


def _would_last(item: Item, one: Reservation, pool: ComputePool) -> bool:
    deadline = deadline_of(one, pool.spec.provisioner)
    end = End(deadline, deadline - SHORTEST_LEAD if deadline else None)
    return lasts(item, end, pool, one.start + BOOT)


def _busy(draft: Draft, item: Item, pool: ComputePool, found: Rooms) -> bool:
    """Some room would do for it, if it were free."""
    return any(room.pool is pool and may_use(draft, item, room) for room in found.rooms)


def _too_short(item: Item, pool: ComputePool, found: Rooms) -> bool:
    """There is room that would suit it but for the time."""
    return any(
        room.pool is pool
        and admits(item.shape, room.labels, room.taints)
        and (item.terms.overflow or not room.overflow)
        for room in found.rooms
    )


def _limits(pool: ComputePool) -> str:
    limits = pool.spec.limits
    assert limits is not None
    written = limits.model_dump(by_alias=True, exclude_none=True)
    return ", ".join(f"{name} {value}" for name, value in written.items())


def _asks(pod: Pod) -> str:
    words = {"cpu": format_cpu, "memory": format_memory}
    return ", ".join(f"{words.get(name, str)(value)} {name}" for name, value in pod.shape.requests if value)
