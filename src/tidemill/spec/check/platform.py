"""Names and zones: each kind has each name once, there is one Platform and one Scenario, and capacity is only planned
where the platform has subnets.

EC2 sells a block in any zone. A block in a zone without subnets is money lost, so that is an error. A pool that names
such a zone can still use its other zones, so that is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.spec.check.document_set import DocumentSet, Heading, LocatedDocument
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.document import Document
from tidemill.spec.located_yaml import Path
from tidemill.spec.platform import Platform
from tidemill.spec.problem import Problem, quoted
from tidemill.spec.scenario import Scenario


def names_are_unique(documents: DocumentSet) -> Iterator[Problem]:
    first: dict[tuple[str, str], Heading] = {}
    for heading in documents.headings:
        known = first.setdefault((heading.kind, heading.name), heading)
        if known is not heading:
            message = f"{heading.kind} {quoted(heading.name)} is already defined at {known.place}"
            yield heading.problem(message, "duplicate-name")


def one_platform_and_one_scenario(documents: DocumentSet) -> Iterator[Problem]:
    first: dict[str, Heading] = {}
    for heading in documents.headings:
        if heading.kind not in ("Platform", "Scenario"):
            continue
        known = first.setdefault(heading.kind, heading)
        if known.name != heading.name:  # the rule above reports the same name twice
            message = (
                f"{quoted(heading.name)} is a second {heading.kind}; a run has one,"
                f" and {quoted(known.name)} is already defined at {known.place}"
            )
            yield heading.problem(message, "second-of-its-kind")


def limited_namespaces_are_served(documents: DocumentSet) -> Iterator[Problem]:
    """A limit on a namespace that no pool takes pods of is most likely a misspelled name."""
    served = [pool.model.spec for pool in documents.all(ComputePool)]
    for platform in documents.all(Platform):
        for index, limit in enumerate(platform.model.spec.namespace_limits):
            for position, namespace in enumerate(limit.namespaces):
                if served and not any(pool.serves(namespace) for pool in served):
                    message = (
                        f"no pool serves namespace {quoted(namespace)}, so its limit has no effect:"
                        " the name is mistyped, or missing in 'allowedNamespaces' of the pools"
                    )
                    yield platform.warning(
                        ("namespaceLimits", index, "namespaces", position), message, "PE-20"
                    )


ZONE = "zone"


def platform_has_subnets(documents: DocumentSet) -> Iterator[Problem]:
    for platform in documents.all(Platform):
        if documents.names("ComputePool") and not _zones_with_subnets(platform.model):
            message = (
                "the platform has no subnets, so its pools cannot launch nodes and nothing is bought for them;"
                f" list them by zone, such as {platform.model.spec.region}a: [subnet-0a1]"
            )
            yield platform.warning(("subnets",), message, ZONE)


def subnets_are_in_one_zone(documents: DocumentSet) -> Iterator[Problem]:
    """A subnet is in one zone, and a block can only be used in its own zone."""
    for platform in documents.all(Platform):
        spec = platform.model.spec
        seen: dict[str, str] = {}
        elsewhere = bool(spec.subnets) and not any(zone.startswith(spec.region) for zone in spec.subnets)
        if elsewhere:
            message = (
                f"no zone with subnets is in {spec.region} ({', '.join(spec.subnets)}): the region or the zones are"
                " mistyped"
            )
            yield platform.error(("region",), message, "TR-10")
        for zone, subnets in spec.subnets.items():
            if not zone.startswith(spec.region) and not elsewhere:
                message = (
                    f"zone {quoted(zone)} is not in region {spec.region}: this platform has no blocks there"
                )
                yield platform.warning(("subnets", zone), message, "TR-10")
            for position, subnet in enumerate(subnets):
                if subnet in seen and seen[subnet] != zone:
                    message = (
                        f"subnet {subnet} is listed for {seen[subnet]} and for {zone}, but a subnet is in one zone:"
                        " launches into blocks of the other zone would fail"
                    )
                    yield platform.error(("subnets", zone, position), message, "TR-10")
                seen.setdefault(subnet, zone)


def capacity_is_where_subnets_are(documents: DocumentSet) -> Iterator[Problem]:
    for platform in documents.all(Platform):
        served = _zones_with_subnets(platform.model)
        if not served:
            continue  # the rule above reports it
        there = f"; it has them in {', '.join(sorted(served))}"
        for document, path, zone, what in _prepaid_zones(documents):
            if zone not in served:
                message = f"the platform has no subnets in {quoted(zone)}: {what} could not be used{there}"
                yield document.error(path, message, ZONE)
        for document, path, zone in _launch_zones(documents):
            if zone not in served:
                message = f"the platform has no subnets in {quoted(zone)}: nothing is launched there{there}"
                yield document.warning(path, message, ZONE)


def _zones_with_subnets(platform: Platform) -> set[str]:
    return {zone for zone, subnets in platform.spec.subnets.items() if subnets}


def _prepaid_zones(documents: DocumentSet) -> Iterator[tuple[LocatedDocument[Document], Path, str, str]]:
    """Zones in which capacity is paid for in advance."""
    for scenario in documents.all(Scenario):
        for index, reservation in enumerate(scenario.model.spec.reservations):
            yield (
                scenario,
                ("reservations", index, "zone"),
                reservation.zone,
                f"reservation {quoted(reservation.name)}",
            )
    for plan, index, window in documents.windows():
        for position, zone in enumerate(window.zones):
            yield plan, ("demand", index, "zones", position), zone, "a block bought there"


def _launch_zones(documents: DocumentSet) -> Iterator[tuple[LocatedDocument[Document], Path, str]]:
    """Zones in which pools may launch."""
    for pool in documents.all(ComputePool):
        for position, zone in enumerate(pool.model.spec.requirements.zones):
            yield pool, ("requirements", "zones", position), zone
        for index, source in enumerate(pool.model.spec.sources):
            for position, zone in enumerate(source.zones):
                yield pool, ("sources", index, "zones", position), zone
