"""A node's life as a table: the phases, and how long each may take.

A node is never asked which phase it is in: the phase is read off the facts, so that a restarted engine sees what the
old one saw. Each phase has a limit; `nodes` replaces a node that misses one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from tidemill.model.nodes import INSTANCE_ENDED_STATES, Node
from tidemill.model.reasons import TerminateKind
from tidemill.spec import names


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
    """A phase holds from `since` and should be over within `limit`; `late` is what went wrong if it is not."""

    since: Callable[[Node], datetime]
    limit: timedelta
    late: TerminateKind


def _launched_at(node: Node) -> datetime:
    assert node.instance is not None
    return node.instance.launched_at


def not_ready_since(node: Node) -> datetime:
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
PHASE_RULES: dict[Phase, PhaseRule] = {
    Phase.LAUNCHED: PhaseRule(_launched_at, timedelta(minutes=15), TerminateKind.NEVER_JOINED),
    Phase.JOINED: PhaseRule(not_ready_since, timedelta(minutes=5), TerminateKind.NOT_READY),
    Phase.REGISTERING: PhaseRule(_joined_at, timedelta(minutes=10), TerminateKind.NEVER_REGISTERED),
    Phase.VERIFYING: PhaseRule(_registered_at, timedelta(minutes=10), TerminateKind.NEVER_CHECKED),
}


def phase_of(node: Node) -> Phase:
    instance, kube = node.instance, node.kube
    if instance is None or instance.state in INSTANCE_ENDED_STATES:
        return Phase.GONE
    if kube is None:
        return Phase.LAUNCHED
    if kube.draining_since is not None:
        return Phase.DRAINING
    if not kube.ready:
        return Phase.JOINED
    if kube.accelerators_registered_at is None:
        return Phase.REGISTERING
    # The taint decides, not the check: a check that fails later does not put a node back into an earlier phase.
    if any(taint.key == names.TAINT_STARTUP for taint in kube.taints):
        return Phase.VERIFYING
    return Phase.READY
