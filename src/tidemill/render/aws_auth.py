"""The entries for the nodes' roles in the `aws-auth` ConfigMap, for a cluster with authenticationMode CONFIG_MAP.

They are to be added to mapRoles, which also has entries of others.
"""

from __future__ import annotations

from typing import Any

import yaml

from tidemill.model.errors import SpecError
from tidemill.spec import Spec

_GROUPS = ["system:bootstrappers", "system:nodes"]


def config_map(spec: Spec) -> dict[str, Any]:
    """Raises SpecError if there is no role, or if the ARN of a role is not known."""
    named = {spec.platform.spec.node_role, *(one.spec.role for one in spec.node_classes.values())} - {""}
    if not named:
        raise SpecError(f"Platform {spec.platform.name}: set spec.nodeRole: there is no role to add")
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
        raise SpecError(f"{role} is an instance profile; aws-auth needs its role: write the role as nodeRole")
    if role.startswith("arn:"):
        return role
    account = spec.platform.spec.account_id
    if account is None:
        raise SpecError(
            f"Platform {spec.platform.name}: set spec.accountId: the ARN of {role} is not known without it"
        )
    return f"arn:aws:iam::{account}:role/{role}"
