"""How an instance becomes a node and stops being one: join, device registration, node check, death.

Times are drawn per instance from the seed: join 3-5 min after launch, devices 60-90 s after the join, the
check 20-40 s after that. Faults are armed beforehand and strike the next instances they match. Pods matter here only
because they die with their node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from tidemill.catalog import Catalog, InstanceType
from tidemill.model.labels import Pairs, Taint, Toleration
from tidemill.model.nodes import INSTANCE_ENDED_STATES, Instance, InstanceState, KubeNode
from tidemill.model.pods import Pod, PodPhase, PodShape, Terms
from tidemill.model.reasons import DrainReason
from tidemill.model.resources import Amounts
from tidemill.sim.cluster.api_server import ApiServer
from tidemill.sim.cluster.kubelet import Kubelets, gpu_pods
from tidemill.sim.timeline import stream
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import ComputePoolSpec, TaintSpec
from tidemill.spec.node_class import fingerprint

JOIN_S = (180, 300)  # from launch: boot, bootstrap, kubelet registration
REGISTER_S = (60, 90)  # from join: the device plugin's pod starts and reports its devices
CHECK_S = (20, 40)  # from registration: every GPU answers, a small collective runs
FORGET_AFTER = timedelta(minutes=5)  # the cloud controller removes the node of a dead instance by itself
GPU_FAILURE = "Xid 79: GPU has fallen off the bus"

_DAEMON = PodShape(
    requests=((names.CPU, 100), (names.MEMORY, 128 * 2**20)), tolerations=(Toleration(operator="Exists"),)
)
FaultKind = Literal["late-join", "never-joins", "gpus-never-register", "check-fails"]


@dataclass(slots=True)
class NodeTruth:
    """When each step of one node's life happened; None: not yet."""

    instance_id: str
    name: str
    pool: str
    source: str
    instance_type: str
    launched_at: datetime
    made_from: str = ""  # the fingerprint of its node class at launch
    ends_at: datetime | None = None  # what its deadline agent was launched with
    joined_at: datetime | None = None
    registered_at: datetime | None = None
    checked_at: datetime | None = None
    ready_at: datetime | None = None  # the startup taint came off
    draining_since: datetime | None = None
    drain_reason: DrainReason | None = None
    dead_at: datetime | None = None  # the instance went down: NotReady
    gone_at: datetime | None = None  # the node object was removed, or the instance ended without one


@dataclass(slots=True)
class _Armed:
    kind: FaultKind
    left: int
    target: str
    delay: timedelta = timedelta(0)


