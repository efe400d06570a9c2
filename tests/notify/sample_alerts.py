"""Builders of alerts and targets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.decide.builders import NOW, spec
from tests.engine.ports import Hands
from tidemill.model.alerts import Alert, AlertEvent, AlertKind, Delivery, Raised, Severity
from tidemill.notify.bodies import Message
from tidemill.notify.delivery import TargetDelivery
from tidemill.notify.targets import senders
from tidemill.ports import AlertBook
from tidemill.spec import Spec

GONE = Alert(
    "offer-gone/tp-1",
    AlertKind.OFFER_GONE,
    Severity.ERROR,
    "tp-1",
    "EC2 offers nothing inside an approved envelope",
    "It is tried again until 12:00; widen <zones> & fee.",
    (("pool", "p5"), ("highest fee", "$30,000")),
)


def platform(*targets: dict[str, Any], **fields: Any) -> Spec:
    return spec(notifications=list(targets), **fields)


def hook(url: str, name: str = "ops", **fields: Any) -> dict[str, Any]:
    return {"name": name, "type": "webhook", "url": url, **fields}


def message(alert: Alert = GONE, *, resolved_at: datetime | None = None, hostname: str = "") -> Message:
    word = AlertEvent.RAISED if resolved_at is None else AlertEvent.RESOLVED
    delivery = Delivery(alert.key, 1, "ops", word, NOW, NOW)
    raised = Raised(alert, NOW, NOW, 1, resolved_at)
    return Message.of(raised, delivery, spec(hostname=hostname).platform)


def postman(of: Spec, book: AlertBook, clock: Hands, name: str = "ops") -> TargetDelivery:
    return TargetDelivery(name, senders(of.platform)[name], of.platform, book, clock)
