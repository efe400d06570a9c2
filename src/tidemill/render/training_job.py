"""A training job as Kubernetes objects: an indexed Job and its headless Service, or a JobSet. Pure.

What a person would otherwise write by hand for each job: one pod a node, the names torchrun reads, EFA, shared memory,
the end of the node as a file, and a failure policy that does not count pods that had to leave with their node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tidemill.model.ec2_facts import LONGEST_BLOCK
from tidemill.model.errors import SpecError
from tidemill.report.job_nodes import JobNodes
from tidemill.spec import names
from tidemill.spec.units import format_cpu, format_duration, format_memory

Manifest = dict[str, Any]

CONTAINER = "main"
MASTER_PORT = 29500  # torchrun's default
FACTS_FOLDER = "/etc/tidemill"  # in the pod: what its annotations say, one file each
JOB_SET_API = "jobset.x-k8s.io/v1alpha2"
_REPLICATED_JOB = "node"  # of a JobSet: its only part
_INDEX = "batch.kubernetes.io/job-completion-index"
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_MAX_LABEL = 63
_POD_SUFFIX = 6  # a dash and five letters that Kubernetes gives each pod
# After a checkpoint is written a process still has to end.
_GRACE_BESIDE_CHECKPOINT = timedelta(seconds=30)
KEPT_AFTER_END = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a person asks for. Durations are None where nothing is said."""

    name: str
    namespace: str  # empty: whoever applies it says where
    image: str
    command: tuple[str, ...] = ()  # empty: what the image runs
    nodes: int = 1
    gpus: int = 8  # of each node
    env: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()  # whose keys become environment variables
    volumes: tuple[tuple[str, str], ...] = ()  # (claim, path)
    annotations: tuple[tuple[str, str], ...] = ()
    priority_class: str = ""
    service_account: str = ""
    instance_type: str = ""  # only this one
    duration: timedelta | None = None
    checkpoint_every: timedelta | None = None  # it goes on from its last checkpoint
    checkpoint_time: timedelta = timedelta(0)
    load_time: timedelta | None = None
    grace: timedelta | None = None
    time_limit: timedelta | None = None
    retries: int = 0
    team: str = ""
    overflow: bool = False
    queue: str = ""  # Kueue's
    job_set: bool = False

    @property
    def grace_period(self) -> timedelta:
        return self.grace if self.grace is not None else self.checkpoint_time + _GRACE_BESIDE_CHECKPOINT


def check_request(request: JobRequest) -> None:
    """SpecError: something the API server would refuse later, or that cannot end well."""
    part = f"-{_REPLICATED_JOB}-0" if request.job_set else ""
    longest = _MAX_LABEL - len(f"{part}-{request.nodes - 1}") - _POD_SUFFIX
    if not _NAME.fullmatch(request.name) or len(request.name) > longest:
        raise SpecError(
            f"--name: '{request.name}' must be lower-case letters, digits and dashes, begin with a letter and have at "
            f"most {longest} characters"
        )
    if not request.image.strip() or any(space in request.image for space in " \t\n"):
        raise SpecError(f"--image: '{request.image}' is not the name of an image; write for example {_IMAGE}")
    for variable, _ in request.env:
        if not _VARIABLE.fullmatch(variable):
            raise SpecError(f"--env: '{variable}' is not the name of a variable; write NAME=VALUE")
    for _, path in request.volumes:
        if not path.startswith("/"):
            raise SpecError(f"--volume: '{path}' is not an absolute path; write CLAIM:/path")
    _check_times(request)


_IMAGE = "ghcr.io/team/train:1"


def _check_times(request: JobRequest) -> None:
    needs = request.duration if request.checkpoint_every is None else request.checkpoint_every
    if needs is not None and needs > LONGEST_BLOCK:
        raise SpecError(
            f"it would run for {format_duration(needs)}, longer than any block ({format_duration(LONGEST_BLOCK)}); "
            "add --checkpoint-interval if it can go on from a checkpoint"
        )
    limit = request.time_limit
    if limit is None:
        return
    needed = (request.duration or timedelta(0)) + (request.load_time or timedelta(0))
    if limit < needed:
        raise SpecError(
            f"--time-limit {format_duration(limit)} ends it before it is done: it needs {format_duration(needed)} "
            "(--duration and --load-time)"
        )


