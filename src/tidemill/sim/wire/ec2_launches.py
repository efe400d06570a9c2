"""RunInstances, and what any launch asks for: EC2's parameters and the launch template behind them.

RunInstances, CreateFleet and Auto Scaling groups all come through `launch_request`, so that a template means the same
to each. Capacity is the account's to give. A ClientToken makes a repetition give the same instances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.model.capacity import Source, SourceKind
from tidemill.model.errors import OutcomeUnknown, TidemillError
from tidemill.model.labels import Pairs
from tidemill.model.purchases import LaunchIntent
from tidemill.sim.cloud.launch_template import fills_open
from tidemill.sim.wire.errors import AnsweredByMoto, AwsError
from tidemill.sim.wire.instance_format import as_reservation
from tidemill.sim.wire.network import Subnet, subnet
from tidemill.sim.wire.operations import ApiCall, Result, operation
from tidemill.sim.wire.published_images import image_behind
from tidemill.sim.wire.state import LaunchRecord, Wire
from tidemill.sim.wire.tag_format import specified
from tidemill.spec import names

Params = Mapping[str, Any]
_PARAMETER = "resolve:ssm:"
# As EC2 and as the catalog write them.
_ARCHITECTURES = {"amd64": "x86_64"}
_TAGGED = ("instance", "volume", "network-interface", "spot-instances-request", "elastic-gpu", "fleet")


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    instance_type: str
    source: Source
    tags: Pairs  # of the instances
    record: LaunchRecord

    @property
    def fills_open(self) -> bool:
        return self.record.preference == "open"

    @property
    def zone(self) -> str:
        return self.record.subnet.zone


def launch_request(wire: Wire, params: Params, *, in_subnet: str = "") -> LaunchRequest:
    """AwsError: what EC2 would refuse before it looks for capacity. `in_subnet`: of a fleet's override, which unlike
    RunInstances' SubnetId goes with a template that lists network interfaces."""
    template, version, data = template_data(wire, params.get("LaunchTemplate"))
    merged = {**data, **{name: value for name, value in params.items() if value is not None}}
    instance_type = merged.get("InstanceType")
    if not instance_type:
        raise AwsError("MissingParameter", "The request must contain the parameter InstanceType")
    image = _image(wire, merged)
    _check_architecture(wire, image, str(instance_type))
    source = _source(wire, merged)
    record = LaunchRecord(
        subnet=subnet(wire.moto("ec2"), in_subnet) if in_subnet else _subnet(wire, merged, source),
        image=image,
        security_groups=_security_groups(wire, merged),
        asked={name: value for name, value in params.items() if name != "DryRun"}
        | ({"SubnetId": in_subnet} if in_subnet else {}),
        template=template,
        template_version=version,
        key_name=_key_pair(wire, merged),
        profile=_profile(wire, merged),
        preference=_preference(source, merged),
        reserved_only=_asked_preference(merged) == "capacity-reservations-only",
        user_data=str(merged.get("UserData") or ""),  # moto's templates hold an object
        interfaces=_interfaces(merged),
    )
    return LaunchRequest(str(instance_type), source, _tags(data, params), record)


# --- its parts ----------------------------------------------------------------------------------------


def template_data(wire: Wire, given: Params | None) -> tuple[str, str, Params]:
    """The template's id, the version used, and what it says."""
    if not given:
        return "", "", {}
    ec2 = wire.moto("ec2")
    if given.get("LaunchTemplateId"):
        template = ec2.get_launch_template(given["LaunchTemplateId"])
    elif given.get("LaunchTemplateName"):
        template = ec2.get_launch_template_by_name(given["LaunchTemplateName"])
    else:
        raise AwsError(
            "MissingParameter", "a launch template is named by LaunchTemplateId or LaunchTemplateName"
        )
    wanted = str(given.get("Version") or "$Default")
    if not wanted.startswith("$") and not (
        wanted.isdigit() and 1 <= int(wanted) <= template.latest_version_number
    ):
        raise AwsError(
            "InvalidLaunchTemplateId.VersionNotFound", f"Could not find version {wanted} of {template.id}"
        )
    version = template.get_version(wanted)
    return str(template.id), str(version.number), dict(version.data)


