"""The verdict of a rehearsal: safe, served, worth it. From the simulator's truth and the documents.

Served means that people got what they asked for. A job that came too late to be done within the rehearsal does not
count, and neither does a demand window that had not begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from tidemill.model.capacity import DELIVERED_STATES, PREPAID, UNPAID_STATES
from tidemill.report.savings import Savings
from tidemill.sim.scenario.outcome import JobRow, ServiceRow, Unserved, UnservedKind, Verdict
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec.capacity_plan import DemandWindow

# A node is launched and joins, the pod is scheduled and loads: a job may need this beside its own duration.
STARTS_WITHIN = timedelta(hours=1)


def verdict(
    rehearsal: Rehearsal,
    jobs: tuple[JobRow, ...],
    services: tuple[ServiceRow, ...],
    savings: Savings,
    end: datetime,
    *,
    safe: bool,
) -> Verdict:
    owner = rehearsal.spec.platform.spec.deployment
    prepaid = any(
        reservation.kind in PREPAID and reservation.owner == owner and reservation.state not in UNPAID_STATES
        for reservation in rehearsal.cloud.all_reservations()
    )
    unserved = tuple(_unserved(rehearsal, jobs, services, end))
    saved = savings.saved_usd if prepaid else None
    return Verdict(
        safe=safe,
        served=None if not safe else not unserved,
        worth_it=None if saved is None else saved > 0,
        unserved=unserved,
        savings=savings,
    )


def _unserved(
    rehearsal: Rehearsal, jobs: tuple[JobRow, ...], services: tuple[ServiceRow, ...], end: datetime
) -> Iterator[Unserved]:
    short = [name for name, window in _windows(rehearsal) if _is_short(rehearsal, name, window, end)]
    rows: tuple[tuple[UnservedKind, list[str]], ...] = (
        ("uncovered", short),
        ("down", [service.name for service in services if service.downtime_s]),
        ("failed", [job.name for job in jobs if job.state == "failed"]),
        ("late", [job.name for job in jobs if job.late and job.state != "failed"]),
        ("waiting", [job.name for job in jobs if not job.late and _had_time(rehearsal, job, end)]),
    )
    return (Unserved(kind, tuple(names)) for kind, names in rows if names)


def _had_time(rehearsal: Rehearsal, job: JobRow, end: datetime) -> bool:
    """It waits at the end, although it came early enough to be done by then."""
    needs = rehearsal.cluster.jobs[job.name].duration + STARTS_WITHIN
    return job.state in ("held", "pending") and job.arrived + needs <= end


def _windows(rehearsal: Rehearsal) -> Iterator[tuple[str, DemandWindow]]:
    for plan in rehearsal.spec.plans.values():
        for window in plan.spec.demand:
            yield f"{plan.name}/{window.name}", window


def _is_short(rehearsal: Rehearsal, name: str, window: DemandWindow, end: datetime) -> bool:
    """Fewer instances than it asks for in the middle of what of it lies inside the rehearsal."""
    since, until = max(window.start, rehearsal.start), min(window.end, end)
    if until <= since:
        return False
    middle, pool = since + (until - since) / 2, rehearsal.spec.plans[name.partition("/")[0]].spec.pool
    held = sum(
        block.count
        for block in rehearsal.cloud.all_reservations()
        if block.kind in PREPAID
        and block.owner == rehearsal.spec.platform.spec.deployment
        and block.state in DELIVERED_STATES
        and block.instance_type == window.instance_type
        and block.pool in ("", pool)
        and block.start <= middle
        and (block.end is None or block.end > middle)
    )
    return held < window.instances
