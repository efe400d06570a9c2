"""The `spec` of our documents from Karpenter's objects: a NodeClass from an EC2NodeClass or from a NodeClass of EKS
Auto Mode, a ComputePool from a NodePool."""

from __future__ import annotations

from typing import Any

from tidemill.spec.importers.manifest import Manifest
from tidemill.spec.units import parse_duration

_EBS = ("volumeSize", "volumeType", "encrypted", "iops", "throughput", "kmsKeyID", "deleteOnTermination")


def node_class_spec(manifest: Manifest) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if terms := _images(manifest):
        spec["amiSelectorTerms"] = terms
    family = manifest.text("spec", "amiFamily")
    if family and any("id" in term for term in terms):
        spec["amiFamily"] = family
    if devices := _devices(manifest):
        spec["blockDeviceMappings"] = devices
    for key in ("instanceStorePolicy", "userData"):
        if value := manifest.text("spec", key):
            spec[key] = value
    if role := manifest.text("spec", "role") or manifest.text("spec", "instanceProfile"):
        spec["role"] = role
    _kubelet(manifest, spec)
    if manifest.items("spec", "networkInterfaces"):
        spec["efa"] = True
    _platform_settings(manifest)
    return spec


def _images(manifest: Manifest) -> list[dict[str, str]]:
    if manifest.kind == "NodeClass":  # of Auto Mode: AWS chooses the image
        return [{"alias": "bottlerocket@latest"}]
    images: list[dict[str, str]] = []
    for index, term in enumerate(manifest.items("spec", "amiSelectorTerms")):
        known: dict[str, str] = {key: str(term[key]) for key in ("alias", "id") if key in term}
        if known:
            images.append(known)
        else:
            manifest.warn(
                ("spec", "amiSelectorTerms", index),
                f"{manifest.kind} {manifest.name}: an image selected by {', '.join(map(str, term))} is not carried"
                " over; name it by alias or id",
            )
    if not images:
        manifest.error(
            ("spec",), f"{manifest.kind} {manifest.name} names no image by alias or id; add one", "image"
        )
    return images


