"""The way into a cluster that knows no access entries: the `aws-auth` ConfigMap's entry for the nodes' roles.

Only where authenticationMode is CONFIG_MAP. Others' entries are theirs: this is what is to be added to mapRoles.
"""

from __future__ import annotations

from typing import Any

import yaml

from tidemill.model.errors import SpecError
from tidemill.spec import Spec

_GROUPS = ["system:bootstrappers", "system:nodes"]


def config_map(spec: Spec) -> dict[str, Any]:
    """SpecError: no role is named, or none whose ARN can be told."""
    named = {spec.platform.spec.node_role, *(one.spec.role for one in spec.node_classes.values())} - {""}
    if not named:
        raise SpecError(f"Platform {spec.platform.name}: spec.nodeRole is not set, so nobody could be let in")
    entries = [
        {"rolearn": _arn(spec, role), "username": "system:node:{{EC2PrivateDNSName}}", "groups": _GROUPS}
        for role in sorted(named)
    ]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "aws-auth", "namespace": "kube-system"},
        "data": {"mapRoles": yaml.safe_dump(entries, sort_keys=False)},
    }


def _arn(spec: Spec, role: str) -> str:
    if ":instance-profile/" in role:
        raise SpecError(
            f"{role} is an instance profile: aws-auth needs the role in it; name that as nodeRole"
        )
    if role.startswith("arn:"):
        return role
    account = spec.platform.spec.account_id
    if account is None:
        raise SpecError(
            f"Platform {spec.platform.name}: spec.accountId is not set, so the ARN of {role} is not known"
        )
    return f"arn:aws:iam::{account}:role/{role}"