class NodeLifecycle:
    def __init__(self, api: ApiServer, kubelets: Kubelets, catalog: Catalog, spec: Spec, seed: int) -> None:
        self._api = api
        self._kubelets = kubelets
        self._catalog = catalog
        self.spec = spec
        self._seed = seed
        self._armed: list[_Armed] = []
        self.struck_at: list[
            datetime
        ] = []  # when armed faults struck, which may be days after they were armed
        self._forget: dict[str, Callable[[], None]] = {}
        self.history: dict[str, NodeTruth] = {}  # by instance id
        self.by_name: dict[str, NodeTruth] = {}
        # What a deadline agent is given at launch; without agents no node knows its end.
        self.end_at_launch: Callable[[Instance], datetime | None] = lambda instance: None
        self.deadline_agents = False  # one runs on every node that joins, and says so
        self.on_joined: Callable[[str], None] = lambda node: None
        self.checks = True  # every node has a node check; without it nothing reports on a node
        self.daemon = _DAEMON  # what the daemon pods of a node ask for, as one

    def arm(self, kind: FaultKind, count: int, target: str, delay: timedelta = timedelta(0)) -> None:
        self._armed.append(_Armed(kind, count, target, delay))

    def _struck_by(self, kind: FaultKind, truth: NodeTruth) -> _Armed | None:
        for fault in self._armed:
            if fault.kind == kind and fault.left and matches_target(truth, fault.target):
                fault.left -= 1
                self.struck_at.append(self._api.timeline.now())
                return fault
        return None

    def _draw(self, what: str, instance_id: str, between_s: tuple[int, int]) -> timedelta:
        return timedelta(seconds=stream(self._seed, what, instance_id).randint(*between_s))

    def node_name(self, instance_id: str) -> str:
        region = self.spec.platform.spec.region
        return f"{instance_id}.{'ec2' if region == 'us-east-1' else f'{region}.compute'}.internal"

    # --- up -----------------------------------------------------------------------------------------

    def instance_changed(self, instance: Instance) -> None:
        """Instances of pools that are not in the spec join other clusters."""
        if instance.pool not in self.spec.pools:
            return
        truth = self.history.get(instance.id)
        if instance.state is InstanceState.RUNNING and truth is None:
            self._boot(instance)
        elif instance.state in INSTANCE_ENDED_STATES and truth is not None:
            self._die(truth)

    def _boot(self, instance: Instance) -> None:
        name = self.node_name(instance.id)
        truth = NodeTruth(
            instance.id,
            name,
            instance.pool,
            instance.source.label,
            instance.instance_type,
            instance.launched_at,
            self._made_from(instance.pool),
            self.end_at_launch(instance),
        )
        self.history[instance.id] = truth
        self.by_name[name] = truth
        if self._struck_by("never-joins", truth):
            return
        late = self._struck_by("late-join", truth)
        delay = self._draw("join", instance.id, JOIN_S) + (late.delay if late else timedelta(0))
        self._api.timeline.at(instance.launched_at + delay, lambda: self._join(instance, truth))

    def _join(self, instance: Instance, truth: NodeTruth) -> None:
        if truth.dead_at is not None:
            return
        now, kind = self._api.timeline.now(), self._catalog.types[instance.instance_type]
        truth.joined_at = now
        bare = kind.accelerator is None
        pool = self.spec.pools[instance.pool].spec
        node = KubeNode(
            name=truth.name,
            instance_id=instance.id,
            joined_at=now,
            ready=True,
            allocatable=kind.allocatable if bare else _without_devices(kind.allocatable),
            labels=self._labels(instance, kind, truth),
            taints=_all_taints(pool),
            check="running" if self.checks else "",
            ends_at=truth.ends_at,
            deadline_agent=self.deadline_agents,
        )
        # The scheduler counts on the devices from the start, as it does when a kubelet remembers them
        # from its checkpoint: a pod that tolerates the startup taint is bound, and refused by the kubelet.
        self._api.add_node(node, kind.allocatable)
        self._add_daemon(truth.name)
        self._api.journal.add("node-joined", truth.name, f"{truth.instance_type} of pool {truth.pool}")
        self._api.wake(f"{truth.name} joined")
        self.on_joined(truth.name)
        if bare:
            self._register(truth, kind)
        elif not self._struck_by("gpus-never-register", truth):
            delay = self._draw("register", instance.id, REGISTER_S)
            self._api.timeline.after(delay, lambda: self._register(truth, kind))

    def _made_from(self, pool: str) -> str:
        node_class = self.spec.node_classes.get(self.spec.pools[pool].spec.node_class_name)
        return fingerprint(node_class) if node_class is not None else ""

    def _labels(self, instance: Instance, kind: InstanceType, truth: NodeTruth) -> Pairs:
        labels = {
            **self.spec.pools[instance.pool].spec.labels,
            names.LABEL_POOL: instance.pool,
            names.LABEL_SOURCE: instance.source.label,
            names.LABEL_ZONE: instance.zone,
            names.LABEL_TYPE: instance.instance_type,
            names.LABEL_ARCH: kind.arch,
            names.LABEL_HOSTNAME: truth.name,
            names.LABEL_NODE_CLASS: truth.made_from,
        }
        return tuple(sorted(labels.items()))

    def _add_daemon(self, node: str) -> None:
        name = f"node-agent-{node.partition('.')[0]}"
        now = self._api.timeline.now()
        pod = Pod(
            f"uid-kube-system-{name}", "kube-system", name, self.daemon, Terms(), PodPhase.PENDING, now,
            workload="DaemonSet/node-agent", daemon=True, node=node,
        )  # fmt: skip
        self._kubelets.start_now(pod)

    def _register(self, truth: NodeTruth, kind: InstanceType) -> None:
        if truth.dead_at is not None or truth.gone_at is not None:
            return
        now = truth.registered_at = self._api.timeline.now()
        node = self._api.node(truth.name)
        self._api.put_node(replace(node, allocatable=kind.allocatable, accelerators_registered_at=now))
        if kind.accelerator is not None:
            self._api.journal.add(
                "gpus-registered", truth.name, f"{kind.accelerator.count} {kind.accelerator.resource}"
            )
            self._api.wake(f"{truth.name} registered its devices")
        self._api.timeline.after(self._draw("check", truth.instance_id, CHECK_S), lambda: self._check(truth))

    def _check(self, truth: NodeTruth) -> None:
        """startupTaints are removed by their owners (a network plugin, say): here when the check passes."""
        if truth.dead_at is not None or truth.gone_at is not None:
            return
        if self._struck_by("check-fails", truth):
            self._fail_check(truth)
            return
        truth.checked_at = self._api.timeline.now()
        node = self._api.node(truth.name)
        theirs = _taints(self.spec.pools[truth.pool].spec.startup_taints)
        left = tuple(taint for taint in node.taints if taint not in theirs)
        self._api.put_node(replace(node, check="passed" if self.checks else "", taints=left))
        self._api.journal.add("node-check-passed", truth.name, "every device answers")
        self._api.wake(f"{truth.name} passed its check")

    def restore(self, instance: Instance, kube: KubeNode) -> str:
        """A node that was there before the simulation began: its name here. What it lacks comes as for any other."""
        name, kind = self.node_name(instance.id), self._catalog.types[instance.instance_type]
        starting = any(taint.key == names.TAINT_STARTUP for taint in kube.taints)
        registered = kind.accelerator is None or any(
            resource == kind.accelerator.resource for resource, _ in kube.allocatable
        )
        truth = NodeTruth(
            instance.id, name, instance.pool, instance.source.label, instance.instance_type, instance.launched_at,
            self._made_from(instance.pool), self.end_at_launch(instance), kube.joined_at,
            kube.accelerators_registered_at or (kube.joined_at if registered else None),
            kube.joined_at if kube.check == "passed" else None,
            None if starting else kube.opened_at or kube.joined_at, kube.draining_since, kube.drain_reason,
        )  # fmt: skip
        self.history[instance.id] = self.by_name[name] = truth
        labels = {**dict(kube.labels), names.LABEL_HOSTNAME: name}
        node = replace(
            kube, name=name, instance_id=instance.id, labels=tuple(sorted(labels.items())), ready=True
        )
        self._api.add_node(node, kind.allocatable)
        if not registered:
            self._api.timeline.after(
                self._draw("register", instance.id, REGISTER_S), lambda: self._register(truth, kind)
            )
        elif starting and kube.check != "failed":
            self._api.timeline.after(self._draw("check", instance.id, CHECK_S), lambda: self._check(truth))
        self.on_joined(name)
        return name

    # --- down ---------------------------------------------------------------------------------------

    def fail_gpu(self, target: str) -> str:
        """One GPU of the first Ready node that matches breaks; the node's name.

        With none Ready, the next matching node that comes to its check fails it, and the answer is empty.
        """
        for name in self._api.nodes:
            node, truth = self._api.nodes[name], self.by_name[name]
            if (
                node.ready
                and node.check != "failed"
                and truth.ready_at is not None
                and matches_target(truth, target)
            ):
                self._fail_check(truth)
                for pod in gpu_pods(self._api, name)[:1]:
                    self._kubelets.crash(pod, GPU_FAILURE)
                return name
        self.arm("check-fails", 1, target)
        return ""

    def _fail_check(self, truth: NodeTruth) -> None:
        """The plugin reports one device fewer, so that whole-node pods no longer land there."""
        truth.checked_at = truth.checked_at or self._api.timeline.now()
        node, kind = self._api.node(truth.name), self._catalog.types[truth.instance_type]
        left = node.allocatable
        if kind.accelerator is not None:
            resource = kind.accelerator.resource
            left = tuple((name, count - (name == resource)) for name, count in left)
            self._api.node_infos[node.name].shrink(resource, 1)
        if not self.checks:
            self._api.put_node(replace(node, allocatable=left))
            return
        self._api.put_node(replace(node, allocatable=left, check="failed", check_message=GPU_FAILURE))
        self._api.journal.add("node-check-failed", truth.name, GPU_FAILURE)
        self._api.wake(f"{truth.name} failed its check")

    def _die(self, truth: NodeTruth) -> None:
        if truth.dead_at is not None:
            return
        truth.dead_at = self._api.timeline.now()
        node = self._api.nodes.get(truth.name)
        if node is None:
            truth.gone_at = truth.gone_at or truth.dead_at
            return
        self._api.put_node(replace(node, ready=False, ready_changed_at=truth.dead_at))
        self._kubelets.kill_all(truth.name)
        self._forget[truth.name] = self._api.timeline.after(FORGET_AFTER, lambda: self.remove(truth.name))
        self._api.wake(f"{truth.name} is not ready")

    def remove(self, name: str) -> None:
        """Deletes the node object and the pods still on it, as the pod garbage collector does."""
        self._api.node(name)
        cancel = self._forget.pop(name, None)
        if cancel is not None:
            cancel()
        self._kubelets.kill_all(name)
        self._api.drop_node(name)
        self.by_name[name].gone_at = self._api.timeline.now()
        self._api.journal.add("node-gone", name, "the node object was removed")
        self._api.wake(f"{name} was removed")


def matches_target(truth: NodeTruth, target: str) -> bool:
    """`target` names a pool, a source, an instance type or an instance; empty matches everything."""
    return target in ("", truth.pool, truth.source, truth.instance_type, truth.instance_id)


def _all_taints(pool: ComputePoolSpec) -> tuple[Taint, ...]:
    """Those that a node joins with."""
    held = (Taint(names.TAINT_HELD),) if pool.admitted_pods_only else ()
    return (*_taints(pool.taints), *_taints(pool.startup_taints), *held, Taint(names.TAINT_STARTUP))


def _taints(written: tuple[TaintSpec, ...]) -> tuple[Taint, ...]:
    return tuple(Taint(taint.key, taint.value, taint.effect) for taint in written)


def _without_devices(allocatable: Amounts) -> Amounts:
    return tuple((name, count) for name, count in allocatable if name not in (*names.ACCELERATORS, names.EFA))
