"""Which instance types the region has, and where: those of the account's catalog, which are what it launches.

moto's records are EC2's own answers, and are told where there is one; another type of the catalog is described from
the catalog's figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidemill.catalog import InstanceType
from tidemill.sim.wire.errors import AwsError
from tidemill.sim.wire.operations import ApiCall, Result, operation
from tidemill.sim.wire.paging import FilterFields, filtered
from tidemill.sim.wire.state import Wire
from tidemill.spec import names

Record = Mapping[str, Any]
_MOST_TYPES, _MOST_OFFERINGS = 100, 1000


@operation("ec2", "DescribeInstanceTypes")
def describe(call: ApiCall) -> Result:
    types, wanted = call.wire.cloud.catalog.types, call.get("InstanceTypes", [])
    if strange := [name for name in wanted if name not in types]:
        raise AwsError(
            "InvalidInstanceType",
            f"The following supplied instance types do not exist: [{', '.join(strange)}]",
        )
    records = [_record(kind) for name, kind in types.items() if not wanted or name in wanted]
    matching = filtered(records, call.get("Filters", []), _FIELDS, lambda _: ())
    call.stop_dry_run()
    page, token = call.wire.pages.page(
        matching, lambda record: str(record["InstanceType"]), call.params, least=5, most=_MOST_TYPES
    )
    return {"InstanceTypes": page, "NextToken": token}


@operation("ec2", "DescribeInstanceTypeOfferings")
def offerings(call: ApiCall) -> Result:
    """Every type is offered in every zone of the account."""
    where = call.get("LocationType", "region")
    listed = [
        {"InstanceType": name, "LocationType": where, "Location": location}
        for name in call.wire.cloud.catalog.types
        for location in _locations(call.wire, where)
    ]
    matching = filtered(listed, call.get("Filters", []), _OFFERING_FIELDS, lambda _: ())
    call.stop_dry_run()
    page, token = call.wire.pages.page(
        matching, lambda each: f"{each['InstanceType']} {each['Location']}", call.params,
        least=5, most=_MOST_OFFERINGS,
    )  # fmt: skip
    return {"InstanceTypeOfferings": page, "NextToken": token}


def _locations(wire: Wire, kind: str) -> Iterable[str]:
    match kind:
        case "region":
            return (wire.region,)
        case "availability-zone":
            return wire.cloud.zones
        case "availability-zone-id":
            return tuple(wire.network.zone_ids[zone] for zone in wire.cloud.zones)
        case _:
            raise AwsError("InvalidParameterValue", f"the simulated AWS knows no LocationType '{kind}'")


# --- one type -----------------------------------------------------------------------------------------


def _record(kind: InstanceType) -> Record:
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    theirs: Mapping[str, Record] = INSTANCE_TYPES
    return theirs[kind.name] if kind.name in theirs else _described(kind)


def _described(kind: InstanceType) -> Record:
    accelerator = kind.accelerator
    classes = [] if kind.ultraserver else ["capacity-block"] if kind.block else ["on-demand", "spot"]
    record: dict[str, Any] = {
        "InstanceType": kind.name,
        "CurrentGeneration": True,
        "BareMetal": False,
        "Hypervisor": kind.hypervisor,
        "SupportedUsageClasses": classes,
        "SupportedRootDeviceTypes": ["ebs"],
        "SupportedVirtualizationTypes": ["hvm"],
        "ProcessorInfo": {"SupportedArchitectures": ["arm64" if kind.arch == "arm64" else "x86_64"]},
        "VCpuInfo": {"DefaultVCpus": kind.vcpus, "DefaultCores": kind.vcpus, "DefaultThreadsPerCore": 1},
        "MemoryInfo": {"SizeInMiB": kind.memory_mib},
        "InstanceStorageSupported": bool(kind.nvme_gb),
        "NetworkInfo": _network(kind),
    }
    if kind.nvme_gb:
        record["InstanceStorageInfo"] = {"TotalSizeInGB": kind.nvme_gb, "NvmeSupport": "required"}
    if accelerator is not None:
        memory = {"MemoryInfo": {"SizeInMiB": accelerator.memory_mib}}
        device = {"Name": accelerator.model, "Count": accelerator.count, **memory}
        if accelerator.resource == names.NVIDIA_GPU:
            record["GpuInfo"] = {"Gpus": [{"Manufacturer": "NVIDIA", **device}]}
        else:
            record["NeuronInfo"] = {"NeuronDevices": [{**device, "CoreInfo": {"Count": 1}}]}
    return record


def _network(kind: InstanceType) -> Record:
    """One interface a card, with as many addresses as make the catalog's number of pods (the VPC CNI's rule)."""
    cards = max(kind.efa, 1)
    return {
        "MaximumNetworkInterfaces": cards,
        "MaximumNetworkCards": cards,
        "DefaultNetworkCardIndex": 0,
        "NetworkCards": [
            {"NetworkCardIndex": number, "MaximumNetworkInterfaces": 1} for number in range(cards)
        ],
        "Ipv4AddressesPerInterface": dict(kind.allocatable)[names.PODS] - 1,
        "EnaSupport": "required",
        "EncryptionInTransitSupported": True,
        "EfaSupported": kind.efa > 0,
        **({"EfaInfo": {"MaximumEfaInterfaces": kind.efa}} if kind.efa else {}),
    }


def _bool(value: object) -> str:
    return str(bool(value)).lower()


_FIELDS: FilterFields[Record] = {
    "instance-type": lambda one: str(one["InstanceType"]),
    "bare-metal": lambda one: _bool(one.get("BareMetal")),
    "burstable-performance-supported": lambda one: _bool(one.get("BurstablePerformanceSupported")),
    "current-generation": lambda one: _bool(one.get("CurrentGeneration")),
    "hypervisor": lambda one: str(one.get("Hypervisor", "")),
    "instance-storage-supported": lambda one: _bool(one.get("InstanceStorageSupported")),
    "memory-info.size-in-mib": lambda one: str(one["MemoryInfo"]["SizeInMiB"]),
    "network-info.efa-supported": lambda one: _bool(one["NetworkInfo"].get("EfaSupported")),
    "processor-info.supported-architecture": lambda one: one["ProcessorInfo"]["SupportedArchitectures"],
    "supported-root-device-type": lambda one: one.get("SupportedRootDeviceTypes", ()),
    "supported-usage-class": lambda one: one.get("SupportedUsageClasses", ()),
    "supported-virtualization-type": lambda one: one.get("SupportedVirtualizationTypes", ()),
    "vcpu-info.default-vcpus": lambda one: str(one["VCpuInfo"]["DefaultVCpus"]),
}
_OFFERING_FIELDS: FilterFields[dict[str, str]] = {
    "instance-type": lambda one: one["InstanceType"],
    "location": lambda one: one["Location"],
}
