"""What an instance is put into: a VPC, one subnet per zone, a security group, an image. moto keeps them.

The account's default VPC serves, as in a fresh AWS account; what users make besides is found the same way. Ids are
drawn from the seed, so that the same account has the same ids each time.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.errors import SpecError
from tidemill.sim.wire.refusals import AwsError

IMAGE_NAME = "tidemill-simulated-al2023-{arch}"


@dataclass(frozen=True, slots=True)
class Subnet:
    id: str
    zone: str
    vpc: str
    cidr: str

    def address(self, number: int) -> str:
        """The first four and the last are AWS's own; wraps around rather than leave the subnet."""
        hosts = ipaddress.ip_network(self.cidr)
        return str(hosts[4 + number % (hosts.num_addresses - 5)])


@dataclass(frozen=True, slots=True)
class Network:
    vpc: str
    subnets: tuple[Subnet, ...]  # one per zone of the account, in its order
    security_group: str
    images: dict[str, str]  # by architecture
    zone_ids: dict[str, str]

    def in_zone(self, zone: str) -> Subnet:
        return next(one for one in self.subnets if one.zone == zone)

    def as_json(self) -> dict[str, Any]:
        return {
            "vpc": self.vpc,
            "subnets": {one.zone: one.id for one in self.subnets},
            "securityGroup": self.security_group,
            "images": self.images,
        }


def lay_out(ec2: Any, zones: Sequence[str]) -> Network:
    """SpecError: a zone that the region does not have."""
    known = {zone.name: zone.zone_id for zone in ec2.describe_availability_zones()}
    strange = [zone for zone in zones if zone not in known]
    if strange:
        raise SpecError(
            f"{ec2.region_name} has no zone {', '.join(strange)}; it has {', '.join(sorted(known))}"
        )
    vpc = ec2.get_default_vpc().id
    default = {one.availability_zone: one for one in ec2.describe_subnets() if one.vpc_id == vpc}
    (group,) = [one for one in ec2.describe_security_groups() if one.vpc_id == vpc and one.name == "default"]
    images = {}
    for arch in ("x86_64", "arm64"):
        image = ec2.register_image(
            IMAGE_NAME.format(arch=arch), "boots at once, in the simulated account only"
        )
        image.architecture = arch
        images[arch] = str(image.id)
    return Network(vpc, tuple(_subnet(default[zone]) for zone in zones), group.id, images, known)


def subnet(ec2: Any, id_: str) -> Subnet:
    from moto.ec2.exceptions import InvalidSubnetIdError

    try:
        return _subnet(ec2.get_subnet(id_))
    except InvalidSubnetIdError:
        raise AwsError("InvalidSubnetID.NotFound", f"The subnet ID '{id_}' does not exist") from None


def _subnet(theirs: Any) -> Subnet:
    return Subnet(str(theirs.id), str(theirs.availability_zone), str(theirs.vpc_id), str(theirs.cidr_block))
