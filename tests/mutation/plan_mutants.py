"""Mutants of plans: every kind of action dropped, doubled, delayed by an hour, or done to something else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, get_args

from tests.sim.scenario_builder import deciding_wrongly
from tidemill.engine.loop import Decide
from tidemill.model.offers import OfferQuery
from tidemill.model.plan import Action, Plan
from tidemill.model.world import World
from tidemill.spec import Spec

KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Action)}
OPERATIONS = ("dropped", "doubled", "an hour late", "elsewhere")
LATE = timedelta(hours=1)


@dataclass(frozen=True)
class PlanMutant:
    kind: str
    operation: str

    def __str__(self) -> str:
        return f"{self.kind} {self.operation}"

    def decide(self) -> Decide:
        """A new one for every run: what is late remembers since when it was asked for."""
        kind = KINDS[self.kind]
        return deciding_wrongly(_CHANGES[self.operation](kind))


Change = Callable[[Spec, World, Plan], Iterable[Action]]


def all_mutants() -> list[PlanMutant]:
    return [PlanMutant(kind, operation) for kind in KINDS for operation in OPERATIONS]


def _dropped(kind: type[Any]) -> Change:
    return lambda spec, world, plan: [action for action in plan.actions if not isinstance(action, kind)]


def _doubled(kind: type[Any]) -> Change:
    """The second under an id of its own, where an id would make it the same."""

    def change(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
        for action in plan.actions:
            yield action
            if isinstance(action, kind):
                yield _again(action)

    return change


def _again(action: Any) -> Any:
    name = type(action).__name__
    if name in ("Launch", "ProposePurchase"):
        return replace(action, intent=replace(action.intent, id=f"{action.intent.id}-again"))
    if name == "ScaleWorkload":
        return replace(action, replicas=2 * action.replicas)
    return action


def _late(kind: type[Any]) -> Change:
    """Only what was asked for an hour ago, and is still."""
    since: dict[str, datetime] = {}

    def change(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
        for action in plan.actions:
            if (
                not isinstance(action, kind)
                or world.now - since.setdefault(_about(action), world.now) >= LATE
            ):
                yield action

    return change


def _about(action: Any) -> str:
    """What it is done to, the same from plan to plan. The id of a launch is not."""
    if hasattr(action, "intent"):
        intent = action.intent
        return f"{intent.pool} {getattr(intent, 'window', '')} {getattr(intent, 'source', '')}"
    for name in ("pod", "pods", "node", "instance_id", "workload", "intent_id"):
        if hasattr(action, name):
            return str(getattr(action, name))
    return str(type(action))


def _elsewhere(kind: type[Any]) -> Change:
    def change(spec: Spec, world: World, plan: Plan) -> Iterable[Action]:
        for action in plan.actions:
            yield _moved(spec, world, action) if isinstance(action, kind) else action

    return change


def _moved(spec: Spec, world: World, action: Any) -> Any:
    """The same, done to another pod, node, source, zone or number."""
    if hasattr(action, "pod"):
        others = [pod.uid for pod in world.pods if pod.node and not pod.daemon and pod.uid != action.pod]
        moved = replace(action, pod=others[0]) if others else action
    elif hasattr(action, "node"):
        nodes = [node.kube.name for node in world.nodes if node.kube is not None]
        moved = replace(action, node=next((name for name in nodes if name != action.node), action.node))
    elif hasattr(action, "instance_id"):
        ids = [node.instance.id for node in world.nodes if node.instance is not None]
        other = next((one for one in ids if one != action.instance_id), action.instance_id)
        moved = replace(action, instance_id=other)
    elif hasattr(action, "pods"):
        labels = [one.source.label for one in world.reservations] + ["on-demand"]
        moved = replace(action, source_label=next(one for one in labels if one != action.source_label))
    elif hasattr(action, "workload"):
        moved = _other_workload(action)
    else:
        moved = _other_money(spec, world, action)
    return moved


def _other_workload(action: Any) -> Any:
    if hasattr(action, "replicas"):
        return replace(action, replicas=max(0, action.replicas - 1))
    return replace(action, token=f"{action.token}-other")


def _other_money(spec: Spec, world: World, action: Any) -> Any:
    name = type(action).__name__
    if name == "Launch":
        zones = sorted(spec.platform.spec.subnets)
        other = next((zone for zone in zones if zone != action.intent.zone), action.intent.zone)
        return replace(action, intent=replace(action.intent, zone=other))
    if name == "SettleLaunch":
        return replace(action, failure="no-capacity")
    if name == "SettlePurchase":
        return replace(action, outcome="failed", reservation_ids=(), fee_usd=0)
    if name == "ProposePurchase":
        wider = replace(action.intent.envelope, count=action.intent.envelope.count + 1)
        return replace(action, intent=replace(action.intent, envelope=wider))
    if name == "SubmitPurchase":
        wider = replace(action.intent.envelope, zones=(), max_fee_usd=10**6)
        return replace(action, intent=replace(action.intent, envelope=wider))
    query = action.query
    if isinstance(query, OfferQuery):
        return replace(action, query=replace(query, count=query.count + 1))
    return replace(action, query=replace(query, duration=query.duration + timedelta(days=1)))


_CHANGES: dict[str, Callable[[type[Any]], Change]] = {
    "dropped": _dropped,
    "doubled": _doubled,
    "an hour late": _late,
    "elsewhere": _elsewhere,
}
