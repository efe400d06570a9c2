"""A training job as objects: what Kubernetes' own schemas allow, and what a training job needs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import kubernetes_validate
import pytest

from tests.decide.builders import pool
from tidemill.catalog import load
from tidemill.kube.admission.rules import mutate
from tidemill.model.errors import SpecError
from tidemill.render.training_job import JobRequest, check_request, manifests, with_owner
from tidemill.report.job_nodes import WantedNodes, choose_nodes
from tidemill.spec import names

pytestmark = pytest.mark.requirement("PE-15")
KUBERNETES = "1.37"
MINIMAL = JobRequest("pretrain", "ml", "ghcr.io/team/train:1")
EVERYTHING = replace(
    MINIMAL,
    command=("torchrun", "train.py"), nodes=4, env=(("A", "1"), ("MASTER_PORT", "1234")), secrets=("wandb",),
    volumes=(("checkpoints", "/checkpoints"),), annotations=(("note", "x"),), priority_class="high",
    service_account="trainer", instance_type="p5.48xlarge", duration=timedelta(hours=6),
    checkpoint_every=timedelta(minutes=30), checkpoint_time=timedelta(minutes=2), load_time=timedelta(minutes=5),
    time_limit=timedelta(hours=8), retries=3, team="foundation", overflow=True,
)  # fmt: skip


def rendered(request: JobRequest, **options: Any) -> list[dict[str, Any]]:
    trains = pool("gpu", taints=[{"key": names.NVIDIA_GPU, "value": "true"}])
    wanted = WantedNodes(request.gpus, request.nodes, instance_type=request.instance_type)
    return manifests(request, choose_nodes({"gpu": trains}, load(), wanted), **options)


def container(job: dict[str, Any]) -> dict[str, Any]:
    containers: list[dict[str, Any]] = job["spec"]["template"]["spec"]["containers"]
    assert len(containers) == 1
    return containers[0]


def variables(job: dict[str, Any]) -> dict[str, str]:
    return {
        one["name"]: one.get("value") or one["valueFrom"]["fieldRef"]["fieldPath"]
        for one in container(job)["env"]
    }


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("request_", [MINIMAL, EVERYTHING, replace(EVERYTHING, queue="research")])
def test_the_schemas_of_kubernetes_take_it_and_know_every_field(request_: JobRequest, held: bool):
    for one in rendered(request_, held=held):
        kubernetes_validate.validate(one, KUBERNETES, strict=True)


def test_the_schemas_would_notice_a_field_that_is_not_there():
    job, _ = rendered(EVERYTHING)
    job["spec"]["paralelism"] = 4
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, KUBERNETES, strict=True)


def test_every_pod_is_told_what_torchrun_wants_to_know():
    job, service = rendered(replace(EVERYTHING, env=()))
    told = variables(job)
    assert (told["MASTER_ADDR"], told["MASTER_PORT"]) == ("pretrain-0.pretrain", "29500")
    assert (told["WORLD_SIZE"], told["NNODES"], told["NPROC_PER_NODE"]) == ("32", "4", "8")
    assert told["NODE_RANK"] == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    for name in ("MASTER_ADDR", "MASTER_PORT", "NNODES", "NPROC_PER_NODE", "NODE_RANK"):
        assert told[f"PET_{name}"] == told[name], "torchrun takes its arguments from PET_…"
    # The name of the first pod is that of its host, in the domain of the Service.
    assert job["spec"]["completionMode"] == "Indexed"
    assert job["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"] == "pretrain"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"]


def test_one_node_needs_no_service_no_gang_and_no_efa():
    (job,) = rendered(MINIMAL)
    assert variables(job)["MASTER_ADDR"] == "localhost"
    assert names.GANG not in job["metadata"]["labels"]
    assert names.EFA not in container(job)["resources"]["limits"]
    assert "command" not in container(job), "what the image runs"


def test_variables_of_the_user_come_before_ours():
    job, _ = rendered(EVERYTHING)
    assert variables(job)["MASTER_PORT"] == "1234"
    assert [one["name"] for one in container(job)["env"]].count("MASTER_PORT") == 1


def test_several_nodes_are_a_gang_on_the_pool_with_efa_and_shared_memory():
    job, _ = rendered(EVERYTHING)
    pod = job["spec"]["template"]["spec"]
    assert job["metadata"]["labels"][names.GANG] == "pretrain"
    assert job["spec"]["parallelism"] == job["spec"]["completions"] == 4
    assert pod["nodeSelector"] == {names.LABEL_POOL: "gpu", names.LABEL_TYPE: "p5.48xlarge"}
    assert pod["tolerations"] == [{"key": names.NVIDIA_GPU, "operator": "Exists"}]
    assert container(job)["resources"]["limits"] == {
        "memory": "1700Gi", names.NVIDIA_GPU: "8", names.EFA: "32"
    }  # fmt: skip
    mounts = {one["mountPath"]: one["name"] for one in container(job)["volumeMounts"]}
    volumes = {one["name"]: one for one in pod["volumes"]}
    assert volumes[mounts["/dev/shm"]]["emptyDir"] == {"medium": "Memory"}
    assert volumes[mounts["/checkpoints"]]["persistentVolumeClaim"] == {"claimName": "checkpoints"}


def test_a_pod_reads_its_end_and_checkpoint_requests_as_files():
    job, _ = rendered(EVERYTHING)
    (facts,) = (one for one in job["spec"]["template"]["spec"]["volumes"] if "downwardAPI" in one)
    read = {one["path"]: one["fieldRef"]["fieldPath"] for one in facts["downwardAPI"]["items"]}
    assert read == {
        "ends-at": "metadata.annotations['tidemill.dev/ends-at']",
        "checkpoint-requested-at": "metadata.annotations['tidemill.dev/checkpoint-requested-at']",
    }


def test_what_the_engine_plans_with_is_said_and_a_checkpoint_fits_into_the_grace():
    job, _ = rendered(EVERYTHING)
    template = job["spec"]["template"]
    assert template["metadata"]["annotations"] == {
        names.EXPECTED_DURATION: "6h", names.CHECKPOINT_EVERY: "30m", names.CHECKPOINT_TIME: "2m",
        names.LOAD_TIME: "5m", names.TEAM: "foundation", names.OVERFLOW: "true", "note": "x",
    }  # fmt: skip
    assert template["spec"]["terminationGracePeriodSeconds"] == 150
    assert job["spec"]["activeDeadlineSeconds"] == 8 * 3600


def test_pods_that_leave_with_their_node_are_no_failures():
    (job,) = rendered(MINIMAL)
    (rule,) = job["spec"]["podFailurePolicy"]["rules"]
    assert rule["action"] == "Ignore"
    assert rule["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never", "a policy needs it"


def test_what_admission_makes_of_the_printed_job_is_what_is_created():
    printed, created = rendered(EVERYTHING)[0], rendered(EVERYTHING, held=True)[0]
    request = {"operation": "CREATE", "kind": {"group": "batch", "kind": "Job"}, "object": printed}
    patch = mutate(request, namespace_managed=False)
    assert [(one["path"].replace("~1", "/"), one["value"]) for one in patch] == [
        ("/metadata/labels/tidemill.dev/held-by", "tidemill"),
        ("/spec/suspend", True),
    ]
    assert created["spec"]["suspend"] is True
    assert created["metadata"]["labels"][names.HELD_BY] == names.HELD_BY_US
    assert mutate({**request, "object": created}, namespace_managed=True) == []


def test_kueue_starts_what_is_in_its_queue():
    job = rendered(replace(MINIMAL, queue="research"), held=True)[0]
    assert "suspend" not in job["spec"]
    assert job["metadata"]["labels"][names.KUEUE_QUEUE] == "research"
    assert names.HELD_BY not in job["metadata"]["labels"]


def test_a_job_set_makes_its_service_itself_and_starts_over_as_a_whole():
    (job_set,) = rendered(replace(EVERYTHING, job_set=True), held=True)
    (part,) = job_set["spec"]["replicatedJobs"]
    inner = {**part["template"], "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}}
    kubernetes_validate.validate(inner, KUBERNETES, strict=True)
    assert job_set["spec"]["suspend"] is True
    assert job_set["spec"]["failurePolicy"] == {"maxRestarts": 3}
    told = variables(part["template"])
    assert told["MASTER_ADDR"] == told["PET_MASTER_ADDR"] == "pretrain-node-0-0.pretrain"


def test_the_service_belongs_to_the_job_that_was_created():
    job, service = rendered(EVERYTHING)
    owned = with_owner(service, {**job, "metadata": {**job["metadata"], "uid": "u-1"}})
    assert owned["metadata"]["ownerReferences"] == [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "pretrain", "uid": "u-1"}
    ]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": "Train"}, "begin with a letter"),
        ({"name": "1train"}, "begin with a letter"),
        ({"name": "x" * 60}, "at most 55 characters"),
        ({"image": " "}, "is not the name of an image; write for example ghcr.io/team/train:1"),
        ({"env": (("A B", "1"),)}, "'A B' is not the name of a variable"),
        ({"volumes": (("claim", "data"),)}, "write CLAIM:/path"),
        ({"duration": timedelta(days=200)}, "longer than any block (182d); add --checkpoint-interval"),
        (
            {"duration": timedelta(hours=6), "load_time": timedelta(minutes=5), "time_limit": timedelta(hours=6)},
            "--time-limit 6h ends it before it is done: it needs 6h5m",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_says_what_to_write(wrong: dict[str, Any], said: str):
    with pytest.raises(SpecError) as caught:
        check_request(replace(MINIMAL, **wrong))
    assert said in str(caught.value)


def test_a_resumable_job_may_be_longer_than_any_block():
    check_request(replace(MINIMAL, duration=timedelta(days=300), checkpoint_every=timedelta(hours=1)))
