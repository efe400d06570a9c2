"""Our admission check on Kueue's Workloads: when one is demand, what Kueue is answered, and what is given back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tidemill.kube.admit import Pin
from tidemill.kube.held_jobs import HeldJob, job_of_object
from tidemill.kube.kueue import (
    CONTROLLER,
    AdmissionCheckObject,
    KueueState,
    ResourceFlavorObject,
    WorkloadObject,
    activated,
    admitted,
    given_back,
    waiting,
)
from tidemill.kube.objects import JobObject
from tidemill.spec import names

pytestmark = pytest.mark.requirement("PE-20")
AT = datetime(2026, 11, 18, 8, 0, tzinfo=UTC)
SINCE = "2026-11-18T07:00:00Z"
PIN = Pin("cr-1", "gpu", "2026-11-18T11:00:00Z")


def held(**spec: Any) -> HeldJob:
    template = {"spec": {"containers": [], "nodeSelector": {"zone": "a"}}}
    body = {
        "metadata": {"name": "train", "namespace": "ml", "uid": "job-1", "labels": {names.KUEUE_QUEUE: "team"}},
        "spec": {"suspend": True, "parallelism": 2, "completions": 2, "template": template, **spec},
    }  # fmt: skip
    found = job_of_object(msgspec.convert(body, JobObject))
    assert found is not None
    return found


def workload(state: str = "Pending", *, quota: bool = True, **check: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "job-train", "namespace": "ml", "uid": "wl-1",
            "ownerReferences": [{"uid": "job-1", "kind": "Job", "name": "train", "controller": True}],
        },
        "spec": {"podSets": [{"name": "main", "count": 2}]},
        "status": {
            "conditions": [{"type": "QuotaReserved", "status": str(quota)}],
            "admission": {"podSetAssignments": [{"flavors": {"cpu": "blocks", names.NVIDIA_GPU: "blocks"}}]},
            "admissionChecks": [
                {"name": "others", "state": "Ready", "message": "", "lastTransitionTime": SINCE},
                {"name": "tidemill", "state": state, "message": "", "lastTransitionTime": SINCE, **check},
            ],
        },
    }  # fmt: skip


def seen(body: dict[str, Any], controller: str = CONTROLLER) -> HeldJob:
    """The Job beside such a Workload, a check and a flavour."""
    state = KueueState()
    state.job("job-1", held())
    check = {"metadata": {"name": "tidemill", "uid": "c"}, "spec": {"controllerName": controller}}
    flavor = {
        "metadata": {"name": "blocks", "uid": "f"},
        "spec": {"nodeLabels": {names.LABEL_POOL: "gpu"}},
    }
    list(state.put("c", msgspec.convert(check, AdmissionCheckObject)))
    list(state.put("f", msgspec.convert(flavor, ResourceFlavorObject)))
    assert list(state.put("wl-1", msgspec.convert(body, WorkloadObject))) == ["job-1"]
    return state.again("job-1")


def test_with_quota_and_our_check_it_is_demand_placed_whole_where_kueue_chose():
    job = seen(workload())
    assert (job.held_by_us, job.suspended, job.whole) == (True, True, True)
    assert job.gang_name == "train"
    assert job.parts[0].template.spec.node_selector == {"zone": "a", names.LABEL_POOL: "gpu"}


@pytest.mark.parametrize(
    ("body", "controller"),
    [
        (workload(quota=False), CONTROLLER),
        (workload(), "somebody.else/check"),
        (workload("Retry"), CONTROLLER),
        (workload("Rejected"), CONTROLLER),
    ],
    ids=["no quota", "a check of others", "given back", "rejected"],
)
def test_without_quota_or_without_our_check_it_is_held_by_others(body: dict[str, Any], controller: str):
    job = seen(body, controller)
    assert (job.suspended, job.held_by_us) == (True, False)


def test_between_our_answer_and_kueues_start_its_room_stays_claimed():
    update = [{"name": "main", "nodeSelector": {names.LABEL_SOURCE: "cr-1"}}]
    job = seen(workload("Ready", podSetUpdates=update))
    assert (job.suspended, job.held_by_us) == (False, False)
    assert (job.parts[0].template.spec.node_selector or {})[names.LABEL_SOURCE] == "cr-1"


def test_a_workload_that_is_gone_leaves_its_job_to_others():
    state = KueueState()
    state.job("job-1", held())
    list(state.put("wl-1", msgspec.convert(workload(), WorkloadObject)))
    assert list(state.put("wl-1", None)) == ["job-1"]
    assert not state.again("job-1").held_by_us
    assert state.job("job-1", None) is None


def mine(patch: Any) -> dict[str, Any]:
    """Our entry; that of others is left as it was."""
    others: dict[str, Any]
    ours: dict[str, Any]
    others, ours = patch["status"]["admissionChecks"]
    assert others == workload()["status"]["admissionChecks"][0]
    return ours


def test_ready_pins_every_pod_set_to_the_source_and_tolerates_held_nodes():
    ours = mine(admitted(workload(), "tidemill", PIN, AT))
    assert ours["state"] == "Ready"
    assert ours["lastTransitionTime"] == "2026-11-18T08:00:00Z"
    (update,) = ours["podSetUpdates"]
    assert update["nodeSelector"] == {names.LABEL_SOURCE: "cr-1", names.LABEL_POOL: "gpu"}
    assert {one["key"] for one in update["tolerations"]} == {names.TAINT_HELD, names.TAINT_ENDING}
    assert update["annotations"] == {names.ADMITTED: "true", names.ENDS_AT: PIN.ends_at}


def test_a_message_changes_no_instant_and_is_written_once():
    ours = mine(waiting(workload(), "tidemill", "no nodes", AT))
    assert (ours["state"], ours["lastTransitionTime"]) == ("Pending", "2026-11-18T07:00:00Z")
    assert waiting(workload(message="no nodes"), "tidemill", "no nodes", AT) is None


def test_what_leaves_its_node_is_given_back_and_nothing_else_is_changed_after_ready():
    ready = workload("Ready", message="on cr-1")
    assert mine(given_back(ready, "tidemill", "its node is taken away", AT))["state"] == "Retry"
    assert mine(given_back(workload(), "tidemill", "never", AT, 600))["requeueAfterSeconds"] == 600
    assert waiting(ready, "tidemill", "no nodes", AT) is None
    assert admitted(ready, "tidemill", PIN, AT) is None
    assert admitted(workload("Rejected"), "tidemill", PIN, AT) is None


def test_a_check_of_ours_is_marked_active_once():
    check: dict[str, Any] = {"metadata": {"name": "tidemill", "generation": 3}}
    patch = activated(check, AT)
    assert patch is not None
    assert patch["status"]["conditions"][0]["observedGeneration"] == 3
    assert activated({**check, **patch}, AT) is None
