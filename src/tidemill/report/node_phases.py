"""Where each node of ours is in its life, in the words people are shown: what `kubectl describe node` says of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidemill.decide.read_models import DecisionContext, NodeView, Phase
from tidemill.model.capacity import PREPAID
from tidemill.model.world import World
from tidemill.spec import Spec
from tidemill.wording import sentence

_STARTS = {
    Phase.JOINED: "it is not Ready yet",
    Phase.REGISTERING: "its accelerators are not registered yet",
    Phase.VERIFYING: "its node check is not done yet",
}


@dataclass(frozen=True, slots=True)
class NodePhase:
    """`why`: what it waits for, or why it is drained; empty: it takes pods."""

    node: str  # name of the Kubernetes node
    phase: str
    pool: str
    source: str  # its label
    takes_pods: bool
    why: str
    # When it must be empty. Not of nodes that go when money runs out: that instant moves all the time.
    deadline: datetime | None


def node_phases(spec: Spec, world: World) -> tuple[NodePhase, ...]:
    """Of every node of ours that has joined, by name."""
    context = DecisionContext(spec, world)
    rows = (_row(view) for view in context.views if view.node.kube is not None)
    return tuple(sorted(rows, key=lambda row: row.node))


def _row(view: NodeView) -> NodePhase:
    kube = view.node.kube
    assert kube is not None
    why = _STARTS.get(view.phase, "")
    if view.phase is Phase.DRAINING:
        why = sentence(kube.drain_reason) if kube.drain_reason is not None else "it is drained"
    elif view.phase is Phase.READY and not kube.ready:
        why = "its kubelet does not answer"
    fixed = view.source.kind in PREPAID or (view.node.instance is not None and view.node.instance.ends_at)
    return NodePhase(
        kube.name,
        view.phase.value,
        view.facts.pool_name,
        view.source.label,
        view.phase is Phase.READY and kube.ready,
        why,
        view.deadline if fixed else None,
    )
