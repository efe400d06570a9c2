"""EKS node groups and access entries over the wire. Clusters are in `eks_clusters`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.model.labels import Pairs
from tidemill.sim.cloud.node_groups import EksNodeGroup, NodeGroupRequest
from tidemill.sim.timeline import seeded_id
from tidemill.sim.wire import group_format
from tidemill.sim.wire.ec2_launches import template_data
from tidemill.sim.wire.errors import AnsweredByMoto, AwsError
from tidemill.sim.wire.network import subnet
from tidemill.sim.wire.operations import ApiCall, Result, operation
from tidemill.sim.wire.published_images import RELEASED
from tidemill.sim.wire.state import Wire

_EFFECTS = {
    "NO_SCHEDULE": "NoSchedule",
    "NO_EXECUTE": "NoExecute",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
}
_SPELLED = {word: spelled for spelled, word in _EFFECTS.items()}


@operation("eks", "CreateNodegroup")
def create(call: ApiCall) -> Result:
    wire, cluster = call.wire, _cluster(call)
    if not call.get("launchTemplate"):
        raise AwsError(
            "InvalidParameterException", "the simulated EKS makes node groups from launch templates"
        )
    data, template = _template(wire, call.get("launchTemplate"))
    subnets = [subnet(wire.moto("ec2"), id_) for id_ in call.get("subnets", [])]
    scaling = call.get("scalingConfig", {})
    request = NodeGroupRequest(
        name=call.require("nodegroupName"),
        role=call.require("nodeRole"),
        data=data,
        subnets=tuple(each.id for each in subnets),
        zones=group_format.zones_of(subnets),
        size=(
            int(scaling.get("minSize", 1)),
            int(scaling.get("desiredSize", 1)),
            int(scaling.get("maxSize", 2)),
        ),
        capacity_type=call.get("capacityType", "ON_DEMAND"),
        instance_types=tuple(call.get("instanceTypes", [])),
        ami_type=call.get("amiType") or ("CUSTOM" if data.get("ImageId") else "AL2023_x86_64_STANDARD"),
        labels=tuple(sorted(call.get("labels", {}).items())),
        taints=_taints(call.get("taints", [])),
        tags=tuple(sorted(call.get("tags", {}).items())),
        repair=bool(call.get("nodeRepairConfig", {}).get("enabled")),
        template=template,
    )
    return {"nodegroup": _as_aws(wire, cluster, wire.cloud.node_groups.create(request))}


@operation("eks", "DescribeNodegroup")
def describe(call: ApiCall) -> Result:
    return {"nodegroup": _as_aws(call.wire, _cluster(call), _node_group(call))}


@operation("eks", "ListNodegroups")
def list_(call: ApiCall) -> Result:
    _cluster(call)
    names = [node_group.name for node_group in call.wire.cloud.node_groups.all()]
    params = {"MaxResults": call.get("maxResults", 100), "NextToken": call.get("nextToken")}
    page, token = call.wire.pages.page(names, lambda node_group: node_group, params, most=100)
    return {"nodegroups": page, "nextToken": token}


@operation("eks", "UpdateNodegroupConfig")
def configure(call: ApiCall) -> Result:
    node_group, node_groups = _node_group(call), call.wire.cloud.node_groups
    _cluster(call)
    sizes = call.get("scalingConfig", {})
    node_groups.resize(
        node_group.name,
        minimum=sizes.get("minSize"),
        desired=sizes.get("desiredSize"),
        maximum=sizes.get("maxSize"),
    )
    labels, taints = call.get("labels"), call.get("taints")
    node_groups.configure(
        node_group.name,
        labels=None if labels is None else _changed_labels(node_group.labels, labels),
        taints=None if taints is None else _changed_taints(node_group.taints, taints),
        repair=call.get("nodeRepairConfig", {}).get("enabled"),
    )
    return {"update": _update(call, "ConfigUpdate")}


@operation("eks", "UpdateNodegroupVersion")
def upgrade(call: ApiCall) -> Result:
    wire, node_group = call.wire, _node_group(call)
    _cluster(call)
    given = call.get("launchTemplate")
    if not given:
        raise AwsError(
            "InvalidParameterException", "the simulated EKS upgrades to a launch template's version"
        )
    data, template = _template(wire, given)
    if template.id != node_group.template.id:
        raise AwsError("InvalidParameterException", "You cannot change the launch template of a node group")
    wire.cloud.node_groups.set_template(node_group.name, data, template)
    return {"update": _update(call, "VersionUpdate")}


@operation("eks", "DeleteNodegroup")
def delete(call: ApiCall) -> Result:
    cluster, node_group = _cluster(call), _node_group(call)
    call.wire.cloud.node_groups.delete(node_group.name)
    return {"nodegroup": _as_aws(call.wire, cluster, node_group)}


@operation("eks", "TagResource")
def tag(call: ApiCall) -> Result:
    arn = str(call.require("resourceArn"))
    if ":nodegroup/" not in arn:
        raise AnsweredByMoto
    node_group = call.wire.cloud.node_groups.get(arn.split("/")[2])
    node_group.tags = tuple(sorted((dict(node_group.tags) | dict(call.require("tags"))).items()))
    return {}


# --- access entries -----------------------------------------------------------------------------------


@operation("eks", "CreateAccessEntry")
def let_join(call: ApiCall) -> Result:
    cluster, node_groups = _cluster(call), call.wire.cloud.node_groups
    principal, kind = call.require("principalArn"), call.get("type", "STANDARD")
    if principal in node_groups.access_entries:
        raise AwsError(
            "ResourceInUseException",
            "The specified access entry resource is already in use on this cluster.",
            409,
        )
    if kind == "EC2_LINUX" and call.get("kubernetesGroups"):
        raise AwsError("InvalidParameterException", "EC2_LINUX takes no Kubernetes groups")
    node_groups.let_join(principal, kind)
    return {"accessEntry": _entry(call.wire, cluster, principal)}


@operation("eks", "DescribeAccessEntry")
def describe_entry(call: ApiCall) -> Result:
    return {"accessEntry": _entry(call.wire, _cluster(call), call.require("principalArn"))}


@operation("eks", "ListAccessEntries")
def list_entries(call: ApiCall) -> Result:
    _cluster(call)
    return {"accessEntries": sorted(call.wire.cloud.node_groups.access_entries)}


@operation("eks", "DeleteAccessEntry")
def forbid(call: ApiCall) -> Result:
    _entry(call.wire, _cluster(call), call.require("principalArn"))
    del call.wire.cloud.node_groups.access_entries[call.require("principalArn")]
    return {}


def _entry(wire: Wire, cluster: str, principal: str) -> dict[str, Any]:
    kind = wire.cloud.node_groups.access_entries.get(principal)
    if kind is None:
        raise _missing(f"The specified principalArn could not be found: {principal}.")
    return {
        "clusterName": cluster,
        "principalArn": principal,
        "kubernetesGroups": ["system:nodes"] if kind == "EC2_LINUX" else [],
        "accessEntryArn": f"arn:aws:eks:{wire.region}:{wire.account}:access-entry/{cluster}/{principal}",
        "username": "system:node:{{EC2PrivateDNSName}}" if kind == "EC2_LINUX" else principal,
        "type": kind,
        "tags": {},
    }


# --- words --------------------------------------------------------------------------------------------


def _cluster(call: ApiCall) -> str:
    """The one the node groups are in: the account has one, made like any other of EKS's."""
    name, node_groups = str(call.require("clusterName")), call.wire.cloud.node_groups
    if name not in call.wire.moto("eks").clusters or node_groups.cluster not in ("", name):
        raise _missing(f"No cluster found for name: {name}.")
    node_groups.cluster = name
    return name


