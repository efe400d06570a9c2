"""More time on a block, through boto3."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest
from botocore.exceptions import ClientError

from tests.wire.server_builder import SimulatedAws
from tests.wire.test_blocks import code


def offers(aws: SimulatedAws, block: str, hours: int = 24, **given: object) -> list[dict[str, object]]:
    answer = aws.ec2.describe_capacity_block_extension_offerings(
        CapacityReservationId=block, CapacityBlockExtensionDurationHours=hours, **given
    )
    return list(answer["CapacityBlockExtensionOfferings"])


def history(aws: SimulatedAws, **filters: str) -> list[dict[str, object]]:
    asked = [{"Name": name.replace("_", "-"), "Values": [filters[name]]} for name in filters]
    return list(aws.ec2.describe_capacity_block_extension_history(Filters=asked)["CapacityBlockExtensions"])


@pytest.mark.requirement("CB-6")
@pytest.mark.requirement("CB-7")
def test_an_extension_is_offered_bought_and_moves_the_end_once_paid(aws: SimulatedAws):
    block = aws.block(duration="3d")
    (offer,) = offers(aws, block.id)
    assert offer["CapacityBlockExtensionDurationHours"] == 24
    assert int(str(offer["UpfrontFee"])) > 0
    (bought,) = aws.ec2.purchase_capacity_block_extension(
        CapacityBlockExtensionOfferingId=offer["CapacityBlockExtensionOfferingId"],
        CapacityReservationId=block.id,
    )["CapacityBlockExtensions"]
    assert bought["CapacityBlockExtensionStatus"] == "payment-pending"
    assert aws.reservations()[0]["EndDate"].astimezone(UTC) == block.end
    aws.wait("10m")
    (seen,) = history(
        aws, capacity_block_extension_offering_id=str(offer["CapacityBlockExtensionOfferingId"])
    )
    assert seen["CapacityBlockExtensionStatus"] == "payment-succeeded"
    assert seen["CapacityBlockExtensionDurationHours"] == 24
    assert block.end is not None
    assert aws.reservations()[0]["EndDate"].astimezone(UTC) == block.end + timedelta(days=1)
    assert history(aws, capacity_block_extension_status="payment-failed") == []
    assert history(aws, capacity_reservation_id=block.id) == [seen]


@pytest.mark.requirement("CB-7")
def test_an_extension_that_is_not_paid_leaves_the_end_where_it_was(aws: SimulatedAws):
    block = aws.block(duration="3d")
    (offer,) = offers(aws, block.id)
    aws.admin("faults", {"fault": "payment-fails"})
    aws.ec2.purchase_capacity_block_extension(
        CapacityBlockExtensionOfferingId=offer["CapacityBlockExtensionOfferingId"],
        CapacityReservationId=block.id,
    )
    with pytest.raises(ClientError, match="payment is pending"):
        offers(aws, block.id)
    aws.wait("13h")
    assert [one["CapacityBlockExtensionStatus"] for one in history(aws)] == ["payment-failed"]
    assert aws.reservations()[0]["EndDate"].astimezone(UTC) == block.end


@pytest.mark.requirement("CB-6")
def test_an_extension_that_ec2_does_not_sell_is_refused(aws: SimulatedAws):
    block = aws.block(duration="1d")
    with pytest.raises(ClientError, match="not a duration EC2 sells") as raised:
        offers(aws, block.id, hours=4320)
    assert code(raised) == ("InvalidParameterValue", 400)
    with pytest.raises(ClientError) as raised:
        offers(aws, block.id, DryRun=True)
    assert code(raised) == ("DryRunOperation", 412)
    aws.wait("23h30m")
    with pytest.raises(ClientError, match="56 days to 1 hour") as raised:
        offers(aws, block.id)
    with pytest.raises(ClientError) as raised:
        offers(aws, "cr-00000000000000000")
    assert code(raised) == ("InvalidCapacityReservationId.NotFound", 400)


def test_an_extension_nobody_offered_cannot_be_bought(aws: SimulatedAws):
    block = aws.block(duration="3d")
    with pytest.raises(ClientError) as raised:
        aws.ec2.purchase_capacity_block_extension(
            CapacityBlockExtensionOfferingId="cbe-00000000000000000", CapacityReservationId=block.id
        )
    assert code(raised) == ("InvalidCapacityBlockOfferingIdNotFound", 400)
    assert not aws.cloud.bought_extensions
