"""The state of one decision: the world joined up per node, and the plan so far.

Everything here lives for a single call of `decide`. The steps read it, add actions and reasons to it, and
take room from it, so that a later step sees what an earlier one has already promised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tidemill.decide.deadlines import NO_END, End, deadline_of
from tidemill.decide.memory import memory_of
from tidemill.decide.node_cache import NodeCache, NodeFacts
from tidemill.decide.overflow import money_runs_out_at
from tidemill.decide.phases import Phase
from tidemill.decide.pool_templates import templates
from tidemill.decide.queue_item import QueueItem
from tidemill.decide.service_moves import services_lead
from tidemill.model.capacity import Reservation, Source, SourceKind
from tidemill.model.nodes import Node
from tidemill.model.plan import Action, Plan, Unmet, UnmetCode, Warning
from tidemill.model.pods import Method, Pod, Workload
from tidemill.model.reasons import HoldReason
from tidemill.model.warning_reasons import AnyWarning
from tidemill.model.world import World
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool, Provisioner


@dataclass(slots=True, eq=False)
class NodeView:
    """One node of ours, as this decision sees it. Nodes of others are in `DecisionContext.strangers`."""

    facts: NodeFacts
    node: Node
    phase: Phase
    pods: tuple[Pod, ...]  # bound here, daemons left out
    deadline: datetime | None = None
    drain_from: datetime | None = None
    reserved: bool = False  # a pending pod will use it
    ending: bool = False  # this plan drains or terminates it

    @property
    def pool(self) -> ComputePool | None:
        """None: the pool was removed. Its nodes keep running and are still drained in time."""
        return self.facts.template.pool if self.facts.template is not None else None

    @property
    def source(self) -> Source:
        return self.facts.source


# Sources that end this close to each other are drained together.
TOGETHER = timedelta(hours=2)
Ending = tuple[str, Provisioner, Source]  # a pool's nodes of one source end together


@dataclass(slots=True)
class _Group:
    views: list[NodeView] = field(default_factory=list)
    end: End | None = None


class _LastUnmet:
    """The last reason given for each pending pod, by uid."""

    def __init__(self) -> None:
        self.unmet: dict[str, Unmet] = {}


class DecisionContext:
    def __init__(self, spec: Spec, world: World) -> None:
        self.spec = spec
        self.world = world
        self.now = world.now
        self.owner = spec.platform.spec.deployment
        self.templates = templates(spec)
        self.memory = memory_of(spec)
        self._last_unmet = self.memory.of(_LastUnmet).unmet
        self.reservations: dict[str, Reservation] = {r.id: r for r in world.reservations}
        self.workloads: dict[str, Workload] = {workload.name: workload for workload in world.workloads}
        # Services with a minimum or a hand-over method need extra time to leave a source that ends.
        self._somebody_moves_slowly = bool(world.budgets) or any(
            workload.method not in (None, Method.EVICT) for workload in world.workloads
        )
        self.kept: set[str] = set()  # pods that a hand-over keeps in place until its next step
        self.actions: list[Action] = []
        self.unmet: dict[str, Unmet] = {}
        self.warnings: list[Warning] = []
        self.wake_at: datetime | None = None
        self.usable: dict[tuple[str, int], list[Reservation]] = {}  # by pool and source; computed once
        self.keeps_away = False  # a running pod has anti-affinity or host ports that new pods must respect
        self.waiting: list[QueueItem] = []  # in the order of the queue
        self.placed: set[str] = set()  # pools in which this plan places a pending pod
        self.views: list[NodeView] = []  # those that are not gone
        self.gone: list[NodeView] = []
        self.strangers: list[Node] = []
        self._groups: dict[Ending, _Group] = {}
        self._deadlines: dict[Ending, datetime | None] = {}
        self._ending: list[
            tuple[datetime, list[NodeView]]
        ] = []  # only where there are budgets: deadline -> nodes
        self._disruptions_at_once: dict[str, int] | None = None
        self._shared: dict[tuple[SourceKind, str], bool] = {}
        self._join()

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

    # --- the plan so far ---

    def do(self, action: Action) -> None:
        self.actions.append(action)

    def hold(self, pod: Pod, code: UnmetCode, reason: HoldReason, earliest: datetime | None = None) -> None:
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
        self.unmet[pod.uid] = unmet

    def warn(self, about: str, reason: AnyWarning) -> None:
        self.warnings.append(Warning(about, reason))

    def wake(self, at: datetime | None) -> None:
        """The decision may change at `at`. An instant in the past is ignored."""
        if at is not None and at > self.now and (self.wake_at is None or at < self.wake_at):
            self.wake_at = at

    def plan(self) -> Plan:
        return Plan(tuple(self.actions), tuple(self.unmet.values()), tuple(self.warnings), self.wake_at)

    # --- the world joined up ---

    def _join(self) -> None:
        """Runs over every node at every tick, so it is kept cheap: facts are cached, and ends are computed once
        per group."""
        owner, pods_by_node = self.owner, self.world.pods_by_node
        cache = self.memory.of(NodeCache)
        known = cache.known
        by_ending: dict[int, list[NodeView]] = {}
        for node in self.world.nodes:
            instance, kube = node.instance, node.kube
            # A node without a pool is counted and never touched.
            if instance is None or instance.owner != owner or not instance.pool:
                self.strangers.append(node)
                continue
            bound = pods_by_node.get(kube.name, ()) if kube is not None else ()
            facts = known.get(instance.id)
            if facts is None or facts.node is not node or facts.bound is not bound:
                facts = cache.facts_of(self.spec, node, bound)
            if facts.keeps_away:
                self.keeps_away = True
            view = NodeView(facts, node, facts.phase, facts.pods)
            if facts.phase is Phase.GONE:
                self.gone.append(view)
                continue
            self.views.append(view)
            together = by_ending.get(id(facts.ending))
            if together is None:
                by_ending[id(facts.ending)] = [view]
            else:
                together.append(view)
        if self._somebody_moves_slowly:
            for views in by_ending.values():
                deadline = self._deadline(views[0].facts.ending)
                if deadline is not None:
                    self._ending.append((deadline, views))
        for views in by_ending.values():
            self._set_ends(views)

    def _set_ends(self, views: list[NodeView]) -> None:
        ending = views[0].facts.ending
        end = self._compute_end(ending, views)
        self._groups[ending] = _Group(views, end)
        for view in views:
            view.deadline, view.drain_from = end.deadline, end.drain_from
            instance = view.node.instance
            if instance is not None and instance.ends_at is not None:
                self._end_alone(view, instance.ends_at)
                if instance.leaves:
                    view.drain_from = (
                        instance.launched_at
                    )  # in the past: drain at once, and the same instant at every tick

    def _end_alone(self, view: NodeView, at: datetime) -> None:
        """AWS has announced the end of this node: an interruption or a retirement."""
        view.deadline = min(at, view.deadline or at)
        lead = self._lead([view], view.pool, view.deadline)
        view.drain_from = min(view.deadline - lead, view.drain_from or view.deadline)

    def end_of(self, source: Source, pool_name: str, provisioner: Provisioner) -> End:
        """One lead for all nodes of a source in a pool: they end together, so they drain together."""
        ending = (pool_name, provisioner, source)
        group = self._groups.get(ending)
        if group is None:
            group = self._groups[ending] = _Group()
        if group.end is None:
            group.end = self._compute_end(ending, group.views)
        return group.end

    def _compute_end(self, ending: Ending, views: list[NodeView]) -> End:
        deadline = self._deadline(ending)
        if deadline is None:
            return NO_END
        return End(deadline, deadline - self._lead(views, self.spec.pools.get(ending[0]), deadline))

    def _deadline(self, ending: Ending) -> datetime | None:
        if ending not in self._deadlines:
            self._deadlines[ending] = self._find_deadline(ending)
        return self._deadlines[ending]

    def _find_deadline(self, ending: Ending) -> datetime | None:
        pool_name, provisioner, source = ending
        if source.kind in (SourceKind.BLOCK, SourceKind.ODCR):
            reservation = self.reservations.get(source.id)
            # EC2 lists a reservation for a day after its end: nodes on one that is not listed are overdue.
            return deadline_of(reservation, provisioner) if reservation else self.now
        return money_runs_out_at(self.spec, self.world, pool_name, source.kind)

    def _lead(self, views: list[NodeView], pool: ComputePool | None, deadline: datetime) -> timedelta:
        """The longest of: what a pod needs, what a service under a budget needs, what the pool asks for.

        A service moves in waves over all sources that end at about the same time, not over each of them.
        """
        longest = max((view.facts.lead for view in views), default=timedelta(0))
        if pool is not None and pool.spec.drain.lead is not None:
            longest = max(longest, pool.spec.drain.lead)
        pods = self.moving_together(views, deadline)
        return services_lead(longest, pods, self.workloads, self.disruptions_at_once)

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
