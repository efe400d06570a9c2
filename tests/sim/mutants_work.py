"""Engines that are wrong on purpose about work: where it starts, how it is stopped, and whether it runs at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from tests.sim.scenario_builder import after
from tidemill.decide import decide
from tidemill.model import reasons
from tidemill.model.capacity import PREPAID
from tidemill.model.nodes import Node
from tidemill.model.plan import Action, Admit, Evict, ForceDelete, Plan, Recreate
from tidemill.model.pods import Pod
from tidemill.model.world import World
from tidemill.spec import Spec

_ADMIT = reasons.AdmitReason(reasons.AdmitKind.NODE_FREE, "wrongly")
_RECREATE = reasons.RecreateReason(reasons.RecreateKind.NO_ROOM_LEFT, "cr-1")
_DEADLINE = after("3h30m")


def tells_pods_half_a_minute_before(spec: Spec, world: World) -> Plan:
    """Nothing leaves before the last 35 seconds; then everything does, with the grace that is left."""
    plan = decide(spec, world)
    actions: list[Action] = [action for action in plan.actions if not isinstance(action, Evict | ForceDelete)]
    last = _DEADLINE - timedelta(seconds=35)
    if last <= world.now < _DEADLINE:
        why = reasons.EndReason(reasons.EndKind.LAST_SAFE_MOMENT, _DEADLINE)
        left_s = int((_DEADLINE - world.now).total_seconds())
        actions += [ForceDelete(pod.uid, left_s, why) for pod in world.pods if pod.node and not pod.daemon]
    wake_at = plan.wake_at if world.now >= last else min(plan.wake_at or last, last)
    return replace(plan, actions=tuple(actions), wake_at=wake_at)


def admits_whatever_fits(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
    """On any node that is up, however long it lasts, and whoever it is for."""
    yield from plan.actions
    taken = {pod.node for pod in world.pods if pod.node and not pod.daemon}
    free = [node for node in _open(world) if node.name not in taken]
    for pod, node in zip(_held(world, plan), free, strict=False):
        yield _admit((pod.uid,), node)


def admits_each_of_a_gang_elsewhere(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
    yield from plan.actions
    sources = {_source(node): node for node in _open(world)}
    held = _held(world, plan)
    if held and len(sources) >= len(held):
        for pod, node in zip(held, sources.values(), strict=False):
            yield _admit((pod.uid,), node)


def opts_everybody_in(spec: Spec, world: World) -> Plan:
    """Reads every pod as one that may use capacity by the hour."""
    pods = tuple(replace(pod, terms=replace(pod.terms, overflow=True)) for pod in world.pods)
    return decide(spec, replace(world, pods=pods))


def restarts_jobs_every_hour(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
    yield from plan.actions
    for pod in world.pods:
        ran = world.now - pod.started_at if pod.started_at is not None else timedelta(0)
        if pod.of_job and ran > timedelta(minutes=55) and pod.deleting_until is None:
            yield Recreate(pod.uid, _RECREATE)


def stops_everything_after_an_hour(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
    """Once, whatever it says about itself."""
    yield from plan.actions
    for pod in world.pods:
        if (
            pod.started_at is not None
            and not pod.daemon
            and pod.name.endswith("-0")
            and pod.deleting_until is None
        ) and world.now - pod.started_at > timedelta(hours=1):
            yield Recreate(pod.uid, _RECREATE)


def does_nothing(spec: Spec, world: World) -> Plan:
    return Plan()


def _held(world: World, plan: Plan) -> list[Pod]:
    admitted = {uid for action in plan.actions if isinstance(action, Admit) for uid in action.pods}
    return [pod for pod in world.pods if pod.gated and pod.uid not in admitted]


def _open(world: World) -> list[Node]:
    return [
        node
        for node in world.nodes
        if node.instance is not None
        and node.kube is not None
        and node.kube.opened_at is not None
        and node.kube.draining_since is None
    ]


def _source(node: Node) -> str:
    assert node.instance is not None
    return node.instance.source.label


def _ends_at(node: Node) -> datetime | None:
    assert node.instance is not None
    return _DEADLINE if node.instance.source.kind in PREPAID else None


def _admit(pods: tuple[str, ...], node: Node) -> Admit:
    assert node.instance is not None
    return Admit(pods, _source(node), _ends_at(node), _ADMIT, node.instance.pool)
