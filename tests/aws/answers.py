"""Records as EC2 answers with, for the tests: builders with keyword overrides. `None` leaves a key out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.sim.account import OWNER, P5, START, ZONES
from tidemill.spec import names

CR = "cr-0123456789abcdef0"
INSTANCE = "i-0123456789abcdef0"


def tag_list(**given: str) -> list[dict[str, str]]:
    keys = {"owner": names.TAG_OWNER, "pool": names.TAG_POOL, "intent": names.TAG_INTENT,
            "provisioner": names.TAG_PROVISIONER, "fee": names.TAG_FEE,
            "to_come": "aws:ec2capacityreservation:incrementalRequestedQuantity"}  # fmt: skip
    return [{"Key": keys.get(key, key), "Value": value} for key, value in given.items()]


def reservation_record(**given: Any) -> dict[str, Any]:
    """An active block of ours: two instances, one of them free."""
    return _but(
        {
            "CapacityReservationId": CR,
            "OwnerId": "123456789012",
            "InstanceType": P5,
            "InstancePlatform": "Linux/UNIX",
            "AvailabilityZone": ZONES[0],
            "TotalInstanceCount": 2,
            "AvailableInstanceCount": 1,
            "State": "active",
            "StartDate": START,
            "EndDate": START + timedelta(days=2),
            "EndDateType": "limited",
            "CreateDate": START - timedelta(days=3),
            "ReservationType": "capacity-block",
            "Tags": tag_list(owner=OWNER, pool="train", intent="p-1", fee="6656"),
        },
        given,
    )


def instance_record(**given: Any) -> dict[str, Any]:
    """A running instance of ours on the block."""
    return _but(
        {
            "InstanceId": INSTANCE,
            "InstanceType": P5,
            "Placement": {"AvailabilityZone": ZONES[0]},
            "State": {"Code": 16, "Name": "running"},
            "LaunchTime": START,
            "InstanceLifecycle": "capacity-block",
            "CapacityReservationId": CR,
            "Tags": tag_list(owner=OWNER, pool="train", intent="l-1", provisioner="native"),
        },
        given,
    )


def offer_record(**given: Any) -> dict[str, Any]:
    return _but(
        {
            "CapacityBlockOfferingId": "cb-0123456789abcdef0",
            "InstanceType": P5,
            "AvailabilityZone": ZONES[0],
            "InstanceCount": 2,
            "StartDate": START + timedelta(days=1),
            "EndDate": START + timedelta(days=3),
            "CapacityBlockDurationHours": 48,
            "UpfrontFee": "3625",
            "CurrencyCode": "USD",
            "Tenancy": "default",
        },
        given,
    )


def extension_record(**given: Any) -> dict[str, Any]:
    return _but(
        {
            "CapacityReservationId": CR,
            "InstanceType": P5,
            "InstanceCount": 2,
            "AvailabilityZone": ZONES[0],
            "CapacityBlockExtensionOfferingId": "cbe-0123456789abcdef0",
            "CapacityBlockExtensionDurationHours": 24,
            "CapacityBlockExtensionStatus": "payment-succeeded",
            "CapacityBlockExtensionPurchaseDate": START,
            "CapacityBlockExtensionStartDate": START + timedelta(days=2),
            "CapacityBlockExtensionEndDate": START + timedelta(days=3),
            "UpfrontFee": "1813",
            "CurrencyCode": "USD",
        },
        given,
    )


def status_record(*events: dict[str, Any], **given: Any) -> dict[str, Any]:
    return _but({"InstanceId": INSTANCE, "Events": list(events)}, given)


def event(code: str = "instance-retirement", **given: Any) -> dict[str, Any]:
    return _but(
        {
            "Code": code,
            "Description": "The instance runs on failing hardware",
            "NotBefore": START + timedelta(days=1),
        },
        given,
    )


def spot_record(**given: Any) -> dict[str, Any]:
    at = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
    status = {"Code": "marked-for-termination", "UpdateTime": at, "Message": "…"}
    return _but({"SpotInstanceRequestId": "sir-abcdefgh", "InstanceId": INSTANCE, "Status": status}, given)


def _but(record: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in (record | given).items() if value is not None}
