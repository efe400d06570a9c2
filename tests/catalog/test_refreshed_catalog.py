"""Types and prices from AWS over the shipped catalog: validated as a whole, and corrected where AWS is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from tidemill.catalog import load, shipped_types
from tidemill.catalog.refreshed import Prices, Refreshed, TypeFacts, applied, not_listed, read, written

TODAY = date(2026, 11, 15)


def facts(name: str, /, **changes) -> TypeFacts:
    """As it ships, but for the changes."""
    shipped = next(shipped_type for shipped_type in shipped_types() if shipped_type["name"] == name)
    kept = {key: value for key, value in shipped.items() if key != "ultraserver"}
    return TypeFacts.model_validate({**kept, **changes})


def refreshed(*types: TypeFacts, **changes) -> Refreshed:
    given: dict[str, Any] = {
        "region": "us-east-1",
        "as_of": TODAY,
        "source": "EC2",
        "types": list(types),
    } | changes
    return Refreshed(**given)


def test_facts_from_aws_replace_the_shipped_ones():
    made = applied(refreshed(facts("p5.48xlarge", efa=16)))
    assert made.types["p5.48xlarge"].efa == 16
    assert dict(made.types["p5.48xlarge"].allocatable)["vpc.amazonaws.com/efa"] == 16
    assert made.types["p5en.48xlarge"] == load().types["p5en.48xlarge"]
    assert (made.types_as_of, made.region) == ("2026-11-15", "us-east-1")


def test_types_that_aws_does_not_list_stay_and_are_reported():
    told = refreshed(facts("p5.48xlarge"))
    assert set(applied(told).types) == set(load().types)
    assert not_listed(told) == tuple(name for name in load().types if name != "p5.48xlarge")


def test_a_new_type_is_listed_last():
    made = applied(refreshed(facts("g6.xlarge", name="g9.xlarge"), facts("p5.48xlarge")))
    assert list(made.types) == [*load().types, "g9.xlarge"]
    assert made.types["g9.xlarge"].generation == 9
    assert made.types["g9.xlarge"].on_demand_usd_h is None


def test_the_wrong_trainium2_memory_from_ec2_is_corrected():
    accelerator = {
        "resource": "aws.amazon.com/neuron",
        "model": "Trainium2",
        "count": 16,
        "memory_mib": 524_288,
    }
    made = applied(refreshed(facts("trn2.48xlarge", accelerator=accelerator)))
    assert made.types["trn2.48xlarge"] == load().types["trn2.48xlarge"]


def test_types_of_ultraservers_are_never_sold_by_the_instance():
    gb200 = facts("p6e-gb200.36xlarge", block=True)
    unknown = facts("p6e-gb200.36xlarge", name="p6e-gb300.36xlarge", block=True)
    made = applied(refreshed(gb200, unknown))
    assert made.types[gb200.name] == load().types[gb200.name]
    assert not made.types[unknown.name].block


def test_the_price_list_of_a_region_replaces_the_shipped_list_as_a_whole():
    prices = Prices(as_of=TODAY, source="list", usd_h={"p5.48xlarge": 60.0})
    made = applied(refreshed(facts("p5.48xlarge"), on_demand=prices))
    assert made.types["p5.48xlarge"].on_demand_usd_h == 60.0
    assert made.types["g6.xlarge"].on_demand_usd_h is None, "it is not sold by the hour there"
    assert made.types["p5.48xlarge"].block_usd_h == load().types["p5.48xlarge"].block_usd_h
    assert {price_list.kind: price_list.as_of for price_list in made.price_lists} == {
        "block": "2026-07",
        "on-demand": "2026-11-15",
    }


def test_without_a_price_list_the_shipped_prices_stay():
    made = applied(refreshed(facts("p5.48xlarge")))
    assert made.price_lists == load().price_lists


def test_a_refreshed_catalog_can_be_written_and_read():
    told = refreshed(facts("p5.48xlarge"), facts("trn2.48xlarge"))
    assert read(written(told), "us-east-1") == told


def test_a_refreshed_catalog_counts_only_if_newer_than_the_shipped_one():
    dates = [load().types_as_of, *(price_list.as_of for price_list in load().price_lists)]
    newest = max(one if len(one) == 10 else f"{one}-01" for one in dates)
    assert refreshed(facts("p5.48xlarge")).newer
    assert not refreshed(facts("p5.48xlarge"), as_of=date.fromisoformat(newest)).newer
    assert not refreshed(facts("p5.48xlarge"), as_of=date(2026, 1, 1)).newer


def _changed(*path, value):
    data = json.loads(written(refreshed(facts("p5.48xlarge"))))
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[]", "all of it"),
        ("{}", "region"),
        (_changed("version", value=2), "a newer version of Tidemill wrote it"),
        (_changed("region", value="eu-west-1"), "it is for region eu-west-1"),
        (_changed("types", value=[]), "types"),
        (_changed("types", 0, "vcpus", value="192"), r"types\.0\.vcpus"),
        (_changed("types", 0, "vcpus", value=0), r"types\.0\.vcpus"),
        (_changed("types", 0, "name", value="p5"), r"types\.0\.name"),
        (_changed("types", 0, "sockets", value=2), r"types\.0\.sockets"),
        (_changed("types", 0, "accelerator", "memory_mib", value=-1), r"accelerator\.memory_mib"),
        (
            _changed("on_demand", value={"as_of": "2026-11-15", "source": "x", "usd_h": {"p5.48xlarge": 0}}),
            "usd_h",
        ),
    ],
)
def test_an_invalid_catalog_file_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        read(text, "us-east-1")


def test_the_shipped_catalog_has_dates_and_sources():
    assert load().types_as_of == "2026-07"
    assert "DescribeInstanceTypes" in load().types_source
    assert load().region == ""
    assert replace(load(), region="x").region == "x"
