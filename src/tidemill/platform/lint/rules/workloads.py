"""Pods of any kind of workload, and the compute pools of an engine's Helm values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from tidemill.platform.lint.finding import Finding
from tidemill.platform.lint.inventory import Inventory
from tidemill.platform.lint.pods import PodSpec, amount, listed, walk
from tidemill.platform.lint.rules.karpenter import RESERVATION_IDS
from tidemill.platform.lint.sources import Located
from tidemill.spec import traps
from tidemill.spec.located_yaml import Path
from tidemill.spec.names import EFA, LABEL_TYPE
from tidemill.spec.problem import quoted

# The GPUs of a whole node where its type is not said: every type that is sold as a block by the node has 8 or more.
WHOLE_NODE = 8


def pods_are_not_pinned_to_a_reservation(files: Inventory) -> Iterator[Finding]:
    """TR-3, of node selectors and affinity in pods and in Helm values."""
    pools = {id(pool.manifest) for pool in files.node_pools}
    for located in [*files.kubernetes, *files.values]:
        if id(located) in pools:
            continue
        for path, key, value in walk(located.data):
            by_selector = key in RESERVATION_IDS and isinstance(value, str) and value.startswith("cr-")
            by_affinity = (
                key == "key" and value in RESERVATION_IDS and located.get(*path[:-1], "operator") == "In"
            )
            if by_selector or by_affinity:
                what = value if by_selector else ", ".join(map(str, located.items(*path[:-1], "values")))
                message = (
                    f"pods are pinned to the reservation {what}: when it ends they wait until someone edits this, while"
                    " the next block stands empty; select a label of the pool instead"
                )
                yield located.finding("TR-3", path, message)


# --- TR-16 ------------------------------------------------------------------------------------------


def nodes_that_work_together_have_efa(files: Inventory) -> Iterator[Finding]:
    told: set[int] = set()
    for pod in files.pods:
        if (
            pod.group < 2
            or pod.requested(EFA)
            or not _takes_a_node(files, pod.accelerators, pod.node_selector)
        ):
            continue
        if id(pod.owner) not in told:  # a workload with several templates is told once
            told.add(id(pod.owner))
            message = f"{pod.owner.kind} {quoted(pod.owner.name)}: {traps.no_efa(pod.group)}"
            yield pod.owner.finding("TR-16", (*pod.path, "containers"), message)
    for values in files.values:
        yield from _engine_pools_have_efa(files, values)


def _takes_a_node(files: Inventory, accelerators: int, selector: dict[str, Any]) -> bool:
    kind = files.catalog.types.get(str(selector.get(LABEL_TYPE)))
    if kind is not None:
        return bool(kind.efa) and accelerators >= kind.gpus
    return accelerators >= WHOLE_NODE


def engine_pools(values: Located) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The compute pools of an engine's chart, and where they are."""
    for path in (("harmony", "computePools"), ("computePools",)):
        for index, pool in enumerate(values.items(*path)):
            if isinstance(pool, dict):
                yield (*path, index), pool


