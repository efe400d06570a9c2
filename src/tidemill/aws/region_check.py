"""Whether the region of the documents is the one that is meant, before anything is bound to it.

A valid region with a typing error answers every question, with nothing in it. The platform's subnets tell.
"""

from __future__ import annotations

from tidemill.aws.fields import optional_record
from tidemill.aws.session import Aws
from tidemill.model.errors import SpecError
from tidemill.spec.platform import Platform

_MOST_VALUES = 200  # of a filter


def check_region(aws: Aws, platform: Platform) -> None:
    """SpecError: none of the platform's subnets is there. One that is there is enough: others may have been deleted."""
    named = sorted({id_ for subnets in platform.spec.subnets.values() for id_ in subnets})
    # A filter instead of SubnetIds: a deleted subnet must not fail the call.
    filters = [{"Name": "subnet-id", "Values": named[:_MOST_VALUES]}]
    found = aws.pages("ec2", "DescribeSubnets", "Subnets", Filters=filters) if named else ()
    there = {str(optional_record(record).get("SubnetId")) for record in found}
    if named and not there & set(named):
        raise SpecError(
            f"Platform {platform.name}: none of its subnets ({', '.join(named[:3])}) is in {platform.spec.region};"
            " check spec.region and spec.subnets. The ledger was not opened"
        )
