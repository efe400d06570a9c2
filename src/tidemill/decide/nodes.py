"""A node's life as a table, and how early it must be drained.

A node is never asked which phase it is in: the phase is read off the facts, so that a restarted engine sees
what the old one saw. Each phase has a limit; a node that misses one is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from tidemill.model.capacity import Reservation
from tidemill.model.ec2_facts import (
    EKS_SCALES_DOWN_BEFORE_END,
    KARPENTER_DRAINS_BEFORE_END,
    TERMINATES_BEFORE_END,
    terminates_before_end,
)
from tidemill.model.nodes import InstanceState, Node
from tidemill.model.plan import MarkReady, RemoveNode, StartDrain, Terminate
from tidemill.model.pods import Pod
from tidemill.spec import names
from tidemill.spec.compute_pool import Provisioner
from tidemill.spec.units import format_duration

if TYPE_CHECKING:
    from tidemill.decide.context import DecisionContext, NodeView


class Phase(StrEnum):
    REQUESTED = "requested"  # an intent is written; no instance seen yet
    LAUNCHED = "launched"
    JOINED = "joined"
    REGISTERING = "registering"
    VERIFYING = "verifying"
    READY = "ready"
    DRAINING = "draining"
    GONE = "gone"


# How long a launch call may take to show an instance before its intent no longer counts as in flight.
REQUESTED_LIMIT = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class PhaseRule:
    """A phase holds from `since` and should be over within `limit`; `late` says what went wrong if not."""

    since: Callable[[Node], datetime]
    limit: timedelta
    late: str


def _launched_at(node: Node) -> datetime:
    assert node.instance is not None
    return node.instance.launched_at


def _not_ready_since(node: Node) -> datetime:
    assert node.kube is not None
    return node.kube.ready_changed_at or node.kube.joined_at


def _joined_at(node: Node) -> datetime:
    assert node.kube is not None
    return node.kube.joined_at


def _registered_at(node: Node) -> datetime:
    assert node.kube is not None
    return node.kube.accelerators_registered_at or node.kube.joined_at


# Nodes join in 3-5 minutes and GPUs register 60-90 s later; the limits are three to six times that, because
# replacing a node that was merely slow costs another five minutes.
LIFE: dict[Phase, PhaseRule] = {
    Phase.LAUNCHED: PhaseRule(_launched_at, timedelta(minutes=15), "never joined the cluster"),
    Phase.JOINED: PhaseRule(_not_ready_since, timedelta(minutes=5), "is not Ready"),
    Phase.REGISTERING: PhaseRule(_joined_at, timedelta(minutes=10), "never registered its accelerators"),
    Phase.VERIFYING: PhaseRule(_registered_at, timedelta(minutes=10), "never finished its node check"),
}


def phase_of(node: Node) -> Phase:
    instance, kube = node.instance, node.kube
    if instance is None or instance.state in (InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED):
        return Phase.GONE
    if kube is None:
        return Phase.LAUNCHED
    if kube.draining_since is not None:
        return Phase.DRAINING
    if not kube.ready:
        return Phase.JOINED
    if kube.accelerators_registered_at is None:
        return Phase.REGISTERING
    # The taint, and not the check, decides: a check that fails later does not make a node young again.
    if any(taint.key == names.TAINT_STARTUP for taint in kube.taints):
        return Phase.VERIFYING
    return Phase.READY


# --- the end ------------------------------------------------------------------------------------------

PROVISIONER_ACTS_BEFORE_END = {
    Provisioner.NATIVE: TERMINATES_BEFORE_END,
    Provisioner.ASG: TERMINATES_BEFORE_END,
    Provisioner.MANAGED: EKS_SCALES_DOWN_BEFORE_END,
    Provisioner.KARPENTER: KARPENTER_DRAINS_BEFORE_END,
}


def kill_at(reservation: Reservation) -> datetime | None:
    """When EC2 starts terminating. Only blocks are terminated at their end; `end` is the paid one."""
    if reservation.end is None:
        return None
    return reservation.end - terminates_before_end(ultraserver=reservation.ultraserver)


def deadline_of(reservation: Reservation, provisioner: Provisioner) -> datetime | None:
    """By when the drain is complete: EC2's kill time, or earlier where the provisioner acts earlier."""
    killed = kill_at(reservation)
    if killed is None or reservation.end is None:
        return None
    return min(killed, reservation.end - PROVISIONER_ACTS_BEFORE_END[provisioner])


