"""Pods in objects of any kind: what they ask for, and how many of them work together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidemill.platform.lint.sources import Located
from tidemill.spec.located_yaml import Path
from tidemill.spec.names import ACCELERATORS, GANG_SIZE


@dataclass(frozen=True, slots=True)
class PodSpec:
    """The spec of a pod or of a pod template, wherever an object has one."""

    owner: Located
    path: Path  # from the owner
    group: int = 1  # pods that work together

    @property
    def spec(self) -> dict[str, Any]:
        return self.owner.mapping(*self.path)

    @property
    def containers(self) -> list[tuple[Path, dict[str, Any]]]:
        found = []
        for key in ("initContainers", "containers"):
            for index, each in enumerate(self.owner.items(*self.path, key)):
                if isinstance(each, dict):
                    found.append(((*self.path, key, index), each))
        return found

    def requested(self, resource: str) -> int:
        """Over all containers; a limit counts as a request, as for Kubernetes."""
        return sum(
            amount(each.get("resources"), resource)
            for path, each in self.containers
            if "initContainers" not in path
        )

    @property
    def accelerators(self) -> int:
        return sum(self.requested(resource) for resource in ACCELERATORS)

    @property
    def node_selector(self) -> dict[str, Any]:
        return self.owner.mapping(*self.path, "nodeSelector")


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def amount(resources: Any, name: str) -> int:
    for key in ("limits", "requests"):
        of = resources.get(key) if isinstance(resources, dict) else None
        value = of.get(name) if isinstance(of, dict) else None
        if value is not None and str(value).isdigit():
            return int(value)
    return 0


def pod_specs(located: Located) -> Iterator[PodSpec]:
    """Every mapping with a list of containers: pods and templates of any kind, also of kinds nobody here knows."""
    if located.kind == "CustomResourceDefinition":
        return
    for path, _, value in walk(located.data):
        containers = value.get("containers") if isinstance(value, dict) else None
        if isinstance(containers, list) and any(isinstance(each, dict) for each in containers):
            yield PodSpec(located, path, _group_size(located, path))


def walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, str | int, Any]]:
    """Every value below this one, with its path and its key. The reader bounds depth and size."""
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    if not path:
        yield (), "", value
    for key, member in members:
        yield (*path, key), key, member
        yield from walk(member, (*path, key))


def _count(value: Any, default: int = 1) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _group_size(located: Located, path: Path) -> int:
    """How many pods of this template work together; 1: each alone, or it is not said."""
    size = located.get(*path[:-1], "metadata", "labels", GANG_SIZE)
    if str(size or "").isdigit():
        return int(str(size))
    match located.kind:
        case "Job":
            together = located.text("spec", "completionMode") == "Indexed" and _talks(located, path)
            return _count(located.get("spec", "parallelism")) if together else 1
        case "JobSet":
            job = path[: path.index("replicatedJobs") + 2] if "replicatedJobs" in path else ()
            inner = _count(located.get(*job, "template", "spec", "parallelism"))
            return inner * _count(located.get(*job, "replicas")) if job and _talks(located, path) else 1
        case "LeaderWorkerSet":
            return _count(located.get("spec", "leaderWorkerTemplate", "size"))
        case "PyTorchJob" | "MPIJob" | "TFJob" | "JAXJob" | "PaddleJob" | "XGBoostJob":
            replicas = [
                value for where, key, value in walk(located.data) if where[-2:-1] and key == "replicas"
            ]
            return sum(_count(each) for each in replicas)
    return 1


_TALK = re.compile(
    r"torchrun|--nnodes|deepspeed|mpirun|horovod|torch\.distributed|NCCL_|MASTER_ADDR|accelerate launch"
)


def _talks(located: Located, path: Path) -> bool:
    """An indexed Job may be a batch of strangers: a sign that its pods speak to each other is needed."""
    if located.get(*path, "subdomain"):
        return True
    return any(
        _TALK.search(f"{key} {value}" if isinstance(value, str) else str(key))
        for _, key, value in walk(located.mapping(*path))
    )
