"""`tidemill run --shadow`: an engine beside a set-up that somebody else runs. It changes nothing and reports.

The nodes of others would be none of the engine's business, and it would have nothing to say of them. So here it is
shown each node that a pool may use as if the pool had launched it, and each untagged Capacity Block as if it was
adopted; what was assumed is part of the report. Every write is refused, as in a dry run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import structlog

from tidemill.controller.dry_run import ReadOnlyCloud, ReadOnlyCluster, ReadOnlyLedger, Viewed
from tidemill.controller.loop import TickReport
from tidemill.model.capacity import LIVE_STATES, Reservation, Source, SourceKind
from tidemill.model.labels import Taint
from tidemill.model.nodes import Instance, InstanceState, KubeNode
from tidemill.model.purchases import Adoption
from tidemill.ports import Clock, Cloud, ClusterView, Ledger
from tidemill.report.rows import plain
from tidemill.report.shadow import ShadowReport, ShadowTally
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import Provisioner, matches
from tidemill.spec.node_class import fingerprint

log = structlog.stdlib.get_logger("tidemill.controller.shadow")

_CAPACITY_TYPES = ("karpenter.sh/capacity-type", "eks.amazonaws.com/capacityType")
_RESERVATION = "karpenter.k8s.aws/capacity-reservation-id"


class Assumptions:
    """Which nodes and blocks of others count as the engine's own, and what they look like then."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self.deployment = spec.platform.spec.deployment
        self._pools = sorted(spec.pools.values(), key=lambda pool: (-pool.spec.weight, pool.name))
        self._given: dict[int, tuple[KubeNode, KubeNode, Instance | None]] = {}  # by identity of the node
        self.nodes = 0
        self.blocks: tuple[str, ...] = ()

    def pool_for(self, instance_type: str) -> str:
        """The heaviest pool whose requirements allow the type; empty: none. Karpenter's own pools stay Karpenter's."""
        kind = self._spec.catalog.types.get(instance_type)
        if kind is None:
            return ""
        fitting = (
            pool.name
            for pool in self._pools
            if pool.spec.provisioner is not Provisioner.KARPENTER and matches(kind, pool.spec.requirements)
        )
        return next(fitting, "")

    def seen(self, view: ClusterView) -> tuple[tuple[KubeNode, ...], tuple[Instance, ...]]:
        """The nodes as if they were the engine's, and the instances that they would be. Unchanged ones are the same
        objects as the last time."""
        before, self._given = self._given, {}
        for node in view.nodes:
            known = before.get(id(node))
            self._given[id(node)] = (
                known if known is not None and known[0] is node else (node, *self._taken(node))
            )
        nodes = tuple(self._given[id(node)][1] for node in view.nodes)
        instances = tuple(one for node in view.nodes if (one := self._given[id(node)][2]) is not None)
        self.nodes = len(instances)
        return nodes, instances

    def _taken(self, node: KubeNode) -> tuple[KubeNode, Instance | None]:
        labels = dict(node.labels)
        pool = "" if names.LABEL_POOL in labels else self.pool_for(labels.get(names.LABEL_TYPE, ""))
        if not pool:
            return node, None
        source = _source(labels)
        instance = Instance(
            id=node.instance_id or node.name, instance_type=labels[names.LABEL_TYPE],
            zone=labels.get(names.LABEL_ZONE, ""), source=source, state=InstanceState.RUNNING,
            launched_at=node.joined_at, owner=self.deployment, pool=pool, provisioner=Provisioner.NATIVE.value,
        )  # fmt: skip
        spec = self._spec.pools[pool].spec
        node_class = self._spec.node_classes.get(spec.node_class_name)
        made_from = fingerprint(node_class) if node_class is not None else ""
        # As if the documents had made it: what others made it from is no reason to replace it.
        labels |= {
            **spec.labels, names.LABEL_POOL: pool, names.LABEL_SOURCE: source.label,
            names.LABEL_NODE_CLASS: made_from,
        }  # fmt: skip
        taints = (Taint(one.key, one.value, one.effect) for one in spec.taints)
        taken = replace(
            node, instance_id=instance.id, labels=tuple(sorted(labels.items())),
            taints=(*node.taints, *(one for one in taints if one not in node.taints)),
        )  # fmt: skip
        return taken, instance

    def takes(self, block: Reservation) -> bool:
        return (
            block.kind is SourceKind.BLOCK
            and not block.owner
            and block.state in LIVE_STATES
            and bool(self.pool_for(block.instance_type))
        )


