"""The Kubernetes cluster of a rehearsal: `ports.Cluster` over the simulated API server, in virtual time.

It has the methods of the port and what a scenario does to the cluster (jobs, services, faults); what is true in it is
read from truth. The parts behind it are api_server, scheduler, kubelet, node_lifecycle, jobs and services. It knows
instances only by what the account reports, and no rule of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache

from tidemill.catalog import Catalog
from tidemill.model.labels import Taint
from tidemill.model.nodes import Instance, KubeNode
from tidemill.model.pods import Pod, PodPhase, PodShape, Terms
from tidemill.model.reasons import DrainReason
from tidemill.model.resources import Amounts
from tidemill.ports import ClusterView
from tidemill.sim.cluster.api_server import ApiServer
from tidemill.sim.cluster.deadline_agent import DeadlineAgents
from tidemill.sim.cluster.jobs import Jobs
from tidemill.sim.cluster.kubelet import Eviction, Kubelets, PodOwner, Stop
from tidemill.sim.cluster.node_lifecycle import NodeLifecycle
from tidemill.sim.cluster.scheduler import Scheduler
from tidemill.sim.cluster.services import Services
from tidemill.sim.cluster.suspended_jobs import SuspendedJobs
from tidemill.sim.cluster.truth import ClusterTruth
from tidemill.sim.cluster.workloads import JobTruth, ServiceTruth, ending_tolerated, held_tolerated
from tidemill.sim.timeline import Journal, Timeline
from tidemill.spec import Spec, names
from tidemill.spec.scenario import JobStream, Service
from tidemill.spec.units import format_instant, instant_in_taint
from tidemill.wording import sentence


class SimCluster(ClusterTruth):
    def __init__(
        self,
        timeline: Timeline,
        journal: Journal,
        catalog: Catalog,
        spec: Spec,
        *,
        seed: int,
        wake: Callable[[str], None],
        verbose: bool = False,
        suspended_jobs: bool = False,
    ) -> None:
        """`suspended_jobs`: Jobs are held as in a real cluster, by suspension; otherwise by gates on their pods."""
        api = ApiServer(timeline, journal, wake, verbose=verbose)
        jobs, services = Jobs(api), Services(api)
        owners: dict[str, PodOwner] = {"Job": jobs, "Deployment": services, "StatefulSet": services}
        kubelets = Kubelets(api, seed, owners)
        jobs.attach(kubelets)
        services.attach(kubelets)
        if suspended_jobs:
            jobs.suspended = SuspendedJobs(api, seed, kubelets.delete)
        nodes = NodeLifecycle(api, kubelets, catalog, spec, seed)
        scheduler = Scheduler(api, kubelets.bind, self._preempt, services.allowances)
        api.request_scheduling = scheduler.request_pass
        super().__init__(api, jobs, services, kubelets, nodes, scheduler)
        self._timeline = timeline
        self._journal = journal
        self._agents: DeadlineAgents | None = None
        self._view = ClusterView((), (), (), {})
        self.evictions: list[Eviction] = []
        self.cut_short: list[Eviction] = []  # those with less grace than the pod's own
        self.stops: list[Stop] = []

    # --- ports.Cluster ------------------------------------------------------------------------------

    def view(self) -> ClusterView:
        nodes, pods = self._api.all_nodes(), self._api.all_pods()
        budgets, workloads = self._services.budgets(), self._services.workloads()
        last = self._view
        same = nodes is last.nodes and pods is last.pods and budgets is last.budgets
        if not same or workloads is not last.workloads:
            self._view = ClusterView(nodes, pods, budgets, self._api.pods_by_node(), workloads)
        return self._view

    def admit(self, pods: Sequence[str], source_label: str, ends_at: datetime | None, pool: str = "") -> None:
        """A pin cannot be taken back: for a pod that has no gate any more, nothing changes."""
        for current in [self._api.pod(pod) for pod in pods]:
            if not current.gated:
                continue
            shape = _admitted(current.shape, pool)
            if current.uid in self._api.shown_only and self._jobs.suspended is not None:
                job = self._jobs.job_of(current)
                self._jobs.suspended.admit(job, source_label, ends_at, shape)
            else:
                self._api.put_pod(
                    replace(current, gated=False, pinned_to=source_label, ends_at=ends_at, shape=shape)
                )
            if ends_at is not None:
                told = f"told at its start: {format_instant(ends_at)}"
                self._journal.add("end-announced", current.full_name, told)

    def mark_ready(self, node: str) -> None:
        current = self._api.node(node)
        left = tuple(taint for taint in current.taints if taint.key != names.TAINT_STARTUP)
        if len(left) != len(current.taints):
            now = self._nodes.by_name[node].ready_at = self._timeline.now()
            self._api.put_node(replace(current, taints=left, opened_at=now))

    def start_drain(self, node: str, reason: DrainReason) -> None:
        current = self._api.node(node)
        if current.draining_since is not None:
            return
        truth = self._nodes.by_name[node]
        now = truth.draining_since = self._timeline.now()
        taint = Taint(names.TAINT_DRAINING, reason.kind.value)
        stored = DrainReason.from_annotations(taint.value, reason.to_annotations())  # as on a Kubernetes node
        truth.drain_reason = stored
        taints = (*current.taints, taint)
        self._api.put_node(replace(current, taints=taints, draining_since=now, drain_reason=stored))

    def keep_for_jobs(self, node: str, ends_at: datetime) -> None:
        current = self._api.node(node)
        others = tuple(taint for taint in current.taints if taint.key != names.TAINT_ENDING)
        taints = (*others, Taint(names.TAINT_ENDING, instant_in_taint(ends_at)))
        if taints != current.taints:
            self._api.put_node(replace(current, taints=taints))

    def cancel_drain(self, node: str) -> None:
        current = self._api.node(node)
        ours = (names.TAINT_DRAINING, names.TAINT_ENDING)
        taints = tuple(taint for taint in current.taints if taint.key not in ours)
        if current.draining_since is None and len(taints) == len(current.taints):
            return
        self._nodes.by_name[node].draining_since = None
        self._api.put_node(replace(current, taints=taints, draining_since=None, drain_reason=None))

    def announce_end(self, pod: str, ends_at: datetime) -> None:
        current = self._api.pod(pod)
        if current.ends_at != ends_at:
            self._api.put_pod(replace(current, ends_at=ends_at))
            story = "told" if current.ends_at is None else "told that its end moved"
            self._journal.add("end-announced", current.full_name, f"{story}: {format_instant(ends_at)}")

    def announce_node_end(self, node: str, ends_at: datetime) -> None:
        current = self._api.node(node)
        if current.ends_at != ends_at:
            self._api.put_node(replace(current, ends_at=ends_at))
            if self._agents is not None:
                self._agents.look(node)

    def request_checkpoint(self, pod: str) -> None:
        """A request that is still open stays as it is; after an acknowledgement a new one may be made."""
        current = self._api.pod(pod)
        if current.checkpoint_requested_at is not None and current.checkpoint_done_at is None:
            return
        asked = replace(current, checkpoint_requested_at=self._timeline.now(), checkpoint_done_at=None)
        self._api.put_pod(asked)
        self._journal.add("checkpoint-requested", asked.full_name, "asked to write a checkpoint")
        if asked.workload.startswith("Job/"):
            self._jobs.checkpoint_requested(asked)

    def evict(self, pod: str) -> bool:
        current = self._api.pod(pod)
        if not self._services.may_evict(current):
            return False
        if current.deleting_until is None and not self._suspended(current):
            self._record_eviction(current, None, forced=False)
            self._kubelets.delete(current)
        return True

    def delete(self, pod: str, grace_s: int | None, *, disruption: bool) -> None:
        current = self._api.pod(pod)
        if self._suspended(current):
            return
        if self._kubelets.changes_anything(current, grace_s):
            self._record_eviction(current, grace_s, forced=disruption and grace_s is not None)
        self._kubelets.delete(current, grace_s, disruption=disruption)

    def _suspended(self, pod: Pod) -> bool:
        """Suspends the Job of a pod that is to go, where Jobs are held so. True: there is no pod to delete."""
        suspended = self._jobs.suspended
        if suspended is None or not pod.workload.startswith("Job/"):
            return False
        if pod.uid in self._jobs.job_of(pod).members.values():
            suspended.suspend(self._jobs.job_of(pod), but=pod.uid)
        return pod.uid in self._api.shown_only

    def restart(self, workload: str, token: str) -> None:
        self._services.restart(workload, token)

    def scale(self, workload: str, replicas: int, added: int, going: Sequence[str]) -> None:
        self._services.scale(workload, replicas, added, going)

    def is_empty(self, instance_id: str) -> bool:
        """The simulated scheduler sees a taint at once."""
        return all(pod.daemon for pod in self.pods_on(instance_id))

    def remove_node(self, node: str) -> None:
        self._nodes.remove(node)

    def _record_eviction(self, pod: Pod, grace_s: int | None, *, forced: bool, by: str = "") -> None:
        """Only of pods on a node: deleting a waiting pod disrupts nothing."""
        if not pod.node:
            return
        own_s = int(pod.terms.grace.total_seconds())
        given_s = own_s if grace_s is None else grace_s
        drain = self._api.node(pod.node).drain_reason
        reason = sentence(drain) if drain is not None else "the node is not drained"
        now = self._timeline.now()
        row = Eviction(now, pod.full_name, pod.node, forced, given_s, reason)
        self.evictions.append(row)
        if given_s < own_s:
            self.cut_short.append(row)
        self.stops.append(Stop(row, pod, by_agent=bool(by)))
        kind = "pod-force-deleted" if forced else "pod-told-by-agent" if by else "pod-evicted"
        how = f"from {pod.node}{f' by {by}' if by else ''} with {given_s} s of its {own_s} s grace"
        self._journal.add(kind, pod.full_name, f"{how}: {reason}")

    def _preempt(self, pod: Pod, by: Pod) -> None:
        """By the scheduler: with the pod's whole grace, and against a disruption budget where nothing else would do."""
        grace_s, reason = int(pod.terms.grace.total_seconds()), f"preempted by {by.full_name}"
        self.evictions.append(Eviction(self._timeline.now(), pod.full_name, pod.node, False, grace_s, reason))
        self._journal.add("pod-preempted", pod.full_name, f"from {pod.node}: {reason}")
        self._kubelets.delete(pod)

    # --- what a scenario does -----------------------------------------------------------------------

    def instance_changed(self, instance: Instance) -> None:
        """Called by the account at each change of an instance's state."""
        self._nodes.instance_changed(instance)

    def install_deadline_agents(self, end_at_launch: Callable[[Instance], datetime | None]) -> None:
        """On every node that joins from now on; it is launched with the end that holds at that moment."""
        agents = self._agents = DeadlineAgents(self._api, self._kubelets, self.start_drain)
        agents.on_delete = lambda pod: self._record_eviction(
            pod, None, forced=False, by="its node's own agent"
        )
        self._nodes.end_at_launch, self._nodes.deadline_agents = end_at_launch, True
        self._nodes.on_joined = self._kubelets.on_bound = agents.look

    def without_node_checks(self) -> None:
        """From now on no node check reports on a node: its registered devices are all there is to go by."""
        self._nodes.checks = False

    def run_daemons(self, asking: Amounts) -> None:
        """On every node that joins from now on: what all daemon pods there ask for together."""
        self._nodes.daemon = replace(self._nodes.daemon, requests=asking)

    def follow(self, spec: Spec) -> None:
        """The documents changed: nodes that boot from now on are made from the new ones."""
        self._nodes.spec = spec

    def submit_job(self, stream: JobStream, name: str, duration: timedelta) -> JobTruth:
        return self._jobs.submit(stream, name, duration)

    def start_service(self, service: Service) -> ServiceTruth:
        return self._services.start(service)

    def stop_service(self, name: str) -> None:
        self._services.stop(name)

    # --- what was there before the simulation began --------------------------------------------------

    def restore_node(self, instance: Instance, kube: KubeNode) -> str:
        return self._nodes.restore(instance, kube)

    def restore_job(self, job: JobTruth, pods: Sequence[Pod]) -> None:
        self._jobs.restore(job, pods)
        for pod in pods:
            self._kubelets.restore(pod)

    def restore_service(self, truth: ServiceTruth, pods: Sequence[Pod]) -> None:
        self._services.restore(truth, pods)
        for pod in pods:
            self._kubelets.restore(pod)

    def restore_pod(self, pod: Pod) -> None:
        """One that no controller of the simulation minds. It runs until somebody stops it."""
        self._api.put_pod(pod)
        self._kubelets.restore(pod)

    def create_pod(
        self,
        name: str,
        shape: PodShape,
        terms: Terms | None = None,
        *,
        namespace: str = "default",
        gated: bool = False,
        held_by_others: bool = False,
        node: str = "",
    ) -> Pod:
        """A pod without a controller. With `node` it is bound by name, without the scheduler."""
        pod = Pod(
            f"uid-{namespace}-{name}", namespace, name, shape, terms or Terms(), PodPhase.PENDING,
            self._timeline.now(), gated=gated, held_by_others=held_by_others,
        )  # fmt: skip
        if node:
            self._api.node(node)
            self._kubelets.bind(pod, node)
        else:
            self._api.put_pod(pod)
            self._api.wake(f"{pod.full_name} was created")
        return pod

    def hold(self, pod: str, *, held: bool = True) -> None:
        """Another controller (Kueue, say) puts its own gate on a pod, or takes it off."""
        self._api.put_pod(replace(self._api.pod(pod), held_by_others=held))
        self._api.wake(f"{pod} is {'held' if held else 'released'} by another controller")

    def late_join(self, count: int, delay: timedelta, target: str = "") -> None:
        self._nodes.arm("late-join", count, target, delay)

    def never_join(self, count: int, target: str = "") -> None:
        self._nodes.arm("never-joins", count, target)

    def gpus_never_register(self, count: int, target: str = "") -> None:
        self._nodes.arm("gpus-never-register", count, target)

    def fail_gpu(self, target: str = "") -> str:
        """The node it struck; empty: none is Ready, so the next to be checked will fail its check."""
        return self._nodes.fail_gpu(target)

    def __repr__(self) -> str:
        held = f"{len(self._api.nodes)} nodes, {len(self._api.pods)} pods"
        return f"<SimCluster at {format_instant(self._timeline.now())}: {held}>"


@lru_cache(maxsize=4096)
def _admitted(shape: PodShape, pool: str) -> PodShape:
    """A pin is a node selector, and nodes for admitted pods are tolerated; pods of one template stay of one shape."""
    pin = ((names.LABEL_POOL, pool),) if pool else ()
    return replace(ending_tolerated(held_tolerated(shape)), node_selector=(*shape.node_selector, *pin))
