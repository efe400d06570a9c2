"""What the wire answers instead of a result: an AWS error, or nothing at all.

The simulated account's own errors become AWS's here, in one place, with the code they carry.
"""

from __future__ import annotations

from typing import Any

from tidemill.model.errors import (
    Gone,
    NoCapacity,
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
    return AwsError("NotImplemented", f"the simulated AWS does not know {what}", 501)


def as_aws_error(error: TidemillError) -> AwsError | LostAnswer:
    if isinstance(error, OutcomeUnknown):
        return LostAnswer(str(error))
    if isinstance(error, Throttled):
        return AwsError("RequestLimitExceeded", "Request limit exceeded.", 503)
    if isinstance(error, Retryable):
        return AwsError(error.code or "InternalError", str(error), 500)
    if isinstance(error, NoCapacity | Gone | Refused | SpecError):
        return AwsError(error.code or "InvalidParameterValue", str(error))
    return AwsError("InternalError", str(error), 500)
