"""Engines that are wrong on purpose, each in one way, and a cloud that lets one of them launch too much."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.sim.scenario_builder import deciding_wrongly, with_pool
from tidemill.decide import decide
from tidemill.engine.loop import Decide
from tidemill.model import reasons
from tidemill.model.capacity import Reservation, ReservationState, SourceKind
from tidemill.model.errors import NoCapacity
from tidemill.model.labels import Pairs
from tidemill.model.nodes import Instance, InstanceState
from tidemill.model.plan import (
    Action,
    Admit,
    Evict,
    ForceDelete,
    Launch,
    MarkReady,
    Plan,
    Recreate,
    RemoveNode,
    ScaleWorkload,
    StartDrain,
    Terminate,
)
from tidemill.model.pods import Pod
from tidemill.model.purchases import LaunchIntent
from tidemill.model.world import World
from tidemill.sim.cloud.cloud import SimCloud
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import Limits


class LeakyCloud(SimCloud):
    """Launches on a full block too, as EC2 never would."""

    def launch(
        self, intent: LaunchIntent, tags: Pairs, minimum: int = 1, *, fills_open: bool = False
    ) -> tuple[str, ...]:
        try:
            return super().launch(intent, tags, minimum, fills_open=fills_open)
        except NoCapacity:
            tag = dict(tags)
            leaked = Instance(
                f"i-leaked-{intent.id}", intent.instance_type, intent.zone, intent.source,
                InstanceState.PENDING, self._timeline.now(), tag[names.TAG_OWNER], intent.pool, intent.id,
                intent.provisioner,
            )  # fmt: skip
            self._instances.start(leaked, 0.0)
            return (leaked.id,)


_RECREATE = reasons.RecreateReason(reasons.RecreateKind.NO_ROOM_LEFT, "cr-1")


def launches_on_a_full_block(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
    yield from plan.actions
    for reservation in world.reservations:
        if (
            reservation.state is ReservationState.ACTIVE
            and reservation.available == 0
            and reservation.kind is SourceKind.BLOCK
        ):
            intent = LaunchIntent(
                "ti-one-more",
                "train",
                reservation.source,
                reservation.instance_type,
                reservation.zone,
                1,
                "native",
                world.now,
            )
            yield Launch(intent, reasons.LaunchReason(reasons.LaunchKind.BLOCK_ACTIVE, reservation.id, 1))


def without_limits(spec: Spec) -> Spec:
    return with_pool(spec, limits=Limits(nodes=99))


def without_caps(spec: Spec) -> Spec:
    sources = [
        source.model_copy(update={"max_hourly_usd": 900.0}) for source in spec.pools["train"].spec.sources
    ]
    return with_pool(spec, sources=tuple(sources))


def approving_itself(spec: Spec) -> Spec:
    approval = spec.platform.spec.approval.model_copy(update={"mode": "auto", "auto_max_fee_usd": 10**6})
    return _with_platform(spec, approval=approval)


def rich(spec: Spec) -> Spec:
    budget = spec.platform.spec.budget.model_copy(update={"per_purchase_usd": 10**6, "monthly_usd": 10**6})
    return _with_platform(spec, budget=budget)


def _with_platform(spec: Spec, **changes: Any) -> Spec:
    inner = spec.platform.spec.model_copy(update=changes)
    return replace(spec, platform=spec.platform.model_copy(update={"spec": inner}))


class RetryingCloud(SimCloud):
    """An SDK with its retries left on: the answer was slow, so the call is made again."""

    def purchase(self, offer_id: str, tags: Pairs) -> tuple[Reservation, ...]:
        super().purchase(offer_id, tags)
        return super().purchase(offer_id, tags)


def ten_minutes_late(spec: Spec, world: World) -> Plan:
    late = tuple(
        replace(reservation, end=reservation.end + timedelta(minutes=10)) if reservation.end else reservation
        for reservation in world.reservations
    )
    return decide(spec, replace(world, reservations=late))


def kills_at_once(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
    yield from plan.actions
    yield from (
        ForceDelete(pod.uid, 0, reasons.EndReason(reasons.EndKind.LAST_SAFE_MOMENT, world.now))
        for pod in _working(world)
    )


def ends_nodes_under_pods(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
    yield from plan.actions
    lost = reasons.TerminateReason(reasons.TerminateKind.KUBELET_LOST)
    yield from (Terminate(pod.node.partition(".")[0], lost) for pod in _working(world))


def removes_nodes_under_pods(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
    yield from plan.actions
    yield from (
        RemoveNode(pod.node, reasons.StepReason(reasons.StepKind.INSTANCE_GONE)) for pod in _working(world)
    )


def _working(world: World) -> list[Pod]:
    return [pod for pod in world.pods if pod.started_at is not None and not pod.daemon]


def in_any_order() -> Decide:
    calls = 0

    def change(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
        nonlocal calls
        calls += 1
        return reversed(plan.actions) if calls % 2 else plan.actions

    return deciding_wrongly(change)


def admits_the_first_of_a_gang(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
    for action in plan.actions:
        if isinstance(action, Admit):
            yield replace(action, pods=tuple(uid for uid in action.pods if "-0-" in uid))
        elif not isinstance(action, Recreate):
            yield action


def ignores_budgets(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
    yield from (action for action in plan.actions if not isinstance(action, Evict))
    draining = {node.kube.name for node in world.nodes if node.kube and node.kube.draining_since}
    for pod in _working(world):
        if pod.node in draining and pod.deleting_until is None:
            yield Recreate(pod.uid, _RECREATE)


def breaks_before_it_makes(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
    """Skips "B Ready first": the set goes when its pair is merely on its way."""
    yield from plan.actions
    sets = {workload.name: workload for workload in world.workloads}
    for workload in world.workloads:
        pair = sets.get(workload.pair)
        if pair is not None and workload.ready and pair.replicas >= workload.replicas > pair.ready:
            yield ScaleWorkload(
                workload.name, 0, 0, (), reasons.HandoverReason(reasons.HandoverKind.PAIR_READY, pair.name)
            )


def lets_go_when_more_are_asked_for(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
    """Likewise: those on A go when those on B are merely asked for."""
    yield from plan.actions
    adding = {workload.name for workload in world.workloads if workload.added}
    draining = {node.kube.name for node in world.nodes if node.kube and node.kube.draining_since}
    for pod in _working(world):
        if pod.workload in adding and pod.node in draining and pod.deleting_until is None:
            yield Recreate(pod.uid, _RECREATE)


def opens_nodes_for_ever(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
    yield from plan.actions
    passed = reasons.StepReason(reasons.StepKind.NODE_CHECK_PASSED)
    yield from (MarkReady(node.kube.name, passed) for node in world.nodes if node.kube)


def restarts_jobs_for_ever(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
    yield from plan.actions
    yield from (Recreate(pod.uid, _RECREATE) for pod in _working(world) if pod.deleting_until is None)


def gives_back_what_it_warms(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
    yield from plan.actions
    used = {pod.node for pod in _working(world)}
    for node in world.nodes:
        kube = node.kube
        if kube is not None and kube.check == "passed" and kube.name not in used and not kube.draining_since:
            yield StartDrain(kube.name, reasons.DrainReason(reasons.DrainKind.EMPTY, idle=timedelta(0)))


def gives_back_now_and_then(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
    """The same, but a node stays for three quarters of an hour: a few in an hour, many in a day."""
    for action in gives_back_what_it_warms(spec, world, plan):
        if not isinstance(action, StartDrain) or _up_for(world, action.node) > timedelta(minutes=45):
            yield action


def _up_for(world: World, name: str) -> timedelta:
    node = next(node for node in world.nodes if node.name == name)
    return world.now - node.kube.joined_at if node.kube is not None else timedelta(0)


def launches_and_regrets(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
    """Ends what it launched before it has joined."""
    yield from plan.actions
    for node in world.nodes:
        if node.instance is not None and node.instance.state is InstanceState.RUNNING and node.kube is None:
            yield Terminate(node.instance.id, reasons.TerminateReason(reasons.TerminateKind.KUBELET_LOST))


def ends_strangers(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
    yield from plan.actions
    for node in world.nodes:
        if node.instance is not None and not node.instance.owner:
            yield Terminate(node.instance.id, reasons.TerminateReason(reasons.TerminateKind.KUBELET_LOST))


def takes_what_it_sees(spec: Spec, world: World) -> Plan:
    owned = tuple(replace(reservation, owner="mill") for reservation in world.reservations)
    return decide(spec, replace(world, reservations=owned))
