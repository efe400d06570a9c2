"""The state of one decision: the world joined up per node, and the plan so far.

Everything here lives for a single call of `decide`. The steps read it, add actions and reasons to it, and
take room from it, so that a later step sees what an earlier one has already promised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from tidemill.decide.deadlines import NO_END, End, deadline_of, pod_lead
from tidemill.decide.memory import Memory
from tidemill.decide.namespace_caps import NamespaceCaps
from tidemill.decide.node_table import Ending, EndingGroup, NodeTable, NodeView
from tidemill.decide.overflow import money_runs_out_at
from tidemill.decide.phases import Phase
from tidemill.decide.pool_templates import HELD, TOLERATES_HELD, PoolTemplate, templates
from tidemill.decide.premises import RecordedSpending, RecordedUses
from tidemill.decide.queue_item import QueueItem
from tidemill.decide.scheduler_rules import admits, tolerates
from tidemill.decide.service_moves import in_effect, services_lead
from tidemill.model.capacity import PREPAID, SECURED_STATES, Reservation, Source, SourceKind
from tidemill.model.plan import Action, Plan, Unmet, UnmetCode, Warning
from tidemill.model.pods import Method, Pod, Workload
from tidemill.model.reasons import HoldReason
from tidemill.model.resources import Resources
from tidemill.model.warning_reasons import AnyWarning
from tidemill.model.world import World
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool, Provisioner

# Sources that end this close to each other are drained together.
TOGETHER = timedelta(hours=2)


class _LastUnmet:
    """The last reason given for each pending pod, by uid."""

    def __init__(self) -> None:
        self.unmet: dict[str, Unmet] = {}


class DecisionContext:
    def __init__(self, spec: Spec, world: World, memory: Memory | None = None) -> None:
        """`memory`: of the decision before this one; without it everything is worked out from nothing."""
        self.spec = spec
        self._spending = RecordedSpending(world.spending)
        self._uses = RecordedUses(world.uses)
        self.world = replace(world, spending=self._spending, uses=self._uses)
        self._counted_from_now: set[str] = set()
        self.now = world.now
        self.owner = spec.platform.spec.deployment
        self.templates = templates(spec)
        self.memory = (memory if memory is not None else Memory()).about(spec)
        self._last_unmet = self.memory.of(_LastUnmet).unmet
        self.reservations: dict[str, Reservation] = {r.id: r for r in world.reservations}
        self._tagged: dict[str, list[Reservation]] | None = None  # by intent
        self.workloads: dict[str, Workload] = {workload.name: workload for workload in world.workloads}
        if any(template.pool.spec.admitted_pods_only for template in self.templates.values()):
            self._tolerate_held()
        # Services with a minimum or a hand-over method need extra time to leave a source that ends.
        self._somebody_moves_slowly = bool(world.budgets) or any(
            workload.method not in (None, Method.EVICT) for workload in world.workloads
        )
        # Of these the nodes with pods of theirs are drained earlier than the others.
        self._movers = (
            frozenset(self.workloads) | {budget.workload for budget in world.budgets}
            if self._somebody_moves_slowly
            else None
        )
        self.kept: set[str] = set()  # pods that a hand-over keeps in place until its next step
        self.actions: list[Action] = []
        self.unmet: dict[str, Unmet] = {}
        self.explained: Iterable[Unmet] = ()  # of pods that found no place, in the order of the queue
        self.told_instead: dict[str, Unmet] = {}  # of some of these, what a later step did about it
        self.warnings: list[Warning] = []
        self.wake_at: datetime | None = None
        self.usable: dict[tuple[str, int], list[Reservation]] = {}  # by pool and source; computed once
        self.waiting: list[QueueItem] = []  # in the order of the queue
        self.estimated: dict[str, Reservation] = {}  # a forecast tells when their free slots get nodes
        self.placed: set[str] = set()  # pools in which this plan places a pending pod
        self.placed_items: set[QueueItem] = set()
        self.namespace_caps = NamespaceCaps(spec, world)
        self.refused_pools = dict(world.refused_pools)  # by whom
        table = self.table = self.memory.of(NodeTable)
        table.update(spec, world, self.owner)
        self.views, self.gone, self.strangers = table.views, table.gone, table.strangers
        # A running pod has anti-affinity or host ports that new pods must respect.
        self.keeps_away = table.keeps_away > 0
        self._ends: dict[Ending, End] = {}
        self._deadlines: dict[Ending, datetime | None] = {}
        self._ending: list[
            tuple[datetime, list[NodeView]]
        ] = []  # only where there are budgets: deadline -> nodes
        self._disruptions_at_once: dict[str, int] | None = None
        self._shared: dict[tuple[SourceKind, str], bool] = {}
        self._seats_asked_for: dict[str, int] = {}  # by service
        self._methods: dict[str, Method] = {}  # by service
        self._join()

    def _tolerate_held(self) -> None:
        """Services of ours get the toleration when their pods are made: their templates do not show it."""
        ours = {
            pod.workload
            for pod in self.world.pods
            if pod.workload in self.workloads and tolerates(pod.shape.tolerations, HELD)
        }
        for name, workload in self.workloads.items():
            if name in ours or workload.pair in ours:
                shape = workload.shape
                if not tolerates(shape.tolerations, HELD):
                    added = replace(shape, tolerations=(*shape.tolerations, TOLERATES_HELD))
                    self.workloads[name] = replace(workload, shape=added)

    def tagged(self, intent_id: str) -> list[Reservation]:
        """The reservations that carry the tag of a purchase, by id."""
        if self._tagged is None:
            self._tagged = {}
            for one in sorted(self.world.reservations, key=lambda one: one.id):
                self._tagged.setdefault(one.intent_id, []).append(one)
        return self._tagged.get(intent_id, [])

    def shared(self, reservation: Reservation) -> bool:
        """Several pools may use it, so no pool keeps its nodes up without work."""
        if reservation.pool:
            return False
        known = self._shared.get((reservation.kind, reservation.instance_type))
        if known is not None:
            return known
        users = [
            template for template in self.templates.values() if reservation.instance_type in template.kinds
        ]
        kind = reservation.kind.value
        several = sum(any(source.type == kind for source in user.pool.spec.sources) for user in users) > 1
        self._shared[(reservation.kind, reservation.instance_type)] = several
        return several

    def comes_when_asked(self, template: PoolTemplate, reservation: Reservation) -> bool:
        """Its free slots get nodes only for pods that are pending."""
        return not template.keeps_up(reservation.kind) or self.shared(reservation)

    def nodes_asked_for(self, name: str, replicas: int) -> int:
        """How many nodes so many replicas of a service may need that are launched only once they are pending: by the
        hour (they come together), or on prepaid capacity whose nodes nobody keeps up. 0: none."""
        if name not in self._seats_asked_for:
            self._seats_asked_for[name] = self._seats_on_asked_for(self.workloads[name])
        seats = self._seats_asked_for[name]
        return -(-replicas // seats) if seats else int(self.workloads[name].terms.overflow)

    def _seats_on_asked_for(self, workload: Workload) -> int:
        """The fewest replicas that the prepaid nodes which are not kept up take each; 0: there are none."""
        paired = self.method_of(workload) is Method.PAIRED
        shape = self.workloads[workload.pair].shape if paired else workload.shape
        seats = [
            Resources(kind.allocatable).count_fitting(shape.requests)
            for one in self.world.reservations
            if one.kind in PREPAID and one.owner == self.owner and one.state in SECURED_STATES
            for pool, template in self.templates.items()
            if one.pool in ("", pool) and (kind := template.kinds.get(one.instance_type)) is not None
            if self.comes_when_asked(template, one)
            and admits(shape, template.labels(one.source, kind, one.zone), template.taints)
        ]
        return min(filter(None, seats), default=0)

    # --- the plan so far ---

    def do(self, action: Action) -> None:
        self.actions.append(action)

    def hold(self, pod: Pod, code: UnmetCode, reason: HoldReason, earliest: datetime | None = None) -> None:
        self.unmet[pod.uid] = self.unmet_of(pod, code, reason, earliest)

    def hold_for(self, delay: timedelta, pod: Pod, code: UnmetCode, reason: HoldReason) -> None:
        """It could run so long after this instant, whenever that is: where the plan is used again, it is told anew."""
        self._counted_from_now.add(pod.uid)
        self.hold(pod, code, reason, self.now + delay)

    def unmet_of(self, pod: Pod, code: UnmetCode, reason: HoldReason, earliest: datetime | None) -> Unmet:
        """The same object as in the last decision if it says the same."""
        unmet = self._last_unmet.get(pod.uid)
        if (
            unmet is None
            or (unmet.reason is not reason and unmet.reason != reason)
            or unmet.code != code
            or unmet.earliest != earliest
        ):
            if len(self._last_unmet) > 2 * len(self.world.pods) + 1000:
                self._last_unmet.clear()
            unmet = self._last_unmet[pod.uid] = Unmet(pod.uid, pod.full_name, code, reason, earliest)
        return unmet

    def warn(self, about: str, reason: AnyWarning) -> None:
        self.warnings.append(Warning(about, reason))

    def wake(self, at: datetime | None) -> None:
        """The decision may change at `at`. An instant in the past is ignored."""
        if at is not None and at > self.now and (self.wake_at is None or at < self.wake_at):
            self.wake_at = at

    def plan(self) -> Plan:
        return Plan(
            tuple(self.actions),
            (*self.unmet.values(), *self._explained()),
            tuple(self.warnings),
            self.wake_at,
            frozenset(self._spending.read),
            self.now,
            frozenset(self._counted_from_now),
            uses_read=self._uses.was_read,
        )

    def _explained(self) -> Iterable[Unmet]:
        instead = self.told_instead
        return (instead.get(one.pod, one) for one in self.explained) if instead else self.explained

    # --- the world joined up ---

    def _join(self) -> None:
        """Ends are computed once per group, and told to nodes for which they are new."""
        groups = self.table.groups
        if self._somebody_moves_slowly:
            for ending, group in groups.items():
                deadline = self._deadline(ending)
                if deadline is not None:
                    self._ending.append((deadline, group.views))
        for ending, group in groups.items():
            self._set_ends(ending, group)
        self.attention = [view for view in self.views if not view.calm]

    def _set_ends(self, ending: Ending, group: EndingGroup) -> None:
        # Without services that move slowly, an end follows from the reservation and the longest lead alone.
        of = (self.reservations.get(ending[2].id), group.lead)
        same = of[0] is not None and of[0] is group.end_of[0] and of[1] == group.end_of[1]
        if same and group.end is not None and not self._somebody_moves_slowly:
            end = group.end
        else:
            end = self._compute_end(ending, group.views, group.lead)
            if group.end is not None and end == group.end:
                end = group.end  # nodes that end together have the very same instants
            group.end_of = (None, None) if self._somebody_moves_slowly else of
        self._ends[ending] = end
        told_for = (group.lead, self._movers)
        all_anew = group.alone or end is not group.end or told_for != group.told_for
        group.told_for = told_for
        for view in group.views if all_anew else group.fresh:
            self._end_view(view, end, group.lead)
            instance = view.node.instance
            if instance is not None and instance.ends_at is not None:
                self._end_alone(view, instance.ends_at)
                if instance.leaves:
                    # In the past: drain at once, and the same instant at every tick.
                    view.drain_from = instance.launched_at
        group.end, group.fresh = end, []

    def _end_view(self, view: NodeView, end: End, longest: timedelta) -> None:
        """A node without a service drains for the sake of its jobs. From when services leave its source on, it is only
        closed to them."""
        view.closes_from = None
        view.end(end.deadline, end.drain_from)
        template, kube = view.facts.template, view.node.kube
        if not self._somebody_moves_slowly or end.deadline is None or end.drain_from is None or kube is None:
            return
        if (
            template is None
            or template.by_karpenter
            or view.phase is Phase.DRAINING
            or self._has_service(view)
        ):
            return
        own = end.deadline - max(longest, template.pool.spec.drain.lead or longest)
        if own > end.drain_from and view.source.kind in PREPAID:
            view.closes_from = end.drain_from
            view.end(end.deadline, own)

    def _has_service(self, view: NodeView) -> bool:
        """A pod of a workload that moves by a method or within a budget."""
        return any(
            pod.workload in self.workloads or pod.workload in self.disruptions_at_once for pod in view.pods
        )

    def _end_alone(self, view: NodeView, at: datetime) -> None:
        """AWS has announced the end of this node: an interruption or a retirement."""
        view.deadline = min(at, view.deadline or at)
        lead = self._lead([view], view.facts.lead, view.pool, view.deadline)
        view.drain_from = min(view.deadline - lead, view.drain_from or view.deadline)

    def end_of(self, source: Source, pool_name: str, provisioner: Provisioner) -> End:
        """Of new nodes of a source in a pool, and of those with services: the earlier of its two drains."""
        ending = (pool_name, provisioner, source)
        end = self._ends.get(ending)
        if end is None:
            end = self._ends[ending] = self._compute_end(ending, [], timedelta(0))
        return end

    def _compute_end(self, ending: Ending, views: list[NodeView], longest: timedelta) -> End:
        deadline = self._deadline(ending)
        if deadline is None:
            return NO_END
        return End(deadline, deadline - self._lead(views, longest, self.spec.pools.get(ending[0]), deadline))

    def _deadline(self, ending: Ending) -> datetime | None:
        if ending not in self._deadlines:
            self._deadlines[ending] = self._find_deadline(ending)
        return self._deadlines[ending]

    def _find_deadline(self, ending: Ending) -> datetime | None:
        pool_name, provisioner, source = ending
        if source.kind in (SourceKind.BLOCK, SourceKind.ODCR):
            reservation = self.reservations.get(source.id)
            return deadline_of(reservation, provisioner) if reservation else self._told_end(source)
        return money_runs_out_at(self.spec, self.world, pool_name, source.kind)

    def _told_end(self, source: Source) -> datetime | None:
        """Of a reservation that is not listed, which is no proof that it is over: the end that its nodes were told; if
        none was, they stay."""
        on_it = (
            node for node in self.world.nodes if node.instance is not None and node.instance.source == source
        )
        told = (
            node.kube.ends_at for node in on_it if node.kube is not None and node.kube.ends_at is not None
        )
        return min(told, default=None)

    def _lead(
        self, views: list[NodeView], longest: timedelta, pool: ComputePool | None, deadline: datetime
    ) -> timedelta:
        """The longest of: what a pod needs, what a service under a budget needs, what the pool asks for.

        A service moves in waves over all sources that end at about the same time, not over each of them.
        """
        if pool is not None and pool.spec.drain.lead is not None:
            longest = max(longest, pool.spec.drain.lead)
        pods = self.moving_together(views, deadline)
        return self.services_lead(longest, pods)

    def drains_for_services(self, ending: Ending, deadline: datetime) -> datetime:
        """When nodes that end together would begin to drain if nobody but services were on them."""
        views, pool = self.table.groups[ending].views, self.spec.pools.get(ending[0])
        checkpoint = pool.spec.drain.checkpoint if pool is not None else True
        leads = [pod_lead(pod, checkpoint=checkpoint) for view in views for pod in view.facts.movers]
        if pool is not None and pool.spec.drain.lead is not None:
            leads.append(pool.spec.drain.lead)
        pods = [pod for pod in self.moving_together(views, deadline) if pod.workload in self.workloads]
        longest = max(leads, default=timedelta(0))
        return deadline - self.services_lead(longest, pods)

    def services_lead(self, longest: timedelta, pods: list[Pod]) -> timedelta:
        return services_lead(
            longest, pods, self.workloads, self.disruptions_at_once, self.method_of, self.nodes_asked_for
        )

    def method_of(self, workload: Workload) -> Method:
        """How it will move. A pair whose other half has nothing to run on moves within its budget, as others do."""
        method = self._methods.get(workload.name)
        if method is None:
            method = in_effect(workload, self.workloads)
            if method is Method.PAIRED and self.lets_one_go(workload) and self._is_homeless(workload.pair):
                method = Method.EVICT
            self._methods[workload.name] = method
        return method

    def lets_one_go(self, workload: Workload) -> bool:
        """Its budget allows an eviction when all of its replicas are healthy."""
        return self.minimum_of(workload) < workload.replicas

    def minimum_of(self, workload: Workload) -> int:
        """From a disruption budget or from its annotation; 0: none."""
        least = (one.min_available for one in self.world.budgets if one.workload == workload.name)
        return next(least, 0)

    def _is_homeless(self, name: str) -> bool:
        """Neither prepaid capacity, there or within a day, nor a source by the hour may ever have a replica of it."""
        workload = self.workloads[name]
        soon = self.now + timedelta(days=1)
        prepaid = [
            (one.pool, one.source, one.instance_type, one.zone)
            for one in self.world.reservations
            if one.kind in PREPAID and one.owner == self.owner and one.state in SECURED_STATES
            if one.start <= soon and (one.end is None or one.end > self.now)
        ]
        zones = tuple(self.spec.platform.spec.subnets) or ("",)
        return not workload.replicas and not any(
            admits(workload.shape, template.labels(source, template.kinds[kind], zone), template.taints)
            for pool, template in self.templates.items()
            for of, source, kind, zone in (*prepaid, *_by_the_hour(template, workload, zones))
            if of in ("", pool) and kind in template.kinds
        )

    def moving_together(self, views: list[NodeView], deadline: datetime) -> list[Pod]:
        """The pods of their workloads on all sources that end at about that time; none where there is no budget."""
        if not self._somebody_moves_slowly:
            return []
        mine = {pod.workload for view in views for pod in view.pods}
        if not mine:
            return []
        together = [
            view for at, others in self._ending if abs(at - deadline) <= TOGETHER for view in others
        ] or views
        return [pod for view in together for pod in view.pods if pod.workload in mine]

    @property
    def disruptions_at_once(self) -> dict[str, int]:
        """For each workload under a budget: how many replicas may be away at one time, when all are healthy."""
        if self._disruptions_at_once is None:
            replicas: dict[str, int] = {}
            for pod in self.world.pods if self.world.budgets else ():
                if pod.deleting_until is None:
                    replicas[pod.workload] = replicas.get(pod.workload, 0) + 1
            self._disruptions_at_once = {
                budget.workload: max(1, replicas.get(budget.workload, 0) - budget.min_available)
                for budget in self.world.budgets
            }
        return self._disruptions_at_once


def _by_the_hour(
    template: PoolTemplate, workload: Workload, zones: tuple[str, ...]
) -> Iterator[tuple[str, Source, str, str]]:
    for wanted in template.pool.spec.sources:
        kind = SourceKind(wanted.type)
        if kind not in PREPAID and template.accepts(
            kind, workload.namespace, overflow=workload.terms.overflow
        ):
            for type_ in template.kinds:
                yield from ((template.pool.name, Source(kind), type_, zone) for zone in zones)
