"""The Deployment and StatefulSet controllers of the simulated cluster, with their PodDisruptionBudgets.

Pods are not gated: a service takes what room there is. A replacement is made the moment a pod is told to
go, and counts as ready only once it has loaded; a terminating pod counts no more.
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
from tidemill.sim.cluster.workloads import ServiceTruth, SetTruth, resolved, shape_of, terms_of
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
        truth = ServiceTruth(service, shape_of(service), terms_of(service), now)
        truth.sets = sets_of(truth)
        truth.record(now, 0)
        self.by_name[service.name] = truth
        for one in truth.sets:
            self._set_of[one.workload] = truth, one
        self._changed(truth)
        for one in truth.sets:
            self._reconcile(truth, one)
        return truth

    def stop(self, name: str) -> None:
        """Somebody deleted it: its pods go with their own grace and nothing replaces them."""
        truth = self.by_name[name]
        truth.stopped = self._api.timeline.now()
        for one in truth.sets:
            self._budgets.pop(one.workload, None)
            self._workloads.pop(one.workload, None)
        self._budgets_read = self._workloads_read = None
        for uid in truth.members:
            self._kubelets.delete(self._api.pods[uid])

    # --- what the engine asks -----------------------------------------------------------------------

    def restart(self, workload: str, token: str) -> None:
        truth, one = self._living(workload)
        if one.restarted_for == token:
            return
        one.restarted_for = token
        one.revision += 1
        self._api.journal.add("service-restarted", truth.name, f"its template was touched: {token}")
        self._changed(truth)
        self._reconcile(truth, one)

    def scale(self, workload: str, replicas: int, added: int, going: Sequence[str]) -> None:
        truth, one = self._living(workload)
        one.going = frozenset(going)
        if (one.replicas, one.added) == (replicas, added):
            return
        before, one.replicas, one.added = one.replicas, replicas, added
        self._api.journal.add("service-scaled", truth.name, f"{workload} from {before} to {replicas}")
        self._changed(truth)
        self._reconcile(truth, one)

    def _living(self, workload: str) -> tuple[ServiceTruth, SetTruth]:
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

    def _create(self, truth: ServiceTruth, one: SetTruth, message: str = "") -> None:
        name = f"{one.prefix}-{one.made}"
        one.made += 1
        pod = Pod(
            uid=f"uid-{truth.namespace}-{name}",
            namespace=truth.namespace,
            name=name,
            shape=one.shape,
            terms=one.terms,
            phase=PodPhase.PENDING,
            created_at=self._api.timeline.now(),
            workload=one.workload,
            message=message,
        )
        one.members[pod.uid] = one.revision
        self._api.put_pod(pod)
        if self._api.verbose:
            self._api.journal.add("pod-created", pod.full_name, f"a replica of {truth.name}")
        self._api.wake(f"{pod.full_name} was created")

    def _reconcile(self, truth: ServiceTruth, one: SetTruth, message: str = "") -> None:
        """As many pods as are asked for, of the template that is there; in a rolling update new before old."""
        if truth.stopped is not None:
            return
        old = one.old
        most = one.replicas + (one.max_surge if old else 0) - one.backing_off
        while len(one.members) < most and len(one.members) - len(old) < one.replicas:
            self._create(truth, one, message)
        while (leaver := self._next_to_go(one)) is not None:
            self._kubelets.delete(self._api.pods[leaver])

    def _next_to_go(self, one: SetTruth) -> str | None:
        old = one.old
        if old:
            ready = self._ready(one)
            spare = ready > one.replicas - one.max_unavailable
            leavers = [uid for uid in old if spare or not self._api.pods[uid].ready]
        else:
            leavers = list(one.members) if len(one.members) > one.replicas else []
        return min(leavers, key=lambda uid: self._standing(one, uid), default=None)

    def _standing(self, one: SetTruth, uid: str) -> tuple[object, ...]:
        """Who goes first, as the ReplicaSet controller ranks: who has no node, who is not ready, who is marked, who is
        newest. Where they are says nothing."""
        pod = self._api.pods[uid]
        age = list(one.members).index(uid)
        return bool(pod.node), pod.ready, uid not in one.going, -age

    def _ready(self, one: SetTruth) -> int:
        return sum(self._api.pods[uid].ready for uid in one.members)

    # --- what kubelets report -----------------------------------------------------------------------

    def pod_started(self, pod: Pod) -> None:
        truth, one = self._set_of[pod.workload]
        one.refused = 0
        load = truth.service.load
        if load:
            self._api.timeline.after(load, lambda: self._became_ready(pod.uid))
        else:
            self._became_ready(pod.uid)

    def pod_leaving(self, pod: Pod, *, counts: bool) -> None:
        self._lost(pod)

    def pod_gone(self, pod: Pod, end: PodEnd) -> None:
        truth, one = self._set_of[pod.workload]
        if end is not PodEnd.REFUSED:
            self._lost(pod)
            return
        if one.members.pop(pod.uid, None) is None:
            return
        message = f"{pod.name} was refused by {pod.node}: {pod.message}; trying again"
        one.backing_off += 1
        self._api.timeline.after(refusal_backoff(one.refused), lambda: self._tried_again(truth, one, message))
        one.refused += 1

    def _tried_again(self, truth: ServiceTruth, one: SetTruth, message: str) -> None:
        one.backing_off -= 1
        self._reconcile(truth, one, message)

    def _lost(self, pod: Pod) -> None:
        truth, one = self._set_of[pod.workload]
        if one.members.pop(pod.uid, None) is not None:
            self._count(truth)
            self._reconcile(truth, one)

    def _became_ready(self, uid: str) -> None:
        pod = self._api.pods.get(uid)
        if pod is not None and pod.deleting_until is None:
            self._api.put_pod(replace(pod, ready=True, ready_at=self._api.timeline.now()))
            truth, one = self._set_of[pod.workload]
            self._count(truth)
            self._reconcile(truth, one)

    # --- readiness ----------------------------------------------------------------------------------

    def _count(self, truth: ServiceTruth) -> None:
        ready = sum(self._ready(one) for one in truth.sets)
        if truth.stopped is not None:
            return
        self._changed(truth)
        if ready == truth.ready:
            return
        truth.record(self._api.timeline.now(), ready)
        self._tell(truth)
        self._api.wake(f"{truth.name} has {ready} ready replicas")

    def _changed(self, truth: ServiceTruth) -> None:
        for one in truth.sets:
            self._update_budget(truth, one)
            read = reading(truth, one, self._ready(one))
            if self._workloads.get(one.workload) != read:
                self._workloads[one.workload] = read
                self._workloads_read = None

    def _update_budget(self, truth: ServiceTruth, one: SetTruth) -> None:
        """Of a set that is not there nothing is asked."""
        minimum = truth.service.min_available if one.replicas else 0
        if not minimum:
            if self._budgets.pop(one.workload, None) is not None:
                self._budgets_read = None
            return
        budget = DisruptionBudget(one.workload, minimum, max(0, self._ready(one) - minimum))
        if self._budgets.get(one.workload) != budget:
            self._budgets[one.workload] = budget
            self._budgets_read = None

    def _tell(self, truth: ServiceTruth) -> None:
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
    """The set itself and, where it has somewhere else to run, the one it is paired with, at nothing."""
    service, how = truth.service, truth.service.handover
    surge = resolved(how.max_surge, service.replicas, up=True) if how.kind == "Deployment" else 0
    missing = resolved(how.max_unavailable, service.replicas, up=False) if how.kind == "Deployment" else 1
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


def reading(truth: ServiceTruth, one: SetTruth, ready: int) -> Workload:
    how = truth.service.handover
    return Workload(
        name=one.workload,
        namespace=truth.namespace,
        replicas=one.replicas,
        ready=ready,
        shape=one.shape,
        terms=one.terms,
        method=Method(how.method),
        min_available=how.min_available,
        max_surge=one.max_surge,
        max_unavailable=one.max_unavailable,
        may_scale=how.may_scale,
        pair=one.pair,
        added=one.added,
        restarted_for=one.restarted_for,
        rolling=bool(one.old),
    )
