"""Objects for other tools as readable YAML (keys keep their order, long texts are block scalars), and the `aws-auth`
ConfigMap for a cluster with authenticationMode CONFIG_MAP.

The entries for the nodes' roles are to be added to its mapRoles, which also has entries of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from tidemill.model.errors import SpecError
from tidemill.spec import Spec


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True  # no anchors: not every reader supports them


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _represent_text)


def yaml_text(objects: Iterable[Mapping[str, Any]]) -> str:
    """One document for each, without a last newline."""
    listed = [dict(each) for each in objects]
    text = yaml.dump_all(listed, Dumper=_Dumper, sort_keys=False, width=1000, explicit_start=len(listed) > 1)
    return str(text).rstrip("\n")


_NODE_GROUPS = ["system:bootstrappers", "system:nodes"]


def aws_auth_config_map(spec: Spec) -> dict[str, Any]:
    """Raises SpecError if there is no role, or if the ARN of a role is not known."""
    named = {
        spec.platform.spec.node_role,
        *(node_class.spec.role for node_class in spec.node_classes.values()),
    } - {""}
    if not named:
        raise SpecError(f"Platform {spec.platform.name}: set spec.nodeRole: there is no role to add")
    entries = [
        {
            "rolearn": _role_arn(spec, role),
            "username": "system:node:{{EC2PrivateDNSName}}",
            "groups": _NODE_GROUPS,
        }
        for role in sorted(named)
    ]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "aws-auth", "namespace": "kube-system"},
        "data": {"mapRoles": yaml.safe_dump(entries, sort_keys=False)},
    }


def _role_arn(spec: Spec, role: str) -> str:
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
