"""What the API server lets one change in a held pod or Job: the ground that `Cluster.admit` stands on."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Any

import pytest

from controlplane.api import Api, ApiError, eventually
from tests.cluster.admission_ways import created, path_of
from tests.kube.admission import objects
from tests.kube.admission.objects import GATE, HELD_BY, MANAGED, SOURCE, TOLERATION

JSON_PATCH = "application/json-patch+json"
FIRST, SECOND = "cr-0aaaaaaaaaaaaaaa1", "cr-0aaaaaaaaaaaaaaa2"


def refused(api: Api, path: str, patch: Any, kind: str = "application/merge-patch+json") -> str:
    with pytest.raises(ApiError) as error:
        api.patch(path, patch, kind)
    assert error.value.status == 422
    return error.value.message


@pytest.fixture
def gated(api: Api, namespace: str) -> str:
    """The path of a pod with our gate and a selector of its own."""
    spec = {"schedulingGates": [{"name": GATE}], "nodeSelector": {"zone": "a"}}
    created(api, objects.pod(spec), namespace)
    return path_of("Pod", namespace, "thing")


def test_a_gated_pods_selector_takes_additions_only(api: Api, gated: str) -> None:
    api.patch(gated, {"spec": {"nodeSelector": {SOURCE: FIRST}}})
    assert "nodeSelector" in refused(api, gated, {"spec": {"nodeSelector": {SOURCE: SECOND}}})
    assert "nodeSelector" in refused(api, gated, {"spec": {"nodeSelector": {SOURCE: None}}})
    assert api.get(gated)["spec"]["nodeSelector"] == {"zone": "a", SOURCE: FIRST}


def test_a_pod_is_admitted_by_one_patch_that_cannot_be_taken_back(api: Api, gated: str) -> None:
    before = api.get(gated)
    patch = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": before["metadata"]["resourceVersion"]},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
        {"op": "add", "path": "/spec/nodeSelector/" + SOURCE.replace("/", "~1"), "value": FIRST},
        {"op": "add", "path": "/spec/tolerations/-", "value": TOLERATION},
    ]
    after = api.patch(gated, patch, JSON_PATCH)
    assert not after["spec"].get("schedulingGates")
    assert after["spec"]["nodeSelector"] == {"zone": "a", SOURCE: FIRST}
    assert TOLERATION in after["spec"]["tolerations"]
    assert "NodeSelector" in refused(api, gated, {"spec": {"nodeSelector": {"more": "a"}}})
    refused(api, gated, {"spec": {"schedulingGates": [{"name": GATE}]}})
    with pytest.raises(ApiError) as error:  # somebody else was faster
        api.patch(gated, patch, JSON_PATCH)
    assert error.value.status == 422


def admission_of(job: dict[str, Any], source: str) -> dict[str, Any]:
    """One merge patch: our mark off, the template pinned, the toleration added, the suspension off."""
    kept = [each for each in job["spec"]["template"]["spec"].get("tolerations", []) if each != TOLERATION]
    pinned = {"nodeSelector": {SOURCE: source}, "tolerations": [*kept, TOLERATION]}
    template = {"metadata": {"annotations": {"tidemill.dev/ends-at": source}}, "spec": pinned}
    return {
        "metadata": {"resourceVersion": job["metadata"]["resourceVersion"], "labels": {HELD_BY: None}},
        "spec": {"suspend": False, "template": template},
    }


def admit(api: Api, job: str, source: str) -> None:
    """The Job controller writes the status of a new Job at any moment: on a conflict it is read again."""

    def patched() -> bool:
        api.patch(job, admission_of(api.get(job), source))
        return True

    eventually(patched, what=f"{job} is admitted to {source}")


def held_job(**spec: Any) -> dict[str, Any]:
    return objects.job({"suspend": True, **spec}, labels={HELD_BY: "tidemill"})


def live_pods(api: Api, namespace: str) -> list[dict[str, Any]]:
    found = api.items(path_of("Pod", namespace))
    return [each for each in found if "deletionTimestamp" not in each["metadata"]]


def pinned_pods(api: Api, namespace: str, source: str, count: int) -> list[dict[str, Any]]:
    def all_pinned() -> list[dict[str, Any]] | None:
        found = live_pods(api, namespace)
        pinned = [each for each in found if each["spec"].get("nodeSelector") == {SOURCE: source}]
        return pinned if len(pinned) == len(found) == count else None

    return eventually(all_pinned, what=f"{count} pods, all of them pinned to {source}") or []


@pytest.mark.requirement("PE-11")
def test_a_held_job_is_admitted_by_one_patch_and_again_to_another_source(api: Api, namespace: str) -> None:
    created(api, held_job(parallelism=4, completions=4, activeDeadlineSeconds=3600), namespace)
    job = path_of("Job", namespace, "thing")
    admit(api, job, FIRST)
    for pod in pinned_pods(api, namespace, FIRST, 4):
        assert TOLERATION in pod["spec"]["tolerations"]
        assert pod["metadata"]["annotations"]["tidemill.dev/ends-at"] == FIRST
    started = eventually(lambda: api.get(job)["status"].get("startTime"), what="the Job has started")

    # A running Job's template cannot be changed, not even while it is being suspended in the same patch.
    assert "immutable" in refused(
        api, job, {"spec": {"template": {"spec": {"nodeSelector": {SOURCE: SECOND}}}}}
    )
    both = {"spec": {"suspend": True, "template": {"spec": {"nodeSelector": {SOURCE: SECOND}}}}}
    assert "immutable" in refused(api, job, both)

    api.patch(job, {"metadata": {"labels": {HELD_BY: "tidemill"}}, "spec": {"suspend": True}})
    eventually(lambda: is_suspended(api.get(job)), what="the Job controller has suspended it")
    stopped = api.get(job)
    assert not stopped["status"].get("active")
    assert not stopped["status"].get("failed")
    assert stopped["status"].get("startTime", started) == started

    admit(api, job, SECOND)
    pinned_pods(api, namespace, SECOND, 4)
    assert not api.get(job)["status"].get("failed")


def is_suspended(job: dict[str, Any]) -> bool:
    conditions = job["status"].get("conditions", ())
    return any(each["type"] == "Suspended" and each["status"] == "True" for each in conditions)


def test_a_suspended_job_is_not_pinned_anew_before_its_controller_has_stopped_it(
    api: Api, namespace: str
) -> None:
    """Between the suspension and the controller's answer the template is still closed: try again, nothing is lost."""
    created(api, held_job(parallelism=2), namespace)
    job = path_of("Job", namespace, "thing")
    admit(api, job, FIRST)
    pinned_pods(api, namespace, FIRST, 2)
    eventually(lambda: api.get(job)["status"].get("active") == 2, what="the Job's pods are counted")
    suspended = api.patch(job, {"spec": {"suspend": True}})
    with contextlib.suppress(ApiError):  # the controller may be as fast
        api.patch(job, admission_of(suspended, SECOND))
        assert is_suspended(suspended)

    admit(api, job, SECOND)
    pinned_pods(api, namespace, SECOND, 2)


