"""The Deployment and StatefulSet controllers of the simulated cluster, with their PodDisruptionBudgets.

Pods are not gated: a service takes what resources there are. A replacement is created the moment a pod is deleted, and
counts as ready only once it has loaded; a terminating pod does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from tidemill.model.errors import Gone
from tidemill.model.pods import DisruptionBudget, Method, Pod, PodPhase, Workload
from tidemill.sim.cluster.api_server import ApiServer
from tidemill.sim.cluster.jobs import refusal_backoff
from tidemill.sim.cluster.kubelet import Kubelets, PodEnd
from tidemill.sim.cluster.workloads import (
    ServiceTruth,
    SetTruth,
    held_tolerated,
    resolve_share,
    shape_of,
    terms_of,
)
from tidemill.spec.scenario import Service


class Services:
    ready_at_start = False

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._kubelets: Kubelets
        self._budgets: dict[str, DisruptionBudget] = {}  # by workload
        self._budgets_read: tuple[DisruptionBudget, ...] | None = ()
        self._workloads: dict[str, Workload] = {}
        self._workloads_read: tuple[Workload, ...] | None = ()
        self._set_of: dict[str, tuple[ServiceTruth, SetTruth]] = {}  # by workload
        self.by_name: dict[str, ServiceTruth] = {}

    def attach(self, kubelets: Kubelets) -> None:
        self._kubelets = kubelets

    def start(self, service: Service) -> ServiceTruth:
        now = self._api.timeline.now()
        truth = ServiceTruth(service, held_tolerated(shape_of(service)), terms_of(service), now)
        truth.sets = sets_of(truth)
        truth.record(now, 0)
        self.by_name[service.name] = truth
        for replica_set in truth.sets:
            self._set_of[replica_set.workload] = truth, replica_set
        self._changed(truth)
        for replica_set in truth.sets:
            self._reconcile(truth, replica_set)
        return truth

    def restore(self, truth: ServiceTruth, pods: Sequence[Pod]) -> None:
        """A service that was there before the simulation began, with its pods as they were."""
        (replica_set,) = truth.sets
        self.by_name[truth.name] = truth
        self._set_of[replica_set.workload] = truth, replica_set
        for pod in pods:
            replica_set.members[pod.uid] = replica_set.revision
            self._api.put_pod(pod)
        truth.record(self._api.timeline.now(), self._ready(replica_set))
        truth.full_once = truth.reached = truth.ready >= truth.minimum
        self._changed(truth)
        self._reconcile(truth, replica_set)

    def stop(self, name: str) -> None:
        """Somebody deleted it: its pods end with their own grace and are not replaced."""
        truth = self.by_name[name]
        truth.stopped = self._api.timeline.now()
        for replica_set in truth.sets:
            self._budgets.pop(replica_set.workload, None)
            self._workloads.pop(replica_set.workload, None)
        self._budgets_read = self._workloads_read = None
        for uid in truth.members:
            self._kubelets.delete(self._api.pods[uid])

    # --- what the engine asks -----------------------------------------------------------------------

    def restart(self, workload: str, token: str) -> None:
        truth, replica_set = self._existing(workload)
        if replica_set.restarted_for == token:
            return
        replica_set.restarted_for = token
        replica_set.revision += 1
        self._api.journal.add("service-restarted", truth.name, f"its template was touched: {token}")
        self._changed(truth)
        self._reconcile(truth, replica_set)

    def scale(self, workload: str, replicas: int, added: int, going: Sequence[str]) -> None:
        truth, replica_set = self._existing(workload)
        replica_set.going = frozenset(going)
        if (replica_set.replicas, replica_set.added) == (replicas, added):
            return
        before, replica_set.replicas, replica_set.added = replica_set.replicas, replicas, added
        self._api.journal.add("service-scaled", truth.name, f"{workload} from {before} to {replicas}")
        self._changed(truth)
        self._reconcile(truth, replica_set)

    def _existing(self, workload: str) -> tuple[ServiceTruth, SetTruth]:
        found = self._set_of.get(workload)
        if found is None or found[0].stopped is not None:
            raise Gone(f"there is no {workload}")
        return found

    def budgets(self) -> tuple[DisruptionBudget, ...]:
        if self._budgets_read is None:
            self._budgets_read = tuple(self._budgets[workload] for workload in sorted(self._budgets))
        return self._budgets_read

    def workloads(self) -> tuple[Workload, ...]:
        if self._workloads_read is None:
            self._workloads_read = tuple(self._workloads[workload] for workload in sorted(self._workloads))
        return self._workloads_read

    def allowances(self) -> dict[str, int]:
        """By workload: how many Ready pods its budget would let go this instant."""
        return {workload: budget.allowed for workload, budget in self._budgets.items()}

    def may_evict(self, pod: Pod) -> bool:
        """As the eviction API judges.

        A pod that does not run is free to go; one that runs but is not Ready may go while the budget is
        healthy without it (IfHealthyBudget); a Ready one needs an allowance.
        """
        budget = self._budgets.get(pod.workload)
        if budget is None or pod.phase is not PodPhase.RUNNING or pod.deleting_until is not None:
            return True
        if not pod.ready:
            return self._ready(self._set_of[pod.workload][1]) >= budget.min_available
        return budget.allowed > 0

    # --- pods ---------------------------------------------------------------------------------------

    def _create(self, truth: ServiceTruth, replica_set: SetTruth, message: str = "") -> None:
        name = f"{replica_set.prefix}-{replica_set.made}"
        replica_set.made += 1
        pod = Pod(
            uid=f"uid-{truth.namespace}-{name}",
            namespace=truth.namespace,
            name=name,
            shape=replica_set.shape,
            terms=replica_set.terms,
            phase=PodPhase.PENDING,
            created_at=self._api.timeline.now(),
            workload=replica_set.workload,
            message=message,
        )
        replica_set.members[pod.uid] = replica_set.revision
        self._api.create_pod(pod, f"a replica of {truth.name}")

    def _reconcile(self, truth: ServiceTruth, replica_set: SetTruth, message: str = "") -> None:
        """Create and delete pods to match the replicas and the template; a rolling update creates before it deletes."""
        if truth.stopped is not None:
            return
        old = replica_set.old
        most = replica_set.replicas + (replica_set.max_surge if old else 0) - replica_set.backing_off
        while len(replica_set.members) < most and len(replica_set.members) - len(old) < replica_set.replicas:
            self._create(truth, replica_set, message)
        while (leaver := self._next_to_go(replica_set)) is not None:
            self._kubelets.delete(self._api.pods[leaver])

    def _next_to_go(self, replica_set: SetTruth) -> str | None:
        old = replica_set.old
        if old:
            ready = self._ready(replica_set)
            spare = ready > replica_set.replicas - replica_set.max_unavailable
            leavers = [uid for uid in old if spare or not self._api.pods[uid].ready]
        else:
            leavers = list(replica_set.members) if len(replica_set.members) > replica_set.replicas else []
        return min(leavers, key=lambda uid: self._deletion_rank(replica_set, uid), default=None)

    def _deletion_rank(self, replica_set: SetTruth, uid: str) -> tuple[object, ...]:
        """Deletion order, as the ReplicaSet controller ranks: pods without a node first, then those that are not ready,
        are marked for deletion, are newest. On which node they are does not matter."""
        pod = self._api.pods[uid]
        age = list(replica_set.members).index(uid)
        return bool(pod.node), pod.ready, uid not in replica_set.going, -age

    def _ready(self, replica_set: SetTruth) -> int:
        return sum(self._api.pods[uid].ready for uid in replica_set.members)

    # --- what kubelets report -----------------------------------------------------------------------

    def pod_started(self, pod: Pod) -> None:
        truth, replica_set = self._set_of[pod.workload]
        replica_set.refused = 0
        load = truth.service.load
        if load:
            self._api.timeline.after(load, lambda: self._became_ready(pod.uid))
        else:
            self._became_ready(pod.uid)

    def pod_leaving(self, pod: Pod, *, counts: bool) -> None:
        self._lost(pod)

    def pod_gone(self, pod: Pod, end: PodEnd) -> None:
        truth, replica_set = self._set_of[pod.workload]
        if end is not PodEnd.REFUSED:
            self._lost(pod)
            return
        if replica_set.members.pop(pod.uid, None) is None:
            return
        message = f"{pod.name} was refused by {pod.node}: {pod.message}; trying again"
        replica_set.backing_off += 1
        self._api.timeline.after(
            refusal_backoff(replica_set.refused), lambda: self._tried_again(truth, replica_set, message)
        )
        replica_set.refused += 1

    def _tried_again(self, truth: ServiceTruth, replica_set: SetTruth, message: str) -> None:
        replica_set.backing_off -= 1
        self._reconcile(truth, replica_set, message)

    def _lost(self, pod: Pod) -> None:
        truth, replica_set = self._set_of[pod.workload]
        if replica_set.members.pop(pod.uid, None) is not None:
            self._count(truth)
            self._reconcile(truth, replica_set)

    def _became_ready(self, uid: str) -> None:
        pod = self._api.pods.get(uid)
        if pod is not None and pod.deleting_until is None:
            self._api.put_pod(replace(pod, ready=True, ready_at=self._api.timeline.now()))
            truth, replica_set = self._set_of[pod.workload]
            self._count(truth)
            self._reconcile(truth, replica_set)

    # --- readiness ----------------------------------------------------------------------------------

    def _count(self, truth: ServiceTruth) -> None:
        ready = sum(self._ready(replica_set) for replica_set in truth.sets)
        if truth.stopped is not None:
            return
        self._changed(truth)
        if ready == truth.ready:
            return
        truth.record(self._api.timeline.now(), ready)
        self._journal_readiness(truth)
        self._api.wake(f"{truth.name} has {ready} ready replicas")

    def _changed(self, truth: ServiceTruth) -> None:
        for replica_set in truth.sets:
            self._update_budget(truth, replica_set)
            read = workload_of(truth, replica_set, self._ready(replica_set))
            if self._workloads.get(replica_set.workload) != read:
                self._workloads[replica_set.workload] = read
                self._workloads_read = None

    def _update_budget(self, truth: ServiceTruth, replica_set: SetTruth) -> None:
        """A set with no replicas has no budget."""
        minimum = truth.service.min_available if replica_set.replicas else 0
        if not minimum:
            if self._budgets.pop(replica_set.workload, None) is not None:
                self._budgets_read = None
            return
        budget = DisruptionBudget(replica_set.workload, minimum, max(0, self._ready(replica_set) - minimum))
        if self._budgets.get(replica_set.workload) != budget:
            self._budgets[replica_set.workload] = budget
            self._budgets_read = None

    def _journal_readiness(self, truth: ServiceTruth) -> None:
        now, add = self._api.timeline.now(), self._api.journal.add
        counts = f"{truth.ready} of {truth.replicas} replicas ready, the minimum is {truth.minimum}"
        if truth.ready == truth.replicas and not truth.full_once:
            truth.full_once = True
            add("service-ready", truth.name, counts)
        truth.reached = truth.reached or truth.ready >= truth.minimum
        if not truth.reached:
            return
        if truth.ready < truth.minimum and truth.short_since is None:
            truth.short_since = now
            add("service-below-minimum", truth.name, counts)
        elif truth.ready >= truth.minimum and truth.short_since is not None:
            short_s = int((now - truth.short_since) / timedelta(seconds=1))
            truth.short_since = None
            add("service-restored", truth.name, f"{counts}; it was short for {short_s} s")


def sets_of(truth: ServiceTruth) -> list[SetTruth]:
    """The set itself and, for the paired method, its pair with no replicas."""
    service, how = truth.service, truth.service.handover
    surge = resolve_share(how.max_surge, service.replicas, up=True) if how.kind == "Deployment" else 0
    missing = (
        resolve_share(how.max_unavailable, service.replicas, up=False) if how.kind == "Deployment" else 1
    )
    first = SetTruth(
        truth.workload, truth.name, truth.shape, truth.terms, service.replicas, surge,
        missing if surge or missing else 1,
    )  # fmt: skip
    if how.method != "paired" or not how.pair_node_selector:
        return [first]
    shape = replace(truth.shape, node_selector=tuple(sorted(how.pair_node_selector.items())))
    second = SetTruth(
        f"{truth.workload}-pair", f"{truth.name}-pair", shape, truth.terms, 0, surge, first.max_unavailable,
        pair=first.workload,
    )  # fmt: skip
    first.pair = second.workload
    return [first, second]


def workload_of(truth: ServiceTruth, replica_set: SetTruth, ready: int) -> Workload:
    how = truth.service.handover
    return Workload(
        name=replica_set.workload,
        namespace=truth.namespace,
        replicas=replica_set.replicas,
        ready=ready,
        shape=replica_set.shape,
        terms=replica_set.terms,
        method=Method(how.method),
        min_available=how.min_available,
        max_surge=replica_set.max_surge,
        max_unavailable=replica_set.max_unavailable,
        may_scale=how.may_scale,
        pair=replica_set.pair,
        added=replica_set.added,
        restarted_for=replica_set.restarted_for,
        rolling=bool(replica_set.old),
    )
