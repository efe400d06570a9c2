"""`ports.Compute` over boto3, put together from its parts: templates, launches, groups, node groups."""

from __future__ import annotations

from tidemill.aws.node_groups import AwsNodeGroups


class AwsCompute(AwsNodeGroups):
    """One owner's machines in one account and region."""
