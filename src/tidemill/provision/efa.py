"""Elastic Fabric Adapters: which interface goes on which network card of an instance type, and security group rules.

A launch template and Karpenter need different layouts of the same cards: Karpenter accepts no interface that is both
EFA and IP. Knows no pool and no document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.catalog import InstanceType

# Families whose card 0 has IP only. DescribeInstanceTypes says so of p6-b300 (17 cards, 16 EFAs, InterfaceTypes
# of card 0: "interface"); of p6e-gb200 the EC2 user guide does.
_IP_ONLY_CARD_0 = frozenset({"p6-b300", "p6e-gb200"})
# p6e-gb200: EFAs are on the odd cards, which accept only EFA-only interfaces (AWS ParallelCluster does the
# same). Sources differ on how many there are; the catalog's number errs on the low side.
_ODD_CARDS = frozenset({"p6e-gb200"})


@dataclass(frozen=True, slots=True)
class Interface:
    card: int
    device: int
    kind: str  # EC2's InterfaceType: interface (IP), efa (both), efa-only


def layout(kind: InstanceType) -> tuple[Interface, ...]:
    """One interface per card, the primary first; empty: the type has no EFA and EC2 adds its one interface itself.

    EC2 user guide, "EFA configuration for P5 instances", use case 1: EFA with IP on card 0, EFA alone on the others,
    which costs one address a node instead of one a card. Device index 0 on card 0 and 1 elsewhere, as there; where
    card 0 has no EFA the guide puts the others' EFA at device index 0.
    """
    if not kind.efa:
        return ()
    if kind.family not in _IP_ONLY_CARD_0:
        others = (Interface(card, 1, "efa-only") for card in range(1, kind.efa))
        return (Interface(0, 0, "efa"), *others)
    step = 2 if kind.family in _ODD_CARDS else 1
    cards = range(1, 1 + step * kind.efa, step)
    return (Interface(0, 0, "interface"), *(Interface(card, 0, "efa-only") for card in cards))


def separate_layout(kind: InstanceType) -> tuple[Interface, ...]:
    """The same cards with IP and EFA on interfaces of their own: card 0 has one of each, where it has EFA."""
    if not kind.efa:
        return ()
    if kind.family in _IP_ONLY_CARD_0:
        return layout(kind)
    others = (Interface(card, 0, "efa-only") for card in range(1, kind.efa))
    return (Interface(0, 0, "interface"), Interface(0, 1, "efa-only"), *others)


def network_interfaces(kind: InstanceType, security_groups: Sequence[str]) -> list[dict[str, Any]]:
    """In the form of LaunchTemplateData, without a subnet: the launch names it."""
    return [
        {
            "NetworkCardIndex": interface.card,
            "DeviceIndex": interface.device,
            "InterfaceType": interface.kind,
            **({"Groups": list(security_groups)} if security_groups else {}),
        }
        for interface in layout(kind)
    ]


def in_subnet(data: Mapping[str, Any], subnet: str) -> dict[str, Any]:
    """The parameters of RunInstances that launch a template into a subnet.

    Where a template has interfaces EC2 rejects a subnet of the instance: each interface must name it. Fleets and groups
    do that by themselves.
    """
    interfaces = data.get("NetworkInterfaces")
    if not interfaces:
        return {"SubnetId": subnet}
    return {"NetworkInterfaces": [{**interface, "SubnetId": subnet} for interface in interfaces]}
