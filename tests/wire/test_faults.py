"""Faults on the wire: calls that are throttled, fail or get no answer; and faults of the account."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from tests.wire.server_builder import OURS, SimulatedAws, specs
from tests.wire.test_blocks import code
from tidemill.spec.faults import ACCOUNT_FAULTS, CLUSTER_FAULTS, CallFault, table


def arm(aws: SimulatedAws, fault: str, **given: Any) -> None:
    answer = aws.admin("faults", {"fault": fault, **given})
    assert "error" not in answer, answer


def purchase(aws: SimulatedAws, offer: str) -> Any:
    return aws.ec2.purchase_capacity_block(
        CapacityBlockOfferingId=offer,
        InstancePlatform="Linux/UNIX",
        TagSpecifications=specs("capacity-reservation", OURS),
    )


def purchase_meets(aws: SimulatedAws, fault: str, error: type[Exception]) -> pytest.ExceptionInfo[Any]:
    offer = aws.offers()[0]["CapacityBlockOfferingId"]
    arm(aws, fault, action="PurchaseCapacityBlock")
    with pytest.raises(error) as raised:
        purchase(aws, offer)
    return raised


@pytest.mark.parametrize(
    ("fault", "refused"),
    [
        ("throttle", ("RequestLimitExceeded", 503)),
        ("unavailable", ("Unavailable", 503)),
        ("internal-error", ("InternalError", 500)),
    ],
)
def test_a_call_that_is_answered_with_an_error_changes_nothing(
    aws: SimulatedAws, fault: str, refused: tuple[str, int]
):
    offer = aws.offers()[0]["CapacityBlockOfferingId"]
    arm(aws, fault, action="PurchaseCapacityBlock")
    assert aws.offers()  # aimed elsewhere
    with pytest.raises(ClientError) as raised:
        purchase(aws, offer)
    assert code(raised) == refused
    assert not aws.cloud.purchases
    assert purchase(aws, offer)  # used up


def test_throttling_lasts_as_long_as_it_was_armed_for(aws: SimulatedAws):
    arm(aws, "throttle", **{"for": "5m"})
    for call in (aws.reservations, aws.instances, aws.client("sts").get_caller_identity):
        with pytest.raises(ClientError) as raised:
            call()
        assert code(raised) == ("RequestLimitExceeded", 503)
    aws.wait("5m")
    assert aws.reservations() == []


def test_any_error_can_be_armed_and_cleared(aws: SimulatedAws):
    said = "User: arn:aws:iam::1:user/x is not authorized to perform: ec2:DescribeInstances"
    arm(
        aws,
        "error",
        action="DescribeInstances",
        code="UnauthorizedOperation",
        message=said,
        status=403,
        times=99,
    )
    with pytest.raises(ClientError, match="not authorized to perform") as raised:
        aws.instances()
    assert code(raised) == ("UnauthorizedOperation", 403)
    arm(aws, "clear")
    assert aws.instances() == []


@pytest.mark.requirement("CB-4")
def test_a_lost_answer_leaves_the_purchase_made(aws: SimulatedAws):
    purchase_meets(aws, "lost-answer", ConnectionClosedError)
    aws.wait("2m")
    (bought,) = aws.reservations(Filters=[{"Name": "tag:deployment", "Values": ["mill"]}])
    assert bought["State"] == "payment-pending"


@pytest.mark.requirement("CB-4")
def test_an_error_may_come_after_the_purchase_was_made(aws: SimulatedAws):
    raised = purchase_meets(aws, "error-after", ClientError)
    assert code(raised) == ("InternalError", 500)
    assert len(aws.cloud.purchases) == 1


@pytest.mark.requirement("CB-4")
def test_a_lost_request_looks_the_same_and_buys_nothing(aws: SimulatedAws):
    purchase_meets(aws, "lost-request", ConnectionClosedError)
    aws.wait("2m")
    assert aws.reservations() == []


@pytest.mark.requirement("CB-4")
def test_a_launch_whose_answer_is_lost_is_found_again_by_its_token(aws: SimulatedAws):
    block = aws.block(count=2)
    arm(aws, "lost-answer", action="RunInstances")
    asked: dict[str, Any] = {"block": block.id, "MaxCount": 2, "ClientToken": "once"}
    with pytest.raises(ConnectionClosedError):
        aws.run(**asked)
    ids = aws.ids(**asked)
    assert len(ids) == len(aws.cloud.instance_histories) == 2


@pytest.mark.requirement("CB-4")
def test_the_accounts_own_time_out_after_commit_closes_the_connection_too(aws: SimulatedAws):
    block = aws.block(count=2)
    arm(aws, "time-out-after-commit", call="launch")
    with pytest.raises(ConnectionClosedError):
        aws.run(block=block.id, ClientToken="once")
    assert aws.ids(block=block.id, ClientToken="once") == list(aws.cloud.instance_histories)


def test_a_launch_that_fails_inside_ec2_is_a_server_error(aws: SimulatedAws):
    arm(aws, "launches-fail")
    with pytest.raises(ClientError) as raised:
        aws.run(InstanceType="g6.xlarge")
    assert code(raised) == ("InternalError", 500)


@pytest.mark.requirement("CB-5")
def test_a_payment_that_fails_and_a_delivery_that_is_short(aws: SimulatedAws):
    arm(aws, "payment-fails")
    unpaid = aws.buy()["CapacityReservation"]["CapacityReservationId"]
    arm(aws, "short-delivery", count=1)
    paid = aws.buy()["CapacityReservation"]["CapacityReservationId"]
    aws.wait("13h")
    (seen,) = aws.reservations(CapacityReservationIds=[unpaid])
    assert seen["State"] == "payment-failed"
    aws.wait("20h")
    (seen,) = aws.reservations(CapacityReservationIds=[paid])
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
def test_an_impossible_fault_is_refused_with_what_to_write(aws: SimulatedAws, given: Any, said: str):
    assert said in aws.admin("faults", given)["error"]


def test_the_guide_has_the_table_of_faults():
    guides = Path(__file__).parents[2] / "docs" / "guides"
    guide = (guides / "aws-by-hand.md").read_text()
    assert table((*ACCOUNT_FAULTS, *CallFault)) in guide
    assert table(CLUSTER_FAULTS) in (guides / "cluster-by-hand.md").read_text()


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
def test_the_old_names_of_faults_and_parameters_still_work(aws: SimulatedAws, old: Any, new: Any):
    assert aws.admin("faults", old) == new