def _node_group(call: ApiCall) -> EksNodeGroup:
    name = str(call.require("nodegroupName"))
    for node_group in call.wire.cloud.node_groups.all():
        if node_group.name == name:
            return node_group
    raise _missing(f"No node group found for name: {name}.")


def _missing(sentence: str) -> AwsError:
    return AwsError("ResourceNotFoundException", sentence, 404)


def _template(wire: Wire, given: Mapping[str, Any]) -> tuple[Mapping[str, Any], group_format.WireTemplate]:
    named = {"LaunchTemplateId": given.get("id"), "LaunchTemplateName": given.get("name")}
    named |= {"Version": given.get("version")}
    _, _, data = template_data(wire, named)
    _, template = group_format.template_of(wire, named)
    return data, template


def _taints(given: Any) -> tuple[tuple[str, str, str], ...]:
    for taint in given:
        if taint.get("effect") not in _EFFECTS:
            raise AwsError("InvalidParameterException", f"a taint's effect is one of {', '.join(_EFFECTS)}")
    return tuple((taint["key"], taint.get("value") or "", _EFFECTS[taint["effect"]]) for taint in given)


def _changed_labels(has: Pairs, given: Mapping[str, Any]) -> Pairs:
    kept = {key: value for key, value in has if key not in (given.get("removeLabels") or ())}
    return tuple(sorted((kept | dict(given.get("addOrUpdateLabels") or {})).items()))


