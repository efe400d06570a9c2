"""When a node must be empty, and how early its drain starts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.model.capacity import Reservation
from tidemill.model.ec2_facts import (
    EKS_SCALES_DOWN_BEFORE_END,
    KARPENTER_DRAINS_BEFORE_END,
    TERMINATES_BEFORE_END,
    terminates_before_end,
)
from tidemill.model.pods import Pod
from tidemill.spec.compute_pool import Provisioner


@dataclass(frozen=True, slots=True)
class End:
    """When a source ends for a pool, and when draining it starts."""

    deadline: datetime | None
    drain_from: datetime | None


NO_END = End(None, None)

# A deadline that moved by less is not announced again.
END_MOVED = timedelta(minutes=2)

# How long the terminate hook of an Auto Scaling group of ours holds an instance. A group goes to 0 so long before EC2
# terminates: EC2 waits for no hook.
GROUP_HOOK_WAITS = timedelta(minutes=10)
PROVISIONER_ACTS_BEFORE_END = {
    Provisioner.NATIVE: TERMINATES_BEFORE_END,
    Provisioner.ASG: TERMINATES_BEFORE_END + GROUP_HOOK_WAITS,
    Provisioner.MANAGED: EKS_SCALES_DOWN_BEFORE_END,
    Provisioner.KARPENTER: KARPENTER_DRAINS_BEFORE_END,
}


def checkpoint_patience(pod: Pod, requested_at: datetime) -> datetime:
    """Until when a checkpoint that was asked for is waited for."""
    return requested_at + pod.terms.checkpoint_time + SIGNAL_LAG + MARGIN / 4


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
    if provisioner is Provisioner.ASG:
        killed -= GROUP_HOOK_WAITS
    return min(killed, reservation.end - PROVISIONER_ACTS_BEFORE_END[provisioner])


# An annotation reaches a pod through the downward API within about 90 s of kubelet syncs.
SIGNAL_LAG = timedelta(seconds=90)
# For the engine's own reaction and a slow API server. Errs early: minutes of idle, not a killed pod.
MARGIN = timedelta(minutes=2)
SHORTEST_LEAD = timedelta(minutes=10)
# Scheduling, image pull and readiness probes of a replacement, on top of its model load.
REPLACEMENT_START = timedelta(minutes=1)


_ALWAYS = SIGNAL_LAG + MARGIN


def pod_lead(pod: Pod, *, checkpoint: bool) -> timedelta:
    """How long before the deadline this pod is evicted: signal lag, checkpoint, grace and a margin."""
    terms = pod.terms
    if checkpoint and terms.checkpoint_every is not None:
        return terms.grace + terms.checkpoint_time + _ALWAYS
    return terms.grace + _ALWAYS


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