def _source(wire: Wire, merged: Params) -> Source:
    """Where the capacity is to come from. EC2 never falls back from one to another."""
    market = (merged.get("InstanceMarketOptions") or {}).get("MarketType")
    target = (merged.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
    if target.get("CapacityReservationResourceGroupArn"):
        raise AwsError(
            "UnsupportedOperation", "the simulated AWS has no groups of reservations: name one by its id"
        )
    id_ = target.get("CapacityReservationId") or ""
    if market == "capacity-block":
        if not id_:
            raise AwsError(
                "InvalidParameterCombination", "MarketType capacity-block needs a CapacityReservationTarget"
            )
        return Source(SourceKind.BLOCK, id_)
    if market == "spot":
        if id_:
            raise AwsError(
                "InvalidParameterCombination", "a spot instance cannot target a Capacity Reservation"
            )
        return Source(SourceKind.SPOT)
    if market is not None:
        raise AwsError("InvalidParameterValue", f"Invalid value '{market}' for MarketType.")
    if not id_:
        return Source(SourceKind.ON_DEMAND)
    reservation = wire.cloud.reservation(id_)
    if reservation is not None and reservation.kind is SourceKind.BLOCK:
        raise AwsError(
            "InvalidParameterCombination", f"{id_} is a Capacity Block: it needs MarketType capacity-block"
        )
    return Source(SourceKind.ODCR, id_)


def _preference(source: Source, merged: Params) -> str:
    if source.kind is not SourceKind.ON_DEMAND:
        return ""
    return "open" if fills_open(source, merged) else "none"


def _asked_preference(merged: Params) -> str:
    asked = merged.get("CapacityReservationSpecification") or {}
    return str(asked.get("CapacityReservationPreference") or "")


def _subnet(wire: Wire, merged: Params, source: Source) -> Subnet:
    cards = merged.get("NetworkInterfaces") or []
    named = {card["SubnetId"] for card in cards if card.get("SubnetId")}
    if cards and merged.get("SubnetId"):
        raise AwsError(
            "InvalidParameterCombination",
            "Network interfaces and an instance-level subnet ID may not be specified on the same request",
        )
    if len(named) > 1:
        raise AwsError("InvalidParameterCombination", "all network interfaces must be in one subnet")
    wanted = merged.get("SubnetId") or next(iter(named), None)
    if wanted:
        return subnet(wire.moto("ec2"), wanted)
    return _default_subnet(wire, merged, source)


def _default_subnet(wire: Wire, merged: Params, source: Source) -> Subnet:
    """None was named: the zone that was, or that of the reservation, or the account's first."""
    reservation = wire.cloud.reservation(source.id) if source.id else None
    zone = (merged.get("Placement") or {}).get("AvailabilityZone")
    zone = zone or (reservation.zone if reservation is not None else wire.cloud.zones[0])
    if zone not in wire.cloud.zones:
        raise AwsError("InvalidParameterValue", f"Invalid availability zone: [{zone}]")
    return wire.network.in_zone(zone)


def _security_groups(wire: Wire, merged: Params) -> tuple[str, ...]:
    cards = merged.get("NetworkInterfaces") or []
    direct = tuple(merged.get("SecurityGroupIds") or ())
    if cards and direct:
        raise AwsError(
            "InvalidParameterCombination",
            "Network interfaces and instance-level security groups may not be specified on the same request",
        )
    of_cards = tuple(dict.fromkeys(group for card in cards for group in card.get("Groups") or ()))
    groups = direct or of_cards or (wire.network.security_group,)
    for id_ in groups:
        if not id_.startswith("sg-"):
            raise AwsError("InvalidGroupId.Malformed", f'Invalid id: "{id_}" (expecting "sg-...")')
        if wire.moto("ec2").get_security_group_from_id(id_) is None:
            raise AwsError("InvalidGroup.NotFound", f"The security group '{id_}' does not exist")
    return groups


def _interfaces(merged: Params) -> tuple[str, ...]:
    """Their types, in order: `interface`, `efa`, `efa-only`. None was asked for: EC2 makes one."""
    cards = merged.get("NetworkInterfaces") or ()
    return tuple(str(card.get("InterfaceType") or "interface") for card in cards) or ("interface",)


def _image(wire: Wire, merged: Params) -> str:
    image = str(merged.get("ImageId") or "")
    if not image:
        raise AwsError("MissingParameter", "The request must contain the parameter ImageId")
    if image.startswith(_PARAMETER):
        image = image_behind(wire, image.removeprefix(_PARAMETER)) or ""
        if not image:
            raise AwsError("InvalidParameterValue", f"The parameter '{merged['ImageId']}' names no image")
    if not image.startswith("ami-"):
        raise AwsError("InvalidAMIID.Malformed", f'Invalid id: "{image}" (expecting "ami-...")')
    if image not in wire.moto("ec2").amis:
        raise AwsError("InvalidAMIID.NotFound", f"The image id '[{image}]' does not exist")
    return image


def _check_architecture(wire: Wire, image: str, instance_type: str) -> None:
    kind = wire.cloud.catalog.types.get(instance_type)
    if kind is None or image in wire.network.named_images:
        return
    theirs = _ARCHITECTURES.get(kind.arch, kind.arch)
    built_for = str(wire.moto("ec2").amis[image].architecture)
    if built_for != theirs:
        raise AwsError(
            "InvalidParameterValue",
            f"The architecture '{theirs}' of the specified instance type does not match the architecture"
            f" '{built_for}' of the specified AMI. Specify an instance type and an AMI that have matching"
            " architectures, and try again.",
        )


def _key_pair(wire: Wire, merged: Params) -> str:
    name = str(merged.get("KeyName") or "")
    if name and name not in wire.moto("ec2").key_pairs:
        raise AwsError("InvalidKeyPair.NotFound", f"The key pair '{name}' does not exist")
    return name


def _profile(wire: Wire, merged: Params) -> str:
    """Its ARN."""
    given = merged.get("IamInstanceProfile") or {}
    by = "arn" if given.get("Arn") else "name"
    wanted = str(given.get("Arn") or given.get("Name") or "")
    if not wanted:
        return ""
    for profile in wire.iam.get_instance_profiles():
        if wanted == str(getattr(profile, by)):
            return str(profile.arn)
    raise AwsError(
        "InvalidParameterValue",
        f"Value ({wanted}) for parameter iamInstanceProfile.{by} is invalid. Invalid IAM Instance Profile"
        f" {'ARN' if by == 'arn' else by}",
    )


def _tags(data: Params, params: Params) -> Pairs:
    """The template's, and over them those of the call."""
    # moto writes the tags of the template itself into its data: a launch has nothing to do with them.
    theirs = [
        specification
        for specification in data.get("TagSpecifications") or ()
        if specification.get("ResourceType") != "launch-template"
    ]
    given = [*theirs, *(params.get("TagSpecifications") or ())]
    return specified(given, _TAGGED, ("instance",))


@operation("ec2", "CreateLaunchTemplateVersion")
def create_template_version(call: ApiCall) -> Result:
    """What is not given is inherited from `SourceVersion`, where one is named; moto takes nothing over."""
    if call.get("SourceVersion") is None:
        raise AnsweredByMoto
    named = {key: call.get(key) for key in ("LaunchTemplateId", "LaunchTemplateName")}
    id_, _, inherited = template_data(call.wire, {**named, "Version": call.get("SourceVersion")})
    call.stop_dry_run()
    template = call.wire.moto("ec2").get_launch_template(id_)
    data = {**inherited, **call.get("LaunchTemplateData", {})}
    version = template.create_version(data, call.get("VersionDescription", ""))
    return {
        "LaunchTemplateVersion": {
            "CreateTime": version.create_time,
            "CreatedBy": f"arn:aws:iam::{call.wire.account}:root",
            "DefaultVersion": template.is_default(version),
            "LaunchTemplateData": version.data,
            "LaunchTemplateId": template.id,
            "LaunchTemplateName": template.name,
            "VersionDescription": version.description,
            "VersionNumber": version.number,
        }
    }


@operation("ec2", "RunInstances")
def run(call: ApiCall) -> Result:
    wire = call.wire
    least, most = call.require("MinCount"), call.require("MaxCount")
    if not 1 <= least <= most:
        raise AwsError("InvalidParameterValue", f"MinCount {least} and MaxCount {most} do not go together")
    request = launch_request(wire, call.params)
    call.stop_dry_run()
    token = call.get("ClientToken") or wire.new_token("run-instances")
    ids = launch(wire, token, request, least, most)
    return as_reservation(wire, [wire.cloud.instance_histories[id_] for id_ in ids])


def launch(wire: Wire, token: str, request: LaunchRequest, least: int, most: int) -> tuple[str, ...]:
    """The account admits or refuses. What was asked is recorded first: a lost answer leaves instances behind."""
    known = wire.launches.get(token)
    if known is not None and _differs(known.asked, request.record.asked):
        raise AwsError(
            "IdempotentParameterMismatch", "The client token was used before, with other parameters"
        )
    tag = dict(request.tags)
    intent = LaunchIntent(
        id=token,
        pool=tag.get(names.TAG_POOL, ""),
        source=request.source,
        instance_type=request.instance_type,
        zone=request.zone,
        count=most,
        provisioner=tag.get(names.TAG_PROVISIONER, ""),
        written_at=wire.clock.now(),
    )
    wire.launches[token] = request.record
    try:
        return wire.cloud.launch(intent, request.tags, least, fills_open=request.fills_open)
    except OutcomeUnknown:
        raise
    except TidemillError:
        if known is None:
            del wire.launches[token]
        raise


def _differs(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    return {name: str(value) for name, value in first.items()} != {
        name: str(value) for name, value in second.items()
    }
