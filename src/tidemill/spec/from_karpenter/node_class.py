"""EC2NodeClass, or NodeClass of EKS Auto Mode, as a NodeClass document: how nodes are made, not where they stand."""

from __future__ import annotations

from typing import Any

from tidemill.spec.from_karpenter.origin import Origin

_EBS = ("volumeSize", "volumeType", "encrypted", "iops", "throughput", "kmsKeyID", "deleteOnTermination")


def node_class_spec(one: Origin) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if terms := _images(one):
        spec["amiSelectorTerms"] = terms
    family = one.text("spec", "amiFamily")
    if family and any("id" in term for term in terms):
        spec["amiFamily"] = family
    if devices := _devices(one):
        spec["blockDeviceMappings"] = devices
    for key in ("instanceStorePolicy", "userData"):
        if value := one.text("spec", key):
            spec[key] = value
    if role := one.text("spec", "role") or one.text("spec", "instanceProfile"):
        spec["role"] = role
    _kubelet(one, spec)
    if one.items("spec", "networkInterfaces"):
        spec["efa"] = True
    _where(one)
    return spec


def _images(one: Origin) -> list[dict[str, str]]:
    if one.kind == "NodeClass":  # of Auto Mode: its images are AWS's own choice
        return [{"alias": "bottlerocket@latest"}]
    found: list[dict[str, str]] = []
    for index, term in enumerate(one.items("spec", "amiSelectorTerms")):
        known: dict[str, str] = {key: str(term[key]) for key in ("alias", "id") if key in term}
        if known:
            found.append(known)
        else:
            one.say(
                ("spec", "amiSelectorTerms", index),
                f"{one.kind} {one.name}: an image selected by {', '.join(map(str, term))} is not carried over;"
                " name it by alias or id",
            )
    if not found:
        one.refuse(("spec",), f"{one.kind} {one.name}: no image in it is named by alias or id", "image")
    return found


def _devices(one: Origin) -> list[dict[str, Any]]:
    if one.kind == "NodeClass":
        size = one.text("spec", "ephemeralStorage", "size")
        return [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": size}}] if size else []
    found = []
    for index, device in enumerate(one.items("spec", "blockDeviceMappings")):
        ebs = device.get("ebs")
        if not isinstance(ebs, dict) or "volumeSize" not in ebs:
            one.say(("spec", "blockDeviceMappings", index), "a volume without a size is not carried over")
            continue
        for key in sorted(ebs.keys() - set(_EBS)):
            one.say(
                ("spec", "blockDeviceMappings", index, "ebs", key), f"{key} of a volume is not carried over"
            )
        found.append(
            {
                "deviceName": device.get("deviceName", "/dev/xvda"),
                "ebs": {key: ebs[key] for key in _EBS if key in ebs},
            }
        )
    return found


def _kubelet(one: Origin, spec: dict[str, Any]) -> None:
    kubelet = dict(one.mapping("spec", "kubelet"))
    most = kubelet.pop("maxPods", None)
    if isinstance(most, int):
        spec["maxPods"] = most
    for key in kubelet:
        one.say(("spec", "kubelet", key), f"kubelet setting {key} is not carried over; userData can say it")


def _where(one: Origin) -> None:
    """Subnets and security groups belong to the platform; what a reservation is chosen by, to the pool."""
    for key, field in (("subnetSelectorTerms", "subnets"), ("securityGroupSelectorTerms", "securityGroups")):
        terms = one.items("spec", key)
        ids = [str(term["id"]) for term in terms if "id" in term]
        if terms:
            which = f" ({', '.join(ids)})" if ids else ""
            one.say(("spec", key), f"{key}{which} belong in the Platform document, as {field}")
    one.items("spec", "capacityReservationSelectorTerms")
    metadata = one.mapping("spec", "metadataOptions")
    if metadata.get("httpTokens", "required") != "required":
        one.say(
            ("spec", "metadataOptions", "httpTokens"), "metadata is always read with a token here (IMDSv2)"
        )
    if one.mapping("spec", "tags"):
        one.say(("spec", "tags"), "tags of instances are Tidemill's own here; add yours to a launch template")
