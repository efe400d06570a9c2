"""The filter rules of kube-scheduler, one row each, in the simulator and in the engine; order and packing of a pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.sim.simulated_cluster import BLOCK, START, SimulatedCluster
from tidemill.decide import scheduler_rules
from tidemill.model.labels import Expression, Taint, Toleration
from tidemill.model.nodes import KubeNode
from tidemill.model.pods import PodShape, Terms
from tidemill.model.reasons import DrainKind, DrainReason
from tidemill.sim.cluster.scheduler import choose, explain, node_rejection
from tidemill.sim.cluster.scheduler_cache import NodeInfo, pod_requests
from tidemill.sim.cluster.scheduler_filters import matches_expression, tolerates
from tidemill.spec import names

NODE = KubeNode(
    "n1", "i-1", START, True, (),
    labels=(("tier", "train"), (names.LABEL_SOURCE, "cr-1"), (names.LABEL_ZONE, "us-1a")),
    taints=(Taint("nvidia.com/gpu", "present"),),
)  # fmt: skip
TRAIN, SERVE = (Expression("tier", "In", ("train",)),), (Expression("tier", "In", ("serve",)),)
TOLERANT = (Toleration("nvidia.com/gpu", "Exists"),)


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration("nvidia.com/gpu", "Exists"), True),
        (Toleration("nvidia.com/gpu", "Equal", "present"), True),
        (Toleration("nvidia.com/gpu", "Equal", "absent"), False),
        (Toleration("nvidia.com/gpu", "Equal"), False),
        (Toleration("other", "Exists"), False),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="NoExecute"), False),
        (Toleration("nvidia.com/gpu", "Exists", effect="NoSchedule"), True),
        (Toleration("nvidia.com/gpu", "Exists", effect="NoExecute"), False),
    ],
)
def test_simulator_and_engine_match_a_toleration_by_key_operator_value_and_effect(
    toleration: Toleration, expected: bool
) -> None:
    assert tolerates((toleration,), NODE.taints[0]) is expected
    assert scheduler_rules.tolerates((toleration,), NODE.taints[0]) is expected


@pytest.mark.parametrize(
    ("shape", "pinned_to", "node", "expected"),
    [
        (PodShape(tolerations=TOLERANT), "", NODE, ""),
        (PodShape(), "", NODE, "node(s) had untolerated taint {nvidia.com/gpu: present}"),
        (PodShape(), "", replace(NODE, taints=(Taint("x", effect="PreferNoSchedule"),)), ""),
        (PodShape(), "", replace(NODE, taints=(Taint("x", effect="NoExecute"),)), "untolerated taint {x: }"),
        (PodShape(tolerations=TOLERANT, node_selector=(("tier", "train"),)), "", NODE, ""),
        (PodShape(tolerations=TOLERANT, node_selector=(("tier", "serve"),)), "", NODE, "affinity/selector"),
        (PodShape(tolerations=TOLERANT, node_selector=(("gone", "x"),)), "", NODE, "affinity/selector"),
        (PodShape(tolerations=TOLERANT), "cr-1", NODE, ""),
        (PodShape(tolerations=TOLERANT), "cr-2", NODE, "affinity/selector"),
        (PodShape(tolerations=TOLERANT, node_terms=(TRAIN,)), "", NODE, ""),
        (PodShape(tolerations=TOLERANT, node_terms=(SERVE, TRAIN)), "", NODE, ""),
        (PodShape(tolerations=TOLERANT, node_terms=(SERVE,)), "", NODE, "affinity/selector"),
        (PodShape(tolerations=TOLERANT, node_terms=(TRAIN + SERVE,)), "", NODE, "affinity/selector"),
        (PodShape(tolerations=TOLERANT, volume_zones=("us-1b", "us-1a")), "", NODE, ""),
        (PodShape(tolerations=TOLERANT, volume_zones=("us-1b",)), "", NODE, "volume node affinity"),
        (PodShape(tolerations=TOLERANT), "", replace(NODE, ready=False), "not-ready"),
        (PodShape(tolerations=TOLERANT), "", replace(NODE, unschedulable=True), "unschedulable"),
    ],
)
def test_a_node_is_ruled_out_for_the_reason_kubernetes_gives(
    shape: PodShape, pinned_to: str, node: KubeNode, expected: str
) -> None:
    reason = node_rejection(shape, pinned_to, node)
    assert (expected in reason) if expected else reason == ""


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (Expression("memory", "Gt", ("7",)), True),
        (Expression("memory", "Gt", ("8",)), False),
        (Expression("memory", "Lt", ("9",)), True),
        (Expression("memory", "Lt", ("8",)), False),
        (Expression("tier", "Gt", ("1",)), False),  # not a number
        (Expression("memory", "Gt", ("many",)), False),
        (Expression("memory", "Lt", (str(2**63),)), False),  # more than 64 bits
        (Expression("tier", "NotIn", ("serve",)), True),
        (Expression("tier", "NotIn", ("train",)), False),
        (Expression("gone", "NotIn", ("x",)), True),
        (Expression("gone", "In", ("x",)), False),
        (Expression("tier", "Exists"), True),
        (Expression("gone", "Exists"), False),
        (Expression("gone", "DoesNotExist"), True),
        (Expression("tier", "DoesNotExist"), False),
    ],
)
def test_simulator_and_engine_match_an_expression_as_kubernetes_does(
    expression: Expression, expected: bool
) -> None:
    labels = {"tier": "train", "memory": "8"}
    assert matches_expression(expression, labels) is expected
    assert scheduler_rules.holds(expression, labels) is expected


def node_info(name: str, cpu: int = 4000, gpus: int = 8, used: int = 0) -> NodeInfo:
    made = NodeInfo(
        replace(NODE, name=name),
        ((names.CPU, cpu), (names.MEMORY, 2**40), (names.NVIDIA_GPU, gpus), (names.PODS, 10)),
    )
    made.take(((names.NVIDIA_GPU, used),))
    return made


def test_packs_onto_the_fullest_node_that_still_fits() -> None:
    want = pod_requests(PodShape(((names.CPU, 100), (names.NVIDIA_GPU, 2))))
    nodes = [node_info("a"), node_info("b", used=4), node_info("c", used=7)]
    chosen = choose(want, nodes)
    assert chosen is not None
    assert chosen.node.name == "b"


def test_the_first_name_wins_a_tie() -> None:
    chosen = choose(pod_requests(PodShape(((names.CPU, 100),))), [node_info("a"), node_info("b")])
    assert chosen is not None
    assert chosen.node.name == "a"


def test_every_pod_takes_a_slot_of_the_pod_limit() -> None:
    full = NodeInfo(NODE, ((names.CPU, 4000), (names.PODS, 1)))
    small = pod_requests(PodShape(((names.CPU, 1),)))
    full.take(small)
    assert full.insufficient(small) == [names.PODS]


def test_says_why_nothing_fits_as_kube_scheduler_does() -> None:
    want = pod_requests(PodShape(((names.CPU, 5000), (names.NVIDIA_GPU, 1))))
    said = explain(want, [node_info("a"), node_info("b", used=8)], Counter({"node(s) were unschedulable": 2}))
    assert said == (
        "0/4 nodes are available: 2 Insufficient cpu, 1 Insufficient nvidia.com/gpu, "
        "2 node(s) were unschedulable."
    )
    assert explain(want, [], Counter()) == "no nodes available to schedule pods"


def test_a_waiting_pod_carries_the_schedulers_message() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1")
    simulated.run_job("first")
    (waiting,) = simulated.run_job("second")
    assert waiting.message == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    assert not waiting.node


def test_the_message_follows_the_nodes_there_are() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1", "i-2")
    (waiting,) = simulated.run_job(nodeSelector={"tier": "serve"})
    assert waiting.message.startswith("0/2 nodes are available: 2 node(s) didn't match")
    simulated.cluster.remove_node(simulated.node("i-2").name)
    simulated.pass_time("1s")
    assert simulated.pods_of("Job/train-1")[0].message.startswith(
        "0/1 nodes are available: 1 node(s) didn't match"
    )


def test_gated_and_held_pods_are_not_considered() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1")
    (gated,) = simulated.submit("gated", gpus=1)
    held = simulated.cluster.create_pod("held", PodShape(((names.CPU, 1),)), held_by_others=True)
    simulated.pass_time("1m")
    assert [pod.node for pod in (simulated.pod(gated.uid), simulated.pod(held.uid)) if pod] == ["", ""]
    simulated.cluster.hold(held.uid, held=False)
    simulated.pass_time("1m")
    released = simulated.pod(held.uid)
    assert released is not None
    assert released.node


def test_the_draining_taint_keeps_new_pods_away() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1", "i-2")
    simulated.cluster.start_drain(simulated.node("i-1").name, DrainReason(DrainKind.SOURCE_ENDS, name="cr-1"))
    (pod,) = simulated.run_job()
    assert pod.node == simulated.node("i-2").name


def test_higher_priority_goes_first_then_the_older() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1")
    whole = PodShape(((names.NVIDIA_GPU, 8),))
    later_but_higher = [
        simulated.cluster.create_pod("a-low", whole), simulated.cluster.create_pod("b-high", whole, Terms(priority=5))
    ]  # fmt: skip
    simulated.pass_time("30s")
    assert [pod.name for pod in later_but_higher if (now := simulated.pod(pod.uid)) and now.node] == [
        "b-high"
    ]


def test_terminating_pods_still_hold_their_resources() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1")
    (running,) = simulated.run_job("first", grace="5m")
    simulated.cluster.evict(running.uid)
    (second,) = simulated.run_job("second")
    assert not second.node
    simulated.pass_time("5m")
    assert simulated.pods_of("Job/second")[0].node


def test_a_pod_pinned_to_a_source_without_nodes_waits() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1")
    (pod,) = simulated.submit()
    simulated.cluster.admit([pod.uid], "cr-elsewhere", None)
    simulated.pass_time("1m")
    waiting = simulated.pod(pod.uid)
    assert waiting is not None
    assert waiting.pinned_to != BLOCK.label
    assert "didn't match Pod's node affinity/selector" in waiting.message
