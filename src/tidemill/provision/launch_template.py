"""The launch template of a pool's nodes: the same for every provisioner that launches through EC2.

A pure function of the documents and the source of the capacity. What a real launch still lacks (`missing_fields`) is no
error here: a rehearsal needs no cluster endpoint and no role.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any

from tidemill.catalog import InstanceType
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.errors import SpecError
from tidemill.model.labels import Pairs
from tidemill.ports.compute import Template
from tidemill.provision.efa import network_interfaces
from tidemill.provision.user_data import Bootstrap, Family, user_data
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import ComputePool, Provisioner
from tidemill.spec.node_class import BlockDevice, NodeClass, fingerprint

# EC2's limits: a template's name, and user data before it is encoded.
_LONGEST_NAME = 128
_LONGEST_USER_DATA = 16 * 1024
# What EKS rejects in the template of a node group, besides a subnet.
_NOT_IN_NODE_GROUPS = ("IamInstanceProfile", "InstanceInitiatedShutdownBehavior", "HibernationOptions")


def launch_template(
    spec: Spec,
    pool: ComputePool,
    instance_type: str,
    source: Source,
    zone: str,
    image_id: str,
    *,
    managed: bool = False,
    ends_at: datetime | None = None,
    base: Mapping[str, Any] | None = None,
    engine: bool = True,
) -> Template:
    """What nodes of a pool on a source boot from. SpecError: the platform has no subnet in the zone.

    `managed`: for an EKS node group. EKS adds the role, the subnets and, without an `image_id`, the image and what the
    node needs to join. `ends_at`: the deadline of the source, for the node's own deadline agent. `base`: the data of
    the node class's existing template. The template names no subnet: the call or the group that launches does.
    `engine` False: no engine will run, so the nodes get no taint that only an engine removes.
    """
    node_class = _node_class(spec, pool)
    kind = spec.catalog.types.get(instance_type)
    if kind is None:
        raise SpecError(f"pool {pool.name}: '{instance_type}' is not in the catalog")
    if not spec.platform.spec.subnets.get(zone):
        raise SpecError(
            f"pool {pool.name}: the platform has no subnets in {zone}, so nothing can be launched there"
        )
    ground = dict(base or {})
    joins = not managed or bool(image_id)
    bootstrap = _bootstrap(spec, pool, source, ends_at, ground, joins=joins, engine=engine)
    data = {
        "InstanceType": instance_type,
        **({"ImageId": image_id} if image_id else {}),
        **market_options(source, managed=managed),
        **_network(spec, node_class, kind, ground),
        "UserData": _encoded(bootstrap, pool),
        **_devices(node_class),
        # A pod that reads the instance metadata is one hop further away than the node.
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
        "TagSpecifications": _tags(spec, pool),
        **({} if managed else _self_managed(spec, node_class)),
    }
    reference = node_class.spec.launch_template
    together = merge_templates(ground, data, reference.id if reference else "given")
    if managed:
        _fit_for_a_node_group(together)
    return Template(template_name(spec, pool, instance_type, source), together, owner_tags(spec, pool))


def template_name(spec: Spec, pool: ComputePool, instance_type: str, source: Source) -> str:
    """One template for each pool, type and source; other changes become new versions of it."""
    name = f"{spec.platform.spec.deployment}-{pool.name}-{instance_type}-{source.label}"
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 9]}-{blake2b(name.encode(), digest_size=4).hexdigest()}"


def owner_tags(spec: Spec, pool: ComputePool) -> Pairs:
    """The tags of everything that is created for a pool."""
    tags = {
        names.TAG_OWNER: spec.platform.spec.deployment,
        names.TAG_POOL: pool.name,
        names.TAG_PROVISIONER: pool.spec.provisioner.value,
    }
    return tuple(sorted(tags.items()))


def node_tags(spec: Spec, pool: ComputePool) -> Pairs:
    """The tags of its instances: ours, and the two that Kubernetes' cloud provider needs."""
    cluster = spec.platform.spec.cluster.name
    tags = {
        **dict(owner_tags(spec, pool)),
        "Name": f"{cluster}-{pool.name}-Node",
        f"kubernetes.io/cluster/{cluster}": "owned",
    }
    return tuple(sorted(tags.items()))


def node_labels(spec: Spec, pool: ComputePool, source: Source) -> dict[str, str]:
    """The labels a node registers with; the kubelet adds type, zone and architecture."""
    return {
        **pool.spec.labels,
        names.LABEL_POOL: pool.name,
        names.LABEL_SOURCE: source.label,
        names.LABEL_NODE_CLASS: fingerprint(_node_class(spec, pool)),
    }


