"""The queue, through boto3: the engine is woken for what is ours, and nothing stays that is done."""

from __future__ import annotations

import json
import logging
from random import Random
from typing import Any

import pytest

from tests.aws.messages import BLOCK, INSTANCE, OURS, envelope, mangled
from tests.aws.wired import REGION, Wired
from tidemill.aws.errors import CallKind
from tidemill.aws.event_queue import READ_AT_MOST, EventQueue
from tidemill.aws.session import Aws

pytestmark = pytest.mark.requirement("SM-7")


class Inbox:
    def __init__(self, wired: Wired) -> None:
        self.outside = Aws(REGION)  # what others do to the queue, and no policy of ours allows
        made = self.outside.call(
            "sqs", "CreateQueue", CallKind.CHANGE, QueueName="mill", Attributes={"VisibilityTimeout": "0"}
        )
        self.url = made["QueueUrl"]
        self.woken: list[str] = []
        self.queue = EventQueue(wired.aws, self.url, wake=self.woken.append, known=lambda: {BLOCK, INSTANCE})

    def send(self, *bodies: str) -> None:
        for body in bodies:
            self.outside.call("sqs", "SendMessage", CallKind.CHANGE, QueueUrl=self.url, MessageBody=body)

    def left(self) -> int:
        asked: Any = ["ApproximateNumberOfMessages"]
        told = self.outside.read("sqs", "GetQueueAttributes", QueueUrl=self.url, AttributeNames=asked)
        return int(told["Attributes"]["ApproximateNumberOfMessages"])


@pytest.fixture
def inbox(wired: Wired) -> Inbox:
    return Inbox(wired)


def test_an_event_about_our_objects_wakes_the_engine_and_is_deleted(inbox: Inbox):
    inbox.send(*(json.dumps(message) for _, message in OURS))
    polled = [inbox.queue.poll(0), inbox.queue.poll(0)]
    assert sum(one.woke_for for one in polled) == len(OURS) == len(inbox.woken)
    assert inbox.left() == 0
    assert f"block-delivered {BLOCK}" in inbox.woken


def test_an_event_about_other_objects_is_deleted_without_waking_the_engine(inbox: Inbox):
    theirs = envelope("aws.ec2", "EC2 Instance State-change Notification", {"instance-id": "i-" + "f" * 17})
    other = envelope("my.app", "order placed", {"instance-id": INSTANCE})
    inbox.send(json.dumps(theirs), json.dumps(other), '{"Event":"autoscaling:TEST_NOTIFICATION"}')
    assert inbox.queue.poll(0).not_ours == 3
    assert (inbox.woken, inbox.left()) == ([], 0)


def test_an_urgent_event_about_an_unknown_instance_wakes_the_engine_once_a_minute(wired: Wired):
    inbox, clock = Inbox(wired), [0.0]
    inbox.queue._now_s = lambda: clock[0]
    warned = json.dumps(
        envelope("aws.ec2", "EC2 Spot Instance Interruption Warning", {"instance-id": "i-" + "f" * 17})
    )
    for at, woken in ((0, 1), (30, 1), (61, 2)):
        clock[0] = at
        inbox.send(warned)
        inbox.queue.poll(0)
        assert len(inbox.woken) == woken
    assert inbox.left() == 0


def test_an_unreadable_message_is_logged_once_left_for_a_dead_letter_queue_and_then_deleted(
    inbox: Inbox, caplog: pytest.LogCaptureFixture
):
    inbox.send("not json", json.dumps(OURS[0][1]))
    with caplog.at_level(logging.WARNING):
        for turn in range(READ_AT_MOST):
            assert inbox.left() == (2 if turn == 0 else 1)
            inbox.queue.poll(0)
    assert inbox.left() == 0
    assert len(inbox.woken) == 1
    assert sum("is not an event" in record.getMessage() for record in caplog.records) == 1


def test_a_message_that_cannot_be_deleted_comes_again_and_does_no_harm(inbox: Inbox, wired: Wired):
    inbox.send(json.dumps(OURS[0][1]))
    wired.fault("unavailable", action="DeleteMessageBatch", times=3)
    inbox.queue.poll(0)
    assert inbox.left() == 1
    inbox.queue.poll(0)
    assert (len(inbox.woken), inbox.left()) == (2, 0)


def test_a_thousand_mangled_messages_neither_stop_the_queue_nor_wake_the_engine(
    inbox: Inbox, caplog: pytest.LogCaptureFixture
):
    luck = Random("poison")
    taken = []
    with caplog.at_level(logging.WARNING):
        for number in range(1000):
            message = {"MessageId": str(number), "Body": mangled(luck), "ReceiptHandle": "r"}
            taken.append(inbox.queue._handle(message))
            inbox.queue._handle(message)  # it comes again
    verdicts = [verdict for verdict, _ in taken]
    about = [one.split(" ", 1)[1] for one in inbox.woken]
    assert len([one for one in about if one not in (BLOCK, INSTANCE)]) <= 1  # strangers: once a minute
    assert all(done is (verdict != "unreadable") for verdict, done in taken)
    assert len(caplog.records) == verdicts.count("unreadable") > 100
