"""Who calls: whom the body says, whatever keys were used."""

from __future__ import annotations

from tidemill.sim.wire.operations import Asked, Result, operation


@operation("sts", "GetCallerIdentity")
def caller(asked: Asked) -> Result:
    arn = asked.wire.body.identity()
    return {
        "Account": asked.wire.account,
        "Arn": arn,
        "UserId": f"AIDA{'SIMULATED':0>17}:{arn.rsplit('/', 1)[-1]}",
    }
