"""What Karpenter says of an instance type in labels, and which types meet a NodePool's requirements.

Requirements that our documents have no field for (the name of a GPU, a size, an amount of memory) are carried over as
the instance types of the catalog that meet them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.catalog import Catalog, InstanceType

CAPACITY_TYPE = "karpenter.sh/capacity-type"
CAPACITY_TYPES = ("reserved", "spot", "on-demand")
RESERVATION_TYPES = (
    "karpenter.k8s.aws/capacity-reservation-type",
    "eks.amazonaws.com/capacity-reservation-type",
)
_PREFIXES = ("karpenter.k8s.aws/", "eks.amazonaws.com/")
_GPU = "nvidia.com/gpu"
_ALWAYS: dict[str, Callable[[InstanceType], str]] = {
    "instance-category": lambda kind: kind.category,
    "instance-family": lambda kind: kind.family,
    "instance-generation": lambda kind: str(kind.generation),
    "instance-size": lambda kind: kind.size,
    "instance-cpu": lambda kind: str(kind.vcpus),
    "instance-memory": lambda kind: str(kind.memory_mib),
    "instance-hypervisor": lambda kind: kind.hypervisor,
    "node.kubernetes.io/instance-type": lambda kind: kind.name,
    "kubernetes.io/arch": lambda kind: kind.arch,
}
_GPU_LABELS = ("instance-gpu-name", "instance-gpu-manufacturer", "instance-gpu-count", "instance-gpu-memory")
_OTHER_LABELS = (
    "instance-accelerator-name",
    "instance-accelerator-manufacturer",
    "instance-accelerator-count",
)
_NVME = "instance-local-nvme"
_KNOWN = frozenset((*_ALWAYS, *_GPU_LABELS, *_OTHER_LABELS, _NVME))


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: str
    values: tuple[str, ...]
    index: int  # in the list

    def __str__(self) -> str:
        return f"{self.key} {self.operator} {', '.join(self.values)}".strip()

    @property
    def label(self) -> str:
        """Without the prefix, which is Karpenter's or Auto Mode's."""
        return next((self.key.removeprefix(one) for one in _PREFIXES if self.key.startswith(one)), self.key)

    @property
    def is_of_types(self) -> bool:
        """Whether the catalog says which types meet it."""
        return self.label in _KNOWN and (self.operator in _SETS or self._bound is not None)

    def of(self, universe: Iterable[str]) -> list[str]:
        """The values of a known set that it allows."""
        return [value for value in universe if self.allows(value)]

    def allows(self, value: str | None) -> bool:
        """As Kubernetes reads it. None: there is no such label."""
        if self.operator in _SETS:
            return _SETS[self.operator](value, self.values)
        if value is None or self._bound is None or not value.isdigit():
            return self.operator not in _BOUNDS
        return _BOUNDS[self.operator](int(value), self._bound)

    @property
    def _bound(self) -> int | None:
        fits = self.operator in _BOUNDS and len(self.values) == 1 and self.values[0].isdigit()
        return int(self.values[0]) if fits else None


_SETS: dict[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, values: value is not None,
    "DoesNotExist": lambda value, values: value is None,
}
_BOUNDS: dict[str, Callable[[int, int], bool]] = {
    "Gt": lambda value, bound: value > bound,
    "Gte": lambda value, bound: value >= bound,
    "Lt": lambda value, bound: value < bound,
    "Lte": lambda value, bound: value <= bound,
}


def requirements_of(items: Iterable[Mapping[str, Any]]) -> list[Requirement]:
    """As a NodePool lists them."""
    found = []
    for index, each in enumerate(items):
        values = each.get("values")
        listed = tuple(map(str, values)) if isinstance(values, list) else ()
        found.append(Requirement(str(each.get("key")), str(each.get("operator")), listed, index))
    return found


def allowed(requirements: Iterable[Requirement], universe: Sequence[str]) -> list[str]:
    """The values that all of the requirements allow."""
    left = list(universe)
    for requirement in requirements:
        left = [value for value in requirement.of(universe) if value in left]
    return left


def types_that_meet(requirements: Iterable[Requirement], catalog: Catalog) -> list[str]:
    asked = [one for one in requirements if one.is_of_types]
    return sorted(
        kind.name
        for kind in catalog.types.values()
        if all(one.allows(_labels(kind).get(one.label)) for one in asked)
    )


def _labels(kind: InstanceType) -> dict[str, str]:
    labels = {label: value(kind) for label, value in _ALWAYS.items()}
    if kind.nvme_gb:
        labels[_NVME] = str(kind.nvme_gb)
    if kind.accelerator is None:
        return labels
    model, count = kind.accelerator.model.lower(), str(kind.accelerator.count)
    if kind.accelerator.resource == _GPU:
        memory = str(kind.accelerator.memory_mib)
        return labels | dict(zip(_GPU_LABELS, (model, "nvidia", count, memory), strict=True))
    return labels | dict(zip(_OTHER_LABELS, (model, "aws", count), strict=True))
