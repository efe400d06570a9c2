"""Stacks over the wire: the groups, schedules, hooks and node groups of a stack are the account's.

moto reads templates and makes the rest. Its own models of these types would keep state of their own, and some of them
make nothing and report success: while a server runs they are replaced by ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, ClassVar

import yaml

from tidemill.model.errors import TidemillError
from tidemill.sim.wire import operations
from tidemill.sim.wire.errors import AnsweredByMoto, AwsError
from tidemill.sim.wire.operations import ApiCall, Result, operation
from tidemill.sim.wire.published_images import image_behind
from tidemill.sim.wire.state import Wire

Properties = Mapping[str, Any]
_RESIZES = ":scheduler:::aws-sdk:eks:updateNodegroupConfig"


# moto's own models of the types below, while ours are in their places.
_theirs: dict[str, Any] = {}


@operation(
    "cloudformation", "CreateStack", "UpdateStack", "DeleteStack", "CreateChangeSet", "ExecuteChangeSet"
)
def stacks(call: ApiCall) -> Result:
    """Answered by moto, with our models. Installed with the first stack: moto's parser takes a second to load."""
    from moto.cloudformation.parsing import get_model_map

    models: dict[str, Any] = get_model_map()
    if not _theirs:
        _theirs.update({name: models.get(name) for name in KINDS})
    models |= {name: type(kind.__name__, (kind,), {"wire": call.wire}) for name, kind in KINDS.items()}
    _publish_images(call.wire)
    _say_defaults(call.wire)
    raise AnsweredByMoto


def _publish_images(wire: Wire) -> None:
    """moto reads parameters of type AWS::SSM::Parameter::Value from its own SSM, which knows none of EKS's images."""
    ssm = wire.moto("ssm")
    theirs = getattr(ssm.get_parameter, "theirs", ssm.get_parameter)

    def get_parameter(name: str) -> Any:
        image = image_behind(wire, name)
        return theirs(name) if image is None else SimpleNamespace(name=name, value=image)

    get_parameter.theirs = theirs  # type: ignore[attr-defined]
    ssm.get_parameter = get_parameter


def _say_defaults(wire: Wire) -> None:
    """moto splits a list only where it is given, and sees no change in an update with another default: so every
    parameter is given. A stack that cannot be made leaves nothing behind, as after CloudFormation's roll-back."""
    backend = wire.moto("cloudformation")
    if hasattr(backend.create_stack, "ours"):
        return
    create, update, change = backend.create_stack, backend.update_stack, backend.create_change_set

    def create_stack(name: str, template: str, parameters: dict[str, Any], *rest: Any, **more: Any) -> Any:
        before = set(backend.stacks)
        try:
            return create(name, template, {**_defaults(template), **parameters}, *rest, **more)
        except Exception:
            for made in set(backend.stacks) - before:
                with suppress(Exception):
                    backend.stacks.pop(made).resource_map.delete()
            raise

    def update_stack(name: str, template: str, *rest: Any, **more: Any) -> Any:
        given = more["parameters"]
        said = {one["ParameterKey"] for one in given}
        unsaid = {key: value for key, value in _defaults(template).items() if key not in said}
        new = [{"ParameterKey": key, "ParameterValue": value} for key, value in unsaid.items()]
        return update(name, template, *rest, **{**more, "parameters": [*given, *new]})

    def create_change_set(*rest: Any, **more: Any) -> Any:
        more["parameters"] = {**_defaults(more["template"]), **more["parameters"]}
        return change(*rest, **more)

    create_stack.ours = True  # type: ignore[attr-defined]
    backend.create_stack, backend.update_stack = create_stack, update_stack
    backend.create_change_set = create_change_set


class _TemplateLoader(yaml.SafeLoader):
    """Knows no function of CloudFormation: parameters have none."""


_TemplateLoader.add_multi_constructor("!", lambda loader, suffix, node: None)


def _defaults(template: str) -> dict[str, str]:
    read = yaml.load(template, _TemplateLoader)
    there = read.get("Parameters") if isinstance(read, dict) else None
    return {
        name: str(one["Default"])
        for name, one in (there or {}).items()
        if isinstance(one, dict) and "Default" in one
    }


def put_back() -> None:
    """When the server stops, moto gets its own models back."""
    if not _theirs:
        return
    from moto.cloudformation.parsing import get_model_map

    models: dict[str, Any] = get_model_map()
    for name, model in _theirs.items():
        if model is None:
            models.pop(name, None)
        else:
            models[name] = model
    _theirs.clear()


