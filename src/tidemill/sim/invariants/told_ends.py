"""20: whoever runs on a node that ends has been told when; and so has the node, where an agent goes by it. A node that
is closed for its end is opened again when the end has moved.

The annotation `tidemill.dev/ends-at` is all that a pod, or an agent without an engine, knows of its deadline. Money
that runs out is our own end and moves all the time: nothing is judged there.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from tidemill.model.capacity import PREPAID
from tidemill.sim.cloud.instances import InstanceHistory
from tidemill.sim.invariants.truth import Findings, Truth
from tidemill.spec.units import format_instant

LOOK_EVERY = timedelta(minutes=30)
# An end that moved by less is not told again; a little more for the minutes of a tick.
MOVED = timedelta(minutes=3)
# Told at the next tick; twice a resync and a throttled API.
TOLD_BOUND = timedelta(minutes=25)
# The drain for the new end begins hours before it where services are slow to move.
FAR = timedelta(hours=12)


class ToldEnds:
    """Since when somebody does not know an end.

    What was right at the last look stays right until the account, the node or a pod on it changes: so only the others
    are judged again, and those that were wrong.
    """

    def __init__(self) -> None:
        self._looked_at: datetime | None = None
        self._wrong_since: dict[str, datetime] = {}
        self._wrong_on: set[str] = set()  # instances
        self._as_of: object = None  # the account
        self._seen = 0  # so many changes of nodes

    def check(self, truth: Truth) -> Findings:
        now = truth.now()
        if self._looked_at is not None and now < self._looked_at + LOOK_EVERY:
            return
        self._looked_at, before, self._wrong_since = now, self._wrong_since, {}
        for history in self._to_judge(truth):
            if truth.keeps_old_end(history):
                continue
            if history.now.source.kind not in PREPAID and history.now.ends_at is None:
                continue
            deadline = truth.deadline_of(history)
            if deadline is None or deadline <= now:
                continue
            for about, told in [
                *_told(truth, history.now.id),
                *_closed_for(truth, history.now.id, deadline, now),
            ]:
                if told is not None and abs(told - deadline) <= MOVED:
                    continue
                since = self._wrong_since[about] = before.get(about, now)
                self._wrong_on.add(history.now.id)
                if truth.able_for(since, now) > TOLD_BOUND:
                    says = format_instant(told) if told is not None else "nothing"
                    yield 20, (about, f"was told {says}, and ends {format_instant(deadline)}")

    def _to_judge(self, truth: Truth) -> list[InstanceHistory]:
        touched, as_of = truth.cluster.touched, (truth.cloud.changes, truth.agents)
        wrong_on, self._wrong_on = self._wrong_on, set()
        names, self._seen = set(touched[self._seen :]), len(touched)
        if as_of != self._as_of:
            self._as_of = as_of
            return list(truth.ours())
        nodes = (truth.cluster.node_truth(name) for name in names)
        due = wrong_on | {node.instance_id for node in nodes if node is not None}
        return [history for history in truth.ours() if history.now.id in due]


def _closed_for(
    truth: Truth, instance_id: str, deadline: datetime, now: datetime
) -> list[tuple[str, datetime | None]]:
    """A node that takes no pods because of an end, where that is not its end any more and the new one is far."""
    node = truth.cluster.nodes.get(instance_id)
    reason = node.drain_reason if node is not None and node.draining_since is not None else None
    if node is None or reason is None or not reason.is_end or reason.at is None:
        return []
    far = reason.at < deadline and deadline - now > FAR
    return [(f"{node.name}, which is closed,", reason.at)] if far else []


def _told(truth: Truth, instance_id: str) -> list[tuple[str, datetime | None]]:
    """Those who should know, by name, and what they were told."""
    node = truth.cluster.nodes.get(instance_id)
    kube = truth.cluster.kube_node(node.name) if node is not None else None
    if kube is None or not kube.ready:
        return []
    pods = truth.cluster.pods_on(kube.name)
    told = [
        (pod.full_name, pod.ends_at)
        for pod in pods
        if not pod.daemon and pod.started_at is not None and pod.deleting_until is None
    ]
    return [*told, (kube.name, kube.ends_at)] if truth.agents else told
