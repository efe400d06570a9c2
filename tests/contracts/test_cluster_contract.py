"""The contract of `ports.Cluster` on the simulated cluster."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.contracts.cluster_contract import *  # noqa: F403
from tests.contracts.cluster_contract import SOURCE, Backend
from tests.sim.simulated_cluster import BLOCK, SimulatedCluster, job_stream
from tidemill.model.nodes import KubeNode
from tidemill.model.pods import Pod, PodPhase
from tidemill.ports import Cluster

assert BLOCK.label == SOURCE


class SimBackend:
    def __init__(self) -> None:
        self._stage = SimulatedCluster()
        self.cluster: Cluster = self._stage.cluster
        self.wakes = self._stage.wakes
        self._stream = job_stream(
            grace="60s", checkpointEvery="30m", checkpointTime="2m", duration={"fixed": "2h"}
        )
        self._made = 0

    def now(self) -> datetime:
        return self._stage.now

    def settle(self, duration: timedelta) -> None:
        self._stage.timeline.advance(self._stage.now + duration)

    # --- nodes ---

    def joined_node(self) -> KubeNode:
        self._made += 1
        self._stage.launch(instance := f"i-{self._made}")
        while not any(node.instance_id == instance for node in self.cluster.view().nodes):
            self.settle(timedelta(seconds=1))
        return self._stage.node(instance)

    def register(self, node: KubeNode) -> None:
        self._stage.pass_time("10m")

    def fresh_node(self) -> KubeNode:
        node = self.joined_node()
        self.register(node)
        return self._stage.node(node.instance_id)

    def _ready_node(self) -> None:
        self.cluster.mark_ready(self.fresh_node().name)

    def lose(self, node: str) -> None:
        (found,) = [each for each in self.cluster.view().nodes if each.name == node]
        self._stage.end_instance(found.instance_id)
        self.settle(timedelta(seconds=90))

    # --- pods ---

    def gated_job_pod(self) -> Pod:
        self._made += 1
        self._stage.cluster.submit_job(self._stream, name := f"job-{self._made}", timedelta(hours=2))
        return self._stage.pods_of(f"Job/{name}")[0]

    def gated_gang(self) -> list[Pod]:
        self._ready_node()
        self._ready_node()
        return self._stage.submit("gang", nodes=2)

    def bound_pod(self, ends_at: datetime | None) -> Pod:
        self._ready_node()
        pod = self.gated_job_pod()
        self.cluster.admit([pod.uid], SOURCE, ends_at)
        while not (now := self._now(pod)).node:
            self.settle(timedelta(milliseconds=100))
        assert now.phase is PodPhase.PENDING
        return now

    def running_job_pod(self) -> Pod:
        pod = self.bound_pod(None)
        self.settle(timedelta(seconds=20))
        return self._now(pod)

    def _now(self, pod: Pod) -> Pod:
        return self._stage.cluster.pods[pod.uid]

    def acknowledge(self, pod: Pod) -> None:
        self.settle(timedelta(minutes=3))

    def crash(self, pod: Pod) -> None:
        assert self._stage.cluster.fail_gpu(self._instance_of(pod)) == pod.node

    def _instance_of(self, pod: Pod) -> str:
        return next(node.instance_id for node in self.cluster.view().nodes if node.name == pod.node)

    def finish(self, pod: Pod) -> None:
        self.settle(timedelta(hours=3))

    def failures(self, pod: Pod) -> int:
        return self._stage.cluster.jobs[pod.workload.partition("/")[2]].failures

    # --- services ---

    def service_at_its_minimum(self) -> Pod:
        self._ready_node()
        self._stage.serve(replicas=1, minAvailable=1, grace="60s")
        self.settle(timedelta(minutes=1))
        return self._stage.pods_of("Deployment/chat")[0]

    def rolling_service(self) -> str:
        self._ready_node()
        self._ready_node()
        self._stage.serve(
            "roll", replicas=2, handover={"method": "rollout", "maxSurge": 1, "maxUnavailable": 0}
        )
        self.settle(timedelta(minutes=1))
        return "Deployment/roll"


@pytest.fixture
def backend() -> Backend:
    return SimBackend()