def _devices(manifest: Manifest) -> list[dict[str, Any]]:
    if manifest.kind == "NodeClass":
        size = manifest.text("spec", "ephemeralStorage", "size")
        return [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": size}}] if size else []
    devices = []
    for index, device in enumerate(manifest.items("spec", "blockDeviceMappings")):
        ebs = device.get("ebs")
        if not isinstance(ebs, dict) or "volumeSize" not in ebs:
            manifest.warn(
                ("spec", "blockDeviceMappings", index),
                "this volume has no size, so it is not carried over; add ebs.volumeSize",
            )
            continue
        for key in sorted(ebs.keys() - set(_EBS)):
            manifest.warn(
                ("spec", "blockDeviceMappings", index, "ebs", key), f"{key} of a volume is not carried over"
            )
        devices.append(
            {
                "deviceName": device.get("deviceName", "/dev/xvda"),
                "ebs": {key: ebs[key] for key in _EBS if key in ebs},
            }
        )
    return devices


def _kubelet(manifest: Manifest, spec: dict[str, Any]) -> None:
    kubelet = dict(manifest.mapping("spec", "kubelet"))
    max_pods = kubelet.pop("maxPods", None)
    if isinstance(max_pods, int):
        spec["maxPods"] = max_pods
    for key in kubelet:
        manifest.warn(
            ("spec", "kubelet", key), f"kubelet setting {key} is not carried over; set it in userData"
        )


def _platform_settings(manifest: Manifest) -> None:
    """Subnets and security groups are set in the Platform. The pool takes the reservation selector."""
    for key, field in (("subnetSelectorTerms", "subnets"), ("securityGroupSelectorTerms", "securityGroups")):
        terms = manifest.items("spec", key)
        ids = [str(term["id"]) for term in terms if "id" in term]
        if terms:
            which = f" ({', '.join(ids)})" if ids else ""
            manifest.warn(
                ("spec", key), f"{key}{which} is not carried over; set {field} in the Platform document"
            )
    manifest.items("spec", "capacityReservationSelectorTerms")
    metadata = manifest.mapping("spec", "metadataOptions")
    if metadata.get("httpTokens", "required") != "required":
        manifest.warn(
            ("spec", "metadataOptions", "httpTokens"),
            "httpTokens is not carried over: Tidemill always requires IMDSv2 tokens",
        )
    if manifest.mapping("spec", "tags"):
        manifest.warn(("spec", "tags"), "tags are not carried over; add them to a launch template")


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
_SINGLE_FIELDS = {
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


def pool_spec(manifest: Manifest, classes: dict[str, Manifest]) -> dict[str, Any]:
    name = manifest.text(*_TEMPLATE, "nodeClassRef", "name")
    manifest.read((*_TEMPLATE, "nodeClassRef"), dict)
    requirements = _requirements(manifest)
    spec: dict[str, Any] = {"nodeClassName": name, "provisioner": "karpenter"}
    spec["sources"] = sources = _sources(manifest, requirements, classes.get(name))
    if fields := _requirement_fields(manifest, requirements):
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


def _requirements(manifest: Manifest) -> dict[str, tuple[str, list[str], int]]:
    """Key -> operator, values and index in the list."""
    requirements = {}
    for index, each in enumerate(manifest.items(*_TEMPLATE, "requirements")):
        values = each.get("values")
        listed = [str(value) for value in values] if isinstance(values, list) else []
        requirements[str(each.get("key"))] = (str(each.get("operator")), listed, index)
    return requirements


def _sources(
    manifest: Manifest, requirements: dict[str, tuple[str, list[str], int]], node_class: Manifest | None
) -> list[dict[str, Any]]:
    """Reserved capacity first, as in Karpenter. Without a requirement on the capacity type: on-demand."""
    _, kinds, _ = requirements.pop(_CAPACITY, ("In", ["on-demand"], 0))
    narrowed = [requirements.pop(key)[1] for key in _RESERVATION_TYPES if key in requirements]
    reserved: list[dict[str, Any]] = []
    if "reserved" in kinds:
        types = narrowed[0] if narrowed else list(_RESERVED)
        reserved += [
            {"type": _RESERVED[each], **_reservation_selector(node_class)}
            for each in types
            if each in _RESERVED
        ]
    hourly: list[dict[str, Any]] = [{"type": each} for each in ("spot", "on-demand") if each in kinds]
    if reserved and hourly:
        manifest.warn(
            (*_TEMPLATE, "requirements"),
            f"NodePool {manifest.name}: spot and on-demand beside reserved capacity are capped at 0 USD; set"
            " maxHourlyUsd and maxMonthlyUsd",
            "overflow-cap",
        )
        hourly = [{**each, "maxHourlyUsd": 0, "maxMonthlyUsd": 0} for each in hourly]
    return [*reserved, *hourly]


def _reservation_selector(node_class: Manifest | None) -> dict[str, Any]:
    terms = node_class.items("spec", "capacityReservationSelectorTerms") if node_class is not None else []
    ids = [str(term["id"]) for term in terms if "id" in term]
    tags = [term["tags"] for term in terms if isinstance(term.get("tags"), dict)]
    if ids:
        return {"ids": ids}
    if len(tags) > 1 and node_class is not None:
        node_class.warn(
            ("spec", "capacityReservationSelectorTerms"),
            "a pool selects reservations by one set of tags; the first set is used",
        )
    return {"tags": {str(key): str(value) for key, value in tags[0].items()}} if tags else {}


def _requirement_fields(
    manifest: Manifest, requirements: dict[str, tuple[str, list[str], int]]
) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, (operator, values, index) in requirements.items():
        if operator == "In" and key in _LIST_FIELDS:
            field = _LIST_FIELDS[key]
            fields[field] = (
                [int(each) for each in values if each.isdigit()] if field == "cpuSizes" else values
            )
        elif operator == "In" and key in _SINGLE_FIELDS and len(values) == 1:
            fields[_SINGLE_FIELDS[key]] = values[0]
        elif operator in ("Gt", "Gte") and key in _GENERATIONS and len(values) == 1 and values[0].isdigit():
            fields["minGeneration"] = int(values[0]) + (operator == "Gt")
        elif not (key == "kubernetes.io/os" and values == ["linux"]):
            shown = f"{key} {operator} {', '.join(values)}".strip()
            manifest.warn(
                (*_TEMPLATE, "requirements", index),
                f"NodePool {manifest.name}: the requirement {shown} is not carried over",
            )
    return fields


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
    if not grace or _longer(grace):
        setting = f"is {grace}" if grace else "is not set"
        manifest.warn(
            _TEMPLATE,
            f"NodePool {manifest.name}: terminationGracePeriod {setting}: a pod with do-not-disrupt delays a drain"
            f" until EC2 terminates the instances; the longest that fits is {_LONGEST_DRAIN}, which Tidemill sets",
            "TR-4",
        )
    if manifest.text("spec", "disruption", "consolidateAfter") != "Never":
        manifest.warn(
            ("spec", "disruption"),
            f"NodePool {manifest.name} consolidates nodes of blocks, which are paid for whether they run or not;"
            " Tidemill keeps them",
            "TR-5",
        )


def _longer(grace: str) -> bool:
    try:
        return parse_duration(grace) > parse_duration(_LONGEST_DRAIN)
    except ValueError:
        return True
