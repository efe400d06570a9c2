"""A job as its user sees it, from objects as an API server has them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidemill.render.job_text import log_text, progress_line, table_rows
from tidemill.report.training_jobs import JobState, is_training_job, job_row, pod_rows
from tidemill.spec import names

pytestmark = pytest.mark.requirement("PE-15")
NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
HELD = {names.JOB: "pretrain", names.HELD_BY: names.HELD_BY_US}


def job(*, suspend: bool = False, labels: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    limits = {names.NVIDIA_GPU: "8", names.EFA: "32"}
    template = {
        "metadata": {"annotations": {names.EXPECTED_DURATION: "6h"}},
        "spec": {
            "containers": [{"name": "main", "resources": {"limits": limits}}],
            "nodeSelector": {names.LABEL_POOL: "gpu"},
            "terminationGracePeriodSeconds": 150,
        },
    }
    return {
        "kind": "Job",
        "metadata": {
            "name": "pretrain", "namespace": "ml", "uid": "u-1", "labels": HELD if labels is None else labels,
            "creationTimestamp": "2026-11-18T08:00:00Z",
        },
        "spec": {"suspend": suspend, "parallelism": 4, "completions": 4, "template": template},
        "status": status,
    }  # fmt: skip


def event(
    reason: str, message: str, *, uid: str = "u-1", at: str = "09:00:00", earliest: str = ""
) -> dict[str, Any]:
    notes = {"annotations": {names.EARLIEST_START: earliest}} if earliest else {}
    return {
        "metadata": {"creationTimestamp": "2026-11-18T08:00:00Z", **notes},
        "involvedObject": {"uid": uid}, "reason": reason, "message": message,
        "eventTime": f"2026-11-18T{at}.123456Z",
    }  # fmt: skip


def condition(kind: str, **more: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "lastTransitionTime": "2026-11-18T11:00:00Z", **more}


def test_a_held_job_waits_with_the_last_reason_and_its_earliest_start():
    events = [
        event("WaitingHeld", "Block cr-1 starts later", at="10:00:00", earliest="2026-11-18T11:37:00Z"),
        event("WaitingImpossible", "No source has four nodes", at="09:00:00"),
        event("WaitingHeld", "of another", uid="u-2", at="11:00:00"),
    ]
    row = job_row(job(suspend=True), events)
    assert (row.state, row.nodes, row.gpus, row.pool) == (JobState.WAITING, 4, 32, "gpu")
    assert (row.code, row.reason) == ("WaitingHeld", "Block cr-1 starts later")
    assert row.earliest == datetime(2026, 11, 18, 11, 37, tzinfo=UTC)
    assert progress_line(row) == "waits. Block cr-1 starts later. It could run from 18 Nov 11:37 UTC."


def test_an_event_that_was_repeated_counts_from_its_last_time():
    old = event("WaitingHeld", "old", at="09:00:00") | {
        "series": {"lastObservedTime": "2026-11-18T11:30:00.000000Z"}
    }
    assert job_row(job(suspend=True), [old, event("WaitingLimit", "new", at="10:00:00")]).reason == "old"


def test_what_was_said_before_it_was_admitted_is_not_why_it_starts_slowly():
    events = [
        event("WaitingHeld", "no room", at="09:00:00"),
        event("Admitted", "nodes are free", at="10:00:00"),
    ]
    row = job_row(job(startTime="2026-11-18T10:00:00Z", active=4, ready=1), events)
    assert (row.state, row.reason) == (JobState.STARTING, "")
    assert progress_line(row) == "starts, 1 of 4 pods ready."


def test_a_reason_from_before_its_start_is_over_even_if_nobody_said_so():
    events = [event("WaitingHeld", "no room", at="09:00:00")]
    assert job_row(job(startTime="2026-11-18T10:00:00Z", active=4), events).reason == ""
    assert job_row(job(startTime="2026-11-18T08:59:59Z", active=4), events).reason == "no room"


def test_a_pod_that_waits_for_its_node_says_so_for_the_job():
    pod = {"metadata": {"uid": "p-1"}}
    row = job_row(job(active=4), [event("WaitingStarting", "Its node joins", uid="p-1")], [pod])
    assert row.reason == "Its node joins"


def test_a_job_nobody_spoke_of_says_that():
    assert progress_line(job_row(job(suspend=True))) == "waits. Tidemill has said nothing about it yet."


def test_a_running_job_shows_how_long_it_has_run_and_was_expected_to():
    row = job_row(job(startTime="2026-11-18T10:30:00Z", active=4, ready=4))
    assert row.state is JobState.RUNNING
    assert row.elapsed(NOW) == timedelta(minutes=90)
    (cells,) = table_rows([row], NOW, with_namespace=False)
    assert cells == ("pretrain", "running", "4", "32", "1h 30m / 6h", "", "")


def test_ranks_that_are_done_are_not_waited_for():
    assert job_row(job(active=1, ready=1, succeeded=3)).state is JobState.RUNNING


def test_who_holds_it_is_told_apart():
    kueue = {names.JOB: "pretrain", names.KUEUE_QUEUE: "research"}
    assert job_row(job(suspend=True, labels=kueue)).state is JobState.QUEUED
    assert job_row(job(suspend=True, labels={names.JOB: "pretrain"})).state is JobState.SUSPENDED


def test_the_end_says_how_it_went():
    done = job_row(job(startTime="2026-11-18T10:00:00Z", succeeded=4, conditions=[condition("Complete")]))
    assert done.state is JobState.DONE
    assert progress_line(done) == "is done after 1h."
    why = condition(
        "Failed", reason="BackoffLimitExceeded", message="Job has reached the specified backoff limit"
    )
    failed = job_row(job(conditions=[why]))
    assert (failed.state, failed.code) == (JobState.FAILED, "BackoffLimitExceeded")
    assert progress_line(failed) == "failed. Job has reached the specified backoff limit."


def test_a_job_set_is_read_like_a_job():
    inner = job()["spec"]
    spec = {
        "suspend": False,
        "replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": inner}}],
    }
    running = {"replicatedJobsStatus": [{"name": "node", "ready": 1}]}
    row = job_row(job() | {"kind": "JobSet", "spec": spec, "status": running})
    assert (row.state, row.nodes, row.gpus, row.expected) == (JobState.RUNNING, 4, 32, timedelta(hours=6))
    done = job_row(
        job() | {"kind": "JobSet", "spec": spec, "status": {"conditions": [condition("Completed")]}}
    )
    assert done.state is JobState.DONE


def test_jobs_of_others_are_not_listed_and_parts_of_something_bigger_neither():
    assert is_training_job(job())
    assert is_training_job(job(labels={names.GANG: "x"}))
    assert not is_training_job(job(labels={}))
    part = job()
    part["metadata"]["ownerReferences"] = [{"kind": "JobSet", "controller": True}]
    assert not is_training_job(part)


def test_pods_are_in_the_order_of_their_ranks_and_the_newest_of_a_rank_last():
    def pod(name: str, rank: str, at: str) -> dict[str, Any]:
        index = {"batch.kubernetes.io/job-completion-index": rank}
        meta = {"name": name, "uid": name, "annotations": index, "creationTimestamp": f"2026-11-18T{at}Z"}
        return {"metadata": meta, "status": {"phase": "Running"}}

    rows = pod_rows([pod("c", "10", "08:00:00"), pod("b", "2", "09:00:00"), pod("a", "2", "08:00:00")])
    assert [row.name for row in rows] == ["a", "b", "c"]


def test_lines_have_their_rank_in_front_where_there_are_several():
    assert log_text(3, "loss 2", ranks=16) == "[ 3] loss 2"
    assert log_text(0, "loss 2", ranks=1) == "loss 2"
