"""Patches that admit and hold: pure, one object in."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill.kube.admit import TOLERATED, Pin, admitted_pod, admitted_workload, held_again, merged
from tidemill.kube.writes import owners_of
from tidemill.model.errors import Refused
from tidemill.spec import names

PIN = Pin("cr-1", "p5", "2026-11-17T11:00:00Z")
ANY = {"key": "nvidia.com/gpu", "operator": "Exists"}
TOLERATIONS = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in TOLERATED]


def pod(*gates: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p"},
        "spec": {"schedulingGates": [{"name": gate} for gate in gates], **spec},
    }


def job(
    labels: dict[str, str] | None = None, pins: str = "", suspend: bool = True, **template: Any
) -> dict[str, Any]:
    meta = {"name": "j", "labels": labels if labels is not None else {names.HELD_BY: names.HELD_BY_US}}
    return {
        "metadata": {**meta, "annotations": {names.PINS: pins} if pins else {}},
        "spec": {"suspend": suspend, "template": {"metadata": {}, "spec": template}},
    }


def test_a_pod_loses_our_gate_and_keeps_those_of_others() -> None:
    patch = admitted_pod(pod(names.GATE, "kueue.x-k8s.io/admission", tolerations=[ANY]), PIN)
    assert patch is not None
    assert patch["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]
    assert patch["spec"]["nodeSelector"] == {names.LABEL_SOURCE: "cr-1", names.LABEL_POOL: "p5"}
    assert patch["spec"]["tolerations"] == [ANY, *TOLERATIONS]
    assert patch["metadata"]["annotations"] == {names.ENDS_AT: PIN.ends_at}


def test_a_pod_without_our_gate_is_left_alone() -> None:
    assert admitted_pod(pod("kueue.x-k8s.io/admission"), PIN) is None


@pytest.mark.parametrize("known", [TOLERATIONS, [{"operator": "Exists"}]])
def test_a_toleration_is_not_added_twice(known: list[dict[str, str]]) -> None:
    patch = admitted_pod(pod(names.GATE, tolerations=known), PIN)
    assert patch is not None
    assert patch["spec"]["tolerations"] == known


def test_a_whole_job_is_pinned_and_released_in_one_patch() -> None:
    before = job(nodeSelector={"disk": "nvme"})
    patch = admitted_workload("Job", before, PIN, whole=True)
    assert patch is not None
    after = merged(before, patch)
    assert after["spec"]["suspend"] is False
    assert after["metadata"]["labels"] == {}
    assert after["metadata"]["annotations"][names.PINS] == f"{names.LABEL_POOL},{names.LABEL_SOURCE}"
    template = after["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {"disk": "nvme", **PIN.selector}
    assert template["metadata"]["annotations"] == {names.ENDS_AT: PIN.ends_at, names.ADMITTED: "true"}


def test_a_job_that_ran_is_pinned_elsewhere_and_loses_the_old_pins() -> None:
    first = merged(job(), admitted_workload("Job", job(), PIN, whole=True) or {})
    held = merged(first, held_again("Job", first) or {})
    assert held["spec"]["suspend"] is True
    again = merged(held, admitted_workload("Job", held, Pin("spot"), whole=True) or {})
    assert again["spec"]["template"]["spec"]["nodeSelector"] == {names.LABEL_SOURCE: "spot"}
    assert again["spec"]["template"]["metadata"]["annotations"] == {names.ADMITTED: "true"}


def test_a_selector_that_its_user_wrote_is_no_pin() -> None:
    before = job(nodeSelector={names.LABEL_POOL: "p5"})
    first = merged(before, admitted_workload("Job", before, PIN, whole=True) or {})
    held = merged(first, held_again("Job", first) or {})
    again = merged(held, admitted_workload("Job", held, Pin("spot"), whole=True) or {})
    assert again["spec"]["template"]["spec"]["nodeSelector"] == {
        names.LABEL_SOURCE: "spot",
        names.LABEL_POOL: "p5",
    }


def test_a_whole_job_that_selects_its_source_itself_is_held_again_too() -> None:
    before = job(nodeSelector={names.LABEL_SOURCE: "cr-1"})
    admitted = merged(before, admitted_workload("Job", before, Pin("cr-1"), whole=True) or {})
    assert held_again("Job", admitted) is not None


def test_a_mark_that_a_user_wrote_does_not_let_pods_pass_that_are_admitted_one_by_one() -> None:
    before = job()
    before["spec"]["template"]["metadata"] = {"annotations": {names.ADMITTED: "true"}}
    admitted = merged(before, admitted_workload("Job", before, PIN, whole=False) or {})
    assert admitted["spec"]["template"]["metadata"] == {"labels": {names.MANAGED: "true"}, "annotations": {}}


def test_what_somebody_else_suspended_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        admitted_workload("Job", job(labels={}), PIN, whole=True)
    assert refused.value.code == "held-by-others"


def test_a_job_that_runs_is_not_admitted_again_and_one_that_is_not_pinned_is_not_held() -> None:
    assert admitted_workload("Job", job(suspend=False), PIN, whole=True) is None
    assert held_again("Job", job(suspend=False)) is None
    assert held_again("Job", job(pins=names.LABEL_SOURCE)) is None, "it is held already"


def test_who_owns_a_field_that_we_would_change() -> None:
    def entry(manager: str, field: str) -> dict[str, Any]:
        return {"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {f"f:{field}": {}}}}

    found = {
        "metadata": {"managedFields": [entry("gitops", "replicas"), entry("other", "paused"), entry("us", "replicas")]},
        "spec": {"replicas": 2},
    }  # fmt: skip
    owners = owners_of(found, {"spec": {"replicas": 4}}, "us")
    assert [owner["manager"] for owner in owners] == ["gitops"]
    assert owners_of(found, {"spec": {"replicas": 2}}, "us") == [], "it is what we want"
