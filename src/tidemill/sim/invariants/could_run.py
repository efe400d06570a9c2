"""15, of a pod that waits: the instant from which it could run, as `tidemill why` names it, comes true.

It is no promise that the pod runs then: others may come first. But an instant that has passed must not be named, and
once the block that was named is there, the pod runs, or somebody else has the room. Where a fault came in between, or
the room may be kept for the replicas of a service, nothing is judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tidemill.engine.loop import Tick
from tidemill.model.capacity import ReservationState
from tidemill.model.plan import Unmet
from tidemill.sim.invariants.truth import Findings, Truth
from tidemill.spec.units import format_instant

# From the start of its block to an open node, one more try included: as long as any node that is said to come may take.
RUNS_WITHIN = timedelta(minutes=45)
LOOK_EVERY = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class _Told:
    at: datetime  # the last time
    earliest: datetime
    start: datetime  # of the block
    count: int


class CouldRun:
    def __init__(self) -> None:
        self._told: dict[tuple[str, str], _Told] = {}
        self._looked_at = datetime.min.replace(tzinfo=UTC)

    def check(self, truth: Truth, tick: Tick) -> Findings:
        now = tick.world.now
        if now < self._looked_at + LOOK_EVERY:
            return
        self._looked_at = now
        before, self._told = self._told, {}
        waiting: dict[str, Unmet] = {}
        for unmet in tick.plan.unmet:
            waiting[unmet.pod] = unmet
            if unmet.earliest is None:
                continue
            if unmet.earliest < now:
                yield 15, (unmet.name, f"could run from {format_instant(unmet.earliest)}, which is past")
            block = truth.cloud.reservation(unmet.reason.next_block)
            if block is not None:
                self._told[unmet.pod, block.id] = _Told(now, unmet.earliest, block.start, block.count)
        for (pod, block_id), told in before.items():
            # What was not said again before the block began was taken back in time.
            if pod not in waiting or (pod, block_id) in self._told or now < told.start:
                continue
            if now < told.earliest + RUNS_WITHIN:
                self._told[pod, block_id] = told
            elif _has_room(truth, pod, block_id, told, now):
                since = format_instant(told.earliest)
                yield (
                    15,
                    (waiting[pod].name, f"could run from {since} on {block_id}, which has room, and waits"),
                )


def _has_room(truth: Truth, uid: str, block_id: str, told: _Told, now: datetime) -> bool:
    """For all of its gang; and not for replicas that may come."""
    block, pod = truth.cloud.reservation(block_id), truth.cluster.pods.get(uid)
    if pod is None or block is None or block.state is not ReservationState.ACTIVE or block.count < told.count:
        return False
    if truth.able_for(told.at, now) < now - told.at or truth.faults_since(told.at):
        return False
    if any(not other.daemon and not other.of_job for other in truth.cluster.pods.values()):
        return False
    taken = {other.node for other in truth.cluster.pods.values() if other.node and not other.daemon}
    empty = sum(
        node.source == block_id and node.gone_at is None and node.name not in taken
        for node in truth.cluster.nodes.values()
    )
    free = block.count - truth.cloud.used(block_id) + empty
    return free >= (pod.gang.size if pod.gang is not None else 1)
