"""DescribeInstanceTypes and the price list, read into the catalog's facts: on the wire, and record by record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPES

from tests.aws.wired import Wired
from tidemill.aws import prices
from tidemill.aws.fields import Unreadable
from tidemill.aws.prices import price
from tidemill.aws.types import read_type, usable_types
from tidemill.catalog import load
from tidemill.catalog.refreshed import Refreshed, applied, not_listed
from tidemill.engine.clock import WallClock
from tidemill.model.errors import Retryable


class Region:
    """All types that EC2 has in a region, as it describes them: moto ships the table."""

    def pages(self, *_: str, **__: Any) -> Iterator[Any]:
        yield from INSTANCE_TYPES.values()


def test_a_refreshed_catalog_says_of_every_shipped_type_what_ships(wired: Wired):
    told = Refreshed(
        region="us-east-1", as_of=WallClock().now().date(), source="EC2", types=usable_types(wired.aws)
    )
    assert not_listed(told) == ()
    left_out = told.types[0].name
    assert not_listed(told.model_copy(update={"types": told.types[1:]})) == (left_out,)
    made = applied(told)
    for name, shipped in load().types.items():
        assert made.types[name] == shipped, name
    raw = {kind.name: kind for kind in told.types}
    wrong = [
        name
        for name in ("trn2.3xlarge", "trn2.48xlarge")
        if (has := raw[name].accelerator) is not None and has.memory_mib == 524_288
    ]
    assert wrong == ["trn2.3xlarge", "trn2.48xlarge"], "the one documented difference is no longer there"


def test_it_brings_the_types_that_do_not_ship_but_for_those_no_pod_could_use(
    caplog: pytest.LogCaptureFixture,
):
    region: Any = Region()
    names = {one.name for one in usable_types(region)}
    families = {name.partition(".")[0] for name in names}
    assert families >= {"g4dn", "gr6", "g7e", "inf2", "p5", "trn2", "m6i", "c7g", "t8i"}
    assert not families & {"g6f", "gr6f", "g4ad", "dl1", "dl2q", "m4", "t2", "x2gd"}
    assert not {"g4dn.metal", "m7i.metal-24xl"} & names
    assert not caplog.records, "what is left out on purpose is nothing to complain about"


def record(**changes: Any) -> dict[str, Any]:
    card = {"NetworkCardIndex": 0, "MaximumNetworkInterfaces": 4}
    gpu = {"Name": "L4", "Manufacturer": "NVIDIA", "Count": 1, "MemoryInfo": {"SizeInMiB": 22888}}
    return {
        "InstanceType": "g6.xlarge",
        "Hypervisor": "nitro",
        "SupportedUsageClasses": ["on-demand", "spot"],
        "ProcessorInfo": {"SupportedArchitectures": ["i386", "x86_64"]},
        "VCpuInfo": {"DefaultVCpus": 4},
        "MemoryInfo": {"SizeInMiB": 16384},
        "GpuInfo": {"Gpus": [gpu]},
        "InstanceStorageInfo": {"TotalSizeInGB": 250},
        "NetworkInfo": {
            "DefaultNetworkCardIndex": 0,
            "NetworkCards": [card],
            "Ipv4AddressesPerInterface": 15,
        },
        **changes,
    }


def test_a_record_is_read_as_ec2_means_it():
    assert read_type(record()).model_dump() == {
        "name": "g6.xlarge", "arch": "amd64", "hypervisor": "nitro", "vcpus": 4, "memory_mib": 16384,
        "accelerator": {"resource": "nvidia.com/gpu", "model": "L4", "count": 1, "memory_mib": 22888},
        "efa": 0, "nvme_gb": 250, "max_pods": 58, "block": False,
    }  # fmt: skip
    assert read_type(record(SupportedUsageClasses=["capacity-block"])).block


@pytest.mark.parametrize(
    "wrong",
    [
        {"InstanceType": None},
        {"InstanceType": "G6"},
        {"Hypervisor": 7},
        {"VCpuInfo": {"DefaultVCpus": "4"}},
        {"MemoryInfo": None},
        {"ProcessorInfo": {"SupportedArchitectures": ["riscv"]}},
        {"ProcessorInfo": {"SupportedArchitectures": ["x86_64", "arm64"]}},
        {"NetworkInfo": {"DefaultNetworkCardIndex": 3, "NetworkCards": []}},
        {"GpuInfo": {"Gpus": [{"Manufacturer": "NVIDIA", "Count": 1}]}},
        {"GpuInfo": {"Gpus": []}},
    ],
)
def test_a_record_that_does_not_say_what_it_must_is_refused(wrong: dict[str, Any]):
    with pytest.raises(Unreadable):
        read_type(record(**wrong))


# --- prices -------------------------------------------------------------------------------------------


def listed(name: str = "p5.48xlarge", usd: Any = "55.0400000000", **changes: Any) -> dict[str, Any]:
    """As the Price List writes a product, less what nobody reads."""
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": usd}}
    return {
        "product": {"productFamily": "Compute Instance", "attributes": {"instanceType": name}},
        "terms": {"OnDemand": {"SKU.TERM": {"priceDimensions": {"SKU.TERM.RATE": dimension}}}},
        "publicationDate": "2026-11-12T20:14:05Z",
        **changes,
    }


def test_the_list_is_read_page_by_page_for_the_types_that_are_wanted(
    wired: Wired, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(prices, "_PAGE", 90)
    found = prices.on_demand_prices(wired.aws, "eu-west-1", ["p5.48xlarge", "g6.xlarge", "p5e.48xlarge"])
    assert found.usd_h == {"p5.48xlarge": 55.04, "g6.xlarge": 0.8048}, "p5e is not sold by the hour"
    assert wired.aws.rate_limits.calls["GetProducts"] == 11
    with pytest.raises(Retryable, match="none of our instance types in eu-west-1"):
        prices.on_demand_prices(wired.aws, "eu-west-1", ["x9.large"])


def test_a_price_is_dollars_an_hour_of_a_type_on_a_day():
    name, usd_h, day = price(listed())
    assert (name, usd_h, day.isoformat()) == ("p5.48xlarge", 55.04, "2026-11-12")


@pytest.mark.parametrize(
    "wrong",
    [
        listed(usd="0.0000000000"),
        listed(usd="much"),
        listed(usd=None),
        listed(usd="NaN"),
        listed(terms={}),
        listed(terms={"OnDemand": {}}),
        listed(product={}),
        listed(publicationDate="lately"),
        json.loads(json.dumps(listed()).replace("Hrs", "Quantity")),
    ],
)
def test_a_price_that_cannot_be_read_is_refused_and_never_guessed(wrong: dict[str, Any]):
    with pytest.raises(Unreadable):
        price(wrong)


def test_types_keep_their_own_price_when_only_sizes_change():
    made = applied(
        Refreshed(region="r", as_of=WallClock().now().date(), source="x", types=[read_type(record())])
    )
    shipped = load().types["g6.xlarge"]
    assert replace(made.types["g6.xlarge"], allocatable=()) == replace(shipped, allocatable=())
