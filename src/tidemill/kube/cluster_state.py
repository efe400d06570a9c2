"""Everything the reflectors saw, as one consistent `ClusterView`: kept up to date object by object.

An object that changed is translated once, under the lock. Unchanged objects keep their identity, and so do the tuples
they are in. No thread and no network here: `apply` is what a reflector tells.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from tidemill.engine.clock import MappedClock
from tidemill.kube import wakes
from tidemill.kube.codec import Unreadable
from tidemill.kube.held_jobs import HeldJob, job_of_object
from tidemill.kube.kueue import AdmissionCheckObject, KueueState
from tidemill.kube.nodes import NodeMemory, node_of
from tidemill.kube.objects import (
    BudgetObject,
    ClaimObject,
    Condition,
    DaemonSetObject,
    Key,
    KubeObject,
    Meta,
    NamespaceObject,
    NodeObject,
    NodeSpec,
    PodObject,
    PriorityClassObject,
    ServiceObject,
    VolumeObject,
)
from tidemill.kube.pod_state import PodState
from tidemill.kube.pods import keep_own_annotations
from tidemill.kube.workloads import budgets_of, workload_of_service
from tidemill.model.nodes import KubeNode
from tidemill.model.pods import DisruptionBudget, Pod, PodShape, Workload
from tidemill.model.resources import amount
from tidemill.ports import ClusterView
from tidemill.spec import names

log = logging.getLogger("tidemill.kube.cluster_state")

SERVICES = ("Deployment", "StatefulSet")
KUEUE = ("Workload", "AdmissionCheck", "ResourceFlavor")


class ClusterState:
    def __init__(
        self, clock: MappedClock, *, wake: Callable[[str], None], has_accelerators: Callable[[str], bool]
    ) -> None:
        """`has_accelerators`: whether nodes of an instance type register GPUs some time after they join."""
        self._clock, self._wake, self._has_accelerators = clock, wake, has_accelerators
        self._lock = threading.RLock()
        self._pods = PodState(clock, self._pod_changed)
        self._unreadable: dict[tuple[str, str], Unreadable] = {}  # by kind and uid
        self._named: dict[tuple[str, str], Key] = {}  # by kind and uid: claims, volumes and nodes
        self._nodes: dict[str, NodeObject] = {}  # by name
        self._kube_nodes: dict[str, KubeNode] = {}
        self._memory: dict[str, NodeMemory] = {}  # by name
        self._services: dict[str, tuple[str, ServiceObject]] = {}  # by uid, with the kind
        self._workloads: dict[str, Workload] = {}  # by uid
        self._daemons: dict[str, DaemonSetObject] = {}
        self._all_daemons: tuple[PodShape, ...] | None = ()
        self._budgets: dict[str, BudgetObject] = {}
        self._kueue = KueueState()
        self._generation = 0  # of the templates that pods and services were read with
        self._listed: set[str] = set()
        self._news: list[str] = []
        self._view = ClusterView((), (), (), {})
        self._all_nodes: tuple[KubeNode, ...] | None = ()
        self._all_workloads: tuple[Workload, ...] | None = ()
        self._all_budgets: tuple[DisruptionBudget, ...] = ()
        self._budgets_from = -1  # the population they were read with; -1: read them again

    # --- what is asked ------------------------------------------------------------------------------

    def view(self) -> ClusterView:
        """The same object, and the same tuples in it, as long as nothing changed."""
        with self._lock:
            self._recount()
            self._pods.pass_time()
            pods, by_node = self._pods.index.all(), self._pods.index.by_node()
            nodes, workloads, budgets = self._read_nodes(), self._read_workloads(), self._read_budgets()
            after = (nodes, pods, budgets, by_node, workloads, self._read_daemons())
            last = self._view
            before = (last.nodes, last.pods, last.budgets, last.pods_by_node, last.workloads, last.daemons)
            if any(x is not y for x, y in zip(before, after, strict=True)):
                self._view = ClusterView(*after)
            return self._view

    def pod(self, uid: str) -> PodObject | None:
        with self._lock:
            return self._pods.objects.get(uid)

    def node(self, name: str) -> NodeObject | None:
        with self._lock:
            return self._nodes.get(name)

    def job(self, uid: str) -> HeldJob | None:
        """By its own uid, or by that of a pod it has or will make."""
        with self._lock:
            self._recount()
            found = self._pods.jobs.get(uid.partition(".")[0])
            pod = self._pods.index.by_uid.get(uid)
            return found or (self._pods.jobs_by_workload.get(pod.workload) if pod is not None else None)

    def service(self, workload: str) -> ServiceObject | None:
        with self._lock:
            uids = (uid for uid, one in self._workloads.items() if one.name == workload)
            return next((self._services[uid][1] for uid in uids), None)

    def admission_checks(self) -> tuple[AdmissionCheckObject, ...]:
        """Those of Kueue that are ours to answer."""
        with self._lock:
            return tuple(one for one in self._kueue.checks.values() if one.is_ours)

    def model_pod(self, uid: str) -> Pod | None:
        with self._lock:
            self._recount()
            return self._pods.index.by_uid.get(uid)

    def unreadable(self) -> tuple[tuple[str, Unreadable], ...]:
        """With their kinds: what is there and cannot be read."""
        with self._lock:
            return tuple((kind, one) for (kind, _), one in self._unreadable.items())

    def _recount(self) -> None:
        """Nobody is woken for it: the pods that came or went have done so."""
        self._pods.recount()
        self._follow_templates()
        self._news.clear()

    def _follow_templates(self) -> None:
        """Templates that must be read again change what pods and services are."""
        if self._pods.templates.generation != self._generation:
            self._generation = self._pods.templates.generation
            self._pods.translate_all()
            self._translate_services()

    # --- what reflectors tell -----------------------------------------------------------------------

    def apply(self, kind: str, changed: Sequence[Any], removed: Sequence[str], *, listed: bool) -> None:
        with self._lock:
            for uid in removed:
                self._unreadable.pop((kind, uid), None)
                self._remove(kind, uid)
            for one in changed:
                self._note_readable(kind, one)
                if isinstance(one, Unreadable):
                    self._put_unreadable(kind, one)
                elif kind != "Pod":
                    self._try_put(kind, one)
            if kind == "Pod":
                self._pods.put(changed)
            self._follow_templates()
            first = listed and kind not in self._listed
            if listed:
                self._listed.add(kind)
            news, self._news = self._news, []
        if first:
            self._wake(f"{kind}: all of them were read")
        elif news:
            self._wake(news[0] + (f" (and {len(news) - 1} more changes)" if len(news) > 1 else ""))

    def _note_readable(self, kind: str, one: KubeObject | Unreadable) -> None:
        """What cannot be read is said once. What was known of it before stays."""
        key = (kind, one.metadata.uid)
        if not isinstance(one, Unreadable):
            self._unreadable.pop(key, None)
            return
        if key not in self._unreadable:
            log.warning("%s %s cannot be read: %s", kind, one.metadata.full_name, one.error[:300])
        self._unreadable[key] = one

    def _put_unreadable(self, kind: str, one: Unreadable) -> None:
        """A node that is there has joined: what is wrong with its object is no reason to end its instance."""
        if kind == "Node" and one.metadata.name and one.metadata.name not in self._nodes:
            self._named[kind, one.metadata.uid] = one.metadata.namespace, one.metadata.name
            node = NodeObject(one.metadata, NodeSpec(one.provider_id, unschedulable=True))
            node.status.conditions = [Condition("Ready", "True")]
            self._put_node(node)

    def _try_put(self, kind: str, one: KubeObject) -> None:
        """A fault of ours in one object must not leave the others unread for ever: it counts as unreadable."""
        try:
            self._put(kind, one)
        except Exception as error:
            log.exception("%s %s is not understood", kind, one.metadata.full_name)
            provider_id = one.spec.provider_id if isinstance(one, NodeObject) else ""
            meta = one.metadata
            bare = Meta(meta.name, meta.namespace, meta.uid, meta.resource_version)
            bad = Unreadable(bare, "", f"{type(error).__name__}: {error}", provider_id)
            self._unreadable[kind, meta.uid] = bad
            if kind == "Node" and meta.name not in self._kube_nodes:
                self._nodes.pop(meta.name, None)
            self._put_unreadable(kind, bad)

    def _put(self, kind: str, one: KubeObject) -> None:
        uid, key = one.metadata.uid, one.key
        if isinstance(one, NodeObject):
            self._named[kind, uid] = key
            self._put_node(one)
        elif isinstance(one, ServiceObject):
            keep_own_annotations(one.metadata)
            keep_own_annotations(one.spec.template.metadata)
            self._pods.templates.shared(one.spec.template.spec)
            self._services[uid] = (kind, one)
            self._translate_service(uid)
        elif isinstance(one, DaemonSetObject):
            self._daemons[uid] = one
            self._all_daemons = None
        elif isinstance(one, BudgetObject):
            self._budgets[uid] = one
            self._budgets_from = -1
        elif isinstance(one, PriorityClassObject):
            self._pods.put_class(uid, one)
            self._translate_services()
        elif isinstance(one, NamespaceObject):
            self._named[kind, uid] = key
            self._pods.templates.put_namespace(one.metadata.name, one.metadata.labels or {})
        elif isinstance(one, ClaimObject):
            self._named[kind, uid] = key
            if self._pods.volumes.put_claim(one):
                self._pods.translate_claims((key,))
        elif isinstance(one, VolumeObject):
            self._named[kind, uid] = key
            self._pods.translate_claims(self._pods.volumes.put_volume(one))
        elif kind in KUEUE:
            self._show_again(self._kueue.put(uid, one))
        else:
            self._pods.put_job(uid, self._kueue.job(uid, job_of_object(one)))

    def _show_again(self, jobs: Iterable[str]) -> None:
        """Their Workload, a check or a flavour of Kueue has changed."""
        for uid in tuple(jobs):
            self._pods.put_job(uid, self._kueue.again(uid))

    def _remove(self, kind: str, uid: str) -> None:
        key = self._named.pop((kind, uid), None)
        if kind == "Pod":
            self._pods.remove(uid)
        elif kind == "Node":
            self._drop_node(uid, key)
        elif kind in SERVICES:
            self._services.pop(uid, None)
            gone = self._workloads.pop(uid, None)
            if gone is not None:
                self._all_workloads = None
                self._news.append(wakes.of_workload(gone, None))
        elif kind == "DaemonSet":
            self._daemons.pop(uid, None)
            self._all_daemons = None
        elif kind == "PodDisruptionBudget":
            self._budgets.pop(uid, None)
            self._budgets_from = -1
        elif kind == "PriorityClass":
            self._pods.put_class(uid, None)
            self._translate_services()
        elif kind == "Namespace" and key is not None:
            self._pods.templates.put_namespace(key[1], None)
        elif kind == "PersistentVolumeClaim" and key is not None:
            if self._pods.volumes.drop_claim(key):
                self._pods.translate_claims((key,))
        elif kind == "PersistentVolume" and key is not None:
            self._pods.translate_claims(self._pods.volumes.drop_volume(key[1]))
        elif kind in KUEUE:
            self._show_again(self._kueue.put(uid, None))
        else:
            self._pods.put_job(uid, self._kueue.job(uid, None))

    # --- nodes --------------------------------------------------------------------------------------

    def _put_node(self, one: NodeObject) -> None:
        name = one.metadata.name
        keep_own_annotations(one.metadata)
        known = self._nodes.get(name)
        if known is None or known.metadata.uid != one.metadata.uid:
            # One that was there before us may have had a pod a moment ago: its idle time begins now.
            was_there = "Node" not in self._listed
            self._memory[name] = NodeMemory(last_pod_event_at=self._clock.now() if was_there else None)
        self._nodes[name] = one
        self._translate_node(name)

    def _translate_node(self, name: str) -> None:
        faults: list[str] = []
        memory, before = self._memory[name], self._kube_nodes.get(name)
        node = node_of(self._nodes[name], self._clock, memory, faults)
        if memory.accelerators_registered_at is None:
            memory.accelerators_registered_at = registered = self._registered_at(node, before)
            node = replace(node, accelerators_registered_at=registered)
        if faults and before is None:
            log.warning("node %s: %s", name, "; ".join(faults[:5]))
        if before == node:
            return
        self._kube_nodes[name] = node
        self._all_nodes = None
        if said := wakes.of_node(before, node):
            self._news.append(said)

    def _registered_at(self, node: KubeNode, before: KubeNode | None) -> Any:
        """Seen happening: now. Found so: when it became Ready. Of a type without accelerators: when it joined."""
        if not any(amount(node.allocatable, name) for name in names.ACCELERATORS):
            instance_type = dict(node.labels).get(names.LABEL_TYPE, "")
            return None if self._has_accelerators(instance_type) else node.joined_at
        if before is not None:
            return self._clock.now()
        return max(node.joined_at, node.ready_changed_at or node.joined_at) if node.ready else node.joined_at

    def _drop_node(self, uid: str, key: Key | None) -> None:
        name = key[1] if key is not None else ""
        if name not in self._nodes or self._nodes[name].metadata.uid != uid:
            return  # another one has the name by now
        del self._nodes[name], self._memory[name]
        gone = self._kube_nodes.pop(name)
        self._all_nodes = None
        self._news.append(wakes.of_node(gone, None))

    def _pod_changed(self, before: Pod | None, after: Pod | None, failed: bool) -> None:
        """Idle timers start when a pod comes or goes. Daemon pods do not count: they come with the node."""
        if said := wakes.of_pod(before, after, failed=failed):
            self._news.append(said)
        came = after.node if after is not None and not after.daemon else ""
        left = before.node if before is not None and not before.daemon else ""
        if came == left or "Pod" not in self._listed:
            return
        for name in filter(None, (came, left)):
            node = self._kube_nodes.get(name)
            if node is not None:
                self._memory[name].last_pod_event_at = now = self._clock.now()
                self._kube_nodes[name] = replace(node, last_pod_event_at=now)
                self._all_nodes = None

    # --- services, budgets --------------------------------------------------------------------------

    def _translate_services(self) -> None:
        for uid in self._services:
            self._translate_service(uid)

    def _translate_service(self, uid: str) -> None:
        kind, one = self._services[uid]
        before = self._workloads.get(uid)
        after = workload_of_service(kind, one, self._pods.of_template(one.spec.template))
        if before == after:
            return
        self._workloads[uid] = after
        self._all_workloads = None
        if said := wakes.of_workload(before, after):
            self._news.append(said)

    def _read_nodes(self) -> tuple[KubeNode, ...]:
        if self._all_nodes is None:
            self._all_nodes = tuple(self._kube_nodes[name] for name in sorted(self._kube_nodes))
        return self._all_nodes

    def _read_workloads(self) -> tuple[Workload, ...]:
        if self._all_workloads is None:
            self._all_workloads = tuple(sorted(self._workloads.values(), key=lambda one: one.name))
        return self._all_workloads

    def _read_daemons(self) -> tuple[PodShape, ...]:
        if self._all_daemons is None:
            of_name = sorted(self._daemons.values(), key=lambda one: one.key)
            self._all_daemons = tuple(self._pods.of_template(one.spec.template).shape for one in of_name)
        return self._all_daemons

    def _read_budgets(self) -> tuple[DisruptionBudget, ...]:
        if self._budgets_from != self._pods.population_changes:
            found = budgets_of(self._budgets.values(), self._pods.populations()) if self._budgets else ()
            self._budgets_from = self._pods.population_changes
            if found != self._all_budgets:
                self._all_budgets = found
        return self._all_budgets
