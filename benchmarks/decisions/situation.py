"""One situation: documents, what the best would be, and short ways to write pools, blocks and jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemill.catalog import load
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.node_class import NodeClass
from tidemill.spec.platform import Platform
from tidemill.spec.scenario import Scenario

START = datetime(2026, 11, 2, 11, 30, tzinfo=UTC)
TYPE = "p5.48xlarge"
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Situation:
    name: str
    about: str
    pools: tuple[Document, ...]
    world: Document  # the Scenario's spec
    usd: Callable[[Rehearsal], float] | None = None  # the least money by the hour that does the work
    longest_wait: timedelta | None = None  # nobody needs to wait longer
    counted_wait: str = ""  # the stream whose wait counts; empty: all
    launches: int | None = None  # the work needs no more nodes to boot
    platform: Document = field(default_factory=dict)

    def spec(self) -> Spec:
        platform = {
            "region": "us-east-1",
            "deployment": "bench",
            "cluster": {"name": "bench"},
            "subnets": {"us-east-1a": ["subnet-a"], "us-east-1b": ["subnet-b"]},
            "budget": {"monthlyUsd": 10_000_000},
            **self.platform,
        }
        image = {"amiSelectorTerms": [{"alias": "al2023@v20261101"}]}
        return Spec(
            platform=Platform.model_validate({"metadata": {"name": "bench"}, "spec": platform}),
            catalog=load(),
            node_classes={"gpu": NodeClass.model_validate({"metadata": {"name": "gpu"}, "spec": image})},
            pools={
                one["name"]: ComputePool.model_validate(
                    {"metadata": {"name": one["name"]}, "spec": one["spec"]}
                )
                for one in self.pools
            },
        )

    def scenario(self) -> Scenario:
        return Scenario.model_validate(
            {"metadata": {"name": self.name}, "spec": {"start": START, **self.world}}
        )


def pool(name: str = "train", *sources: Document, nodes: int = 64, **more: Any) -> Document:
    spec = {
        "nodeClassName": "gpu",
        "sources": list(sources) or [{"type": "block"}],
        "requirements": {"instanceTypes": [TYPE]},
        "labels": {"workload-type": name},
        "taints": [{"key": "nvidia.com/gpu", "value": "true"}],
        "limits": {"nodes": nodes},
        **more,
    }
    return {"name": name, "spec": spec}


BLOCK: Document = {"type": "block"}
HOURLY: Document = {"type": "on-demand", "maxHourlyUsd": 5000, "maxMonthlyUsd": 1_000_000}
ON_DEMAND: Document = {"type": "on-demand"}


def block(
    count: int, *, start: str = "0s", duration: str = "7d", name: str = "block", **more: Any
) -> Document:
    return {
        "name": name, "instanceType": TYPE, "count": count, "zone": "us-east-1a", "from": start,
        "duration": duration, **more,
    }  # fmt: skip


def jobs(
    name: str, duration: str | Document, arrivals: Document, *, gpus: int = 8, nodes: int = 1, at: str = "train",
    **more: Any,
) -> Document:  # fmt: skip
    share = gpus / 8
    return {
        "name": name, "nodeSelector": {"workload-type": at}, "gpus": gpus, "nodes": nodes,
        "cpu": f"{round(160_000 * share)}m", "memory": f"{round(1_500 * share)}Gi", "grace": "1m",
        "duration": {"fixed": duration} if isinstance(duration, str) else duration, "arrivals": arrivals, **more,
    }  # fmt: skip


def small(load: float, nodes: int, **more: Any) -> Document:
    """One-hour jobs of one GPU that keep so much of the nodes busy."""
    return jobs("small", "1h", {"perHour": load * nodes * 8}, gpus=1, **more)


RESUMABLE: Document = {"checkpointEvery": "30m", "checkpointTime": "2m"}
