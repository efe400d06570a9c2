"""Who calls: whom the body says, or the user that an access key `as-NAME` names.

So that what one person proposes another can approve, as with AWS.
"""

from __future__ import annotations

from tidemill.sim.wire.operations import Asked, Result, operation

_USER = "as-"


@operation("sts", "GetCallerIdentity")
def caller(asked: Asked) -> Result:
    arn = asked.wire.body.identity()
    if asked.key.startswith(_USER):
        arn = f"arn:aws:iam::{asked.wire.account}:user/{asked.key.removeprefix(_USER)}"
    return {"Account": asked.wire.account, "Arn": arn, "UserId": f"AIDASIMULATED:{arn.rsplit('/', 1)[-1]}"}
