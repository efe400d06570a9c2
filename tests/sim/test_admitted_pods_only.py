"""The room of a gang between its decision and its start: a stranger's pod takes it, unless the nodes are held."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.simulated_cluster import BLOCK, SimulatedCluster
from tidemill.model.labels import Toleration
from tidemill.model.pods import Pod, PodShape
from tidemill.sim.scenario.outcome import Outcome
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.sim.scenario.tally import tally
from tidemill.spec import names
from tidemill.spec.read import load

ROOT = Path(__file__).parents[2]
ALL_BUT_OURS = tuple(
    Toleration(key, "Exists")
    for key in ("nvidia.com/gpu", names.TAINT_STARTUP, names.TAINT_DRAINING, "node.kubernetes.io/not-ready")
)


def stranger(simulated: SimulatedCluster) -> Pod:
    shape = PodShape(requests=((names.NVIDIA_GPU, 8),), tolerations=ALL_BUT_OURS)
    return simulated.cluster.create_pod("stranger", shape, namespace="others")


def bound(simulated: SimulatedCluster, namespace: str) -> Iterator[Pod]:
    return (pod for pod in simulated.cluster.pods.values() if pod.namespace == namespace and pod.node)


@pytest.mark.requirement("PE-17")
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_stranger_takes_the_room_of_a_gang_unless_its_nodes_are_held(held: bool, seed: int) -> None:
    simulated = SimulatedCluster(seed=seed, admittedPodsOnly=held)
    simulated.ready_nodes("i-1", "i-2")
    gang = simulated.submit("pair", nodes=2, gpus=8)
    stranger(simulated)
    simulated.pass_time("2s")  # between the decision and the patch
    simulated.cluster.admit([pod.uid for pod in gang], BLOCK.label, None, "p5")
    simulated.pass_time("5m")
    running = [pod for pod in simulated.pods_of("Job/pair") if pod.node]
    assert len(running) == (2 if held else 1)
    assert len(list(bound(simulated, "others"))) == (0 if held else 1)


def test_a_service_of_ours_runs_on_held_nodes() -> None:
    simulated = SimulatedCluster(admittedPodsOnly=True)
    simulated.ready_nodes("i-1")
    simulated.serve(replicas=2, gpus=4)
    simulated.pass_time("5m")
    assert all(pod.node for pod in simulated.pods_of("Deployment/chat"))


def test_held_nodes_carry_the_taint_until_they_go() -> None:
    simulated = SimulatedCluster(admittedPodsOnly=True)
    simulated.ready_nodes("i-1")
    assert names.TAINT_HELD in {taint.key for taint in simulated.node("i-1").taints}


def test_a_whole_rehearsal_on_held_nodes_runs_what_it_runs_on_others() -> None:
    held, usual = rehearsed("kubernetes/admitted-pods-only.yaml"), rehearsed("first-block.yaml")
    assert not held.invariant_violations
    assert [(job.name, job.started, job.finished) for job in held.jobs] == [
        (job.name, job.started, job.finished) for job in usual.jobs
    ]


def rehearsed(example: str) -> Outcome:
    loaded = load([ROOT / "examples" / example])
    rehearsal = Rehearsal(loaded.checked_spec(), loaded.checked_scenario(), 1)
    rehearsal.run()
    return tally(rehearsal, scenario=example, wall_s=0.0)
