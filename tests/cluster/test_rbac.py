"""The controller as a ServiceAccount with exactly the rights that `tidemill rbac` prints."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
import yaml

from controlplane.api import Api
from controlplane.start import ControlPlane
from tests.cluster.custom_resources import define_custom_resources
from tests.cluster.kube_stage import KubeStage, pod_template
from tests.cluster.programs import Kubectl
from tests.contracts.cluster_contract import SOURCE
from tidemill.kube.api import Call
from tidemill.kube.connect import connect
from tidemill.kube.drainers import find_drainers
from tidemill.kube.events import EventRecorder, Subject
from tidemill.kube.lease import LeaseElector
from tidemill.kube.node_phases import NodePhasePublisher
from tidemill.kube.rbac import Role, calls, manifests, rights
from tidemill.model.errors import NotAllowed
from tidemill.model.reasons import DrainKind, DrainReason
from tidemill.report.node_phases import NodePhase
from tidemill.spec import names
from tidemill.spec.compute_pool import Provisioner


@pytest.fixture
def installed(cluster: ControlPlane, kubectl: Kubectl, namespace: str) -> str:
    """Everybody's roles, in a namespace of their own."""
    for role in Role:
        kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(manifests(role, namespace)))
    return namespace


@pytest.fixture
def stage(cluster: ControlPlane, api: Api, installed: str, make_namespace: object) -> Iterator[KubeStage]:
    define_custom_resources(api)
    stage = KubeStage(cluster, installed, cluster.service_account(installed, "tidemill-controller"))
    yield stage
    stage.close()


def use_everything(stage: KubeStage, home: str) -> set[Call]:
    """Everything `tidemill run` does to a cluster; the calls that were made of it."""
    cluster = stage.cluster
    elector = LeaseElector(stage.kube_api, namespace=home)
    elector.start()
    stage.until(lambda: elector.is_leader)
    pod = stage.running_job_pod()
    cluster.announce_end(pod.uid, stage.now())
    cluster.request_checkpoint(pod.uid)
    cluster.start_drain(pod.node, DrainReason(DrainKind.EMPTY))
    cluster.cancel_drain(pod.node)
    cluster.keep_for_jobs(pod.node, stage.now())
    cluster.cancel_drain(pod.node)
    cluster.announce_node_end(pod.node, stage.now())
    phases = NodePhasePublisher(stage.kube_api, stage.clock)
    phases.tell([NodePhase(pod.node, "ready", "p5", SOURCE, True, "", None)])
    phases.step()
    assert cluster.evict(pod.uid)
    serving = stage.service_at_its_minimum()
    assert not cluster.evict(serving.uid)
    cluster.restart(serving.workload, "cr-1@noon")
    cluster.scale(serving.workload, 2, 1, [serving.uid])
    cluster.delete(serving.uid, 1, disruption=True)
    use_other_kinds(stage)
    recorder = EventRecorder(
        stage.kube_api, instance="engine-0", monotonic=iter(range(0, 10_000, 700)).__next__
    )
    for _ in range(2):
        recorder.tell(Subject("Pod", pod.name, pod.namespace, pod.uid), "Held", "no room", action="Admit")
    recorder.start()
    recorder.stop()
    assert (recorder.sent, recorder.dropped) == (2, 0)
    find_drainers(stage.kube_api, {"p5": Provisioner.NATIVE})
    cluster.remove_node(pod.node)
    elector.stop()
    return set(stage.kube_api.calls)


