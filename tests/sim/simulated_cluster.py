"""A small simulated cluster for the tests: one pool of p5.48xlarge, one of g6, and methods for what tests do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tidemill.catalog import load
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.nodes import Instance, InstanceState, KubeNode
from tidemill.model.pods import Pod
from tidemill.sim.cluster.cluster import SimCluster
from tidemill.sim.timeline import Journal, Line, Timeline
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.platform import Platform
from tidemill.spec.scenario import JobStream, Service
from tidemill.spec.units import parse_duration

START = datetime(2026, 11, 16, 11, 30, tzinfo=UTC)
BLOCK = Source(SourceKind.BLOCK, "cr-0a1b2c3d4e5f60718")


def pool(name: str, **spec: Any) -> ComputePool:
    return ComputePool.model_validate({"metadata": {"name": name}, "spec": {"nodeClassName": "gpu", **spec}})


def small_spec(**p5: Any) -> Spec:
    platform = {"region": "us-west-2", "deployment": "tides", "cluster": {"name": "tides"}}
    pools = [pool("p5", labels={"tier": "train"}, **p5), pool("g6", taints=[{"key": "nvidia.com/gpu"}])]
    return Spec(
        platform=Platform.model_validate({"metadata": {"name": "tides"}, "spec": platform}),
        catalog=load(),
        pools={each.name: each for each in pools},
    )


class SimulatedCluster:
    def __init__(
        self, *, seed: int = 1, verbose: bool = True, suspended_jobs: bool = False, **p5: Any
    ) -> None:
        self.timeline = Timeline(START)
        self.journal = Journal(self.timeline.now)
        self.wakes: list[str] = []
        spec = small_spec(**p5)
        self.cluster = SimCluster(
            self.timeline,
            self.journal,
            spec.catalog,
            spec,
            seed=seed,
            wake=self.wakes.append,
            verbose=verbose,
            suspended_jobs=suspended_jobs,
        )
        self._instances: dict[str, Instance] = {}

    # --- time ---------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return self.timeline.now()

    def pass_time(self, duration: str) -> None:
        self.timeline.advance(self.now + parse_duration(duration))

    # --- nodes --------------------------------------------------------------------------------------

    def launch(
        self,
        *ids: str,
        pool: str = "p5",
        kind: str = "p5.48xlarge",
        source: Source = BLOCK,
        zone: str = "us-west-2a",
    ) -> None:
        for each in ids:
            instance = Instance(
                each, kind, zone, source, InstanceState.RUNNING, self.now, owner="tides", pool=pool
            )
            self._instances[each] = instance
            self.cluster.instance_changed(instance)

    def end_instance(self, instance_id: str, state: InstanceState = InstanceState.SHUTTING_DOWN) -> None:
        before = self._instances[instance_id]
        self.cluster.instance_changed(
            Instance(
                before.id, before.instance_type, before.zone, before.source, state, before.launched_at,
                owner=before.owner, pool=before.pool,
            )
        )  # fmt: skip

    def ready_nodes(self, *ids: str, **how: Any) -> None:
        """Launched, joined, registered, checked and opened: ten minutes later."""
        self.launch(*ids, **how)
        self.pass_time("9m")
        for each in ids:
            self.cluster.mark_ready(self.node(each).name)
        self.pass_time("1m")

    def node(self, instance_id: str) -> KubeNode:
        return next(node for node in self.cluster.view().nodes if node.instance_id == instance_id)

    # --- work ---------------------------------------------------------------------------------------

    def submit(self, name: str = "train-1", lasts: str = "2h", **fields: Any) -> list[Pod]:
        self.cluster.submit_job(job_stream(**fields), name, parse_duration(lasts))
        return self.pods_of(f"Job/{name}")

    def run_job(self, name: str = "train-1", lasts: str = "2h", **fields: Any) -> list[Pod]:
        """Submitted, admitted to the block, and running."""
        for pod in self.submit(name, lasts, **fields):
            self.cluster.admit([pod.uid], BLOCK.label, None)
        self.pass_time("20s")
        return self.pods_of(f"Job/{name}")

    def admit_all(self) -> None:
        for pod in self.cluster.view().pods:
            if pod.gated:
                self.cluster.admit([pod.uid], BLOCK.label, None)

    def serve(self, name: str = "chat", **fields: Any) -> None:
        defaults: dict[str, Any] = {"replicas": 2, "gpus": 4}
        self.cluster.start_service(Service.model_validate({"name": name, **defaults, **fields}))

    def pods_of(self, workload: str) -> list[Pod]:
        return [pod for pod in self.cluster.view().pods if pod.workload == workload]

    def state_of(self, job: str) -> str:
        return self.cluster.jobs[job].state

    def pod(self, uid: str) -> Pod | None:
        return self.cluster.pods.get(uid)

    # --- the story ----------------------------------------------------------------------------------

    def journal_lines(self, kind: str) -> list[Line]:
        return [line for line in self.journal.lines if line.kind == kind]


def job_stream(**fields: Any) -> JobStream:
    defaults: dict[str, Any] = {
        "name": "train", "arrivals": {"at": ["0s"]}, "duration": {"fixed": "2h"}, "gpus": 8, "cpu": "8",
    }  # fmt: skip
    return JobStream.model_validate({**defaults, **fields})


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)
