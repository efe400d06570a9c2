"""An instance of the body as EC2 writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.model.capacity import SourceKind
from tidemill.model.nodes import InstanceState
from tidemill.sim.cloud.instances import InstanceLife
from tidemill.sim.timeline import seeded_id
from tidemill.sim.wire.state import Wire
from tidemill.sim.wire.tag_format import as_tags

_CODES = {
    InstanceState.PENDING: 0,
    InstanceState.RUNNING: 16,
    InstanceState.SHUTTING_DOWN: 32,
    InstanceState.TERMINATED: 48,
}
_LIFECYCLE = {SourceKind.BLOCK: "capacity-block", SourceKind.SPOT: "spot"}
# By whom it was ended: the code and the message of EC2's StateReason.
_STATE_REASONS = {
    "engine": ("Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown"),
    "hardware": ("Server.InternalError", "Server.InternalError"),
}


def as_reservation(wire: Wire, lives: Sequence[InstanceLife]) -> dict[str, Any]:
    """What one call launched; EC2 calls that a reservation too."""
    return {
        "ReservationId": reservation_id(wire, lives[0]),
        "OwnerId": wire.account,
        "Groups": [],
        "Instances": [as_aws(wire, life) for life in lives],
    }


def reservation_id(wire: Wire, life: InstanceLife) -> str:
    return seeded_id("r", wire.body.seed, life.token or life.now.id)


def state(of: InstanceState) -> dict[str, Any]:
    return {"Code": _CODES[of], "Name": of.value}


def lifecycle(life: InstanceLife) -> str:
    """Empty for on-demand instances, of which EC2 says nothing."""
    return _LIFECYCLE.get(life.now.source.kind, "")


def private_name(wire: Wire, life: InstanceLife) -> str:
    domain = "ec2.internal" if wire.region == "us-east-1" else f"{wire.region}.compute.internal"
    return f"ip-{wire.address(life).replace('.', '-')}.{domain}"


def as_aws(wire: Wire, life: InstanceLife) -> dict[str, Any]:
    now, record = life.now, wire.launch_of(life)
    kind = wire.body.catalog.types.get(now.instance_type)
    written: dict[str, Any] = {
        "InstanceId": now.id,
        "ImageId": record.image,
        "InstanceType": now.instance_type,
        "State": state(now.state),
        "LaunchTime": now.launched_at,
        "Placement": {"AvailabilityZone": now.zone, "Tenancy": "default", "GroupName": ""},
        "Architecture": "arm64" if kind is not None and kind.arch == "arm64" else "x86_64",
        "Hypervisor": "xen",  # EC2's word for Nitro too
        "VirtualizationType": "hvm",
        "RootDeviceType": "ebs",
        "RootDeviceName": "/dev/xvda",
        "EbsOptimized": True,
        "EnaSupport": True,
        "AmiLaunchIndex": 0,
        "ClientToken": life.token,
        "Monitoring": {"State": "disabled"},
        "Tags": as_tags(life.tags),
        "BlockDeviceMappings": [],
        "StateTransitionReason": "",
    }
    if lifecycle(life):
        written["InstanceLifecycle"] = lifecycle(life)
    if record.key_name:
        written["KeyName"] = record.key_name
    if record.profile:
        written["IamInstanceProfile"] = {"Arn": record.profile, "Id": "AIPASIMULATED00000000"}
    return {**written, **_reserved(life), **_network(wire, life), **_ended(life)}


def spot_request(life: InstanceLife) -> str:
    return f"sir-{life.now.id.removeprefix('i-')[:8]}"


def _reserved(life: InstanceLife) -> dict[str, Any]:
    source = life.now.source
    if source.kind is SourceKind.SPOT:
        return {"SpotInstanceRequestId": spot_request(life)}
    if not source.id:
        return {"CapacityReservationSpecification": {"CapacityReservationPreference": "open"}}
    target = {"CapacityReservationTarget": {"CapacityReservationId": source.id}}
    return {"CapacityReservationId": source.id, "CapacityReservationSpecification": target}


def _network(wire: Wire, life: InstanceLife) -> dict[str, Any]:
    """Gone once it is terminated."""
    record = wire.launch_of(life)
    groups = [{"GroupId": id_, "GroupName": _group_name(wire, id_)} for id_ in record.security_groups]
    if life.now.state is InstanceState.TERMINATED:
        return {"SecurityGroups": [], "NetworkInterfaces": []}
    return {
        "SubnetId": record.subnet.id,
        "VpcId": record.subnet.vpc,
        "PrivateIpAddress": wire.address(life),
        "PrivateDnsName": private_name(wire, life),
        "SourceDestCheck": True,
        "SecurityGroups": groups,
        "NetworkInterfaces": [],
    }


def _group_name(wire: Wire, id_: str) -> str:
    return "default" if id_ == wire.network.security_group else id_


def _ended(life: InstanceLife) -> dict[str, Any]:
    if life.shutting_down_at is None:
        return {}
    at = f"{life.shutting_down_at:%Y-%m-%d %H:%M:%S} GMT"
    code = f"Server.{life.ended_by}"
    code, message = _STATE_REASONS.get(life.ended_by, (code, f"{code}: {life.ended_why}"))
    return {
        "StateTransitionReason": f"{'User' if life.ended_by == 'engine' else 'Service'} initiated ({at})",
        "StateReason": {"Code": code, "Message": message},
    }
