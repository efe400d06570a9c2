"""Which instance types meet a pool's requirements."""

from __future__ import annotations

import pytest

from tidemill.catalog import load
from tidemill.spec.compute_pool import Requirements, matching_types


def names(**requirements):
    return [t.name for t in matching_types(load(), Requirements(**requirements))]


@pytest.mark.requirement("PE-2")
@pytest.mark.parametrize(
    ("requirements", "expected"),
    [
        ({"instance_types": ("p5.48xlarge",)}, ["p5.48xlarge"]),
        ({"instance_families": ("p5",)}, ["p5.48xlarge", "p5.4xlarge"]),
        ({"instance_categories": ("trn",), "min_generation": 2}, ["trn2.3xlarge", "trn2.48xlarge"]),
        ({"arch": "arm64"}, ["p6e-gb200.36xlarge"]),
        ({"instance_families": ("g5", "g6"), "cpu_sizes": (4,)}, ["g5.xlarge", "g6.xlarge"]),
        ({"instance_categories": ("p",), "cpu_sizes": (96,)}, ["p4d.24xlarge", "p4de.24xlarge"]),
        ({"hypervisor": "xen"}, []),
        ({"instance_families": ("p5",), "instance_categories": ("g",)}, []),
    ],
)
def test_each_requirement_narrows_the_choice(requirements, expected):
    assert names(**requirements) == expected


def test_min_generation_is_at_least_and_not_exactly():
    assert {name.split(".")[0] for name in names(instance_categories=("p",), min_generation=5)} == {
        "p5",
        "p5e",
        "p5en",
        "p6-b200",
        "p6-b300",
        "p6e-gb200",
    }


def test_no_requirement_allows_every_type_with_accelerators():
    assert names() == sorted(name for name, kind in load().types.items() if kind.accelerator is not None)
    assert "m7i.large" not in names(min_generation=7)


def test_types_without_accelerators_are_allowed_where_they_are_named():
    assert "m7i.large" in names(instance_categories=("m",))
    assert "m7i.large" in names(instance_families=("m7i",), arch="amd64")
    assert names(instance_types=("m7i.large",)) == ["m7i.large"]


def test_zones_belong_to_the_source_and_not_to_the_type():
    assert names(instance_families=("p5",), zones=("us-east-1a",)) == names(instance_families=("p5",))


def test_equal_requirements_give_the_cached_answer():
    wanted = {"instance_families": ("g6e",)}
    assert matching_types(load(), Requirements(**wanted)) is matching_types(load(), Requirements(**wanted))
