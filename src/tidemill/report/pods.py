"""Pods and what comes next: who has a place and until when, who waits and why, what the plan would do."""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.catalog import InstanceType
from tidemill.model.plan import Action, Plan
from tidemill.model.pods import Pod, PodPhase, PodShape
from tidemill.model.purchases import PurchaseIntent
from tidemill.model.resources import amount
from tidemill.model.world import World
from tidemill.report.quotes import Quotes
from tidemill.report.rows import ChangeRow, NextSteps, PodRow, StepRow, WarningRow
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import ComputePool, matching_types
from tidemill.wording import sentence


def next_steps(spec: Spec, world: World, plan: Plan, changes: tuple[ChangeRow, ...] = ()) -> NextSteps:
    by_uid = {pod.uid: pod.full_name for pod in world.pods}
    return NextSteps(
        at=world.now,
        steps=tuple(
            StepRow(type(action).__name__, touched(action, by_uid), sentence(action.reason))
            for action in plan.actions
        ),
        waiting=tuple(row for row in pods(spec, world, plan) if row.state == "waiting"),
        warnings=warnings(plan),
        wake_at=plan.wake_at,
        changes=changes,
    )


def touched(action: Action, pod_names: Mapping[str, str]) -> tuple[str, ...]:
    """What an action is about: pods by name, else the node, the instance, the window or the type it names."""
    uids: tuple[str, ...] = getattr(action, "pods", ()) or tuple(filter(None, (getattr(action, "pod", ""),)))
    if uids:
        return tuple(pod_names.get(uid, uid) for uid in uids)
    intent, query = getattr(action, "intent", None), getattr(action, "query", None)
    if isinstance(intent, PurchaseIntent):
        return (f"{intent.plan}/{intent.window}", intent.id)
    if intent is not None:
        return (f"{intent.count} x {intent.instance_type} on {intent.source.label}",)
    if query is not None:
        return (f"{query.count} x {query.instance_type}",)
    named = (getattr(action, key, "") for key in ("node", "instance_id", "intent_id", "workload"))
    return tuple(name for name in named if name)


def pods(spec: Spec, world: World, plan: Plan) -> tuple[PodRow, ...]:
    """Every pod that is not a daemon's, those that wait with the reason the plan gives."""
    unmet = {one.pod: one for one in plan.unmet}
    nodes = {node.kube.name: node for node in world.nodes if node.kube is not None}
    queues, quotes = _Queues(spec), Quotes(spec, world)
    rows = []
    for pod in world.pods:
        if pod.daemon:
            continue
        node, wait = nodes.get(pod.node), unmet.get(pod.uid)
        instance = node.instance if node is not None else None
        rows.append(
            PodRow(
                name=pod.full_name,
                state=_pod_state(pod),
                workload=pod.workload,
                pool=instance.pool if instance is not None else queues.pool(pod),
                node=pod.node,
                source=instance.source.label if instance is not None else pod.pinned_to,
                gpus=gpus(pod.shape),
                since=pod.started_at or pod.created_at,
                until=pod.ends_at,
                code=wait.code if wait else "",
                reason=sentence(wait.reason) if wait else ("" if pod.node else _unplanned(pod)),
                earliest=wait.earliest if wait else None,
                price=quotes.price(pod, instance),
            )
        )
    return tuple(rows)


def _pod_state(pod: Pod) -> str:
    if pod.deleting_until is not None:
        return "stopping"
    if not pod.node:
        return "waiting"
    return "running" if pod.phase is PodPhase.RUNNING else "starting"


def _unplanned(pod: Pod) -> str:
    """No plan speaks of it: somebody else holds it, or the scheduler is about to place it."""
    if pod.held_by_others:
        return "another controller holds it"
    return pod.message or "it was admitted and is being scheduled"


def warnings(plan: Plan) -> tuple[WarningRow, ...]:
    return tuple(WarningRow(one.about, sentence(one.reason)) for one in plan.warnings)


class _Queues:
    """Whose queue a pod without a place stands in: the first pool, by weight, whose nodes it asks for.

    Labels and accelerators only. Whether the pool can serve it, and why not, is the plan's to say.
    """

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._pools = sorted(spec.pools.values(), key=lambda pool: (-pool.spec.weight, pool.name))
        self._known: dict[tuple[PodShape, str], str] = {}

    def pool(self, pod: Pod) -> str:
        key = (pod.shape, pod.namespace)
        if key not in self._known:
            asked = (pool.name for pool in self._pools if self._is_asked_for(pool, pod))
            self._known[key] = next(asked, "")
        return self._known[key]

    def _is_asked_for(self, pool: ComputePool, pod: Pod) -> bool:
        if not pool.spec.serves(pod.namespace):
            return False
        wanted = {key: value for key, value in pod.shape.node_selector if key not in _ENGINES_CHOICE}
        return any(
            wanted.items() <= _labels(pool, kind).items() and gpus(pod.shape) <= kind.gpus
            for kind in matching_types(self._spec.catalog, pool.spec.requirements)
        )


# Which source and zone a pod lands on is decided later, so selecting one names no pool.
_ENGINES_CHOICE = (names.LABEL_SOURCE, names.LABEL_ZONE)


def _labels(pool: ComputePool, kind: InstanceType) -> dict[str, str]:
    own = {names.LABEL_POOL: pool.name, names.LABEL_TYPE: kind.name, names.LABEL_ARCH: kind.arch}
    return {**pool.spec.labels, **own}


def gpus(shape: PodShape) -> int:
    return sum(amount(shape.requests, name) for name in names.ACCELERATORS)
