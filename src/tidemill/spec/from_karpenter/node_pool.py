"""A NodePool as a ComputePool document: which types, from which sources, how many, and when they go."""

from __future__ import annotations

from typing import Any

from tidemill.spec.from_karpenter.origin import Origin
from tidemill.spec.units import parse_duration

_TEMPLATE = ("spec", "template", "spec")
_RESERVED = {"capacity-block": "block", "default": "odcr"}
# Label -> field of `requirements`; the two families are Karpenter's and Auto Mode's.
_LISTS = {
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
_ONE = {
    "kubernetes.io/arch": "arch",
    "karpenter.k8s.aws/instance-hypervisor": "hypervisor",
    "eks.amazonaws.com/instance-hypervisor": "hypervisor",
}
_GENERATIONS = ("karpenter.k8s.aws/instance-generation", "eks.amazonaws.com/instance-generation")
_CAPACITY = "karpenter.sh/capacity-type"
_RESERVATION_TYPES = (
    "karpenter.k8s.aws/capacity-reservation-type",
    "eks.amazonaws.com/capacity-reservation-type",
)
_ACCELERATORS = ("nvidia.com/gpu", "aws.amazon.com/neuron")
_LONGEST_DRAIN = "10m"


def pool_spec(one: Origin, classes: dict[str, Origin]) -> dict[str, Any]:
    name = one.text(*_TEMPLATE, "nodeClassRef", "name")
    one.take((*_TEMPLATE, "nodeClassRef"), dict)
    asked = _requirements(one)
    spec: dict[str, Any] = {"nodeClassName": name, "provisioner": "karpenter"}
    spec["sources"] = sources = _sources(one, asked, classes.get(name))
    if fields := _fields(one, asked):
        spec["requirements"] = fields
    if labels := one.texts("spec", "template", "metadata", "labels"):
        spec["labels"] = labels
    for key in ("taints", "startupTaints"):
        if taints := one.items(*_TEMPLATE, key):
            spec[key] = [
                {part: each[part] for part in ("key", "value", "effect") if part in each} for each in taints
            ]
    if limits := _limits(one):
        spec["limits"] = limits
    spec["disruption"] = _disruption(one)
    if (weight := one.take(("spec", "weight"), int)) is not None:
        spec["weight"] = weight
    if (replicas := one.take(("spec", "replicas"), int)) is not None:
        spec["warm"] = replicas
    _ends(one, prepaid=any(source["type"] == "block" for source in sources))
    return spec


def _requirements(one: Origin) -> dict[str, tuple[str, list[str], int]]:
    """Key -> operator, values and where it stands."""
    found = {}
    for index, each in enumerate(one.items(*_TEMPLATE, "requirements")):
        values = each.get("values")
        listed = [str(value) for value in values] if isinstance(values, list) else []
        found[str(each.get("key"))] = (str(each.get("operator")), listed, index)
    return found


def _sources(
    one: Origin, asked: dict[str, tuple[str, list[str], int]], node_class: Origin | None
) -> list[dict[str, Any]]:
    """Reserved capacity first, as Karpenter takes it; without a word about capacity types it is on-demand."""
    _, kinds, _ = asked.pop(_CAPACITY, ("In", ["on-demand"], 0))
    narrowed = [asked.pop(key)[1] for key in _RESERVATION_TYPES if key in asked]
    found: list[dict[str, Any]] = []
    if "reserved" in kinds:
        types = narrowed[0] if narrowed else list(_RESERVED)
        found += [{"type": _RESERVED[each], **_selected(node_class)} for each in types if each in _RESERVED]
    hourly: list[dict[str, Any]] = [{"type": each} for each in ("spot", "on-demand") if each in kinds]
    if found and hourly:
        one.say(
            (*_TEMPLATE, "requirements"),
            f"NodePool {one.name}: what it launches by the hour beside reserved capacity is capped at 0 USD until you"
            " set maxHourlyUsd and maxMonthlyUsd",
            "overflow-cap",
        )
        hourly = [{**each, "maxHourlyUsd": 0, "maxMonthlyUsd": 0} for each in hourly]
    return [*found, *hourly]


def _selected(node_class: Origin | None) -> dict[str, Any]:
    terms = node_class.items("spec", "capacityReservationSelectorTerms") if node_class is not None else []
    ids = [str(term["id"]) for term in terms if "id" in term]
    tags = [term["tags"] for term in terms if isinstance(term.get("tags"), dict)]
    if ids:
        return {"ids": ids}
    if len(tags) > 1 and node_class is not None:
        node_class.say(
            ("spec", "capacityReservationSelectorTerms"),
            "one set of tags selects a pool's reservations: the first is used",
        )
    return {"tags": {str(key): str(value) for key, value in tags[0].items()}} if tags else {}


def _fields(one: Origin, asked: dict[str, tuple[str, list[str], int]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, (operator, values, index) in asked.items():
        if operator == "In" and key in _LISTS:
            field = _LISTS[key]
            fields[field] = (
                [int(each) for each in values if each.isdigit()] if field == "cpuSizes" else values
            )
        elif operator == "In" and key in _ONE and len(values) == 1:
            fields[_ONE[key]] = values[0]
        elif operator in ("Gt", "Gte") and key in _GENERATIONS and len(values) == 1 and values[0].isdigit():
            fields["minGeneration"] = int(values[0]) + (operator == "Gt")
        elif not (key == "kubernetes.io/os" and values == ["linux"]):
            shown = f"{key} {operator} {', '.join(values)}".strip()
            one.say(
                (*_TEMPLATE, "requirements", index),
                f"NodePool {one.name}: the requirement {shown} is not carried over",
            )
    return fields


def _limits(one: Origin) -> dict[str, Any]:
    limits = dict(one.mapping("spec", "limits"))
    found: dict[str, Any] = {}
    for key in ("cpu", "memory"):
        if key in limits:
            found[key] = str(limits.pop(key))
    for key, field in (("nodes", "nodes"), *((each, "gpus") for each in _ACCELERATORS)):
        value = str(limits.pop(key, ""))
        if value.isdigit():
            found[field] = int(value)
    for key in limits:
        one.say(("spec", "limits", key), f"NodePool {one.name}: the limit on {key} is not carried over")
    return found


def _disruption(one: Origin) -> dict[str, Any]:
    policy = one.text("spec", "disruption", "consolidationPolicy") or "WhenEmptyOrUnderutilized"
    after = one.text("spec", "disruption", "consolidateAfter")
    if policy == "Balanced":
        one.say(("spec", "disruption", "consolidationPolicy"), "Balanced becomes WhenEmptyOrUnderutilized")
        policy = "WhenEmptyOrUnderutilized"
    found: dict[str, Any] = {"consolidationPolicy": "Never" if after == "Never" else policy}
    if after and after != "Never":
        found["consolidateAfter"] = after
    budgets = one.items("spec", "disruption", "budgets")
    if budgets:
        found["budgets"] = [{key: _budget(key, value) for key, value in each.items()} for each in budgets]
    return found


def _budget(key: str, value: Any) -> Any:
    return str(value) if key == "nodes" else value


def _ends(one: Origin, *, prepaid: bool) -> None:
    """When its nodes go in the end. Two traps: a drain that outlasts a block, and prepaid nodes taken away."""
    expires = one.text(*_TEMPLATE, "expireAfter")
    if expires not in ("", "Never"):
        one.say(
            (*_TEMPLATE, "expireAfter"),
            f"NodePool {one.name}: nodes do not expire here (expireAfter {expires})",
        )
    grace = one.text(*_TEMPLATE, "terminationGracePeriod")
    if not prepaid:
        return
    if not grace or _longer(grace):
        said = f"is {grace}" if grace else "is not set"
        one.say(
            _TEMPLATE,
            f"NodePool {one.name}: terminationGracePeriod {said}: a pod with do-not-disrupt holds a drain up until EC2"
            f" takes the instances; {_LONGEST_DRAIN} is the longest that fits, and what is written here has it",
            "TR-4",
        )
    if one.text("spec", "disruption", "consolidateAfter") != "Never":
        one.say(
            ("spec", "disruption"),
            f"NodePool {one.name}: it consolidates nodes of blocks, which are paid for whether they run or not;"
            " here they stay",
            "TR-5",
        )


def _longer(grace: str) -> bool:
    try:
        return parse_duration(grace) > parse_duration(_LONGEST_DRAIN)
    except ValueError:
        return True
