"""What a launch template says about a launch: the source, the type, the tags. LaunchTemplateData as EC2 spells it.

In process and on the wire templates are read by this one function, so that both launch the same thing from the
same text. Everything else a template holds (user data, network, disks) makes no difference to the simulated account.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.model.capacity import Source, SourceKind
from tidemill.model.errors import Refused
from tidemill.model.labels import Pairs


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """One launch, whoever makes it."""

    source: Source
    instance_type: str
    tags: Pairs = ()  # of the instances
    fills_open: bool = False  # names no reservation, and takes a slot of an open one where there is one


def launch_spec_of(data: Mapping[str, Any]) -> LaunchSpec:
    """Refused: what EC2 would refuse to launch from."""
    market = (data.get("InstanceMarketOptions") or {}).get("MarketType", "")
    specification = data.get("CapacityReservationSpecification") or {}
    target = specification.get("CapacityReservationTarget") or {}
    reservation = str(target.get("CapacityReservationId", ""))
    if market == "capacity-block" and not reservation:
        raise Refused(
            "the market type capacity-block needs a CapacityReservationId in CapacityReservationTarget",
            code="InvalidParameterCombination",
        )
    source = _source(market, reservation)
    return LaunchSpec(source, str(data.get("InstanceType", "")), _tags(data), fills_open(source, data))


def fills_open(source: Source, data: Mapping[str, Any]) -> bool:
    """EC2's default, unless the preference says `none`."""
    specification = data.get("CapacityReservationSpecification") or {}
    return (
        source.kind is SourceKind.ON_DEMAND and specification.get("CapacityReservationPreference") != "none"
    )


def _source(market: str, reservation: str) -> Source:
    match market:
        case "capacity-block":
            return Source(SourceKind.BLOCK, reservation)
        case "spot":
            return Source(SourceKind.SPOT)
        case "":
            return Source(SourceKind.ODCR, reservation) if reservation else Source(SourceKind.ON_DEMAND)
        case _:
            raise Refused(f"there is no market type '{market}'", code="InvalidParameterValue")


def _tags(data: Mapping[str, Any]) -> Pairs:
    for one in data.get("TagSpecifications") or ():
        if one.get("ResourceType") == "instance":
            return tuple((str(tag["Key"]), str(tag.get("Value", ""))) for tag in one.get("Tags") or ())
    return ()
