"""DescribeInstanceTypes -> instance types for the catalog. A pure function of the record, and the call around it.

Types with NVIDIA GPUs or Neuron devices are kept, and c, m and r from generation 5, t from 3. Left out are fractions
of a GPU (a pod that asks for one gets a fraction), bare metal (it boots longer than the engine waits for a node), and
accelerators without a device plugin here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from tidemill.aws.fields import Reader, Unreadable, integer, optional_record, optional_records, string
from tidemill.aws.session import Aws
from tidemill.catalog.refreshed import TypeFacts
from tidemill.spec import names

_PAGE = 100  # the most that EC2 allows
_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}
_BLOCK = "capacity-block"
_WITHOUT_ACCELERATORS = re.compile(r"([cmr]([5-9]|\d\d)|t([3-9]|\d\d))[a-z0-9-]*\.")
_OTHER_DEVICES = ("GpuInfo", "NeuronInfo", "InferenceAcceleratorInfo", "FpgaInfo", "MediaAcceleratorInfo")


def usable_types(aws: Aws) -> list[TypeFacts]:
    """All that EC2 has in the region and pods can use."""
    found = aws.pages("ec2", "DescribeInstanceTypes", "InstanceTypes", MaxResults=_PAGE)
    return Reader().each("instance type", filter(_is_usable, found), read_type)


def _is_usable(record: Any) -> bool:
    if not isinstance(record, Mapping) or record.get("BareMetal"):
        return False
    if devices := _devices(record):
        return devices[0].get("Count") != 0  # 0: a fraction of one
    return (
        _WITHOUT_ACCELERATORS.match(str(record.get("InstanceType"))) is not None
        and record.get("Hypervisor") == "nitro"
        and not any(record.get(key) for key in _OTHER_DEVICES)
    )


def read_type(record: Mapping[str, Any]) -> TypeFacts:
    """Raises Unreadable."""
    network = _inner(record, "NetworkInfo")
    try:
        return TypeFacts(
            name=string(record, "InstanceType"),
            arch=_arch(record),  # type: ignore[arg-type]  # checked by the model
            hypervisor=string(record, "Hypervisor"),
            vcpus=integer(_inner(record, "VCpuInfo"), "DefaultVCpus"),
            memory_mib=integer(_inner(record, "MemoryInfo"), "SizeInMiB"),
            accelerator=_accelerator(record),  # type: ignore[arg-type]
            efa=integer(_inner(network, "EfaInfo"), "MaximumEfaInterfaces") if network.get("EfaInfo") else 0,
            nvme_gb=_nvme_gb(record),
            max_pods=_max_pods(network),
            block=_BLOCK in _words(record, "SupportedUsageClasses"),
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise Unreadable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _devices(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """GPUs or Neuron devices; no type has both."""
    gpus = optional_records(optional_record(record, "GpuInfo"), "Gpus")
    neuron = optional_records(optional_record(record, "NeuronInfo"), "NeuronDevices")
    return [gpu for gpu in gpus if gpu.get("Manufacturer") == "NVIDIA"] or neuron


def _accelerator(record: Mapping[str, Any]) -> dict[str, Any] | None:
    devices = _devices(record)
    if not devices and _WITHOUT_ACCELERATORS.match(str(record.get("InstanceType"))):
        return None
    if len(devices) != 1:
        raise Unreadable(f"expected one kind of accelerators, got {len(devices)}")
    (device,) = devices
    model = device.get("Name")
    if not isinstance(model, str):
        raise Unreadable(f"field Name: expected a name, got {model!r}")
    return {
        "resource": names.NVIDIA_GPU if "Manufacturer" in device else names.NEURON,
        "model": model,
        "count": integer(device, "Count", least=1),
        "memory_mib": integer(_inner(device, "MemoryInfo"), "SizeInMiB", least=1),
    }


def _arch(record: Mapping[str, Any]) -> str:
    listed = _words(_inner(record, "ProcessorInfo"), "SupportedArchitectures")
    known = [_ARCHITECTURES[name] for name in listed if name in _ARCHITECTURES]
    if len(known) != 1:
        raise Unreadable(f"field SupportedArchitectures: expected one known architecture, got {listed!r}")
    return known[0]


def _nvme_gb(record: Mapping[str, Any]) -> int:
    storage = record.get("InstanceStorageInfo")
    return integer(_inner(record, "InstanceStorageInfo"), "TotalSizeInGB") if storage else 0


def _max_pods(network: Mapping[str, Any]) -> int:
    """The limit of the VPC CNI: all addresses of the default network card's interfaces but the first of each."""
    default = network.get("DefaultNetworkCardIndex") or 0
    for card in optional_records(network, "NetworkCards"):
        if card.get("NetworkCardIndex") == default:
            addresses = integer(network, "Ipv4AddressesPerInterface", least=1)
            return integer(card, "MaximumNetworkInterfaces", least=1) * (addresses - 1) + 2
    raise Unreadable(f"there is no network card {default}")


def _words(record: Mapping[str, Any], key: str) -> list[str]:
    found = record.get(key)
    return [value for value in found if isinstance(value, str)] if isinstance(found, list) else []


def _inner(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = record.get(key)
    if not isinstance(value, Mapping):
        raise Unreadable(f"field {key}: expected a record, got {value!r}")
    return value
