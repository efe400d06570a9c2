"""A hand-made outcome: two p5 blocks that overlap by a day, a service that moves, and some problems."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from tidemill.report.savings import Savings
from tidemill.sim.cluster.kubelet import Eviction
from tidemill.sim.scenario.outcome import (
    BlockRow,
    JobRow,
    NodeSpan,
    OnDemandEquivalent,
    Outcome,
    PurchaseRow,
    Series,
    ServiceRow,
    Verdict,
)
from tidemill.sim.timeline import stream

START = datetime(2026, 11, 16, 6, 0, tzinfo=UTC)
END = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
GPUS = 32  # of each block


def hour(at: float) -> datetime:
    """So many hours into the rehearsal, to the second."""
    return START + timedelta(seconds=round(at * 3600))


def block(name: str = "alpha", *, start: float = 5.5, days: int = 3, **changes: Any) -> BlockRow:
    begins, ends = hour(start), hour(start) + timedelta(days=days)
    row = BlockRow(
        id=f"cr-0{name}",
        name=name,
        pool="training",
        type="p5.48xlarge",
        count=4,
        zone="us-east-2b",
        state="expired",
        start=begins,
        end=ends,
        kill_at=ends - timedelta(minutes=30),
        deadline=ends - timedelta(minutes=30),
        drain_from=ends - timedelta(minutes=57),
        drained_at=ends - timedelta(minutes=41, seconds=17),
        fee_usd=9_216 * days // 3,
        gpus=GPUS,
        gpu_hours_paid=GPUS * 24.0 * days,
        gpu_hours_used=GPUS * 24.0 * days * 0.71,
    )
    return replace(row, **changes)


def node(id: str, source: str, begin: datetime, end: datetime | None, **changes: Any) -> NodeSpan:
    """A node that boots in five minutes or so and drains for the last quarter of an hour of its life."""
    boots = stream(1, id)
    at, phases = begin, []
    for phase, least, most in (
        ("requested", 2, 4),
        ("launched", 40, 70),
        ("joined", 120, 200),
        ("registering", 60, 90),
        ("verifying", 20, 60),
    ):
        phases.append((phase, at))
        at += timedelta(seconds=boots.randint(least, most))
    phases.append(("ready", at))
    if end is not None:
        phases.append(("draining", end - timedelta(minutes=16)))
        phases.append(("gone", end))
    row = NodeSpan(id, "training", source, "p5.48xlarge", tuple(phases), end)
    return replace(row, **changes)


def job(name: str = "train-1", **changes: Any) -> JobRow:
    row = JobRow(
        name=name,
        stream="train",
        team="vision",
        gpus=8,
        pods=1,
        arrived=hour(6),
        started=hour(6.2),
        finished=hour(9.7),
        state="finished",
        late=False,
        restarts=0,
        sources=("cr-0alpha",),
        reason="",
    )
    return replace(row, **changes)


def service(name: str = "chat", **changes: Any) -> ServiceRow:
    series = [(hour(5.5), 0)] + [(hour(5.75 + i / 60), i + 1) for i in range(6)]
    series += [(hour(76.2 + i / 10), 6 if i % 2 else 5) for i in range(12)]
    row = ServiceRow(name, 6, 4, True, 0, 5, tuple(series))
    return replace(row, **changes)


def purchase(window: str = "week-48", **changes: Any) -> PurchaseRow:
    """A proposal nobody has decided on."""
    row = PurchaseRow(
        id=f"tp-{window}",
        window=window,
        plan="november",
        type="p5.48xlarge",
        count=4,
        state="proposed",
        proposed_at=hour(1),
        max_fee_usd=9_500,
        fee_usd=0,
        reservations=(),
        note="it waits for approval (0 of 1)",
        verdicts=(),
    )
    return replace(row, **changes)


def _jobs() -> list[JobRow]:
    draw = stream(7, "jobs")
    rows = []
    for number in range(36):
        arrived = hour(5 + number * 2.9 + draw.random())
        started = max(arrived + timedelta(minutes=draw.randint(0, 75)), hour(5.6))
        length = timedelta(hours=draw.uniform(2, 9))
        name, team = (("train", "vision"), ("finetune", "language"), ("eval", "quality"))[number % 3]
        gpus = (8, 16, 4)[number % 3]
        source = "cr-0alpha" if started < hour(70) else "cr-0bravo"
        rows.append(
            job(
                f"{name}-{number:02}", stream=name, team=team, gpus=gpus, pods=max(1, gpus // 8),
                arrived=arrived, started=started, finished=started + length, sources=(source,),
                restarts=int(number in (21, 25)), late=number == 30,
            )
        )  # fmt: skip
    held = "needs 30h of 27h 12m left before block bravo drains; could start on no source it may use"
    state: Literal["held"] = "held"
    rows += [
        job(f"pretrain-{n}", stream="pretrain", team="language", gpus=32, pods=4, arrived=hour(95 + n),
            started=None, finished=None, state=state, sources=(), reason=held)
        for n in range(3)
    ]  # fmt: skip
    rows.append(
        job("train-oom", state="failed", arrived=hour(50), started=hour(50.3), finished=hour(51), restarts=6,
            reason="failed 7 times; back-off limit 6 reached")
    )  # fmt: skip
    return rows


def _series(jobs: list[JobRow], nodes: list[NodeSpan]) -> Series:
    """Sampled from the rows above: each quarter of an hour, and at the edges of the blocks."""
    at = [hour(n / 4) for n in range(int((END - START).total_seconds() // 900))]
    paid, ready, used = [], [], []
    for now in at:
        paid.append(sum(GPUS for b in (BLOCK_A, BLOCK_B) if b.start <= now < b.end))
        up = sum(
            8
            for n in nodes
            if n.type.startswith("p5") and dict(n.phases)["ready"] <= now < (n.gone_at or END)
        )
        ready.append(up)
        busy = sum(j.gpus for j in jobs if j.started and j.finished and j.started <= now < j.finished)
        used.append(min(up, busy + (6 if up else 0)))
    return Series(tuple(at), tuple(paid), tuple(ready), tuple(used))


BLOCK_A = block("alpha")
BLOCK_B = block(
    "bravo", start=53.5, gpu_hours_used=1_420.5, drained_at=hour(125.5) - timedelta(minutes=33, seconds=4)
)
EVICTIONS = (
    Eviction(hour(76.7), "inference/chat-7d9f-x2k1", "ip-10-0-1-17", False, 30, "hand-over to bravo"),
    Eviction(hour(76.82), "training/train-21-0", "ip-10-0-1-18", True, 95,
                "block alpha ends; the checkpoint request was not acknowledged"),
    Eviction(hour(124.9), "training/eval-35-0", "ip-10-0-2-41", True, 60,
                "block bravo ends; its PodDisruptionBudget allowed no eviction in time"),
)  # fmt: skip


def _journal() -> tuple[tuple[datetime, str, str, str], ...]:
    lines = [
        (
            hour(0),
            "decided",
            "plan/week-47",
            "proposed 4 x p5.48xlarge for 3 days: covers window monday at the least fee",
        ),
        (hour(1.2), "purchase-approved", "window/monday", "approved by approver: inside the budget"),
        (
            hour(1.2),
            "purchase-confirmed",
            "cr-0alpha",
            "bought 4 x p5.48xlarge until 19 Nov 11:30 for $9,216",
        ),
        (hour(5.5), "block-active", "cr-0alpha", "4 of 4 instances delivered"),
        (
            hour(5.5),
            "decided",
            "pool/training",
            "launch 4 x p5.48xlarge on block alpha: delivered and empty, pre-warm",
        ),
        (hour(53.5), "block-active", "cr-0bravo", "4 of 4 instances delivered"),
        (
            hour(76.55),
            "decided",
            "block/alpha",
            "drain 4 nodes: the longest grace is 11m, the deadline is 11:00",
        ),
        (hour(100), "fault", "node i-0bravo2", "a running node died"),
    ]
    lines += [
        (hour(6 + n * 1.9), "pod-started", f"training/train-{n:02}-0", "bound to a ready node")
        for n in range(60)
    ]
    return tuple(sorted(lines))


SAVINGS = Savings(18_844.66, 6_207.2, 1_000.0, 18_844.66, 22_921.82, 4_077.16, 0.5868, 0.7137)


def outcome(**changes: Any) -> Outcome:
    a_goes, b_goes = BLOCK_A.end - timedelta(minutes=36), BLOCK_B.end - timedelta(minutes=32)
    nodes = [
        node(f"i-0alpha{n}", BLOCK_A.id, BLOCK_A.start + timedelta(seconds=4 + n), a_goes) for n in range(4)
    ]
    nodes += [
        node(
            f"i-0bravo{n}",
            BLOCK_B.id,
            BLOCK_B.start + timedelta(seconds=4 + n),
            hour(100) if n == 2 else b_goes,
        )
        for n in range(4)
    ]
    nodes.append(node("i-0bravo4", BLOCK_B.id, hour(100.2), b_goes))
    nodes += [
        node(
            f"i-0ondem{n}", "on-demand", hour(20 + 26 * n), hour(27 + 31 * n), type="g6.12xlarge", pool="dev"
        )
        for n in range(3)
    ]
    jobs = _jobs()
    row = Outcome(
        scenario="examples/two-blocks.yaml",
        seed=7,
        commit="3f9c2e1",
        start=START,
        end=END,
        simulated_hours=126.0,
        wall_s=0.83,
        ticks=3_412,
        actions=812,
        invariant_violations=(),
        blocks=(BLOCK_A, BLOCK_B),
        nodes=tuple(nodes),
        jobs=tuple(jobs),
        services=(service(),),
        evictions=EVICTIONS,
        gpu_hours={"paid": 4_608.0, "ready": 4_551.3, "used": 3_056.2, "idle": 1_551.8},
        cost_usd={"blocks": 18_432.0, "on_demand": 412.66, "spot": 0.0, "total": 18_844.66, "idle": 6_207.2},
        prices_as_of="2026-11-01",
        series=_series(jobs, nodes),
        journal=_journal(),
        on_demand_equivalent=OnDemandEquivalent(31_703.04, 22_509.16, 18_432.0),
        verdict=Verdict(worth_it=True, savings=SAVINGS),
    )
    return replace(row, **changes)