def node_taints(pool: ComputePool, *, engine: bool = True) -> tuple[tuple[str, str, str], ...]:
    """Key, value, effect: the pool's taints and startup taints, that of pools for admitted pods, and the one that the
    engine removes when the node is ready. Without an engine: only those of the documents."""
    written = [
        (taint.key, taint.value, taint.effect) for taint in (*pool.spec.taints, *pool.spec.startup_taints)
    ]
    if not engine:
        return tuple(written)
    if pool.spec.admitted_pods_only:
        written.append((names.TAINT_HELD, "", "NoSchedule"))
    return (*written, (names.TAINT_STARTUP, "", "NoSchedule"))


def has_efa(spec: Spec, pool: ComputePool, instance_type: str) -> bool:
    return _node_class(spec, pool).spec.efa and spec.catalog.types[instance_type].efa > 0


def missing_fields(spec: Spec, pool: ComputePool) -> tuple[str, ...]:
    """The fields the documents still lack before a node of the pool can be launched for real and join."""
    platform, node_class = spec.platform.spec, _node_class(spec, pool)
    fields = {
        "spec.cluster.endpoint": platform.cluster.endpoint,
        "spec.cluster.certificateAuthority": platform.cluster.certificate_authority,
        "spec.cluster.serviceCidr": platform.cluster.service_cidr,
        "spec.nodeRole": platform.node_role or node_class.spec.role,
        "spec.securityGroups": platform.security_groups or node_class.spec.launch_template,
    }
    if pool.spec.provisioner is Provisioner.MANAGED:  # EKS gives nodes of its own groups the rest
        fields = {"spec.nodeRole": fields["spec.nodeRole"]}
    missing = [
        f"Platform {spec.platform.name}: {field} is not set" for field, value in fields.items() if not value
    ]
    role = node_class.spec.role or platform.node_role
    if pool.spec.provisioner in (Provisioner.ASG, Provisioner.MANAGED) and ":instance-profile/" in role:
        missing.append(
            f"{role} is an instance profile; a group needs the role itself so that its nodes can join"
        )
    return tuple(missing)


def check_nodes_can_join(spec: Spec, pool: ComputePool) -> None:
    """SpecError: a node would boot and cost money, but never join the cluster."""
    if missing := missing_fields(spec, pool):
        raise SpecError(f"nodes of pool {pool.name} could never join the cluster: {'; '.join(missing)}")


def _node_class(spec: Spec, pool: ComputePool) -> NodeClass:
    found = spec.node_classes.get(pool.spec.node_class_name)
    if found is None:
        raise SpecError(f"pool {pool.name}: there is no NodeClass '{pool.spec.node_class_name}'")
    return found


def market_options(source: Source, *, managed: bool = False) -> dict[str, Any]:
    """The market and the reservation of a launch, in a template and in RunInstances alike."""
    target = {"CapacityReservationTarget": {"CapacityReservationId": source.id}}
    match source.kind:
        case SourceKind.BLOCK:
            market = {"MarketType": "capacity-block"}
            return {"InstanceMarketOptions": market, "CapacityReservationSpecification": target}
        case SourceKind.ODCR:
            return {"CapacityReservationSpecification": target}
        case SourceKind.SPOT:  # EKS sets it, and rejects a template that does
            return {} if managed else {"InstanceMarketOptions": {"MarketType": "spot"}}
        case SourceKind.ON_DEMAND:
            # Else EC2 would use an open reservation that somebody else needs.
            return {"CapacityReservationSpecification": {"CapacityReservationPreference": "none"}}


def _self_managed(spec: Spec, node_class: NodeClass) -> dict[str, Any]:
    """The instance profile has the name of the role, unless the documents give the ARN of a profile.

    A node that powers itself off is terminated: a stopped one would keep its slot of the reservation.
    """
    ends = {"InstanceInitiatedShutdownBehavior": "terminate"}
    role = node_class.spec.role or spec.platform.spec.node_role
    if not role:
        return ends
    own = {"Arn": role} if ":instance-profile/" in role else {"Name": role.rpartition("/")[2]}
    return {"IamInstanceProfile": own, **ends}


def _network(spec: Spec, node_class: NodeClass, kind: InstanceType, base: dict[str, Any]) -> dict[str, Any]:
    """Security groups at the top, or in each interface where there are any: EC2 accepts them in one place only."""
    groups = list(spec.platform.spec.security_groups)
    if node_class.spec.efa and kind.efa:
        if "NetworkInterfaces" in base:
            raise SpecError(
                f"node class {node_class.name}: its launch template has its own network interfaces;"
                " write efa: false to use those, or remove them from the template"
            )
        groups = groups or list(base.get("SecurityGroupIds", ()))
        base.pop("SecurityGroupIds", None)
        return {"NetworkInterfaces": network_interfaces(kind, groups)}
    if "NetworkInterfaces" in base:
        theirs = base.pop("NetworkInterfaces")
        return {
            "NetworkInterfaces": [
                interface if interface.get("Groups") else {**interface, "Groups": groups}
                for interface in theirs
            ]
        }
    return {"SecurityGroupIds": groups} if groups else {}


