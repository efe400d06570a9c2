"""Read models for people and programs: pools, blocks, nodes, waiting pods, next steps, costs, an account as it is.

Pure functions of (spec, world, plan). Nothing is decided and nothing is formatted here.
"""

from tidemill.report.pods import next_steps, pods
from tidemill.report.rows import (
    BlockRow,
    Money,
    NextSteps,
    NodeRow,
    PodPrice,
    PodRow,
    PoolRow,
    PurchaseRow,
    Status,
    StepRow,
    TypePrice,
    WarningRow,
)
from tidemill.report.status import status

__all__ = [
    "status", "next_steps", "pods",
    "Status", "NextSteps", "PoolRow", "BlockRow", "NodeRow", "PodRow", "PurchaseRow",
    "PodPrice", "TypePrice", "Money", "StepRow", "WarningRow",
]  # fmt: skip
