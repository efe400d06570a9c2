"""Short scenarios in which every kind of action occurs, and what a right engine makes of each."""

from __future__ import annotations

from typing import Any

from tests.sim import scenario_builder as given
from tests.sim.scenario_builder import PreparedScenario, scenario_with

YES = {"at": "2h", "window": "sprint", "verdict": "approve", "by": "finance"}
BUYS = given.platform(budget={"perPurchaseUsd": 9000, "monthlyUsd": 9000}, approval={"mode": "one"})
AUTO = given.platform(
    budget={"perPurchaseUsd": 9000, "monthlyUsd": 9000},
    approval={"mode": "auto", "autoMaxFeeUsd": 5000, "autoMonthlyUsd": 2500},
)
OVERFLOW = [{"type": "block"}, {"type": "on-demand", "maxHourlyUsd": 130, "maxMonthlyUsd": 1000}]
NEXT = given.block("b", zone="us-east-1b", **{"from": "1h"}, duration="28h")
WINDOW = {"name": "sprint", "instanceType": given.P5, "instances": 2}
LONGER = {**WINDOW, "from": "2026-11-17T07:30:00Z", "to": "2026-11-18T11:00:00Z"}
LATER = {**WINDOW, "from": "2026-11-18T11:30:00Z", "to": "2026-11-19T11:00:00Z"}
AND_LATER = {**LATER, "name": "next", "from": "2026-11-20T11:30:00Z", "to": "2026-11-21T11:00:00Z"}
PAIRED: dict[str, Any] = {"method": "paired", "mayScale": True, "pairNodeSelector": {"tier": "second"}}
SMALL: dict[str, Any] = {"gpus": 2, "cpu": "20", "memory": "100Gi"}


def _served(**handover: Any) -> PreparedScenario:
    service = (
        given.service(zeroDowntime=True, handover=handover) if handover else given.service(zeroDowntime=True)
    )
    return scenario_with(reservations=[given.block("a"), NEXT], services=[service])