def _bootstrap(
    spec: Spec,
    pool: ComputePool,
    source: Source,
    ends_at: datetime | None,
    base: dict[str, Any],
    *,
    joins: bool,
    engine: bool,
) -> Bootstrap:
    node_class = _node_class(spec, pool)
    theirs = b64decode(base.pop("UserData", "")).decode()
    return Bootstrap(
        family=Family.of(node_class),
        cluster=spec.platform.spec.cluster,
        region=spec.platform.spec.region,
        node_class=node_class.spec,
        labels=node_labels(spec, pool, source),
        taints=node_taints(pool, engine=engine),
        ends_at=ends_at,
        joins=joins,
        extra=tuple(text for text in (theirs, node_class.spec.user_data) if text.strip()),
    )


def _encoded(bootstrap: Bootstrap, pool: ComputePool) -> str:
    text = user_data(bootstrap).encode()
    if len(text) > _LONGEST_USER_DATA:
        raise SpecError(
            f"pool {pool.name}: its user data is {len(text)} bytes and EC2 allows {_LONGEST_USER_DATA};"
            " shorten the node class's userData, or let it fetch a script"
        )
    return b64encode(text).decode()


def _devices(node_class: NodeClass) -> dict[str, Any]:
    mappings = [_device(device) for device in node_class.spec.block_device_mappings]
    return {"BlockDeviceMappings": mappings} if mappings else {}


def _device(device: BlockDevice) -> dict[str, Any]:
    ebs = device.ebs
    written = {
        "VolumeSize": -(-ebs.volume_size // 2**30),  # in GiB, rounded up: never smaller than asked for
        "VolumeType": ebs.volume_type,
        "Encrypted": ebs.encrypted,
        "DeleteOnTermination": ebs.delete_on_termination,
        "Iops": ebs.iops,
        "Throughput": ebs.throughput,
        "KmsKeyId": ebs.kms_key_id,
    }
    return {"DeviceName": device.device_name, "Ebs": {k: v for k, v in written.items() if v is not None}}


def _tags(spec: Spec, pool: ComputePool) -> list[dict[str, Any]]:
    listed = [{"Key": key, "Value": value} for key, value in node_tags(spec, pool)]
    return [{"ResourceType": kind, "Tags": listed} for kind in ("instance", "volume", "network-interface")]


def _fit_for_a_node_group(data: Mapping[str, Any]) -> None:
    """SpecError: EKS would reject it. Only an existing template can have brought it in."""
    present = [key for key in _NOT_IN_NODE_GROUPS if key in data]
    if any("SubnetId" in interface for interface in data.get("NetworkInterfaces", ())):
        present.append("NetworkInterfaces.SubnetId")
    if present:
        raise SpecError(
            f"EKS rejects a launch template with {', '.join(present)}: remove it from the node class's template"
        )


# --- merging with an existing template ----------------------------------------------------------------

# Lists whose entries have names: entries of the same name are merged, others are kept side by side.
_NAMED_BY = {"BlockDeviceMappings": "DeviceName", "TagSpecifications": "ResourceType", "Tags": "Key"}
# Two ways to say the same thing, which EC2 does not accept together.
_INSTEAD_OF = {"InstanceRequirements": "InstanceType", "SecurityGroups": "SecurityGroupIds"}


def merge_templates(base: Mapping[str, Any], ours: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Everything of both. SpecError: a field that both set, with both values."""
    for theirs, own in _INSTEAD_OF.items():
        if theirs in base and own in ours:
            raise SpecError(
                f"launch template {name} sets {theirs}, and Tidemill sets {own}: remove it from the template"
            )
    return _merged(base, ours, name, "")


def _merged(base: Mapping[str, Any], ours: Mapping[str, Any], name: str, at: str) -> dict[str, Any]:
    together = dict(base)
    for key, value in ours.items():
        place = f"{at}.{key}" if at else key
        together[key] = value if key not in base else _both(base[key], value, name, place, key)
    return together


def _both(theirs: Any, ours: Any, name: str, place: str, key: str) -> Any:
    if theirs == ours:
        return ours
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        return _merged(theirs, ours, name, place)
    if key in _NAMED_BY and isinstance(theirs, list) and isinstance(ours, list):
        return _by_name(theirs, ours, name, place, _NAMED_BY[key])
    raise SpecError(
        f"launch template {name} sets {place} to {_short(theirs)}, and Tidemill needs {_short(ours)} there:"
        " remove it from the template, or set the same in the documents"
    )


def _by_name(theirs: list[Any], ours: list[Any], name: str, place: str, key: str) -> list[Any]:
    found = {entry[key]: entry for entry in theirs}
    for entry in ours:
        known = found.get(entry[key])
        found[entry[key]] = entry if known is None else _merged(known, entry, name, f"{place}[{entry[key]}]")
    return list(found.values())


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