# --- the objects --------------------------------------------------------------------------------------


def manifests(request: JobRequest, nodes: JobNodes, *, held: bool = False) -> list[Manifest]:
    """The workload first, then its Service if it has one.

    `held`: suspended with our mark, as admission would make it, for an object that is created once. Not for one that
    is applied again and again: it would be suspended each time.
    """
    check_request(request)
    if request.job_set:
        return [_job_set(request, nodes, held)]
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(request, held),
        "spec": {**_suspended(request, held), **_job_spec(request, nodes, request.retries)},
    }
    return [job, _service(request)] if request.nodes > 1 else [job]


def with_owner(service: Manifest, owner: Mapping[str, Any]) -> Manifest:
    """The Service goes when the Job that was created goes."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return {**service, "metadata": {**service["metadata"], "ownerReferences": [reference]}}


def _metadata(request: JobRequest, held: bool) -> Manifest:
    labels = {names.JOB: request.name, names.MANAGED: "true"}
    if request.nodes > 1 and not request.job_set:  # a JobSet is a gang by itself
        labels[names.GANG] = request.name
    if request.queue:
        labels[names.KUEUE_QUEUE] = request.queue
    elif held:
        labels[names.HELD_BY] = names.HELD_BY_US
    return {**_named(request), "labels": labels}


def _named(request: JobRequest) -> Manifest:
    return {"name": request.name, **({"namespace": request.namespace} if request.namespace else {})}


def _suspended(request: JobRequest, held: bool) -> Manifest:
    return {"suspend": True} if held and not request.queue else {}


def _job_spec(request: JobRequest, nodes: JobNodes, retries: int) -> Manifest:
    limit = request.time_limit
    return {
        "completionMode": "Indexed",
        "parallelism": request.nodes,
        "completions": request.nodes,
        "backoffLimit": retries,
        # A pod that had to leave with its node did not fail: it comes back on the next one.
        "podFailurePolicy": {
            "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        },
        **({"activeDeadlineSeconds": int(limit.total_seconds())} if limit is not None else {}),
        **({} if request.job_set else {"ttlSecondsAfterFinished": int(KEPT_AFTER_END.total_seconds())}),
        "template": _template(request, nodes),
    }  # fmt: skip


def _job_set(request: JobRequest, nodes: JobNodes, held: bool) -> Manifest:
    """Its controller makes the Service, and restarts all pods together when one fails."""
    return {
        "apiVersion": JOB_SET_API,
        "kind": "JobSet",
        "metadata": _metadata(request, held),
        "spec": {
            **_suspended(request, held),
            "ttlSecondsAfterFinished": int(KEPT_AFTER_END.total_seconds()),
            "failurePolicy": {"maxRestarts": request.retries},
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "replicatedJobs": [
                {
                    "name": _REPLICATED_JOB,
                    "replicas": 1,
                    "template": {"spec": _job_spec(request, nodes, 0)},
                }
            ],
        },
    }


def _service(request: JobRequest) -> Manifest:
    """Headless: every pod has a name, also before it is ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**_named(request), "labels": {names.JOB: request.name}},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"batch.kubernetes.io/job-name": request.name},
            "ports": [{"name": "master", "port": MASTER_PORT}],
        },
    }


# --- its pods -----------------------------------------------------------------------------------------


def _template(request: JobRequest, nodes: JobNodes) -> Manifest:
    said = _said(request)
    spec: Manifest = {"restartPolicy": "Never"}
    if request.nodes > 1 and not request.job_set:
        spec["subdomain"] = request.name
    spec["terminationGracePeriodSeconds"] = int(request.grace_period.total_seconds())
    if request.priority_class:
        spec["priorityClassName"] = request.priority_class
    if request.service_account:
        spec["serviceAccountName"] = request.service_account
    if selector := _selector(request, nodes):
        spec["nodeSelector"] = selector
    if tolerations := _tolerations(nodes):
        spec["tolerations"] = tolerations
    spec["containers"] = [_container(request, nodes)]
    spec["volumes"] = _volumes(request)
    return {**({"metadata": {"annotations": said}} if said else {}), "spec": spec}


