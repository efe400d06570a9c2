"""What others may ask of the core besides `decide`: phases and deadlines, forecasts, approvals, what is missing, plans.

The one door into the package: reports, the engine, provisioners and the command line import these names from here, and
an import contract keeps them out of every other module of `decide`.
"""

from __future__ import annotations

from tidemill.decide.context import DecisionContext, NodeView
from tidemill.decide.deadlines import SHORTEST_LEAD, deadline_of, kill_at, pod_lead
from tidemill.decide.handover.forecast import ServiceForecast, forecast
from tidemill.decide.handover.mitigations import mitigations
from tidemill.decide.handover.warnings import pins_that_must_move
from tidemill.decide.overflow import hourly_rate
from tidemill.decide.phases import Phase
from tidemill.decide.placement.launch_options import is_usable
from tidemill.decide.pool_templates import PoolTemplate, templates
from tidemill.decide.purchasing.approval import (
    approvals_needed,
    fee_to_approve_usd,
    not_granted,
    over_budget,
    over_month,
)
from tidemill.decide.purchasing.coverage import (
    first_gap,
    held_for,
    is_mostly_covered,
    missing_gpus,
    reduces_shortage,
    still_missing,
    window_named,
    with_expected,
)
from tidemill.decide.purchasing.learned_demand import learned_gpus
from tidemill.decide.purchasing.planner.demand import calendar_demand, plans_with_calendar
from tidemill.decide.purchasing.planner.mip_solver import solver_installed
from tidemill.decide.purchasing.planner.result import Cover, HandOver, OnDemand, PurchasePlan, Uncovered
from tidemill.decide.purchasing.planning import outlook_question, plan_outlook, planning_basis, run_planner
from tidemill.decide.purchasing.purchase_intents import extension_envelope, intent_id, window_name
from tidemill.decide.purchasing.replan_schedule import PlanningRound, next_round_at, planning_round
from tidemill.decide.scheduler_rules import admits
from tidemill.decide.service_moves import at_once, in_effect, services_lead

__all__ = [
    # nodes and pools, as one decision sees them
    "DecisionContext",
    "NodeView",
    "SHORTEST_LEAD",
    "deadline_of",
    "kill_at",
    "pod_lead",
    "hourly_rate",
    "Phase",
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
    "in_effect",
    "services_lead",
    # purchases: approvals, what is missing, names
    "approvals_needed",
    "fee_to_approve_usd",
    "not_granted",
    "over_budget",
    "over_month",
    "first_gap",
    "held_for",
    "is_mostly_covered",
    "missing_gpus",
    "reduces_shortage",
    "still_missing",
    "window_named",
    "with_expected",
    "extension_envelope",
    "intent_id",
    "window_name",
    # planning purchases
    "learned_gpus",
    "calendar_demand",
    "plans_with_calendar",
    "solver_installed",
    "Cover",
    "HandOver",
    "OnDemand",
    "PurchasePlan",
    "Uncovered",
    "outlook_question",
    "plan_outlook",
    "planning_basis",
    "run_planner",
    "PlanningRound",
    "next_round_at",
    "planning_round",
]
