"""15: what a person was told agrees with what happened, within its tolerance.

Three kinds of promises are kept and judged when their time comes. The forecast of a hand-over (`tidemill handover`) as
it stands six hours before a block must be empty: whether a service falls below its minimum, until when, and by when it
has left. The reason of a waiting pod (`tidemill why`): a node that is on its way comes. Alerts about blocks: what they
name is AWS's. A forecast is for a course of things without faults: where one came in between, or
other pods took the room, nothing is judged; nor where it counted on nodes by the hour, if EC2 has them, and EC2 had
none.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tidemill.engine.loop import Tick
from tidemill.model.alerts import AlertKind
from tidemill.model.capacity import PREPAID, ReservationState, SourceKind
from tidemill.model.changes import changed
from tidemill.model.plan import Unmet
from tidemill.model.reasons import HoldKind
from tidemill.report.handover import ServiceMove, hand_over
from tidemill.sim.cloud.block_end import block_deadline
from tidemill.sim.cluster.workloads import ServiceTruth
from tidemill.sim.invariants.truth import Findings, Truth
from tidemill.spec.units import format_instant

# A hand-over is forecast from measured or declared times; boots and loads vary by minutes.
FORECAST_BEFORE = timedelta(hours=6)
LOOK_EVERY = timedelta(minutes=5)
TRY_AGAIN = timedelta(minutes=30)  # where no service is on the block yet
FORECAST_TOLERANCE = timedelta(minutes=15)
# From a launch to an open node: 15 minutes to join, as many to register and pass its check, the rest for one more try.
NODE_COMES_WITHIN = timedelta(minutes=45)
_ON_ITS_WAY = (HoldKind.LAUNCHING, HoldKind.NODE_JOINS, HoldKind.NODE_REGISTERS, HoldKind.NODE_IS_CHECKED)


@dataclass(frozen=True, slots=True)
class _Forecast:
    made_at: datetime
    block: str
    block_end: datetime
    deadline: datetime
    move: ServiceMove

    @property
    def judged_at(self) -> datetime:
        """When all of it must have come true."""
        move, ends = self.move, [self.deadline]
        if move.moved_by is not None:
            ends.append(move.moved_by)
        if move.short_from is not None and move.short_s is not None:
            ends.append(move.short_from + timedelta(seconds=move.short_s))
        return max(ends) + FORECAST_TOLERANCE


class Promises:
    def __init__(self) -> None:
        self._forecast_of: set[tuple[str, datetime]] = set()
        self._tried_at: dict[str, datetime] = {}
        self._looked_at = datetime.min.replace(tzinfo=UTC)
        self._forecasts: list[_Forecast] = []
        self._moved: list[_Forecast] = []  # those of which a service must have left by a certain time
        self._unmet: tuple[Unmet, ...] = ()  # of the last plan
        self._on_its_way: dict[str, tuple[Unmet, datetime]] = {}  # what a pod was told, and since when
        self._alerts = 0  # how many were judged, in the order in which they were first raised

    def check(self, truth: Truth, tick: Tick) -> Findings:
        self._forecast(truth, tick)
        yield from self._judge_forecasts(truth)
        yield from self._judge_waits(truth, tick)
        yield from self._judge_alerts(truth)

    # --- hand-overs ---------------------------------------------------------------------------------

    def _forecast(self, truth: Truth, tick: Tick) -> None:
        now = tick.world.now
        if now < self._looked_at + LOOK_EVERY:
            return
        self._looked_at = now
        if not tick.world.workloads:  # nothing to hand over
            return
        known = {reservation.id for reservation in tick.world.reservations}
        for block in truth.cloud.all_reservations():
            if (
                block.kind is not SourceKind.BLOCK
                or block.state is not ReservationState.ACTIVE
                or block.end is None
            ):
                continue
            pool = truth.spec.pools.get(block.pool)
            deadline = block_deadline(block, [pool.spec.provisioner.value] if pool else [])
            if deadline is None or block.owner != truth.owner or block.id not in known:
                continue
            if (block.id, block.end) in self._forecast_of or not deadline - FORECAST_BEFORE <= now < deadline:
                continue
            if now < self._tried_at.get(block.id, now - TRY_AGAIN) + TRY_AGAIN:
                continue
            self._tried_at[block.id] = now
            for move in hand_over(truth.spec, tick.world, block.id).services:
                self._forecast_of.add((block.id, block.end))
                made = _Forecast(now, block.id, block.end, deadline, move)
                self._forecasts.append(made)
                if move.moved_by is not None:
                    self._moved.append(made)

    def _judge_forecasts(self, truth: Truth) -> Findings:
        now = truth.now()
        for made in [
            one for one in self._moved if one.move.moved_by and now >= one.move.moved_by + FORECAST_TOLERANCE
        ]:
            self._moved.remove(made)
            if (service := _undisturbed(truth, made)) is not None and (
                left := _still_there(truth, made, service)
            ):
                assert made.move.moved_by is not None
                by = format_instant(made.move.moved_by)
                told = f"was to have left {made.block} by {by}: {left} replicas are there"
                yield 15, (made.move.service, told)
        for made in [one for one in self._forecasts if now >= one.judged_at]:
            self._forecasts.remove(made)
            service = _undisturbed(truth, made)
            if service is not None and (why := _wrong(made, service, now)):
                yield 15, (made.move.service, f"hand-over from {made.block}: {why}")

    # --- pods that wait -----------------------------------------------------------------------------

    def _judge_waits(self, truth: Truth, tick: Tick) -> Findings:
        """What was said of a pod at the last tick, in the very same object, is noted already; time passes for all."""
        gone, said = changed(self._unmet, tick.plan.unmet)
        self._unmet = tick.plan.unmet
        before = {unmet.pod: self._on_its_way.pop(unmet.pod, None) for unmet in gone}
        for unmet in said:
            if unmet.reason.kind in _ON_ITS_WAY:
                known = before.get(unmet.pod)
                told_again = known is not None and _told(known[0]) == _told(unmet)
                since = known[1] if known is not None and told_again else tick.world.now
                self._on_its_way[unmet.pod] = (unmet, since)
        for unmet, since in self._on_its_way.values():
            if truth.able_for(since, tick.world.now) > NODE_COMES_WITHIN and not truth.faults_since(since):
                yield (
                    15,
                    (
                        unmet.name,
                        f"{unmet.reason.kind.value} {unmet.reason.name} since {format_instant(since)}",
                    ),
                )

    # --- alerts -------------------------------------------------------------------------------------

    def _judge_alerts(self, truth: Truth) -> Findings:
        """Each once, at the tick that raised it: an engine that ticks for a year has thousands."""
        raised = truth.ledger.alerts.first_raised(self._alerts)
        self._alerts += len(raised)
        for record in raised:
            alert, facts = record.alert, dict(record.alert.facts)
            block = truth.cloud.reservation(facts.get("block", "").partition(",")[0])
            if block is None:
                continue
            if alert.kind is AlertKind.EXTENSION_CLOSING and block.end is not None:
                if facts["block ends"] != format_instant(block.end) and record.raised_at == truth.now():
                    yield (
                        15,
                        (
                            alert.key,
                            f"says that it ends {facts['block ends']}; AWS: {format_instant(block.end)}",
                        ),
                    )
            elif (
                alert.kind is AlertKind.PAYMENT_FAILED and block.state is not ReservationState.PAYMENT_FAILED
            ):
                yield 15, (alert.key, f"{block.id} is {block.state.value}")
            elif alert.kind is AlertKind.SHORT_DELIVERY and block.count >= truth.cloud.sale(block.id)[1]:
                yield 15, (alert.key, f"{block.id} has all of its {block.count} instances")


def _told(unmet: Unmet) -> tuple[HoldKind, str]:
    return unmet.reason.kind, unmet.reason.name


def _undisturbed(truth: Truth, made: _Forecast) -> ServiceTruth | None:
    """The service it was about, if nothing came in between that a forecast cannot know."""
    now, block = truth.now(), truth.cloud.reservation(made.block)
    service = next(
        (one for one in truth.cluster.services.values() if one.workload == made.move.service), None
    )
    if service is None or service.stopped is not None or block is None or block.end != made.block_end:
        return None
    if truth.able_for(made.made_at, now) < now - made.made_at or truth.faults_since(made.made_at):
        return None
    if made.move.bridged and _ec2_had_none(truth, made.made_at):
        return None
    others = any(
        pod.node and not pod.daemon and pod.workload != service.workload
        for pod in truth.cluster.pods.values()
    )
    return None if others or _jobs_came(truth, made.made_at) else service


def _jobs_came(truth: Truth, since: datetime) -> bool:
    """They may be over by now, and have used up the money by the hour that a bridge was to be paid with."""
    services = {one.workload for service in truth.cluster.services.values() for one in service.sets}
    return any(
        run.since >= since and run.workload not in services for run in truth.cluster.pod_runs(truth.now())
    )


def _ec2_had_none(truth: Truth, since: datetime) -> bool:
    return any(
        refused.at >= since and refused.intent.source.kind not in PREPAID
        for refused in reversed(truth.cloud.refused_launches)
    )


def _still_there(truth: Truth, made: _Forecast, service: ServiceTruth) -> int:
    nodes = {node.name for node in truth.cluster.nodes.values() if node.source == made.block}
    return sum(
        pod.node in nodes and pod.workload == service.workload and pod.deleting_until is None
        for pod in truth.cluster.pods.values()
    )


def _wrong(made: _Forecast, service: ServiceTruth, now: datetime) -> str:
    """What of it did not come true; empty: nothing."""
    move, down = made.move, [span for span in service.down(now) if span[1] > made.made_at]
    if not move.short and not move.minimum:
        return ""  # it has no minimum: nothing was said of how many stay
    if not move.short:
        return f"was to keep {move.minimum}, and was below from {format_instant(down[0][0])}" if down else ""
    if move.short_s is None or move.short_from is None:
        return ""
    again = move.short_from + timedelta(seconds=move.short_s)
    late = [over for _, over in down if over > again + FORECAST_TOLERANCE]
    return (
        f"was to be up again at {format_instant(again)}, and was at {format_instant(late[0])}" if late else ""
    )