def _said(request: JobRequest) -> dict[str, str]:
    durations = {
        names.EXPECTED_DURATION: request.duration,
        names.CHECKPOINT_EVERY: request.checkpoint_every,
        names.CHECKPOINT_TIME: request.checkpoint_time or None,
        names.LOAD_TIME: request.load_time,
    }
    said = {key: format_duration(value) for key, value in durations.items() if value is not None}
    if request.team:
        said[names.TEAM] = request.team
    if request.overflow:
        said[names.OVERFLOW] = "true"
    return {**said, **dict(request.annotations)}


def _selector(request: JobRequest, nodes: JobNodes) -> dict[str, str]:
    wanted = {names.LABEL_POOL: nodes.pool, names.LABEL_TYPE: request.instance_type}
    return {key: value for key, value in wanted.items() if value}


def _tolerations(nodes: JobNodes) -> list[Manifest]:
    keys = dict.fromkeys(taint.key for taint in nodes.taints)
    return [{"key": key, "operator": "Exists"} for key in keys]


def _container(request: JobRequest, nodes: JobNodes) -> Manifest:
    asked = {name: _quantity(name, value) for name, value in nodes.requests}
    limits = {name: value for name, value in asked.items() if name != names.CPU}
    mounts = [
        {"name": "shared-memory", "mountPath": "/dev/shm"},
        {"name": "facts", "mountPath": FACTS_FOLDER, "readOnly": True},
        *({"name": f"claim-{n}", "mountPath": path} for n, (_, path) in enumerate(request.volumes)),
    ]
    return {
        "name": CONTAINER,
        "image": request.image,
        **({"command": list(request.command)} if request.command else {}),
        "env": _env(request, nodes),
        **({"envFrom": [{"secretRef": {"name": name}} for name in request.secrets]} if request.secrets else {}),
        "resources": {"requests": asked, "limits": limits},
        "volumeMounts": mounts,
    }  # fmt: skip


def _quantity(name: str, value: int) -> str:
    return {names.CPU: format_cpu, names.MEMORY: format_memory}.get(name, str)(value)


def _env(request: JobRequest, nodes: JobNodes) -> list[Manifest]:
    """The names of torch.distributed, and those from which torchrun takes its arguments (PET_…). The user's own win."""
    count, each = str(request.nodes), str(request.gpus)
    efa = any(name == names.EFA for name, _ in nodes.requests)
    ours = {
        "MASTER_ADDR": _master(request),
        "MASTER_PORT": str(MASTER_PORT),
        "WORLD_SIZE": str(request.nodes * request.gpus),  # processes, one for each accelerator
        "NNODES": count,
        "NPROC_PER_NODE": each,
        "PET_MASTER_ADDR": _master(request),
        "PET_MASTER_PORT": str(MASTER_PORT),
        "PET_NNODES": count,
        "PET_NPROC_PER_NODE": each,
        # Huge pages are not requested, and with them data loaders that fork run out of memory.
        **({"FI_PROVIDER": "efa", "FI_EFA_USE_HUGE_PAGE": "0"} if efa else {}),
    }
    variables: list[Manifest] = [{"name": name, "value": value} for name, value in ours.items()]
    variables += [_from_pod("NODE_RANK", _INDEX), _from_pod("PET_NODE_RANK", _INDEX)]
    variables.append(_from_pod("TIDEMILL_ENDS_AT", names.ENDS_AT))
    own = dict(request.env)
    kept = [each for each in variables if each["name"] not in own]
    return [*kept, *({"name": name, "value": value} for name, value in own.items())]


def _master(request: JobRequest) -> str:
    if request.nodes == 1:
        return "localhost"
    part = f"-{_REPLICATED_JOB}-0" if request.job_set else ""
    return f"{request.name}{part}-0.{request.name}"


def _from_pod(variable: str, annotation: str) -> Manifest:
    return {
        "name": variable,
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}},
    }


def _volumes(request: JobRequest) -> list[Manifest]:
    files = [
        {"path": key.partition("/")[2], "fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}}
        for key in (names.ENDS_AT, names.CHECKPOINT_REQUESTED)
    ]
    claims: Iterable[Manifest] = (
        {"name": f"claim-{n}", "persistentVolumeClaim": {"claimName": claim}}
        for n, (claim, _) in enumerate(request.volumes)
    )
    return [
        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},  # the container's memory limit bounds it
        {"name": "facts", "downwardAPI": {"items": files}},
        *claims,
    ]
