"""The queue that EventBridge, Auto Scaling and SNS send to: read, understood, and the engine woken.

A message is deleted once the engine has been woken for it, or when it is not ours: nobody else waits for it either, the
queue is Tidemill's own. What cannot be read is left a few times, so that a dead-letter queue may take it, and deleted
after that; it never wakes anybody. Whether an event is true is not asked here: the engine looks for itself.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tidemill.aws.errors import CallKind
from tidemill.aws.session import Aws
from tidemill.model.errors import TidemillError

# EventBridge and SQS carry at most 256 KiB; SNS around it once more. What is nested deeper is nobody's event.
MOST_CHARACTERS = 1_100_000
MOST_WRAPPINGS = 3
MOST_ABOUT = 100  # objects of one event: AWS Health names a few, never thousands
_ID = re.compile(r"^(cr|i)-[0-9a-f]{8,32}$")


class EventKind(StrEnum):
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
    kind: EventKind
    about: tuple[str, ...] = ()  # cr-… and i-…: whom it concerns
    detail: str = ""  # AWS's own name for it, for the log


class NotAnEvent(ValueError):
    """No event. The message says why, and never more than a little of what was sent."""


_KINDS: Mapping[tuple[str, str], EventKind] = {
    ("aws.ec2", "Capacity Block Reservation Delivered"): EventKind.DELIVERED,
    ("aws.ec2", "Capacity Block Delivered"): EventKind.DELIVERED,
    ("aws.ec2", "Capacity Block Reservation Expiration Warning"): EventKind.EXPIRING,
    ("aws.ec2", "Capacity Block Expiration Warning"): EventKind.EXPIRING,
    ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"): EventKind.INTERRUPTED,
    ("aws.ec2", "EC2 Spot Instance Interruption Warning"): EventKind.SPOT,
    ("aws.ec2", "EC2 Instance Rebalance Recommendation"): EventKind.REBALANCE,
    ("aws.ec2", "EC2 Instance State-change Notification"): EventKind.STATE,
    ("aws.autoscaling", "EC2 Instance-terminate Lifecycle Action"): EventKind.HOOK,
    ("aws.autoscaling", "EC2 Instance-launch Lifecycle Action"): EventKind.HOOK,
    ("aws.health", "AWS Health Event"): EventKind.HEALTH,
}
_NAMES_AN_OBJECT = ("capacity-reservation-id", "instance-id", "EC2InstanceId")


def read_event(body: str) -> Event:
    """Unreadable: what cannot be an event of AWS's at all."""
    message = _unwrapped(body)
    detail_type = message.get("detail-type", message.get("detail_type"))
    if isinstance(detail_type, str):
        detail = message.get("detail")
        if not isinstance(detail, dict):
            raise NotAnEvent(f"{detail_type[:80]!r} has no detail")
        kind = _KINDS.get((str(message.get("source", "")), detail_type), EventKind.OTHER)
        about = _about(detail) if kind is not EventKind.OTHER else ()
        return Event(kind, about, detail_type[:80])
    if message.get("Event") == "autoscaling:TEST_NOTIFICATION":
        return Event(EventKind.TEST, detail="autoscaling:TEST_NOTIFICATION")
    if isinstance(message.get("LifecycleTransition"), str):
        return Event(EventKind.HOOK, _about(message), message["LifecycleTransition"][:80])
    raise NotAnEvent("neither an EventBridge envelope nor an Auto Scaling notification")


def _unwrapped(body: str) -> dict[str, Any]:
    for _ in range(MOST_WRAPPINGS):
        message = _parsed(body)
        inner = message.get("Message")
        if not isinstance(inner, str) or "detail-type" in message:
            return message
        body = inner
    raise NotAnEvent(f"wrapped more than {MOST_WRAPPINGS} times")


def _parsed(body: str) -> dict[str, Any]:
    if len(body) > MOST_CHARACTERS:
        raise NotAnEvent(f"{len(body):,} characters, more than SQS carries")
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NotAnEvent(f"no JSON: {str(error)[:80]}") from None
    if not isinstance(message, dict):
        raise NotAnEvent(f"a {type(message).__name__}, not an object")
    return message


def _about(detail: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_ids(detail)))[:MOST_ABOUT]


def _ids(detail: Mapping[str, Any]) -> Iterator[str]:
    """Only what looks like an id of EC2's: nothing else of an event is ever used."""
    named = [detail.get(name) for name in _NAMES_AN_OBJECT]
    entities = detail.get("affectedEntities")
    if isinstance(entities, list):
        named += [entity.get("entityValue") for entity in entities[:MOST_ABOUT] if isinstance(entity, dict)]
    for value in named:
        if isinstance(value, str) and _ID.match(value):
            yield value


