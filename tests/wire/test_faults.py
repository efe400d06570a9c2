"""What goes wrong on the wire: calls turned away, failed, left without an answer; and the account's own trouble."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from tests.wire.server_builder import OURS, Stand, specs
from tests.wire.test_blocks import code
from tidemill.spec.faults import ACCOUNT_FAULTS, CallFault, table


def arm(stand: Stand, fault: str, **given: Any) -> None:
    answer = stand.admin("faults", {"fault": fault, **given})
    assert "error" not in answer, answer


def purchase(stand: Stand, offer: str) -> Any:
    return stand.ec2.purchase_capacity_block(
        CapacityBlockOfferingId=offer,
        InstancePlatform="Linux/UNIX",
        TagSpecifications=specs("capacity-reservation", OURS),
    )


@pytest.mark.parametrize(
    ("fault", "refused"),
    [
        ("throttle", ("RequestLimitExceeded", 503)),
        ("unavailable", ("Unavailable", 503)),
        ("internal-error", ("InternalError", 500)),
    ],
)
def test_a_call_is_turned_away_and_nothing_happens(stand: Stand, fault: str, refused: tuple[str, int]):
    offer = stand.offers()[0]["CapacityBlockOfferingId"]
    arm(stand, fault, action="PurchaseCapacityBlock")
    assert stand.offers()  # aimed elsewhere
    with pytest.raises(ClientError) as raised:
        purchase(stand, offer)
    assert code(raised) == refused
    assert not stand.body.purchases
    assert purchase(stand, offer)  # used up


def test_throttling_lasts_as_long_as_it_was_armed_for(stand: Stand):
    arm(stand, "throttle", **{"for": "5m"})
    for call in (stand.reservations, stand.instances, stand.client("sts").get_caller_identity):
        with pytest.raises(ClientError) as raised:
            call()
        assert code(raised) == ("RequestLimitExceeded", 503)
    stand.wait("5m")
    assert stand.reservations() == []


def test_any_error_can_be_armed_and_taken_back(stand: Stand):
    said = "User: arn:aws:iam::1:user/x is not authorized to perform: ec2:DescribeInstances"
    arm(
        stand,
        "error",
        action="DescribeInstances",
        code="UnauthorizedOperation",
        message=said,
        status=403,
        times=99,
    )
    with pytest.raises(ClientError, match="not authorized to perform") as raised:
        stand.instances()
    assert code(raised) == ("UnauthorizedOperation", 403)
    arm(stand, "clear")
    assert stand.instances() == []


@pytest.mark.requirement("CB-4")
def test_a_lost_answer_leaves_the_purchase_made(stand: Stand):
    offer = stand.offers()[0]["CapacityBlockOfferingId"]
    arm(stand, "lost-answer", action="PurchaseCapacityBlock")
    with pytest.raises(ConnectionClosedError):
        purchase(stand, offer)
    stand.wait("2m")
    (bought,) = stand.reservations(Filters=[{"Name": "tag:deployment", "Values": ["mill"]}])
    assert bought["State"] == "payment-pending"


@pytest.mark.requirement("CB-4")
def test_an_error_may_come_after_the_purchase_was_made(stand: Stand):
    offer = stand.offers()[0]["CapacityBlockOfferingId"]
    arm(stand, "error-after", action="PurchaseCapacityBlock")
    with pytest.raises(ClientError) as raised:
        purchase(stand, offer)
    assert code(raised) == ("InternalError", 500)
    assert len(stand.body.purchases) == 1


@pytest.mark.requirement("CB-4")
def test_a_lost_request_looks_the_same_and_buys_nothing(stand: Stand):
    offer = stand.offers()[0]["CapacityBlockOfferingId"]
    arm(stand, "lost-request", action="PurchaseCapacityBlock")
    with pytest.raises(ConnectionClosedError):
        purchase(stand, offer)
    stand.wait("2m")
    assert stand.reservations() == []


@pytest.mark.requirement("CB-4")
def test_a_launch_whose_answer_is_lost_is_found_again_by_its_token(stand: Stand):
    block = stand.block(count=2)
    arm(stand, "lost-answer", action="RunInstances")
    asked: dict[str, Any] = {"block": block.id, "MaxCount": 2, "ClientToken": "once"}
    with pytest.raises(ConnectionClosedError):
        stand.run(**asked)
    ids = stand.ids(**asked)
    assert len(ids) == len(stand.body.instance_histories) == 2


@pytest.mark.requirement("CB-4")
def test_the_accounts_own_time_out_after_commit_closes_the_connection_too(stand: Stand):
    block = stand.block(count=2)
    arm(stand, "time-out-after-commit", call="launch")
    with pytest.raises(ConnectionClosedError):
        stand.run(block=block.id, ClientToken="once")
    assert stand.ids(block=block.id, ClientToken="once") == list(stand.body.instance_histories)


def test_a_launch_that_fails_inside_ec2_is_a_server_error(stand: Stand):
    arm(stand, "launches-fail")
    with pytest.raises(ClientError) as raised:
        stand.run(InstanceType="g6.xlarge")
    assert code(raised) == ("InternalError", 500)


@pytest.mark.requirement("CB-5")
def test_a_payment_that_fails_and_a_delivery_that_is_short(stand: Stand):
    arm(stand, "payment-fails")
    unpaid = stand.buy()["CapacityReservation"]["CapacityReservationId"]
    arm(stand, "short-delivery", count=1)
    paid = stand.buy()["CapacityReservation"]["CapacityReservationId"]
    stand.wait("13h")
    (seen,) = stand.reservations(CapacityReservationIds=[unpaid])
    assert seen["State"] == "payment-failed"
    stand.wait("20h")
    (seen,) = stand.reservations(CapacityReservationIds=[paid])
    assert (seen["State"], seen["TotalInstanceCount"]) == ("active", 1)
    to_come = {tag["Key"]: tag["Value"] for tag in seen["Tags"]}
    assert to_come["aws:ec2capacityreservation:incrementalRequestedQuantity"] == "2"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"fault": "trottle"}, "throttle"),
        ({"fault": "throttle", "target": "x"}, "takes duration, action, count, not target"),
        ({"fault": "no-capacity"}, "say for how long"),
        ({"fault": "no-capacity", "for": "soon"}, "soon"),
        ({"fault": "time-out-after-commit", "call": "tea"}, "launch, purchase or extension"),
        ([], "a JSON object"),
    ],
)
def test_a_fault_that_cannot_be_is_refused_with_what_to_write(stand: Stand, given: Any, said: str):
    assert said in stand.admin("faults", given)["error"]


def test_the_guide_has_the_table_of_faults():
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "aws-by-hand.md").read_text()
    assert table((*ACCOUNT_FAULTS, *CallFault)) in guide


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"fault": "instance-dies"}, {"fault": "node-dies", "struck": None}),
        ({"fault": "spot-interrupted"}, {"fault": "spot-interruption", "struck": None}),
        ({"fault": "retired", "for": "3h"}, {"fault": "retirement", "struck": None}),
        ({"fault": "launches-fail", "times": 2}, {"fault": "launch-fails"}),
        ({"fault": "time-out-after-commit", "call": "launch"}, {"fault": "lost-answer"}),
        ({"fault": "events-late", "times": 2, "for": "10m"}, {"fault": "event-late"}),
    ],
)
def test_the_old_names_of_faults_and_parameters_still_work(stand: Stand, old: Any, new: Any):
    assert stand.admin("faults", old) == new
