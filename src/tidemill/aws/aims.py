"""What an Auto Scaling group launches into: read from its launch templates and its own reservation settings. Pure.

A plain group has one template; one with mixed instances has several, and may launch outside the block from any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidemill.report.survey import Aim

# Of a group's own CapacityReservationSpecification: these fall back to on-demand instances.
_FALLS_BACK = ("capacity-reservations-first", "default", "open")

TemplateKey = tuple[str, str]  # lt-…, and a version or $Default or $Latest


def templates_of(record: Mapping[str, Any]) -> tuple[TemplateKey, ...]:
    """Those it launches from; a group with a launch configuration has none, and those know no reservations."""
    mixed = (record.get("MixedInstancesPolicy") or {}).get("LaunchTemplate") or {}
    given = [
        record.get("LaunchTemplate"),
        mixed.get("LaunchTemplateSpecification"),
        *(one.get("LaunchTemplateSpecification") for one in mixed.get("Overrides") or ()),
    ]
    keys = (
        (str(one.get("LaunchTemplateId")), str(one.get("Version") or "$Default"))
        for one in given
        if isinstance(one, Mapping) and one.get("LaunchTemplateId")
    )
    return tuple(dict.fromkeys(keys))


def aim(record: Mapping[str, Any], templates: Iterable[Mapping[str, Any]]) -> Aim:
    """`templates`: what each of them says, as EC2 spells it."""
    parts = list(templates)
    mixed = record.get("MixedInstancesPolicy") or {}
    overrides = (mixed.get("LaunchTemplate") or {}).get("Overrides") or ()
    types = [*(one.get("InstanceType") for one in parts), *(one.get("InstanceType") for one in overrides)]
    targets = dict.fromkeys([*(_target(one) for one in parts), *_own_targets(record)])
    return Aim(
        reservations=tuple(one for one in targets if one),
        markets=tuple(dict.fromkeys(market for one in parts if (market := _market(one)))),
        instance_types=tuple(dict.fromkeys(str(one) for one in types if one)),
        beside=_beside(record, parts),
    )


def _market(data: Mapping[str, Any]) -> str:
    return str((data.get("InstanceMarketOptions") or {}).get("MarketType") or "")


def _target(data: Mapping[str, Any]) -> str:
    target = (data.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
    return str(target.get("CapacityReservationId") or target.get("CapacityReservationResourceGroupArn") or "")


def _own_targets(record: Mapping[str, Any]) -> list[str]:
    target = (record.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
    ids = target.get("CapacityReservationIds") or ()
    return [str(one) for one in (*ids, *(target.get("CapacityReservationResourceGroupArns") or ()))]


def _beside(record: Mapping[str, Any], parts: list[Mapping[str, Any]]) -> str:
    if record.get("MixedInstancesPolicy"):
        blocks = [_market(one) == "capacity-block" for one in parts]
        if any(blocks) and not all(blocks):
            return "its mixed instances policy has launch templates without the block"
        return "its mixed instances policy decides between on-demand and spot"
    preference = (record.get("CapacityReservationSpecification") or {}).get("CapacityReservationPreference")
    if preference in _FALLS_BACK and _own_targets(record):
        return f"its CapacityReservationPreference is {preference}, which falls back to on-demand"
    return ""
