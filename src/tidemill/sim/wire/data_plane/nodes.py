"""How an instance of the account becomes a Node of the API server, and stops being one.

Boot, device registration and node check take as long as in the simulated cluster, drawn per instance from the seed.
A node that dies says nothing: its heartbeats stop, and what the control plane makes of that is done in virtual time
here, because at sixty times the speed the controller manager would be an hour late. Faults are armed beforehand and
strike the next instances they match.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.engine.clock import wall_now
from tidemill.model.nodes import Instance, InstanceState
from tidemill.sim.cloud.instances import InstanceHistory
from tidemill.sim.cluster.node_lifecycle import CHECK_S, FORGET_AFTER, GPU_FAILURE, JOIN_S, REGISTER_S
from tidemill.sim.timeline import Timeline, stream
from tidemill.sim.wire.data_plane import node_object
from tidemill.sim.wire.data_plane.api_client import MERGE, STRATEGIC, ApiClient, ApiError
from tidemill.sim.wire.data_plane.node_object import BootedNode
from tidemill.sim.wire.data_plane.user_data import NodeSettings, Taints, decoded, read_user_data
from tidemill.sim.wire.data_plane.write_queue import WriteQueue
from tidemill.sim.wire.instance_format import private_name
from tidemill.spec import names
from tidemill.spec.faults import FaultKind

if TYPE_CHECKING:
    from tidemill.sim.wire.state import Wire

SILENT_AFTER = timedelta(seconds=40)  # without a heartbeat the control plane calls a node Unknown
_OTHERS_STARTUP = (
    "agent-not-ready"  # how network and storage drivers end the taint that they take off themselves
)
_READY_TO_USE = (FaultKind.NEVER_JOINS, FaultKind.LATE_JOIN, FaultKind.GPUS_NEVER_REGISTER)


@dataclass(frozen=True, slots=True)
class Timings:
    """Ranges in virtual seconds: from launch to join, to registered devices, to the node check; and a pod's start."""

    join_s: tuple[int, int] = JOIN_S
    register_s: tuple[int, int] = REGISTER_S
    check_s: tuple[int, int] = CHECK_S
    start_s: tuple[int, int] = (2, 15)


USUAL = Timings()
FAST = Timings((2, 2), (1, 1), (1, 1), (1, 1))  # for clients that live in real time


@dataclass(slots=True)
class _Armed:
    kind: FaultKind
    left: int
    target: str
    delay: timedelta


