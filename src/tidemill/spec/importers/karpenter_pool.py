"""The `spec` of a ComputePool from a NodePool and its node class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.catalog import Catalog
from tidemill.spec import traps
from tidemill.spec.importers.karpenter_labels import (
    CAPACITY_TYPE,
    CAPACITY_TYPES,
    RESERVATION_TYPES,
    Requirement,
    allowed,
    requirements_of,
    types_that_meet,
)
from tidemill.spec.importers.manifest import Manifest

_TEMPLATE = ("spec", "template", "spec")
_RESERVED = {"capacity-block": "block", "default": "odcr"}
# Label -> field of `requirements`; the two prefixes are Karpenter's and Auto Mode's.
_LIST_FIELDS = {
    "node.kubernetes.io/instance-type": "instanceTypes",
    "topology.kubernetes.io/zone": "zones",
    **{
        f"{family}/instance-category": "instanceCategories"
        for family in ("karpenter.k8s.aws", "eks.amazonaws.com")
    },
    **{
        f"{family}/instance-family": "instanceFamilies"
        for family in ("karpenter.k8s.aws", "eks.amazonaws.com")
    },
    **{f"{family}/instance-cpu": "cpuSizes" for family in ("karpenter.k8s.aws", "eks.amazonaws.com")},
}
# Field of `requirements` that names types -> what the catalog calls it.
_NAMING = {"instanceCategories": "category", "instanceFamilies": "family", "instanceTypes": "name"}
_ARCH, _ARCHITECTURES = "kubernetes.io/arch", ("amd64", "arm64")
_OS = "kubernetes.io/os"
_HYPERVISORS = ("karpenter.k8s.aws/instance-hypervisor", "eks.amazonaws.com/instance-hypervisor")
_GENERATIONS = ("karpenter.k8s.aws/instance-generation", "eks.amazonaws.com/instance-generation")
_ACCELERATORS = ("nvidia.com/gpu", "aws.amazon.com/neuron")
_MOST_TYPES = 100  # that are listed in place of a requirement: nobody reads a longer list


def pool_spec(manifest: Manifest, classes: dict[str, Manifest], catalog: Catalog) -> dict[str, Any]:
    name = manifest.text(*_TEMPLATE, "nodeClassRef", "name")
    manifest.read((*_TEMPLATE, "nodeClassRef"), dict)
    requirements = _requirements(manifest)
    spec: dict[str, Any] = {"nodeClassName": name, "provisioner": "karpenter"}
    spec["sources"] = sources = _sources(manifest, requirements, classes.get(name))
    if fields := _requirement_fields(manifest, requirements, catalog):
        spec["requirements"] = fields
    if labels := manifest.string_map("spec", "template", "metadata", "labels"):
        spec["labels"] = labels
    for key in ("taints", "startupTaints"):
        if taints := manifest.items(*_TEMPLATE, key):
            spec[key] = [
                {part: each[part] for part in ("key", "value", "effect") if part in each} for each in taints
            ]
    if limits := _limits(manifest):
        spec["limits"] = limits
    spec["disruption"] = _disruption(manifest)
    if (weight := manifest.read(("spec", "weight"), int)) is not None:
        spec["weight"] = weight
    if (replicas := manifest.read(("spec", "replicas"), int)) is not None:
        spec["warm"] = replicas
    _warn_about_ends(manifest, prepaid=any(source["type"] == "block" for source in sources))
    return spec


def _requirements(manifest: Manifest) -> list[Requirement]:
    items = manifest.items(*_TEMPLATE, "requirements")
    for index, each in enumerate(items):
        if "minValues" in each:
            manifest.warn(
                (*_TEMPLATE, "requirements", index, "minValues"),
                f"NodePool {manifest.name}: minValues of {each.get('key')} is not carried over",
            )
    return requirements_of(items)


def _take(requirements: list[Requirement], *keys: str) -> list[Requirement]:
    """Those of the keys, which are removed from the list."""
    taken = [one for one in requirements if one.key in keys]
    requirements[:] = [one for one in requirements if one.key not in keys]
    return taken


def _sources(
    manifest: Manifest, requirements: list[Requirement], node_class: Manifest | None
) -> list[dict[str, Any]]:
    """Reserved capacity first, as in Karpenter. Without a requirement on the capacity type: on-demand."""
    asked = _take(requirements, CAPACITY_TYPE)
    kinds = allowed(asked, CAPACITY_TYPES) if asked else ["on-demand"]
    types = allowed(_take(requirements, *RESERVATION_TYPES), tuple(_RESERVED))
    reserved: list[dict[str, Any]] = []
    if "reserved" in kinds:
        selectors = _reservation_selectors(node_class)
        reserved += [{"type": _RESERVED[each], **selector} for each in types for selector in selectors]
    hourly: list[dict[str, Any]] = [{"type": each} for each in ("spot", "on-demand") if each in kinds]
    if not reserved and not hourly:
        manifest.error(
            (*_TEMPLATE, "requirements"),
            f"NodePool {manifest.name} allows no capacity type that there is; allow reserved, spot or on-demand",
            "capacity-type",
        )
    if reserved and hourly:
        manifest.warn(
            (*_TEMPLATE, "requirements"),
            f"NodePool {manifest.name}: spot and on-demand beside reserved capacity are capped at 0 USD; set"
            " maxHourlyUsd and maxMonthlyUsd",
            "overflow-cap",
        )
        hourly = [{**each, "maxHourlyUsd": 0, "maxMonthlyUsd": 0} for each in hourly]
    return [*reserved, *hourly]


def _reservation_selectors(node_class: Manifest | None) -> list[dict[str, Any]]:
    """One for each source: Karpenter takes what any term selects. All ids are one term of ours."""
    terms = node_class.items("spec", "capacityReservationSelectorTerms") if node_class is not None else []
    ids = [str(term["id"]) for term in terms if "id" in term]
    selectors: list[dict[str, Any]] = [{"ids": ids}] if ids else []
    for index, term in enumerate(terms):
        if isinstance(term.get("tags"), dict):
            selectors.append({"tags": {str(key): str(value) for key, value in term["tags"].items()}})
        assert node_class is not None
        if not term.keys() & {"id", "tags"}:
            node_class.warn(
                ("spec", "capacityReservationSelectorTerms", index),
                "a selector of reservations without id and tags is not carried over",
            )
            continue
        for key in sorted(term.keys() - {"id", "tags"}):
            node_class.warn(
                ("spec", "capacityReservationSelectorTerms", index, key),
                f"{key} of a selector of reservations is not carried over",
            )
    return selectors or [{}]


def _requirement_fields(
    manifest: Manifest, requirements: Sequence[Requirement], catalog: Catalog
) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    others: list[Requirement] = []  # without a field of ours
    for one in requirements:
        if one.key == _OS:
            if "linux" not in one.of(("linux", "windows")):
                manifest.error(
                    (*_TEMPLATE, "requirements", one.index),
                    f"NodePool {manifest.name} makes Windows nodes; Tidemill makes nodes of Linux only",
                    "os",
                )
        elif one.operator == "In" and one.key in _LIST_FIELDS:
            field = _LIST_FIELDS[one.key]
            known = _known(manifest, one, field, catalog)
            # Two requirements of one key: a type must meet both.
            fields[field] = [value for value in known if value in fields.get(field, known)]
        elif one.operator == "NotIn" and _LIST_FIELDS.get(one.key) == "instanceCategories":
            there = sorted({kind.category for kind in catalog.types.values()})
            fields["instanceCategories"] = one.of(fields.get("instanceCategories", there))
        elif one.is_of_types and _LIST_FIELDS.get(one.key) == "cpuSizes" and one.operator != "Exists":
            sizes = {kind.vcpus for kind in catalog.types.values() if one.allows(str(kind.vcpus))}
            fields["cpuSizes"] = sorted(sizes & set(fields.get("cpuSizes", sizes)))
        elif one.key == _ARCH and len(allowed := one.of(_ARCHITECTURES)) > 0:
            fields |= {"arch": allowed[0]} if len(allowed) == 1 else {}
        elif one.operator == "In" and one.key in _HYPERVISORS and len(one.values) == 1:
            fields["hypervisor"] = one.values[0]
        elif (
            one.operator in ("Gt", "Gte")
            and one.key in _GENERATIONS
            and len(one.values) == 1
            and one.values[0].isdigit()
        ):
            least = int(one.values[0]) + (one.operator == "Gt")
            fields["minGeneration"] = max(least, fields.get("minGeneration", 1))
        elif one.operator != "Exists" or one.key not in _LIST_FIELDS:
            others.append(one)
    _carry_over_as_types(manifest, requirements, others, fields, catalog)
    if not any(key in fields for key in _NAMING):
        # Our pools are of types with accelerators unless they name others; Karpenter's are of all.
        fields["instanceCategories"] = sorted({kind.category for kind in catalog.types.values()})
    return fields


def _carry_over_as_types(
    manifest: Manifest,
    requirements: Sequence[Requirement],
    others: Sequence[Requirement],
    fields: dict[str, Any],
    catalog: Catalog,
) -> None:
    """Left out, they would widen the pool: one of GPUs would get every type."""
    of_types = [one for one in others if one.is_of_types]
    names = types_that_meet(requirements, catalog) if of_types else []
    listed = 0 < len(names) <= _MOST_TYPES
    if listed:
        fields["instanceTypes"] = names
        for key in ("instanceCategories", "instanceFamilies"):
            fields.pop(key, None)
    for one in others:
        at = (*_TEMPLATE, "requirements", one.index)
        head = f"NodePool {manifest.name}: the requirement {one}"
        if one in of_types and listed:
            count = f"{len(names)} instance types" if len(names) > 1 else "instance type"
            manifest.warn(at, f"{head} is carried over as the {count} of the catalog that the pool allows")
        elif one in of_types and not names:
            manifest.error(
                at, f"{head}: no instance type of the catalog meets it and the others", "instance-type"
            )
        else:
            manifest.warn(at, f"{head} is not carried over")


def _known(manifest: Manifest, one: Requirement, field: str, catalog: Catalog) -> list[Any]:
    """The values that the catalog has. Those it lacks get a warning; if it has none, the pool cannot be imported."""
    if field == "cpuSizes":
        return [int(each) for each in one.values if each.isdigit()]
    if field not in _NAMING:
        return list(one.values)
    there = {getattr(kind, _NAMING[field]) for kind in catalog.types.values()}
    known = [value for value in one.values if value in there]
    left = ", ".join(value for value in one.values if value not in there)
    at = (*_TEMPLATE, "requirements", one.index)
    if left and known:
        manifest.warn(
            at, f"NodePool {manifest.name}: the catalog has no {left} of {one.key}, so it is left out"
        )
    elif left:
        manifest.error(
            at, f"NodePool {manifest.name}: the catalog has none of {left} ({one.key})", "instance-type"
        )
    return known


def _limits(manifest: Manifest) -> dict[str, Any]:
    limits = dict(manifest.mapping("spec", "limits"))
    pool_limits: dict[str, Any] = {}
    for key in ("cpu", "memory"):
        if key in limits:
            pool_limits[key] = str(limits.pop(key))
    for key, field in (("nodes", "nodes"), *((each, "gpus") for each in _ACCELERATORS)):
        value = str(limits.pop(key, ""))
        if value.isdigit():
            pool_limits[field] = int(value)
    for key in limits:
        manifest.warn(
            ("spec", "limits", key), f"NodePool {manifest.name}: the limit on {key} is not carried over"
        )
    return pool_limits


def _disruption(manifest: Manifest) -> dict[str, Any]:
    policy = manifest.text("spec", "disruption", "consolidationPolicy") or "WhenEmptyOrUnderutilized"
    after = manifest.text("spec", "disruption", "consolidateAfter")
    if policy == "Balanced":
        manifest.warn(
            ("spec", "disruption", "consolidationPolicy"),
            "consolidationPolicy Balanced is imported as WhenEmptyOrUnderutilized",
        )
        policy = "WhenEmptyOrUnderutilized"
    disruption: dict[str, Any] = {"consolidationPolicy": "Never" if after == "Never" else policy}
    if after and after != "Never":
        disruption["consolidateAfter"] = after
    budgets = manifest.items("spec", "disruption", "budgets")
    if budgets:
        disruption["budgets"] = [
            {key: _budget(key, value) for key, value in each.items()} for each in budgets
        ]
    return disruption


def _budget(key: str, value: Any) -> Any:
    return str(value) if key == "nodes" else value


def _warn_about_ends(manifest: Manifest, *, prepaid: bool) -> None:
    """Warn of expiry and of two traps: a drain that takes longer than the block, and consolidation of prepaid nodes."""
    expires = manifest.text(*_TEMPLATE, "expireAfter")
    if expires not in ("", "Never"):
        manifest.warn(
            (*_TEMPLATE, "expireAfter"),
            f"NodePool {manifest.name}: expireAfter {expires} is not carried over; nodes do not expire in Tidemill",
        )
    grace = manifest.text(*_TEMPLATE, "terminationGracePeriod")
    if not prepaid:
        return
    if long := traps.drain_outlasts_block(grace):
        manifest.warn(_TEMPLATE, f"NodePool {manifest.name}: {long}, which Tidemill sets", "TR-4")
    if lost := traps.consolidates_prepaid(manifest.text("spec", "disruption", "consolidateAfter")):
        manifest.warn(("spec", "disruption"), f"NodePool {manifest.name} {lost}; Tidemill keeps them", "TR-5")
