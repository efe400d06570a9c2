"""A thousand mangled answers while somebody only looks: inspections and refreshes survive each, and only read."""

from __future__ import annotations

import copy
import json
import logging
from random import Random
from typing import Any

import pytest

from tests.aws.answers import CR, INSTANCE, extension_record, instance_record, reservation_record
from tests.aws.mangling import mangle
from tests.aws.test_fuzz import NOW, Clock
from tests.aws.test_types import listed, record
from tests.sim.account import ZONES
from tidemill.aws.account_survey import ReadOnlyAws, survey_account
from tidemill.aws.errors import CallKind
from tidemill.aws.prices import on_demand_prices
from tidemill.aws.session import Aws, RateLimits
from tidemill.aws.types import usable_types
from tidemill.catalog import load
from tidemill.catalog.refreshed import Refreshed, applied, read, written
from tidemill.model.errors import TidemillError
from tidemill.report.inspection import inspection
from tidemill.report.rows import plain


class Told(ReadOnlyAws):
    """Answers from a table instead of the network."""

    def __init__(self, answers: dict[str, Any]) -> None:
        super().__init__("us-east-1", rate_limits=RateLimits(sleep=lambda _: None))
        self.answers = answers

    def call(self, service: str, operation: str, kind: CallKind, **given: Any) -> dict[str, Any]:
        assert kind in (CallKind.READ, CallKind.QUESTION)
        answer: dict[str, Any] = self.answers[operation]
        return answer


def answers() -> dict[str, Any]:
    """One block with an instance on it, in a group that goes to zero and in a node group's."""
    target = {"CapacityReservationTarget": {"CapacityReservationId": CR}}
    data = {
        "InstanceType": "p5.48xlarge",
        "InstanceMarketOptions": {"MarketType": "capacity-block"},
        "CapacityReservationSpecification": target,
    }
    group = {
        "AutoScalingGroupName": "g", "MinSize": 0, "MaxSize": 2, "DesiredCapacity": 1,
        "LaunchTemplate": {"LaunchTemplateId": "lt-1", "Version": "1"}, "VPCZoneIdentifier": "subnet-1,subnet-2",
        "Instances": [{"InstanceId": INSTANCE, "LifecycleState": "InService"}],
        "Tags": [{"Key": "eks:nodegroup-name", "Value": "ng"}, {"Key": "eks:cluster-name", "Value": "ml"}],
    }  # fmt: skip
    mixed = {
        "AutoScalingGroupName": "m", "MinSize": 0, "MaxSize": 2, "DesiredCapacity": 1, "Instances": [], "Tags": [],
        "MixedInstancesPolicy": {"LaunchTemplate": {
            "LaunchTemplateSpecification": {"LaunchTemplateId": "lt-1", "Version": "2"},
            "Overrides": [{"InstanceType": "p4d.24xlarge"}]}},
        "CapacityReservationSpecification": {"CapacityReservationPreference": "default",
                                             "CapacityReservationTarget": {"CapacityReservationIds": [CR]}},
    }  # fmt: skip
    action = {
        "AutoScalingGroupName": "g",
        "ScheduledActionName": "down",
        "StartTime": NOW,
        "DesiredCapacity": 0,
    }
    hook = {
        "LifecycleHookName": "drain", "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
        "HeartbeatTimeout": 600, "DefaultResult": "CONTINUE",
    }  # fmt: skip
    return {
        "GetCallerIdentity": {"Arn": "arn:aws:sts::123456789012:assumed-role/mill/x"},
        "DescribeCapacityReservations": {"CapacityReservations": [reservation_record()]},
        "DescribeCapacityBlockExtensionHistory": {"CapacityBlockExtensions": [extension_record()]},
        "DescribeInstances": {"Reservations": [{"Instances": [instance_record()]}]},
        "DescribeAutoScalingGroups": {"AutoScalingGroups": [group, mixed]},
        "DescribeLaunchTemplateVersions": {"LaunchTemplateVersions": [{"LaunchTemplateData": data}]},
        "DescribeScheduledActions": {"ScheduledUpdateGroupActions": [action]},
        "DescribeLifecycleHooks": {"LifecycleHooks": [hook]},
        "DescribeNodegroup": {"nodegroup": {"status": "DEGRADED", "health": {"issues": [{"code": "x"}]}}},
        "DescribeSubnets": {"Subnets": [{"SubnetId": "subnet-1", "AvailabilityZone": ZONES[0]}]},
        "DescribeInstanceTypes": {"InstanceTypes": [record()]},
        "GetProducts": {"PriceList": [json.dumps(listed("g6.xlarge")), listed("g6.xlarge")]},
    }  # fmt: skip


def mangled(draw: Random, operation: str) -> dict[str, Any]:
    table = copy.deepcopy(answers())
    mangle(draw, table[operation])
    return table


def looked(aws: Told) -> None:
    found = inspection(survey_account(aws, Clock(), load()), load())
    json.dumps(plain(found))


def refreshed(aws: Aws) -> None:
    """What is kept can be read again, whatever AWS said."""
    types = usable_types(aws)
    if types:
        prices = on_demand_prices(aws, "us-east-1", [kind.name for kind in types])
        told = Refreshed(region="us-east-1", as_of=NOW.date(), source="x", types=types, on_demand=prices)
        assert read(written(told), "us-east-1") == told
        applied(told)


def test_valid_answers_are_read_completely():
    told = Told(answers())
    found = inspection(survey_account(told, Clock(), load()), load())
    assert not found.not_read
    assert [group.name for group in found.groups] == ["g", "m"]
    refreshed(told)


def test_a_thousand_mangled_answers_are_survived(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.CRITICAL)
    operations = list(answers())
    for number in range(1000):
        draw = Random(number)
        operation = operations[number % len(operations)]
        look = refreshed if operation in ("DescribeInstanceTypes", "GetProducts") else looked
        try:
            look(Told(mangled(draw, operation)))
        except TidemillError:
            pass  # said in our words, and nothing is shown or kept
        except Exception as error:
            pytest.fail(f"number {number}, {operation}: {type(error).__name__}: {error}")
