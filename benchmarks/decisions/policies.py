"""Two policies to compare with, in place of the engine's placement: what a script does, and what Karpenter does.

Both use the engine's own book-keeping (purchases, launches in flight, opening nodes, draining), so that what differs
is the decision alone: who starts where and when, what is launched, and what is given back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.drain import drain
from tidemill.decide.launches import InFlight, reconcile_launches
from tidemill.decide.memory import Memory
from tidemill.decide.nodes import manage_nodes
from tidemill.decide.phases import Phase
from tidemill.decide.placement.launch_options import LaunchOption, find_launch_options, plan_launch
from tidemill.decide.pool_templates import PoolTemplate
from tidemill.decide.purchasing import manage_purchases
from tidemill.decide.scheduler_rules import admits
from tidemill.model.capacity import PREPAID, Source
from tidemill.model.plan import Admit, Plan, StartDrain
from tidemill.model.pods import Pod, PodPhase
from tidemill.model.reasons import AdmitKind, AdmitReason, DrainKind, DrainReason, LaunchKind, LaunchReason
from tidemill.model.resources import Resources
from tidemill.model.world import World
from tidemill.spec import Spec
from tidemill.spec.compute_pool import Allowance

# Karpenter begins to drain a node of a Capacity Block ten minutes before EC2 ends it.
KARPENTER_LEAD = timedelta(minutes=10)
KARPENTER_IDLE = timedelta(seconds=30)
SCRIPT_LEAD = timedelta(hours=1)
SCRIPT_IDLE = timedelta(minutes=10)


@dataclass(slots=True)
class _Host:
    """A node, up or on its way or asked for by this plan, and what is left of it for pods that wait."""

    template: PoolTemplate
    source: Source
    labels: Mapping[str, str]
    free: Resources
    up: bool = False

    def takes(self, pod: Pod) -> bool:
        return (
            self.template.accepts(self.source.kind, pod.namespace, overflow=pod.terms.overflow)
            and admits(pod.shape, self.labels, self.template.taints)
            and self.free.fits(pod.shape.requests)
        )


@dataclass(slots=True)
class _Fleet:
    """All hosts, and what may still be launched beside them: prepaid first, then the cheapest."""

    context: DecisionContext
    hosts: list[_Host]
    options: list[LaunchOption]
    asked: list[LaunchOption] = field(default_factory=list)

    def launch(self, option: LaunchOption) -> _Host | None:
        """One more node, within limits, stocks and caps."""
        cap = option.hourly_cap
        if option.left < 1 or option.rests(self.context.now) or not option.allowance.allows(option.kind):
            return None
        if cap is not None and cap.hourly_left_usd < cap.added_usd_h + option.usd_h:
            return None
        option.open()
        if option not in self.asked:
            self.asked.append(option)
        host = _Host(option.template, option.source, option.labels, Resources(option.free))
        self.hosts.append(host)
        return host

    def place(self, pod: Pod) -> _Host | None:
        host = next((one for one in self.hosts if one.takes(pod)), None)
        for option in () if host is not None else self.options:
            tried = _Host(option.template, option.source, option.labels, Resources(option.free))
            if tried.takes(pod) and (host := self.launch(option)) is not None:
                break
        if host is not None:
            host.free.subtract_pod(pod.shape.requests)
        return host

    def carry_out(self) -> None:
        for option in self.asked:
            plan_launch(self.context, option, option.opened, LaunchReason(LaunchKind.PODS_WAIT, "a pod"))


def karpenter(spec: Spec, world: World, memory: Memory | None = None) -> Plan:
    """Every pod is free to be scheduled at once. For pods that fit on no node, up or on its way, nodes are launched:
    reserved ones first, then the cheapest. Durations, gangs and ends of blocks are not looked at. Empty nodes go."""
    context = DecisionContext(spec, world)
    fleet = _fleet(context, KARPENTER_LEAD)
    for pod in _waiting(world):
        if pod.gated:
            context.do(Admit((pod.uid,), "", None, AdmitReason(AdmitKind.NODE_FREE, "")))
        fleet.place(pod)
    fleet.carry_out()
    _drop_empty(context, KARPENTER_IDLE, prepaid=True)
    return context.plan()


def script(spec: Spec, world: World, memory: Memory | None = None) -> Plan:
    """Nodes of a block are up from its first minute to an hour before its end. Jobs start in the order they came once
    all their pods fit on nodes that are up, small ones past large ones. What fits nowhere gets hourly nodes."""
    context = DecisionContext(spec, world)
    fleet = _fleet(context, SCRIPT_LEAD)
    for option in fleet.options:
        while option.source.kind in PREPAID and fleet.launch(option) is not None:
            pass
    for pods in _by_job(_waiting(world)):
        together = _whole(fleet, pods)
        if together is None:
            for pod in pods if pods[0].terms.overflow else ():
                fleet.place(pod)
        elif pods[0].gated:
            where = together[0]
            uids, why = tuple(pod.uid for pod in pods), AdmitReason(AdmitKind.NODE_FREE, "")
            context.do(Admit(uids, where.source.label, None, why, where.template.pool.name))
    fleet.carry_out()
    _drop_empty(context, SCRIPT_IDLE, prepaid=False)
    return context.plan()


def _whole(fleet: _Fleet, pods: list[Pod]) -> list[_Host] | None:
    """Nodes of one source that are up and take all pods of a job now; their room is taken."""
    for source in dict.fromkeys(host.source for host in fleet.hosts if host.up):
        hosts = [host for host in fleet.hosts if host.up and host.source == source]
        chosen: list[_Host] = []
        for pod in pods:
            host = next((one for one in hosts if one.takes(pod)), None)
            if host is None:
                break
            host.free.subtract_pod(pod.shape.requests)
            chosen.append(host)
        if len(chosen) == len(pods):
            return chosen
        for host, pod in zip(chosen, pods, strict=False):
            host.free.add_pod(pod.shape.requests)
    return None


def _fleet(context: DecisionContext, lead: timedelta) -> _Fleet:
    """After the book-keeping: everything drains this long before its end."""
    manage_purchases(context)
    in_flight = reconcile_launches(context)
    manage_nodes(context)
    for view in context.views:
        if view.deadline is not None:
            view.drain_from = view.deadline - lead
            context.wake(view.drain_from)
    drain(context)
    return _Fleet(context, list(_hosts(context, in_flight)), _options(context, in_flight))


def _waiting(world: World) -> list[Pod]:
    pending = (
        pod
        for pod in world.pods
        if pod.phase is PodPhase.PENDING and not pod.node and not pod.daemon and not pod.held_by_others
    )
    return sorted(pending, key=lambda pod: (pod.created_at, pod.name))


def _by_job(pods: Iterable[Pod]) -> list[list[Pod]]:
    """Pods that start together."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        found.setdefault(pod.gang.name if pod.gang is not None else pod.uid, []).append(pod)
    return [many for many in found.values() if many[0].gang is None or len(many) == many[0].gang.size]


