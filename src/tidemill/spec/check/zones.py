"""Zones: capacity can only be used where the platform has subnets to launch into.

EC2 would sell a block in any zone. Where no node can be launched it is money lost, so it is an error; a pool
that merely names such a zone has its other zones left, so it is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.spec.check.market import Shelf
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.document import Path
from tidemill.spec.located import Written
from tidemill.spec.model import Document
from tidemill.spec.platform import Platform
from tidemill.spec.problem import Problem, quoted
from tidemill.spec.scenario import Scenario

CODE = "zone"


def platform_has_subnets(shelf: Shelf) -> Iterator[Problem]:
    for platform in shelf.all(Platform):
        if shelf.names("ComputePool") and not _served(platform.model):
            message = (
                "the platform has no subnets, so its pools have nowhere to launch into;"
                f" list them by zone, such as {platform.model.spec.region}a: [subnet-0a1]"
            )
            yield platform.warning(("subnets",), message, CODE)


def subnets_are_in_one_zone(shelf: Shelf) -> Iterator[Problem]:
    """A subnet is in one zone, and a block can be used from its own zone alone."""
    for platform in shelf.all(Platform):
        spec = platform.model.spec
        seen: dict[str, str] = {}
        for zone, subnets in spec.subnets.items():
            if not zone.startswith(spec.region):
                message = (
                    f"zone {quoted(zone)} is not in region {spec.region}: no block of this platform is there"
                )
                yield platform.warning(("subnets", zone), message, "TR-10")
            for position, subnet in enumerate(subnets):
                if subnet in seen and seen[subnet] != zone:
                    message = (
                        f"subnet {subnet} is listed for {seen[subnet]} and for {zone}, and can be in one of them only:"
                        " launches into the other zone's blocks would fail"
                    )
                    yield platform.error(("subnets", zone, position), message, "TR-10")
                seen.setdefault(subnet, zone)


def capacity_is_where_subnets_are(shelf: Shelf) -> Iterator[Problem]:
    for platform in shelf.all(Platform):
        served = _served(platform.model)
        if not served:
            continue  # told by the rule above
        there = f"; it has them in {', '.join(sorted(served))}"
        for document, path, zone, what in _bought(shelf):
            if zone not in served:
                message = f"the platform has no subnets in {quoted(zone)}: {what} could not be used{there}"
                yield document.error(path, message, CODE)
        for document, path, zone in _named(shelf):
            if zone not in served:
                message = f"the platform has no subnets in {quoted(zone)}: nothing is launched there{there}"
                yield document.warning(path, message, CODE)


def _served(platform: Platform) -> set[str]:
    return {zone for zone, subnets in platform.spec.subnets.items() if subnets}


def _bought(shelf: Shelf) -> Iterator[tuple[Written[Document], Path, str, str]]:
    """Where capacity is paid for in advance."""
    for scenario in shelf.all(Scenario):
        for index, one in enumerate(scenario.model.spec.reservations):
            yield scenario, ("reservations", index, "zone"), one.zone, f"reservation {quoted(one.name)}"
    for plan, index, window in shelf.windows():
        for position, zone in enumerate(window.zones):
            yield plan, ("demand", index, "zones", position), zone, "a block bought there"


def _named(shelf: Shelf) -> Iterator[tuple[Written[Document], Path, str]]:
    """Where pools would like to launch."""
    for pool in shelf.all(ComputePool):
        for position, zone in enumerate(pool.model.spec.requirements.zones):
            yield pool, ("requirements", "zones", position), zone
        for index, source in enumerate(pool.model.spec.sources):
            for position, zone in enumerate(source.zones):
                yield pool, ("sources", index, "zones", position), zone