# An annotation reaches a pod through the downward API within about a minute and a half of kubelet syncs.
SIGNAL_LAG = timedelta(seconds=90)
# For the engine's own reaction and a slow API server. Errs early: minutes of idle, not a killed pod.
MARGIN = timedelta(minutes=2)
SHORTEST_LEAD = timedelta(minutes=10)
# Scheduling, image pull and readiness probes of a replacement, on top of its model load.
REPLACEMENT_START = timedelta(minutes=1)


def pod_lead(pod: Pod, *, checkpoint: bool) -> timedelta:
    """How long before the deadline this pod's turn comes: signal, checkpoint, grace, and a margin."""
    saving = (
        pod.terms.checkpoint_time if checkpoint and pod.terms.checkpoint_every is not None else timedelta(0)
    )
    return pod.terms.grace + saving + SIGNAL_LAG + MARGIN


def waves_lead(longest: timedelta, pods: Iterable[Pod], disruptions_at_once: dict[str, int]) -> timedelta:
    """How early a source must start to drain: the longest need of its pods, or of its services if they need more.

    `disruptions_at_once` gives, for workloads under a disruption budget, how many replicas may be away at one
    time: such a workload moves in waves, and each wave waits for replacements to become ready.
    """
    longest = max(SHORTEST_LEAD, longest)
    members: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.workload in disruptions_at_once:
            members.setdefault(pod.workload, []).append(pod)
    for workload, group in members.items():
        waves = -(-len(group) // disruptions_at_once[workload])
        wave = max(pod.terms.grace + pod.terms.load for pod in group) + REPLACEMENT_START
        longest = max(longest, waves * wave + MARGIN)
    return longest


# --- following each node ------------------------------------------------------------------------------


def manage_nodes(context: DecisionContext) -> None:
    """Let checked nodes work, replace those that miss a limit or fail, clean up after those that are gone."""
    for view in context.gone:
        _clean_up(context, view)
    for view in context.views:
        if view.phase is Phase.READY or view.phase is Phase.DRAINING:
            kube = view.node.kube
            if kube is not None and (not kube.ready or kube.check == "failed"):
                _follow_health(context, view)
        else:
            _follow_start(context, view)


def _follow_start(context: DecisionContext, view: NodeView) -> None:
    node, kube = view.node, view.node.kube
    if view.phase is Phase.VERIFYING and kube is not None and kube.check:
        if kube.check == "passed":
            context.do(MarkReady(kube.name, "its node check passed"))
        else:
            _give_up(context, view, f"failed its node check: {kube.check_message or 'no detail'}")
        return
    rule = LIFE[view.phase]
    due = rule.since(node) + rule.limit
    if context.now >= due:
        _give_up(context, view, f"{rule.late} within {format_duration(rule.limit)}")
    else:
        context.wake(due)


def _give_up(context: DecisionContext, view: NodeView, why: str) -> None:
    """No work of ours runs on a node that never became ready (or that lost its kubelet), so it ends at once.

    That is terminate-first, which a full block needs anyway; whatever wanted the node asks for another.
    """
    view.ending = True
    context.do(Terminate(view.node.key, f"{view.node.name} {why}; it is replaced"))


def _follow_health(context: DecisionContext, view: NodeView) -> None:
    kube = view.node.kube
    assert kube is not None
    if not kube.ready and view.phase is Phase.DRAINING:
        # A draining node whose kubelet is lost can give nobody a grace any more.
        due = _not_ready_since(view.node) + LIFE[Phase.JOINED].limit
        if context.now >= due:
            _give_up(context, view, "lost its kubelet while draining")
        else:
            context.wake(due)
    elif kube.check == "failed" and view.phase is Phase.READY:
        view.ending = True
        context.do(StartDrain(kube.name, f"{NODE_FAILED}: {kube.check_message or 'no detail'}"))


def _clean_up(context: DecisionContext, view: NodeView) -> None:
    instance, kube = view.node.instance, view.node.kube
    if instance is not None and instance.state is InstanceState.TERMINATED and kube is not None:
        context.do(RemoveNode(kube.name, f"its instance {instance.id} is gone"))


NODE_FAILED = "node check failed"
