"""Reads the SQS queue that EventBridge, Auto Scaling and SNS send to, and wakes the engine.

EventBridge sends an envelope, an Auto Scaling hook the bare detail, SNS either of them wrapped in `Message`; AWS's own
pages spell `detail-type` in two ways. Events only wake the engine, which then looks for itself: a lost, doubled, late
or forged event costs one look. A message is deleted when the engine was woken for it or when it is not ours (the queue
is Tidemill's own). One that cannot be read is left for some receives, so that a dead-letter queue can take it.
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

log = logging.getLogger("tidemill.aws.event_queue")

# EventBridge and SQS carry at most 256 KiB, and SNS wraps them once more.
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
    TEST = "test"  # an Auto Scaling group sends it once to check its permission
    OTHER = "other"  # any other event


@dataclass(frozen=True, slots=True)
class Event:
    kind: EventKind
    about: tuple[str, ...] = ()  # the ids in it: cr-… and i-…
    detail: str = ""  # AWS's own name for it, for the log


class NotAnEvent(ValueError):
    """The message is no event. The text says why, and quotes only a little of what was sent."""


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
    """NotAnEvent: it cannot be an event of AWS."""
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
        raise NotAnEvent(f"not JSON: {str(error)[:80]}") from None
    if not isinstance(message, dict):
        raise NotAnEvent(f"a {type(message).__name__}, not an object")
    return message


def _about(detail: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_ids(detail)))[:MOST_ABOUT]


def _ids(detail: Mapping[str, Any]) -> Iterator[str]:
    """Only what looks like an EC2 id: nothing else of an event is used."""
    named = [detail.get(name) for name in _NAMES_AN_OBJECT]
    entities = detail.get("affectedEntities")
    if isinstance(entities, list):
        named += [entity.get("entityValue") for entity in entities[:MOST_ABOUT] if isinstance(entity, dict)]
    for value in named:
        if isinstance(value, str) and _ID.match(value):
            yield value


# --- the queue ----------------------------------------------------------------------------------------

WAIT_S = 20  # the longest that SQS allows: three calls a minute while nothing happens
BATCH = 10  # the most that SQS allows, for receiving and for deleting
# A dead-letter queue usually gets a message after three to five receives. After one more it is deleted.
READ_AT_MOST = 6
_URGENT = (EventKind.SPOT, EventKind.INTERRUPTED, EventKind.HOOK)
_UNKNOWN_EVERY_S = 60.0
_REMEMBERED = 10_000  # messages that were logged, so that each is logged once


@dataclass(frozen=True, slots=True)
class PollResult:
    """How many messages one poll received, and what became of them."""

    received: int = 0
    woke_for: int = 0
    not_ours: int = 0
    unreadable: int = 0


class EventQueue:
    """`known`: the ids of our instances and reservations, as last seen. `wake`: takes a reason, must be quick."""

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
        self._unknown_s = -_UNKNOWN_EVERY_S
        self._logged: OrderedDict[str, None] = OrderedDict()

    def poll(self, wait_s: int = WAIT_S) -> PollResult:
        """One long poll. Raises the errors of a read; messages that were not deleted come again."""
        answer = self._aws.read(
            "sqs", "ReceiveMessage", QueueUrl=self._url, MaxNumberOfMessages=BATCH, WaitTimeSeconds=wait_s,
            AttributeNames=["ApproximateReceiveCount"],
        )  # fmt: skip
        received = answer.get("Messages")
        messages = (
            [message for message in received if isinstance(message, dict)]
            if isinstance(received, list)
            else []
        )
        counts = dict.fromkeys(("woke", "not-ours", "unreadable"), 0)
        done = []
        for message in messages:
            outcome, is_done = self._handle(message)
            counts[outcome] += 1
            if is_done and isinstance(message.get("ReceiptHandle"), str):
                done.append(message["ReceiptHandle"])
        self._delete(done)
        return PollResult(len(messages), counts["woke"], counts["not-ours"], counts["unreadable"])

    def _handle(self, message: Mapping[str, Any]) -> tuple[str, bool]:
        """What kind of message it was, and whether to delete it."""
        body = message.get("Body")
        try:
            event = read_event(body if isinstance(body, str) else "")
        except NotAnEvent as why:
            tries = _tries(message)
            self._log_once(str(message.get("MessageId", ""))[:80], str(why), last=tries >= READ_AT_MOST)
            return "unreadable", tries >= READ_AT_MOST
        if not self._concerns_us(event):
            return "not-ours", True
        self._wake(f"{event.kind.value} {', '.join(event.about)}".strip())
        return "woke", True

    def _concerns_us(self, event: Event) -> bool:
        if event.kind in (EventKind.OTHER, EventKind.TEST):
            return False
        known = self._known()
        if any(id_ in known for id_ in event.about):
            return True
        # Minutes count, and the instance may have been launched since the last look: look, but once a minute at most.
        now_s = self._now_s()
        if event.kind not in _URGENT or not event.about or now_s - self._unknown_s < _UNKNOWN_EVERY_S:
            return False
        self._unknown_s = now_s
        return True

    def _log_once(self, id_: str, why: str, *, last: bool) -> None:
        if id_ in self._logged:
            return
        self._logged[id_] = None
        if len(self._logged) > _REMEMBERED:
            self._logged.popitem(last=False)
        next_step = "it is deleted" if last else "it is left for the dead-letter queue"
        log.warning(
            "message %s in the queue is not an event (%s): %s", id_ or "without an id", why, next_step
        )

    def _delete(self, handles: Sequence[str]) -> None:
        """A message that could not be deleted comes again and wakes the engine once more, which does no harm."""
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
    count = attributes.get("ApproximateReceiveCount") if isinstance(attributes, dict) else None
    return int(count) if isinstance(count, str) and count.isdecimal() and len(count) < 9 else 1
