"""Events on the wire: from what happens in the account to the queue, as AWS writes them, and what gets lost."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from tests.wire.groups import group, make_group
from tests.wire.server_builder import SimulatedAws
from tidemill.aws.event_queue import EventKind, read_event

pytestmark = pytest.mark.requirement("SM-7")


class Listening:
    """A queue that a rule sends everything of EC2's and Auto Scaling's to."""

    def __init__(self, aws: SimulatedAws, **rule: Any) -> None:
        self.sqs, events = aws.client("sqs"), aws.client("events")
        self.url = self.sqs.create_queue(QueueName="mill")["QueueUrl"]
        told = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=["QueueArn"])
        self.arn = told["Attributes"]["QueueArn"]
        pattern = json.dumps({"source": ["aws.ec2", "aws.autoscaling", "aws.health"]})
        events.put_rule(Name="mill", EventPattern=pattern, **rule)
        events.put_targets(Rule="mill", Targets=[{"Id": "queue", "Arn": self.arn}])

    def messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while more := self.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10).get("Messages"):
            found += [json.loads(one["Body"]) for one in more]
        return found

    def types(self) -> list[str]:
        return [message["detail-type"] for message in self.messages()]


def test_a_delivery_comes_in_a_whole_envelope(aws: SimulatedAws):
    listening = Listening(aws)
    block = aws.block(start=timedelta(hours=1)).id
    aws.server.advance(by=timedelta(hours=2))
    (message,) = [message for message in listening.messages() if "Delivered" in message["detail-type"]]
    assert set(message) == {
        "version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail",
    }  # fmt: skip
    assert (message["account"], message["source"]) == (aws.server.wire.account, "aws.ec2")
    assert message["detail"]["capacity-reservation-id"] == block
    assert read_event(json.dumps(message)).kind is EventKind.DELIVERED


def test_an_event_announces_the_end_of_a_block_ten_minutes_before_ec2_acts(aws: SimulatedAws):
    listening = Listening(aws)
    block = aws.block(count=2).id
    instances = aws.ids(block=block, MaxCount=2)
    listening.messages()
    end = aws.cloud.reservation(block).end
    aws.server.advance(to=end - timedelta(minutes=41))
    assert not [instance_type for instance_type in listening.types() if "Warning" in instance_type]
    aws.server.advance(to=end - timedelta(minutes=40))
    told = listening.messages()
    assert [one["detail-type"] for one in told].count("Capacity Block Reservation Expiration Warning") == 1
    warned = {one["detail"]["instance-id"] for one in told if "Interruption" in one["detail-type"]}
    assert warned == set(instances)


def test_a_rule_that_is_disabled_gets_nothing(aws: SimulatedAws):
    listening = Listening(aws, State="DISABLED")
    aws.run(aws.block().id)
    aws.server.advance(by=timedelta(minutes=5))
    assert listening.messages() == []


@pytest.mark.parametrize(("fault", "times"), [("event-lost", 0), ("event-doubled", 2)])
def test_events_can_get_lost_and_doubled_on_the_way(aws: SimulatedAws, fault: str, times: int):
    listening = Listening(aws)
    aws.block(start=timedelta(hours=1))
    aws.admin("faults", {"fault": fault})
    aws.server.advance(by=timedelta(hours=2))
    assert listening.types().count("Capacity Block Reservation Delivered") == times


def test_events_can_be_late(aws: SimulatedAws):
    listening = Listening(aws)
    aws.block(start=timedelta(hours=1))
    aws.admin("faults", {"fault": "event-late", "duration": "30m"})
    aws.server.advance(by=timedelta(minutes=70))
    assert listening.types() == []
    aws.server.advance(by=timedelta(minutes=30))
    assert listening.types() == ["Capacity Block Reservation Delivered"]


def test_a_retirement_is_a_health_event_and_a_spot_interruption_has_its_own_event(aws: SimulatedAws):
    listening = Listening(aws)
    (kept,) = aws.ids(block=aws.block().id)
    (spot,) = aws.ids(InstanceMarketOptions={"MarketType": "spot"})
    aws.wait("5m")
    listening.messages()
    aws.admin("faults", {"fault": "retirement", "target": kept, "duration": "3h"})
    aws.admin("faults", {"fault": "spot-interruption", "target": spot})
    read = [read_event(json.dumps(message)) for message in listening.messages()]
    assert [(one.kind, one.about) for one in read] == [(EventKind.HEALTH, (kept,)), (EventKind.SPOT, (spot,))]


def test_a_hooks_own_target_gets_a_test_first_and_then_the_bare_detail(aws: SimulatedAws):
    listening = Listening(aws, State="DISABLED")
    asg = aws.client("autoscaling")
    make_group(aws, aws.block(), DesiredCapacity=1)
    asg.put_lifecycle_hook(
        AutoScalingGroupName="g", LifecycleHookName="drain", HeartbeatTimeout=600,
        LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING", NotificationTargetARN=listening.arn,
        RoleARN="arn:aws:iam::123456789012:role/hooks",
    )  # fmt: skip
    assert [read_event(json.dumps(message)).kind for message in listening.messages()] == [EventKind.TEST]
    aws.wait("2m")
    asg.set_desired_capacity(AutoScalingGroupName="g", DesiredCapacity=0)
    aws.wait("5m")
    (told,) = listening.messages()
    assert "detail-type" not in told
    assert read_event(json.dumps(told)).about == (group(aws)["Instances"][0]["InstanceId"],)
