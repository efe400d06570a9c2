"""Launch intents: repeat until the outcome is certain, settle when instances are seen, back off from failed sources.

A launch is written down before it is made and its id is the ClientToken, so repeating one is safe and
forgetting one is impossible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.failed_starts import FailedStarts, PoolType, failed_starts
from tidemill.decide.phases import REQUESTED_LIMIT
from tidemill.model.capacity import PREPAID, Source
from tidemill.model.plan import Launch, SettleLaunch
from tidemill.model.purchases import LaunchIntent, LaunchState
from tidemill.model.reasons import LaunchKind, LaunchReason, SettleKind, SettleReason

# A launch call answers within seconds; after this long its answer is taken to be lost.
REPEAT_AFTER = timedelta(seconds=30)
# Failures are counted over this span before the last one; then 30 s, 1, 2, 4, 8 and at most 10 minutes.
FAILURE_SPAN = timedelta(minutes=30)
FIRST_BACKOFF = timedelta(seconds=30)
LONGEST_BACKOFF = timedelta(minutes=10)

# A gang takes all of its nodes or none: where fewer came than were asked for, the others stand idle and are given back.
# So gangs wait before they ask that pool and source again: ten minutes after the first node that came for nothing,
# twice as long after each further one, at most a day.
GANGS_FIRST_REST = timedelta(minutes=10)
GANGS_LONGEST_REST = timedelta(days=1)

# Slots are cleaned for some minutes after an instance, and a block may be some minutes late: before this, paid capacity
# that EC2 does not fill is no trouble.
NOT_FILLED_AFTER = timedelta(minutes=20)

NO_CAPACITY = "no-capacity"  # the label of the error
Spot = tuple[Source, str, str]  # source, instance type, zone: what NoCapacity refers to
PoolSource = tuple[str, Source]


@dataclass(slots=True)
class InFlight:
    """Instances that were asked for and are not seen yet, and which spots are backed off until when."""

    unseen: list[tuple[LaunchIntent, int]] = field(default_factory=list)
    resting: dict[Spot, datetime] = field(default_factory=dict)
    failure: dict[Spot, str] = field(default_factory=dict)  # of those: the label of the last error
    # Sources and types of which a launch failed lately, in whichever zone: until when that is told.
    failed_lately: dict[tuple[Source, str], datetime] = field(default_factory=dict)
    failed_starts: Mapping[PoolType, FailedStarts] = field(default_factory=dict)
    gangs_rest: dict[PoolSource, datetime] = field(default_factory=dict)
    failing: dict[Spot, LaunchIntent] = field(
        default_factory=dict
    )  # the last of those that failed, none came since

    def on(self, source: Source) -> int:
        return sum(count for intent, count in self.unseen if intent.source == source)


def reconcile_launches(context: DecisionContext) -> InFlight:
    in_flight = InFlight()
    failures: dict[Spot, list[tuple[datetime, str]]] = {}
    never_ready: list[LaunchIntent] = []
    last_launch: dict[Source, datetime] = {}
    ids: set[str] = set()
    by_intent: dict[str, list[str]] = {}
    short: dict[PoolSource, list[tuple[datetime, int]]] = {}  # when, and how many came
    if context.world.launches:
        for node in context.world.nodes:
            if node.instance is not None:
                ids.add(node.instance.id)
                by_intent.setdefault(node.instance.intent_id, []).append(node.instance.id)
                source, at = node.instance.source, node.instance.launched_at
                last_launch[source] = max(at, last_launch.get(source, at))
    for intent in context.world.launches:
        spot = (intent.source, intent.instance_type, intent.zone)
        seen = by_intent.get(intent.id, [])
        came: Sequence[str] | None = None  # all that came of one that is over; None: it is not, or all came
        if intent.state is LaunchState.FAILED:
            failures.setdefault(spot, []).append((intent.state_at or intent.written_at, intent.failure))
            _follow_failed(intent, spot, last_launch.get(intent.source), in_flight)
        elif intent.state is LaunchState.NEVER_READY:
            never_ready.append(intent)
        elif intent.state is LaunchState.SHORT:
            came = intent.instance_ids
        elif intent.state is LaunchState.LAUNCHED:
            came = _follow_launched(context, intent, ids, in_flight)
        elif intent.state is LaunchState.ASKED:
            came = _follow_asked(context, intent, seen, in_flight)
        elif intent.state is LaunchState.WRITTEN:
            _follow_written(context, intent, len(seen), in_flight)
        if came is not None:
            at = (intent.state_at or context.now) if intent.state is LaunchState.SHORT else context.now
            failures.setdefault(spot, []).append((at, NO_CAPACITY))
            if came and intent.source.kind not in PREPAID:
                short.setdefault((intent.pool, intent.source), []).append((at, len(came)))
    for spot, failed in failures.items():
        until = _rests_until([at for at, _ in failed])
        lately = max(failed)[0] + FAILURE_SPAN
        if lately > context.now:
            kind = spot[:2]
            in_flight.failed_lately[kind] = max(lately, in_flight.failed_lately.get(kind, lately))
        if until > context.now:
            in_flight.resting[spot], in_flight.failure[spot] = until, max(failed)[1]
    for key, times in short.items():
        until = max(times)[0] + _gangs_rest(sum(count for _, count in times))
        if until > context.now:
            in_flight.gangs_rest[key] = until
    if never_ready:
        templates = context.templates
        failed_nodes = [(one, templates[one.pool]) for one in never_ready if one.pool in templates]
        unseen = [intent for intent, count in in_flight.unseen if count]
        in_flight.failed_starts = failed_starts(failed_nodes, context.views, unseen)
    return in_flight


def _follow_failed(intent: LaunchIntent, spot: Spot, last: datetime | None, in_flight: InFlight) -> None:
    """One that failed before an instance came says nothing of the next."""
    if last is not None and last >= intent.written_at:
        return
    before = in_flight.failing.get(spot)
    if before is None or intent.written_at >= before.written_at:
        in_flight.failing[spot] = intent


def _follow_launched(
    context: DecisionContext, intent: LaunchIntent, ids: set[str], in_flight: InFlight
) -> Sequence[str] | None:
    unseen = sum(instance_id not in ids for instance_id in intent.instance_ids)
    due = (intent.state_at or intent.written_at) + REQUESTED_LIMIT
    if unseen == 0:
        short = intent.instance_ids if len(intent.instance_ids) < intent.count else ()
        context.do(SettleLaunch(intent.id, SettleReason(SettleKind.ALL_SEEN), short=short))
        return short or None
    if context.now >= due:
        context.do(SettleLaunch(intent.id, SettleReason(SettleKind.NEVER_SEEN, unseen)))
    else:
        context.wake(due)
        in_flight.unseen.append((intent, unseen))
    return None


def _follow_asked(
    context: DecisionContext, intent: LaunchIntent, seen: Sequence[str], in_flight: InFlight
) -> Sequence[str] | None:
    """A group keeps trying by itself. Instances it has not launched in time are given up, which counts as a failure of
    the source; the provisioner then lowers the desired size of the group."""
    due = (intent.state_at or intent.written_at) + REQUESTED_LIMIT
    if len(seen) >= intent.count:
        context.do(SettleLaunch(intent.id, SettleReason(SettleKind.ALL_SEEN)))
    elif context.now >= due:
        late = SettleReason(SettleKind.GROUP_LATE, len(seen), intent.count)
        failure, short = ("", tuple(sorted(seen))) if seen else (NO_CAPACITY, ())
        context.do(SettleLaunch(intent.id, late, failure, short))
        return short
    else:
        context.wake(due)
        in_flight.unseen.append((intent, intent.count - len(seen)))
    return None


def _follow_written(context: DecisionContext, intent: LaunchIntent, seen: int, in_flight: InFlight) -> None:
    due = intent.written_at + REQUESTED_LIMIT
    repeat = (intent.state_at or intent.written_at) + REPEAT_AFTER
    if context.now >= due:
        context.do(SettleLaunch(intent.id, SettleReason(SettleKind.TOO_OLD)))
        return
    context.wake(due)
    in_flight.unseen.append((intent, max(0, intent.count - seen)))
    if context.now < repeat:
        context.wake(repeat)
    elif context.world.ledger_ok and context.world.cloud_ok:
        context.do(Launch(intent, LaunchReason(LaunchKind.ANSWER_LOST)))


def _gangs_rest(came: int) -> timedelta:
    return min(GANGS_FIRST_REST * 2.0 ** min(came - 1, 10), GANGS_LONGEST_REST)


def _rests_until(times: list[datetime]) -> datetime:
    """Counted from the last failure and not from now, so that the instant does not move while the engine waits."""
    last = max(times)
    count = sum(last - at <= FAILURE_SPAN for at in times)
    rest = FIRST_BACKOFF * 2.0 ** min(count - 1, 10)
    return last + min(rest, LONGEST_BACKOFF)
