"""13: no prepaid node stands idle while a pod waits that it could take, and is allowed to take.

Whether it could is asked of the simulated kube-scheduler; whether there is time enough follows from the documents and
from when AWS takes the node. Where an idle node may rightly be kept for somebody else (a gang that waits, a service
whose source ends), nothing is found: this errs on the side of silence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.model.capacity import PREPAID
from tidemill.model.nodes import INSTANCE_UP_STATES, KubeNode
from tidemill.model.pods import Pod, PodPhase
from tidemill.sim.cloud.instances import InstanceHistory
from tidemill.sim.cluster.scheduler_filters import PodSelector
from tidemill.sim.invariants.namespace_limits import is_held_back
from tidemill.sim.invariants.truth import Findings, Truth
from tidemill.spec import names
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.units import format_instant

# The engine looks again after ten minutes at the latest; five more for a node that opens, a tick and a throttled API.
IDLE_BOUND = timedelta(minutes=15)
# Scheduling and image pull; reaction and signals before the end; and a source may be emptied earlier for other pods.
TIME_SLACK = timedelta(hours=1)
_NOTHING = timedelta(0)

Replicas = dict[str, list[Pod]]


Item = list[Pod]  # a pod that waits alone, or all pods of a gang


@dataclass(frozen=True, slots=True)
class _Idle:
    kube: KubeNode
    history: InstanceHistory
    pool: ComputePool

    @property
    def place(self) -> tuple[str, str, str]:
        """Where a gang would have to be together."""
        return self.history.now.pool, self.history.now.source.label, self.history.now.zone


class IdleNodes:
    """Since when an idle node could have taken a certain pod, as far as it was looked at."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], datetime] = {}

    def check(self, truth: Truth) -> Findings:
        now, before, self._since = truth.now(), self._since, {}
        kinds = waiting_items(truth)
        idle = _idle_nodes(truth) if kinds else []
        if not idle:
            return
        replicas = replicas_by_source(truth)
        gangs = [items[0] for items in kinds if len(items[0]) > 1]
        for items in kinds:
            for nodes in _rooms(truth, items, idle) if not _keeps_itself_apart(items[0]) else ():
                item = next((one for one in items if _has_time(truth, one[0], nodes[0], replicas)), None)
                if item is None or _kept_for_others(truth, item, nodes, gangs, replicas):
                    continue
                key = (nodes[0].kube.name, item[0].uid)
                since = self._since[key] = before.get(key, now)
                if truth.able_for(since, now) > IDLE_BOUND:
                    waits = f"{item[0].full_name} waits, and would fit since {format_instant(since)}"
                    yield 13, (nodes[0].kube.name, nodes[0].history.now.source.label, waits)


def _idle_nodes(truth: Truth) -> list[_Idle]:
    """Open nodes on prepaid capacity of ours, without any pod but daemons."""
    found, owner = [], truth.owner
    nodes = [
        node
        for node in truth.cluster.without_work()
        if node.opened_at is not None
        and node.ready
        and node.check != "failed"
        and node.draining_since is None
    ]
    for node in nodes:
        history = truth.cloud.instance_histories[node.instance_id]
        if history.now.owner != owner or history.now.state not in INSTANCE_UP_STATES:
            continue
        if history.now.source.kind not in PREPAID or history.now.ends_at is not None:
            continue
        if truth.keeps_old_end(history):
            continue
        pool = truth.spec.pools.get(history.now.pool)
        if pool is not None:
            found.append(_Idle(node, history, pool))
    return found