class Nodes:
    def __init__(
        self, wire: Wire, timeline: Timeline, client: ApiClient, writes: WriteQueue, timings: Timings,
        startup_taints: Iterable[str],
    ) -> None:  # fmt: skip
        self._wire, self._timeline, self._client, self._writes = wire, timeline, client, writes
        self._timings, self._startup_taints = timings, frozenset(startup_taints)
        self._armed: list[_Armed] = []
        self._booting: set[str] = set()
        self._kubelet_version = ""
        self.by_instance: dict[str, BootedNode] = {}
        self.by_name: dict[str, BootedNode] = {}
        self.on_death: Callable[[BootedNode], None] = lambda node: None
        self.on_gpu_failure: Callable[[BootedNode], None] = lambda node: None
        wire.cloud.on_instance.append(self._changed)
        for history in list(wire.cloud.instance_histories.values()):
            if history.now.state is InstanceState.RUNNING:
                self._changed(history.now)

    def close(self) -> None:
        self._wire.cloud.on_instance.remove(self._changed)

    def up(self) -> list[BootedNode]:
        """Those whose kubelets run."""
        return [node for node in list(self.by_name.values()) if node.dead_at is None and not node.gone]

    # --- faults -------------------------------------------------------------------------------------

    def arm(self, kind: FaultKind, count: int, target: str, delay: timedelta = timedelta(0)) -> None:
        assert kind in _READY_TO_USE, kind
        self._armed.append(_Armed(kind, count, target, delay))

    def fail_gpu(self, target: str) -> str:
        """A GPU of the first checked node that matches breaks; its name. None is there: the next check fails."""
        for node in self.up():
            if node.verified and self._matches(node.instance, target):
                self._fail_check(node)
                self.on_gpu_failure(node)
                return node.name
        self._armed.append(_Armed(FaultKind.GPU_FAILS, 1, target, timedelta(0)))
        return ""

    def _struck_by(self, kind: FaultKind, instance: Instance) -> _Armed | None:
        for fault in self._armed:
            if fault.kind is kind and fault.left and self._matches(instance, fault.target):
                fault.left -= 1
                return fault
        return None

    def _matches(self, instance: Instance, target: str) -> bool:
        group = self._wire.cloud.groups.of(instance.id)
        of_group = (group[0].name, group[0].node_group) if group is not None else ()
        known = (instance.pool, instance.source.label, instance.instance_type, instance.zone, instance.id)
        return not target or target in (*known, *of_group)

    # --- up -----------------------------------------------------------------------------------------

    def _changed(self, instance: Instance) -> None:
        if instance.state is InstanceState.RUNNING:
            self._boot(instance)
        elif instance.id in self.by_instance:
            self._die(self.by_instance[instance.id])

    def _draw(self, what: str, instance_id: str, range_s: tuple[int, int]) -> timedelta:
        return timedelta(seconds=stream(self._wire.cloud.seed, what, instance_id).randint(*range_s))

    def _boot(self, instance: Instance) -> None:
        if instance.id in self._booting:
            return
        self._booting.add(instance.id)
        if self._struck_by(FaultKind.NEVER_JOINS, instance):
            return
        late = self._struck_by(FaultKind.LATE_JOIN, instance)
        delay = self._draw("join", instance.id, self._timings.join_s) + (late.delay if late else timedelta(0))
        at = max(instance.launched_at + delay, self._timeline.now())
        self._timeline.at(at, lambda: self._join(instance.id))

    def _join(self, instance_id: str) -> None:
        history = self._wire.cloud.instance_histories[instance_id]
        if history.now.state is not InstanceState.RUNNING:
            return
        instance, kind = history.now, self._wire.cloud.catalog.types[history.now.instance_type]
        record = self._wire.launch_of(history)
        told = _with_node_group(self._wire, instance_id, read_user_data(decoded(record.user_data)))
        name = private_name(self._wire, history)
        node = BootedNode(
            instance, kind, name, self._wire.address(history), self._labels(history, name, told), told.taints,
            told.max_pods, self._timeline.now(),
        )  # fmt: skip
        self.by_instance[instance_id] = self.by_name[name] = node
        self._wire.cloud.journal.add("node-joined", name, f"{kind.name}, {instance_id}")
        if kind.accelerator is None:
            node.registered_at = self._timeline.now()
        self._write(node)
        if kind.accelerator is None:
            self._check_later(node)
        elif not self._struck_by(FaultKind.GPUS_NEVER_REGISTER, instance):
            delay = self._draw("register", instance_id, self._timings.register_s)
            self._timeline.after(delay, lambda: self._register(node))

    def _labels(self, history: InstanceHistory, name: str, told: NodeSettings) -> dict[str, str]:
        instance, kind = history.now, self._wire.cloud.catalog.types[history.now.instance_type]
        return {
            **told.labels,
            names.LABEL_HOSTNAME: name,
            names.LABEL_TYPE: instance.instance_type,
            names.LABEL_ARCH: kind.arch,
            "kubernetes.io/os": "linux",
            names.LABEL_ZONE: instance.zone,
            "topology.kubernetes.io/region": self._wire.region,
            "topology.k8s.aws/zone-id": self._wire.network.zone_ids[instance.zone],
        }

    def _register(self, node: BootedNode) -> None:
        if node.dead_at is not None:
            return
        node.registered_at = self._timeline.now()
        self._wire.cloud.journal.add("gpus-registered", node.name, f"{node.kind.gpus} devices")
        self._write(node)
        self._check_later(node)

    def _check_later(self, node: BootedNode) -> None:
        delay = self._draw("check", node.instance.id, self._timings.check_s)
        self._timeline.after(delay, lambda: self._check(node))

    def _check(self, node: BootedNode) -> None:
        """The owners of other startup taints are ready by then, too, and take them off."""
        if node.dead_at is not None:
            return
        if self._struck_by(FaultKind.GPU_FAILS, node.instance):
            self._fail_check(node)
            return
        node.verified = True
        node.going_taints = frozenset(key for key, _, _ in node.taints if self._goes_by_itself(key))
        self._wire.cloud.journal.add("node-check-passed", node.name, "every device answers")
        self._write(node)

    def _goes_by_itself(self, key: str) -> bool:
        ours = key in (names.TAINT_STARTUP, names.TAINT_HELD)
        return not ours and (key in self._startup_taints or key.endswith(_OTHERS_STARTUP))

    def _fail_check(self, node: BootedNode) -> None:
        """The device plugin reports one device fewer, so that whole-node pods no longer land there."""
        node.verified, node.message = False, GPU_FAILURE
        node.lost_devices += 1 if node.kind.accelerator is not None else 0
        self._wire.cloud.journal.add("node-check-failed", node.name, GPU_FAILURE)
        self._write(node)

    # --- down ---------------------------------------------------------------------------------------

    def _die(self, node: BootedNode) -> None:
        if node.dead_at is not None:
            return
        node.dead_at = self._timeline.now()
        self.on_death(node)
        self._timeline.after(SILENT_AFTER, lambda: self._go_silent(node))
        self._timeline.after(FORGET_AFTER, lambda: self._forget(node))

    def _go_silent(self, node: BootedNode) -> None:
        node.silent = True
        self._write(node)

    def _forget(self, node: BootedNode) -> None:
        """The cloud controller removes the Node of an instance that is gone, if nobody did before."""
        self._writes.submit(f"node {node.name}", lambda: self._remove(node))

    # --- the API server, from the queue's threads -----------------------------------------------------

    def _write(self, node: BootedNode) -> None:
        self._writes.submit(f"node {node.name}", lambda: self.send(node))

    def send(self, node: BootedNode) -> None:
        """The Node as it is now: made, or patched."""
        if node.gone:
            return
        path = f"/api/v1/nodes/{node.name}"
        try:
            if not node.uid:
                self._make(node)
            else:
                status = {"status": node_object.as_status(node, wall_now())}
                self._client.send("PATCH", f"{path}/status", status, STRATEGIC)
            if node.going_taints:
                self._take_taints_off(node, path)
        except ApiError as error:
            if error.status != 404:
                raise
            node.gone = True  # somebody deleted it; a kubelet registers only when it starts

    def _make(self, node: BootedNode) -> None:
        if not self._kubelet_version:
            self._kubelet_version = str(json.loads(self._client.send("GET", "/version"))["gitVersion"])
        written = node_object.as_object(node, self._kubelet_version, self._wire.cloud.seed, wall_now())
        try:
            answer = self._client.send("POST", "/api/v1/nodes", written)
        except ApiError as error:
            if error.status != 409:
                raise
            answer = self._client.send("GET", f"/api/v1/nodes/{node.name}")  # a kubelet finds its node again
            if json.loads(answer)["spec"].get("providerID") != written["spec"]["providerID"]:
                self._client.send(
                    "DELETE", f"/api/v1/nodes/{node.name}"
                )  # of an instance that had the name before
                raise
        node.uid = str(json.loads(answer)["metadata"]["uid"])

    def _take_taints_off(self, node: BootedNode, path: str) -> None:
        """The list is one value to Kubernetes: it is changed as it was read, or tried again."""
        now = json.loads(self._client.send("GET", path))
        taints: list[dict[str, str]] = now["spec"].get("taints") or []
        left = [taint for taint in taints if taint["key"] not in node.going_taints]
        if len(left) != len(taints):
            version = {"resourceVersion": now["metadata"]["resourceVersion"]}
            self._client.send("PATCH", path, {"metadata": version, "spec": {"taints": left}}, MERGE)
        node.going_taints = frozenset()

    def _remove(self, node: BootedNode) -> None:
        if not node.gone and node.uid:
            node.gone = True
            try:
                self._client.send(
                    "DELETE", f"/api/v1/nodes/{node.name}", {"preconditions": {"uid": node.uid}}
                )
            except ApiError as error:
                if error.status not in (404, 409):
                    node.gone = False
                    raise


def _with_node_group(wire: Wire, instance_id: str, told: NodeSettings) -> NodeSettings:
    """EKS adds the labels and taints of a managed node group to the user data of its nodes."""
    group = wire.cloud.groups.of(instance_id)
    if group is None or not group[0].node_group:
        return told
    managed = wire.cloud.node_groups.get(group[0].node_group)
    labels = {
        **told.labels,
        **dict(managed.labels),
        "eks.amazonaws.com/nodegroup": managed.name,
        "eks.amazonaws.com/capacityType": managed.capacity_type,
    }
    taints: Taints = tuple(dict.fromkeys((*told.taints, *managed.taints)))
    return NodeSettings(labels, taints, told.max_pods)
