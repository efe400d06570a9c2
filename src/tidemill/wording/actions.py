"""Why the engine acts: one sentence for every kind of action reason."""

from __future__ import annotations

from typing import assert_never

from tidemill.model.reasons import (
    ActionReason,
    AdmitKind,
    AdmitReason,
    DrainKind,
    DrainReason,
    EndKind,
    EndReason,
    EvictReason,
    HandoverKind,
    HandoverReason,
    InstanceEnd,
    InstanceEndKind,
    LaunchKind,
    LaunchReason,
    RecreateKind,
    RecreateReason,
    SettleKind,
    SettleReason,
    StepKind,
    StepReason,
    TerminateKind,
    TerminateReason,
)
from tidemill.spec.units import format_duration
from tidemill.wording.templates import Sentence, fill, listed

INSTANCE_ENDS: dict[InstanceEndKind, Sentence[InstanceEnd]] = {
    InstanceEndKind.SPOT_INTERRUPTION: "spot interruption",
    InstanceEndKind.RETIREMENT: "scheduled retirement",
    InstanceEndKind.STOP: "scheduled stop",
    InstanceEndKind.GROUP_SHRUNK: "{group} was made smaller",
    InstanceEndKind.SCHEDULED_ACTION: "the scheduled action {action} takes {group} to 0",
    InstanceEndKind.EKS_SCALE_DOWN: "EKS scales its node group down",
}
DRAINS: dict[DrainKind, Sentence[DrainReason]] = {
    DrainKind.SOURCE_ENDS: lambda reason: f"{reason.name} must be empty{_by(reason)}",
    DrainKind.MONEY_ENDS: "the money for {name} nodes of pool {pool} lasts until {at}",
    DrainKind.INSTANCE_ENDS: lambda reason: (
        f"{instance_end_sentence(reason.instance_end)}: the node must be empty{_by(reason)}"
    ),
    DrainKind.NODE_CHECK_FAILED: lambda reason: f"node check failed: {reason.detail or 'no detail'}",
    DrainKind.DRIFTED_TYPE: "drifted: pool {pool} no longer allows {name}",
    DrainKind.DRIFTED_LABEL: "drifted: the node lacks the label {name} of pool {pool}",
    DrainKind.DRIFTED_TAINT: "drifted: the node lacks the taint {name} of pool {pool}",
    DrainKind.DRIFTED_NODE_CLASS: "drifted: node class {name} has changed since the node was launched",
    DrainKind.EMPTY: "empty for {idle}",
    DrainKind.UNDERUTILIZED: "its pods fit on other nodes: saves {saves_usd_h} an hour",
    DrainKind.MAKES_WAY: "the limits of pool {pool} keep nodes of {name} out, which is paid for",
}
LAUNCHES: dict[LaunchKind, Sentence[LaunchReason]] = {
    LaunchKind.PODS_WAIT: lambda reason: (
        fill("{name} and {count:other pod} wait", reason) if reason.count else f"{reason.name} waits"
    ),
    LaunchKind.BLOCK_ACTIVE: lambda reason: fill(
        "block {name} is active: {count:node} warms up" if reason.count == 1
        else "block {name} is active: {count:node} warm up", reason,
    ),
    LaunchKind.TRIED_ALONE: lambda reason: fill(
        "the last {count:node} never became Ready: one is tried before {name} and its gang get theirs", reason
    ),
    LaunchKind.ANSWER_LOST: "the answer to the first call was lost; the same ClientToken cannot launch twice",
    LaunchKind.CONSOLIDATION: lambda reason: fill(
        f"replaces {'node' if len(reason.nodes) == 1 else 'nodes'} {{nodes}}: saves {{saves_usd_h}} an hour", reason
    ),
}  # fmt: skip
SETTLEMENTS: dict[SettleKind, Sentence[SettleReason]] = {
    SettleKind.ALL_SEEN: "EC2 shows all its instances",
    SettleKind.NEVER_SEEN: "{count:instance} never appeared",
    SettleKind.GROUP_LATE: "its group launched {count} of {of} in time",
    SettleKind.TOO_OLD: "it is too old to repeat",
}
ADMISSIONS: dict[AdmitKind, Sentence[AdmitReason]] = {
    AdmitKind.NODE_FREE: "there is room and time on {name}",
    AdmitKind.NODES_FREE: "there is room and time on {count:node} of {name}",
    AdmitKind.KARPENTER_LAUNCHES: "there is time on {name}, and Karpenter launches nodes for ungated pods",
}
ENDS: dict[EndKind, Sentence[EndReason]] = {
    EndKind.SOURCE_ENDS: "its source ends: its node must be empty by {at}",
    EndKind.END_MOVED: "its end moved to {at}",
    EndKind.LAST_SAFE_MOMENT: "this is the last safe moment before {at}",
    EndKind.BUDGET_NEVER_ALLOWS: (
        "its disruption budget never allows an eviction; its pods are deleted one at a time until {at}"
    ),
}
RECREATIONS: dict[RecreateKind, Sentence[RecreateReason]] = {
    RecreateKind.GANG_LOST_PODS: "gang {name} lost {count} of its {of} pods",
    RecreateKind.NO_ROOM_LEFT: "it was admitted to {name}, which has no room for it any more",
}
HANDOVERS: dict[HandoverKind, Sentence[HandoverReason]] = {
    HandoverKind.ROLLOUT: lambda reason: (
        f"its replicas move off {listed(reason.sources)}: new ones start elsewhere before the old ones stop"
    ),
    HandoverKind.SURGE: lambda reason: (
        f"{fill('{count} more replicas', reason)} elsewhere, before those on {listed(reason.sources)} stop"
    ),
    HandoverKind.READY_ELSEWHERE: lambda reason: (
        f"{fill('{count} replicas', reason)} are Ready elsewhere: those on {listed(reason.sources)} stop"
    ),
    HandoverKind.SURGE_NOT_NEEDED: "none of its replicas has to leave any more",
    HandoverKind.PAIR_STARTS: lambda reason: (
        f"it takes over from {reason.name}, whose {listed(reason.sources)} ends"
    ),
    HandoverKind.PAIR_STARTS_NO_NODES: "it takes over from {name}, which has no nodes to run on",
    HandoverKind.PAIR_READY: "{name} has {count} replicas Ready and takes over",
}
TERMINATIONS: dict[TerminateKind, Sentence[TerminateReason]] = {
    TerminateKind.DRAINED: lambda reason: f"drained ({drain_sentence(reason.drain)})",
    TerminateKind.SOURCE_ENDS: "it has not joined and {name} must be empty by {at}",
    TerminateKind.NEVER_JOINED: "it did not join the cluster within {limit}; it is replaced",
    TerminateKind.NOT_READY: "it was not Ready within {limit}; it is replaced",
    TerminateKind.NEVER_REGISTERED: "it did not register its accelerators within {limit}; it is replaced",
    TerminateKind.NEVER_CHECKED: "it did not finish its node check within {limit}; it is replaced",
    TerminateKind.NODE_CHECK_FAILED: lambda reason: (
        f"it failed its node check: {reason.detail or 'no detail'}; it is replaced"
    ),
    TerminateKind.KUBELET_LOST: "it lost its kubelet while draining; it is replaced",
}
STEPS: dict[StepKind, Sentence[StepReason]] = {
    StepKind.NODE_CHECK_PASSED: "its node check passed",
    StepKind.NODE_REGISTERED: "its accelerators are registered, and no node check reports on it",
    StepKind.NODE_DRAINS: "its node is drained",
    StepKind.PREEMPTED: "it makes room for {name}, whose priority is higher",
    StepKind.SERVICES_LEAVE: "services leave {name}: until it ends only jobs that are done in time start here",
    StepKind.SOURCE_EXTENDED: "{name} was extended and paid for",
    StepKind.INSTANCE_GONE: "its instance {name} is gone",
}


