"""The targets of alerts: one send function for each type. Secrets are read for each send and never kept."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tidemill.model.errors import SpecError
from tidemill.notify import bodies
from tidemill.notify.bodies import Message
from tidemill.notify.transports import SendResult, post, publish_to_sns
from tidemill.spec.platform import Notification, Platform, SecretRef

PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
SIGNATURE = "Tidemill-Signature"

Send = Callable[[Message, datetime], SendResult]


def senders(platform: Platform) -> Mapping[str, Send]:
    """Send functions by the names of the platform's notifications."""
    return {target.name: sender(target) for target in platform.spec.notifications}


def sender(target: Notification) -> Send:
    send = {"webhook": _webhook, "slack": _slack, "pagerduty": _pagerduty, "sns": _sns}[target.type]

    def attempt(message: Message, now: datetime) -> SendResult:
        try:
            return send(target, message, now)
        except SpecError as error:
            # Retry: the file may be mounted, or the variable set, by the next attempt.
            return SendResult("retry", str(error))

    return attempt


def _webhook(target: Notification, message: Message, now: datetime) -> SendResult:
    body = encoded(bodies.webhook(message))
    headers = {"Idempotency-Key": message.id}
    if target.secret_from is not None:
        headers[SIGNATURE] = signature(read_secret(target.secret_from, "secretFrom"), body, now)
    return post(_address(target), body, headers, now)


def _slack(target: Notification, message: Message, now: datetime) -> SendResult:
    return post(_address(target), encoded(bodies.slack(message)), {"Idempotency-Key": message.id}, now)


def _pagerduty(target: Notification, message: Message, now: datetime) -> SendResult:
    assert target.routing_key_from is not None
    key = read_secret(target.routing_key_from, "routingKeyFrom")
    return post(_address(target, PAGERDUTY), encoded(bodies.pagerduty(message, key)), {}, now)


def _sns(target: Notification, message: Message, now: datetime) -> SendResult:
    assert target.topic_arn is not None
    attributes = {"kind": message.alert.kind.value, "severity": message.alert.severity.value}
    attributes["event"] = message.event.value
    plain = bodies.text(message)
    body = plain if target.format == "text" else encoded(_formatted(target, message)).decode()
    return publish_to_sns(target.topic_arn, bodies.subject(message), body, plain, attributes, message.id)


def _formatted(target: Notification, message: Message) -> dict[str, Any]:
    """A PagerDuty body needs the routing key only if whatever forwards it has none of its own."""
    if target.format == "slack":
        return bodies.slack(message)
    if target.format == "pagerduty":
        ref = target.routing_key_from
        return bodies.pagerduty(message, "" if ref is None else read_secret(ref, "routingKeyFrom"))
    return bodies.webhook(message)


def _address(target: Notification, default: str = "") -> str:
    if target.url_from is not None:
        return read_secret(target.url_from, "urlFrom")
    return target.url or default


def encoded(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def signature(key: str, body: bytes, now: datetime) -> str:
    """`t=UNIX,v1=HEX`: HMAC-SHA256 over the time, a full stop and the body. The time lets receivers refuse old
    bodies."""
    at = int(now.timestamp())
    signed = hmac.new(key.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={signed}"


def read_secret(ref: SecretRef, what: str) -> str:
    """The secret. Raises SpecError, which never shows the secret, when it is missing, empty or cannot be read."""
    if ref.env:
        value = os.environ.get(ref.env, "").strip()
        if not value:
            raise SpecError(f"{what}: the environment variable {ref.env} is not set")
        return value
    try:
        value = Path(ref.file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SpecError(f"{what}: {ref.file} cannot be read: {reason}") from None
    if not value:
        raise SpecError(f"{what}: {ref.file} is empty")
    return value
