"""An instance of the account as EC2 writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.model.capacity import SourceKind
from tidemill.model.labels import Pairs
from tidemill.model.nodes import InstanceState
from tidemill.sim.cloud.instances import InstanceHistory
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


def as_reservation(wire: Wire, histories: Sequence[InstanceHistory]) -> dict[str, Any]:
    """What one call launched; EC2 calls that a reservation too."""
    return {
        "ReservationId": reservation_id(wire, histories[0]),
        "OwnerId": wire.account,
        "Groups": [],
        "Instances": [as_aws(wire, history) for history in histories],
    }


def reservation_id(wire: Wire, history: InstanceHistory) -> str:
    return seeded_id("r", wire.cloud.seed, history.token or history.now.id)


def state(of: InstanceState) -> dict[str, Any]:
    return {"Code": _CODES[of], "Name": of.value}


def lifecycle(history: InstanceHistory) -> str:
    """Empty for on-demand instances, of which EC2 says nothing."""
    return _LIFECYCLE.get(history.now.source.kind, "")


def all_tags(wire: Wire, history: InstanceHistory) -> Pairs:
    """With those that AWS puts there itself."""
    record = wire.launch_of(history)
    theirs = {
        "aws:autoscaling:groupName": record.group,
        "aws:ec2launchtemplate:id": record.template,
        "aws:ec2launchtemplate:version": record.template_version,
    }
    return (*history.tags, *((key, value) for key, value in theirs.items() if value))


def private_name(wire: Wire, history: InstanceHistory) -> str:
    domain = "ec2.internal" if wire.region == "us-east-1" else f"{wire.region}.compute.internal"
    return f"ip-{wire.address(history).replace('.', '-')}.{domain}"


def as_aws(wire: Wire, history: InstanceHistory) -> dict[str, Any]:
    now, record = history.now, wire.launch_of(history)
    kind = wire.cloud.catalog.types.get(now.instance_type)
    written: dict[str, Any] = {
        "InstanceId": now.id,
        "ImageId": record.image,
        "InstanceType": now.instance_type,
        "State": state(now.state),
        "LaunchTime": now.launched_at,
        "Placement": {
            "AvailabilityZone": now.zone,
            "AvailabilityZoneId": wire.network.zone_ids[now.zone],
            "Tenancy": "default",
            "GroupName": "",
        },
        "Architecture": "arm64" if kind is not None and kind.arch == "arm64" else "x86_64",
        "Hypervisor": "xen",  # EC2's word for Nitro too
        "VirtualizationType": "hvm",
        "RootDeviceType": "ebs",
        "RootDeviceName": "/dev/xvda",
        "EbsOptimized": True,
        "EnaSupport": True,
        "AmiLaunchIndex": 0,
        "ClientToken": history.token,
        "Monitoring": {"State": "disabled"},
        "Tags": as_tags(all_tags(wire, history)),
        "BlockDeviceMappings": [],
        "StateTransitionReason": "",
    }
    if lifecycle(history):
        written["InstanceLifecycle"] = lifecycle(history)
    if record.key_name:
        written["KeyName"] = record.key_name
    if record.profile:
        written["IamInstanceProfile"] = {"Arn": record.profile, "Id": "AIPASIMULATED00000000"}
    return {**written, **_reserved(wire, history), **_network(wire, history), **_ended(history)}


def spot_request(history: InstanceHistory) -> str:
    return f"sir-{history.now.id.removeprefix('i-')[:8]}"


def _reserved(wire: Wire, history: InstanceHistory) -> dict[str, Any]:
    source, preference = history.now.source, wire.launch_of(history).preference
    if source.kind is SourceKind.SPOT:
        return {"SpotInstanceRequestId": spot_request(history)}
    if preference or not source.id:
        asked: dict[str, Any] = {"CapacityReservationPreference": preference or "open"}
    else:
        asked = {"CapacityReservationTarget": {"CapacityReservationId": source.id}}
        if wire.launch_of(history).reserved_only:
            asked["CapacityReservationPreference"] = "capacity-reservations-only"
    there = {"CapacityReservationId": source.id} if source.id else {}
    return {**there, "CapacityReservationSpecification": asked}


def _network(wire: Wire, history: InstanceHistory) -> dict[str, Any]:
    """Gone once it is terminated; of its name EC2 leaves an empty one."""
    record = wire.launch_of(history)
    default = wire.network.security_group
    groups = [
        {"GroupId": id_, "GroupName": "default" if id_ == default else id_} for id_ in record.security_groups
    ]
    if history.now.state is InstanceState.TERMINATED:
        return {"PrivateDnsName": "", "SecurityGroups": [], "NetworkInterfaces": []}
    return {
        "SubnetId": record.subnet.id,
        "VpcId": record.subnet.vpc,
        "PrivateIpAddress": wire.address(history),
        "PrivateDnsName": private_name(wire, history),
        "SourceDestCheck": True,
        "SecurityGroups": groups,
        "NetworkInterfaces": [
            _interface(wire, history, number, kind, groups) for number, kind in enumerate(record.interfaces)
        ],
    }


def _interface(
    wire: Wire, history: InstanceHistory, number: int, kind: str, groups: list[dict[str, str]]
) -> dict[str, Any]:
    """Only the first has an address; the others carry EFA traffic."""
    record, seed = wire.launch_of(history), wire.cloud.seed
    first = {"PrivateIpAddress": wire.address(history), "PrivateDnsName": private_name(wire, history)}
    return {
        "NetworkInterfaceId": seeded_id("eni", seed, history.now.id, str(number)),
        "InterfaceType": kind,
        "Status": "in-use",
        "OwnerId": wire.account,
        "SubnetId": record.subnet.id,
        "VpcId": record.subnet.vpc,
        "Groups": groups,
        "SourceDestCheck": True,
        "Attachment": {
            "AttachmentId": seeded_id("eni-attach", seed, history.now.id, str(number)),
            "AttachTime": history.now.launched_at,
            "DeleteOnTermination": True,
            "DeviceIndex": 0 if number == 0 else 1,
            "NetworkCardIndex": number,
            "Status": "attached",
        },
        **(first if number == 0 else {}),
    }


def _ended(history: InstanceHistory) -> dict[str, Any]:
    if history.shutting_down_at is None:
        return {}
    at = f"{history.shutting_down_at:%Y-%m-%d %H:%M:%S} GMT"
    code = f"Server.{history.ended_by}"
    code, message = _STATE_REASONS.get(history.ended_by, (code, f"{code}: {history.ended_why}"))
    return {
        "StateTransitionReason": f"{'User' if history.ended_by == 'engine' else 'Service'} initiated ({at})",
        "StateReason": {"Code": code, "Message": message},
    }