SCENARIOS: dict[str, PreparedScenario] = {
    "jobs on a block to its end": scenario_with(
        reservations=[given.block()],
        jobs=[
            given.job(lasts="40m", at=("0s", "10m", "2h", "2h45m"), grace="2m"),
            given.job("slow", lasts="9h", checkpointEvery="20m", checkpointTime="1m", grace="5m", at=("1m",)),
            given.job("small", lasts="20m", at=("5m", "6m", "1h"), **SMALL),
        ],
    ),
    "gangs, one of which loses a member": scenario_with(
        reservations=[given.block(count=3, duration="28h")],
        jobs=[
            given.job("pair", nodes=2, lasts="2h", at=("0s",), checkpointEvery="10m"),
            given.job("one", lasts="1h", at=("1m", "2m")),
            given.job("next", nodes=3, lasts="30m", at=("5m",)),
        ],
        faults=[given.fault("1h", "node-dies")],
        duration="4h",
    ),
    "overflow with caps": scenario_with(
        given.pool(sources=OVERFLOW),
        on=given.platform(budget={"monthlyUsd": 5000}),
        reservations=[given.block(count=1, duration="28h")],
        jobs=[
            given.job(overflow=True, lasts="1h", at=("0s", "1s", "2s")),
            given.job("not", lasts="30m", at=("3s",)),
        ],
        duration="4h",
    ),
    "by the hour, limits and consolidation": scenario_with(
        given.pool(
            sources=[{"type": "on-demand"}],
            limits={"nodes": 3},
            requirements={"instanceTypes": [given.P5, "g6e.12xlarge", "g6e.48xlarge"]},
            disruption={"consolidationPolicy": "WhenEmptyOrUnderutilized"},
        ),
        jobs=[
            given.job("small", lasts="40m", at=("0s", "1s", "2s", "3s", "1h"), checkpointEvery="5m", **SMALL),
            given.job(lasts="20m", at=("10m", "11m", "12m")),
        ],
        services=[given.service(**SMALL)],
        duration="3h",
    ),
    "nodes that never join or have no GPUs": scenario_with(
        reservations=[given.block(duration="28h")],
        jobs=[given.job(lasts="30m")],
        faults=[
            given.fault("0s", "never-joins"),
            given.fault("0s", "gpus-never-register"),
            given.fault("2h", "gpu-fails"),
        ],
        duration="4h",
    ),
    "answers that are lost, a crash and no capacity": scenario_with(
        given.pool(sources=[{"type": "on-demand"}], limits={"nodes": 4}),
        jobs=[given.job(lasts="30m", at=("0s", "20m", "1h"))],
        faults=[
            given.fault("0s", "lost-answer", call="launch"),
            given.fault("19m", "no-capacity", duration="5m"),
            given.fault("59m", "engine-crash", step="after:launch"),
        ],
        duration="3h",
    ),
    "a purchase is approved": scenario_with(
        on=BUYS,
        plans=[given.plan()],
        duration="30h",
        decisions=[YES],
        jobs=[given.job(at=("29h",), lasts="20m")],
    ),
    "purchases without asking, up to a cap": scenario_with(
        on=AUTO, plans=[given.plan(demand=[LATER, AND_LATER])], duration="40h"
    ),
    "a plan with a month of its own": scenario_with(
        on=given.platform(
            budget={"perPurchaseUsd": 9000, "monthlyUsd": 9000},
            approval={"mode": "auto", "autoMaxFeeUsd": 5000},
        ),
        plans=[given.plan(demand=[LATER, AND_LATER], budget={"monthlyUsd": 2500})],
        duration="40h",
    ),
    "a purchase whose answer is lost": scenario_with(
        on=BUYS,
        plans=[given.plan()],
        duration="8h",
        decisions=[YES],
        faults=[given.fault("1h59m", "lost-answer", call="purchase")],
    ),
    "an extension is approved": scenario_with(
        on=BUYS,
        plans=[given.plan(demand=[LONGER])],
        reservations=[given.block()],
        jobs=[given.job(lasts="9h", checkpointEvery="20m")],
        duration="14h",
        decisions=[YES],
    ),
    "extended by hand while it drains": scenario_with(
        given.pool(drain={"lead": "90m"}),
        reservations=[given.block()],
        jobs=[given.job(lasts="9h", checkpointEvery="20m", grace="5m")],
        extensions=[{"at": "2h20m", "block": "a", "by": "24h", "payment": "succeeds", "settlesAfter": "10m"}],
        deadlineAgent=True,
    ),
    "a service leaves a block that jobs use to its end": scenario_with(
        reservations=[given.block("a", count=3), {**NEXT, "count": 2}],
        jobs=[given.job(lasts="30m", at=("0s", "2h20m"))],
        services=[given.service(zeroDowntime=True, load="18m")],
    ),
    "a service that nothing takes over": scenario_with(
        reservations=[given.block(count=2)], services=[given.service(minAvailable=2)]
    ),
    "a service is evicted to the next block": _served(),
    "a service rolls to the next block": _served(method="rollout"),
    "a service scales to the next block": _served(method="scale", mayScale=True),
    "a pair swaps": scenario_with(
        given.pool(),
        given.pool("second"),
        reservations=[given.block("a", pool="train"), {**NEXT, "pool": "second"}],
        services=[given.service(zeroDowntime=True, handover=PAIRED)],
    ),
    "a new image, and pods that must not be disrupted": scenario_with(
        reservations=[given.block(duration="28h")],
        jobs=[
            given.job(lasts="2h", at=("0s",), checkpointEvery="20m"),
            given.job("kept", lasts="3h", at=("1s",), doNotDisrupt=True),
        ],
        rolls=[{"at": "1h", "nodeClass": "gpu", "ami": {"alias": "al2023@v20261115"}}],
        duration="6h",
    ),
    "a higher priority comes": scenario_with(
        reservations=[given.block(duration="28h")],
        jobs=[
            given.job("low", lasts="3h", at=("0s", "1s"), checkpointEvery="10m"),
            given.job("high", lasts="30m", at=("1h",), priority=1000),
        ],
        duration="5h",
    ),
    "empty nodes go within a budget, spot and retirement": scenario_with(
        given.pool(
            sources=[{"type": "spot"}, {"type": "on-demand"}],
            disruption={"budgets": [{"nodes": "1"}], "consolidateAfter": "10m"},
        ),
        jobs=[given.job(lasts="30m", at=("0s", "1s", "2s", "3s"), checkpointEvery="5m", grace="3m")],
        faults=[given.fault("20m", "spot-interruption"), given.fault("25m", "retirement", duration="2h")],
        duration="4h",
    ),
    "two pools share a block, one of them for one team": scenario_with(
        given.pool(weight=10, allowedNamespaces=["research"], labels={"tier": "any"}, admittedPodsOnly=True),
        given.pool("second", labels={"tier": "any"}, limits={"nodes": 1}),
        reservations=[given.block(count=3, duration="28h")],
        jobs=[
            given.job("mine", lasts="1h", at=("0s", "5m"), nodeSelector={"tier": "any"}, team="research"),
            given.job("theirs", lasts="1h", at=("1s", "6m"), nodeSelector={"tier": "any"}, team="others"),
        ],
        duration="4h",
    ),
    "a gang of high priority, and victims that stop slowly": scenario_with(
        reservations=[given.block(count=4, duration="28h")],
        jobs=[
            given.job("low", lasts="4h", at=("0s", "1s"), checkpointEvery="10m", grace="15m"),
            given.job("lowgang", nodes=2, lasts="4h", at=("2s",), checkpointEvery="10m", grace="5m"),
            given.job("high", nodes=3, lasts="30m", at=("1h",), priority=1000),
            given.job("kept", lasts="1h", at=("70m",), priority=500, doNotDisrupt=True),
        ],
        faults=[given.fault("3h", "gpu-fails", count=2)],
        duration="7h",
    ),
    "two services, a short successor and nodes by the hour": scenario_with(
        given.pool(sources=OVERFLOW, limits={"nodes": 9}),
        on=given.platform(budget={"monthlyUsd": 5000}),
        reservations=[
            given.block("a", count=3),
            given.block("c", count=1, zone="us-east-1b"),
            {**NEXT, "count": 1, "from": "2h"},
        ],
        services=[
            given.service(zeroDowntime=True, overflow=True),
            given.service("side", replicas=3, minAvailable=2, zeroDowntime=True, overflow=True, **SMALL),
        ],
        jobs=[given.job("beside", lasts="50m", at=("20m", "2h"), checkpointEvery="10m", **SMALL)],
    ),
    "nodes of Karpenter and of groups": scenario_with(
        given.pool(provisioner="karpenter", sources=[{"type": "on-demand"}], labels={"tier": "train"}),
        given.pool("groups", provisioner="asg", sources=[{"type": "block"}], labels={"tier": "groups"}),
        on=given.platform(karpenter={"version": "1.8.2"}, nodeRole="arn:aws:iam::123456789012:role/ml-node"),
        reservations=[given.block(pool="groups")],
        jobs=[
            given.job(lasts="30m", at=("0s", "10m")),
            given.job("asg", lasts="30m", at=("0s", "2h50m"), nodeSelector={"tier": "groups"}),
            given.job("pair", nodes=2, lasts="1h", at=("40m",), nodeSelector={"tier": "groups"}),
        ],
    ),
    "drift within a budget, and a service": scenario_with(
        given.pool(limits={"nodes": 4}),
        reservations=[given.block(count=3, duration="28h")],
        services=[given.service(zeroDowntime=True)],
        jobs=[given.job("pair", nodes=2, lasts="1h", at=("2h",))],
        rolls=[{"at": "1h", "nodeClass": "gpu", "ami": {"alias": "al2023@v20261115"}}],
        faults=[given.fault("4h", "gpu-fails"), given.fault("4h30m", "engine-absent", duration="20m")],
        duration="6h",
    ),
    "many pods leave at once": scenario_with(
        reservations=[given.block()],
        jobs=[
            given.job(
                "tiny",
                lasts="9h",
                at=[f"{second}s" for second in range(16)],
                checkpointEvery="20m",
                checkpointTime="30s",
                grace="2m",
                gpus=1,
                cpu="10",
                memory="50Gi",
            )
        ],
    ),
}
