"""What a launch needs besides capacity: a VPC, one subnet per zone, a security group, an image. moto keeps them.

The account has a default VPC, as in a fresh AWS account; subnets that documents name are created under those ids. Other
ids are drawn from the seed, so that the same account has the same ids each time.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tidemill.model.errors import SpecError
from tidemill.sim.wire.errors import AwsError

_CIDR = "10.0.0.0/16"
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
    subnets: tuple[Subnet, ...]  # by zone, in the account's order; at least one each
    security_group: str
    images: dict[str, str]  # by architecture
    named_images: frozenset[str]  # of documents, which do not say the architecture: they boot on any type
    zone_ids: dict[str, str]

    def in_zone(self, zone: str) -> Subnet:
        return next(subnet for subnet in self.subnets if subnet.zone == zone)

    def as_json(self) -> dict[str, Any]:
        return {
            "vpc": self.vpc,
            "subnets": {
                zone: [subnet.id for subnet in self.subnets if subnet.zone == zone]
                for zone in dict.fromkeys(subnet.zone for subnet in self.subnets)
            },
            "securityGroup": self.security_group,
            "images": self.images,
        }


def create_network(
    ec2: Any,
    zones: Sequence[str],
    named: Mapping[str, Sequence[str]],
    named_images: Iterable[str] = (),
    named_groups: Iterable[str] = (),
) -> Network:
    """`named`: ids of subnets by zone, to be made as they are; `named_images`, `named_groups`: ids of images and
    security groups likewise.

    SpecError: a zone that the region does not have.
    """
    known = {zone.name: zone.zone_id for zone in ec2.describe_availability_zones()}
    strange = [zone for zone in zones if zone not in known]
    if strange:
        raise SpecError(
            f"{ec2.region_name} has no zone {', '.join(strange)}; it has {', '.join(sorted(known))}"
        )
    vpc = str(
        _make(ec2, zones, named) if any(named.get(zone) for zone in zones) else ec2.get_default_vpc().id
    )
    inside = [_subnet(item) for item in ec2.describe_subnets() if item.vpc_id == vpc]
    subnets = tuple(item for zone in zones for item in inside if item.zone == zone)
    (group,) = [
        item for item in ec2.describe_security_groups() if item.vpc_id == vpc and item.name == "default"
    ]
    images = {}
    for arch in ("x86_64", "arm64"):
        image = ec2.register_image(
            IMAGE_NAME.format(arch=arch), "boots at once, in the simulated account only"
        )
        image.architecture = arch
        images[arch] = str(image.id)
    named_images = frozenset(named_images)
    for id_ in sorted(named_images):
        image = ec2.register_image(id_, "named by a document")
        ec2.amis[id_] = ec2.amis.pop(image.id)
        image.id = id_
    for id_ in named_groups:
        made = ec2.create_security_group(id_.removeprefix("sg-"), "named by a document", vpc_id=vpc)
        ec2.groups[vpc][id_] = ec2.groups[vpc].pop(made.id)
        made.id = id_
    return Network(vpc, subnets, group.id, images, named_images, known)


def _make(ec2: Any, zones: Sequence[str], named: Mapping[str, Sequence[str]]) -> str:
    """A VPC with the subnets that were named; a zone without any gets one all the same."""
    vpc = str(ec2.create_vpc(_CIDR).id)
    ranges = ipaddress.ip_network(_CIDR).subnets(new_prefix=20)
    for zone in zones:
        for id_ in named.get(zone) or ("",):
            cidr = next(ranges, None)
            if cidr is None:
                raise SpecError("the simulated AWS makes at most 16 subnets")
            with _called(id_):
                ec2.create_subnet(vpc, str(cidr), availability_zone=zone)
    return vpc


@contextmanager
def _called(id_: str) -> Iterator[None]:
    """moto gives what is made meanwhile this id; empty: one of its own."""
    from moto.ec2.models import subnets

    theirs: Any = subnets
    usual = theirs.random_subnet_id
    if id_:
        theirs.random_subnet_id = lambda: id_
    try:
        yield
    finally:
        theirs.random_subnet_id = usual


@contextmanager
def no_ids_drawn() -> Iterator[None]:
    """What is made meanwhile must not rename what is made afterwards: moto draws ids one after the other."""
    from moto.moto_api._internal import mock_random

    before = mock_random.getstate()
    try:
        yield
    finally:
        mock_random.setstate(before)


def subnet(ec2: Any, id_: str) -> Subnet:
    from moto.ec2.exceptions import InvalidSubnetIdError

    try:
        return _subnet(ec2.get_subnet(id_))
    except InvalidSubnetIdError:
        raise AwsError("InvalidSubnetID.NotFound", f"The subnet ID '{id_}' does not exist") from None


def _subnet(theirs: Any) -> Subnet:
    return Subnet(str(theirs.id), str(theirs.availability_zone), str(theirs.vpc_id), str(theirs.cidr_block))
