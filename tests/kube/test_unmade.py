"""Admitted Jobs that make no pods do not keep their room for ever."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.kube import manifests as m
from tests.kube.test_held_jobs import GANG, OF_TRAIN, started
from tests.kube.test_translation import Cluster as TranslatedCluster
from tidemill.engine.clock import WallClock
from tidemill.kube.unmade import LIMIT, REST
from tidemill.model.pods import Pod
from tidemill.spec import names

MINUTE = timedelta(minutes=1)


class _Clock(WallClock):
    """Moved by hand."""

    def __init__(self) -> None:
        self.instant = super().now()

    def now(self) -> datetime:
        return self.instant


class Cluster(TranslatedCluster):
    def __init__(self) -> None:
        self.clock = _Clock()
        super().__init__(self.clock)

    def pass_time(self, duration: timedelta) -> None:
        self.clock.instant += duration


def claims(cluster: Cluster) -> set[tuple[bool, bool, str]]:
    shown = [pod for pod in cluster.view.pods if "." in pod.uid]
    return {(pod.gated, pod.held_by_others, pod.pinned_to) for pod in shown}


def test_the_room_of_a_job_that_makes_no_pods_goes_to_others_after_a_while():
    cluster = Cluster()
    cluster.put("Job", started())
    cluster.pass_time(LIMIT - MINUTE)
    assert claims(cluster) == {(False, False, "cr-1")}
    cluster.pass_time(MINUTE)
    assert claims(cluster) == {(False, True, "cr-1")}
    pod: Pod = cluster.view.pods[0]
    assert (
        pod.message == "it was admitted, and its controller made no pods for 15m: see the events of Job train"
    )
    cluster.put("Pod", *(m.pending(name, metadata=OF_TRAIN) for name in "xyz"))  # the quota was raised
    assert {pod.uid for pod in cluster.view.pods} == {"uid-x", "uid-y", "uid-z"}


def test_a_pod_that_failed_is_waited_for_anew():
    cluster = Cluster()
    cluster.put("Job", started())
    cluster.pass_time(LIMIT - MINUTE)
    cluster.put("Job", m.merged(started(), {"status": {"failed": 1}}))
    cluster.pass_time(LIMIT - MINUTE)
    assert claims(cluster) == {(False, False, "cr-1")}


def test_a_gang_that_runs_in_part_is_shown_as_broken_and_rests_once_it_was_stopped():
    cluster = Cluster()
    cluster.put("Job", started())
    cluster.put("Pod", m.pod("x", metadata=OF_TRAIN), m.pod("y", metadata=OF_TRAIN))
    assert claims(cluster) == {(False, False, "cr-1")}
    cluster.pass_time(LIMIT)
    assert claims(cluster) == {(True, False, "")}  # the engine stops a gang with a gated member
    cluster.remove("Pod", "uid-x", "uid-y")
    cluster.put("Job", m.job(metadata={"labels": GANG}, spec={"parallelism": 3, "completions": 3}))
    assert claims(cluster) == {(True, True, "")}
    cluster.pass_time(REST)
    assert claims(cluster) == {(True, False, "")}


def test_what_was_deleted_is_forgotten():
    cluster = Cluster()
    cluster.put("Job", started())
    cluster.pass_time(LIMIT)
    cluster.remove("Job", "uid-train")
    assert not cluster.view.pods
    cluster.put("Job", started())
    assert claims(cluster) == {(False, False, "cr-1")}


def test_after_a_restart_the_wait_counts_from_the_resumption():
    cluster = Cluster()
    resumed = {"type": "Suspended", "status": "False", "lastTransitionTime": m.CREATED}  # long ago
    cluster.put("Job", m.merged(started(), {"status": {"conditions": [resumed]}}))
    assert claims(cluster) == {(False, True, "cr-1")}


def test_a_job_that_is_listed_before_its_pods_is_not_called_late(caplog: pytest.LogCaptureFixture):
    cluster = Cluster()
    resumed = {"type": "Suspended", "status": "False", "lastTransitionTime": m.CREATED}
    cluster.put("Job", m.merged(started(), {"status": {"conditions": [resumed]}}))
    cluster.put("Pod", *(m.pod(name, metadata=OF_TRAIN) for name in "xyz"))
    assert claims(cluster) == set()
    cluster.remove("Pod", "uid-x")  # somebody deleted it: the Job makes another at once
    assert claims(cluster) == {(False, False, "cr-1")}
    assert not caplog.records


@pytest.mark.parametrize(
    ("order", "depends"),
    [
        ({}, {"dependsOn": [{"name": "load", "status": "Complete"}]}),
        ({"startupPolicy": {"startupPolicyOrder": "InOrder"}}, {}),
    ],
)
def test_a_job_set_that_makes_its_pods_in_turn_is_not_stopped_for_those_to_come(order, depends):
    """An initializer may run for hours before the trainers are made; they are not lost."""
    template = m.merged(m.template(), {"spec": {"nodeSelector": {names.LABEL_SOURCE: "cr-1"}}})
    part = {"replicas": 1, "template": {"spec": {"parallelism": 1, "completions": 1, "template": template}}}
    jobs = [{"name": "load", **part}, {"name": "train", **part, **depends}]
    one = {"metadata": m.meta("big"), "spec": {"replicatedJobs": jobs, **order}}
    labels = {"jobset.sigs.k8s.io/jobset-name": "big", "jobset.sigs.k8s.io/replicatedjob-name": "load"}
    of_load = {"ownerReferences": m.owner("Job", "big-load-0"), "labels": labels}
    cluster = Cluster()
    cluster.put("JobSet", one).put("Pod", m.pod("big-load-0-0", metadata=of_load))
    assert claims(cluster) == {(False, False, "cr-1")}
    cluster.pass_time(10 * LIMIT)
    assert claims(cluster) == {(False, False, "cr-1")}
    # It has run: from now on the trainers are late.
    done = {"status": {"replicatedJobsStatus": [{"name": "load", "succeeded": 1}]}}
    cluster.remove("Pod", "uid-big-load-0-0").put(
        "JobSet", m.merged({**one, "metadata": m.meta("big")}, done)
    )
    assert claims(cluster) == {(False, False, "cr-1")}
    cluster.pass_time(LIMIT)
    assert claims(cluster) == {(False, True, "cr-1")}
