"""Where pods could run now or soon: nodes that are up and nodes on their way, equal ones in one group.

Nodes of one group differ in nothing a pod could ask for but what is free on them, so whether a pod may use
them is asked once per group. Rooms are scratch space: `pack` takes from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum

from tidemill.catalog import InstanceType
from tidemill.catalog.sizing import USUAL_DAEMONS
from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import NO_END, End
from tidemill.decide.launches import InFlight
from tidemill.decide.node_cache import free_on
from tidemill.decide.node_table import NodeView
from tidemill.decide.phases import Phase
from tidemill.decide.placement.launch_options import LaunchOption, find_launch_options
from tidemill.decide.pool_templates import PoolTemplate
from tidemill.decide.queue_item import QueueItem
from tidemill.decide.scheduler_rules import admits
from tidemill.model.capacity import Reservation, ReservationState, Source, SourceKind
from tidemill.model.labels import Taint
from tidemill.model.nodes import KubeNode
from tidemill.model.pods import Pod, PodShape
from tidemill.model.resources import Amounts, Resources
from tidemill.spec import names
from tidemill.spec.compute_pool import Allowance
from tidemill.spec.default_durations import BOOT as BOOT

# How long the daemons of a pool's last nodes are remembered. After that one launch measures them again.
REMEMBERED = timedelta(days=1)


class Stage(IntEnum):
    READY = 0
    COMING = 1
    NEW = 2


@dataclass(slots=True, eq=False)
class CandidateGroup:
    """Nodes that differ only in what is free on them."""

    stage: Stage
    template: PoolTemplate | None  # None: a node of others
    source: Source
    zone: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    end: End
    order: tuple[int, int]  # pool weight (negated), place of the source in the pool's list
    returning: bool = False  # slots of a reservation that EC2 still cleans up
    nodes: list[CandidateNode] = field(default_factory=list)
    rank: tuple[object, ...] = ()

    def __post_init__(self) -> None:
        """Ready before coming; then the pool's own order; then the least time left, so that longer ones stay free."""
        ends = self.end.deadline.timestamp() if self.end.deadline is not None else float("inf")
        self.rank = (self.stage, self.order, ends, self.source.label, self.zone)

    @property
    def ends_with_money(self) -> bool:
        """Paid by the hour, within a cap or the month's budget."""
        return self.template is not None and self.template.limited[self.source.kind] is not None

    def accepts(self, shape: PodShape, namespace: str, *, overflow: bool) -> bool:
        """Whether such a pod may run on its nodes, time and resources aside. Pods are never sent to nodes of others."""
        return (
            self.template is not None
            and self.template.accepts(self.source.kind, namespace, overflow=overflow)
            and admits(shape, self.labels, self.taints)
        )


@dataclass(slots=True, eq=False)
class CandidateNode:
    group: CandidateGroup
    name: str
    free: Resources
    view: NodeView | None = None
    ready_at: datetime | None = None  # None: now, or not computed
    option: LaunchOption | None = None
    claimed: Resources = field(
        default_factory=Resources
    )  # kept for services that will move in, or for who is next in the queue
    claimed_from: datetime | None = None
    claimed_by: QueueItem | None = None  # who is next
    _own: Resources | None = None  # `free` is shared with the node facts until a pod is placed

    def take(self, requests: Amounts) -> None:
        if self._own is None:
            self._own = self.free = Resources(self.free)
        self._own.subtract_pod(requests)

    def claim(self, requests: Amounts, since: datetime) -> None:
        self.claimed.add_pod(requests)
        self.claimed_from = min(since, self.claimed_from or since)

    def unclaimed(self) -> Resources:
        return self.free.minus(self.claimed)


class Candidates:
    """All groups in order of preference, and what could be launched beside them."""

    def __init__(self, context: DecisionContext, in_flight: InFlight) -> None:
        self._context = context
        self._in_flight = in_flight
        self._launch_options: list[LaunchOption] | None = None
        self.groups: dict[object, CandidateGroup] = {}
        self.returning: list[CandidateGroup] = []
        self.allowances = {
            name: Allowance.of(one.pool.spec.limits) for name, one in context.templates.items()
        }
        self.daemons: Mapping[str, Mapping[str, int]] = {}  # by pool
        self.gone: set[int] = set()  # identities of views that are left out: what if they were not there?
        # For whom nodes are kept: from when, and on which source.
        self.promised: dict[QueueItem, tuple[datetime, str]] = {}
        self.between_pods = False  # some pod has rules about other pods, so existing pods matter

    @property
    def launch_options(self) -> list[LaunchOption]:
        """Computed only when needed: most ticks place everything on existing nodes."""
        if self._launch_options is None:
            self._launch_options = find_launch_options(
                self._context, self._in_flight, self.allowances, self.daemons
            )
        return self._launch_options

    @property
    def opened(self) -> list[LaunchOption]:
        """Those that a pod was placed on."""
        return [option for option in self._launch_options or () if option.opened > 0]

    def ordered(self) -> list[CandidateGroup]:
        return sorted(self.groups.values(), key=lambda group: group.rank)

    def all_nodes(self) -> Iterable[CandidateNode]:
        return (candidate for group in self.ordered() for candidate in group.nodes)

    def leave_out(self, views: Iterable[NodeView]) -> None:
        """Treat these nodes and their pods as gone."""
        self.gone = {id(view) for view in views}
        self._close(self.gone)

    def shut(self, views: Iterable[NodeView]) -> None:
        """Place nothing there; the pods there stay and count."""
        self._close({id(view) for view in views})

    def _close(self, views: set[int]) -> None:
        for group in self.groups.values() if views else ():
            group.nodes = [candidate for candidate in group.nodes if id(candidate.view) not in views]

    def coming(
        self, template: PoolTemplate, source: Source, kind: InstanceType, zone: str, end: End
    ) -> CandidateGroup:
        """The group of nodes of this type that are on their way, with this end."""
        key = (template.pool.name, source, kind.name, zone, end)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = coming_group(template, source, kind, zone, end)
        return group


