"""Rules about other pods through the whole loop: what people write, what the engine opens, what binds where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sim.scenario_builder import block, job, platform, pool, scenario_with, service
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec import names
from tidemill.spec.read import load

EXAMPLE = Path(__file__).parents[2] / "examples" / "services-apart.yaml"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
CHAT = {"matchLabels": {"app": "chat"}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OVER_ZONES = {
    "maxSkew": 1, "topologyKey": names.LABEL_ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": CHAT,
}  # fmt: skip
OFF_EACH_OTHER = {
    "podAntiAffinity": {REQUIRED: [{"topologyKey": names.LABEL_HOSTNAME, "labelSelector": CHAT}]}
}


def zones_of(rehearsal: Rehearsal, workload: str) -> list[str]:
    """Of its pods that are bound at the end, in order."""
    labels = {node.name: dict(node.labels) for node in rehearsal.cluster.view().nodes}
    pods = [pod for pod in rehearsal.cluster.pods.values() if pod.workload == workload and pod.node]
    return sorted(labels[pod.node][names.LABEL_ZONE] for pod in pods)


@pytest.mark.parametrize("seed", [1, 7])
def test_the_example_keeps_its_replicas_apart_and_up(seed: int) -> None:
    loaded = load([EXAMPLE])
    assert loaded.spec is not None
    assert loaded.scenario is not None
    rehearsal = Rehearsal(loaded.spec, loaded.scenario, seed)
    rehearsal.run()
    replicas = [pod for pod in rehearsal.cluster.pods.values() if pod.workload == "Deployment/chat"]
    assert zones_of(rehearsal, "Deployment/chat") == list(ZONES)
    assert len({pod.node for pod in replicas}) == 3
    assert rehearsal.cluster.services["chat"].down(rehearsal.timeline.now()) == ()


def test_nodes_are_opened_in_every_zone_a_service_is_spread_over() -> None:
    wanted = pool(sources=[{"type": "on-demand"}])
    here = platform(subnets={zone: ["subnet-0a1"] for zone in ZONES})
    chat = service(replicas=3, labels={"app": "chat"}, topologySpreadConstraints=[OVER_ZONES])
    rehearsal = scenario_with(wanted, on=here, services=[chat], duration="1h").run()
    assert zones_of(rehearsal, "Deployment/chat") == list(ZONES)


def test_replicas_that_may_not_share_a_host_get_one_each() -> None:
    wanted = pool(sources=[{"type": "on-demand"}])
    small: dict[str, Any] = {"gpus": 1, "cpu": "4", "memory": "16Gi"}
    chat = service(replicas=3, labels={"app": "chat"}, affinity=OFF_EACH_OTHER, **small)
    rehearsal = scenario_with(wanted, services=[chat], duration="1h").run()
    pods = [pod for pod in rehearsal.cluster.pods.values() if pod.workload == "Deployment/chat"]
    assert [bool(pod.node) for pod in pods] == [True] * 3
    assert len({pod.node for pod in pods}) == 3


def test_a_job_runs_only_on_nodes_its_affinity_allows() -> None:
    only_b = {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": names.LABEL_ZONE, "operator": "NotIn", "values": ["us-east-1a"]}
    ]}]}  # fmt: skip
    fit = job(affinity={"nodeAffinity": {REQUIRED: only_b}}, lasts="30m")
    blocks = [block("a", zone="us-east-1a"), block("b", zone="us-east-1b")]
    rehearsal = scenario_with(jobs=[fit], reservations=blocks, duration="2h").run()
    assert rehearsal.cluster.jobs["fit-1"].state == "finished"
    assert rehearsal.cluster.jobs["fit-1"].sources == {rehearsal.cloud.names["b"]}
