"""Capacity Blocks through boto3: what is offered, bought, listed and refused."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest
from botocore.exceptions import ClientError

from tests.sim.account import GB200, P5, START, ZONES
from tests.wire.server_builder import OURS, SimulatedAws, specs, tags_of


def code(raised: pytest.ExceptionInfo[ClientError]) -> tuple[str, int]:
    answer = raised.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


# --- offerings ----------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-1")
def test_offerings_are_those_of_the_account_as_ec2_writes_them(aws: SimulatedAws):
    offers = aws.offers()
    ours = aws.account.offers(latest_end=START + timedelta(days=60))
    assert [offer["CapacityBlockOfferingId"] for offer in offers] == [offer.id for offer in ours]
    first = offers[0]
    assert (first["InstanceType"], first["InstanceCount"]) == (P5, 2)
    assert (first["UpfrontFee"], first["CurrencyCode"]) == (str(ours[0].fee_usd), "USD")
    assert first["StartDate"].astimezone(UTC) == ours[0].start
    assert first["EndDate"].astimezone(UTC) == ours[0].end
    length = timedelta(
        hours=first["CapacityBlockDurationHours"], minutes=first["CapacityBlockDurationMinutes"]
    )
    assert length == ours[0].end - ours[0].start


@pytest.mark.requirement("CB-1")
def test_the_end_of_the_range_is_the_latest_end_and_its_start_the_earliest_start(aws: SimulatedAws):
    earliest, latest = START + timedelta(days=2), START + timedelta(days=5)
    offers = aws.offers(StartDateRange=earliest, EndDateRange=latest, AllAvailabilityZones=True)
    assert offers
    for offer in offers:
        assert earliest <= offer["StartDate"] < offer["EndDate"] <= latest


@pytest.mark.requirement("CB-2")
@pytest.mark.parametrize(
    "given", [{"CapacityDurationHours": 4320}, {"InstanceCount": 65}, {"InstanceType": "p9.xlarge"}]
)
def test_a_block_that_ec2_does_not_sell_is_refused(aws: SimulatedAws, given: dict[str, object]):
    with pytest.raises(ClientError) as raised:
        aws.offers(**given)
    assert code(raised) == ("InvalidParameterValue", 400)


def test_offerings_come_in_pages(aws: SimulatedAws):
    pages = aws.ec2.get_paginator("describe_capacity_block_offerings").paginate(
        InstanceType=P5, InstanceCount=2, CapacityDurationHours=48, PaginationConfig={"PageSize": 4}
    )
    found = [[offer["CapacityBlockOfferingId"] for offer in page["CapacityBlockOfferings"]] for page in pages]
    assert [len(page) for page in found] == [4, 2]
    assert [id_ for page in found for id_ in page] == [
        offer["CapacityBlockOfferingId"] for offer in aws.offers()
    ]


@pytest.mark.requirement("CB-15")
def test_ultraservers_are_asked_for_and_bought_by_the_ultraserver(aws: SimulatedAws):
    offers = aws.ec2.describe_capacity_block_offerings(
        UltraserverType="u-p6e-gb200x72", UltraserverCount=2, CapacityDurationHours=48
    )["CapacityBlockOfferings"]
    assert (offers[0]["InstanceType"], offers[0]["InstanceCount"]) == (GB200, 36)
    assert (offers[0]["UltraserverType"], offers[0]["UltraserverCount"]) == ("u-p6e-gb200x72", 2)
    bought = aws.ec2.purchase_capacity_block(
        CapacityBlockOfferingId=offers[0]["CapacityBlockOfferingId"], InstancePlatform="Linux/UNIX"
    )
    ids = [block["CapacityReservationIds"] for block in bought["CapacityBlocks"]]
    assert len(ids) == 2
    assert ids[0] == [bought["CapacityReservation"]["CapacityReservationId"]]
    assert {block["UltraserverType"] for block in bought["CapacityBlocks"]} == {"u-p6e-gb200x72"}


# --- buying -------------------------------------------------------------------------------------------


@pytest.mark.requirement("CB-3")
def test_a_block_is_bought_with_its_tags_and_followed_to_its_end(aws: SimulatedAws):
    bought = aws.buy(**OURS, cost_center="42")["CapacityReservation"]
    assert bought["State"] == "payment-pending"
    assert tags_of(bought) == {**OURS, "cost_center": "42"}
    id_ = bought["CapacityReservationId"]
    states = []
    for at in (START + timedelta(hours=1), bought["StartDate"], bought["EndDate"]):
        aws.admin("advance", {"to": f"{at:%Y-%m-%dT%H:%M:%SZ}"})
        (seen,) = aws.reservations(CapacityReservationIds=[id_])
        states.append(seen["State"])
    assert states == ["scheduled", "active", "expired"]
    assert aws.account.reservation(id_).tags == tuple(sorted({**OURS, "cost_center": "42"}.items()))


@pytest.mark.requirement("CB-5")
def test_before_its_start_a_block_shows_no_instances_but_the_number_to_come(aws: SimulatedAws):
    aws.buy(**OURS)
    aws.wait("10m")
    (seen,) = aws.reservations()
    assert seen["State"] == "scheduled"
    assert (seen["TotalInstanceCount"], seen["AvailableInstanceCount"]) == (0, 0)
    to_come = {tag["Key"]: tag["Value"] for tag in seen["Tags"]}
    assert to_come["aws:ec2capacityreservation:incrementalRequestedQuantity"] == "2"
    assert seen["ReservationType"] == "capacity-block"


@pytest.mark.requirement("CB-4")
def test_the_purchase_takes_no_token_and_buys_twice_when_called_twice(aws: SimulatedAws):
    offer = aws.offers()[-1]["CapacityBlockOfferingId"]
    ids = set()
    for _ in range(2):
        answer = aws.ec2.purchase_capacity_block(CapacityBlockOfferingId=offer, InstancePlatform="Linux/UNIX")
        ids.add(answer["CapacityReservation"]["CapacityReservationId"])
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"CapacityBlockOfferingId": "cb-00000000000000000"}, "InvalidCapacityBlockOfferingIdNotFound"),
        ({"CapacityBlockOfferingId": "offer"}, "InvalidCapacityBlockOfferingIdMalformed"),
        ({"InstancePlatform": "Windows"}, "InvalidParameterValue"),
        ({"TagSpecifications": specs("instance", {"a": "b"})}, "InvalidParameterValue"),
        ({"TagSpecifications": specs("capacity-reservation", {"aws:a": "b"})}, "InvalidParameterValue"),
    ],
)
def test_an_impossible_purchase_is_refused_and_buys_nothing(
    aws: SimulatedAws, given: dict[str, object], refused: str
):
    asked = {"CapacityBlockOfferingId": aws.offers()[0]["CapacityBlockOfferingId"]}
    with pytest.raises(ClientError) as raised:
        aws.ec2.purchase_capacity_block(**{**asked, "InstancePlatform": "Linux/UNIX", **given})
    assert code(raised) == (refused, 400)
    assert not aws.cloud.purchases


def test_an_offering_that_was_shown_and_is_gone_is_an_expired_one(aws: SimulatedAws):
    offer = aws.offers()[0]["CapacityBlockOfferingId"]
    aws.wait("3d")
    with pytest.raises(ClientError) as raised:
        aws.ec2.purchase_capacity_block(CapacityBlockOfferingId=offer, InstancePlatform="Linux/UNIX")
    assert code(raised) == ("InvalidCapacityBlockOfferingIdExpired", 400)


def test_a_dry_run_would_succeed_and_changes_nothing(aws: SimulatedAws):
    with pytest.raises(ClientError) as raised:
        aws.offers(DryRun=True)
    assert code(raised) == ("DryRunOperation", 412)
    offer = aws.offers()[0]["CapacityBlockOfferingId"]
    with pytest.raises(ClientError) as raised:
        aws.ec2.purchase_capacity_block(
            CapacityBlockOfferingId=offer, InstancePlatform="Linux/UNIX", DryRun=True
        )
    assert code(raised) == ("DryRunOperation", 412)
    assert not aws.cloud.purchases


# --- listing ------------------------------------------------------------------------------------------


def test_reservations_are_filtered_by_what_ec2_filters_by(aws: SimulatedAws):
    a = aws.block(name="a", zone=ZONES[0])
    b = aws.block(name="b", zone=ZONES[1], start="2d")

    def found(*filters: tuple[str, str]) -> set[str]:
        asked = [{"Name": name, "Values": [value]} for name, value in filters]
        return {reservation["CapacityReservationId"] for reservation in aws.reservations(Filters=asked)}

    assert found(("state", "active")) == {a.id}
    assert found(("availability-zone", ZONES[1])) == {b.id}
    assert found(("instance-type", "p5.*")) == {a.id, b.id}
    assert found(("tag:deployment", "mill")) == {a.id, b.id}
    assert found(("tag:deployment", "m?ll"), ("state", "scheduled")) == {b.id}
    assert found(("tag-key", "nobody")) == set()
    assert found(("reservation-type", "capacity-block")) == {a.id, b.id}
    with pytest.raises(ClientError) as raised:
        found(("colour", "red"))
    assert code(raised) == ("InvalidParameterValue", 400)


def test_reservations_come_in_pages_that_neither_repeat_nor_skip(aws: SimulatedAws):
    ids = [aws.block(name=f"b{n}", count=1).id for n in range(5)]
    first = aws.ec2.describe_capacity_reservations(MaxResults=2)
    aws.block(name="late")
    seen = [one["CapacityReservationId"] for one in first["CapacityReservations"]]
    while token := first.get("NextToken"):
        first = aws.ec2.describe_capacity_reservations(MaxResults=2, NextToken=token)
        seen += [one["CapacityReservationId"] for one in first["CapacityReservations"]]
    assert seen == ids
    with pytest.raises(ClientError) as raised:
        aws.ec2.describe_capacity_reservations(NextToken="made-up")
    assert code(raised) == ("InvalidNextToken", 400)


def test_an_unknown_reservation_is_not_found(aws: SimulatedAws):
    for id_, refused in (("cr-0", "NotFound"), ("x-1", "Malformed")):
        with pytest.raises(ClientError) as raised:
            aws.reservations(CapacityReservationIds=[id_])
        assert code(raised) == (f"InvalidCapacityReservationId.{refused}", 400)


def test_a_block_can_be_neither_cancelled_nor_modified(aws: SimulatedAws):
    id_ = aws.block().id
    for call in (aws.ec2.cancel_capacity_reservation, aws.ec2.modify_capacity_reservation):
        with pytest.raises(ClientError, match="Capacity Block") as raised:
            call(CapacityReservationId=id_)
        assert code(raised) == ("UnsupportedOperation", 400)


def test_blocks_and_their_status_are_listed(aws: SimulatedAws):
    a = aws.block(count=4, delivered=3)
    (block,) = aws.ec2.describe_capacity_blocks()["CapacityBlocks"]
    assert block["CapacityReservationIds"] == [a.id]
    assert block["State"] == "active"
    (status,) = aws.ec2.describe_capacity_block_status(CapacityBlockIds=[block["CapacityBlockId"]])[
        "CapacityBlockStatuses"
    ]
    assert status["InterconnectStatus"] == "ok"
    assert (status["TotalCapacity"], status["TotalUnavailableCapacity"]) == (4, 1)
    assert status["CapacityReservationStatuses"][0]["CapacityReservationId"] == a.id


# --- a block of another account -------------------------------------------------------------------------


@pytest.mark.requirement("CB-17")
def test_a_shared_block_names_its_owner_and_is_not_ours_to_tag(aws: SimulatedAws):
    given = {"name": "theirs", "instanceType": P5, "count": 1, "zone": ZONES[0], "duration": "72h"}
    id_ = aws.admin("blocks", {**given, "shared": True})["id"]
    (shown,) = aws.ec2.describe_capacity_reservations()["CapacityReservations"]
    assert (shown["CapacityReservationId"], shown["OwnerId"]) == (id_, "111122223333")
    assert ":111122223333:capacity-reservation/" in shown["CapacityReservationArn"]
    for call in (aws.ec2.create_tags, aws.ec2.delete_tags):
        with pytest.raises(ClientError) as raised:
            call(Resources=[id_], Tags=[{"Key": "deployment", "Value": "mill"}])
        assert code(raised) == ("UnauthorizedOperation", 403)
    own = aws.admin("blocks", {**given, "name": "ours"})["id"]
    aws.ec2.create_tags(Resources=[own], Tags=[{"Key": "deployment", "Value": "mill"}])
    assert "error" in aws.admin("blocks", {"name": "nothing"})


def test_a_block_can_end_off_the_grid_for_clients_whose_clock_nobody_can_move(aws: SimulatedAws):
    given = {
        "name": "soon",
        "instanceType": P5,
        "count": 1,
        "zone": ZONES[0],
        "duration": "1d",
        "endsIn": "42m",
    }
    made = aws.admin("blocks", given)
    (found,) = aws.reservations(CapacityReservationIds=[made["id"]])
    assert found["EndDate"] == aws.account.now + timedelta(minutes=42)
    aws.ids(block=made["id"])
    aws.wait("13m")
    assert [one["State"]["Name"] for one in aws.instances()] == ["shutting-down"], (
        "half an hour before its end"
    )
