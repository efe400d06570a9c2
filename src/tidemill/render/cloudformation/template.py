"""The launch template of the stack: the engine's own, with its user data readable."""

from __future__ import annotations

from base64 import b64decode
from datetime import UTC, datetime
from typing import Any

from tidemill.model.capacity import Source, SourceKind
from tidemill.provision.launch_template import launch_template
from tidemill.render.cloudformation.intrinsics import hole, sub
from tidemill.render.cloudformation.stack_input import Asked
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool, Provisioner
from tidemill.spec.units import format_instant

# Stands for an end that is a parameter: no block ends in that year.
_SOME_END = datetime(2000, 1, 1, tzinfo=UTC)


def launch_template_resource(spec: Spec, pool: ComputePool, asked: Asked) -> dict[str, Any]:
    managed = pool.spec.provisioner is Provisioner.MANAGED
    made = launch_template(
        spec,
        pool,
        asked.instance_type,
        Source(asked.kind, hole("ReservationId") if asked.reserved else ""),
        asked.zone,
        hole("ImageId"),
        managed=managed,
        ends_at=_SOME_END if asked.kind is SourceKind.BLOCK else None,
    )
    data = dict(made.data)
    text = b64decode(data["UserData"]).decode().replace(format_instant(_SOME_END), hole("EndsAt"))
    data["UserData"] = {"Fn::Base64": sub(text)}
    found: dict[str, Any] = {}
    profile = data.get("IamInstanceProfile", {})
    if "Name" in profile:  # the console makes one with every role; others do not
        found["InstanceProfile"] = {
            "Type": "AWS::IAM::InstanceProfile",
            "Properties": {"Roles": [profile["Name"]]},
        }
        data["IamInstanceProfile"] = {"Arn": {"Fn::GetAtt": ["InstanceProfile", "Arn"]}}
    tags = [{"Key": key, "Value": value} for key, value in made.tags]
    specification = [{"ResourceType": "launch-template", "Tags": tags}]
    return {
        **found,
        "LaunchTemplate": {
            "Type": "AWS::EC2::LaunchTemplate",
            "Properties": {"LaunchTemplateData": data, "TagSpecifications": specification},
        },
    }


def version() -> dict[str, Any]:
    """Pinned: a change of the stack is what changes it."""
    return {
        "LaunchTemplateId": {"Ref": "LaunchTemplate"},
        "Version": {"Fn::GetAtt": ["LaunchTemplate", "LatestVersionNumber"]},
    }
