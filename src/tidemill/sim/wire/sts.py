"""STS: the caller is whom the account says, or the user that an access key `as-NAME` names.

What one person proposes another can approve, as with AWS.
"""

from __future__ import annotations

from tidemill.sim.wire.operations import ApiCall, Result, operation

_USER = "as-"


@operation("sts", "GetCallerIdentity")
def caller(call: ApiCall) -> Result:
    arn = call.wire.cloud.identity()
    if call.key.startswith(_USER):
        arn = f"arn:aws:iam::{call.wire.account}:user/{call.key.removeprefix(_USER)}"
    return {"Account": call.wire.account, "Arn": arn, "UserId": f"AIDASIMULATED:{arn.rsplit('/', 1)[-1]}"}
