"""21: a node that is paid by the hour and has no work is given back, soon after `consolidateAfter`.

Silent where the pool says otherwise (`Never`, disruption budgets), where a pod waits that the node could take or a
gang waits at all, and for Karpenter's nodes, which Karpenter gives back.
"""

from __future__ import annotations

from datetime import timedelta

from tidemill.model.nodes import INSTANCE_UP_STATES
from tidemill.sim.invariants.idle_nodes import replicas_by_source, waiting_items
from tidemill.sim.invariants.money import HOURLY
from tidemill.sim.invariants.truth import Findings, Truth
from tidemill.spec.compute_pool import Provisioner
from tidemill.spec.units import format_instant

# A resync is ten minutes; for a tick, a throttled API and work that was about to come.
GIVEN_BACK_WITHIN = timedelta(minutes=30)


class HourlyNodes:
    def __init__(self) -> None:
        self._as_of: object = None  # the account
        self._there_are_some = False

    def check(self, truth: Truth) -> Findings:
        now, owner = truth.now(), truth.owner
        if truth.cloud.changes != self._as_of:
            self._as_of = truth.cloud.changes
            self._there_are_some = any(one.now.source.kind in HOURLY for one in truth.cloud.alive())
        if not self._there_are_some:
            return
        for kube in truth.cluster.without_work():
            if kube.opened_at is None or kube.draining_since is not None or not kube.instance_id:
                continue
            history = truth.cloud.instance_histories[kube.instance_id]
            pool = truth.spec.pools.get(history.now.pool)
            if pool is None or history.now.owner != owner or history.now.source.kind not in HOURLY:
                continue
            rules = pool.spec.disruption
            if rules.consolidation_policy == "Never" or rules.budgets:
                continue
            karpenters = history.now.provisioner == Provisioner.KARPENTER.value
            if karpenters or history.now.state not in INSTANCE_UP_STATES:
                continue
            since = max(kube.opened_at, kube.last_pod_event_at or kube.opened_at)
            late = truth.able_for(since, now) > rules.consolidate_after + GIVEN_BACK_WITHIN
            if late and not _may_be_needed(truth, kube.name):
                yield 21, (kube.name, pool.name, f"without work since {format_instant(since)}")


def _may_be_needed(truth: Truth, node: str) -> bool:
    """By a pod that waits, or by a service on prepaid capacity, which may end."""
    for items in waiting_items(truth):
        if len(items[0]) > 1 or truth.cluster.fitting(items[0][0], [node]):
            return True
    return any(truth.cloud.reservation(label) is not None for label in replicas_by_source(truth))
