"""Makes the engine of the controller for a version of the documents, over connections that stay."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import structlog

from tidemill.aws.session import Aws
from tidemill.cli.session import cloud_of
from tidemill.controller.beside import TimedExecutor
from tidemill.controller.dry_run import ReadOnlyCloud, ReadOnlyCluster, ReadOnlyLedger
from tidemill.controller.metrics import Metrics
from tidemill.controller.shadow import Assumptions, ShadowCloud, ShadowCluster, ShadowLedger, ShadowReporter
from tidemill.controller.wakes import Wakes
from tidemill.engine.clock import MappedClock
from tidemill.engine.loop import Engine
from tidemill.engine.planner_runner import InlineExecutor, PlannerExecutor
from tidemill.engine.planner_thread import ThreadExecutor
from tidemill.kube.api import KubeApi
from tidemill.kube.cluster import KubeCluster
from tidemill.kube.custom_objects import CustomObjects
from tidemill.ports import Cloud, Cluster, Ledger
from tidemill.provision.karpenter.reconciler import KarpenterReconciler, karpenter_pools
from tidemill.provision.launch_template import missing_fields
from tidemill.provision.provisioned_cloud import ProvisionedCloud, Reconcilers
from tidemill.spec import Spec
from tidemill.spec.compute_pool import Provisioner

log = structlog.stdlib.get_logger("tidemill.controller")

# In a busy cluster there are several ticks a second, and each would list all instances: a second of CPU for 2,000.
INSTANCES_KEPT = timedelta(seconds=5)


class Engines:
    """Makes an engine for a version of the documents. The connections stay."""

    def __init__(
        self, aws: Aws, api: KubeApi, clock: MappedClock, cluster: KubeCluster, ledger: Ledger, metrics: Metrics,
        wakes: Wakes, *, dry_run: bool, once: bool, buys: bool = True, shadow: ShadowReporter | None = None,
        refused_pools: Callable[[], tuple[tuple[str, str], ...]] = lambda: (),
    ) -> None:  # fmt: skip
        """`shadow`: it is told what the engine's view assumes; needs `dry_run`. `refused_pools`: as the engine's."""
        self._aws, self._api, self._clock, self._cluster = aws, api, clock, cluster
        self._ledger, self._metrics, self._wakes = ledger, metrics, wakes
        self._dry_run, self._once, self._buys, self._shadow = dry_run, once, buys, shadow
        self._refused_pools = refused_pools

    def engine_of(self, spec: Spec, go_on: Callable[[], bool]) -> Engine:
        dry = self._dry_run
        _warn_of_pools_that_cannot_launch(spec)
        ledger: Ledger = ReadOnlyLedger(self._ledger) if dry else self._ledger
        provisioned = cloud_of(self._aws, spec, self._clock, ledger, INSTANCES_KEPT)
        cloud: Cloud = ReadOnlyCloud(provisioned) if dry else provisioned
        cluster: Cluster = ReadOnlyCluster(self._cluster) if dry else self._cluster
        if self._shadow is not None:
            assumed = self._shadow.assumed = Assumptions(spec)
            cloud = ShadowCloud(provisioned, self._cluster, assumed)
            ledger = ShadowLedger(self._ledger, provisioned, self._clock, assumed)
            cluster = ShadowCluster(self._cluster, assumed)
        return Engine(
            spec, self._clock, cloud, cluster, ledger,
            executor=self._executor(), reconciler=None if dry else self._reconcilers(spec, provisioned),
            go_on=go_on, now_s=time.monotonic,
            lacks=partial(self._lacks, spec), documents_since=self._clock.now(), buys=self._buys,
            refused_pools=self._refused_pools,
        )  # fmt: skip

    def _lacks(self, spec: Spec, pool: str) -> tuple[str, ...]:
        who = dict(self._refused_pools()).get(pool)
        return (*lacks(spec, pool), *((f"{who} acts on its nodes too",) if who else ()))

    def _executor(self) -> PlannerExecutor:
        """One tick waits for its planner; a process that goes on takes the result at a later one."""
        inner: PlannerExecutor = InlineExecutor() if self._once else ThreadExecutor()
        return TimedExecutor(inner, self._metrics.planner_took, self._wakes)

    def _reconcilers(self, spec: Spec, provisioned: ProvisionedCloud) -> Reconcilers:
        if not karpenter_pools(spec):
            return Reconcilers(provisioned.reconciler)
        karpenter = KarpenterReconciler(spec, CustomObjects(self._api), provisioned.ends)
        return Reconcilers(provisioned.reconciler, karpenter)


def _warn_of_pools_that_cannot_launch(spec: Spec) -> None:
    """Told at the start and with every new version of the documents: a block's first hours are paid already."""
    for pool in spec.pools:
        if missing := lacks(spec, pool):
            log.warning(
                "nodes of this pool could never join the cluster: nothing is launched or bought for it",
                pool=pool, why="; ".join(missing),
            )  # fmt: skip


def lacks(spec: Spec, pool: str) -> tuple[str, ...]:
    """What the documents lack before a node of this pool can be launched; Karpenter's nodes are its own business."""
    found = spec.pools.get(pool)
    if found is None or found.spec.provisioner is Provisioner.KARPENTER:
        return ()
    return missing_fields(spec, found)