def coming_group(
    template: PoolTemplate,
    source: Source,
    kind: InstanceType,
    zone: str,
    end: End,
    *,
    returning: bool = False,
) -> CandidateGroup:
    """Nodes that are launched or will be: their labels and taints are those of the pool's template."""
    return CandidateGroup(
        Stage.COMING, template, source, zone, template.labels(source, kind, zone), template.taints, end,
        template.order(source), returning,
    )  # fmt: skip


def ready_group(view: NodeView, labels: Mapping[str, str]) -> CandidateGroup:
    """Nodes that are up: their labels and taints are their own."""
    facts, kube, instance = view.facts, view.node.kube, view.node.instance
    assert kube is not None and instance is not None and facts.template is not None
    return CandidateGroup(
        Stage.READY, facts.template, facts.source, instance.zone, labels, kube.taints,
        End(view.deadline, view.drain_from), facts.order,
    )  # fmt: skip


def find_candidates(
    context: DecisionContext, in_flight: InFlight, *, accelerated: bool, gangs: bool, between_pods: bool
) -> Candidates:
    """Every node a pod could use. `accelerated`: all pending pods want an accelerator, so full nodes are left out;
    `gangs`: some of them are gangs; `between_pods`: pending or running pods have rules about other pods."""
    candidates = Candidates(context, in_flight)
    candidates.between_pods = between_pods
    candidates.daemons = daemon_overhead(context)
    everything = not accelerated or between_pods
    last: tuple[int, datetime | None] = (-1, None)  # consecutive nodes are mostly of one group
    ready: CandidateGroup | None = None
    for view in context.views:
        facts = view.facts
        if view.phase is Phase.READY:
            in_last = ready is not None and facts.group == last[0] and view.drain_from is last[1]
            has_room = everything or facts.free_accelerators > 0
            if (in_last and not has_room) or view.ending or not facts.takes_pods:
                continue
            if ready is None or not in_last:
                ready, last = _ready_group(candidates, view), (facts.group, view.drain_from)
            if has_room:
                ready.nodes.append(CandidateNode(ready, facts.name, facts.free, view))
        elif view.phase is not Phase.DRAINING and facts.takes_pods and not view.ending:
            assert view.node.instance is not None and facts.template is not None and facts.kind is not None
            end = End(view.deadline, view.drain_from)
            group = candidates.coming(facts.template, facts.source, facts.kind, view.node.instance.zone, end)
            group.nodes.append(
                CandidateNode(
                    group, facts.name, facts.kind.free_beside(candidates.daemons[facts.pool_name]), view
                )
            )
    types = context.spec.catalog.types
    for (pool_name, kind_name), count in context.table.counts.items():
        candidates.allowances[pool_name].take(types[kind_name], count)
    _add_in_flight(context, candidates, in_flight)
    if gangs:
        _add_returning(context, candidates, in_flight)
    _add_strangers(context, candidates, everything=everything)
    return candidates


def _ready_group(candidates: Candidates, view: NodeView) -> CandidateGroup:
    facts = view.facts
    key = (facts.group, view.drain_from)
    group = candidates.groups.get(key)
    if group is None:
        group = candidates.groups[key] = ready_group(view, _without_host(facts.labels))
    return group


def _without_host(labels: Mapping[str, str]) -> Mapping[str, str]:
    return {key: value for key, value in labels.items() if key != names.LABEL_HOSTNAME}


def _add_in_flight(context: DecisionContext, candidates: Candidates, in_flight: InFlight) -> None:
    for intent, count in in_flight.unseen:
        kind, template = (
            context.spec.catalog.types.get(intent.instance_type),
            context.templates.get(intent.pool),
        )
        if kind is None or template is None:
            continue
        candidates.allowances[intent.pool].take(kind, count)
        end = context.end_of(intent.source, intent.pool, template.pool.spec.provisioner)
        group = candidates.coming(template, intent.source, kind, intent.zone, end)
        for number in range(count):
            group.nodes.append(
                CandidateNode(
                    group, f"{intent.id}/{number}", kind.free_beside(candidates.daemons[intent.pool])
                )
            )


