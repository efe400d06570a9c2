"""The shipped catalog is complete, and names of instance types are split as EC2 defines them."""

from __future__ import annotations

import re

import pytest

from tidemill.catalog import load, split_name

SIZES = {
    "g5": "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge",
    "g6": "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge",
    "g6e": "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge",
    "p4d": "24xlarge",
    "p4de": "24xlarge",
    "p5": "4xlarge 48xlarge",
    "p5e": "48xlarge",
    "p5en": "48xlarge",
    "p6-b200": "48xlarge",
    "p6-b300": "48xlarge",
    "p6e-gb200": "36xlarge",
    "trn1": "2xlarge 32xlarge",
    "trn1n": "32xlarge",
    "trn2": "3xlarge 48xlarge",
}


def test_the_catalog_has_every_size_of_its_families():
    found: dict[str, list[str]] = {}
    for t in load().types.values():
        if t.accelerator is not None:
            found.setdefault(t.family, []).append(t.size)
    assert found == {family: sizes.split() for family, sizes in SIZES.items()}


def test_the_catalog_has_the_current_types_without_accelerators():
    plain = [t for t in load().types.values() if t.accelerator is None]
    assert {t.category for t in plain} == {"c", "m", "r", "t"}
    assert {"c7i", "m7i", "r7i", "c8g", "m8g", "r8g", "t3", "t4g"} <= {t.family for t in plain}
    assert all(t.on_demand_usd_h and not t.block and not t.size.startswith("metal") for t in plain)
    m7i = load().types["m7i.xlarge"]
    assert (m7i.vcpus, m7i.memory_mib, m7i.arch, m7i.gpus) == (4, 16384, "amd64", 0)
    assert dict(m7i.allocatable)["pods"] == 58


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("p5.48xlarge", ("p5", "p", 5, "48xlarge")),
        ("g6e.xlarge", ("g6e", "g", 6, "xlarge")),
        ("p6-b200.48xlarge", ("p6-b200", "p", 6, "48xlarge")),
        ("p6e-gb200.36xlarge", ("p6e-gb200", "p", 6, "36xlarge")),
        ("trn1n.32xlarge", ("trn1n", "trn", 1, "32xlarge")),
    ],
)
def test_splits_a_name_into_family_category_generation_and_size(name, parts):
    assert split_name(name) == parts


@pytest.mark.parametrize("nonsense", ["", "p5", "5p.xlarge", "p5.", "P5.48xlarge", "p5 .48xlarge"])
def test_refuses_a_name_that_is_not_an_instance_type(nonsense):
    with pytest.raises(ValueError, match=re.escape(repr(nonsense))):
        split_name(nonsense)


@pytest.mark.parametrize(
    ("name", "model", "count", "memory_mib", "efa", "nvme_gb"),
    [
        ("p4d.24xlarge", "A100", 8, 40960, 4, 8000),
        ("p5.48xlarge", "H100", 8, 81920, 32, 30400),
        ("p5en.48xlarge", "H200", 8, 144384, 16, 30400),
        ("p6-b300.48xlarge", "B300", 8, 275040, 16, 30400),
        ("g6e.48xlarge", "L40S", 8, 45776, 4, 7600),
        ("trn2.48xlarge", "Trainium2", 16, 98304, 16, 7600),
    ],
)
def test_types_have_accelerators_network_and_disks(name, model, count, memory_mib, efa, nvme_gb):
    t = load().types[name]
    assert t.accelerator is not None
    assert (t.accelerator.model, t.gpus, t.accelerator.memory_mib) == (model, count, memory_mib)
    assert (t.efa, t.nvme_gb) == (efa, nvme_gb)


def test_ultraserver_instances_are_not_sold_by_the_instance():
    t = load().types["p6e-gb200.36xlarge"]
    assert (t.block, t.ultraserver, t.arch) == (False, "u-p6e-gb200", "arm64")


def test_exactly_the_types_sold_as_blocks_have_a_block_price():
    for t in load().types.values():
        assert (t.block_usd_h is not None) == (t.block or bool(t.ultraserver)), t.name


def test_prices_carry_their_date_and_name_only_known_types():
    catalog = load()
    assert catalog.prices_as_of == min(price_list.as_of for price_list in catalog.price_lists)
    for price_list in catalog.price_lists:
        assert re.fullmatch(r"\d{4}-\d{2}(-\d{2})?", price_list.as_of)
        assert price_list.source
        assert set(price_list.usd_h) <= set(catalog.types)


def test_a_block_hour_is_cheaper_than_an_on_demand_hour():
    priced = [t for t in load().types.values() if t.block_usd_h is not None and t.on_demand_usd_h is not None]
    assert len(priced) >= 7
    assert all(t.block_usd_h < t.on_demand_usd_h for t in priced)


def test_an_unknown_price_is_none():
    assert load().types["trn2.48xlarge"].on_demand_usd_h is None


def test_the_catalog_is_read_once():
    assert load() is load()