def _engine_pools_have_efa(files: Inventory, values: Located) -> Iterator[Finding]:
    """A replica that is larger than a node, or several whole nodes that train together (capability JOB)."""
    for path, pool in engine_pools(values):
        gpus, replicas = (pool.get(key, 0) for key in ("gpusPerReplica", "replicas"))
        if not isinstance(gpus, int) or not isinstance(replicas, int) or replicas < 1:
            continue
        selector = pool.get("nodeSelector")
        selector = selector if isinstance(selector, dict) else {}
        kind = files.catalog.types.get(str(selector.get(LABEL_TYPE)))
        node = kind.gpus if kind is not None and kind.gpus else WHOLE_NODE
        trains = re.search(r"\b(JOB|TRAINING)\b", str(pool.get("capabilities", ""))) is not None
        together = -(-gpus // node) * replicas if trains else -(-gpus // node)
        if together < 2 or not _takes_a_node(files, gpus, selector):
            continue
        if not amount(pool.get("resources"), EFA) and not amount(values.get("harmony", "resources"), EFA):
            message = f"compute pool {quoted(pool.get('name', ''))}: {traps.no_efa(together)}"
            yield values.finding("TR-16", path, message)


# --- TR-17 ------------------------------------------------------------------------------------------

_CHECKPOINT = re.compile(r"checkpoint|ckpt", re.IGNORECASE)
_CHECKPOINT_ENV = re.compile(
    r"(CHECKPOINT|CKPT)\w*(DIR|PATH|FOLDER|ROOT)|(DIR|PATH)\w*(CHECKPOINT|CKPT)", re.IGNORECASE
)
_CHECKPOINT_FLAG = re.compile(
    r"--[\w.-]*(?:checkpoint|ckpt)[\w.-]*(?:dir|path|folder|root)[= ]+['\"]?(?P<dir>/[^\s'\"]+)",
    re.IGNORECASE,
)
# Where images for EKS and Deep Learning AMIs put instance store, and what else is on the node's own disks.
_LOCAL_PATHS = re.compile(
    r"^/(mnt/(k8s-disks|nvme|instance|ephemeral|local)|local|opt/dlami/nvme|nvme|scratch|tmp|var)\b"
)
_LOCAL_VOLUMES = ("emptyDir", "ephemeral")


def checkpoints_outlive_their_node(files: Inventory) -> Iterator[Finding]:
    for pod in files.pods:
        if not pod.accelerators:
            continue
        local = _local_volumes(pod)
        for path, container in pod.containers:
            yield from _lost_checkpoints(pod, path, container, local)


def _local_volumes(pod: PodSpec) -> dict[str, str]:
    """Volumes that are lost with the pod or the node, with what they are."""
    found = {}
    for volume in pod.owner.items(*pod.path, "volumes"):
        if not isinstance(volume, dict):
            continue
        kind = next((kind for kind in _LOCAL_VOLUMES if kind in volume), None)
        host = volume.get("hostPath")
        if isinstance(host, dict) and _LOCAL_PATHS.match(str(host.get("path", ""))):
            kind = f"hostPath {host['path']}"
        if kind:
            found[str(volume.get("name"))] = kind
    return found


def _lost_checkpoints(
    pod: PodSpec, path: Path, container: dict[str, Any], local: dict[str, str]
) -> Iterator[Finding]:
    mounts = [each for each in listed(container.get("volumeMounts")) if isinstance(each, dict)]
    folders = list(_checkpoint_folders(container))
    for index, mount in enumerate(mounts):
        volume, at = str(mount.get("name")), str(mount.get("mountPath", ""))
        if volume not in local:
            continue
        named = _CHECKPOINT.search(f"{volume} {at}")
        if named or any(_below(folder, at) and not _deeper(folder, at, mounts) for folder in folders):
            message = f"{pod.owner.kind} {quoted(pod.owner.name)}, {at} ({local[volume]}): {traps.CHECKPOINTS_ARE_LOST}"
            yield pod.owner.finding("TR-17", (*path, "volumeMounts", index), message)


def _checkpoint_folders(container: dict[str, Any]) -> Iterator[str]:
    for each in listed(container.get("env")):
        if isinstance(each, dict) and _CHECKPOINT_ENV.search(str(each.get("name"))):
            yield str(each.get("value", ""))
    words = [str(word) for key in ("command", "args") for word in listed(container.get(key))]
    for found in _CHECKPOINT_FLAG.finditer(" ".join(words)):
        yield found["dir"]


def _below(folder: str, mount: str) -> bool:
    return folder.startswith("/") and mount.startswith("/") and PurePosixPath(folder).is_relative_to(mount)


def _deeper(folder: str, mount: str, mounts: list[dict[str, Any]]) -> bool:
    """Whether another volume is mounted between the two: then the folder is on that one."""
    others = (str(each.get("mountPath", "")) for each in mounts)
    return any(len(other) > len(mount) and _below(folder, other) for other in others)
