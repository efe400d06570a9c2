"""Suspended Jobs are shown as the pods they will make."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.kube import manifests as m
from tests.kube.test_translation import Cluster
from tidemill.kube import pod_state
from tidemill.kube.held_jobs import MAX_SHOWN, pods_it_will_make
from tidemill.model.pods import MAX_GANG_PODS, Gang
from tidemill.model.resources import amount
from tidemill.spec import names

GANG = {names.GANG: "g"}


def shown(one: dict[str, Any], kind: str = "Job") -> Any:
    return Cluster().put(kind, one).view.pods


def test_a_single_pod_of_a_held_job():
    (pod,) = shown(m.job(metadata={"annotations": {names.EXPECTED_DURATION: "2h"}}))
    assert (pod.uid, pod.full_name, pod.workload) == ("uid-train.0", "team/train-0", "Job/team/train")
    assert (pod.gated, pod.held_by_others, pod.gang, pod.node) == (True, False, None, "")
    assert amount(pod.shape.requests, "nvidia.com/gpu") == 8  # a limit in a template is the request
    assert pod.terms.expected == timedelta(hours=2)  # the Job says it for its template


def test_a_job_that_somebody_else_suspended_is_theirs():
    (pod,) = shown(m.job(metadata={"labels": {names.HELD_BY: None}}))
    assert (pod.gated, pod.held_by_others) == (False, True)


@pytest.mark.requirement("PE-20")
def test_a_job_that_kueue_queued_after_we_suspended_it_is_kueues():
    (pod,) = shown(m.job(metadata={"labels": {names.KUEUE_QUEUE: "research"}}))
    assert (pod.gated, pod.held_by_others) == (False, True)


@pytest.mark.parametrize(
    "changed",
    [
        {"spec": {"suspend": False}},
        {"metadata": {"deletionTimestamp": m.CREATED}},
        {"status": {"conditions": [{"type": "Complete", "status": "True"}]}},
        {"metadata": {"ownerReferences": m.owner("JobSet", "big")}},
        {"spec": {"parallelism": 0}},
    ],
)
def test_what_has_no_pods_to_come(changed):
    assert shown(m.job(**changed)) == ()


def test_a_gang_has_the_size_of_its_parallelism():
    pods = shown(m.job(metadata={"labels": GANG}, spec={"parallelism": 4, "completions": 4}))
    assert [pod.uid for pod in pods] == [f"uid-train.{index}" for index in range(4)]
    assert {pod.gang for pod in pods} == {Gang("g", 4)}
    assert len({id(pod.shape) for pod in pods}) == 1


def test_what_has_succeeded_is_not_waited_for():
    pods = shown(
        m.job(metadata={"labels": GANG}, spec={"parallelism": 4, "completions": 4}, status={"succeeded": 1})
    )
    assert {pod.gang for pod in pods} == {Gang("g", 3)}
    assert len(pods) == 3


def test_many_completions_without_a_gang_are_not_whole():
    cluster = Cluster().put("Job", m.job(spec={"parallelism": 2, "completions": 10}))
    assert [pod.gang for pod in cluster.view.pods] == [None, None]
    job = cluster.state.job("uid-train.1")
    assert job is not None
    assert not job.whole
    for spec in ({"parallelism": 1, "completions": 5},):
        one = Cluster().put("Job", m.job(spec=spec)).state.job("uid-train")
        assert one is not None
        assert not one.whole


def test_a_job_of_a_million_pods_is_bounded():
    assert len(shown(m.job(spec={"parallelism": 10**6, "completions": 10**6}))) == MAX_SHOWN


@pytest.mark.requirement("PE-17")
@pytest.mark.parametrize(
    ("size", "count"), [(2500, 2500), (MAX_GANG_PODS, MAX_GANG_PODS), (MAX_GANG_PODS + 1, MAX_SHOWN)]
)
def test_a_gang_is_shown_whole_unless_none_of_its_size_is_started(size: int, count: int):
    pods = shown(m.job(metadata={"labels": GANG}, spec={"parallelism": size, "completions": size}))
    assert len(pods) == count
    assert {pod.gang for pod in pods} == {Gang("g", size)}


def test_the_priority_of_a_template_is_that_of_its_class():
    cluster = Cluster().put("Job", m.job(spec={"template": {"spec": {"priorityClassName": "high"}}}))
    assert cluster.view.pods[0].terms.priority == 0
    cluster.put("PriorityClass", {"metadata": m.meta("high", ""), "value": 1000})
    assert cluster.view.pods[0].terms.priority == 1000
    cluster.remove("PriorityClass", "uid-high")
    assert cluster.view.pods[0].terms.priority == 0
    cluster.put("PriorityClass", {"metadata": m.meta("usual", ""), "value": 5, "globalDefault": True})
    cluster.put("Job", m.job("other"))
    assert {pod.workload: pod.terms.priority for pod in cluster.view.pods}["Job/team/other"] == 5


def test_admission_replaces_the_shown_pods_by_the_real_ones():
    gang = {"labels": GANG, "annotations": {names.EXPECTED_DURATION: "3h"}}
    held = m.job(metadata=gang, spec={"parallelism": 2, "completions": 2})
    cluster = Cluster().put("Job", held, listed=True)
    assert len(cluster.view.pods) == 2
    started = m.job(
        metadata={**gang, "labels": {**GANG, names.HELD_BY: None}},
        spec={"suspend": False, "parallelism": 2, "completions": 2},
    )
    cluster.put("Job", started)
    assert cluster.view.pods == ()
    owned = {"ownerReferences": m.owner("Job", "train"), "labels": {"job-name": "train"}}
    cluster.put("Pod", m.pending("train-0-x", metadata=owned), m.pending("train-1-y", metadata=owned))
    # The labels are on the Job alone: its pods are of the gang all the same, and run as long.
    assert {pod.gang for pod in cluster.view.pods} == {Gang("g", 2)}
    assert {pod.terms.expected for pod in cluster.view.pods} == {timedelta(hours=3)}
    found = cluster.state.job("uid-train-0-x")
    assert found is not None
    assert (found.meta.uid, found.suspended, found.path) == (
        "uid-train", False, "/apis/batch/v1/namespaces/team/jobs/train",
    )  # fmt: skip


def started(**spec: Any) -> dict[str, Any]:
    """A whole Job after its admission: pinned, not suspended, our mark gone."""
    pinned = m.template(
        spec={"nodeSelector": {names.LABEL_SOURCE: "cr-1"}},
        metadata={"annotations": {names.ENDS_AT: "2026-11-16T11:00:00Z"}},
    )
    gang = {**GANG, names.HELD_BY: None}
    base = {"parallelism": 3, "completions": 3, "suspend": False, "template": pinned}
    return m.job(metadata={"labels": gang}, spec={**base, **spec})


OF_TRAIN = {"ownerReferences": m.owner("Job", "train"), "labels": {"job-name": "train"}}


def test_the_room_of_an_admitted_job_stays_claimed_until_its_pods_are_there():
    cluster = Cluster().put("Job", started())
    pods = cluster.view.pods
    assert [pod.uid for pod in pods] == ["uid-train.0", "uid-train.1", "uid-train.2"]
    assert {(pod.gated, pod.held_by_others, pod.pinned_to, pod.node) for pod in pods} == {
        (False, False, "cr-1", "")
    }
    assert {pod.ends_at.hour for pod in pods if pod.ends_at} == {11}
    assert {pod.gang for pod in pods} == {Gang("g", 3)}
    cluster.put("Pod", m.pending("x", metadata=OF_TRAIN))
    assert {pod.uid for pod in cluster.view.pods} == {"uid-x", "uid-train.1", "uid-train.2"}
    cluster.put("Pod", m.pod("y", metadata=OF_TRAIN), m.pod("z", metadata=OF_TRAIN))
    assert {pod.uid for pod in cluster.view.pods} == {"uid-x", "uid-y", "uid-z"}
    cluster.put("Pod", m.pod("y", metadata=OF_TRAIN, status={"phase": "Failed"}))  # its back-off begins
    assert {pod.uid for pod in cluster.view.pods} == {"uid-x", "uid-z", "uid-train.2"}


def test_a_pod_that_succeeded_is_not_missed_even_before_the_status_says_so():
    cluster = Cluster().put("Job", started())
    cluster.put("Pod", *(m.pod(name, metadata=OF_TRAIN) for name in "xyz"))
    cluster.put("Pod", m.pod("y", metadata=OF_TRAIN, status={"phase": "Succeeded"}))
    assert {pod.uid for pod in cluster.view.pods} == {"uid-x", "uid-z"}
    assert {pod.gang for pod in cluster.view.pods} == {Gang("g", 2)}
    cluster.put("Job", m.merged(started(), {"status": {"succeeded": 1}}))
    cluster.remove("Pod", "uid-y")  # cleaned up
    assert {pod.uid for pod in cluster.view.pods} == {"uid-x", "uid-z"}


def test_a_suspended_job_whose_pods_are_leaving_waits_beside_them():
    cluster = Cluster().put("Job", started())
    cluster.put("Pod", *(m.pod(name, metadata=OF_TRAIN) for name in "xyz"))
    held = m.job(metadata={"labels": GANG}, spec={"parallelism": 3, "completions": 3})
    cluster.put("Job", held)
    assert {pod.uid for pod in cluster.view.pods} == {
        "uid-x",
        "uid-y",
        "uid-z",
    }  # its controller has not looked yet
    leaving = {**OF_TRAIN, "deletionTimestamp": m.CREATED, "deletionGracePeriodSeconds": 30}
    cluster.put("Pod", *(m.pod(name, metadata=leaving) for name in "xyz"))
    assert len(cluster.view.pods) == 6
    cluster.remove("Pod", "uid-x", "uid-y", "uid-z")
    assert [pod.gated for pod in cluster.view.pods] == [True] * 3


def test_a_job_that_is_held_again_may_go_anywhere():
    """Its template keeps the pins of the first admission; they bind nobody while it waits."""
    pins = {names.LABEL_SOURCE: "cr-1", names.LABEL_POOL: "p5"}
    pinned = m.template(
        spec={"nodeSelector": {**pins, "tier": "train"}},
        metadata={"annotations": {names.ENDS_AT: "2026-11-16T11:00:00Z"}},
    )
    noted = {names.PINS: f"{names.LABEL_POOL},{names.LABEL_SOURCE}"}
    again = m.job(
        metadata={"labels": GANG, "annotations": noted},
        spec={"parallelism": 2, "completions": 2, "template": pinned},
    )
    pods = Cluster().put("Job", again).view.pods
    assert {(pod.gated, pod.pinned_to, pod.ends_at) for pod in pods} == {(True, "", None)}
    assert {pod.shape.node_selector for pod in pods} == {(("tier", "train"),)}


def test_pods_of_a_job_that_gates_each_of_them():
    early = {"creationTimestamp": "2026-11-16T05:00:00Z"}
    one = m.job(
        metadata={"labels": {names.HELD_BY: None}, **early},
        spec={"parallelism": 2, "completions": 9, "suspend": False,
              "template": m.template(metadata={"labels": {names.MANAGED: "true"}})},
    )  # fmt: skip
    cluster = Cluster().put("Job", one)
    assert [(pod.uid, pod.gated) for pod in cluster.view.pods] == [
        ("uid-train.0", True),
        ("uid-train.1", True),
    ]
    gate = {"schedulingGates": [{"name": names.GATE}]}
    cluster.put("Pod", m.pending("x", metadata=OF_TRAIN, spec=gate))
    pods = {pod.uid: pod for pod in cluster.view.pods}
    assert pods.keys() == {"uid-x", "uid-train.1"}
    assert pods["uid-x"].created_at.hour == 5  # nobody overtakes it because its pods were made late


def test_a_strangers_job_is_not_shown_for_what_it_lacks():
    one = m.job(metadata={"labels": {names.HELD_BY: None}}, spec={"suspend": False, "parallelism": 3})
    assert shown(one) == ()


def test_pods_that_came_before_their_job_learn_their_gang():
    owned = {"ownerReferences": m.owner("Job", "train")}
    cluster = Cluster().put("Pod", m.pod("a", metadata=owned), m.pod("b", metadata=owned))
    assert {pod.gang for pod in cluster.view.pods} == {None}
    running = m.job(metadata={"labels": GANG}, spec={"parallelism": 2, "completions": 2, "suspend": False})
    cluster.put("Job", running)
    assert {pod.gang for pod in cluster.view.pods} == {Gang("g", 2)}


def test_a_job_set_is_a_gang_of_all_its_replicas():
    one = {
        "metadata": m.meta("big", labels={names.HELD_BY: "tidemill"}),
        "spec": {
            "suspend": True,
            "replicatedJobs": [
                {"name": "leader", "replicas": 1, "template": {"spec": {"template": m.template()}}},
                {
                    "name": "workers",
                    "replicas": 2,
                    "template": {"spec": {"parallelism": 3, "completions": 3, "template": m.template()}},
                },
            ],
        },
    }
    cluster = Cluster().put("JobSet", one)
    pods = cluster.view.pods
    assert len(pods) == 7
    assert {pod.gang for pod in pods} == {Gang("big", 7)}
    assert {pod.workload for pod in pods} == {"JobSet/team/big"}
    assert sorted(pod.name for pod in pods)[0] == "big-leader-0"
    job = cluster.state.job("uid-big.3")
    assert job is not None
    assert job.whole
    assert job.parts[1].where == ("spec", "replicatedJobs", 1, "template", "spec", "template")
    assert job.path == "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/big"


def test_a_pytorch_job_is_a_gang_of_all_its_replicas():
    one = {
        "metadata": m.meta("llm", labels={names.HELD_BY: "tidemill"}),
        "spec": {
            "runPolicy": {"suspend": True},
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "template": m.template()},
                "Worker": {"replicas": 3, "template": m.template()},
            },
        },
    }
    cluster = Cluster().put("PyTorchJob", one)
    pods = cluster.view.pods
    assert {pod.gang for pod in pods} == {Gang("llm", 4)}
    assert [pod.gated for pod in pods] == [True] * 4
    job = cluster.state.job("uid-llm.0")
    assert job is not None
    assert job.suspend_path == ("spec", "runPolicy", "suspend")
    cluster.remove("PyTorchJob", "uid-llm")
    assert cluster.view.pods == ()


def test_a_held_job_wakes_the_engine():
    cluster = Cluster().put("Job", listed=True)
    cluster.put("Job", m.job())
    assert cluster.woken[-1] == "team/train-0 was created"


def test_an_index_that_has_failed_for_good_is_not_waited_for():
    """With backoffLimitPerIndex no pod comes for it: it would hold room for ever, and a gang would count as broken."""
    running = m.job(
        metadata={"labels": {names.HELD_BY: None, **GANG}, "annotations": {names.PINS: names.LABEL_SOURCE}},
        spec={"suspend": False, "parallelism": 6, "completions": 6, "completionMode": "Indexed",
              "template": {"spec": {"nodeSelector": {names.LABEL_SOURCE: "cr-1"}}}},
        status={"succeeded": 1, "failedIndexes": "0,3-4"},
    )  # fmt: skip
    cluster = Cluster().put("Job", running)
    for name in ("train-1", "train-2"):
        cluster.put("Pod", m.pod(name, metadata={"ownerReferences": m.owner("Job", "train")}))
    assert [pod.name for pod in cluster.view.pods] == ["train-1", "train-2"]
    assert {pod.gang for pod in cluster.view.pods} == {Gang("g", 2)}
    cluster.put(
        "Job", m.merged(running, {"status": {"failedIndexes": "x,-,4-,²"}})
    )  # what cannot be is no index
    assert len(cluster.view.pods) == 5


def test_of_a_job_set_those_who_succeeded_count_although_their_pods_are_gone():
    """A finished pod goes with its node. Shown as missing, it would stop the members that still run."""
    part = {
        "replicas": 1,
        "template": {"spec": {"parallelism": 2, "completions": 2, "template": m.template()}},
    }
    one = {
        "metadata": m.meta("big"),
        "spec": {"replicatedJobs": [{"name": "load", **part}, {"name": "train", **part}]},
        "status": {
            "replicatedJobsStatus": [{"name": "load", "succeeded": 1}, {"name": "train", "active": 1}]
        },
    }
    for job in one["spec"]["replicatedJobs"]:
        job["template"] = m.merged(
            job["template"],
            {"spec": {"template": {"spec": {"nodeSelector": {names.LABEL_SOURCE: "cr-1"}}}}},
        )
    pods = shown(one, "JobSet")
    assert [pod.name for pod in pods] == ["big-train-0", "big-train-1"]
    assert {pod.gang for pod in pods} == {Gang("big", 2)}


def test_of_a_pytorch_job_those_who_succeeded_count_although_their_pods_are_gone():
    template = m.merged(m.template(), {"spec": {"nodeSelector": {names.LABEL_SOURCE: "cr-1"}}})
    one = {
        "metadata": m.meta("llm"),
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template},
                                         "Worker": {"replicas": 3, "template": template}}},
        "status": {"replicaStatuses": {"Worker": {"succeeded": 2, "active": 1}, "Master": {"active": 1}}},
    }  # fmt: skip
    pods = shown(one, "PyTorchJob")
    assert len(pods) == 2
    assert {pod.gang for pod in pods} == {Gang("llm", 2)}


def test_the_pods_of_a_large_job_are_counted_when_somebody_looks(monkeypatch):
    """They come one by one, and all that are missing are shown anew: a gang of 5,000 would take many minutes."""
    shows = []
    monkeypatch.setattr(
        pod_state, "pods_it_will_make", lambda *given: shows.append(1) or pods_it_will_make(*given)
    )
    template = {"spec": {"nodeSelector": {names.LABEL_SOURCE: "cr-1"}}}
    job = m.job(metadata={"labels": {names.HELD_BY: None, **GANG}},
                spec={"suspend": False, "parallelism": 60, "completions": 60, "template": template})  # fmt: skip
    cluster = Cluster().put("Job", job)
    for number in range(50):
        cluster.put("Pod", m.pod(f"p{number}", metadata={"ownerReferences": m.owner("Job", "train")}))
    assert len(shows) == 1
    assert len(cluster.view.pods) == 60
    assert cluster.state.model_pod("uid-train.49") is None
    assert cluster.state.model_pod("uid-train.50") is not None
    assert len(shows) == 2
