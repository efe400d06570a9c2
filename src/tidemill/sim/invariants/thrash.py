"""14: nodes are not launched and ended again, time after time, without having taken any work.

Counted by pool, of instances that lived for less than an hour and that the engine ended itself. One that failed to
become a node, or whose capacity or money ends soon, is ended rightly.
"""

from __future__ import annotations

from collections import defaultdict, deque
from datetime import datetime, timedelta
from itertools import islice

from tidemill.sim.cloud.instances import InstanceHistory
from tidemill.sim.invariants.money import ends_with_its_money
from tidemill.sim.invariants.truth import Findings, Truth

SPAN = timedelta(hours=1)
# So many, or half of those launched within the hour, or as many as pods started: some nodes come too late for those
# they were meant for, who got a place that came free sooner.
UNUSED_BOUND = 6
# One that is not open by then has failed, and is replaced.
OPENS_WITHIN = timedelta(minutes=12)
# Nodes by the hour are drained before their money is over, earlier than that only where services need time to leave.
MONEY_LASTS = timedelta(minutes=30)


class Thrash:
    def __init__(self) -> None:
        self._seen = 0
        self._alive: dict[str, InstanceHistory] = {}
        self._launched: defaultdict[str, deque[datetime]] = defaultdict(deque)
        self._unused: defaultdict[str, deque[datetime]] = defaultdict(deque)

    def check(self, truth: Truth) -> Findings:
        """Looked at whenever an instance or a reservation changed: then the node of one that ends is still there."""
        now = truth.now()
        for history in islice(truth.cloud.instance_histories.values(), self._seen, None):
            if history.now.owner == truth.owner:
                self._alive[history.now.id] = history
                self._launched[history.now.pool].append(history.now.launched_at)
        self._seen = len(truth.cloud.instance_histories)
        ended = [history for history in self._alive.values() if history.shutting_down_at is not None]
        for history in ended:
            del self._alive[history.now.id]
            if not _ended_unused(truth, history):
                continue
            pool = history.now.pool
            self._unused[pool].append(now)
            for times in (self._unused[pool], self._launched[pool]):
                while times and times[0] < now - SPAN:
                    times.popleft()
            unused, launched = len(self._unused[pool]), len(self._launched[pool])
            if unused > max(UNUSED_BOUND, launched // 2) and unused > truth.pods_started(pool, now - SPAN):
                yield 14, (pool, f"{unused} of {launched} nodes launched and ended unused within the hour")


def _ended_unused(truth: Truth, history: InstanceHistory) -> bool:
    """By the engine, soon after its launch, and no pod but daemons was ever there."""
    assert history.shutting_down_at is not None
    age = history.shutting_down_at - history.now.launched_at
    if history.ended_by != "engine" or age > SPAN or history.now.ends_at is not None:
        return False
    if truth.soon_over(history.now.id, truth.now()) or ends_with_its_money(truth, history, MONEY_LASTS):
        return False
    kube = next((node for node in truth.cluster.view().nodes if node.instance_id == history.now.id), None)
    if kube is None or kube.opened_at is None:
        return age < OPENS_WITHIN and (kube is None or kube.check != "failed")
    return kube.last_pod_event_at is None and kube.check != "failed"
