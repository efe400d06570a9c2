"""A node's life: join, registration window, check, ready, drain, death; and what faults do to it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.sim.simulated_cluster import BLOCK, SimulatedCluster, seconds
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.nodes import InstanceState
from tidemill.model.pods import PodShape
from tidemill.model.reasons import DrainKind, DrainReason
from tidemill.model.resources import amount
from tidemill.spec import names

GPU_POD = PodShape(((names.CPU, 100), (names.NVIDIA_GPU, 1)))


@pytest.mark.requirement("PE-10")
def test_a_node_joins_registers_and_is_checked_within_the_known_times() -> None:
    simulated = SimulatedCluster()
    launched = simulated.now
    simulated.launch("i-1", "i-2", "i-3")
    simulated.pass_time("10m")
    for each in ("i-1", "i-2", "i-3"):
        truth = simulated.cluster.nodes[each]
        assert truth.joined_at
        assert truth.registered_at
        assert truth.checked_at
        assert timedelta(minutes=3) <= truth.joined_at - launched <= timedelta(minutes=5)
        assert seconds(60) <= truth.registered_at - truth.joined_at <= seconds(90)
        assert seconds(20) <= truth.checked_at - truth.registered_at <= seconds(40)
        assert truth.ready_at is None, "only the engine opens a node"
    assert len({simulated.cluster.nodes[each].joined_at for each in ("i-1", "i-2", "i-3")}) > 1


@pytest.mark.requirement("PE-10")
def test_every_phase_of_a_nodes_life_can_be_read_off_its_record() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1")
    name = simulated.node("i-1").name
    simulated.cluster.start_drain(name, DrainReason(DrainKind.SOURCE_ENDS, name="cr-1"))
    simulated.pass_time("5m")
    simulated.end_instance("i-1")
    simulated.cluster.remove_node(name)
    truth = simulated.cluster.nodes["i-1"]
    instants = [
        truth.launched_at, truth.joined_at, truth.registered_at, truth.checked_at, truth.ready_at,
        truth.draining_since, truth.gone_at,
    ]  # fmt: skip
    assert None not in instants
    assert instants == sorted(instant for instant in instants if instant)


def test_a_fresh_node_has_labels_and_taints_but_no_accelerators() -> None:
    simulated = SimulatedCluster(
        taints=[{"key": "team", "value": "a"}], startupTaints=[{"key": "cni.example/unready"}]
    )
    simulated.launch("i-1")
    while not simulated.cluster.view().nodes:
        simulated.pass_time("1s")
    node = simulated.node("i-1")
    labels = dict(node.labels)
    assert labels["tier"] == "train"
    assert labels[names.LABEL_POOL] == "p5"
    assert labels[names.LABEL_SOURCE] == BLOCK.label
    assert labels[names.LABEL_ZONE] == "us-west-2a"
    assert labels[names.LABEL_TYPE] == "p5.48xlarge"
    assert labels[names.LABEL_ARCH] == "amd64"
    assert labels[names.LABEL_HOSTNAME] == node.name == "i-1.us-west-2.compute.internal"
    assert [taint.key for taint in node.taints] == ["team", "cni.example/unready", names.TAINT_STARTUP]
    assert amount(node.allocatable, names.NVIDIA_GPU) == amount(node.allocatable, names.EFA) == 0
    assert node.accelerators_registered_at is None
    simulated.pass_time("3m")
    node = simulated.node("i-1")
    assert amount(node.allocatable, names.NVIDIA_GPU) == 8
    assert amount(node.allocatable, names.EFA) == 32
    assert node.check == "passed"
    assert [taint.key for taint in node.taints] == ["team", names.TAINT_STARTUP]


@pytest.mark.requirement("PE-9")
def test_a_pod_that_comes_before_the_gpus_is_refused_and_its_successor_runs() -> None:
    simulated = SimulatedCluster()
    simulated.launch("i-1")
    simulated.serve(replicas=1, gpus=1, tolerate=[names.TAINT_STARTUP])
    simulated.pass_time("10m")
    refusals = simulated.journal_lines("pod-admission-failed")
    registered_at = simulated.cluster.nodes["i-1"].registered_at
    assert refusals
    assert registered_at is not None
    assert all("OutOfnvidia.com/gpu" in line.sentence for line in refusals)
    assert all(line.at < registered_at for line in refusals)
    (pod,) = simulated.pods_of("Deployment/chat")
    assert pod.ready
    assert pod.message == ""


@pytest.mark.requirement("PE-9")
def test_the_successor_of_a_refused_job_pod_is_gated_says_why_and_costs_no_attempt() -> None:
    simulated = SimulatedCluster()
    simulated.launch("i-1")
    (pod,) = simulated.submit(gpus=8, tolerate=[names.TAINT_STARTUP], backoffLimit=0)
    simulated.cluster.admit([pod.uid], BLOCK.label, None)
    while not simulated.journal_lines("pod-admission-failed"):
        simulated.pass_time("1s")
    assert simulated.pods_of("Job/train-1") == [], (
        "a failed pod is finished and its successor waits ten seconds"
    )
    simulated.pass_time("10s")
    (successor,) = simulated.pods_of("Job/train-1")
    assert successor.gated
    assert "OutOfnvidia.com/gpu" in successor.message
    simulated.pass_time("3m")
    simulated.admit_all()
    simulated.pass_time("1m")
    assert simulated.cluster.jobs["train-1"].state == "running"
    assert simulated.cluster.jobs["train-1"].failures == 0


@pytest.mark.requirement("PE-9")
def test_a_pod_bound_by_name_is_refused_before_registration_and_admitted_after() -> None:
    simulated = SimulatedCluster()
    simulated.launch("i-1")
    while not simulated.cluster.view().nodes:
        simulated.pass_time("1s")
    early = simulated.cluster.create_pod("early", GPU_POD, node=simulated.node("i-1").name)
    assert simulated.pod(early.uid) is None
    simulated.pass_time("2m")
    late = simulated.cluster.create_pod("late", GPU_POD, node=simulated.node("i-1").name)
    simulated.pass_time("15s")
    running = simulated.pod(late.uid)
    assert running is not None
    assert running.started_at


@pytest.mark.requirement("PE-9")
def test_gpus_that_never_register_leave_the_node_registering() -> None:
    simulated = SimulatedCluster()
    simulated.cluster.gpus_never_register(1, "p5")
    simulated.launch("i-1", "i-2")
    simulated.pass_time("1h")
    assert simulated.node("i-1").accelerators_registered_at is None
    assert simulated.node("i-1").check == "running"
    assert simulated.node("i-2").check == "passed"


def test_pools_differ_in_taints_and_sources() -> None:
    simulated = SimulatedCluster()
    simulated.launch("i-g6", pool="g6", kind="g6.xlarge", source=Source(SourceKind.ON_DEMAND))
    simulated.pass_time("10m")
    assert simulated.node("i-g6").taints[0].key == "nvidia.com/gpu"
    assert dict(simulated.node("i-g6").labels)[names.LABEL_SOURCE] == "on-demand"


def test_late_and_never_joining_nodes_are_those_the_fault_names() -> None:
    simulated = SimulatedCluster()
    simulated.cluster.never_join(1, "i-2")
    simulated.cluster.late_join(1, timedelta(minutes=20), BLOCK.label)
    simulated.launch("i-1", "i-2", "i-3")
    simulated.pass_time("6m")
    assert [node.instance_id for node in simulated.cluster.view().nodes] == ["i-3"]
    simulated.pass_time("1h")
    assert [node.instance_id for node in simulated.cluster.view().nodes] == ["i-1", "i-3"]


def test_instances_of_pools_that_are_not_ours_join_elsewhere() -> None:
    simulated = SimulatedCluster()
    simulated.launch("i-foreign", pool="")
    simulated.pass_time("10m")
    assert simulated.cluster.view().nodes == ()


def test_an_instance_that_ends_before_it_joined_never_becomes_a_node() -> None:
    simulated = SimulatedCluster()
    simulated.launch("i-1")
    simulated.pass_time("1m")
    simulated.end_instance("i-1", InstanceState.TERMINATED)
    simulated.pass_time("10m")
    assert simulated.cluster.view().nodes == ()
    assert simulated.cluster.nodes["i-1"].gone_at


@pytest.mark.requirement("PE-17")
def test_a_gpu_that_fails_after_ready_fails_the_check_and_the_pod_that_held_it() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1")
    (pod,) = simulated.run_job()
    struck = simulated.cluster.fail_gpu("p5")
    node = simulated.node("i-1")
    assert struck == node.name
    assert (node.check, node.check_message) == ("failed", "Xid 79: GPU has fallen off the bus")
    assert amount(node.allocatable, names.NVIDIA_GPU) == 7
    (successor,) = simulated.pods_of("Job/train-1")
    assert successor.gated
    assert successor.uid != pod.uid
    assert simulated.cluster.jobs["train-1"].failures == 1
    simulated.admit_all()
    simulated.pass_time("1m")
    assert "Insufficient nvidia.com/gpu" in simulated.pods_of("Job/train-1")[0].message


def test_a_gpu_fault_with_no_ready_node_strikes_the_next_check() -> None:
    simulated = SimulatedCluster()
    assert simulated.cluster.fail_gpu() == ""
    simulated.launch("i-1")
    simulated.pass_time("10m")
    assert simulated.node("i-1").check == "failed"
    assert len(simulated.journal_lines("node-check-failed")) == 1


def test_a_dead_instance_leaves_a_node_that_is_not_ready_and_forgotten_after_five_minutes() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1")
    simulated.end_instance("i-1")
    assert simulated.node("i-1").ready is False
    assert simulated.node("i-1").ready_changed_at == simulated.now
    simulated.end_instance("i-1", InstanceState.TERMINATED)
    simulated.pass_time("4m59s")
    assert len(simulated.cluster.view().nodes) == 1
    simulated.pass_time("1s")
    assert simulated.cluster.view().nodes == ()
    assert len(simulated.journal_lines("node-gone")) == 1


def test_a_node_the_engine_removed_is_not_removed_again() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1")
    name = simulated.node("i-1").name
    simulated.end_instance("i-1")
    simulated.cluster.remove_node(name)
    simulated.pass_time("10m")
    assert len(simulated.journal_lines("node-gone")) == 1


@pytest.mark.requirement("PE-6")
def test_the_idle_timer_restarts_when_a_pod_comes_and_when_it_goes() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1")
    assert simulated.node("i-1").last_pod_event_at is None, "the daemon pod does not count"
    assert [pod.daemon for pod in simulated.cluster.pods_on("i-1")] == [True]
    simulated.run_job(lasts="1h")
    came_at = simulated.node("i-1").last_pod_event_at
    assert came_at is not None
    simulated.pass_time("2h")
    gone_at = simulated.node("i-1").last_pod_event_at
    assert gone_at == simulated.cluster.jobs["train-1"].finished
    assert gone_at is not None
    assert gone_at > came_at


def test_counts_gpus_ready_and_used_by_source() -> None:
    simulated = SimulatedCluster()
    simulated.launch("i-1")
    simulated.pass_time("9m")
    assert simulated.cluster.gpus_ready() == 0, "checked but not opened"
    simulated.cluster.mark_ready(simulated.node("i-1").name)
    assert simulated.cluster.gpus_ready_by_source() == {BLOCK.label: 8}
    simulated.run_job(gpus=4)
    assert simulated.cluster.gpus_used_by_source() == {BLOCK.label: 4}
    before = simulated.cluster.changes
    simulated.end_instance("i-1")
    assert simulated.cluster.changes != before
    assert (simulated.cluster.gpus_ready(), simulated.cluster.gpus_used()) == (0, 0)


def test_without_a_node_check_nothing_reports_on_a_node_and_it_registers_all_the_same() -> None:
    simulated = SimulatedCluster()
    simulated.cluster.without_node_checks()
    simulated.launch("i-1")
    simulated.pass_time("10m")
    node = simulated.node("i-1")
    assert (node.check, node.accelerators_registered_at is not None) == ("", True)
