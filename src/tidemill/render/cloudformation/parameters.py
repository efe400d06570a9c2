"""What a stack asks its reader for, and the documents with holes in the places of it.

What the documents say is written into the stack. A parameter is what they do not say, what changes with a block, and
the image, which CloudFormation looks up by itself.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from tidemill.model.capacity import SourceKind
from tidemill.model.ec2_facts import EKS_SCALES_DOWN_BEFORE_END, terminates_before_end
from tidemill.provision.images import image_of
from tidemill.provision.launch_template import has_efa
from tidemill.render.cloudformation.intrinsics import hole
from tidemill.render.cloudformation.stack_input import Asked
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool, Provisioner
from tidemill.spec.units import format_instant

# With no engine there, draining begins when the group is told to shrink: as long as the engine would take at least.
_SHORTEST_LEAD = timedelta(minutes=10)
# A block is active a moment after its start.
_UP_AFTER_START = timedelta(minutes=1)
_INSTANT = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"


def parameters(spec: Spec, pool: ComputePool, asked: Asked) -> dict[str, Any]:
    return {
        **_image(spec, pool, asked),
        **_place(spec, pool, asked),
        **_of_the_cluster(spec, pool),
        **_of_the_block(spec, pool, asked),
        "Size": {
            "Type": "Number",
            "MinValue": 1,
            "Description": "The most instances there may be; of a reservation, as many as it holds.",
            **_default(asked.count),
        },
    }


def opened(spec: Spec, pool: ComputePool, asked: Asked) -> Spec:
    """The documents with a hole wherever a parameter or a resource of the stack comes in."""
    platform = spec.platform.spec
    cluster = platform.cluster
    groups = platform.security_groups or (hole("NodeSecurityGroup"),)
    if has_efa(spec, pool, asked.instance_type):
        groups = (*groups, hole("EfaSecurityGroup"))
    changed = platform.model_copy(
        update={
            "cluster": cluster.model_copy(
                update={
                    "endpoint": cluster.endpoint or hole("ClusterEndpoint"),
                    "certificate_authority": cluster.certificate_authority
                    or hole("ClusterCertificateAuthority"),
                    "service_cidr": cluster.service_cidr or hole("ServiceCidr"),
                }
            ),
            "node_role": platform.node_role or hole("NodeRole"),
            "security_groups": groups,
        }
    )
    return replace(spec, platform=spec.platform.model_copy(update={"spec": changed}))


def _image(spec: Spec, pool: ComputePool, asked: Asked) -> dict[str, Any]:
    node_class = spec.node_classes[pool.spec.node_class_name]
    kind = spec.catalog.types[asked.instance_type]
    image = image_of(node_class, kind, spec.platform.spec.cluster.version)
    if image.id:
        return {"ImageId": {"Type": "AWS::EC2::Image::Id", "Default": image.id}}
    return {
        "ImageId": {
            "Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>",
            "Default": image.parameter,
            "Description": "The public parameter under which AWS publishes the image.",
        }
    }


def _place(spec: Spec, pool: ComputePool, asked: Asked) -> dict[str, Any]:
    subnets = spec.platform.spec.subnets.get(asked.zone, ())
    found: dict[str, Any] = {
        "SubnetIds": {
            "Type": "List<AWS::EC2::Subnet::Id>",
            "Description": f"All in {asked.zone}: a reservation can be used in its own zone only.",
            **_default(",".join(subnets)),
        }
    }
    if has_efa(spec, pool, asked.instance_type):
        found["VpcId"] = {
            "Type": "AWS::EC2::VPC::Id",
            "Description": "For the security group of the EFA traffic.",
        }
    if not spec.platform.spec.security_groups:
        found["NodeSecurityGroup"] = {
            "Type": "AWS::EC2::SecurityGroup::Id",
            "Description": "Through which nodes and the cluster reach each other.",
        }
    return found


def _of_the_cluster(spec: Spec, pool: ComputePool) -> dict[str, Any]:
    cluster, node_class = spec.platform.spec.cluster, spec.node_classes[pool.spec.node_class_name]
    unsaid = {
        "ClusterEndpoint": (cluster.endpoint, "Address of the API server."),
        "ClusterCertificateAuthority": (cluster.certificate_authority, "Of the API server, base64."),
        "ServiceCidr": (cluster.service_cidr, "The cluster's service addresses."),
        "NodeRole": (spec.platform.spec.node_role or node_class.spec.role, "Name of the nodes' IAM role."),
    }
    if Provisioner(pool.spec.provisioner) is Provisioner.ASG:
        unsaid["CreateAccessEntry"] = ("", "")
    asked_for: dict[str, Any] = {
        name: {"Type": "String", "Description": sentence}
        for name, (said, sentence) in unsaid.items()
        if not said
    }
    if "CreateAccessEntry" in asked_for:
        asked_for["CreateAccessEntry"] = {
            "Type": "String",
            "AllowedValues": ["true", "false"],
            "Default": "true",
            "Description": "A role has one access entry in a cluster: false if another stack made it.",
        }
    return asked_for


def _of_the_block(spec: Spec, pool: ComputePool, asked: Asked) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if asked.reserved:
        found["ReservationId"] = {
            "Type": "String",
            "AllowedPattern": "^cr-[0-9a-f]+$",
            "Description": "The reservation the nodes run on.",
            **_default(asked.reservation),
        }
    if asked.kind is not SourceKind.BLOCK:
        return found
    times = moments(spec, pool, asked)
    sentences = {"EndsAt": "When the nodes must be empty: their own agent sees to it."}
    if pool.spec.provisioner is Provisioner.ASG:
        sentences |= {
            "UpAt": "When the group grows to its size: a minute after the block's start.",
            "DownAt": "When it begins to drain: early enough for the pods' grace before EC2 takes the instances.",
        }
    for name, sentence in sentences.items():
        said = times.get(name)
        found[name] = {
            "Type": "String",
            "AllowedPattern": _INSTANT,
            "Description": sentence,
            **_default(format_instant(said) if said else ""),
        }
    return found


def moments(spec: Spec, pool: ComputePool, asked: Asked) -> dict[str, datetime]:
    """Those of a block whose start and end are known."""
    found: dict[str, datetime] = {}
    if asked.start is not None:
        found["UpAt"] = asked.start + _UP_AFTER_START
    if asked.end is not None:
        ultraserver = bool(spec.catalog.types[asked.instance_type].ultraserver)
        eks = EKS_SCALES_DOWN_BEFORE_END if pool.spec.provisioner is Provisioner.MANAGED else timedelta(0)
        found["EndsAt"] = asked.end - max(terminates_before_end(ultraserver=ultraserver), eks)
        found["DownAt"] = found["EndsAt"] - max(_SHORTEST_LEAD, pool.spec.drain.lead or timedelta(0))
    return found


def _default(value: object) -> dict[str, Any]:
    return {"Default": value} if value else {}
