"""How Karpenter places work on a Capacity Block, as another way to compose the same decision. For benchmarks alone.

It knows no end while it places: a pod goes to the first node it fits on, whatever time is left there. Forty minutes
before the end of a block it deletes the block's nodes, and every pod on them is evicted at once, with its grace but
without being asked for a checkpoint. Kinder than the truth in two ways: pods are still placed by our solver, and
each gets its whole grace.
"""

from __future__ import annotations

from dataclasses import replace

from tidemill.decide import decide
from tidemill.model.capacity import Reservation, SourceKind
from tidemill.model.ec2_facts import KARPENTER_DRAINS_BEFORE_END
from tidemill.model.plan import Action, Evict, Plan, RequestCheckpoint
from tidemill.model.reasons import EvictReason
from tidemill.model.world import World
from tidemill.spec import Spec


def karpenter(spec: Spec, world: World) -> Plan:
    """`decide` in a world whose blocks have no end until forty minutes before it."""
    plan = decide(spec, replace(world, reservations=tuple(_hidden(one, world) for one in world.reservations)))
    acts = [
        one.end - KARPENTER_DRAINS_BEFORE_END
        for one in world.reservations
        if one.kind is SourceKind.BLOCK and one.end is not None
    ]
    wake_at = min((at for at in (*acts, plan.wake_at) if at is not None and at > world.now), default=None)
    return replace(plan, actions=tuple(_evicting(world, plan)), wake_at=wake_at)


def _hidden(one: Reservation, world: World) -> Reservation:
    known = (
        one.kind is not SourceKind.BLOCK
        or one.end is None
        or world.now >= one.end - KARPENTER_DRAINS_BEFORE_END
    )
    return one if known else replace(one, end=None)


def _evicting(world: World, plan: Plan) -> list[Action]:
    """Nodes that go are emptied at once: nobody is asked for a checkpoint or left to finish."""
    actions: list[Action] = [one for one in plan.actions if not isinstance(one, RequestCheckpoint)]
    asked = {one.pod for one in actions if isinstance(one, Evict)}
    for node in world.nodes:
        if node.kube is None or node.kube.draining_since is None:
            continue
        staying = [pod for pod in world.pods_by_node.get(node.kube.name, ()) if pod.deleting_until is None]
        actions += [
            Evict(pod.uid, EvictReason(node.kube.drain_reason))
            for pod in staying
            if not pod.daemon and pod.uid not in asked
        ]
    return actions
