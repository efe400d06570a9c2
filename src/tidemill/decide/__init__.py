"""(spec, world) -> plan: the whole decision, step by step. The first file to read.

Pure: no I/O, no clock, no randomness. The same spec and world give the same plan, wherever it is asked for:
in the controller, in `tidemill plan`, in a rehearsal, in the web preview.
"""

from __future__ import annotations

from tidemill.decide.context import DecisionContext
from tidemill.decide.disruption.preemption import preempt
from tidemill.decide.disruption.reclaim import reclaim
from tidemill.decide.drain import drain
from tidemill.decide.handover.steps import hand_over
from tidemill.decide.handover.warnings import warn_of_shortages
from tidemill.decide.launches import reconcile_launches
from tidemill.decide.memory import Memory
from tidemill.decide.nodes import manage_nodes
from tidemill.decide.pause import while_paused
from tidemill.decide.placement.place_pending import place_pending
from tidemill.decide.purchasing import manage_purchases
from tidemill.decide.unfilled_blocks import warn_of_unfilled_blocks
from tidemill.model.plan import Plan
from tidemill.model.warning_reasons import WarningKind, WarningReason
from tidemill.model.world import World
from tidemill.spec import Spec

__all__ = ["Memory", "decide"]


def decide(spec: Spec, world: World, memory: Memory | None = None) -> Plan:
    """`memory`: what the last decision remembered, to be quicker. The plan is the same without it."""
    # 0 join the world up: our nodes, their phases and deadlines
    context = DecisionContext(spec, world, memory)
    # 1 purchases: reconcile them, submit what is approved, propose what is missing
    manage_purchases(context)
    # 2 launches: settle those whose instances are seen, repeat those whose answer may be lost
    in_flight = reconcile_launches(context)
    # 3 nodes: open verified ones, replace late and failed ones, clean up
    manage_nodes(context)
    # 4 hand-over: the next step of each service that moves from a source that ends to one that lasts
    hand_over(context)
    # 5 drain: every node that ends is empty before its deadline
    drain(context)
    # 6 placement: warm blocks, admit what fits, launch for the rest, say why the others wait
    place_pending(context, in_flight)
    # 7 disruption: make room for higher priorities, give back nodes that nobody needs
    preempt(context)
    reclaim(context, in_flight)
    # 8 forecast: which services a hand-over will leave short, and what would help; paid capacity that stays empty
    warn_of_shortages(context)
    warn_of_unfilled_blocks(context, in_flight)
    for pool, who in world.refused_pools:
        context.warn(pool, WarningReason(WarningKind.POOL_REFUSED, who))
    plan = context.plan()
    # 9 pause: somebody wants only what a deadline forces
    return plan if world.pause is None else while_paused(plan, world, world.pause, spec.platform.name)