def action_sentence(reason: ActionReason) -> str:
    match reason:
        case DrainReason():
            return drain_sentence(reason)
        case EvictReason():
            late = "; its checkpoint was not acknowledged in time" if reason.checkpoint_unanswered else ""
            if reason.preempted_by:
                return f"it makes room for {reason.preempted_by}, whose priority is higher{late}"
            return f"{drain_sentence(reason.drain)}{late}"
        case LaunchReason():
            return fill(LAUNCHES[reason.kind], reason)
        case SettleReason():
            return fill(SETTLEMENTS[reason.kind], reason)
        case AdmitReason():
            return f"{fill(ADMISSIONS[reason.kind], reason)}{_capped(reason)}"
        case EndReason():
            return fill(ENDS[reason.kind], reason)
        case RecreateReason():
            return fill(RECREATIONS[reason.kind], reason)
        case HandoverReason():
            return fill(HANDOVERS[reason.kind], reason)
        case TerminateReason():
            return fill(TERMINATIONS[reason.kind], reason)
        case StepReason():
            return fill(STEPS[reason.kind], reason)
        case _:
            assert_never(reason)


def drain_sentence(reason: DrainReason | None) -> str:
    """None: the node has the taint, but nobody noted why."""
    return fill(DRAINS[reason.kind], reason) if reason is not None else "the node is drained"


def instance_end_sentence(end: InstanceEnd | None) -> str:
    """None: AWS announced an end and nobody noted why."""
    return fill(INSTANCE_ENDS[end.kind], end) if end is not None else "AWS announced its end"


def _by(reason: DrainReason) -> str:
    return fill(" by {at}", reason) if reason.at is not None else ""


def _capped(reason: AdmitReason) -> str:
    if reason.expected is None or reason.capped_to is None:
        return ""
    expected, most = format_duration(reason.expected), format_duration(reason.capped_to)
    return f"; it expects to run {expected}, but pool {reason.pool} plans for at most {most}"
