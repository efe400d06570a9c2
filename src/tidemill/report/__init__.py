"""Read models: what there is, what waits and what comes next, for people and programs alike.

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
