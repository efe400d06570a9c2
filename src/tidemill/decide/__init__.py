"""(spec, world) -> plan: the whole decision, step by step. The first file to read.

Pure: no I/O, no clock, no randomness. The same spec and world give the same plan, wherever it is asked for:
in the controller, in `tidemill plan`, in a rehearsal, in the web preview.
"""

from __future__ import annotations

from tidemill.decide.context import DecisionContext
from tidemill.decide.disruption.reclaim import reclaim
from tidemill.decide.drain import drain
from tidemill.decide.handover.steps import hand_over
from tidemill.decide.handover.warnings import warn_of_shortages
from tidemill.decide.launches import reconcile_launches
from tidemill.decide.nodes import manage_nodes
from tidemill.decide.placement.place_pending import place_pending
from tidemill.decide.purchasing import manage_purchases
from tidemill.model.plan import Plan
from tidemill.model.world import World
from tidemill.spec import Spec

__all__ = ["decide"]


def decide(spec: Spec, world: World) -> Plan:
    context = DecisionContext(spec, world)  # our nodes, their phases and deadlines
    manage_purchases(context)  # 1 money: reconcile, submit what is approved, propose what is missing
    in_flight = reconcile_launches(context)  # 2 launches: settle what is seen, repeat what may be lost
    manage_nodes(context)  # 3 nodes: let checked ones work, replace late and failed ones, clean up
    hand_over(context)  # services: the next step of each move from a source that ends to one that lasts
    drain(context)  # 4 time: every node that ends is drained before its deadline
    place_pending(
        context, in_flight
    )  # 5 work: warm blocks, admit what fits, launch for the rest, say why the others wait
    reclaim(context, in_flight)  # 6 disruption: give back nodes nobody needs
    warn_of_shortages(context)  # 7 forecast: which services a hand-over will leave short, and what would help
    return context.plan()
