"""The body of a notification for each type of target. Pure; the examples in the docs are made with it.

Limits of the receivers: Slack allows 3,000 characters in a text and 10 fields in a section, PagerDuty 1,024
characters in a summary and 255 in a key, SNS 100 in a subject. Longer text is cut and marked.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any

from tidemill.model.alerts import Alert, AlertEvent, Delivery, Raised, Severity
from tidemill.spec.platform import Platform
from tidemill.spec.units import format_instant

_MARKS = {
    Severity.INFO: ":information_source:",
    Severity.WARNING: ":warning:",
    Severity.ERROR: ":red_circle:",
    Severity.CRITICAL: ":rotating_light:",
}


@dataclass(frozen=True, slots=True)
class Message:
    """An alert event to send, and the platform it comes from."""

    alert: Alert
    event: AlertEvent
    id: str
    raised_at: datetime
    resolved_at: datetime | None
    deployment: str
    region: str
    cluster: str
    page: str = ""  # address of the platform's web pages

    @classmethod
    def of(cls, raised: Raised, delivery: Delivery, platform: Platform) -> Message:
        spec = platform.spec
        return cls(
            raised.alert, delivery.word, delivery.id, raised.raised_at, raised.resolved_at,
            spec.deployment, spec.region, spec.cluster.name, f"https://{spec.hostname}" if spec.hostname else "",
        )  # fmt: skip

    @property
    def is_over(self) -> bool:
        return self.event is AlertEvent.RESOLVED


def webhook(message: Message) -> dict[str, Any]:
    """Keys may be added, never renamed or removed: programs read them."""
    alert = message.alert
    return {
        "version": 1,
        "id": message.id,
        "event": message.event.value,
        "key": alert.key,
        "kind": alert.kind.value,
        "severity": alert.severity.value,
        "about": alert.about,
        "title": alert.title,
        "text": alert.text,
        "facts": [{"name": name, "value": value} for name, value in alert.facts],
        "raised_at": format_instant(message.raised_at),
        "resolved_at": format_instant(message.resolved_at)
        if message.is_over and message.resolved_at
        else None,
        "platform": {
            "deployment": message.deployment,
            "region": message.region,
            "cluster": message.cluster,
        },
    }


def slack(message: Message) -> dict[str, Any]:
    """Block Kit. Phones show `text`."""
    alert = message.alert
    headline = f"Resolved: {alert.title}" if message.is_over else alert.title
    mark = ":white_check_mark:" if message.is_over else _MARKS[alert.severity]
    blocks: list[dict[str, Any]] = [_section(f"{mark} *{_escaped(headline)}*")]
    if not message.is_over:
        blocks.append(_section(_escaped(alert.text)))
        fields = [_mrkdwn(f"*{_escaped(name)}*\n{_escaped(value)}", 2000) for name, value in alert.facts[:10]]
        blocks += [{"type": "section", "fields": fields}] if fields else []
    at = message.resolved_at if message.is_over and message.resolved_at else message.raised_at
    where = f"{message.deployment}, {message.cluster}, {message.region}"
    context = f"{_escaped(where)} | {alert.severity.value} | {format_instant(at)} | `{_escaped(alert.key)}`"
    blocks.append({"type": "context", "elements": [_mrkdwn(context, 3000)]})
    return {"text": cut(f"[{message.deployment}] {_escaped(headline)}", 3000), "blocks": blocks}


def pagerduty(message: Message, routing_key: str) -> dict[str, Any]:
    """Events API v2. With the same `dedup_key`, a repetition does not open a second incident."""
    alert = message.alert
    body: dict[str, Any] = {
        "routing_key": routing_key,
        "event_action": "resolve" if message.is_over else "trigger",
        "dedup_key": dedup_key(message),
    }
    if message.is_over:
        return body
    body["client"] = "Tidemill"
    if message.page:
        body["client_url"] = message.page
    body["payload"] = {
        "summary": cut(f"[{message.deployment}] {alert.title}", 1024),
        "source": message.cluster,
        "severity": alert.severity.value,
        "timestamp": format_instant(message.raised_at),
        "component": alert.about,
        "group": message.deployment,
        "class": alert.kind.value,
        "custom_details": {"what to do": alert.text, **_merged(alert)},
    }
    return body


def dedup_key(message: Message) -> str:
    """Includes the deployment, because two platforms may page one service. A long key is cut and gets a hash."""
    key = f"{message.deployment}/{message.alert.key}"
    if len(key) <= 255:
        return key
    return f"{key[:220]}-{blake2b(key.encode(), digest_size=16).hexdigest()}"


def text(message: Message) -> str:
    """For mail and phones."""
    alert = message.alert
    if message.is_over:
        at = format_instant(message.resolved_at or message.raised_at)
        return (
            f"Resolved at {at}: {alert.title}\n\n{message.deployment}, {message.cluster}, {message.region}\n"
        )
    facts = "\n".join(f"{name}: {value}" for name, value in alert.facts)
    return (
        f"{alert.title}\n\n{alert.text}\n\n{facts}\n\n{alert.severity.value},"
        f" {message.deployment}, {message.cluster}, {message.region}, {format_instant(message.raised_at)}\n"
    )


def subject(message: Message) -> str:
    """SNS: at most 100 characters, printable ASCII, one line."""
    status = "resolved" if message.is_over else message.alert.severity.value
    line = f"[{message.deployment}] {status}: {message.alert.title}"
    plain = "".join(letter if " " <= letter <= "~" else "?" for letter in line)
    return cut(plain, 100, mark="...")


def cut(text: str, limit: int, mark: str = "…") -> str:
    return text if len(text) <= limit else text[: limit - len(mark)] + mark


def _merged(alert: Alert) -> dict[str, str]:
    """Facts as a map; a name that occurs twice keeps both values."""
    merged: dict[str, str] = {}
    for name, value in alert.facts:
        merged[name] = f"{merged[name]}, {value}" if name in merged else value
    return merged


def _escaped(text: str) -> str:
    """Slack's three control characters, which names and notes may contain."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _mrkdwn(text, 3000)}


def _mrkdwn(text: str, limit: int) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": cut(text, limit)}