def _add_returning(context: DecisionContext, candidates: Candidates, in_flight: InFlight) -> None:
    """Slots of a warm block that hold no node and cannot be launched into yet: minutes after one was lost.

    Only gangs count on them: so a broken gang's other nodes are kept for it (PE-17) and not filled in between.
    """
    views: dict[str, int] = {}
    for (_, _, source), together in context.table.groups.items():
        views[source.id] = views.get(source.id, 0) + len(together.views)
    for reservation in context.world.reservations:
        if reservation.kind is not SourceKind.BLOCK or reservation.state is not ReservationState.ACTIVE:
            continue
        template = _warm_template(context, reservation)
        if template is None:
            continue
        taken = views.get(reservation.id, 0) + in_flight.on(reservation.source)
        taken += sum(
            node.instance is not None and node.instance.source == reservation.source
            for node in context.strangers
        )
        if reservation.count - reservation.available - taken > 0:
            kind = template.kinds[reservation.instance_type]
            end = context.end_of(reservation.source, template.pool.name, template.pool.spec.provisioner)
            group = coming_group(template, reservation.source, kind, reservation.zone, end, returning=True)
            for number in range(reservation.count - reservation.available - taken):
                name = f"{reservation.id}/returning/{number}"
                group.nodes.append(
                    CandidateNode(group, name, kind.free_beside(candidates.daemons[template.pool.name]))
                )
            candidates.returning.append(group)


def _warm_template(context: DecisionContext, reservation: Reservation) -> PoolTemplate | None:
    """The pool that keeps all of this block's slots filled."""
    if reservation.owner != context.owner:
        return None
    alone = len(context.templates) == 1
    for name, template in context.templates.items():
        mine = reservation.pool == name or (not reservation.pool and alone)
        if mine and template.pool.spec.kept_warm is True and reservation.instance_type in template.kinds:
            return template
    return None


class _Strangers:
    """Of nodes of others, by name: what is free there, kept while the node and its pods are the very same objects."""

    def __init__(self) -> None:
        self.known: dict[str, _Stranger] = {}


@dataclass(frozen=True, slots=True)
class _Stranger:
    kube: KubeNode
    bound: tuple[Pod, ...]
    free: Resources
    free_accelerators: int
    alike: object  # nodes with equal ones differ only in what is free on them


def _stranger(kube: KubeNode, bound: tuple[Pod, ...]) -> _Stranger:
    free, labels = free_on(kube, bound), dict(kube.labels)
    alike: object = kube.name
    if labels.pop(names.LABEL_HOSTNAME, kube.name) == kube.name:
        alike = (frozenset(labels.items()), kube.taints)
    return _Stranger(kube, bound, free, sum(free.get(name, 0) for name in names.ACCELERATORS), alike)


def _add_strangers(context: DecisionContext, candidates: Candidates, *, everything: bool) -> None:
    """Where kube-scheduler may put ungated pods. Most nodes of a shared cluster are such, and without accelerators."""
    known = context.memory.of(_Strangers).known
    if len(known) > 2 * len(context.strangers) + 1000:
        known.clear()
    for node in context.strangers:
        kube = node.kube
        if kube is None or not kube.ready or kube.unschedulable:
            continue
        bound = context.world.pods_by_node.get(kube.name, ())
        stranger = known.get(kube.name)
        if stranger is None or stranger.kube is not kube or stranger.bound is not bound:
            stranger = known[kube.name] = _stranger(kube, bound)
        if stranger.free_accelerators <= 0 and not everything:
            continue
        group = candidates.groups.get(stranger.alike)
        if group is None:
            labels = dict(kube.labels) if stranger.alike == kube.name else _without_host(dict(kube.labels))
            group = candidates.groups[stranger.alike] = CandidateGroup(
                Stage.READY, None, Source(SourceKind.ON_DEMAND), "", labels, kube.taints, NO_END, (0, 0)
            )
        group.nodes.append(CandidateNode(group, kube.name, stranger.free))


def daemon_overhead(context: DecisionContext) -> Mapping[str, Mapping[str, int]]:
    """What daemon pods take on a node of each pool: the most seen there; before there is one, what DaemonSets would put
    there, or a default."""
    worst = context.table.daemons
    return {
        name: worst.get(name)
        or _remembered(context, name)
        or _declared(context, template)
        or dict(USUAL_DAEMONS)
        for name, template in context.templates.items()
    }


def _declared(context: DecisionContext, template: PoolTemplate) -> Resources:
    """What DaemonSets will put on a node of this pool, as far as its labels tell before there is one."""
    labels = {**template.pool.spec.labels, names.LABEL_POOL: template.pool.name}
    taken = Resources()
    for shape in context.world.daemons:
        if admits(shape, labels, template.taints):
            taken.add_pod(shape.requests)
    return taken


def _remembered(context: DecisionContext, pool: str) -> Resources:
    """The most that was seen on the last nodes of the pool, for a day: daemons may have changed since."""
    worst = Resources()
    for overhead in context.world.overheads:
        forgotten_at = overhead.seen_at + REMEMBERED
        if overhead.pool == pool and context.now < forgotten_at:
            context.wake(forgotten_at)
            worst.raise_to(overhead.taken)
    return worst
