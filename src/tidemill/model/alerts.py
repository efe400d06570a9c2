"""What people should hear of: alerts, and what became of telling each target.

Words only, like `world`: which alerts there are is worked out in `report.alerts`, how they travel is `notify`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

from tidemill.model.labels import Pairs


class Severity(StrEnum):
    """PagerDuty's four words, mildest first."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class AlertKind(StrEnum):
    APPROVAL_WAITING = "approval-waiting"
    OFFER_GONE = "offer-gone"
    PAYMENT_FAILED = "payment-failed"
    PURCHASE_UNKNOWN = "purchase-unknown"
    EXTENSION_CLOSING = "extension-closing"
    SERVICE_SHORT = "service-short"
    FORCED_EVICTION = "forced-eviction"
    SHORT_DELIVERY = "short-delivery"
    BLOCK_NOT_FILLED = "block-not-filled"
    PIN_UNUSED = "pin-unused"
    NODES_NEVER_JOIN = "nodes-never-join"
    ENGINE_SILENT = "engine-silent"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class Alert:
    """`key` names the occasion: the same key is the same trouble, however often it is seen."""

    key: str
    kind: AlertKind
    severity: Severity
    about: str
    title: str
    text: str  # one sentence, with what to do
    facts: Pairs = ()
    lasts: bool = True  # a condition, which ends; False: it happened, and nothing will undo it


class AlertEvent(StrEnum):
    """What is said of an alert."""

    RAISED = "raised"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One word to one target. `due_at` is the next try; None: nothing more will be tried.

    `occasion` counts how often the same key was raised: trouble that was over and came back is told again.
    """

    key: str
    occasion: int
    target: str
    word: AlertEvent
    made_at: datetime
    due_at: datetime | None
    attempts: int = 0
    sent_at: datetime | None = None
    failure: Literal["", "misconfigured", "gave-up"] = ""
    answer: str = ""  # what the receiver, or the network, said last

    @property
    def id(self) -> str:
        """Stable over retries and restarts, so that a receiver can tell a repetition."""
        return f"{self.key}#{self.occasion}/{self.word.value}"


@dataclass(frozen=True, slots=True)
class Raised:
    """An alert in the book. `first_at` is when the key was first seen, `raised_at` when this occasion began."""

    alert: Alert
    first_at: datetime
    raised_at: datetime
    occasion: int = 1
    resolved_at: datetime | None = None
    deliveries: tuple[Delivery, ...] = ()
