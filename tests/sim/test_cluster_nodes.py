"""A node's life: join, registration window, check, ready, drain, death; and what faults do to it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.sim.rehearsal_builder import BLOCK, Stage, seconds
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.nodes import InstanceState
from tidemill.model.pods import PodShape
from tidemill.model.reasons import DrainKind, DrainReason
from tidemill.model.resources import amount
from tidemill.spec import names

GPU_POD = PodShape(((names.CPU, 100), (names.NVIDIA_GPU, 1)))


@pytest.mark.requirement("PE-10")
def test_a_node_joins_registers_and_is_checked_within_the_known_times() -> None:
    stage = Stage()
    launched = stage.now
    stage.launch("i-1", "i-2", "i-3")
    stage.pass_time("10m")
    for each in ("i-1", "i-2", "i-3"):
        truth = stage.cluster.nodes[each]
        assert truth.joined_at
        assert truth.registered_at
        assert truth.checked_at
        assert timedelta(minutes=3) <= truth.joined_at - launched <= timedelta(minutes=5)
        assert seconds(60) <= truth.registered_at - truth.joined_at <= seconds(90)
        assert seconds(20) <= truth.checked_at - truth.registered_at <= seconds(40)
        assert truth.ready_at is None, "only the engine opens a node"
    assert len({stage.cluster.nodes[each].joined_at for each in ("i-1", "i-2", "i-3")}) > 1


@pytest.mark.requirement("PE-10")
def test_every_phase_of_a_nodes_life_can_be_read_off_its_record() -> None:
    stage = Stage()
    stage.ready_nodes("i-1")
    name = stage.node("i-1").name
    stage.cluster.start_drain(name, DrainReason(DrainKind.SOURCE_ENDS, name="cr-1"))
    stage.pass_time("5m")
    stage.lose("i-1")
    stage.cluster.remove_node(name)
    truth = stage.cluster.nodes["i-1"]
    instants = [
        truth.launched_at, truth.joined_at, truth.registered_at, truth.checked_at, truth.ready_at,
        truth.draining_since, truth.gone_at,
    ]  # fmt: skip
    assert None not in instants
    assert instants == sorted(instant for instant in instants if instant)


def test_a_fresh_node_has_labels_and_taints_but_no_accelerators() -> None:
    stage = Stage(taints=[{"key": "team", "value": "a"}], startupTaints=[{"key": "cni.example/unready"}])
    stage.launch("i-1")
    while not stage.cluster.view().nodes:
        stage.pass_time("1s")
    node = stage.node("i-1")
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
    stage.pass_time("3m")
    node = stage.node("i-1")
    assert amount(node.allocatable, names.NVIDIA_GPU) == 8
    assert amount(node.allocatable, names.EFA) == 32
    assert node.check == "passed"
    assert [taint.key for taint in node.taints] == ["team", names.TAINT_STARTUP]


@pytest.mark.requirement("PE-9")
def test_a_pod_that_comes_before_the_gpus_is_refused_and_its_successor_runs() -> None:
    stage = Stage()
    stage.launch("i-1")
    stage.serve(replicas=1, gpus=1, tolerate=[names.TAINT_STARTUP])
    stage.pass_time("10m")
    refusals = stage.told("pod-admission-failed")
    registered_at = stage.cluster.nodes["i-1"].registered_at
    assert refusals
    assert registered_at is not None
    assert all("OutOfnvidia.com/gpu" in line.sentence for line in refusals)
    assert all(line.at < registered_at for line in refusals)
    (pod,) = stage.pods_of("Deployment/chat")
    assert pod.ready
    assert pod.message == ""


@pytest.mark.requirement("PE-9")
def test_the_successor_of_a_refused_job_pod_is_gated_says_why_and_costs_no_attempt() -> None:
    stage = Stage()
    stage.launch("i-1")
    (pod,) = stage.submit(gpus=8, tolerate=[names.TAINT_STARTUP], backoffLimit=0)
    stage.cluster.admit(pod.uid, BLOCK.label, None)
    while not stage.told("pod-admission-failed"):
        stage.pass_time("1s")
    assert stage.pods_of("Job/train-1") == [], "a failed pod is finished and its successor waits ten seconds"
    stage.pass_time("10s")
    (successor,) = stage.pods_of("Job/train-1")
    assert successor.gated
    assert "OutOfnvidia.com/gpu" in successor.message
    stage.pass_time("3m")
    stage.admit_all()
    stage.pass_time("1m")
    assert stage.cluster.jobs["train-1"].state == "running"
    assert stage.cluster.jobs["train-1"].failures == 0


@pytest.mark.requirement("PE-9")
def test_a_pod_bound_by_name_is_refused_before_registration_and_admitted_after() -> None:
    stage = Stage()
    stage.launch("i-1")
    while not stage.cluster.view().nodes:
        stage.pass_time("1s")
    early = stage.cluster.create_pod("early", GPU_POD, node=stage.node("i-1").name)
    assert stage.pod(early.uid) is None
    stage.pass_time("2m")
    late = stage.cluster.create_pod("late", GPU_POD, node=stage.node("i-1").name)
    stage.pass_time("15s")
    running = stage.pod(late.uid)
    assert running is not None
    assert running.started_at


@pytest.mark.requirement("PE-9")
def test_gpus_that_never_register_leave_the_node_registering() -> None:
    stage = Stage()
    stage.cluster.gpus_never_register(1, "p5")
    stage.launch("i-1", "i-2")
    stage.pass_time("1h")
    assert stage.node("i-1").accelerators_registered_at is None
    assert stage.node("i-1").check == ""
    assert stage.node("i-2").check == "passed"


def test_pools_differ_in_taints_and_sources() -> None:
    stage = Stage()
    stage.launch("i-g6", pool="g6", kind="g6.xlarge", source=Source(SourceKind.ON_DEMAND))
    stage.pass_time("10m")
    assert stage.node("i-g6").taints[0].key == "nvidia.com/gpu"
    assert dict(stage.node("i-g6").labels)[names.LABEL_SOURCE] == "on-demand"


def test_late_and_never_joining_nodes_are_those_the_fault_names() -> None:
    stage = Stage()
    stage.cluster.never_join(1, "i-2")
    stage.cluster.late_join(1, timedelta(minutes=20), BLOCK.label)
    stage.launch("i-1", "i-2", "i-3")
    stage.pass_time("6m")
    assert [node.instance_id for node in stage.cluster.view().nodes] == ["i-3"]
    stage.pass_time("1h")
    assert [node.instance_id for node in stage.cluster.view().nodes] == ["i-1", "i-3"]


def test_instances_of_pools_that_are_not_ours_join_elsewhere() -> None:
    stage = Stage()
    stage.launch("i-foreign", pool="")
    stage.pass_time("10m")
    assert stage.cluster.view().nodes == ()


def test_an_instance_that_ends_before_it_joined_never_becomes_a_node() -> None:
    stage = Stage()
    stage.launch("i-1")
    stage.pass_time("1m")
    stage.lose("i-1", InstanceState.TERMINATED)
    stage.pass_time("10m")
    assert stage.cluster.view().nodes == ()
    assert stage.cluster.nodes["i-1"].gone_at


@pytest.mark.requirement("PE-17")
def test_a_gpu_that_fails_after_ready_fails_the_check_and_the_pod_that_held_it() -> None:
    stage = Stage()
    stage.ready_nodes("i-1")
    (pod,) = stage.run_job()
    struck = stage.cluster.fail_gpu("p5")
    node = stage.node("i-1")
    assert struck == node.name
    assert (node.check, node.check_message) == ("failed", "Xid 79: GPU has fallen off the bus")
    assert amount(node.allocatable, names.NVIDIA_GPU) == 7
    (successor,) = stage.pods_of("Job/train-1")
    assert successor.gated
    assert successor.uid != pod.uid
    assert stage.cluster.jobs["train-1"].failures == 1
    stage.admit_all()
    stage.pass_time("1m")
    assert "Insufficient nvidia.com/gpu" in stage.pods_of("Job/train-1")[0].message


def test_a_gpu_fault_with_no_ready_node_strikes_the_next_check() -> None:
    stage = Stage()
    assert stage.cluster.fail_gpu() == ""
    stage.launch("i-1")
    stage.pass_time("10m")
    assert stage.node("i-1").check == "failed"
    assert len(stage.told("node-check-failed")) == 1


def test_a_dead_instance_leaves_a_node_that_is_not_ready_and_forgotten_after_five_minutes() -> None:
    stage = Stage()
    stage.ready_nodes("i-1")
    stage.lose("i-1")
    assert stage.node("i-1").ready is False
    assert stage.node("i-1").ready_changed_at == stage.now
    stage.lose("i-1", InstanceState.TERMINATED)
    stage.pass_time("4m59s")
    assert len(stage.cluster.view().nodes) == 1
    stage.pass_time("1s")
    assert stage.cluster.view().nodes == ()
    assert len(stage.told("node-gone")) == 1


def test_a_node_the_engine_removed_is_not_removed_again() -> None:
    stage = Stage()
    stage.ready_nodes("i-1")
    name = stage.node("i-1").name
    stage.lose("i-1")
    stage.cluster.remove_node(name)
    stage.pass_time("10m")
    assert len(stage.told("node-gone")) == 1


@pytest.mark.requirement("PE-6")
def test_the_idle_timer_restarts_when_a_pod_comes_and_when_it_goes() -> None:
    stage = Stage()
    stage.ready_nodes("i-1")
    assert stage.node("i-1").last_pod_event_at is None, "the daemon pod does not count"
    assert [pod.daemon for pod in stage.cluster.pods_on("i-1")] == [True]
    stage.run_job(lasts="1h")
    came_at = stage.node("i-1").last_pod_event_at
    assert came_at is not None
    stage.pass_time("2h")
    gone_at = stage.node("i-1").last_pod_event_at
    assert gone_at == stage.cluster.jobs["train-1"].finished
    assert gone_at is not None
    assert gone_at > came_at


def test_counts_gpus_ready_and_used_by_source() -> None:
    stage = Stage()
    stage.launch("i-1")
    stage.pass_time("9m")
    assert stage.cluster.gpus_ready() == 0, "checked but not opened"
    stage.cluster.mark_ready(stage.node("i-1").name)
    assert stage.cluster.gpus_ready_by_source() == {BLOCK.label: 8}
    stage.run_job(gpus=4)
    assert stage.cluster.gpus_used_by_source() == {BLOCK.label: 4}
    before = stage.cluster.changes
    stage.lose("i-1")
    assert stage.cluster.changes != before
    assert (stage.cluster.gpus_ready(), stage.cluster.gpus_used()) == (0, 0)
