"""The policies hold, the adapter reads what is held and admits it, and the release lets go: one cluster, all parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from controlplane.api import Api
from controlplane.start import ControlPlane
from tests.cluster.admission_ways import created, path_of, wait_until_held
from tests.cluster.kube_stage import KubeStage
from tests.kube.admission import objects
from tests.kube.admission.objects import GATE, MANAGED, SOURCE
from tidemill.kube.admission.install import install, installed, remove
from tidemill.kube.admission.policy import policy_objects
from tidemill.kube.admission.release import held_objects, release_all
from tidemill.kube.connect import connect
from tidemill.model.pods import Pod

BLOCK = "cr-0123456789abcdef0"


@pytest.fixture
def stage(cluster: ControlPlane, api: Api, make_namespace: Callable[..., str]) -> Iterator[KubeStage]:
    namespace = make_namespace(**{MANAGED: "true"})
    with closing(connect(str(cluster.kubeconfig))) as ours:
        install(ours, policy_objects())
    wait_until_held(api, namespace)
    with closing(KubeStage(cluster, namespace)) as stage:
        yield stage


def seen(stage: KubeStage, *, gated: bool, made: bool) -> list[Pod]:
    """Pods in the engine's view; `made`: they exist, and are not only what a Job will make."""
    return [pod for pod in stage.cluster.view().pods if pod.gated == gated and ("." not in pod.uid) == made]


def pods(stage: KubeStage) -> list[dict[str, Any]]:
    found = stage.api.items(path_of("Pod", stage.namespace))
    return [each for each in found if "deletionTimestamp" not in each["metadata"]]


@pytest.mark.requirement("CB-13")
def test_pods_of_a_job_of_many_completions_are_admitted_one_by_one_until_they_are_released(
    stage: KubeStage,
) -> None:
    created(stage.api, objects.job({"parallelism": 2, "completions": 4}), stage.namespace)
    stage.until(lambda: len(seen(stage, gated=True, made=False)) == 2, "two pods to come are shown")
    assert pods(stage) == []

    stage.cluster.admit([seen(stage, gated=True, made=False)[0].uid], BLOCK, None)
    stage.until(lambda: len(seen(stage, gated=True, made=True)) == 2, "its pods are made, gated")
    stage.cluster.admit([seen(stage, gated=True, made=True)[0].uid], BLOCK, None)
    stage.until(
        lambda: [pod.pinned_to for pod in seen(stage, gated=False, made=True)] == [BLOCK], "one is admitted"
    )
    assert len(seen(stage, gated=True, made=True)) == 1

    remove(stage.kube_api, installed(stage.kube_api))
    released, failed = release_all(stage.kube_api, held_objects(stage.kube_api))
    assert ([each.full_name.split()[0] for each in released], failed) == (["Pod"], [])
    # Tidemill is gone: pods that the Job makes from now on are not held by anybody.
    stage.until(lambda: made_again_ungated(stage), "the policies are out of force, and pods come ungated")


def made_again_ungated(stage: KubeStage) -> bool:
    found = pods(stage)
    fresh = [each for each in found if SOURCE not in each["spec"].get("nodeSelector", {})]
    for each in fresh:
        stage.api.delete(path_of("Pod", stage.namespace, each["metadata"]["name"]), gracePeriodSeconds=0)
    again = stage.until(lambda: len(pods(stage)) == 2 and pods(stage), "the Job makes another")
    return not any(each["spec"].get("schedulingGates") for each in again)


@pytest.mark.requirement("PE-20")
def test_a_pod_waits_for_the_gates_of_others_and_then_for_us(stage: KubeStage) -> None:
    created(
        stage.api, objects.pod({"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}), stage.namespace
    )
    stage.until(
        lambda: [pod.held_by_others for pod in seen(stage, gated=True, made=True)] == [True], "both hold it"
    )
    path = path_of("Pod", stage.namespace, "thing")
    stage.api.patch(path, {"spec": {"schedulingGates": [{"name": GATE}]}})
    stage.until(
        lambda: [pod.held_by_others for pod in seen(stage, gated=True, made=True)] == [False], "we hold it"
    )
    stage.cluster.admit([seen(stage, gated=True, made=True)[0].uid], BLOCK, None)
    found = stage.api.get(path)["spec"]
    assert "schedulingGates" not in found
    assert found["nodeSelector"] == {SOURCE: BLOCK}
