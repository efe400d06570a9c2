"""The receivers: one function a type, from a message to an answer. Secrets are read at each send and never kept."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from tidemill.model.errors import SpecError
from tidemill.notify import bodies, secret_ref, sns
from tidemill.notify.bodies import Message
from tidemill.notify.delivery_result import Answer
from tidemill.notify.http import post
from tidemill.spec.platform import Notification, Platform

PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
SIGNATURE = "Tidemill-Signature"

Send = Callable[[Message, datetime], Answer]


def senders(platform: Platform) -> Mapping[str, Send]:
    """By the names the platform gives them."""
    return {one.name: sender(one) for one in platform.spec.notifications}


def sender(target: Notification) -> Send:
    send = {"webhook": _webhook, "slack": _slack, "pagerduty": _pagerduty, "sns": _sns}[target.type]

    def attempt(message: Message, now: datetime) -> Answer:
        try:
            return send(target, message, now)
        except SpecError as error:
            # Not for ever: the file may be mounted, or the variable set, by the next try.
            return Answer("retry", str(error))

    return attempt


def _webhook(target: Notification, message: Message, now: datetime) -> Answer:
    body = encoded(bodies.webhook(message))
    headers = {"Idempotency-Key": message.id}
    if target.secret_from is not None:
        headers[SIGNATURE] = signature(secret_ref.read(target.secret_from, "secretFrom"), body, now)
    return post(_address(target), body, headers, now)


def _slack(target: Notification, message: Message, now: datetime) -> Answer:
    return post(_address(target), encoded(bodies.slack(message)), {"Idempotency-Key": message.id}, now)


def _pagerduty(target: Notification, message: Message, now: datetime) -> Answer:
    assert target.routing_key_from is not None
    key = secret_ref.read(target.routing_key_from, "routingKeyFrom")
    return post(_address(target, PAGERDUTY), encoded(bodies.pagerduty(message, key)), {}, now)


def _sns(target: Notification, message: Message, now: datetime) -> Answer:
    assert target.topic_arn is not None
    attributes = {"kind": message.alert.kind.value, "severity": message.alert.severity.value}
    attributes["event"] = message.word.value
    plain = bodies.text(message)
    body = plain if target.format == "text" else encoded(_formatted(target, message)).decode()
    return sns.publish(target.topic_arn, bodies.subject(message), body, plain, attributes, message.id)


def _formatted(target: Notification, message: Message) -> dict[str, Any]:
    """A PagerDuty body needs its key only where whoever forwards it has none of its own."""
    if target.format == "slack":
        return bodies.slack(message)
    if target.format == "pagerduty":
        ref = target.routing_key_from
        return bodies.pagerduty(message, "" if ref is None else secret_ref.read(ref, "routingKeyFrom"))
    return bodies.webhook(message)


def _address(target: Notification, usual: str = "") -> str:
    if target.url_from is not None:
        return secret_ref.read(target.url_from, "urlFrom")
    return target.url or usual


def encoded(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def signature(key: str, body: bytes, now: datetime) -> str:
    """`t=UNIX,v1=HEX`: HMAC-SHA256 over the time, a full stop and the body. With the time, old bodies are told."""
    at = int(now.timestamp())
    signed = hmac.new(key.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={signed}"
