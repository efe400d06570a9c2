"""What a message on the queue says: one of ours, somebody else's, or nothing anybody can read.

EventBridge sends an envelope, an Auto Scaling hook the bare detail, SNS either of them wrapped in `Message`; AWS's own
pages spell `detail-type` in two ways. Pure: text in, an Event out. Events only wake the engine: what they say is never
believed, only looked into, so that a lost, doubled, late or forged one costs a look and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

# EventBridge and SQS carry at most 256 KiB; SNS around it once more. What is nested deeper is nobody's event.
MOST_CHARACTERS = 1_100_000
MOST_WRAPPINGS = 3
MOST_ABOUT = 100  # objects of one event: AWS Health names a few, never thousands
_ID = re.compile(r"^(cr|i)-[0-9a-f]{8,32}$")


class Kind(StrEnum):
    DELIVERED = "block-delivered"
    EXPIRING = "block-expiring"
    INTERRUPTED = "block-interruption"
    HOOK = "lifecycle-hook"
    SPOT = "spot-interruption"
    REBALANCE = "rebalance"
    STATE = "instance-state"
    HEALTH = "health"
    TEST = "test"  # what an Auto Scaling group sends once, to see whether it may
    OTHER = "other"  # an event, and not one of these


@dataclass(frozen=True, slots=True)
class Event:
    kind: Kind
    about: tuple[str, ...] = ()  # cr-… and i-…: whom it concerns
    detail: str = ""  # AWS's own name for it, for the log


class Unreadable(ValueError):
    """No event. The message says why, and never more than a little of what was sent."""


_KINDS: Mapping[tuple[str, str], Kind] = {
    ("aws.ec2", "Capacity Block Reservation Delivered"): Kind.DELIVERED,
    ("aws.ec2", "Capacity Block Delivered"): Kind.DELIVERED,
    ("aws.ec2", "Capacity Block Reservation Expiration Warning"): Kind.EXPIRING,
    ("aws.ec2", "Capacity Block Expiration Warning"): Kind.EXPIRING,
    ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"): Kind.INTERRUPTED,
    ("aws.ec2", "EC2 Spot Instance Interruption Warning"): Kind.SPOT,
    ("aws.ec2", "EC2 Instance Rebalance Recommendation"): Kind.REBALANCE,
    ("aws.ec2", "EC2 Instance State-change Notification"): Kind.STATE,
    ("aws.autoscaling", "EC2 Instance-terminate Lifecycle Action"): Kind.HOOK,
    ("aws.autoscaling", "EC2 Instance-launch Lifecycle Action"): Kind.HOOK,
    ("aws.health", "AWS Health Event"): Kind.HEALTH,
}
_NAMES_AN_OBJECT = ("capacity-reservation-id", "instance-id", "EC2InstanceId")


def read_event(body: str) -> Event:
    """Unreadable: what cannot be an event of AWS's at all."""
    message = _unwrapped(body)
    detail_type = message.get("detail-type", message.get("detail_type"))
    if isinstance(detail_type, str):
        detail = message.get("detail")
        if not isinstance(detail, dict):
            raise Unreadable(f"{detail_type[:80]!r} has no detail")
        kind = _KINDS.get((str(message.get("source", "")), detail_type), Kind.OTHER)
        about = _about(detail) if kind is not Kind.OTHER else ()
        return Event(kind, about, detail_type[:80])
    if message.get("Event") == "autoscaling:TEST_NOTIFICATION":
        return Event(Kind.TEST, detail="autoscaling:TEST_NOTIFICATION")
    if isinstance(message.get("LifecycleTransition"), str):
        return Event(Kind.HOOK, _about(message), message["LifecycleTransition"][:80])
    raise Unreadable("neither an EventBridge envelope nor an Auto Scaling notification")


def _unwrapped(body: str) -> dict[str, Any]:
    for _ in range(MOST_WRAPPINGS):
        message = _parsed(body)
        inner = message.get("Message")
        if not isinstance(inner, str) or "detail-type" in message:
            return message
        body = inner
    raise Unreadable(f"wrapped more than {MOST_WRAPPINGS} times")


def _parsed(body: str) -> dict[str, Any]:
    if len(body) > MOST_CHARACTERS:
        raise Unreadable(f"{len(body):,} characters, more than SQS carries")
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"no JSON: {str(error)[:80]}") from None
    if not isinstance(message, dict):
        raise Unreadable(f"a {type(message).__name__}, not an object")
    return message


def _about(detail: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_ids(detail)))[:MOST_ABOUT]


def _ids(detail: Mapping[str, Any]) -> Iterator[str]:
    """Only what looks like an id of EC2's: nothing else of an event is ever used."""
    named = [detail.get(name) for name in _NAMES_AN_OBJECT]
    entities = detail.get("affectedEntities")
    if isinstance(entities, list):
        named += [one.get("entityValue") for one in entities[:MOST_ABOUT] if isinstance(one, dict)]
    for value in named:
        if isinstance(value, str) and _ID.match(value):
            yield value
