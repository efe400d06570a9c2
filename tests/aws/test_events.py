"""What is read out of messages: AWS's own in every wrapping, and nothing out of anything else."""

from __future__ import annotations

import json
from random import Random

import pytest

from tests.aws.messages import BLOCK, HOOK, INSTANCE, OURS, envelope, mangled
from tidemill.aws.event_queue import Event, EventKind, NotAnEvent, read_event


@pytest.mark.parametrize(("kind", "message"), OURS, ids=[f"{kind}-{n}" for n, (kind, _) in enumerate(OURS)])
def test_every_event_that_aws_documents_is_read(kind: str, message: dict):
    event = read_event(json.dumps(message))
    assert (event.kind, event.about) == (
        EventKind(kind),
        (BLOCK if kind.startswith("block-d") else event.about[0],),
    )
    assert event.about[0] in (BLOCK, INSTANCE)


def test_a_hook_is_the_same_in_an_envelope_bare_and_through_sns():
    wrapped = envelope("aws.autoscaling", "EC2 Instance-terminate Lifecycle Action", HOOK)
    bodies = [HOOK, {"Type": "Notification", "Message": json.dumps(HOOK)}, wrapped]
    assert {(read_event(json.dumps(body)).kind, read_event(json.dumps(body)).about) for body in bodies} == {
        (EventKind.HOOK, (INSTANCE,))
    }


def test_the_test_notification_of_a_group_is_recognised():
    assert read_event('{"Event":"autoscaling:TEST_NOTIFICATION"}').kind is EventKind.TEST


def test_an_event_with_our_detail_type_from_another_service_is_other():
    forged = envelope("my.app", "Capacity Block Reservation Delivered", {"capacity-reservation-id": BLOCK})
    assert read_event(json.dumps(forged)) == Event(
        EventKind.OTHER, (), "Capacity Block Reservation Delivered"
    )


@pytest.mark.parametrize(
    "body", ["", "null", "[]", "3", "{}", "{" * 9, "[" * 100_000, '{"detail-type": "x"}', "x" * 1_100_001]
)
def test_a_message_that_is_no_event_is_rejected(body: str):
    with pytest.raises(NotAnEvent):
        read_event(body)


def test_a_thousand_mangled_messages_give_known_ids_or_nothing():
    luck = Random("mangled")
    read, unreadable = 0, []
    for _ in range(1000):
        try:
            event = read_event(mangled(luck))
        except NotAnEvent as why:
            unreadable.append(str(why))
            continue
        read += 1
        assert all(
            one.startswith(("i-", "cr-")) and one[one.index("-") + 1 :].isalnum() for one in event.about
        )
    assert read > 100
    assert len(unreadable) > 100
    assert max(map(len, unreadable)) < 200  # it is logged, and a log is no place for what strangers send
