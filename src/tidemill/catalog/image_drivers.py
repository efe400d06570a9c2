"""Which NVIDIA driver an image has, from its release notes: dated data, never a guess."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

# What the platform's GPU software needs: CUDA 12.8, which needs this driver of branch 570 or a later one.
OLDEST_DRIVER = "570.172.08"
CUDA = "12.8"


def driver_of(alias: str, kubernetes: str) -> str | None:
    """The driver in `al2023@v20260714` for a Kubernetes version; None: not known."""
    family, _, version = alias.partition("@")
    if family != "al2023":
        return None
    driver = _releases().get(version)
    if isinstance(driver, dict):
        driver = driver.get(kubernetes)
    return driver if driver is None else str(driver)


def too_old(driver: str) -> bool:
    return _parts(driver) < _parts(OLDEST_DRIVER)


def _parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


@cache
def _releases() -> dict[str, Any]:
    data = json.loads(resources.files("tidemill.catalog").joinpath("image_drivers.json").read_bytes())
    releases: dict[str, Any] = data["al2023"]
    return releases
