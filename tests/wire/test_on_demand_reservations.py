"""On-demand capacity reservations through boto3: made, launched into, changed, cancelled, billed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sim.account import ZONES
from tests.wire.groups import make_group, template
from tests.wire.server_builder import OURS, SimulatedAws, specs, tags_of
from tests.wire.test_blocks import code
from tidemill.model.capacity import SourceKind

G6, USD_H = "g6.xlarge", 0.8048


def reserve(aws: SimulatedAws, **given: Any) -> Any:
    asked: dict[str, Any] = {
        "InstanceType": G6,
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": ZONES[0],
        "InstanceCount": 2,
        "InstanceMatchCriteria": "targeted",
        "TagSpecifications": specs("capacity-reservation", OURS),
    }
    return aws.ec2.create_capacity_reservation(**asked | given)["CapacityReservation"]


def into(id_: str) -> dict[str, Any]:
    target = {"CapacityReservationTarget": {"CapacityReservationId": id_}}
    return {"InstanceType": G6, "CapacityReservationSpecification": target}


def usd(aws: SimulatedAws) -> float:
    return float(aws.cloud.hourly_usd()[SourceKind.ODCR])


@pytest.mark.requirement("CB-14")
def test_it_is_there_at_once_holds_instances_and_costs_the_same_used_or_not(aws: SimulatedAws):
    made = reserve(aws)
    assert (made["State"], made["AvailableInstanceCount"], made["ReservationType"]) == (
        "active",
        2,
        "default",
    )
    assert made["EndDateType"] == "unlimited"
    (shown,) = aws.reservations(CapacityReservationIds=[made["CapacityReservationId"]])
    assert tags_of(shown) == OURS
    before = usd(aws)
    aws.wait("1h")
    assert usd(aws) - before == pytest.approx(2 * USD_H, rel=0.01)
    aws.run(**into(made["CapacityReservationId"]))
    (shown,) = aws.reservations(CapacityReservationIds=[made["CapacityReservationId"]])
    assert shown["AvailableInstanceCount"] == 1
    with pytest.raises(ClientError) as raised:
        aws.run(**into(made["CapacityReservationId"]), MinCount=2, MaxCount=2)
    assert code(raised)[0] == "ReservationCapacityExceeded"


@pytest.mark.requirement("CB-14")
def test_by_default_it_is_open_and_filled_by_launches_that_name_no_reservation(aws: SimulatedAws):
    made = aws.ec2.create_capacity_reservation(
        InstanceType=G6, InstancePlatform="Linux/UNIX", AvailabilityZone=ZONES[0], InstanceCount=2
    )["CapacityReservation"]
    id_ = made["CapacityReservationId"]
    assert made["InstanceMatchCriteria"] == "open"
    opted_out = {"CapacityReservationPreference": "none"}
    (out,) = aws.run(InstanceType=G6, CapacityReservationSpecification=opted_out)["Instances"]
    assert "CapacityReservationId" not in out
    assert out["CapacityReservationSpecification"] == opted_out
    other_zone = next(subnet.id for subnet in aws.network.subnets if subnet.zone == ZONES[1])
    (elsewhere,) = aws.run(InstanceType=G6, SubnetId=other_zone)["Instances"]
    assert "CapacityReservationId" not in elsewhere
    three = aws.run(InstanceType=G6, MinCount=3, MaxCount=3)["Instances"]
    assert [one.get("CapacityReservationId") for one in three] == [id_, id_, None]
    (shown,) = aws.reservations(Filters=[{"Name": "instance-match-criteria", "Values": ["open"]}])
    assert shown["AvailableInstanceCount"] == 0
    aws.wait("2m")
    aws.ec2.terminate_instances(InstanceIds=[three[0]["InstanceId"]])
    aws.wait("15m")
    assert aws.reservations(CapacityReservationIds=[id_])[0]["AvailableInstanceCount"] == 1


def test_a_group_fills_an_open_one_too(aws: SimulatedAws):
    made = reserve(aws, InstanceMatchCriteria="open")
    make_group(aws, LaunchTemplate=template(aws, name="lt-open", InstanceType=G6), DesiredCapacity=1)
    aws.wait("5m")
    (shown,) = aws.reservations(CapacityReservationIds=[made["CapacityReservationId"]])
    assert shown["AvailableInstanceCount"] == 1


@pytest.mark.requirement("CB-14")
def test_a_repeated_request_with_its_token_makes_one(aws: SimulatedAws):
    ids = {reserve(aws, ClientToken="once")["CapacityReservationId"] for _ in range(2)}
    assert len(ids) == len(aws.reservations()) == 1


def test_it_is_changed_within_what_runs_on_it(aws: SimulatedAws):
    id_ = reserve(aws)["CapacityReservationId"]
    aws.run(**into(id_), MinCount=2, MaxCount=2)
    with pytest.raises(ClientError):
        aws.ec2.modify_capacity_reservation(CapacityReservationId=id_, InstanceCount=1)
    aws.ec2.modify_capacity_reservation(CapacityReservationId=id_, InstanceCount=5)
    (shown,) = aws.reservations(CapacityReservationIds=[id_])
    assert (shown["TotalInstanceCount"], shown["AvailableInstanceCount"]) == (5, 3)
    before = usd(aws)
    aws.wait("1h")
    assert usd(aws) - before == pytest.approx(5 * USD_H, rel=0.01)


def test_cancelled_its_instances_run_on_and_are_paid_by_themselves(aws: SimulatedAws):
    id_ = reserve(aws)["CapacityReservationId"]
    (instance,) = aws.ids(**into(id_))
    aws.ec2.cancel_capacity_reservation(CapacityReservationId=id_)
    (shown,) = aws.reservations(CapacityReservationIds=[id_])
    assert (shown["State"], shown["AvailableInstanceCount"]) == ("cancelled", 0)
    before, by_the_hour = usd(aws), aws.cloud.hourly_usd()[SourceKind.ON_DEMAND]
    aws.wait("1h")
    assert usd(aws) == before
    assert aws.cloud.hourly_usd()[SourceKind.ON_DEMAND] - by_the_hour == pytest.approx(USD_H, rel=0.05)
    (described,) = aws.instances(InstanceIds=[instance])
    assert described["State"]["Name"] == "running"


def test_with_an_end_it_is_over_by_then(aws: SimulatedAws):
    end = aws.server.wire.clock.now() + timedelta(hours=2)
    id_ = reserve(aws, EndDate=end, EndDateType="limited")["CapacityReservationId"]
    aws.wait("3h")
    assert aws.reservations(CapacityReservationIds=[id_])[0]["State"] == "expired"


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"InstanceMatchCriteria": "any"}, "InvalidParameterValue"),
        ({"InstanceType": "g6.huge"}, "InvalidParameterValue"),
        ({"InstanceType": "p5e.48xlarge"}, "Unsupported"),
        ({"AvailabilityZone": "us-east-1z"}, "InvalidParameterValue"),
        ({"InstanceCount": 0}, "InvalidParameterValue"),
        ({"InstancePlatform": "BeOS"}, "InvalidParameterValue"),
        ({"EndDateType": "limited"}, "InvalidParameterCombination"),
        ({"DryRun": True}, "DryRunOperation"),
    ],
)
def test_an_impossible_one_is_refused(aws: SimulatedAws, given: dict[str, Any], refused: str):
    with pytest.raises(ClientError) as raised:
        reserve(aws, **given)
    assert code(raised)[0] == refused
    assert not aws.reservations()


def test_a_block_is_neither_cancelled_nor_changed(aws: SimulatedAws):
    block = aws.block(count=2)
    for change in (aws.ec2.cancel_capacity_reservation, aws.ec2.modify_capacity_reservation):
        with pytest.raises(ClientError, match="Capacity Block"):
            change(CapacityReservationId=block.id)
