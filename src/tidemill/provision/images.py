"""Which image a node boots: an id, or the public SSM parameter under which AWS publishes an alias.

`image_of` only makes names. `Images` is the port that reads the value from AWS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

from tidemill.catalog import InstanceType
from tidemill.catalog.image_drivers import driver_of
from tidemill.model.errors import SpecError
from tidemill.provision.user_data import Family
from tidemill.spec.names import NEURON, NVIDIA_GPU
from tidemill.spec.node_class import LaunchTemplateRef, NodeClass

_LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Image:
    """One of `id` and `parameter` is set."""

    id: str = ""
    parameter: str = ""  # of SSM, in every region; its value is the image's id
    pinned: bool = True  # False: the parameter's value changes when AWS releases the next image
    driver: str = ""  # NVIDIA's, where it is known before the image is booted


def image_of(node_class: NodeClass, kind: InstanceType, kubernetes: str) -> Image:
    """Of the first selector term. SpecError: AWS publishes no such image."""
    term = node_class.spec.ami_selector_terms[0]
    if term.id is not None:
        return Image(id=term.id)
    assert term.alias is not None
    family = Family.of(node_class)
    version = term.alias.partition("@")[2] or _LATEST
    match family:
        case Family.AL2023:
            parameter = _al2023(kind, kubernetes, version)
        case Family.BOTTLEROCKET:
            parameter = _bottlerocket(kind, kubernetes, version)
    gpu = kind.accelerator is not None and kind.accelerator.resource == NVIDIA_GPU
    driver = driver_of(term.alias, kubernetes) if gpu else None
    return Image(parameter=parameter, pinned=version != _LATEST, driver=driver or "")


def ami_type(family: Family, kind: InstanceType) -> str:
    """EKS's name for the image of a managed node group whose template names none."""
    arch = "ARM_64" if kind.arch == "arm64" else "x86_64"
    variant = _variant(kind)
    match family:
        case Family.AL2023:
            return f"AL2023_{arch}_{variant.upper()}"
        case Family.BOTTLEROCKET:
            return f"BOTTLEROCKET_{arch}" + ("_NVIDIA" if variant == "nvidia" else "")


def _al2023(kind: InstanceType, kubernetes: str, version: str) -> str:
    arch, variant = _arch(kind), _variant(kind)
    if arch == "arm64" and variant == "neuron":
        raise SpecError(f"there is no AL2023 image with Neuron for {kind.name} (arm64)")
    name = f"amazon-eks-node-al2023-{arch}-{variant}-{kubernetes}-{version}"
    release = "recommended" if version == _LATEST else name
    return (
        f"/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023/{arch}/{variant}/{release}/image_id"
    )


def _bottlerocket(kind: InstanceType, kubernetes: str, version: str) -> str:
    """One variant is for Neuron and plain nodes. Releases are called `v1.2.3`; the parameter has no `v`."""
    nvidia = "-nvidia" if _variant(kind) == "nvidia" else ""
    return f"/aws/service/bottlerocket/aws-k8s-{kubernetes}{nvidia}/{_arch(kind)}/{version.removeprefix('v')}/image_id"


def _arch(kind: InstanceType) -> str:
    return "arm64" if kind.arch == "arm64" else "x86_64"


def _variant(kind: InstanceType) -> str:
    resource = kind.accelerator.resource if kind.accelerator else ""
    return {NVIDIA_GPU: "nvidia", NEURON: "neuron"}.get(resource, "standard")


class Images(Protocol):
    """Finds the image of a node class. Reads only."""

    @property
    def boots(self) -> bool:
        """Whether nodes really boot from the images, and must join a cluster."""
        ...

    def image_id(self, node_class: NodeClass, instance_type: str) -> str:
        """SpecError: there is no such image."""
        ...

    def existing(self, reference: LaunchTemplateRef) -> Mapping[str, Any]:
        """The data of the existing launch template of a node class."""
        ...


class PretendImages:
    """For simulations, where nothing boots: each alias has a made-up id, always the same."""

    boots = False

    def image_id(self, node_class: NodeClass, instance_type: str) -> str:
        term = node_class.spec.ami_selector_terms[0]
        return term.id or f"ami-{blake2b((term.alias or '').encode(), digest_size=8).hexdigest()}0"

    def existing(self, reference: LaunchTemplateRef) -> Mapping[str, Any]:
        return {}
