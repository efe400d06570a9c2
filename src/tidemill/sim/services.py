"""The Deployment controller of the simulated cluster, with its PodDisruptionBudgets.

Pods are not gated: a service takes what room there is. A replacement is made the moment a pod is told to
go, and counts as ready only once it has loaded; a terminating pod counts no more.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tidemill.sim.jobs import refusal_backoff
from tidemill.sim.kubelet import Kubelets, PodEnd
from tidemill.sim.objects import Objects
from tidemill.sim.workloads import ServiceTruth, shape_of, terms_of
from tidemill.spec.scenario import Service
from tidemill.world import DisruptionBudget, Pod, PodPhase


class Services:
    ready_at_start = False

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._kubelets: Kubelets
        self._budgets: dict[str, DisruptionBudget] = {}  # by workload
        self._budgets_read: tuple[DisruptionBudget, ...] | None = ()
        self.by_name: dict[str, ServiceTruth] = {}

    def attach(self, kubelets: Kubelets) -> None:
        self._kubelets = kubelets

    def start(self, service: Service) -> ServiceTruth:
        now = self._objects.timeline.now()
        truth = ServiceTruth(service, shape_of(service), terms_of(service), now)
        truth.record(now, 0)
        self.by_name[service.name] = truth
        self._update_budget(truth)
        for _ in range(service.replicas):
            self._create(truth)
        return truth

    def stop(self, name: str) -> None:
        """Somebody deleted the Deployment: its pods go with their own grace and nothing replaces them."""
        truth = self.by_name[name]
        truth.stopped = self._objects.timeline.now()
        self._budgets.pop(truth.workload, None)
        self._budgets_read = None
        for uid in list(truth.members):
            self._kubelets.delete(self._objects.pods[uid])

    def budgets(self) -> tuple[DisruptionBudget, ...]:
        if self._budgets_read is None:
            self._budgets_read = tuple(self._budgets[workload] for workload in sorted(self._budgets))
        return self._budgets_read

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
            return self._of(pod).ready >= budget.min_available
        return budget.allowed > 0

    def _of(self, pod: Pod) -> ServiceTruth:
        return self.by_name[pod.workload.partition("/")[2]]

    def _create(self, truth: ServiceTruth, message: str = "") -> None:
        name = f"{truth.name}-{truth.made}"
        truth.made += 1
        pod = Pod(
            uid=f"uid-{truth.namespace}-{name}",
            namespace=truth.namespace,
            name=name,
            shape=truth.shape,
            terms=truth.terms,
            phase=PodPhase.PENDING,
            created_at=self._objects.timeline.now(),
            workload=truth.workload,
            message=message,
        )
        truth.members[pod.uid] = None
        self._objects.put_pod(pod)
        if self._objects.verbose:
            self._objects.journal.add("pod-created", pod.full_name, f"a replica of {truth.name}")
        self._objects.wake(f"{pod.full_name} was created")

    # --- what kubelets report -----------------------------------------------------------------------

    def pod_started(self, pod: Pod) -> None:
        self._of(pod).refused = 0
        if pod.terms.load:
            self._objects.timeline.after(pod.terms.load, lambda: self._became_ready(pod.uid))
        else:
            self._became_ready(pod.uid)

    def pod_leaving(self, pod: Pod, *, counts: bool) -> None:
        self._lost(self._of(pod), pod)

    def pod_gone(self, pod: Pod, end: PodEnd) -> None:
        truth = self._of(pod)
        if end is not PodEnd.REFUSED:
            self._lost(truth, pod)
            return
        truth.members.pop(pod.uid, None)
        message = f"{pod.name} was refused by {pod.node}: {pod.message}; trying again"
        self._objects.timeline.after(refusal_backoff(truth.refused), lambda: self._refill(truth, message))
        truth.refused += 1

    def _lost(self, truth: ServiceTruth, pod: Pod) -> None:
        if pod.uid in truth.members:
            del truth.members[pod.uid]
            self._count(truth)
            self._refill(truth)

    def _refill(self, truth: ServiceTruth, message: str = "") -> None:
        if truth.stopped is None and len(truth.members) < truth.replicas:
            self._create(truth, message)

    def _became_ready(self, uid: str) -> None:
        pod = self._objects.pods.get(uid)
        if pod is not None and pod.deleting_until is None:
            self._objects.put_pod(replace(pod, ready=True))
            self._count(self._of(pod))

    # --- readiness ----------------------------------------------------------------------------------

    def _count(self, truth: ServiceTruth) -> None:
        ready = sum(self._objects.pods[uid].ready for uid in truth.members)
        if ready == truth.ready or truth.stopped is not None:
            return
        truth.record(self._objects.timeline.now(), ready)
        self._update_budget(truth)
        self._tell(truth)
        self._objects.wake(f"{truth.name} has {ready} ready replicas")

    def _update_budget(self, truth: ServiceTruth) -> None:
        if truth.min_available:
            allowed = max(0, truth.ready - truth.min_available)
            budget = DisruptionBudget(truth.workload, truth.min_available, allowed)
            if self._budgets.get(truth.workload) != budget:
                self._budgets[truth.workload] = budget
                self._budgets_read = None

    def _tell(self, truth: ServiceTruth) -> None:
        now, add = self._objects.timeline.now(), self._objects.journal.add
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
