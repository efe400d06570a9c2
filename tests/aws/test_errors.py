"""What AWS's refusals mean: one table, read differently by what the call was for."""

from __future__ import annotations

from typing import Any

import botocore.exceptions as boto
import pytest

from tidemill.aws.errors import Call, CallKind, translate_error
from tidemill.model import errors
from tidemill.model.errors import TidemillError, label

DEFINITE = (errors.NoCapacity, errors.Refused, errors.Throttled)


def answered(
    code: str, kind: CallKind, message: str = "words", status: int = 400, operation: str = "RunInstances"
) -> TidemillError:
    response: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return translate_error(boto.ClientError(response, operation), Call("ec2", operation, kind, "us-east-1"))


def failed(error: Exception, kind: CallKind) -> TidemillError:
    return translate_error(error, Call("ec2", "DescribeInstances", kind, "us-esat-1"))


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize(
    "code",
    [
        "InternalError",
        "Unavailable",
        "ServiceUnavailable",
        "RequestTimeout",
        "SomethingNew",
        "",
        "PriorRequestNotComplete",
    ],
)
def test_an_unknown_error_code_after_a_purchase_leaves_the_outcome_unknown(code: str):
    for status in (400, 500, 503):
        assert type(answered(code, CallKind.PURCHASE, status=status)) is errors.OutcomeUnknown


@pytest.mark.requirement("CB-4")
@pytest.mark.parametrize(
    "error",
    [
        boto.ReadTimeoutError(endpoint_url="https://x"),
        boto.ConnectionClosedError(endpoint_url="https://x"),
        boto.HTTPClientError(error="gone"),
        boto.ResponseStreamingError(error="cut off"),
        ValueError("not XML"),
    ],
)
def test_a_purchase_without_an_answer_leaves_the_outcome_unknown(error: Exception):
    assert type(failed(error, CallKind.PURCHASE)) is errors.OutcomeUnknown


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("InvalidCapacityBlockOfferingIdExpired", errors.NoCapacity),
        ("InvalidCapacityBlockOfferingIdNotFound", errors.NoCapacity),
        ("InsufficientInstanceCapacity", errors.NoCapacity),
        ("InvalidCapacityBlockOfferingIdMalformed", errors.Refused),
        ("InvalidParameterValue", errors.Refused),
        ("RequestLimitExceeded", errors.Throttled),
        ("UnauthorizedOperation", errors.NotAllowed),
        ("ExpiredToken", errors.NotAllowed),
    ],
)
def test_a_documented_refusal_of_a_purchase_is_a_refusal(code: str, expected: type[TidemillError]):
    error = answered(code, CallKind.PURCHASE)
    assert type(error) is expected
    assert isinstance(error, DEFINITE)


def test_an_unsigned_purchase_is_not_allowed_and_an_unsent_one_is_retryable():
    assert isinstance(failed(boto.NoCredentialsError(), CallKind.PURCHASE), DEFINITE)
    unreachable = failed(boto.ConnectTimeoutError(endpoint_url="https://x"), CallKind.PURCHASE)
    assert type(unreachable) is errors.Retryable


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("ReservationCapacityExceeded", errors.NoCapacity),
        ("InvalidCapacityReservationState.PendingActivation", errors.NoCapacity),
        ("InvalidCapacityReservationId.NotFound", errors.NoCapacity),
        ("VcpuLimitExceeded", errors.NoCapacity),
        ("RequestLimitExceeded", errors.Throttled),
        ("SomethingNew", errors.Retryable),
        ("InvalidAMIID.NotFound", errors.Retryable),
        (
            "InvalidParameterValue",
            errors.Retryable,
        ),  # not Refused: the engine must write it down, and back off
        ("IdempotentParameterMismatch", errors.OutcomeUnknown),
    ],
)
def test_a_refused_launch_started_nothing(code: str, expected: type[TidemillError]):
    assert type(answered(code, CallKind.LAUNCH)) is expected


def test_an_invalid_endpoint_is_reported_with_its_environment_variable():
    error = failed(ValueError("Invalid endpoint: nonsense"), CallKind.READ)
    assert type(error) is errors.NotAllowed
    assert "write the whole URL, https://…, in AWS_ENDPOINT_URL" in str(error)


def test_a_launch_without_an_answer_is_repeated_with_its_token():
    assert type(answered("InternalError", CallKind.LAUNCH, status=500)) is errors.OutcomeUnknown
    assert (
        type(failed(boto.ReadTimeoutError(endpoint_url="https://x"), CallKind.LAUNCH))
        is errors.OutcomeUnknown
    )


