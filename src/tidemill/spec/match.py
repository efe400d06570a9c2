"""Which instance types a pool's requirements allow. All that are stated must hold; an absent one allows any.

Knows nothing of zones, prices or what is for sale: those belong to the source, not to the type.
"""

from __future__ import annotations

from functools import lru_cache

from tidemill.catalog import Catalog, InstanceType
from tidemill.spec.models import Requirements


@lru_cache(maxsize=1024)
def matching(catalog: Catalog, requirements: Requirements) -> tuple[InstanceType, ...]:
    """The allowed types, sorted by name. Remembered: the engine asks the same question at every tick."""
    allowed = (t for t in catalog.types.values() if matches(t, requirements))
    return tuple(sorted(allowed, key=lambda t: t.name))


def matches(instance_type: InstanceType, wanted: Requirements) -> bool:
    t = instance_type
    return (
        (not wanted.instance_categories or t.category in wanted.instance_categories)
        and (not wanted.instance_families or t.family in wanted.instance_families)
        and (not wanted.instance_types or t.name in wanted.instance_types)
        and (wanted.arch is None or t.arch == wanted.arch)
        and (wanted.hypervisor is None or t.hypervisor == wanted.hypervisor)
        and (wanted.min_generation is None or t.generation >= wanted.min_generation)
        and (not wanted.cpu_sizes or t.vcpus in wanted.cpu_sizes)
    )