@dataclass
class Resource:
    """What moto asks of a model: to be made, changed, named and deleted."""

    wire: ClassVar[Wire]
    physical_resource_id: str
    properties: Properties

    # Set by moto.
    cf_resource_type: str = ""
    logical_resource_id: str = ""

    @classmethod
    def create_from_cloudformation_json(
        cls,
        resource_name: str,
        cloudformation_json: Properties,
        account_id: str,
        region_name: str,
        **more: Any,
    ) -> Resource:
        made = cls(str(more.get("LogicalId", resource_name)), cloudformation_json.get("Properties", {}))
        made.make()
        return made

    @classmethod
    def update_from_cloudformation_json(
        cls, original_resource: Resource, new_resource_name: str, cloudformation_json: Properties, **more: Any
    ) -> Resource:
        changed = replace(original_resource, properties=cloudformation_json.get("Properties", {}))
        changed.change()
        return changed

    def delete(self, account_id: str, region_name: str) -> None:
        self.end()

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        return False

    def is_created(self) -> bool:
        return True

    def make(self) -> None:
        raise NotImplementedError

    def change(self) -> None:
        self.make()

    def end(self) -> None:
        """Does nothing for a resource that ends with another."""

    def ask(self, service: str, action: str, **params: Any) -> None:
        """One of the account's own operations, as if it had come over the wire; a refusal is CloudFormation's."""
        from moto.cloudformation.exceptions import ValidationError

        answer = operations.find(service, action)
        assert answer is not None
        given = {name: value for name, value in params.items() if value is not None}
        try:
            answer(ApiCall(self.wire, service, action, self.wire.region, given))
        except (AwsError, TidemillError) as error:
            raise ValidationError(message=f"{self.cf_resource_type or service}: {error}") from error


class Group(Resource):
    def make(self) -> None:
        self.physical_resource_id = str(
            self.properties.get("AutoScalingGroupName") or self.physical_resource_id
        )
        self.ask("autoscaling", "CreateAutoScalingGroup", **self._shape(), Tags=_tags(self.properties))

    def change(self) -> None:
        self.ask("autoscaling", "UpdateAutoScalingGroup", **self._shape())

    def end(self) -> None:
        name = self.physical_resource_id
        self.ask("autoscaling", "DeleteAutoScalingGroup", AutoScalingGroupName=name, ForceDelete=True)

    def _shape(self) -> dict[str, Any]:
        own = self.properties
        return {
            "AutoScalingGroupName": self.physical_resource_id,
            "MinSize": int(own["MinSize"]),
            "MaxSize": int(own["MaxSize"]),
            "DesiredCapacity": _number(own.get("DesiredCapacity")),
            "VPCZoneIdentifier": ",".join(own.get("VPCZoneIdentifier", ())),
            "LaunchTemplate": {key: str(value) for key, value in own["LaunchTemplate"].items()},
            "TerminationPolicies": own.get("TerminationPolicies"),
        }


class ScheduledAction(Resource):
    def make(self) -> None:
        own = self.properties
        self.ask(
            "autoscaling", "PutScheduledUpdateGroupAction", **self._which(),
            StartTime=_instant(own.get("StartTime")), EndTime=_instant(own.get("EndTime")),
            DesiredCapacity=_number(own.get("DesiredCapacity")), MinSize=_number(own.get("MinSize")),
            MaxSize=_number(own.get("MaxSize")), Recurrence=own.get("Recurrence"),
            TimeZone=own.get("TimeZone"),
        )  # fmt: skip

    def end(self) -> None:
        groups = self.wire.cloud.groups.all()  # with its group it went already
        if any(group.name == self.properties["AutoScalingGroupName"] for group in groups):
            self.ask("autoscaling", "DeleteScheduledAction", **self._which())

    def _which(self) -> dict[str, Any]:
        group = self.properties["AutoScalingGroupName"]
        return {"AutoScalingGroupName": group, "ScheduledActionName": self.physical_resource_id}


class Hook(Resource):
    def make(self) -> None:
        own = self.properties
        self.physical_resource_id = str(own.get("LifecycleHookName") or self.physical_resource_id)
        self.ask(
            "autoscaling", "PutLifecycleHook", AutoScalingGroupName=own["AutoScalingGroupName"],
            LifecycleHookName=self.physical_resource_id, LifecycleTransition=own["LifecycleTransition"],
            HeartbeatTimeout=_number(own.get("HeartbeatTimeout")), DefaultResult=own.get("DefaultResult"),
        )  # fmt: skip


