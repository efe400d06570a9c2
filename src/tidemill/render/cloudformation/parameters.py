"""The parameters of a stack, and the documents with placeholders for them.

What the documents say is written into the stack. Parameters are for what they do not say, for what changes with a
block, and for the image, which CloudFormation looks up.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from tidemill.model.capacity import SourceKind
from tidemill.model.ec2_facts import EKS_SCALES_DOWN_BEFORE_END, terminates_before_end
from tidemill.provision.images import image_of
from tidemill.provision.launch_template import has_efa
from tidemill.render.cloudformation.stack_input import StackInput, placeholder
from tidemill.spec import Spec
from tidemill.spec.compute_pool import ComputePool, Provisioner
from tidemill.spec.units import format_instant

# Without the engine, draining begins when the group scales in: leave at least the time that the engine would.
_SHORTEST_LEAD = timedelta(minutes=10)
# A block is active a moment after its start.
_UP_AFTER_START = timedelta(minutes=1)
_INSTANT = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"


def parameters(spec: Spec, pool: ComputePool, wanted: StackInput) -> dict[str, Any]:
    return {
        **_image(spec, pool, wanted),
        **_network_parameters(spec, pool, wanted),
        **_cluster_parameters(spec, pool),
        **_block_parameters(spec, pool, wanted),
        "Size": {
            "Type": "Number",
            "MinValue": 1,
            "Description": "The most instances. For a reservation: its number of instances.",
            **_default(wanted.count),
        },
    }


def with_placeholders(spec: Spec, pool: ComputePool, wanted: StackInput) -> Spec:
    """The documents with a placeholder wherever a parameter or a resource of the stack is used."""
    platform = spec.platform.spec
    cluster = platform.cluster
    groups = platform.security_groups or (placeholder("NodeSecurityGroup"),)
    if has_efa(spec, pool, wanted.instance_type):
        groups = (*groups, placeholder("EfaSecurityGroup"))
    changed = platform.model_copy(
        update={
            "cluster": cluster.model_copy(
                update={
                    "endpoint": cluster.endpoint or placeholder("ClusterEndpoint"),
                    "certificate_authority": cluster.certificate_authority
                    or placeholder("ClusterCertificateAuthority"),
                    "service_cidr": cluster.service_cidr or placeholder("ServiceCidr"),
                }
            ),
            "node_role": platform.node_role or placeholder("NodeRole"),
            "security_groups": groups,
        }
    )
    return replace(spec, platform=spec.platform.model_copy(update={"spec": changed}))


def _image(spec: Spec, pool: ComputePool, wanted: StackInput) -> dict[str, Any]:
    node_class = spec.node_classes[pool.spec.node_class_name]
    kind = spec.catalog.types[wanted.instance_type]
    image = image_of(node_class, kind, spec.platform.spec.cluster.version)
    if image.id:
        return {"ImageId": {"Type": "AWS::EC2::Image::Id", "Default": image.id}}
    return {
        "ImageId": {
            "Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>",
            "Default": image.parameter,
            "Description": "The public SSM parameter under which AWS publishes the image.",
        }
    }


def _network_parameters(spec: Spec, pool: ComputePool, wanted: StackInput) -> dict[str, Any]:
    subnets = spec.platform.spec.subnets.get(wanted.zone, ())
    found: dict[str, Any] = {
        "SubnetIds": {
            "Type": "List<AWS::EC2::Subnet::Id>",
            "Description": f"All in {wanted.zone}: a reservation can be used in its own zone only.",
            **_default(",".join(subnets)),
        }
    }
    if has_efa(spec, pool, wanted.instance_type):
        found["VpcId"] = {
            "Type": "AWS::EC2::VPC::Id",
            "Description": "VPC of the security group for EFA traffic.",
        }
    if not spec.platform.spec.security_groups:
        found["NodeSecurityGroup"] = {
            "Type": "AWS::EC2::SecurityGroup::Id",
            "Description": "Security group through which nodes and the cluster reach each other.",
        }
    return found


def _cluster_parameters(spec: Spec, pool: ComputePool) -> dict[str, Any]:
    cluster, node_class = spec.platform.spec.cluster, spec.node_classes[pool.spec.node_class_name]
    missing = {
        "ClusterEndpoint": (cluster.endpoint, "Address of the API server."),
        "ClusterCertificateAuthority": (
            cluster.certificate_authority,
            "Certificate authority of the API server, in base64.",
        ),
        "ServiceCidr": (cluster.service_cidr, "Address range of the cluster's services."),
        "NodeRole": (spec.platform.spec.node_role or node_class.spec.role, "Name of the nodes' IAM role."),
    }
    if Provisioner(pool.spec.provisioner) is Provisioner.ASG:
        missing["CreateAccessEntry"] = ("", "")
    wanted: dict[str, Any] = {
        name: {"Type": "String", "Description": sentence}
        for name, (value, sentence) in missing.items()
        if not value
    }
    if "CreateAccessEntry" in wanted:
        wanted["CreateAccessEntry"] = {
            "Type": "String",
            "AllowedValues": ["true", "false"],
            "Default": "true",
            "Description": "A role has one access entry in a cluster. Set false if another stack creates it.",
        }
    return wanted


def _block_parameters(spec: Spec, pool: ComputePool, wanted: StackInput) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if wanted.reserved:
        found["ReservationId"] = {
            "Type": "String",
            "AllowedPattern": "^cr-[0-9a-f]+$",
            "Description": "The reservation that the nodes run on.",
            **_default(wanted.reservation),
        }
    if wanted.kind is not SourceKind.BLOCK:
        return found
    times = block_times(spec, pool, wanted)
    sentences = {"EndsAt": "When the nodes must be empty. The agent on each node ends its pods by then."}
    by_schedule = pool.spec.provisioner is Provisioner.ASG
    if by_schedule or not wanted.engine:
        sentences["UpAt"] = "When the group scales out: a minute after the block's start."
    if by_schedule:
        sentences |= {
            "DownAt": "When the group scales in: early enough for the pods to stop before EC2 terminates the"
            " instances.",
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


def block_times(spec: Spec, pool: ComputePool, wanted: StackInput) -> dict[str, datetime]:
    """The times that follow from a block's start and end, as far as they are known."""
    found: dict[str, datetime] = {}
    if wanted.start is not None:
        found["UpAt"] = wanted.start + _UP_AFTER_START
    if wanted.end is not None:
        ultraserver = bool(spec.catalog.types[wanted.instance_type].ultraserver)
        eks = EKS_SCALES_DOWN_BEFORE_END if pool.spec.provisioner is Provisioner.MANAGED else timedelta(0)
        found["EndsAt"] = wanted.end - max(terminates_before_end(ultraserver=ultraserver), eks)
        found["DownAt"] = found["EndsAt"] - max(_SHORTEST_LEAD, pool.spec.drain.lead or timedelta(0))
    return found


def _default(value: object) -> dict[str, Any]:
    return {"Default": value} if value else {}
