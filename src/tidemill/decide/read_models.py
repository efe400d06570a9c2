"""What others may ask of the core besides `decide`: phases and deadlines, forecasts, approvals, what is missing, plans.

The one door into the package: reports, the engine, provisioners and the command line import these names from here, and
an import contract keeps them out of every other module of `decide`.
"""

from __future__ import annotations

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import GROUP_HOOK_WAITS, SHORTEST_LEAD, deadline_of, kill_at, pod_lead
from tidemill.decide.handover.forecast import ServiceForecast, forecast
from tidemill.decide.handover.mitigations import mitigations
from tidemill.decide.handover.warnings import inherits_pin, pins_that_must_move
from tidemill.decide.memory import Memory
from tidemill.decide.node_table import NodeView
from tidemill.decide.overflow import hourly_rate
from tidemill.decide.phases import Phase
from tidemill.decide.placement.launch_options import affordable_usd_h, is_usable
from tidemill.decide.pool_templates import PoolTemplate, templates
from tidemill.decide.purchasing import purchases_to_submit
from tidemill.decide.purchasing.approval import (
    approvals_needed,
    fee_to_approve_usd,
    not_granted,
    over_budget,
    over_month,
)
from tidemill.decide.purchasing.coverage import extended, missing_gpus, reduces_shortage, with_expected
from tidemill.decide.purchasing.learned_demand import learned_gpus
from tidemill.decide.purchasing.offer_worth import cost_for_purchase_usd, is_as_approved
from tidemill.decide.purchasing.planner.demand import calendar_demand, plans_with_calendar
from tidemill.decide.purchasing.planner.result import Cover, HandOver, OnDemand, PurchasePlan, Uncovered
from tidemill.decide.purchasing.planning import (
    MOST_SEARCHES,
    OutlookQuestion,
    next_searches,
    outlook_question,
    plan_outlook,
    planning_basis,
    run_planner,
)
from tidemill.decide.purchasing.purchase_intents import extension_envelope, intent_id, window_name
from tidemill.decide.purchasing.replan_schedule import PlanningRound, next_round_at, planning_round
from tidemill.decide.purchasing.usability import (
    least_room,
    why_block_unusable,
    why_offer_unusable,
    why_purchase_unusable,
)
from tidemill.decide.purchasing.wanted import why_never_bought, why_not_wanted
from tidemill.decide.purchasing.window_coverage import first_gap, held_for, window_named
from tidemill.decide.scheduler_rules import admits
from tidemill.decide.service_moves import at_once
from tidemill.linear_program import NO_SOLVER, solver_installed

__all__ = [
    # nodes and pools, as one decision sees them
    "DecisionContext",
    "Memory",
    "NodeView",
    "GROUP_HOOK_WAITS",
    "SHORTEST_LEAD",
    "deadline_of",
    "kill_at",
    "pod_lead",
    "affordable_usd_h",
    "hourly_rate",
    "Phase",
    "inherits_pin",
    "is_usable",
    "PoolTemplate",
    "templates",
    "admits",
    # services that move
    "ServiceForecast",
    "forecast",
    "mitigations",
    "pins_that_must_move",
    "at_once",
    # purchases: approvals, what is missing, names
    "approvals_needed",
    "fee_to_approve_usd",
    "not_granted",
    "over_budget",
    "over_month",
    "purchases_to_submit",
    "extended",
    "cost_for_purchase_usd",
    "is_as_approved",
    "first_gap",
    "held_for",
    "missing_gpus",
    "reduces_shortage",
    "least_room",
    "why_block_unusable",
    "why_never_bought",
    "why_not_wanted",
    "why_offer_unusable",
    "why_purchase_unusable",
    "window_named",
    "with_expected",
    "extension_envelope",
    "intent_id",
    "window_name",
    # planning purchases
    "learned_gpus",
    "calendar_demand",
    "plans_with_calendar",
    "NO_SOLVER",
    "solver_installed",
    "Cover",
    "HandOver",
    "OnDemand",
    "PurchasePlan",
    "Uncovered",
    "MOST_SEARCHES",
    "OutlookQuestion",
    "next_searches",
    "outlook_question",
    "plan_outlook",
    "planning_basis",
    "run_planner",
    "PlanningRound",
    "next_round_at",
    "planning_round",
]
