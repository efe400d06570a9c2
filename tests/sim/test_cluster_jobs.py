"""Jobs on the simulated cluster: they start, work, checkpoint, lose pods, come back, finish or fail."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.sim.simulated_cluster import BLOCK, SimulatedCluster, seconds
from tidemill.model.nodes import InstanceState
from tidemill.model.pods import Gang
from tidemill.spec.units import parse_duration


def test_a_job_is_one_gated_pod_with_its_terms() -> None:
    simulated = SimulatedCluster()
    (pod,) = simulated.submit(grace="90s", checkpointEvery="30m", team="vision", priority=3)
    assert pod.gated
    assert pod.workload == "Job/train-1"
    assert pod.namespace == "vision"
    assert pod.gang is None
    assert pod.terms.grace == seconds(90)
    assert pod.terms.expected == timedelta(hours=2)
    assert (pod.terms.team, pod.terms.priority) == ("vision", 3)


def test_a_job_finishes_after_loading_and_its_work_and_its_pods_vanish() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1")
    simulated.run_job(lasts="1h", load="5m")
    job = simulated.cluster.jobs["train-1"]
    simulated.pass_time("2h")
    assert job.started is not None
    assert job.finished == job.started + timedelta(hours=1, minutes=5)
    assert simulated.state_of("train-1") == "finished"
    assert job.sources == {BLOCK.label}
    assert simulated.pods_of("Job/train-1") == []
    assert simulated.cluster.gpus_used() == 0


def test_a_gang_works_only_while_all_its_members_run() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1", "i-2")
    first, second = simulated.submit(nodes=2, lasts="1h")
    assert first.gang == second.gang == Gang("train-1", 2)
    simulated.cluster.admit([first.uid], BLOCK.label, None)
    simulated.pass_time("30m")
    job = simulated.cluster.jobs["train-1"]
    assert simulated.state_of("train-1") == "pending"
    simulated.cluster.admit([second.uid], BLOCK.label, None)
    simulated.pass_time("20s")
    assert simulated.state_of("train-1") == "running"
    simulated.pass_time("1h")
    assert simulated.state_of("train-1") == "finished"
    assert job.started is not None
    assert job.finished == job.started + timedelta(hours=1)


@pytest.mark.requirement("PE-17")
def test_a_gang_that_loses_a_member_makes_no_progress_until_all_members_run_again() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1", "i-2", "i-3")
    simulated.run_job(nodes=2, lasts="4h", checkpointEvery="1h")
    job = simulated.cluster.jobs["train-1"]
    simulated.pass_time("90m")
    dead = simulated.pods_of("Job/train-1")[0].node.partition(".")[0]
    simulated.end_instance(dead)
    survivor, successor = sorted(simulated.pods_of("Job/train-1"), key=lambda pod: pod.gated)
    assert survivor.node
    assert successor.gated
    assert successor.name.endswith("-1"), "the second attempt"
    assert (job.state, job.restarts, job.failures) == ("pending", 1, 1)
    assert job.progress.saved == timedelta(hours=1)
    assert seconds(29 * 60) < job.lost_work <= seconds(31 * 60)
    simulated.pass_time("5h")
    assert simulated.state_of("train-1") == "pending", "the survivor alone makes no progress"
    simulated.admit_all()
    simulated.pass_time("3h1m")
    assert simulated.state_of("train-1") == "finished"


def test_a_job_that_never_checkpoints_starts_again_from_nothing() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1")
    (pod,) = simulated.run_job(lasts="2h")
    simulated.pass_time("90m")
    simulated.cluster.evict(pod.uid)
    job = simulated.cluster.jobs["train-1"]
    assert job.progress.saved == timedelta(0)
    assert job.lost_work > timedelta(minutes=85)
    simulated.pass_time("1m")
    simulated.admit_all()
    simulated.pass_time("1h59m")
    assert simulated.state_of("train-1") == "running"
    simulated.pass_time("2m")
    assert simulated.state_of("train-1") == "finished"


def test_an_acknowledged_checkpoint_saves_the_work_done_when_it_was_asked_for() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1")
    (pod,) = simulated.run_job(lasts="4h", checkpointEvery="2h", checkpointTime="3m")
    simulated.pass_time("1h")
    job = simulated.cluster.jobs["train-1"]
    done = job.progress.done(simulated.now)
    simulated.cluster.request_checkpoint(pod.uid)
    asked_at = simulated.now
    simulated.pass_time("2m59s")
    assert (now := simulated.pod(pod.uid)) is not None
    assert now.checkpoint_requested_at == asked_at
    assert now.checkpoint_done_at is None
    simulated.pass_time("1s")
    assert (now := simulated.pod(pod.uid)) is not None
    assert now.checkpoint_done_at == simulated.now
    simulated.cluster.evict(pod.uid)
    assert job.progress.saved == done
    assert job.lost_work == timedelta(minutes=3)


def test_a_gangs_checkpoint_counts_when_every_member_has_written_its_part() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1", "i-2")
    first, second = simulated.run_job(nodes=2, lasts="4h", checkpointEvery="2h", checkpointTime="1m")
    simulated.pass_time("30m")
    job = simulated.cluster.jobs["train-1"]
    simulated.cluster.request_checkpoint(first.uid)
    simulated.pass_time("1m")
    assert job.progress.saved == timedelta(0)
    simulated.cluster.request_checkpoint(second.uid)
    simulated.pass_time("1m")
    assert timedelta(minutes=30) < job.progress.saved <= timedelta(minutes=32)


@pytest.mark.parametrize("fields", [{"acknowledges": False, "checkpointEvery": "1h"}, {}])
def test_a_pod_that_does_not_acknowledge_leaves_the_request_open(fields: dict[str, Any]) -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1")
    (pod,) = simulated.run_job(lasts="4h", **fields)
    simulated.cluster.request_checkpoint(pod.uid)
    simulated.pass_time("30m")
    assert (now := simulated.pod(pod.uid)) is not None
    assert now.checkpoint_requested_at
    assert now.checkpoint_done_at is None


def test_evictions_and_disruptions_spare_the_back_off_limit() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1")
    job_pods = simulated.run_job(backoffLimit=0, grace="30s")
    for forced in (False, True):
        (pod,) = job_pods
        if forced:
            simulated.cluster.delete(pod.uid, 10, disruption=True)
        else:
            simulated.cluster.evict(pod.uid)
        simulated.pass_time("1m")
        simulated.admit_all()
        simulated.pass_time("1m")
        job_pods = simulated.pods_of("Job/train-1")
    assert simulated.state_of("train-1") == "running"
    assert simulated.cluster.jobs["train-1"].restarts == 2


def test_a_plain_deletion_of_a_running_pod_counts_against_the_back_off_limit() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1")
    (pod,) = simulated.run_job(backoffLimit=0)
    simulated.cluster.delete(pod.uid, None, disruption=False)
    assert simulated.state_of("train-1") == "failed"


def test_past_its_back_off_limit_a_job_fails_and_its_pods_go() -> None:
    simulated = SimulatedCluster()
    simulated.ready_nodes("i-1", "i-2")
    simulated.run_job(nodes=2, backoffLimit=0, grace="1m")
    simulated.end_instance(
        simulated.pods_of("Job/train-1")[0].node.partition(".")[0], InstanceState.TERMINATED
    )
    job = simulated.cluster.jobs["train-1"]
    assert (job.state, job.finished) == ("failed", simulated.now)
    assert "was killed" in job.reason
    assert [pod.deleting_until for pod in simulated.pods_of("Job/train-1")] == [simulated.now + seconds(60)]
    simulated.pass_time("1m")
    assert simulated.pods_of("Job/train-1") == []


def test_a_job_not_finished_by_its_deadline_is_late() -> None:
    simulated = SimulatedCluster()
    simulated.submit(deadline="1h")
    job = simulated.cluster.jobs["train-1"]
    assert not job.late(simulated.now + timedelta(minutes=59))
    assert job.late(simulated.now + timedelta(minutes=61))


def _a_day(seed: int) -> list[tuple[str, str, str, str]]:
    simulated = SimulatedCluster(seed=seed)
    simulated.serve(load="2m", minAvailable=1)
    simulated.ready_nodes("i-1", "i-2", "i-3")
    for number in range(6):
        simulated.run_job(f"train-{number}", lasts="50m", gpus=4, checkpointEvery="10m")
        simulated.pass_time("7m")
    simulated.end_instance("i-2")
    simulated.cluster.fail_gpu()
    simulated.admit_all()
    simulated.pass_time("6h")
    return [(str(line.at), line.kind, line.about, line.sentence) for line in simulated.journal.lines]


def test_the_same_seed_gives_the_same_day_and_another_seed_another() -> None:
    assert _a_day(3) == _a_day(3)
    assert _a_day(3) != _a_day(4)


def test_the_number_of_reads_changes_nothing() -> None:
    def story(step: str) -> list[object]:
        simulated = SimulatedCluster()
        simulated.launch("i-1")
        simulated.serve(replicas=1, tolerate=["tidemill.dev/starting"])
        for _ in range(int(timedelta(minutes=30) / parse_duration(step))):
            simulated.pass_time(step)
            simulated.cluster.view()
        return list(simulated.journal.lines)

    assert story("1s") == story("10m")
