"""What follows from a pool's document alone: its instance types, and the labels and taints of its nodes.

Worked out once per Spec and kept with it: documents do not change while they are being decided on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from tidemill.catalog import InstanceType
from tidemill.decide.overflow import limited_source, overflow_source
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.labels import Taint, Toleration
from tidemill.model.pods import Pod
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import ComputePool, Provisioner, SourceSpec, matching_types
from tidemill.spec.node_class import fingerprint

HELD = Taint(names.TAINT_HELD)  # of pools that take only admitted pods
ENDING = Taint(names.TAINT_ENDING)
TOLERATES_ENDING = Toleration(names.TAINT_ENDING, "Exists")  # what admission adds to a pod too
TOLERATES_HELD = Toleration(names.TAINT_HELD, "Exists")  # what admission adds to a pod


@dataclass(slots=True, eq=False)
class PoolTemplate:
    pool: ComputePool
    kinds: Mapping[str, InstanceType]  # by name, those its requirements allow
    taints: tuple[Taint, ...]  # those that stay; startup taints go away by themselves
    overflow: Mapping[SourceKind, SourceSpec | None]
    limited: Mapping[
        SourceKind, SourceSpec | None
    ]  # what money ends: overflow, and what is within the month's budget
    made_from: str = ""  # the fingerprint its nodes carry today; empty: its node class is not known
    # Karpenter launches for unschedulable pods: they are admitted before there is a node, and we launch nothing.
    by_karpenter: bool = False
    warm: bool | int = (
        False  # how many nodes of its blocks run without pods: all (True), a number, or none (False)
    )
    _labels: dict[tuple[Source, str, str], Mapping[str, str]] = field(default_factory=dict)

    def labels(self, source: Source, kind: InstanceType, zone: str) -> Mapping[str, str]:
        key = (source, kind.name, zone)
        found = self._labels.get(key)
        if found is None:
            found = self._labels[key] = {
                **self.pool.spec.labels,
                names.LABEL_POOL: self.pool.name,
                names.LABEL_SOURCE: source.label,
                names.LABEL_TYPE: kind.name,
                names.LABEL_ARCH: kind.arch,
                names.LABEL_ZONE: zone,
            }
        return found

    def accepts(self, source: SourceKind, namespace: str, *, overflow: bool) -> bool:
        """Whether pods of a namespace may use its nodes from this kind of source. `overflow`: they opted in to sources
        that are paid by the hour beside prepaid ones."""
        return self.pool.spec.serves(namespace) and (overflow or self.overflow[source] is None)

    def keeps_up(self, source: SourceKind) -> bool:
        """Whether all nodes of such a source are launched without being asked for. Else some, or all, come only for
        pods that are pending."""
        return source is SourceKind.BLOCK and self.warm is True

    def taints_for(self, pod: Pod) -> tuple[Taint, ...]:
        """Those that it must tolerate itself: admission adds a toleration of `tidemill.dev/held` to a gated one."""
        return tuple(taint for taint in self.taints if taint != HELD) if pod.gated else self.taints

    def order(self, source: Source) -> tuple[int, int]:
        """Heavier pools first, then the pool's own order of sources. What inherited a pin is where the pin is."""
        spec = self.pool.spec
        of_kind = [(place, one) for place, one in enumerate(spec.sources) if one.type == source.kind.value]
        named = (place for place, one in of_kind if not one.ids or source.id in one.ids)
        inherited = (place for place, _ in of_kind)
        return (-spec.weight, next(named, next(inherited, len(spec.sources))))


@lru_cache(maxsize=8)
def templates(spec: Spec) -> Mapping[str, PoolTemplate]:
    """By pool name, heaviest first."""
    pools = sorted(spec.pools.values(), key=lambda pool: (-pool.spec.weight, pool.name))
    return {
        pool.name: PoolTemplate(
            pool=pool,
            kinds={kind.name: kind for kind in matching_types(spec.catalog, pool.spec.requirements)},
            taints=_taints(pool),
            overflow={kind: overflow_source(pool, kind) for kind in SourceKind},
            limited={kind: limited_source(spec, pool, kind) for kind in SourceKind},
            made_from=_made_from(spec, pool),
            by_karpenter=pool.spec.provisioner is Provisioner.KARPENTER,
            warm=_warm(spec, pool),
        )
        for pool in pools
    }


def _taints(pool: ComputePool) -> tuple[Taint, ...]:
    written = tuple(Taint(taint.key, taint.value, taint.effect) for taint in pool.spec.taints)
    return (*written, HELD) if pool.spec.admitted_pods_only else written


def _warm(spec: Spec, pool: ComputePool) -> bool | int:
    if pool.spec.provisioner is not Provisioner.KARPENTER:
        return pool.spec.kept_warm
    karpenter = spec.platform.spec.karpenter
    return pool.spec.warm or False if karpenter is not None and karpenter.keeps_nodes_up else False


def _made_from(spec: Spec, pool: ComputePool) -> str:
    node_class = spec.node_classes.get(pool.spec.node_class_name)
    return fingerprint(node_class) if node_class is not None else ""