class NodeGroup(Resource):
    def make(self) -> None:
        given = _in_eks_spelling(self.properties)
        self.physical_resource_id = given["nodegroupName"] = str(
            given.get("nodegroupName") or self.physical_resource_id
        )
        self.ask("eks", "CreateNodegroup", **given)

    def change(self) -> None:
        given = _in_eks_spelling(self.properties)
        which = {"clusterName": given["clusterName"], "nodegroupName": self.physical_resource_id}
        self.ask("eks", "UpdateNodegroupConfig", **which, scalingConfig=given.get("scalingConfig"))

    def end(self) -> None:
        cluster = self.properties["ClusterName"]
        self.ask("eks", "DeleteNodegroup", clusterName=cluster, nodegroupName=self.physical_resource_id)

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        return attr == "Arn"

    def get_cfn_attribute(self, attr: str) -> str:
        where = f"{self.properties['ClusterName']}/{self.physical_resource_id}"
        return f"arn:aws:eks:{self.wire.region}:{self.wire.account}:nodegroup/{where}/simulated"


class Schedule(Resource):
    """Of EventBridge Scheduler: one call of EKS at one instant."""

    def make(self) -> None:
        from moto.cloudformation.exceptions import ValidationError

        own = self.properties
        if not str(own["Target"]["Arn"]).endswith(_RESIZES):
            raise ValidationError(message=f"the simulated AWS schedules {_RESIZES} only")
        said = str(own["ScheduleExpression"]).removeprefix("at(").removesuffix(")")
        at = datetime.fromisoformat(said).replace(tzinfo=UTC)
        call = _in_eks_spelling(json.loads(own["Target"]["Input"]))
        self.physical_resource_id = f"{call['nodegroupName']}-{self.logical_resource_id or 'schedule'}"
        self.end()
        self.wire.schedules[self.physical_resource_id] = self.wire.clock.at(at, lambda: self._call(call))

    def end(self) -> None:
        self.wire.schedules.pop(self.physical_resource_id, lambda: None)()

    def _call(self, call: dict[str, Any]) -> None:
        from moto.cloudformation.exceptions import ValidationError

        with suppress(ValidationError):  # a node group that is gone: nobody hears of it
            self.ask("eks", "UpdateNodegroupConfig", **call)


class AccessEntry(Resource):
    def make(self) -> None:
        own = self.properties
        self.ask(
            "eks", "CreateAccessEntry", clusterName=own["ClusterName"], principalArn=own["PrincipalArn"],
            type=own.get("Type"), kubernetesGroups=own.get("KubernetesGroups"),
        )  # fmt: skip

    def change(self) -> None:
        pass  # its principal and type are what it is

    def end(self) -> None:
        own = self.properties
        self.ask("eks", "DeleteAccessEntry", clusterName=own["ClusterName"], principalArn=own["PrincipalArn"])


class Egress(Resource):
    def make(self) -> None:
        own = self.properties
        self.wire.moto("ec2").authorize_security_group_egress(
            own["GroupId"], str(own["IpProtocol"]), own.get("FromPort"), own.get("ToPort"), [],
            source_groups=[{"GroupId": own["DestinationSecurityGroupId"]}],
        )  # fmt: skip

    def change(self) -> None:
        pass


class QueuePolicy(Resource):
    def make(self) -> None:
        """moto lets everybody send: there is nothing to allow."""


KINDS: dict[str, type[Resource]] = {
    "AWS::AutoScaling::AutoScalingGroup": Group,
    "AWS::AutoScaling::ScheduledAction": ScheduledAction,
    "AWS::AutoScaling::LifecycleHook": Hook,
    "AWS::EKS::Nodegroup": NodeGroup,
    "AWS::EKS::AccessEntry": AccessEntry,
    "AWS::Scheduler::Schedule": Schedule,
    "AWS::EC2::SecurityGroupEgress": Egress,
    "AWS::SQS::QueuePolicy": QueuePolicy,
}


def _instant(value: Any) -> datetime | None:
    return datetime.fromisoformat(value) if value else None


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _tags(own: Properties) -> list[dict[str, Any]]:
    """Booleans may have become text on their way through a template."""
    return [
        {**tag, "PropagateAtLaunch": str(tag.get("PropagateAtLaunch", "false")).lower() == "true"}
        for tag in own.get("Tags", ())
    ]


def _in_eks_spelling(own: Properties) -> dict[str, Any]:
    """EKS writes the names of its fields with a small first letter; labels and tags have names of their own."""

    def small(name: str, value: Any) -> Any:
        if name in ("Labels", "Tags"):
            return value
        if isinstance(value, Mapping):
            return {_small(key): small(key, inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [small("", each) for each in value]
        return value

    given: dict[str, Any] = {_small(key): small(key, value) for key, value in own.items()}
    sizes = given.get("scalingConfig", {})
    given["scalingConfig"] = {key: int(value) for key, value in sizes.items()}
    if "launchTemplate" in given:
        given["launchTemplate"] = {key: str(value) for key, value in given["launchTemplate"].items()}
    return given


def _small(name: str) -> str:
    return name[:1].lower() + name[1:]