log = logging.getLogger("tidemill.aws.event_queue")

WAIT_S = 20  # SQS's longest: one call a third of a minute while nothing happens
BATCH = 10  # SQS's most, for receiving and for deleting
# A dead-letter queue is usually given a message after three to five tries; one more, and it is poison for good.
READ_AT_MOST = 6
_URGENT = (EventKind.SPOT, EventKind.INTERRUPTED, EventKind.HOOK)
_STRANGERS_EVERY_S = 60.0
_REMEMBERED = 10_000  # messages already complained of, so that each is logged once


@dataclass(frozen=True, slots=True)
class PollResult:
    """What one look at the queue came to."""

    received: int = 0
    woke_for: int = 0
    not_ours: int = 0
    unreadable: int = 0


class EventQueue:
    """`known` says which instances and reservations are ours, as last seen; `wake` gets a reason, and is quick."""

    def __init__(
        self,
        aws: Aws,
        url: str,
        *,
        wake: Callable[[str], None],
        known: Callable[[], Container[str]],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._aws, self._url, self._wake, self._known, self._now_s = aws, url, wake, known, now_s
        self._strangers_s = -_STRANGERS_EVERY_S
        self._complained: OrderedDict[str, None] = OrderedDict()

    def poll(self, wait_s: int = WAIT_S) -> PollResult:
        """One long poll. Raises what a read raises; messages that were not deleted come again."""
        answer = self._aws.read(
            "sqs", "ReceiveMessage", QueueUrl=self._url, MaxNumberOfMessages=BATCH, WaitTimeSeconds=wait_s,
            AttributeNames=["ApproximateReceiveCount"],
        )  # fmt: skip
        received = answer.get("Messages")
        messages = [one for one in received if isinstance(one, dict)] if isinstance(received, list) else []
        counts = dict.fromkeys(("woke", "not-ours", "unreadable"), 0)
        done = []
        for message in messages:
            verdict, is_done = self._take(message)
            counts[verdict] += 1
            if is_done and isinstance(message.get("ReceiptHandle"), str):
                done.append(message["ReceiptHandle"])
        self._delete(done)
        return PollResult(len(messages), counts["woke"], counts["not-ours"], counts["unreadable"])

    def _take(self, message: Mapping[str, Any]) -> tuple[str, bool]:
        """What it was, and whether it is done with."""
        body = message.get("Body")
        try:
            event = read_event(body if isinstance(body, str) else "")
        except NotAnEvent as why:
            tries = _tries(message)
            self._complain(str(message.get("MessageId", ""))[:80], str(why), last=tries >= READ_AT_MOST)
            return "unreadable", tries >= READ_AT_MOST
        if not self._concerns_us(event):
            return "not-ours", True
        self._wake(f"{event.kind.value} {', '.join(event.about)}".strip())
        return "woke", True

    def _concerns_us(self, event: Event) -> bool:
        if event.kind in (EventKind.OTHER, EventKind.TEST):
            return False
        known = self._known()
        if any(one in known for one in event.about):
            return True
        # Minutes count, and it may have been launched since the last look: one look a minute at most for strangers.
        now_s = self._now_s()
        if event.kind not in _URGENT or not event.about or now_s - self._strangers_s < _STRANGERS_EVERY_S:
            return False
        self._strangers_s = now_s
        return True

    def _complain(self, id_: str, why: str, *, last: bool) -> None:
        if id_ in self._complained:
            return
        self._complained[id_] = None
        if len(self._complained) > _REMEMBERED:
            self._complained.popitem(last=False)
        fate = "it is deleted" if last else "it is left to the dead-letter queue for a while"
        log.warning("message %s on the queue is no event (%s): %s", id_ or "without an id", why, fate)

    def _delete(self, handles: Sequence[str]) -> None:
        """What could not be deleted comes again, wakes the engine once more and does no harm."""
        for first in range(0, len(handles), BATCH):
            entries = [
                {"Id": str(number), "ReceiptHandle": handle}
                for number, handle in enumerate(handles[first : first + BATCH])
            ]
            try:
                self._aws.call(
                    "sqs", "DeleteMessageBatch", CallKind.CHANGE, QueueUrl=self._url, Entries=entries
                )
            except TidemillError as error:
                log.warning("cannot delete %d messages, they come again: %s", len(entries), error)


def _tries(message: Mapping[str, Any]) -> int:
    attributes = message.get("Attributes")
    told = attributes.get("ApproximateReceiveCount") if isinstance(attributes, dict) else None
    return int(told) if isinstance(told, str) and told.isdecimal() and len(told) < 9 else 1