def _changed_taints(
    has: tuple[tuple[str, str, str], ...], given: Mapping[str, Any]
) -> tuple[tuple[str, str, str], ...]:
    going = {(key, effect) for key, _, effect in _taints(given.get("removeTaints") or ())}
    new = _taints(given.get("addOrUpdateTaints") or ())
    going |= {(key, effect) for key, _, effect in new}
    return (*(taint for taint in has if (taint[0], taint[2]) not in going), *new)


def _update(call: ApiCall, kind: str) -> dict[str, Any]:
    now = call.wire.clock.now()
    id_ = seeded_id("update", call.wire.cloud.seed, call.require("nodegroupName"), now.isoformat(), kind)
    return {"id": id_, "status": "InProgress", "type": kind, "params": [], "createdAt": now, "errors": []}


def _release(node_group: EksNodeGroup, version: str) -> str:
    """Of the image; where the template names one, its id."""
    if node_group.ami_type == "CUSTOM" and isinstance(node_group.template, group_format.WireTemplate):
        return node_group.template.record.image
    return f"{version}.0-{RELEASED:%Y%m%d}"


def _as_aws(wire: Wire, cluster: str, node_group: EksNodeGroup) -> dict[str, Any]:
    behind = wire.cloud.groups.get(node_group.group)
    unique = node_group.group.rsplit("-", 1)[-1]
    version = str(wire.moto("eks").clusters[cluster].version)
    return {
        "nodegroupName": node_group.name,
        "nodegroupArn": f"arn:aws:eks:{wire.region}:{wire.account}:nodegroup/{cluster}/{node_group.name}/{unique}",
        "clusterName": cluster,
        "version": version,
        "releaseVersion": _release(node_group, version),
        "createdAt": node_group.made_at,
        "modifiedAt": node_group.made_at,
        "status": node_group.status,
        "capacityType": node_group.capacity_type,
        "scalingConfig": {
            "minSize": behind.minimum,
            "maxSize": behind.maximum,
            "desiredSize": behind.desired,
        },
        "instanceTypes": list(node_group.instance_types),
        "subnets": list(node_group.subnets),
        "amiType": node_group.ami_type,
        "nodeRole": node_group.role,
        "labels": dict(node_group.labels),
        "taints": [
            {"key": key, "value": value, "effect": _SPELLED[effect]}
            for key, value, effect in node_group.taints
        ],
        "resources": {"autoScalingGroups": [{"name": node_group.group}]},
        "health": {"issues": [{"code": code, "message": message} for code, message in node_group.issues]},
        "nodeRepairConfig": {"enabled": node_group.repair},
        "launchTemplate": {
            "name": node_group.template.name,
            "version": node_group.template.version,
            "id": node_group.template.id,
        },
        "tags": dict(node_group.tags),
    }