def test_a_missing_object_is_gone_and_a_failed_read_is_retryable():
    assert type(answered("InvalidInstanceID.NotFound", CallKind.CHANGE)) is errors.Gone
    assert type(answered("InvalidInstanceID.NotFound", CallKind.PURCHASE)) is errors.Refused
    assert type(answered("InvalidParameterValue", CallKind.READ)) is errors.Retryable
    assert type(failed(boto.ReadTimeoutError(endpoint_url="https://x"), CallKind.READ)) is errors.Retryable


def test_a_refused_question_is_an_answer_and_a_server_error_is_not():
    assert type(answered("UnsupportedOperation", CallKind.QUESTION)) is errors.Refused
    assert type(answered("SomethingNew", CallKind.QUESTION)) is errors.Refused
    assert type(answered("InternalError", CallKind.QUESTION, status=500)) is errors.Retryable
    assert type(answered("CapacityBlockDescribeLimitExceeded", CallKind.QUESTION)) is errors.Throttled


@pytest.mark.requirement("PE-23")
def test_a_missing_permission_is_one_sentence_with_the_action_and_the_policy_that_has_it():
    said = (
        "You are not authorized to perform this operation. User: arn:aws:sts::123456789012:assumed-role/mill/x is "
        "not authorized to perform: iam:PassRole on resource: arn:aws:iam::123456789012:role/node because no "
        "identity-based policy allows the iam:PassRole action. Encoded authorization failure message: AAAABBBBCCCC"
    )
    error = answered("UnauthorizedOperation", CallKind.LAUNCH, said, 403)
    assert isinstance(error, errors.NotAllowed)
    assert str(error) == (
        "AWS does not allow iam:PassRole to arn:aws:sts::123456789012:assumed-role/mill/x: "
        "`tidemill iam provisioner` prints a policy that does"
    )
    assert label(error) == "not-allowed"


def test_the_policy_named_is_the_one_for_what_was_being_done():
    """Tags are written by the purchaser when a block is taken in, and by the provisioner along with a launch."""
    no = (
        "User: arn:aws:iam::123456789012:user/you is not authorized to perform: ec2:CreateTags on resource: x"
    )
    launching = answered("UnauthorizedOperation", CallKind.LAUNCH, no, 403, "RunInstances")
    adopting = answered("UnauthorizedOperation", CallKind.CHANGE, no, 403, "CreateTags")
    assert "tidemill iam provisioner" in str(launching)
    assert "tidemill iam purchaser" in str(adopting)


def test_a_refusal_that_names_no_action_is_about_the_call_itself():
    error = answered("UnauthorizedOperation", CallKind.PURCHASE, "no", 403, "PurchaseCapacityBlock")
    assert "ec2:PurchaseCapacityBlock" in str(error)
    assert "tidemill iam purchaser" in str(error)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (boto.NoCredentialsError(), "no usable AWS credentials for ec2:DescribeInstances"),
        (
            boto.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"),
            "AWS_SECRET_ACCESS_KEY",
        ),
        (boto.ProfileNotFound(profile="mill"), "(mill)"),
        (boto.NoRegionError(), "region 'us-esat-1'"),
        (
            boto.EndpointConnectionError(endpoint_url="https://x", error=OSError("Failed to resolve 'x'")),
            "check the region's spelling",
        ),
    ],
)
def test_missing_credentials_or_region_say_what_to_set(error: Exception, words: str):
    said = failed(error, CallKind.READ)
    assert isinstance(said, errors.NotAllowed)
    assert words in str(said)


def test_an_endpoint_that_refuses_the_connection_is_not_a_wrong_region():
    error = boto.EndpointConnectionError(
        endpoint_url="http://127.0.0.1:9", error=OSError("Connection refused")
    )
    assert type(failed(error, CallKind.READ)) is errors.Retryable


def test_rejected_credentials_say_what_to_do():
    assert "log in again" in str(answered("ExpiredToken", CallKind.READ))
    assert "clock" in str(answered("RequestExpired", CallKind.READ))
    assert "sts get-caller-identity" in str(answered("AuthFailure", CallKind.READ))


def test_a_message_of_many_lines_becomes_one_sentence():
    said = str(answered("SomethingNew", CallKind.READ, "first\n\tsecond\r\nthird. "))
    assert said == "RunInstances: first second third (SomethingNew)"
