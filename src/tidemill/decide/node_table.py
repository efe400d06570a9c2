"""Our nodes as one decision sees them, kept from one decision to the next: a node that did not change is not looked at.

The world keeps unchanged objects identical, so two lists are compared by identity, and only the rows that differ are
worked out again. What a decision itself notes on a node (`reserved`, `ending`) is cleared when the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import repeat

from tidemill.decide.deadlines import END_MOVED, End
from tidemill.decide.node_cache import NodeCache, NodeFacts
from tidemill.decide.phases import Phase
from tidemill.model.capacity import PREPAID, Reservation, Source
from tidemill.model.changes import different
from tidemill.model.labels import Taint
from tidemill.model.nodes import Node
from tidemill.model.pods import Pod
from tidemill.model.resources import Resources
from tidemill.model.world import World
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import ComputePool, Provisioner
from tidemill.spec.units import read_instant_in_taint

_PodsOf = Callable[[str, tuple[Pod, ...]], tuple[Pod, ...]]  # bound to a Kubernetes node
Ending = tuple[str, Provisioner, Source]  # a pool's nodes of one source end together


@dataclass(slots=True, eq=False)
class NodeView:
    """One node of ours, as this decision sees it. Nodes of others are in `DecisionContext.strangers`."""

    facts: NodeFacts
    node: Node
    phase: Phase
    pods: tuple[Pod, ...]  # bound here, daemons left out
    deadline: datetime | None = None
    drain_from: datetime | None = None
    closes_from: datetime | None = None  # from then on only jobs start here: services leave its source
    reserved: bool = False  # a pending pod will use it
    ending: bool = False  # this plan drains or terminates it
    calm: bool = False  # before it drains, nothing but placing pods concerns it

    @property
    def pool(self) -> ComputePool | None:
        """None: the pool was removed. Its nodes keep running and are still drained in time."""
        return self.facts.template.pool if self.facts.template is not None else None

    @property
    def source(self) -> Source:
        return self.facts.source

    @property
    def idle_since(self) -> datetime:
        """Of a node that is in the cluster: when a pod last came or went; daemon pods do not count."""
        kube = self.node.kube
        assert kube is not None
        began = kube.accelerators_registered_at or kube.joined_at
        return max(began, kube.last_pod_event_at or began)

    def end(self, deadline: datetime | None, drain_from: datetime | None) -> None:
        self.deadline, self.drain_from = deadline, drain_from
        began = self._began(deadline)
        if began is not None and drain_from is not None:
            self.drain_from = min(began, drain_from)
        self.calm = self._is_calm()

    def _began(self, deadline: datetime | None) -> datetime | None:
        """When its drain for this end began. It goes on: the fewer replicas are left to move, the less time they need,
        and a drain that paused until then would use up all there is."""
        kube = self.node.kube
        reason = kube.drain_reason if kube is not None else None
        if kube is None or reason is None or not reason.is_end or self.facts.source.kind not in PREPAID:
            return None
        same_end = reason.at is not None and deadline is not None and abs(deadline - reason.at) <= END_MOVED
        return kube.draining_since if same_end and self.phase is Phase.DRAINING else None

    def _is_calm(self) -> bool:
        facts, kube, instance = self.facts, self.node.kube, self.node.instance
        if self.phase is not Phase.READY or facts.drift is not None or kube is None or instance is None:
            return False
        if kube.check == "failed" or instance.ends_at is not None:
            return False
        if self.deadline is None:
            return True
        if self.pods and not (facts.all_told and facts.told == self.deadline):
            return False
        if any(taint.key == names.TAINT_ENDING and not self._is_of(taint) for taint in kube.taints):
            return False
        if kube.ends_at is None:
            return not (kube.deadline_agent and facts.source.kind in PREPAID)
        return facts.source.kind not in PREPAID or abs(kube.ends_at - self.deadline) <= END_MOVED

    def _is_of(self, taint: Taint) -> bool:
        """It was put there for this end."""
        until = read_instant_in_taint(taint.value)
        return until is not None and self.deadline is not None and self.deadline - until <= END_MOVED


@dataclass(slots=True)
class EndingGroup:
    """Nodes that end together, and the end that was last worked out for them."""

    views: list[NodeView] = field(default_factory=list)
    end: End | None = None
    end_of: tuple[Reservation | None, timedelta | None] = (None, None)  # what it was worked out from
    told_for: object = None  # what else the ends of its nodes were worked out from
    fresh: list[NodeView] = field(default_factory=list)  # not told the end yet
    alone: bool = False  # AWS has announced the end of one of them
    _lead: timedelta | None = None

    @property
    def lead(self) -> timedelta:
        """The longest of its nodes."""
        if self._lead is None:
            self._lead = max((view.facts.lead for view in self.views), default=timedelta(0))
        return self._lead

    def add(self, view: NodeView) -> int:
        self.views.append(view)
        self._changed(view)
        return len(self.views) - 1

    def replace(self, position: int, view: NodeView) -> None:
        before, self.views[position] = self.views[position], view
        if before.facts.lead == self._lead and view.facts.lead < before.facts.lead:
            self._lead = None  # nobody else may need as long
        self._changed(view)

    def _changed(self, view: NodeView) -> None:
        self.fresh.append(view)
        if self._lead is not None and view.facts.lead > self._lead:
            self._lead = view.facts.lead
        instance = view.node.instance
        self.alone = self.alone or (instance is not None and instance.ends_at is not None)


class NodeTable:
    """One row for each node of the world, in its order."""

    def __init__(self) -> None:
        self._cache = NodeCache()
        self._nodes: list[Node] = []
        self._names: list[str] = []  # of their Kubernetes nodes
        self._bound: list[tuple[Pod, ...]] = []
        self._rows: list[tuple[int, EndingGroup, int] | None] = []  # place in `views`, group, place in it
        self.views: list[NodeView] = []  # those that are not gone
        self.gone: list[NodeView] = []
        self.strangers: list[Node] = []  # a node without a pool is counted and never touched
        self.groups: dict[Ending, EndingGroup] = {}
        self.keeps_away = 0  # nodes where a pod has anti-affinity or host ports
        self.counts: dict[tuple[str, str], int] = {}  # by pool and type
        self._daemons: dict[str, Resources] | None = None

    def update(self, spec: Spec, world: World, owner: str) -> None:
        for view in self.views:
            view.reserved = view.ending = False
        nodes, get, known = world.nodes, world.pods_by_node.get, len(self._nodes)
        if len(nodes) >= known:
            bound = list(map(get, self._names, repeat(())))
            changed = {*different(self._nodes, nodes[:known]), *different(self._bound, bound)}
            if all(self._replace(spec, owner, number, nodes[number], get) for number in sorted(changed)):
                self._add(spec, owner, nodes[known:], get)
                return
        self._nodes, self._names, self._bound = [], [], []
        self._rows, self.views, self.gone, self.strangers = [], [], [], []
        self.groups, self.counts, self.keeps_away, self._daemons = {}, {}, 0, None
        self._add(spec, owner, nodes, get)

    def _replace(self, spec: Spec, owner: str, number: int, node: Node, get: _PodsOf) -> bool:
        """False: it is another node, or of another kind than it was."""
        row, before, name = self._rows[number], self._nodes[number], _kube_name(node)
        if node.key != before.key or _is_ours(node, owner) != _is_ours(before, owner):
            return False
        bound = get(name, ())
        if not _is_ours(node, owner):
            self.strangers = [node if one is before else one for one in self.strangers]
            self._nodes[number], self._names[number], self._bound[number] = node, name, bound
            return True
        if row is None:
            return False
        at, group, place = row
        old = self.views[at].facts
        facts = self._cache.facts_of(spec, node, bound)
        if facts.phase is Phase.GONE or facts.ending is not old.ending or facts.counted != old.counted:
            return False
        view = self.views[at] = NodeView(facts, node, facts.phase, facts.pods)
        group.replace(place, view)
        self._nodes[number], self._names[number], self._bound[number] = node, name, bound
        self.keeps_away += facts.keeps_away - old.keeps_away
        if facts.daemons != old.daemons:
            self._daemons = None
        return True

    def _add(self, spec: Spec, owner: str, nodes: Sequence[Node], get: _PodsOf) -> None:
        for node in nodes:
            name = _kube_name(node)
            bound = get(name, ())
            self._nodes.append(node)
            self._names.append(name)
            self._bound.append(bound)
            self._rows.append(self._row(spec, owner, node, bound))

    def _row(
        self, spec: Spec, owner: str, node: Node, bound: tuple[Pod, ...]
    ) -> tuple[int, EndingGroup, int] | None:
        if not _is_ours(node, owner):
            self.strangers.append(node)
            return None
        facts = self._cache.facts_of(spec, node, bound)
        view = NodeView(facts, node, facts.phase, facts.pods)
        self.keeps_away += facts.keeps_away
        if facts.phase is Phase.GONE:
            self.gone.append(view)
            return None
        self.views.append(view)
        if facts.daemons:
            self._daemons = None
        if facts.template is not None and facts.kind is not None:
            self.counts[facts.counted] = self.counts.get(facts.counted, 0) + 1
        group = self.groups.setdefault(facts.ending, EndingGroup())
        return len(self.views) - 1, group, group.add(view)

    @property
    def daemons(self) -> Mapping[str, Resources]:
        """By pool: the most that daemon pods take on one of its nodes."""
        if self._daemons is None:
            self._daemons = {}
            for view in self.views:
                if view.facts.daemons:
                    worst = self._daemons.setdefault(view.facts.pool_name, Resources())
                    worst.raise_to(view.facts.daemons.items())
        return self._daemons


def _kube_name(node: Node) -> str:
    return node.kube.name if node.kube is not None else ""


def _is_ours(node: Node, owner: str) -> bool:
    return node.instance is not None and node.instance.owner == owner and bool(node.instance.pool)
