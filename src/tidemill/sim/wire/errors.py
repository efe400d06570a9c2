"""What the wire answers instead of a result: an AWS error, or nothing at all.

The simulated account's own errors become AWS's here, in one place, with the code they carry.
"""

from __future__ import annotations

from typing import Any

from tidemill.model.errors import (
    Gone,
    NoCapacity,
    NotAllowed,
    OutcomeUnknown,
    Refused,
    Retryable,
    SpecError,
    Throttled,
    TidemillError,
)


class AwsError(Exception):
    """An error as AWS sends it. `fields` are the error's other members, where its model has any."""

    def __init__(self, code: str, message: str, status: int = 400, **fields: Any) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status, self.fields = code, message, status, fields


class AnsweredByMoto(Exception):
    """The account has no part in this call after all: moto answers it."""


class LostAnswer(ConnectionError):
    """The connection ends without an answer. Whether the call took effect, the caller cannot tell."""


def dry_run() -> AwsError:
    return AwsError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)


def unknown_operation(service: str, action: str) -> AwsError:
    """Not among the statuses that SDKs try again."""
    what = f"{service}:{action}" if action else f"this call of {service or 'an unnamed service'}"
    return not_simulated(what)


def not_simulated(what: str) -> AwsError:
    """Better refused than answered without effect."""
    return AwsError("NotImplemented", f"the simulated AWS does not simulate {what}", 501)


# EC2's codes for what every service refuses, and what others call the same.
_CODES = {
    "eks": {
        "MissingParameter": "InvalidParameterException",
        "InvalidParameterValue": "InvalidParameterException",
        "InvalidParameterCombination": "InvalidParameterException",
        "RequestLimitExceeded": "ThrottlingException",
        "InternalError": "ServerException",
    },
    "autoscaling": {
        "MissingParameter": "ValidationError",
        "InvalidParameterValue": "ValidationError",
        "InvalidParameterCombination": "ValidationError",
        "RequestLimitExceeded": "Throttling",
        "InternalError": "InternalFailure",
    },
}


def in_words_of(service: str, error: AwsError) -> AwsError:
    """With the code that the service itself would give."""
    code = _CODES.get(service, {}).get(error.code, error.code)
    return error if code == error.code else AwsError(code, error.message, error.status, **error.fields)


_FORBIDDEN = {"AuthFailure": 401}  # the others are 403


def as_aws_error(error: TidemillError) -> AwsError | LostAnswer:
    if isinstance(error, OutcomeUnknown):
        return LostAnswer(str(error))
    if isinstance(error, Throttled):
        return AwsError("RequestLimitExceeded", "Request limit exceeded.", 503)
    if isinstance(error, Retryable):
        return AwsError(error.code or "InternalError", str(error), 500)
    if isinstance(error, NotAllowed):
        return AwsError(error.code or "UnauthorizedOperation", str(error), _FORBIDDEN.get(error.code, 403))
    if isinstance(error, NoCapacity | Gone | Refused | SpecError):
        return AwsError(error.code or "InvalidParameterValue", str(error))
    return AwsError("InternalError", str(error), 500)
