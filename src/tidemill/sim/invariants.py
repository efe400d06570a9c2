"""The eleven invariants, checked on the simulator's truth and never on what the engine believes.

Safety ones hold at every instant, the others within a stated bound. A violation stops the run with the seed,
the instant and the objects, so that it can be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tidemill.decide.nodes import deadline_of
from tidemill.decide.overflow import overflow_source
from tidemill.engine import Decide, Tick
from tidemill.sim.cloud import SimCloud
from tidemill.sim.cluster import SimCluster
from tidemill.sim.outcome import Violation
from tidemill.spec import Spec
from tidemill.spec.models import Provisioner
from tidemill.spec.units import format_instant
from tidemill.store.memory import MemoryLedger
from tidemill.world import PurchaseState, Reservation, ReservationState, SourceKind, Verdict

SENTENCES = {
    1: "more instances run on a block than it holds",
    2: "a pool is over its limits",
    3: "money was spent twice, without approval or over a ceiling",
    4: "a pod still runs on a block's node at its deadline",
    5: "a pod was evicted with less than its grace although no deadline forced it",
    6: "the same spec and world gave two different plans",
    7: "an instance of ours never became a node and still runs",
    8: "a gang is neither whole nor absent",
    9: "a service promised zero downtime is below its minimum",
    10: "the plan never becomes empty although nothing new happens",
    11: "something without our owner tag was modified or terminated",
}

# 7: the join limit is 15 minutes; ten more for a throttled API and the termination itself.
ORPHAN_BOUND = timedelta(minutes=25)
# 8: stopping survivors takes their grace, and their replacements a tick.
GANG_BOUND = timedelta(minutes=10)
# 10: this many ticks in a row that did exactly the same, successfully, with nothing else happening.
REPEAT_BOUND = 15
# 6: deciding twice at every tick would double the run; a prime keeps the sample from following a rhythm.
DECIDE_TWICE_EVERY = 37


@dataclass(slots=True)
class Truth:
    """What the checks look at."""

    spec: Spec
    cloud: SimCloud
    cluster: SimCluster
    ledger: MemoryLedger
    now: Callable[[], datetime]
    decide: Decide
    away: list[tuple[datetime, datetime]] = field(default_factory=list)  # when the engine was not there

    def was_away(self, start: datetime, end: datetime) -> bool:
        return any(left < end and start < back for left, back in self.away)

    def present_for(self, since: datetime, until: datetime) -> timedelta:
        """How much of a span the engine was there for."""
        gone = sum((max(timedelta(0), min(until, back) - max(since, left)) for left, back in self.away), timedelta(0))
        return until - since - gone


class Invariants:
    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._cloud_seen: object = None
        self._seen = {"evictions": 0, "purchases": 0, "verdicts": 0, "ended": 0}
        self._broken_gangs: dict[str, datetime] = {}
        self._repeats = 0
        self._last_actions: object = ()
        self._ticks = 0
        self._approvals: dict[str, tuple[Verdict, ...]] = {}
        self._deadlines: dict[str, datetime] = {}

    def check(self, now: datetime) -> Violation | None:
        """After every instant at which anything happened."""
        changed = self._truth.cloud.changes
        rules: list[Callable[[datetime], Iterator[tuple[int, tuple[str, ...]]]]] = [
            self._no_pod_at_deadline, self._grace_kept, self._gangs_whole, self._services_up,
        ]  # fmt: skip
        if changed != self._cloud_seen:
            self._cloud_seen = changed
            rules += [self._blocks_hold, self._limits_hold, self._hands_off]
        if len(self._truth.cloud.purchases) != self._seen["purchases"]:
            rules.append(self._money_held)
        for rule in rules:
            for number, objects in rule(now):
                return Violation(number, now, SENTENCES[number], objects)
        return None

    def check_tick(self, tick: Tick) -> Violation | None:
        """After every tick."""
        self._ticks += 1
        for rule in (self._same_plan, self._settles):
            for number, objects in rule(tick):
                return Violation(number, tick.world.now, SENTENCES[number], objects)
        for number, objects in self._no_orphans(tick.world.now):
            return Violation(number, tick.world.now, SENTENCES[number], objects)
        for number, objects in self._overflow_held(tick.world.now):
            return Violation(number, tick.world.now, SENTENCES[number], objects)
        return None

    # --- 1, 2, 3: capacity and money ---

    def _blocks_hold(self, now: datetime) -> Iterator[tuple[int, tuple[str, ...]]]:
        cloud = self._truth.cloud
        for one in cloud.all_reservations():
            if one.state is ReservationState.ACTIVE and cloud.used(one.id) > one.count:
                yield 1, (one.id, f"{cloud.used(one.id)} of {one.count}")

    def _limits_hold(self, now: datetime) -> Iterator[tuple[int, tuple[str, ...]]]:
        used: dict[str, list[int]] = {}
        types = self._truth.spec.catalog.types
        for life in self._truth.cloud.alive():
            kind = types[life.now.instance_type]
            sums = used.setdefault(life.now.pool, [0, 0, 0, 0])
            for index, amount in enumerate((kind.vcpus * 1000, kind.memory_mib * 2**20, kind.gpus, 1)):
                sums[index] += amount
        for name, sums in used.items():
            pool = self._truth.spec.pools.get(name)
            limits = pool.spec.limits if pool else None
            if limits is None:
                continue
            caps = (limits.cpu, limits.memory, limits.gpus, limits.nodes)
            for word, cap, amount in zip(("cpu", "memory", "gpus", "nodes"), caps, sums, strict=True):
                if cap is not None and amount > cap:
                    yield 2, (name, f"{word} {amount} of {cap}")

    def _money_held(self, now: datetime) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Every purchase AWS made for us has one intent, approved before it was submitted, inside the ceilings."""
        bought = self._truth.cloud.purchases
        self._seen["purchases"] = len(bought)
        platform = self._truth.spec.platform.spec
        intents = {intent.id: intent for intent in self._truth.ledger.purchases()}
        ids = [one.intent_id for one in bought if one.intent_id]
        for one in bought:
            if not one.intent_id:
                continue
            intent = intents.get(one.intent_id)
            approved = intent is not None and (
                (platform.approval.mode == "auto" and one.fee_usd <= platform.approval.auto_max_fee_usd)
                or any(word.approved and word.who != intent.proposer for word in intent.verdicts)
            )
            if not approved or ids.count(one.intent_id) > 1:
                yield 3, (one.intent_id, *one.reservation_ids)
            elif one.fee_usd > platform.budget.per_purchase_usd or (
                intent is not None and one.fee_usd > intent.envelope.max_fee_usd
            ):
                yield 3, (one.intent_id, f"${one.fee_usd:,}")
        month = sum(
            one.fee_usd for one in bought if one.intent_id and (one.at.year, one.at.month) == (now.year, now.month)
        )
        if month > platform.budget.monthly_usd and ids:
            yield 3, (f"${month:,} of fees this month",)

    def _overflow_held(self, now: datetime) -> Iterator[tuple[int, tuple[str, ...]]]:
        for pool in self._truth.spec.pools.values():
            for kind in (SourceKind.SPOT, SourceKind.ON_DEMAND):
                source = overflow_source(pool, kind)
                if source is None:
                    continue
                lives = [
                    life
                    for life in self._truth.cloud.lives.values()
                    if life.now.pool == pool.name and life.now.source.kind is kind
                ]
                rate = sum(life.usd_h for life in lives if life.shutting_down_at is None)
                month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
                spent = sum(
                    life.usd_h * max(0.0, ((life.shutting_down_at or now) - max(month, life.running_at)).total_seconds())
                    for life in lives
                    if life.running_at is not None
                ) / 3600  # fmt: skip
                if rate > (source.max_hourly_usd or 0) + 1e-6 or spent > (source.max_monthly_usd or 0) + 1e-6:
                    yield 3, (pool.name, f"${rate:,.2f}/h, ${spent:,.2f} this month")

    # --- 4, 5: the end ---

    def _no_pod_at_deadline(self, now: datetime) -> Iterator[tuple[int, tuple[str, ...]]]:
        for one in self._truth.cloud.all_reservations():
            if one.kind is not SourceKind.BLOCK or one.state is not ReservationState.ACTIVE or one.end is None:
                continue
            if now < one.end - timedelta(minutes=60):
                continue
            yield from self._check_deadline(one, now)

    def _check_deadline(self, one: Reservation, now: datetime) -> Iterator[tuple[int, tuple[str, ...]]]:
        for life in list(self._truth.cloud.alive()):
            if life.now.source.id != one.id or life.now.owner != self._truth.spec.platform.spec.deployment:
                continue
            deadline = deadline_of(one, Provisioner(life.now.provisioner))
            if deadline is None or now < deadline:
                continue
            # An engine that was away until shortly before cannot have drained in time; it is reported instead.
            if self._truth.was_away(deadline - timedelta(hours=2), deadline):
                continue
            stuck = tuple(pod.full_name for pod in self._truth.cluster.pods_on(life.now.id) if not pod.daemon)
            if stuck:
                yield 4, (one.id, life.now.id, *stuck)

    def _grace_kept(self, now: datetime) -> Iterator[tuple[int, tuple[str, ...]]]:
        cut = self._truth.cluster.cut_short
        for row in cut[self._seen["evictions"] :]:
            deadline = self._deadline_of_node(row.node)
            forced = deadline is not None and now + timedelta(seconds=row.grace_s) >= deadline - timedelta(minutes=2)
            if not (row.forced and forced):
                yield 5, (row.pod, row.node, f"{row.grace_s} s")
        self._seen["evictions"] = len(cut)

    def _deadline_of_node(self, node: str) -> datetime | None:
        for life in self._truth.cloud.lives.values():
            truth = self._truth.cluster.nodes.get(life.now.id)
            if truth is not None and truth.name == node:
                one = self._truth.cloud.reservation(life.now.source.id) if life.now.source.id else None
                ends = [life.now.ends_at, deadline_of(one, Provisioner(life.now.provisioner)) if one else None]
                return min((end for end in ends if end is not None), default=None)
        return None

    # --- 6, 10: plans ---

    def _same_plan(self, tick: Tick) -> Iterator[tuple[int, tuple[str, ...]]]:
        if self._ticks % DECIDE_TWICE_EVERY == 1 and self._truth.decide(self._truth.spec, tick.world) != tick.plan:
            yield 6, (f"tick {self._ticks}",)

    def _settles(self, tick: Tick) -> Iterator[tuple[int, tuple[str, ...]]]:
        succeeded = tick.plan.actions and not any(outcome.error for outcome in tick.outcomes)
        if succeeded and tick.plan.actions == self._last_actions:
            self._repeats += 1
        else:
            self._repeats, self._last_actions = 0, tick.plan.actions
        if self._repeats >= REPEAT_BOUND:
            yield 10, tuple(sorted({type(action).__name__ for action in tick.plan.actions}))

    # --- 7, 8, 9, 11 ---

    def _no_orphans(self, now: datetime) -> Iterator[tuple[int, tuple[str, ...]]]:
        owner = self._truth.spec.platform.spec.deployment
        for life in self._truth.cloud.alive():
            if now - life.now.launched_at < ORPHAN_BOUND or life.now.owner != owner:
                continue
            node = self._truth.cluster.nodes.get(life.now.id)
            if node is not None and node.joined_at is not None:
                continue
            if self._truth.present_for(life.now.launched_at, now) > ORPHAN_BOUND:
                yield 7, (life.now.id,)

    def _gangs_whole(self, now: datetime) -> Iterator[tuple[int, tuple[str, ...]]]:
        pods = self._truth.cluster.pods
        for job in self._truth.cluster.open_gangs():
            members = [pods[uid] for uid in job.members.values() if uid in pods]
            admitted = sum(not pod.gated for pod in members)
            if admitted in (0, job.pods):
                self._broken_gangs.pop(job.name, None)
                continue
            since = self._broken_gangs.setdefault(job.name, now)
            if self._truth.present_for(since, now) > GANG_BOUND + job.terms.grace:
                yield 8, (job.name, f"{admitted} of {job.pods} since {format_instant(since)}")

    def _services_up(self, now: datetime) -> Iterator[tuple[int, tuple[str, ...]]]:
        for service in self._truth.cluster.services.values():
            since = service.short_since
            if since is None or not service.service.zero_downtime:
                continue
            # What died with its hardware was not ours to keep up, and neither is what fell while we were away.
            window = since - timedelta(minutes=30)
            struck = any(kill.workload == service.workload and kill.at >= window for kill in self._truth.cluster.kills)
            if not struck and not self._truth.was_away(window, now):
                yield 9, (service.name, f"{service.ready} ready since {format_instant(since)}")

    def _hands_off(self, now: datetime) -> Iterator[tuple[int, tuple[str, ...]]]:
        owner = self._truth.spec.platform.spec.deployment
        for life in self._truth.cloud.lives.values():
            if life.ended_by == "engine" and life.now.owner != owner:
                yield 11, (life.now.id,)
            node = self._truth.cluster.nodes.get(life.now.id)
            if node is not None and node.draining_since is not None and life.now.owner != owner:
                yield 11, (node.name,)


def still_unknown(ledger: MemoryLedger) -> tuple[str, ...]:
    """Purchases whose outcome nobody knows at the end of a run: a person must look."""
    return tuple(one.id for one in ledger.purchases() if one.state is PurchaseState.UNKNOWN)
