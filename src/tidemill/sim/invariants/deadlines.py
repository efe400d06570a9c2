"""4 and 5: every pod is gone before AWS takes its node, and no pod loses grace unless a deadline forces it.

A pod that still runs at the deadline dies with its node at that instant, so both are read from the kubelets' record of
deaths and the cluster's record of shortened deletions.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from tidemill.model.capacity import SourceKind
from tidemill.sim.cloud.instances import InstanceHistory
from tidemill.sim.cluster.kubelet import Kill, Stop
from tidemill.sim.invariants.truth import Findings, Truth

# The engine forces a pod out a minute before its grace would no longer fit: an engine that was there at any
# moment of that minute could have done it. One that was absent for all of it violates nothing.
LAST_SAFE_MINUTE = timedelta(minutes=1)
# A forced deletion gives the grace that is left, less a few seconds for the call.
CALL_TAKES = timedelta(seconds=30)


class Deadlines:
    def __init__(self) -> None:
        self._kills = 0
        self._stops = 0

    def check(self, truth: Truth) -> Findings:
        kills, self._kills = truth.cluster.kills[self._kills :], len(truth.cluster.kills)
        for kill in kills:
            history = truth.history_of_node(kill.node)
            if history is not None:
                yield from _judge_death(truth, kill, history)
        stops, self._stops = truth.cluster.stops[self._stops :], len(truth.cluster.stops)
        for stop in stops:
            row, own = stop.eviction, stop.pod.terms.grace
            if row.grace_s < int(own.total_seconds()) and not _forced_by_deadline(truth, stop):
                yield 5, (row.pod, row.node, f"{row.grace_s} s")


def _judge_death(truth: Truth, kill: Kill, history: InstanceHistory) -> Findings:
    if history.now.owner != truth.owner:
        return
    if history.ended_by in ("engine", ""):  # it ended the node under the pod, or took the node object away
        if not kill.full_grace:
            yield (
                5,
                (kill.pod, kill.node, f"died with its node after {kill.grace_had_s} s of {kill.grace_s} s"),
            )
        return
    deadline = truth.deadline_of(history)
    retired = (
        history.now.source.kind is SourceKind.SPOT or history.ended_by == "hardware"
    )  # too little notice, or none
    if deadline is None or kill.at < deadline or retired:
        return
    last_safe = deadline - timedelta(seconds=kill.grace_s)
    if truth.agents or not truth.absent_throughout(last_safe - LAST_SAFE_MINUTE, last_safe):
        yield 4, (history.now.source.label, history.now.id, kill.pod)


def _forced_by_deadline(truth: Truth, stop: Stop) -> bool:
    """The deadline left no more grace than it got, and nobody could have told it earlier."""
    row, there_since = stop.eviction, stop.pod.bound_at or stop.eviction.at
    history = truth.history_of_node(row.node)
    deadline = truth.deadline_of(history) if history is not None else None
    if not row.forced or deadline is None or history is None:
        return False
    if truth.agents and history.now.ends_at is None and history.now.source.kind is SourceKind.BLOCK:
        return False  # its own agent had asked in time: who cuts that short does so for nothing
    if row.at + timedelta(seconds=row.grace_s) < deadline - CALL_TAKES:
        return False
    last_safe = deadline - stop.pod.terms.grace
    asked_from = last_safe - LAST_SAFE_MINUTE
    known = max(there_since, noticed_at(truth, history) or there_since)
    return known > asked_from or truth.absent_throughout(asked_from, last_safe)


def noticed_at(truth: Truth, history: InstanceHistory) -> datetime | None:
    """When AWS said that it takes this instance; None: it ends with its source, as was always known."""
    if history.now.ends_at is None:
        return None
    told = (
        line.at
        for line in truth.journal.lines
        if line.kind == "instance-ending" and line.about == history.now.id
    )
    return next(told, None)
