"""1, 2 and 11: blocks hold what runs on them, pools keep their limits, instances of others are left alone."""

from __future__ import annotations

from datetime import datetime

from tidemill.catalog import InstanceType
from tidemill.model.capacity import ReservationState
from tidemill.sim.cloud.instances import InstanceHistory
from tidemill.sim.invariants.truth import Findings, Truth
from tidemill.spec.compute_pool import Allowance, ComputePool, Limits

NO_LIMITS_GIVEN = Limits(cpu=0, memory=0, gpus=0, nodes=0)  # such a pool launches nothing at all
_MANY = 10**6


def check_blocks(truth: Truth) -> Findings:
    cloud = truth.cloud
    for reservation in cloud.all_reservations():
        if reservation.state is ReservationState.ACTIVE and cloud.used(reservation.id) > reservation.count:
            yield 1, (reservation.id, f"{cloud.used(reservation.id)} of {reservation.count}")


def check_limits(truth: Truth) -> Findings:
    """Instances on their way are counted from the moment AWS accepted the call, seen by the engine or not."""
    used: dict[str, list[int]] = {}
    for history in truth.ours():
        kind = truth.spec.catalog.types[history.now.instance_type]
        sums = used.setdefault(history.now.pool, [0, 0, 0, 0])
        for index, amount in enumerate((kind.vcpus * 1000, kind.memory_mib * 2**20, kind.gpus, 1)):
            sums[index] += amount
    for name, sums in used.items():
        pool = truth.spec.pools.get(name)
        if pool is None:
            continue
        limits = pool.spec.limits or NO_LIMITS_GIVEN
        caps = (limits.cpu, limits.memory, limits.gpus, limits.nodes)
        for word, cap, amount in zip(("cpu", "memory", "gpus", "nodes"), caps, sums, strict=True):
            if cap is not None and amount > cap:
                yield 2, (name, f"{word} {amount} of {cap}")


def nodes_left(truth: Truth, pool: ComputePool, kind: InstanceType, since: datetime) -> int:
    """How many more of a type the limits of a pool have allowed all the time since then."""
    left, owner = Allowance.of(pool.spec.limits or NO_LIMITS_GIVEN), truth.owner
    for history in truth.cloud.instance_histories.values():
        if history.now.owner != owner or history.now.pool != pool.name:
            continue
        if history.shutting_down_at is None or history.shutting_down_at > since:
            left.take(truth.spec.catalog.types[history.now.instance_type])
    return int(min(left.most(kind), _MANY))


class ForeignInstances:
    """Remembers every instance without our tag while it lives, to see who ended it."""

    def __init__(self) -> None:
        self._known: dict[str, InstanceHistory] = {}

    def check(self, truth: Truth) -> Findings:
        for history in truth.cloud.alive():
            if history.now.owner != truth.owner:
                self._known[history.now.id] = history
            elif history.now.source.id:
                reservation = truth.cloud.reservation(history.now.source.id)
                if reservation is not None and reservation.owner != truth.owner:
                    yield 11, (history.now.id, f"runs on {reservation.id}, which is not ours")
        for history in self._known.values():
            node = truth.cluster.nodes.get(history.now.id)
            if history.ended_by == "engine" or (node is not None and node.draining_since is not None):
                yield 11, (history.now.id,)