def waiting_items(truth: Truth) -> list[list[Item]]:
    """Pods that wait alone and gangs that wait whole, the oldest first; those that fit on the same nodes together."""
    kinds: dict[tuple[object, ...], list[Item]] = {}
    gangs: dict[tuple[str, str], Item] = {}
    for pod in truth.cluster.unbound:
        if pod.daemon or pod.phase is not PodPhase.PENDING:
            continue
        if pod.held_by_others or pod.deleting_until is not None:
            continue
        item = gangs.setdefault((pod.namespace, pod.gang.name), []) if pod.gang is not None else []
        item.append(pod)
        if len(item) == (pod.gang.size if pod.gang is not None else 1):
            # Pods of one template share one shape.
            key = (id(pod.shape), pod.namespace, pod.pinned_to, pod.gated, len(item))
            kinds.setdefault(key, []).append(item)
    return [items for items in kinds.values() if not is_held_back(truth, items[0])]


def _rooms(truth: Truth, items: list[Item], idle: Iterable[_Idle]) -> Iterable[list[_Idle]]:
    """Idle nodes of one pool, source and zone that could take an item of this kind; of a gang one pod each."""
    first, rooms = items[0][0], dict[tuple[str, str, str], list[_Idle]]()
    takers = set(truth.cluster.fitting(first, [node.kube.name for node in idle]))
    for node in idle:
        if node.kube.name in takers and node.pool.spec.serves(first.namespace):
            rooms.setdefault(node.place, []).append(node)
    return [nodes for nodes in rooms.values() if len(nodes) >= len(items[0])]


def _keeps_itself_apart(item: Item) -> bool:
    """A gang with a rule between its own pods, but for that of one on each host: that each of them fits alone says
    nothing of all of them."""
    pod = item[0]
    shape, labels = pod.shape, dict(pod.shape.labels)
    terms = [
        *shape.affinity,
        *(term for term in shape.anti_affinity if term.topology_key != names.LABEL_HOSTNAME),
    ]
    rules = [PodSelector.of_term(term, pod.namespace) for term in terms]
    rules += [PodSelector.of_spread(one, pod.namespace, shape.labels) for one in shape.spread if one.hard]
    return len(item) > 1 and any(rule.matches(pod.namespace, labels) for rule in rules)


def _has_time(truth: Truth, pod: Pod, node: _Idle, replicas: Replicas) -> bool:
    """It would be done, or have written its first checkpoint, well before the node is emptied."""
    deadline = truth.deadline_of(node.history)
    here = replicas.get(node.history.now.source.label, [])
    return deadline is None or truth.now() + time_to_use(pod, node.pool, here) <= deadline


def time_to_use(pod: Pod, pool: ComputePool, here: list[Pod]) -> timedelta:
    """How long a node must last for a pod that goes there now: more than it needs. `here`: replicas of services on the
    same source, which move before it ends."""
    terms, rules = pod.terms, pool.spec
    said = terms.expected if terms.expected is not None else rules.default_duration
    run = None if said is None else min(said, rules.max_expected_duration)
    if terms.checkpoint_every is not None:
        first = terms.checkpoint_every + terms.checkpoint_time
        run = first if run is None else min(run, first)
    leaving = terms.grace + terms.checkpoint_time + (rules.drain.lead or _NOTHING)
    moving = sum((other.terms.load + other.terms.grace for other in here), _NOTHING)
    return terms.load + (run or _NOTHING) + leaving + moving + TIME_SLACK


def _kept_for_others(
    truth: Truth, item: Item, nodes: list[_Idle], gangs: list[Item], replicas: Replicas
) -> bool:
    """For another gang that waits, or one node each for replicas on sources that end."""
    names = [node.kube.name for node in nodes]
    if any(gang is not item and truth.cluster.fitting(gang[0], names) for gang in gangs):
        return True
    here = nodes[0].history.now.source.label
    kept = sum(len(pods) for source, pods in replicas.items() if source != here)
    return len(nodes) - kept < len(item)


def replicas_by_source(truth: Truth) -> Replicas:
    """Replicas of services, by the source they run on."""
    found: Replicas = {}
    for pod in truth.cluster.replicas:
        node = truth.cluster.node_truth(pod.node)
        source = node.source if node is not None and node.gone_at is None else ""
        found.setdefault(source, []).append(pod)
    return found
