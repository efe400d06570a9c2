"""The `spec` of a NodeClass from an EC2NodeClass, or from a NodeClass of EKS Auto Mode."""

from __future__ import annotations

from typing import Any

from tidemill.spec.importers.manifest import Manifest

_FAMILIES = ("AL2023", "Bottlerocket")
_EBS = ("volumeSize", "volumeType", "encrypted", "iops", "throughput", "kmsKeyID", "deleteOnTermination")


def node_class_spec(manifest: Manifest) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if terms := _images(manifest):
        spec["amiSelectorTerms"] = terms
    family = manifest.text("spec", "amiFamily")
    if family and any("id" in term for term in terms):
        if family not in _FAMILIES:
            manifest.error(
                ("spec", "amiFamily"),
                f"{manifest.kind} {manifest.name}: Tidemill does not know how images of family {family} join a cluster;"
                f" use one of {' or '.join(_FAMILIES)}",
                "image",
            )
        else:
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