def _hosts(context: DecisionContext, in_flight: InFlight) -> Iterator[_Host]:
    for view in context.views:
        facts = view.facts
        if facts.template is None or facts.kind is None or view.ending or facts.cordoned:
            continue
        if view.phase is Phase.READY:
            yield _Host(facts.template, facts.source, facts.labels, Resources(facts.free), up=True)
        elif view.phase is not Phase.DRAINING and view.node.instance is not None:
            labels = facts.template.labels(facts.source, facts.kind, view.node.instance.zone)
            yield _Host(facts.template, facts.source, labels, Resources(facts.kind.allocatable))
    for intent, count in in_flight.unseen:
        template = context.templates.get(intent.pool)
        if template is not None:
            kind = context.spec.catalog.types[intent.instance_type]
            labels = template.labels(intent.source, kind, intent.zone)
            for _ in range(count):
                yield _Host(template, intent.source, labels, Resources(kind.allocatable))


def _options(context: DecisionContext, in_flight: InFlight) -> list[LaunchOption]:
    allowances = {name: Allowance.of(one.pool.spec.limits) for name, one in context.templates.items()}
    types = context.spec.catalog.types
    for (pool, kind), count in context.table.counts.items():
        allowances[pool].take(types[kind], count)
    for intent, count in in_flight.unseen:
        if intent.pool in allowances:
            allowances[intent.pool].take(types[intent.instance_type], count)
    no_daemons: dict[str, dict[str, int]] = {name: {} for name in context.templates}
    found = find_launch_options(context, in_flight, allowances, no_daemons)
    return sorted(found, key=lambda one: (one.source.kind not in PREPAID, one.usd_h, one.zone, one.kind.name))


def _drop_empty(context: DecisionContext, after: timedelta, *, prepaid: bool) -> None:
    for view in context.views:
        kube = view.node.kube
        if view.phase is not Phase.READY or view.pods or view.ending or kube is None:
            continue
        if view.source.kind in PREPAID and not prepaid:
            continue
        since = max(filter(None, (kube.last_pod_event_at, kube.opened_at, kube.joined_at)))
        if context.now >= since + after:
            context.do(StartDrain(view.node.name, DrainReason(DrainKind.EMPTY, idle=context.now - since)))
        else:
            context.wake(since + after)
