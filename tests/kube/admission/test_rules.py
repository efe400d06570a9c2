"""What is held at CREATE, and what is left alone. The policies are compared with this in tests/cluster."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.kube.admission import objects
from tests.kube.admission.objects import ADMITTED, GATE, HELD_BY, MANAGED, QUEUE, SOURCE, TOLERATION, owner
from tidemill.kube.admission.rules import mutate

OURS, NOT_OURS = {MANAGED: "true"}, {MANAGED: "false"}
REPLICA_SET = [owner("apps/v1", "ReplicaSet")]
JOB = [owner("batch/v1", "Job")]
PINNED = {"nodeSelector": {SOURCE: "cr-0123456789abcdef0"}, "tolerations": [TOLERATION]}


def after(created, *, managed=True, **request):
    patch = mutate(objects.request(created, **request), namespace_managed=managed)
    return objects.patched(created, patch)


def is_held(created, **options):
    made = after(created, **options)
    if made["kind"] == "Pod":
        return {"name": GATE} in made["spec"].get("schedulingGates", ())
    spec = made["spec"] if made["kind"] != "PyTorchJob" else made["spec"].get("runPolicy", {})
    marked = made["metadata"].get("labels", {}).get(HELD_BY) == "tidemill"
    return marked and spec.get("suspend") is True


@pytest.mark.parametrize("make", [objects.job, objects.job_set, objects.pytorch_job, objects.pod])
def test_the_nearest_label_decides(make):
    assert is_held(make())
    assert not is_held(make(), managed=False)
    assert is_held(make(labels=OURS), managed=False)
    assert not is_held(make(labels=NOT_OURS))
    assert not is_held(make(labels={MANAGED: "yes"}))  # neither: a mistake holds nothing


def test_a_jobs_template_decides_before_its_namespace():
    assert is_held(objects.job(template={"labels": OURS}), managed=False)
    assert not is_held(objects.job(template={"labels": NOT_OURS}))
    assert not is_held(objects.job(template={"labels": OURS}, labels=NOT_OURS))


@pytest.mark.parametrize("make", [objects.job, objects.job_set])
def test_what_somebody_else_suspended_stays_theirs(make):
    suspended = make({"suspend": True})
    assert after(suspended) == suspended
    queued = make(labels={QUEUE: "research"})
    assert after(queued) == queued


def test_a_suspended_pytorch_job_stays_theirs():
    suspended = objects.pytorch_job({"runPolicy": {"suspend": True}})
    assert after(suspended) == suspended


def test_jobs_of_a_cron_job_are_held_and_those_of_a_job_set_are_not():
    assert is_held(objects.job(ownerReferences=[owner("batch/v1", "CronJob")]))
    assert not is_held(objects.job(ownerReferences=[owner("jobset.x-k8s.io/v1alpha2", "JobSet")]))
    assert not is_held(objects.job_set(ownerReferences=[owner("trainer.kubeflow.org/v1alpha1", "TrainJob")]))
    assert is_held(
        objects.job(ownerReferences=[owner("jobset.x-k8s.io/v1alpha2", "JobSet", controller=False)])
    )


def test_pods_of_known_controllers_are_not_gated():
    for owned in (
        REPLICA_SET,
        JOB,
        [owner("apps/v1", "DaemonSet")],
        [owner("kubeflow.org/v1", "PyTorchJob")],
    ):
        assert not is_held(objects.pod(ownerReferences=owned))
    for owned in ([owner("ray.io/v1", "RayCluster")], [owner("batch.volcano.sh/v1alpha1", "Job")]):
        assert is_held(objects.pod(ownerReferences=owned))


def test_a_pods_own_label_asks_for_the_gate():
    for owned in (REPLICA_SET, JOB):
        assert is_held(objects.pod(ownerReferences=owned, labels=OURS), managed=False)
    for owned in ([owner("apps/v1", "DaemonSet")], [owner("v1", "Node")]):
        assert not is_held(objects.pod(ownerReferences=owned, labels=OURS))


def test_a_pod_of_a_job_that_was_admitted_whole_is_not_gated_again():
    assert not is_held(objects.pod(PINNED, ownerReferences=JOB, labels=OURS, annotations=ADMITTED))
    pytorch = [owner("kubeflow.org/v1", "PyTorchJob")]
    assert not is_held(objects.pod(PINNED, ownerReferences=pytorch, labels=OURS, annotations=ADMITTED))


def test_a_pod_that_selects_a_source_itself_is_gated_like_any_other():
    for noted in (
        {},
        ADMITTED,
    ):  # neither our pin and toleration nor our mark is admission, when a user writes them
        assert is_held(objects.pod(PINNED, annotations=noted))
        assert is_held(objects.pod(PINNED, labels=OURS, annotations=noted), managed=False)
        for owned in (REPLICA_SET, [owner("ray.io/v1", "RayCluster")]):
            assert is_held(objects.pod(PINNED, ownerReferences=owned, labels=OURS, annotations=noted))
    assert is_held(objects.pod(PINNED, ownerReferences=JOB, labels=OURS)), "admitted one by one"


def test_a_pod_that_has_its_node_is_left_alone():
    bound = objects.pod({"nodeName": "n"})
    assert after(bound) == bound


def test_gates_add_up():
    pod = objects.pod({"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]})
    assert after(pod)["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}, {"name": GATE}]
    gated = objects.pod({"schedulingGates": [{"name": GATE}]})
    assert after(gated) == gated


def test_pods_of_services_tolerate_held_nodes():
    assert after(objects.pod(ownerReferences=REPLICA_SET))["spec"]["tolerations"] == [TOLERATION]
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists"}
    some = objects.pod({"tolerations": [gpu]}, ownerReferences=REPLICA_SET)
    assert after(some)["spec"]["tolerations"] == [gpu, TOLERATION]
    assert after(some, managed=False) == some
    has_it = objects.pod({"tolerations": [TOLERATION]}, ownerReferences=REPLICA_SET)
    assert after(has_it) == has_it


def test_only_creations_of_known_kinds_are_looked_at():
    assert not is_held(objects.job(), operation="UPDATE")
    assert not is_held(objects.pod(), subResource="binding")
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    assert after(config_map) == config_map
    volcano = objects.job() | {"apiVersion": "batch.volcano.sh/v1alpha1"}
    assert after(volcano) == volcano
    assert mutate({"operation": "CREATE", "object": None}, namespace_managed=True) == []
    assert mutate({}, namespace_managed=True) == []


@given(objects.anything())
def test_what_was_changed_once_is_not_changed_again(created):
    for managed in (True, False):
        made = after(created, managed=managed)
        assert mutate(objects.request(made), namespace_managed=managed) == []