def test_a_job_of_many_completions_gates_its_pods_through_a_label_in_its_template(
    api: Api, namespace: str
) -> None:
    created(api, held_job(parallelism=2, completions=6), namespace)
    job = path_of("Job", namespace, "thing")
    template = {"metadata": {"labels": {MANAGED: "true"}}}
    patch = {"metadata": {"labels": {HELD_BY: None}}, "spec": {"suspend": False, "template": template}}
    api.patch(job, patch)
    found = eventually(
        lambda: len(live_pods(api, namespace)) == 2 and live_pods(api, namespace), what="two pods"
    )
    assert found
    assert all(pod["metadata"]["labels"][MANAGED] == "true" for pod in found)


def ready_node(api: Api, name: str, labels: dict[str, str], taints: list[dict[str, str]]) -> None:
    room = {"cpu": "8", "memory": "32Gi", "pods": "20"}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "reason": "Test", "lastHeartbeatTime": now}
    api.create("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}})
    status = {"status": {"capacity": room, "allocatable": room, "conditions": [ready]}}
    api.patch(f"/api/v1/nodes/{name}/status", status)
    eventually(
        lambda: (
            {t["key"] for t in api.get(f"/api/v1/nodes/{name}")["spec"].get("taints", ())}
            == {t["key"] for t in taints}
        ),
        what="the node takes pods",
    )


@pytest.mark.requirement("PE-11")
def test_a_stranger_with_every_toleration_but_ours_does_not_take_a_held_node(
    api: Api, namespace: str
) -> None:
    held = {"key": TOLERATION["key"], "effect": "NoSchedule"}
    gpu = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    ready_node(api, "held", {SOURCE: FIRST}, [held, gpu])
    others = [
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
        {"key": "tidemill.dev/draining", "operator": "Exists"},
        {"key": "tidemill.dev/starting", "operator": "Exists"},
        {"key": TOLERATION["key"], "operator": "Exists", "effect": "NoExecute"},
    ]
    stranger = objects.pod({"tolerations": others}, name="stranger")
    created(api, stranger, namespace)
    admitted = objects.pod(
        {"tolerations": [others[0], TOLERATION], "nodeSelector": {SOURCE: FIRST}}, name="admitted"
    )
    created(api, admitted, namespace)
    bound = path_of("Pod", namespace, "admitted")
    eventually(lambda: api.get(bound)["spec"].get("nodeName") == "held", what="the admitted pod is bound")

    def turned_away() -> bool:
        found = api.get(path_of("Pod", namespace, "stranger"))
        assert not found["spec"].get("nodeName")
        conditions = found["status"].get("conditions", ())
        return any("untolerated taint" in each.get("message", "") for each in conditions)

    eventually(turned_away, what="kube-scheduler says why the stranger waits")
