"""What people write: documents, YAML with line numbers, checks, schemas, importers.

`Spec` is the bundle the engine decides from; it is immutable and already checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.catalog import Catalog
from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.node_class import NodeClass
from tidemill.spec.platform import Platform


@dataclass(frozen=True, eq=False)  # compared by identity: caches use it as a key
class Spec:
    """Checked documents and the catalog that they were checked against. Maps are by name, in a stable order."""

    platform: Platform
    catalog: Catalog
    node_classes: Mapping[str, NodeClass] = field(default_factory=dict)
    pools: Mapping[str, ComputePool] = field(default_factory=dict)
    plans: Mapping[str, CapacityPlan] = field(default_factory=dict)
