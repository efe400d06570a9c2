"""Sums up a finished (or stopped) rehearsal: every row of the Outcome, from the state of the simulator."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

from tidemill import __version__
from tidemill.catalog.price_comparison import on_demand_usd
from tidemill.model.capacity import DELIVERED_STATES, UNPAID_STATES, Reservation, SourceKind
from tidemill.model.errors import InvariantViolated
from tidemill.model.purchases import PurchaseIntent, PurchaseState
from tidemill.model.reasons import DrainKind, DrainReason
from tidemill.report.costs import Costs, rounded
from tidemill.report.savings import savings
from tidemill.sim.cloud.block_end import block_deadline
from tidemill.sim.cloud.instances import InstanceHistory
from tidemill.sim.cloud.market import block_fee_usd
from tidemill.sim.cloud.reservations import kill_at
from tidemill.sim.cluster.workloads import JobTruth, ServiceTruth
from tidemill.sim.invariants import SENTENCES
from tidemill.sim.invariants.reported_money import check_summary
from tidemill.sim.invariants.truth import Violation
from tidemill.sim.scenario.costs import on_demand_equivalent, rehearsal_costs
from tidemill.sim.scenario.outcome import (
    BlockRow,
    JobRow,
    KillRow,
    NodeSpan,
    Outcome,
    PurchaseRow,
    ServiceRow,
    WarningRow,
)
from tidemill.sim.scenario.reason_history import ON_ITS_WAY, topic
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.sim.scenario.verdict import verdict
from tidemill.wording import sentence
from tidemill.wording.purchases import purchase_note, verdict_sentence


def tally(
    rehearsal: Rehearsal,
    *,
    scenario: str,
    wall_s: float,
    files: tuple[str, ...] = (),
    violation: InvariantViolated | None = None,
) -> Outcome:
    """`scenario` is its name for people, `files` are what it was read from."""
    end = min(rehearsal.timeline.now(), rehearsal.end)
    blocks = tuple(
        _block(rehearsal, reservation, end)
        for reservation in rehearsal.cloud.all_reservations()
        if reservation.kind is SourceKind.BLOCK
        and reservation.owner == rehearsal.spec.platform.spec.deployment
    )
    recorder, shares = rehearsal.recorder, rehearsal_costs(rehearsal, end)
    hours = recorder.hours_until(end)
    hours["idle"] = hours["paid"] - hours["used"]
    cost_usd, money = _cost(rehearsal, blocks, shares), savings(shares)
    violations: tuple[Violation, ...] = (
        (Violation(violation.number, end, violation.sentence, violation.objects),) if violation else ()
    )
    paid = sum(block.fee_usd for block in blocks if block.state not in UNPAID_STATES)
    for number, objects in check_summary(cost_usd, shares, money, paid):
        violations += (Violation(number, end, SENTENCES[number], objects),)
    jobs = tuple(_job(rehearsal, job, end) for job in rehearsal.cluster.jobs.values())
    services = tuple(_service(rehearsal, service, end) for service in rehearsal.cluster.services.values())
    return Outcome(
        scenario=scenario,
        files=files,
        seed=rehearsal.seed,
        commit=commit(),
        start=rehearsal.start,
        end=end,
        simulated_hours=round((end - rehearsal.start).total_seconds() / 3600, 3),
        wall_s=round(wall_s, 3),
        ticks=rehearsal.ticks,
        actions=len(rehearsal.done),
        invariant_violations=violations,
        blocks=blocks,
        nodes=tuple(
            _span(rehearsal, history)
            for history in rehearsal.cloud.instance_histories.values()
            if history.now.pool
        ),
        jobs=jobs,
        services=services,
        evictions=tuple(rehearsal.cluster.evictions),
        gpu_hours={name: round(value, 3) for name, value in hours.items()},
        cost_usd=cost_usd,
        prices_as_of=rehearsal.spec.catalog.prices_as_of,
        series=recorder.series(),
        journal=tuple((line.at, line.kind, line.about, line.sentence) for line in rehearsal.journal.lines),
        kills=tuple(
            KillRow(kill.at, kill.pod, kill.node, kill.grace_s, kill.grace_had_s, kill.full_grace)
            for kill in rehearsal.cluster.kills
        ),
        purchases=tuple(_purchase(rehearsal, intent) for intent in rehearsal.ledger.purchases()),
        warnings=_warnings(rehearsal),
        on_demand_equivalent=on_demand_equivalent(blocks, rehearsal.start, end),
        alerts=rehearsal.alerts.rows(end),
        costs=rounded(shares),
        verdict=verdict(rehearsal, jobs, services, money, end, safe=not violations),
    )


def _block(rehearsal: Rehearsal, block: Reservation, end: datetime) -> BlockRow:
    """Its deadline is the earliest of the provisioners its nodes were launched by."""
    killed = kill_at(block)
    assert block.end is not None and killed is not None
    histories = [
        history
        for history in rehearsal.cloud.instance_histories.values()
        if history.now.source.id == block.id
    ]
    nodes = [
        rehearsal.cluster.nodes[history.now.id]
        for history in histories
        if history.now.id in rehearsal.cluster.nodes
    ]
    pool = rehearsal.spec.pools.get(block.pool)
    provisioners = {history.now.provisioner for history in histories}
    provisioners |= {pool.spec.provisioner.value} if pool else set()
    deadline = block_deadline(block, provisioners) or killed
    drains = [
        node.draining_since
        for node in nodes
        if node.draining_since is not None and _ends_with(node.drain_reason, block.id)
    ]
    kind = rehearsal.spec.catalog.types[block.instance_type]
    gpus = block.count * kind.gpus
    delivered = block.state in DELIVERED_STATES
    span_h = max(0.0, (min(block.end, end) - max(block.start, rehearsal.start)).total_seconds() / 3600)
    drained = rehearsal.cluster.emptied_at(block.id)
    paid_h = gpus * span_h if delivered else 0.0
    used_h = rehearsal.recorder.used_hours_until(end).get(block.id, 0.0)
    return BlockRow(
        id=block.id,
        name=_name(rehearsal, block.id),
        pool=block.pool,
        type=block.instance_type,
        count=block.count,
        zone=block.zone,
        state=block.state.value,
        start=block.start,
        end=block.end,
        kill_at=killed,
        deadline=deadline,
        drain_from=min(drains, default=None),
        drained_at=drained if drains else None,
        fee_usd=block.fee_usd,
        gpus=gpus,
        gpu_hours_paid=round(paid_h, 3),
        gpu_hours_used=round(used_h, 3),
        delivered_on_demand_usd=_cents(on_demand_usd(kind, paid_h)),
        used_on_demand_usd=_cents(on_demand_usd(kind, used_h)),
        fee_drawn=any(block.id in purchase.reservation_ids for purchase in rehearsal.cloud.purchases),
        catalog_fee_usd=block_fee_usd(kind, block.count, block.end - block.start),
    )


def _ends_with(reason: DrainReason | None, block: str) -> bool:
    """A node may also be drained because it failed, or is replaced."""
    return reason is not None and reason.kind is DrainKind.SOURCE_ENDS and reason.name == block


def _cents(usd: float | None) -> float | None:
    return None if usd is None else round(usd, 2)


def _name(rehearsal: Rehearsal, reservation_id: str) -> str:
    """As the scenario calls it; one that was bought, after the demand window it was bought for."""
    for name, known in rehearsal.cloud.names.items():
        if known == reservation_id:
            return name
    bought = (
        purchase.window
        for purchase in rehearsal.ledger.purchases()
        if reservation_id in purchase.reservation_ids
    )
    return next(bought, "")


def _span(rehearsal: Rehearsal, history: InstanceHistory) -> NodeSpan:
    node = rehearsal.cluster.nodes.get(history.now.id)
    phases: list[tuple[str, datetime | None]] = [("launched", history.now.launched_at)]
    if node is not None:
        phases += [
            ("registering", node.joined_at),
            ("verifying", node.registered_at),
            ("ready", node.ready_at),
            ("draining", node.draining_since),
        ]
    reached = tuple(sorted(((name, at) for name, at in phases if at is not None), key=lambda phase: phase[1]))
    gone = history.shutting_down_at or history.terminated_at
    return NodeSpan(
        history.now.id, history.now.pool, history.now.source.label, history.now.instance_type,
        tuple((name, at) for name, at in reached if gone is None or at <= gone), gone,
    )  # fmt: skip


def _job(rehearsal: Rehearsal, job: JobTruth, end: datetime) -> JobRow:
    state: Literal["finished", "running", "held", "pending", "failed"] = job.state
    reason = job.reason
    if job.state == "pending":
        waits = rehearsal.reasons.waiting_now(job.uids)
        if waits and waits[0].code in ON_ITS_WAY:
            reason = sentence(waits[0].reason)
        elif waits:
            state, reason = "held", _held_by(rehearsal, job.uids, end)
    return JobRow(
        name=job.name,
        stream=job.stream.name,
        team=job.team,
        gpus=job.gpus,
        pods=job.pods,
        arrived=job.submitted,
        started=job.started,
        finished=job.finished if job.state == "finished" else None,
        state=state,
        late=job.late(end),
        restarts=job.restarts,
        sources=tuple(sorted(job.sources)),
        reason=reason,
    )


def _held_by(rehearsal: Rehearsal, pods: tuple[str, ...], end: datetime) -> str:
    """Not the reason at the end: once the last block is over that is the same for all pods."""
    longest = rehearsal.reasons.held_longest(pods, end)
    return sentence(longest.reason) if longest is not None else ""


def _service(rehearsal: Rehearsal, service: ServiceTruth, end: datetime) -> ServiceRow:
    members = tuple(service.members)
    waiting = rehearsal.reasons.waiting_now(members)
    return ServiceRow(
        name=service.name,
        replicas=service.replicas,
        min_available=service.min_available,
        promised=service.promised,
        downtime_s=service.downtime_s(end),
        lowest_ready=service.lowest_ready(),
        series=tuple(service.series),
        down=service.down(end),
        waiting=len(waiting),
        reason=_held_by(rehearsal, members, end) if waiting else "",
    )


def _purchase(rehearsal: Rehearsal, intent: PurchaseIntent) -> PurchaseRow:
    return PurchaseRow(
        id=intent.id,
        window=intent.window,
        plan=intent.plan,
        type=intent.envelope.instance_type,
        count=intent.envelope.count,
        state=intent.state.value,
        proposed_at=intent.proposed_at,
        max_fee_usd=intent.envelope.max_fee_usd,
        fee_usd=intent.fee_usd,
        reservations=intent.reservation_ids,
        note="" if intent.state is PurchaseState.CONFIRMED else _why_not_bought(rehearsal, intent),
        verdicts=tuple(verdict_sentence(verdict) for verdict in intent.verdicts),
    )


def _why_not_bought(rehearsal: Rehearsal, intent: PurchaseIntent) -> str:
    """The last obstacle, unless it was refused or failed; and the note."""
    warned = [warning for warning in rehearsal.reasons.warned.values() if warning.about == intent.id]
    settled = intent.state in (PurchaseState.REFUSED, PurchaseState.FAILED)
    obstacle = "" if settled or not warned else sentence(max(warned, key=lambda warning: warning.last).reason)
    return "; ".join(filter(None, (obstacle, purchase_note(intent))))


def _warnings(rehearsal: Rehearsal) -> tuple[WarningRow, ...]:
    """A proposal is named by its window: one that expires is followed by another with the same warning."""
    windows = {warning.id: f"{warning.plan}/{warning.window}" for warning in rehearsal.ledger.purchases()}
    rows: dict[tuple[object, ...], WarningRow] = {}
    for warning in rehearsal.reasons.warned.values():
        called = windows.get(warning.about, warning.about)
        key = (called, *topic(warning.reason))
        since = rows[key].first if key in rows else warning.first
        rows[key] = WarningRow(called, sentence(warning.reason), min(since, warning.first), warning.last)
    return tuple(sorted(rows.values(), key=lambda row: (row.first, row.about, row.sentence)))


def _cost(rehearsal: Rehearsal, blocks: tuple[BlockRow, ...], shares: Costs) -> dict[str, float]:
    """Fees of paid blocks, hourly costs, and how much of both was idle so far."""
    bought = [block for block in blocks if block.state not in UNPAID_STATES]
    fees = sum(block.fee_usd for block in bought)
    hourly = rehearsal.cloud.hourly_usd()
    on_demand = hourly[SourceKind.ON_DEMAND] + hourly[SourceKind.ODCR]
    return {
        "blocks": float(fees),
        "on_demand": round(on_demand, 2),
        "spot": round(hourly[SourceKind.SPOT], 2),
        "total": round(fees + on_demand + hourly[SourceKind.SPOT], 2),
        "idle": round(shares.idle_usd, 2),
    }


def commit() -> str:
    """The source commit this runs from, read off the checkout; the version where there is none."""
    for folder in Path(__file__).resolve().parents:
        head = folder / ".git" / "HEAD"
        if not head.is_file():
            continue
        text = head.read_text().strip()
        if not text.startswith("ref: "):
            return text[:12]
        ref = text.removeprefix("ref: ")
        loose, packed = folder / ".git" / ref, folder / ".git" / "packed-refs"
        if loose.is_file():
            return loose.read_text().strip()[:12]
        lines = packed.read_text().splitlines() if packed.is_file() else []
        return next((line.split()[0][:12] for line in lines if line.endswith(f" {ref}")), f"v{__version__}")
    return f"v{__version__}"
