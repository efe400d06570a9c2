"""The working paper of one decision: the world joined up per node, and the plan so far.

Everything here lives for a single call of `decide`. The steps read it, add actions and reasons to it, and
take room from it, so that a later step sees what an earlier one has already promised.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.decide.nodes import Phase, deadline_of, lead_for, phase_of
from tidemill.decide.overflow import money_runs_out_at
from tidemill.plan import Action, Plan, Unmet, UnmetCode, Warning
from tidemill.spec import Spec
from tidemill.spec.models import ComputePool, Provisioner
from tidemill.world import Node, Pod, Reservation, Source, SourceKind, World


@dataclass(slots=True)
class Life:
    """One node of ours, as this decision sees it. Strangers' nodes are in `Draft.strangers`."""

    node: Node
    phase: Phase
    pool: ComputePool | None  # None: the pool was removed; its nodes run on and still end well
    source: Source
    pods: tuple[Pod, ...]  # bound here, daemons left out
    deadline: datetime | None = None
    drain_from: datetime | None = None
    reserved: bool = False  # a waiting pod counts on it
    ending: bool = False  # this plan drains or terminates it

    @property
    def pool_name(self) -> str:
        return self.node.instance.pool if self.node.instance else ""

    @property
    def provisioner(self) -> Provisioner:
        """How it was launched, which decides who else will end it; the pool may have changed since."""
        tag = self.node.instance.provisioner if self.node.instance else ""
        return Provisioner(tag) if tag in Provisioner._value2member_map_ else Provisioner.NATIVE


@dataclass(frozen=True, slots=True)
class End:
    """When a source ends for a pool, and when draining it starts."""

    deadline: datetime | None
    drain_from: datetime | None


NO_END = End(None, None)


class Draft:
    def __init__(self, spec: Spec, world: World) -> None:
        self.spec = spec
        self.world = world
        self.now = world.now
        self.owner = spec.platform.spec.deployment
        self.reservations: dict[str, Reservation] = {r.id: r for r in world.reservations}
        self.actions: list[Action] = []
        self.unmet: dict[str, Unmet] = {}
        self.warnings: list[Warning] = []
        self.wake_at: datetime | None = None
        self.lives: list[Life] = []
        self.strangers: list[Node] = []
        self._ends: dict[tuple[str, str, Source], End] = {}
        self._disruptions_at_once: dict[str, int] | None = None
        self._join()

    # --- the plan so far ---

    def do(self, action: Action) -> None:
        self.actions.append(action)

    def hold(self, pod: Pod, code: UnmetCode, reason: str, earliest: datetime | None = None) -> None:
        self.unmet[pod.uid] = Unmet(pod.uid, pod.full_name, code, reason, earliest)

    def warn(self, about: str, sentence: str) -> None:
        self.warnings.append(Warning(about, sentence))

    def wake(self, at: datetime | None) -> None:
        """Something may be decided differently at `at`. An instant that has passed is nothing to wait for."""
        if at is not None and at > self.now and (self.wake_at is None or at < self.wake_at):
            self.wake_at = at

    def plan(self) -> Plan:
        return Plan(tuple(self.actions), tuple(self.unmet.values()), tuple(self.warnings), self.wake_at)

    # --- the world joined up ---

    def _join(self) -> None:
        pods_by_node = self.world.pods_by_node
        for node in self.world.nodes:
            instance = node.instance
            if instance is None or instance.owner != self.owner:
                self.strangers.append(node)
                continue
            bound = pods_by_node.get(node.kube.name, ()) if node.kube is not None else ()
            pods = tuple(pod for pod in bound if not pod.daemon)
            pool = self.spec.pools.get(instance.pool)
            self.lives.append(Life(node, phase_of(node), pool, instance.source, pods))
        for life in self.lives:
            if life.phase is not Phase.GONE:
                self._set_end(life)

    def _set_end(self, life: Life) -> None:
        end = self.end_of(life.source, life.pool_name, life.provisioner)
        life.deadline, life.drain_from = end.deadline, end.drain_from
        instance = life.node.instance
        if instance is not None and instance.ends_at is not None:
            life.deadline = min(instance.ends_at, life.deadline or instance.ends_at)
            lead = self._lead(life.pods, life.pool)
            life.drain_from = min(life.deadline - lead, life.drain_from or life.deadline)

    def end_of(self, source: Source, pool_name: str, provisioner: Provisioner) -> End:
        """One lead for all nodes of a source in a pool: they end together, so they drain together."""
        key = (pool_name, provisioner.value, source)
        end = self._ends.get(key)
        if end is None:
            end = self._ends[key] = self._compute_end(source, pool_name, provisioner)
        return end

    def _compute_end(self, source: Source, pool_name: str, provisioner: Provisioner) -> End:
        deadline: datetime | None = None
        if source.kind in (SourceKind.BLOCK, SourceKind.ODCR):
            reservation = self.reservations.get(source.id)
            # A reservation we can no longer see has been gone for a day: whatever is left on it is overdue.
            deadline = deadline_of(reservation, provisioner) if reservation else self.now
        else:
            deadline = money_runs_out_at(self.spec, self.world, pool_name, source.kind)
        if deadline is None:
            return NO_END
        pods = [
            pod
            for life in self.lives
            if life.source == source and life.pool_name == pool_name
            for pod in life.pods
        ]
        return End(deadline, deadline - self._lead(pods, self.spec.pools.get(pool_name)))

    def _lead(self, pods: list[Pod] | tuple[Pod, ...], pool: ComputePool | None) -> timedelta:
        return lead_for(
            pods,
            checkpoint=pool.spec.drain.checkpoint if pool else True,
            asked=pool.spec.drain.lead if pool else None,
            disruptions_at_once=self.disruptions_at_once,
        )

    @property
    def disruptions_at_once(self) -> dict[str, int]:
        """For each workload under a budget: how many replicas may be away at one time, when all are healthy."""
        if self._disruptions_at_once is None:
            replicas: dict[str, int] = {}
            for pod in self.world.pods:
                if pod.deleting_until is None:
                    replicas[pod.workload] = replicas.get(pod.workload, 0) + 1
            self._disruptions_at_once = {
                budget.workload: max(1, replicas.get(budget.workload, 0) - budget.min_available)
                for budget in self.world.budgets
            }
        return self._disruptions_at_once
