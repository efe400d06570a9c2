"""A Node as its kubelet and the cloud provider write it: labels, capacity, conditions. Every instant is wall time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tidemill.catalog import InstanceType
from tidemill.model.nodes import Instance
from tidemill.sim.timeline import seeded_uuid
from tidemill.sim.wire.data_plane.user_data import Taints
from tidemill.spec import names

DEVICES = (*names.ACCELERATORS, names.EFA)  # what a device plugin registers
_DISK_BYTES = 100 * 2**30
_HEALTHY = {
    "MemoryPressure": ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}
_STOPPED = ("NodeStatusUnknown", "Kubelet stopped posting node status.")


@dataclass(slots=True, eq=False)
class BootedNode:
    """One node of ours, from the join to the end. What is true now; the write queue sends it."""

    instance: Instance
    kind: InstanceType
    name: str
    address: str
    labels: Mapping[str, str]
    taints: Taints
    max_pods: int | None
    joined_at: datetime  # virtual, like all instants here but `changed`
    registered_at: datetime | None = None  # the device plugin reported its devices
    verified: bool | None = None  # None: the node check has not run
    message: str = ""  # of a failed check
    lost_devices: int = 0
    dead_at: datetime | None = None
    silent: bool = False  # so long that the control plane calls it Unknown
    going_taints: frozenset[str] = frozenset()  # keys that their owners take off
    uid: str = ""  # of the Node object, once it was made
    gone: bool = False  # somebody deleted the Node object
    changed: dict[str, tuple[str, datetime]] = field(default_factory=dict)  # condition -> status, wall time

    @property
    def allocatable(self) -> dict[str, int]:
        """What pods may ask for: CPU in milli, the rest in units. Devices only once they are registered."""
        amounts = dict(self.kind.allocatable)
        if self.max_pods is not None:
            amounts[names.PODS] = self.max_pods
        amounts["ephemeral-storage"] = _DISK_BYTES * 9 // 10 - 2**30
        if self.registered_at is None:
            return {key: amount for key, amount in amounts.items() if key not in DEVICES}
        if self.kind.accelerator is not None:
            amounts[self.kind.accelerator.resource] -= self.lost_devices
        return amounts

    @property
    def capacity(self) -> dict[str, int]:
        """With what the kubelet keeps for itself; a VM sees 7.5 % less memory than it is sold with."""
        memory = max(int(self.kind.memory_mib * 2**20 * 0.925), dict(self.kind.allocatable)[names.MEMORY])
        whole = {
            names.CPU: self.kind.vcpus * 1000, names.MEMORY: memory, "ephemeral-storage": _DISK_BYTES,
        }  # fmt: skip
        return self.allocatable | whole


def as_object(node: BootedNode, kubelet_version: str, seed: int, wall: datetime) -> dict[str, Any]:
    """As the kubelet registers it: with its first status."""
    taints = [
        {"key": key, **({"value": value} if value else {}), "effect": effect}
        for key, value, effect in node.taints
    ]
    status = as_status(node, wall) | {
        "addresses": [
            {"type": "InternalIP", "address": node.address},
            {"type": "InternalDNS", "address": node.name},
            {"type": "Hostname", "address": node.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": _info(node, kubelet_version, seed),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": dict(node.labels)},
        "spec": {"providerID": f"aws:///{node.instance.zone}/{node.instance.id}", "taints": taints},
        "status": status,
    }


def as_status(node: BootedNode, wall: datetime) -> dict[str, Any]:
    """For a strategic merge patch: conditions of others stay."""
    return {
        "capacity": {key: _quantity(key, amount) for key, amount in node.capacity.items()},
        "allocatable": {key: _quantity(key, amount) for key, amount in node.allocatable.items()},
        "conditions": _conditions(node, wall),
    }


def as_lease(node: BootedNode, wall: datetime, lasts_s: int) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node.name, "namespace": "kube-node-lease", "ownerReferences": [owner]},
        "spec": {
            "holderIdentity": node.name,
            "leaseDurationSeconds": lasts_s,
            "renewTime": format_micro(wall),
        },
    }


def format_wall(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"


def format_micro(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%S.%f}Z"


def _conditions(node: BootedNode, wall: datetime) -> list[dict[str, str]]:
    said: dict[str, tuple[str, str, str]] = {}  # type -> status, reason, message
    for kind, (reason, message) in _HEALTHY.items():
        said[kind] = ("Unknown", *_STOPPED) if node.silent else ("False", reason, message)
    said["Ready"] = (
        ("Unknown", *_STOPPED) if node.silent else ("True", "KubeletReady", "kubelet is posting ready status")
    )
    if node.verified is not None:
        said[names.CONDITION_GPUS_VERIFIED] = (
            ("True", "CheckPassed", "every device answers")
            if node.verified
            else ("False", "CheckFailed", node.message)
        )
    written = []
    for kind, (status, reason, message) in said.items():
        before = node.changed.get(kind)
        if before is None or before[0] != status:
            before = node.changed[kind] = (status, wall)
        heartbeat = {} if node.silent else {"lastHeartbeatTime": format_wall(wall)}
        written.append(
            {
                "type": kind, "status": status, "reason": reason, "message": message, **heartbeat,
                "lastTransitionTime": format_wall(before[1]),
            }
        )  # fmt: skip
    return written


def _quantity(name: str, amount: int) -> str:
    if name == names.CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    return f"{amount // 1024}Ki" if name == names.MEMORY else str(amount)


def _info(node: BootedNode, kubelet_version: str, seed: int) -> dict[str, str]:
    return {
        "machineID": seeded_uuid(seed, "machine", node.instance.id).replace("-", ""),
        "systemUUID": seeded_uuid(seed, "system", node.instance.id),
        "bootID": seeded_uuid(seed, "boot", node.instance.id),
        "kernelVersion": "6.12.0-simulated",
        "osImage": "Amazon Linux 2023 (simulated)",
        "containerRuntimeVersion": "containerd://2.1.0",
        "kubeletVersion": kubelet_version,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": node.kind.arch,
    }
