"""What RunInstances is asked, and how a template's content is told apart: pure."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.account import P5, ZONES, tags
from tidemill.aws.compute import run_instances_request, template_digest
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.errors import Refused
from tidemill.ports.compute import LaunchRequest, TemplateVersion


def order(kind: SourceKind = SourceKind.BLOCK, **given: Any) -> LaunchRequest:
    source = Source(kind, "cr-1" if kind in (SourceKind.BLOCK, SourceKind.ODCR) else "")
    settings: dict[str, Any] = {
        "token": "l-1", "template": TemplateVersion("lt-1", "mill", 3), "source": source, "instance_type": P5,
        "zone": ZONES[0], "subnets": ("subnet-a", "subnet-b"), "count": 4, "tags": tags(intent="l-1"),
    }  # fmt: skip
    return LaunchRequest(**settings | given)


def test_a_launch_names_its_token_its_template_version_and_how_many_at_least_and_at_most():
    made = run_instances_request(order(), ())
    assert made["ClientToken"] == "l-1"
    assert made["LaunchTemplate"] == {"LaunchTemplateId": "lt-1", "Version": "3"}
    assert (made["MinCount"], made["MaxCount"]) == (1, 4)
    whole = run_instances_request(order(least=4), ())
    assert (whole["MinCount"], whole["MaxCount"]) == (4, 4), "a gang: all or none"
    assert {one["ResourceType"] for one in made["TagSpecifications"]} == {
        "instance",
        "volume",
        "network-interface",
    }


@pytest.mark.requirement("CB-14")
@pytest.mark.parametrize(
    ("kind", "market", "reservation"),
    [
        (
            SourceKind.BLOCK,
            "capacity-block",
            {"CapacityReservationTarget": {"CapacityReservationId": "cr-1"}},
        ),
        (SourceKind.ODCR, None, {"CapacityReservationTarget": {"CapacityReservationId": "cr-1"}}),
        (SourceKind.SPOT, "spot", None),
        (SourceKind.ON_DEMAND, None, {"CapacityReservationPreference": "none"}),
    ],
)
def test_each_source_is_asked_for_in_its_own_words(kind: SourceKind, market: str | None, reservation: Any):
    made = run_instances_request(order(kind), ())
    assert made.get("InstanceMarketOptions", {}).get("MarketType") == market
    assert made.get("CapacityReservationSpecification") == reservation


def test_the_same_order_is_the_same_request_and_launches_spread_over_subnets():
    assert run_instances_request(order(), ()) == run_instances_request(order(), ())
    assert run_instances_request(order(), ()) == run_instances_request(
        order(subnets=("subnet-b", "subnet-a")), ()
    )
    used = {run_instances_request(order(token=f"l-{number}"), ())["SubnetId"] for number in range(20)}
    assert used == {"subnet-a", "subnet-b"}


def test_where_the_template_has_network_interfaces_the_subnet_goes_into_each():
    cards = [{"DeviceIndex": 0, "NetworkCardIndex": 0}, {"DeviceIndex": 1, "NetworkCardIndex": 1}]
    made = run_instances_request(order(), cards)
    assert "SubnetId" not in made
    subnets = {one["SubnetId"] for one in made["NetworkInterfaces"]}
    assert len(subnets) == 1
    assert [one["NetworkCardIndex"] for one in made["NetworkInterfaces"]] == [0, 1]


def test_a_token_that_ec2_would_not_take_is_replaced_by_its_digest():
    long = run_instances_request(order(token="l-" + "x" * 80), ())["ClientToken"]
    assert len(long) == 64
    assert long == run_instances_request(order(token="l-" + "x" * 80), ())["ClientToken"]


def test_without_a_subnet_in_the_zone_nothing_is_asked():
    with pytest.raises(Refused, match="no subnet in us-east-1a"):
        run_instances_request(order(subnets=()), ())


def test_content_is_the_same_however_it_is_ordered():
    assert template_digest({"a": 1, "b": [1, 2]}) == template_digest({"b": [1, 2], "a": 1})
    assert template_digest({"a": 1}) != template_digest({"a": 2})
