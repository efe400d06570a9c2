"""What a rehearsal cost: all capacity it paid for, with the pods that ran on it, and the same hours on demand.

From the simulator's truth: what AWS billed, from the second it did to the second it stopped, and what every pod held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from tidemill.catalog import InstanceType
from tidemill.model.capacity import DELIVERED_STATES, UNPAID_STATES, Reservation, SourceKind
from tidemill.report.costs import Costs, Paid, Use, costs
from tidemill.sim.cloud.instances import InstanceHistory
from tidemill.sim.cluster.api_server import PodRun
from tidemill.sim.scenario.outcome import BlockRow, OnDemandEquivalent
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec.compute_pool import matching_types

_HOUR = timedelta(hours=1)


def rehearsal_costs(rehearsal: Rehearsal, end: datetime) -> Costs:
    return costs(_Spent(rehearsal, end).capacity())


class _Spent:
    def __init__(self, rehearsal: Rehearsal, end: datetime) -> None:
        self._rehearsal, self._end = rehearsal, end
        self._types = rehearsal.spec.catalog.types
        self._ran: dict[str, list[PodRun]] = {}  # by name of the node
        for run in rehearsal.cluster.pod_runs(end):
            self._ran.setdefault(run.node, []).append(run)
        self._on: dict[str, list[InstanceHistory]] = {}
        for history in rehearsal.cloud.instance_histories.values():
            self._on.setdefault(history.now.source.id, []).append(history)

    def capacity(self) -> Iterator[Paid]:
        owner = self._rehearsal.spec.platform.spec.deployment
        ends = {}
        for reservation in self._rehearsal.cloud.all_reservations():
            if reservation.kind is SourceKind.ODCR:
                ends[reservation.id] = reservation.end
                per_hour = reservation.count * (self._types[reservation.instance_type].on_demand_usd_h or 0.0)
                yield self._whole(reservation, per_hour, *self._span(reservation), 0.0)
            elif reservation.owner == owner and reservation.state not in UNPAID_STATES:
                yield self._block(reservation)
        for history in self._rehearsal.cloud.instance_histories.values():
            if history.by_the_hour and history.running_at is not None:
                # One that outlived its reservation is on the bill from the reservation's end.
                since = max(history.running_at, ends.get(history.now.source.id) or history.running_at)
                yield self._instance(history, since)

    def _block(self, block: Reservation) -> Paid:
        assert block.end is not None
        per_hour = block.fee_usd / ((block.end - block.start) / _HOUR)
        since, until = self._span(block)
        inside = max(0.0, (until - since) / _HOUR) * per_hour
        return self._whole(block, per_hour, since, until, block.fee_usd - inside)

    def _span(self, reservation: Reservation) -> tuple[datetime, datetime]:
        since = max(reservation.start, self._rehearsal.start)
        return since, max(
            since, min(reservation.end or self._end, self._end)
        ) if reservation.state in DELIVERED_STATES else since

    def _whole(
        self,
        reservation: Reservation,
        usd_per_hour: float,
        since: datetime,
        until: datetime,
        outside_usd: float,
    ) -> Paid:
        kind = self._types[reservation.instance_type]
        listed = None if kind.on_demand_usd_h is None else kind.on_demand_usd_h * reservation.count
        uses = tuple(
            use
            for history in self._on.get(reservation.id, ())
            for use in self._uses(history, kind, reservation.count)
        )
        return Paid(
            self._owner(reservation),
            reservation.count * kind.gpus,
            usd_per_hour,
            since,
            until,
            listed,
            outside_usd,
            uses,
        )

    def _owner(self, reservation: Reservation) -> str:
        """Without a pool of its own: the only pool that could use it; empty where several could."""
        if reservation.pool:
            return reservation.pool
        may = [
            pool.name
            for pool in self._rehearsal.spec.pools.values()
            if any(source.type == reservation.kind.value for source in pool.spec.sources)
            and self._types[reservation.instance_type]
            in matching_types(self._rehearsal.spec.catalog, pool.spec.requirements)
        ]
        return may[0] if len(may) == 1 else ""

    def _instance(self, history: InstanceHistory, since: datetime) -> Paid:
        kind = self._types[history.now.instance_type]
        until = min(history.shutting_down_at or self._end, self._end)
        return Paid(
            history.now.pool, kind.gpus, history.usd_h, since, until, kind.on_demand_usd_h,
            uses=tuple(self._uses(history, kind, 1)),
        )  # fmt: skip

    def _uses(self, history: InstanceHistory, kind: InstanceType, count: int) -> Iterator[Use]:
        """On a GPU node a pod is charged for its GPUs: a pod without any costs nothing there."""
        whole = (kind.gpus or kind.vcpus * 1000) * count
        node = self._rehearsal.cluster.nodes.get(history.now.id)
        for ran in self._ran.get(node.name, ()) if node is not None else ():
            held = ran.gpus if kind.gpus else ran.cpu_milli
            if held:
                yield Use(
                    history.now.pool, ran.team, ran.workload, ran.gpus, held / whole, ran.since, ran.until
                )


def on_demand_equivalent(blocks: Iterable[BlockRow], start: datetime, end: datetime) -> OnDemandEquivalent:
    """What the hours inside the rehearsal would have cost on demand: delivered, used, and the fees for them.

    Blocks of a type nobody knows the price of are left out of every sum, and named.
    """
    paid = [block for block in blocks if block.state in DELIVERED_STATES]
    priced = [block for block in paid if block.delivered_on_demand_usd is not None]
    return OnDemandEquivalent(
        delivered_usd=round(sum(block.delivered_on_demand_usd or 0.0 for block in priced), 2),
        used_usd=round(sum(block.used_on_demand_usd or 0.0 for block in priced), 2),
        fees_usd=round(sum(_fee_of_hours_gone(block, start, end) for block in priced), 2),
        unpriced=tuple(sorted({block.type for block in paid if block.delivered_on_demand_usd is None})),
    )


def _fee_of_hours_gone(block: BlockRow, start: datetime, end: datetime) -> float:
    gone = max(timedelta(0), min(block.end, end) - max(block.start, start))
    return block.fee_usd * (gone / (block.end - block.start))