def use_other_kinds(stage: KubeStage) -> None:
    """A StatefulSet, a JobSet and a PyTorchJob."""
    labels, where = {"app": "db"}, stage.namespace
    spec = {
        "replicas": 0,
        "selector": {"matchLabels": labels},
        "serviceName": "db",
        "template": pod_template(labels=labels),
    }
    stage.api.create(
        f"/apis/apps/v1/namespaces/{where}/statefulsets", {"metadata": {"name": "db"}, "spec": spec}
    )
    stage.cluster.restart(f"StatefulSet/{where}/db", "cr-1@noon")
    meta = {"name": "gang", "labels": {names.HELD_BY: names.HELD_BY_US}}
    job = {"parallelism": 1, "completions": 1, "template": pod_template(restartPolicy="Never")}
    replica = {"replicas": 2, "restartPolicy": "Never", "template": pod_template()}
    replica["template"]["spec"]["containers"][0]["name"] = "pytorch"  # type: ignore[index]
    jobs = [{"name": "w", "replicas": 2, "template": {"spec": job}}]
    for kind, group, plural, content in (
        ("JobSet", "jobset.x-k8s.io/v1alpha2", "jobsets", {"suspend": True, "replicatedJobs": jobs}),
        ("PyTorchJob", "kubeflow.org/v1", "pytorchjobs",
         {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Worker": replica}}),
    ):  # fmt: skip
        body = {"apiVersion": group, "kind": kind, "metadata": meta, "spec": content}
        stage.api.create(f"/apis/{group}/namespaces/{where}/{plural}", body)
        workload = f"{kind}/{where}/gang"
        stage.until(lambda workload=workload: stage.pods_of(workload), f"{workload} is shown")  # type: ignore[misc]
        stage.cluster.admit([pod.uid for pod in stage.pods_of(workload)], SOURCE, None)


def test_the_controller_makes_exactly_the_calls_of_its_role(stage: KubeStage, installed: str) -> None:
    made = use_everything(stage, installed)
    declared = calls(Role.CONTROLLER)
    assert made - declared == set(), "calls that the role does not have"
    older = {call for right in rights(Role.CONTROLLER) if right.older for call in right.calls()}
    # Kueue is not here; test_kueue.py runs the controller with this role beside it.
    kueue = {call for call in declared if call.group == "kueue.x-k8s.io"}
    assert declared - made - older - kueue == set(), "rights that nobody uses"


def test_an_observer_reads_the_view_and_may_write_nothing(cluster: ControlPlane, installed: str) -> None:
    stage = KubeStage(cluster, installed, cluster.service_account(installed, "tidemill-observer"))
    try:
        node = stage.fresh_node()
        with pytest.raises(NotAllowed, match="nodes"):
            stage.cluster.announce_node_end(node.name, stage.now())
        with pytest.raises(NotAllowed):
            stage.cluster.remove_node(node.name)
        served = {right for right in calls(Role.OBSERVER) if right.resource not in ("leases",)}
        assert {call for call in stage.kube_api.calls if call.verb in ("list", "watch")} <= served
    finally:
        stage.close()


def test_a_verb_that_is_missing_is_named_and_the_rest_goes_on(
    cluster: ControlPlane, api: Api, installed: str
) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/tidemill-controller"
    rules = [rule for rule in api.get(path)["rules"] if rule["resources"] != ["pods/eviction"]]
    api.patch(path, {"rules": rules})
    stage = KubeStage(cluster, installed, cluster.service_account(installed, "tidemill-controller"))
    try:
        pod = stage.running_job_pod()
        with pytest.raises(NotAllowed, match="create pods/eviction") as refused:
            stage.cluster.evict(pod.uid)
        assert "tidemill-controller" in str(refused.value)
        stage.cluster.start_drain(pod.node, DrainReason(DrainKind.EMPTY))
        stage.cluster.delete(pod.uid, 1, disruption=True)
        stage.settle(timedelta(seconds=30))
        assert all(each.uid != pod.uid for each in stage.cluster.view().pods)
    finally:
        stage.close()


def test_who_may_read_nothing_is_told_what_is_missing(
    cluster: ControlPlane, api: Api, namespace: str
) -> None:
    api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "nobody"}})
    stranger = connect(str(cluster.service_account(namespace, "nobody")))
    try:
        with pytest.raises(NotAllowed, match="list nodes"):
            find_drainers(stranger, {"p5": Provisioner.NATIVE})
    finally:
        stranger.close()
