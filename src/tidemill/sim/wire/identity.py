"""STS and IAM: who calls, and what moto's IAM leaves out.

The caller is whom the account says, or the user that an access key `as-NAME` names: what one person proposes another
can approve, as with AWS.
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


@operation("iam", "ListInstanceProfiles")
def instance_profiles(call: ApiCall) -> Result:
    """moto lists those of every path, and Karpenter deletes what it finds under its own."""
    prefix = str(call.get("PathPrefix", "/"))
    found = [one for one in call.wire.iam.get_instance_profiles() if str(one.path).startswith(prefix)]
    return {"InstanceProfiles": found, "IsTruncated": False}
