"""Workloads of ours are held by the API server from the moment they are created; nobody else's are touched."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controlplane.api import Api, ApiError, eventually
from controlplane.start import ControlPlane
from tests.cluster.admission_ways import Ways, both_ways, created, path_of
from tests.kube.admission import objects
from tests.kube.admission.objects import GATE, HELD_BY, MANAGED, QUEUE, SOURCE, TOLERATION
from tidemill.kube.admission.install import install
from tidemill.kube.admission.policy import OBJECTS_API
from tidemill.kube.admission.webhook import webhook_object
from tidemill.kube.admit import Pin, admitted_pod, admitted_workload
from tidemill.kube.api import KubeApi
from tidemill.kube.connect import connect
from tidemill.kube.held_jobs import job_of_object
from tidemill.kube.objects import JobObject
from tidemill.model.errors import Refused

BOTH = pytest.mark.parametrize("way", ["policy", "webhook"])
POLICIES = f"/apis/{OBJECTS_API}/mutatingadmissionpolicies"
BINDINGS = f"/apis/{OBJECTS_API}/mutatingadmissionpolicybindings"


@pytest.fixture
def ours(cluster: ControlPlane) -> Iterator[KubeApi]:
    with closing(connect(str(cluster.kubeconfig))) as api:
        yield api


@pytest.fixture
def ways(
    cluster: ControlPlane, api: Api, make_namespace: Callable[..., str], tmp_path: Path
) -> Iterator[Ways]:
    with both_ways(cluster, api, make_namespace, tmp_path) as ways:
        yield ways


def deployment(name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    own = {"app": name}
    pod = {"containers": [objects.CONTAINER]}
    template = {"metadata": {"labels": own | (labels or {})}, "spec": pod}
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": own}, "template": template}}


def pods(api: Api, namespace: str, count: int = 1, selector: str = "") -> list[dict[str, Any]]:
    def found() -> list[dict[str, Any]] | None:
        listed = api.items(path_of("Pod", namespace), labelSelector=selector)
        return listed if len(listed) >= count else None

    return eventually(found, what=f"{count} pods in {namespace}") or []


def gates(pod: dict[str, Any]) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]


def of_held(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in pod["spec"]["tolerations"] if each.get("key") == TOLERATION["key"]]


@BOTH
@pytest.mark.requirement("CB-13")
def test_a_held_job_makes_no_pods_and_a_job_of_others_does(ways: Ways, api: Api, way: str) -> None:
    held = created(api, objects.job(), ways.namespaces[way, "true"])
    assert held["spec"]["suspend"] is True
    assert held["metadata"]["labels"][HELD_BY] == "tidemill"
    plain = ways.namespaces[way, None]
    created(api, objects.job(), plain)
    (pod,) = pods(api, plain)
    assert not gates(pod)
    assert not of_held(pod)
    assert api.items(path_of("Pod", ways.namespaces[way, "true"])) == []


@BOTH
def test_services_tolerate_held_nodes_and_are_gated_only_by_their_own_label(
    ways: Ways, api: Api, way: str
) -> None:
    namespace = ways.namespaces[way, "true"]
    deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    api.create(deployments, deployment("plain"))
    api.create(deployments, deployment("held", {MANAGED: "true"}))
    api.create(deployments, deployment("alone", {MANAGED: "false"}))
    (plain,), (held,), (alone,) = (
        pods(api, namespace, selector=f"app={name}") for name in ("plain", "held", "alone")
    )
    assert (gates(plain), of_held(plain)) == ([], [TOLERATION])
    assert (gates(held), of_held(held)) == ([GATE], [])
    assert (gates(alone), of_held(alone)) == ([], [])


@BOTH
@pytest.mark.requirement("PE-20")
def test_jobs_and_pods_that_others_hold_stay_theirs(ways: Ways, api: Api, way: str) -> None:
    namespace = ways.namespaces[way, "true"]
    suspended = created(api, objects.job({"suspend": True}), namespace, dryRun="All")
    queued = created(api, objects.job(labels={QUEUE: "research"}), namespace, dryRun="All")
    for job in (suspended, queued):
        assert HELD_BY not in job["metadata"].get("labels", {})
    assert queued["spec"]["suspend"] is False
    gated = objects.pod({"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]})
    both = created(api, gated, namespace, dryRun="All")
    assert gates(both) == ["kueue.x-k8s.io/admission", GATE]


@BOTH
def test_a_pod_with_our_pin_and_toleration_written_by_its_user_is_gated(
    ways: Ways, api: Api, way: str
) -> None:
    pinned = objects.pod(
        {"nodeSelector": {SOURCE: "cr-1"}, "tolerations": [TOLERATION]}, annotations=objects.ADMITTED
    )
    made = created(api, pinned, ways.namespaces[way, "true"])
    assert gates(made) == [GATE]
    patch = admitted_pod(made, Pin("cr-1", "p5"))
    assert patch is not None, "and it is admitted as every other"
    after = api.patch(path_of("Pod", made["metadata"]["namespace"], "thing"), dict(patch))
    assert gates(after) == []
    assert after["spec"]["nodeSelector"][SOURCE] == "cr-1"


@BOTH
def test_a_job_updated_by_its_user_is_not_held_again(ways: Ways, api: Api, way: str) -> None:
    namespace = ways.namespaces[way, "true"]
    created(api, objects.job(), namespace)
    job = path_of("Job", namespace, "thing")
    api.patch(job, {"metadata": {"labels": {HELD_BY: None}}, "spec": {"suspend": False}})
    after = api.patch(job, {"metadata": {"labels": {"team": "a"}}})
    assert after["spec"]["suspend"] is False
    assert HELD_BY not in after["metadata"]["labels"]


def test_namespaces_of_kubernetes_are_never_ours(ways: Ways, api: Api) -> None:
    api.patch("/api/v1/namespaces/kube-system", {"metadata": {"labels": {MANAGED: "true"}}})
    try:
        for thing in (objects.job(labels={MANAGED: "true"}), objects.pod(labels={MANAGED: "true"})):
            made = created(api, thing, "kube-system", dryRun="All")
            assert not made["spec"].get("suspend")
            assert not gates(made)
    finally:
        api.patch("/api/v1/namespaces/kube-system", {"metadata": {"labels": {MANAGED: None}}})


def another_policy(name: str, expression: str, resources: list[str]) -> list[tuple[str, dict[str, Any]]]:
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": resources, "operations": ["CREATE"]}
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    spec = {
        "matchConstraints": {"resourceRules": [rule]}, "mutations": [mutation], "reinvocationPolicy": "IfNeeded",
        "failurePolicy": "Ignore",
    }  # fmt: skip
    return [
        (POLICIES, {"metadata": {"name": name}, "spec": spec}),
        (BINDINGS, {"metadata": {"name": name}, "spec": {"policyName": name}}),
    ]


@BOTH
def test_reinvocation_adds_nothing_twice(ways: Ways, api: Api, way: str) -> None:
    # Each changes the object whenever it is called, so that all others are called again.
    count = 'int(object.metadata.?annotations[?"seen"].orValue("0")) + 1'
    seen = f'Object{{metadata: Object.metadata{{annotations: {{"seen": string({count})}}}}}}'
    for name in ("a.first.example.com", "z.last.example.com"):
        for path, thing in another_policy(name, seen, ["pods", "jobs"]):
            api.create(path, thing)
    namespace = ways.namespaces[way, "true"]

    def seen_twice() -> bool:
        made = created(api, objects.pod(), namespace, dryRun="All")
        return int(made["metadata"].get("annotations", {}).get("seen", "0")) >= 2

    eventually(seen_twice, what="the other policies are in force")
    assert gates(created(api, objects.pod(), namespace, dryRun="All")) == [GATE]
    service = objects.pod(ownerReferences=[objects.owner("apps/v1", "ReplicaSet")])
    assert of_held(created(api, service, namespace, dryRun="All")) == [TOLERATION]
    job = created(api, objects.job(), namespace, dryRun="All")
    assert (job["spec"]["suspend"], job["metadata"]["labels"][HELD_BY]) == (True, "tidemill")


def test_while_the_webhook_is_away_only_what_is_ours_waits(
    api: Api, ours: KubeApi, make_namespace: Callable[..., str]
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"https://127.0.0.1:{closed.getsockname()[1]}"
        plain, managed = make_namespace(), make_namespace(**{MANAGED: "true"})
        install(ours, [webhook_object({"url": nobody})])

        def refused(thing: dict[str, Any], namespace: str) -> str:
            with pytest.raises(ApiError) as error:
                created(api, thing, namespace, dryRun="All")
            return error.value.message

        def in_force() -> bool:
            try:
                created(api, objects.pod(), managed, dryRun="All")
            except ApiError:
                return True
            return False

        eventually(in_force, what="the webhook is called")
        created(api, objects.pod(), plain)
        created(api, objects.job(), plain)
        assert "pods.namespaces.admission.tidemill.dev" in refused(objects.pod(), managed)
        assert "jobs.namespaces.admission.tidemill.dev" in refused(objects.job(), managed)
        assert "pods.objects.admission.tidemill.dev" in refused(objects.pod(labels={MANAGED: "true"}), plain)
        # What runs already must not notice: pods of services, of admitted Jobs, of daemon sets, and those with a no.
        for kind in ("ReplicaSet", "StatefulSet", "DaemonSet"):
            owner = objects.owner("apps/v1", kind)
            made = created(api, objects.pod(ownerReferences=[owner]), managed, dryRun="All")
            assert not of_held(made)
        admitted = objects.pod(
            {"nodeSelector": {SOURCE: "cr-1"}}, ownerReferences=[objects.owner("batch/v1", "Job")],
            labels={MANAGED: "true"}, annotations=objects.ADMITTED,
        )  # fmt: skip
        created(api, admitted, managed, dryRun="All")
        created(api, objects.pod(labels={MANAGED: "false"}), managed, dryRun="All")
        created(api, objects.pod(), "kube-system", dryRun="All")


@BOTH
def test_pods_of_an_admitted_job_are_gated_where_each_is_judged_by_itself(
    ways: Ways, api: Api, way: str
) -> None:
    namespace = ways.namespaces[way, "true"]
    one_by_one = objects.job({"parallelism": 2, "completions": 6}, name="many", labels={"app": "many"})
    one_by_one["spec"]["template"]["spec"] |= {"nodeSelector": {SOURCE: "cr-1"}, "tolerations": [TOLERATION]}
    whole = objects.job(
        {"parallelism": 2, "completions": 2},
        name="gang",
        labels={"app": "gang"},
        template={"labels": {MANAGED: "true"}},
    )
    for job in (one_by_one, whole):
        made = created(api, job, namespace)
        assert made["spec"]["suspend"] is True
        admitted = admitted_workload("Job", made, Pin("cr-1"), whole=job is whole)
        assert admitted is not None
        api.patch(path_of("Job", namespace, job["metadata"]["name"]), dict(admitted))
    assert [gates(pod) for pod in pods(api, namespace, 2, "job-name=many")] == [[GATE], [GATE]]
    assert [gates(pod) for pod in pods(api, namespace, 2, "job-name=gang")] == [[], []]


@pytest.mark.requirement("PE-20")
def test_a_job_that_kueue_takes_at_its_creation_is_kueues_whoever_came_first(ways: Ways, api: Api) -> None:
    # Kueue puts Jobs of a namespace with a default queue into that queue, and suspends them.
    label = f'metadata: Object.metadata{{labels: {{"{QUEUE}": "default"}}}}'
    taken = f"Object{{{label}, spec: Object.spec{{suspend: true}}}}"
    for path, thing in another_policy("kueue.example.com", taken, ["jobs"]):
        api.create(path, thing)
    namespace = ways.namespaces["policy", "true"]
    eventually(
        lambda: QUEUE in created(api, objects.job(), namespace, dryRun="All")["metadata"]["labels"],
        what="the other policy is in force",
    )
    job = created(api, objects.job(), namespace)
    seen = job_of_object(msgspec.json.decode(json.dumps(job), type=JobObject))
    assert seen is not None
    assert (seen.suspended, seen.held_by_us) == (True, False)
    with pytest.raises(Refused, match="suspended by somebody else"):
        admitted_workload("Job", job, Pin("cr-1"), whole=True)
