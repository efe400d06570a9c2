"""What a group launches into, read from its templates: plain groups, mixed instances, settings of its own."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill.aws.account_survey import group_target, templates_of

BLOCK = {
    "InstanceType": "p5.48xlarge",
    "InstanceMarketOptions": {"MarketType": "capacity-block"},
    "CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": "cr-1"}},
}
PLAIN = {"InstanceType": "p5.48xlarge"}


def mixed(*overrides: dict[str, Any]) -> dict[str, Any]:
    first = {"LaunchTemplateId": "lt-1", "Version": "3"}
    return {
        "MixedInstancesPolicy": {
            "LaunchTemplate": {"LaunchTemplateSpecification": first, "Overrides": list(overrides)}
        }
    }


def test_the_templates_of_a_group_include_its_policy_and_overrides():
    assert templates_of({"LaunchTemplate": {"LaunchTemplateId": "lt-1"}}) == (("lt-1", "$Default"),)
    second = {"LaunchTemplateSpecification": {"LaunchTemplateId": "lt-2", "Version": "$Latest"}}
    assert templates_of(mixed(second, second, {"InstanceType": "p4d.24xlarge"})) == (
        ("lt-1", "3"),
        ("lt-2", "$Latest"),
    )
    assert templates_of({"LaunchConfigurationName": "old"}) == ()


def test_a_template_on_a_block_targets_only_the_block():
    found = group_target({}, [BLOCK])
    assert (found.reservations, found.markets, found.fallback) == (("cr-1",), ("capacity-block",), "")
    assert group_target({}, [PLAIN]).reservations == ()


@pytest.mark.parametrize(
    ("templates", "why"),
    [([BLOCK, PLAIN], "launch templates without the block"), ([BLOCK], "between on-demand and spot")],
)
def test_a_group_with_mixed_instances_may_launch_outside_the_block(templates: list[dict[str, Any]], why: str):
    found = group_target(mixed({"InstanceType": "p4d.24xlarge"}), templates)
    assert why in found.fallback
    assert found.instance_types == ("p5.48xlarge", "p4d.24xlarge")


@pytest.mark.parametrize(
    ("preference", "falls_back"),
    [("capacity-reservations-only", False), ("capacity-reservations-first", True), ("default", True)],
)
def test_a_groups_own_reservations_may_fall_back_to_on_demand(preference: str, falls_back: bool):
    own = {
        "CapacityReservationPreference": preference,
        "CapacityReservationTarget": {"CapacityReservationIds": ["cr-2", "cr-3"]},
    }
    found = group_target({"CapacityReservationSpecification": own}, [PLAIN])
    assert found.reservations == ("cr-2", "cr-3")
    assert bool(found.fallback) is falls_back
