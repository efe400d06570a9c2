"""The documents as objects of a cluster: CustomResourceDefinitions made from the models.

Cluster-scoped, because a node belongs to no namespace: one engine and one Platform for a cluster. `CapacityBlock` has
no document: the engine writes one for every reservation of ours, so that `kubectl get capacityblocks` shows them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from tidemill.spec.capacity_plan import CapacityPlanSpec
from tidemill.spec.compute_pool import ComputePoolSpec
from tidemill.spec.crds.status import (
    CapacityBlockSpec,
    CapacityBlockStatus,
    CapacityPlanStatus,
    ComputePoolStatus,
    NodeClassStatus,
    PlatformStatus,
)
from tidemill.spec.crds.structural import structural
from tidemill.spec.document import Model
from tidemill.spec.names import API_VERSION
from tidemill.spec.node_class import NodeClassSpec
from tidemill.spec.platform import PlatformSpec

GROUP, _, VERSION = API_VERSION.partition("/")
CATEGORY: Final = "tidemill"  # `kubectl get tidemill` lists everything


@dataclass(frozen=True, slots=True)
class Column:
    """Of `kubectl get`. Shown with `-o wide` only, where `wide`."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Resource:
    kind: str
    plural: str
    short_names: tuple[str, ...]
    about: str  # the first line of `kubectl explain`
    spec: type[Model]
    status: type[Model]
    columns: tuple[Column, ...]

    @property
    def name(self) -> str:
        return f"{self.plural}.{GROUP}"


_ACCEPTED = Column("Accepted", '.status.conditions[?(@.type=="Accepted")].status')
_AGE = Column("Age", ".metadata.creationTimestamp", "date")

RESOURCES: Final = (
    Resource(
        "Platform", "platforms", ("tmplatform",),
        "The cluster, spending limits, who approves purchases, Karpenter, and where alerts go.",
        PlatformSpec, PlatformStatus,
        (
            Column("Region", ".spec.region"), Column("Approval", ".status.approval"),
            Column("Month", ".status.monthUsd", "number"), Column("Budget", ".status.budgetUsd", "number"),
            Column("Waiting", ".status.waitingPurchases", "integer"), _ACCEPTED, _AGE,
        ),
    ),
    Resource(
        "NodeClass", "nodeclasses", ("tmnc",), "How nodes are made: image, volumes, user data.",
        NodeClassSpec, NodeClassStatus,
        (
            Column("Image", ".spec.amiSelectorTerms[0].alias"), Column("EFA", ".spec.efa", "boolean", wide=True),
            _ACCEPTED, _AGE,
        ),
    ),
    Resource(
        "ComputePool", "computepools", ("tmpool",),
        "Which instance types, from which sources, how many, and when nodes may go.",
        ComputePoolSpec, ComputePoolStatus,
        (
            Column("GPUs", ".status.gpus"), Column("Block", ".status.block"), Column("Ends in", ".status.endsIn"),
            Column("Waiting", ".status.waitingPods", "integer"),
            Column("Provisioner", ".spec.provisioner", wide=True), Column("Ends", ".status.endsAt", wide=True),
            Column("USD/h", ".status.usdPerHour", "number", wide=True), _ACCEPTED, _AGE,
        ),
    ),
    Resource(
        "CapacityPlan", "capacityplans", ("tmplan",), "What a pool needs when, as windows or as a calendar.",
        CapacityPlanSpec, CapacityPlanStatus,
        (Column("Pool", ".spec.pool"), Column("Bought", ".status.purchases"), _ACCEPTED, _AGE),
    ),
    Resource(
        "CapacityBlock", "capacityblocks", ("tmblock",),
        "A Capacity Block or On-Demand Capacity Reservation of ours, as EC2 shows it. Written by the engine.",
        CapacityBlockSpec, CapacityBlockStatus,
        (
            Column("Pool", ".status.pool"), Column("Type", ".status.type"),
            Column("Count", ".status.count", "integer"), Column("Zone", ".status.zone", wide=True),
            Column("Start", ".status.start"), Column("End", ".status.end"), Column("State", ".status.state"),
            Column("Ends in", ".status.endsIn"), Column("Used", ".status.used"),
            Column("Fee", ".status.feeUsd", "integer", wide=True),
        ),
    ),
)  # fmt: skip
BY_KIND: Final = {resource.kind: resource for resource in RESOURCES}


def definitions() -> Iterator[dict[str, Any]]:
    return (definition(resource) for resource in RESOURCES)


def definition(resource: Resource) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.name, "labels": {"app.kubernetes.io/name": "tidemill"}},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": list(resource.short_names),
                "categories": [CATEGORY],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(column) for column in resource.columns],
                    "schema": {"openAPIV3Schema": _object(resource)},
                }
            ],
        },
    }


def _column(column: Column) -> dict[str, Any]:
    wide = {"priority": 1} if column.wide else {}
    return {"name": column.name, "type": column.type, "jsonPath": column.path, **wide}


def _object(resource: Resource) -> dict[str, Any]:
    # A name of ours becomes part of labels and tags, which are shorter than the API server's names.
    name_fits = {
        "rule": "self.metadata.name.size() <= 63",
        "message": "the name must have at most 63 characters: it becomes a label of nodes",
    }
    return {
        "type": "object",
        "description": resource.about,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _part(resource.spec),
            "status": _part(resource.status),
        },
        "x-kubernetes-validations": [name_fits],
    }


def _part(model: type[BaseModel]) -> dict[str, Any]:
    return structural(model)
