"""Reads documents against a small, hand-built catalog: these tests are about rules, not data."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemill.catalog import Accelerator, Catalog, InstanceType
from tidemill.spec.read import Loaded, load

Reader = Callable[..., Loaded]


def instance_type(name: str, vcpus: int, gpus: int, *, block: bool) -> InstanceType:
    family, size = name.split(".")
    return InstanceType(
        name=name,
        family=family,
        category=family[0],
        generation=int(family[1]),
        size=size,
        arch="amd64",
        hypervisor="nitro",
        vcpus=vcpus,
        memory_mib=4096 * vcpus,
        accelerator=Accelerator("nvidia.com/gpu", "H100", gpus, 81920),
        efa=0,
        nvme_gb=0,
        block=block,
        ultraserver="",
        block_usd_h=30.0 if block else None,
        on_demand_usd_h=50.0,
        spot_usd_h=None,
        allocatable=(),
    )


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    types = (
        instance_type("p5.48xlarge", 192, 8, block=True),
        instance_type("p4d.24xlarge", 96, 8, block=True),
        instance_type("g6.xlarge", 4, 1, block=False),
        instance_type("g6.48xlarge", 192, 8, block=False),
    )
    return Catalog({each.name: each for each in types}, "2026-11-01")


@pytest.fixture
def read(tmp_path: Path, catalog: Catalog) -> Reader:
    """Writes texts as a.yaml, b.yaml, … and loads them; files in problems are then just those names."""

    def reader(*texts: str | bytes) -> Loaded:
        paths = []
        for letter, text in zip("abcdefgh", texts, strict=False):
            path = tmp_path / f"{letter}.yaml"
            path.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())
            paths.append(path)
        return load(paths, catalog)

    return reader
