"""`machines.Machines` over boto3, put together from its parts: templates, launches, groups, node groups."""

from __future__ import annotations

from tidemill.aws.launches import AwsLaunches


class AwsMachines(AwsLaunches):
    """One owner's machines in one account and region."""
