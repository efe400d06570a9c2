"""What an Auto Scaling group launches into: read from its launch templates and its own reservation settings. Pure.

A plain group has one template; one with mixed instances has several, and may launch outside the block from any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidemill.aws.fields import part, parts
from tidemill.report.survey import GroupTarget

# Of a group's own CapacityReservationSpecification: these fall back to on-demand instances.
_FALLS_BACK = ("capacity-reservations-first", "default", "open")

TemplateKey = tuple[str, str]  # lt-…, and a version or $Default or $Latest


def templates_of(record: Mapping[str, Any]) -> tuple[TemplateKey, ...]:
    """Those it launches from; a group with a launch configuration has none, and those know no reservations."""
    mixed = part(record, "MixedInstancesPolicy", "LaunchTemplate")
    given = [
        part(record, "LaunchTemplate"),
        part(mixed, "LaunchTemplateSpecification"),
        *(part(one, "LaunchTemplateSpecification") for one in parts(mixed, "Overrides")),
    ]
    keys = (
        (str(one.get("LaunchTemplateId")), str(one.get("Version") or "$Default"))
        for one in given
        if one.get("LaunchTemplateId")
    )
    return tuple(dict.fromkeys(keys))


def group_target(record: Mapping[str, Any], templates: Iterable[Mapping[str, Any]]) -> GroupTarget:
    """`templates`: what each of them says, as EC2 spells it. What is no such thing says nothing."""
    says = list(templates)
    overrides = parts(part(record, "MixedInstancesPolicy", "LaunchTemplate"), "Overrides")
    targets = (*(_target(one) for one in says), *_own_targets(record))
    return GroupTarget(
        reservations=_words(targets),
        markets=_words(_market(one) for one in says),
        instance_types=_words(one.get("InstanceType") for one in (*says, *overrides)),
        beside=_beside(record, says),
    )


def _market(data: Mapping[str, Any]) -> Any:
    return part(data, "InstanceMarketOptions").get("MarketType")


def _target(data: Mapping[str, Any]) -> Any:
    target = part(data, "CapacityReservationSpecification", "CapacityReservationTarget")
    return target.get("CapacityReservationId") or target.get("CapacityReservationResourceGroupArn")


def _own_targets(record: Mapping[str, Any]) -> list[Any]:
    target = part(record, "CapacityReservationSpecification", "CapacityReservationTarget")
    given = (target.get("CapacityReservationIds"), target.get("CapacityReservationResourceGroupArns"))
    return [one for each in given if isinstance(each, list) for one in each]


def _beside(record: Mapping[str, Any], says: list[Mapping[str, Any]]) -> str:
    if record.get("MixedInstancesPolicy"):
        blocks = [_market(one) == "capacity-block" for one in says]
        if any(blocks) and not all(blocks):
            return "its mixed instances policy has launch templates without the block"
        return "its mixed instances policy decides between on-demand and spot"
    preference = part(record, "CapacityReservationSpecification").get("CapacityReservationPreference")
    if _own_targets(record) and isinstance(preference, str) and preference in _FALLS_BACK:
        return f"its CapacityReservationPreference is {preference}, which falls back to on-demand"
    return ""


def _words(found: Iterable[Any]) -> tuple[str, ...]:
    """Each once, in the order they came."""
    return tuple(dict.fromkeys(one for one in found if isinstance(one, str) and one))