def _source(labels: dict[str, str]) -> Source:
    if id_ := labels.get(_RESERVATION, ""):
        return Source(SourceKind.BLOCK, id_)
    told = next((labels[name].lower() for name in _CAPACITY_TYPES if name in labels), "")
    return Source(SourceKind.SPOT if told == "spot" else SourceKind.ON_DEMAND)


class ShadowCluster(ReadOnlyCluster):
    def __init__(self, cluster: Viewed, assumed: Assumptions) -> None:
        super().__init__(cluster)
        self._assumed = assumed
        self._last: tuple[ClusterView, ClusterView] | None = None

    def view(self) -> ClusterView:
        seen = super().view()
        if self._last is None or self._last[0] is not seen:
            nodes, _ = self._assumed.seen(seen)
            self._last = seen, replace(seen, nodes=nodes)
        return self._last[1]


class ShadowCloud(ReadOnlyCloud):
    """`cluster`: instances of others are known by their Kubernetes nodes; AWS is asked for the engine's own only."""

    def __init__(self, cloud: Cloud, cluster: Viewed, assumed: Assumptions) -> None:
        super().__init__(cloud)
        self._cluster, self._assumed = cluster, assumed

    def instances(self) -> Sequence[Instance]:
        listed = super().instances()
        own = {one.id for one in listed if one.owner}
        _, taken = self._assumed.seen(self._cluster.view())
        shown = {
            one.id: one for one in listed if not one.owner
        }  # strangers on a block that counts as adopted
        found = [
            replace(one, source=shown[one.id].source) if one.id in shown else one
            for one in taken
            if one.id not in own
        ]
        return (*(one for one in listed if one.owner), *found)


class ShadowLedger(ReadOnlyLedger):
    """With every block that counts as adopted."""

    def __init__(self, ledger: Ledger, cloud: Cloud, clock: Clock, assumed: Assumptions) -> None:
        super().__init__(ledger)
        self._cloud, self._assumed, self._since = cloud, assumed, clock.now()

    def adoptions(self) -> tuple[Adoption, ...]:
        blocks = [one.id for one in self._cloud.reservations() if self._assumed.takes(one)]
        self._assumed.blocks = tuple(sorted(blocks))
        known = super().adoptions()
        return (*known, *(Adoption(id_, "", "shadow", self._since) for id_ in self._assumed.blocks))


class ShadowReporter:
    """A reporter of ticks: tallies them, and tells every so often of the engine's clock, and at the end."""

    def __init__(
        self, every: timedelta, tell: Callable[[ShadowReport], None], target: Path | None = None
    ) -> None:
        self._every, self._tell, self._target = every, tell, target
        self._tally: ShadowTally | None = None
        self._due: datetime | None = None
        self.assumed: Assumptions | None = None  # of the engine that ticks

    def report(self, report: TickReport) -> None:
        if report.tick is None:
            return
        tally = self._tally = self._tally or ShadowTally(report.spec.catalog)
        if self.assumed is not None:
            tally.assumed_nodes = max(tally.assumed_nodes, self.assumed.nodes)
            tally.assumed_blocks = self.assumed.blocks
        tally.note(report.tick.world, report.tick.plan)
        now = report.tick.world.now
        self._due = self._due or now + self._every
        if now >= self._due:
            self._due = now + self._every
            self.tell()

    def tell(self) -> None:
        """What there is since the last report; nothing without a tick."""
        if self._tally is None or not self._tally.ticks:
            return
        found = self._tally.report()
        self._tally.restart()
        self._tell(found)
        if self._target is not None:
            self._append(plain(found))

    def _append(self, body: Any) -> None:
        assert self._target is not None
        try:
            with self._target.open("a", encoding="utf-8") as file:
                file.write(json.dumps(body) + "\n")
        except OSError as error:
            log.error(
                "the report cannot be written", file=str(self._target), why=error.strerror or str(error)
            )
