"""Why a pod waits, in one sentence, and the earliest instant at which it could run (PE-13).

The question is asked of every pool; the pool that comes closest gives the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidemill.decide.context import DecisionContext, End
from tidemill.decide.nodes import SHORTEST_LEAD, deadline_of
from tidemill.decide.placement.candidates import BOOT, Rooms, Stage
from tidemill.decide.placement.eligibility import may_use, refusal
from tidemill.decide.placement.launch_options import end_of_opening, usable_reservations
from tidemill.decide.placement.queue import Item, lasts, time_needed, useful_until
from tidemill.decide.pool_templates import PoolTemplate
from tidemill.decide.scheduler_rules import admits, tolerates
from tidemill.model.capacity import Reservation, ReservationState, Source, SourceKind
from tidemill.model.plan import UnmetCode
from tidemill.model.pods import Pod
from tidemill.model.resources import Amounts, Resources
from tidemill.spec import names
from tidemill.spec.compute_pool import ComputePool
from tidemill.spec.units import format_cpu, format_duration, format_instant, format_memory

_ALIVE = (ReservationState.ACTIVE, ReservationState.SCHEDULED, ReservationState.PAYMENT_PENDING)
_NEED = "{need}"  # filled in for each pod: the answer is shared, its own time is not


@dataclass(frozen=True, slots=True)
class Answer:
    closeness: int  # how near the pool came to serving it
    code: UnmetCode
    sentence: str
    earliest: datetime | None = None
    timed: bool = False  # the sentence has a place for its own time


_Met = tuple[datetime, End, bool]  # a start, an end, and whether the time between them shrinks as time passes


@dataclass(frozen=True, slots=True)
class _Known:
    """An answer, for whom it stands (by how long they need), and up to which need for sources that are there now."""

    shortest: timedelta
    longest: timedelta
    passing: timedelta | None
    answer: Answer


class Explainer:
    """One answer serves every item of a kind for which the same sources last long enough."""

    def __init__(self, context: DecisionContext, found: Rooms) -> None:
        self._draft, self._found = context, found
        self._known: dict[tuple[object, ...], list[_Known]] = {}
        self._pairs: list[tuple[PoolTemplate, set[_Met]]] | None = None

    def explain(self, item: Item) -> None:
        known = self._recall(item) or self._work_out(item)
        answer = known.answer
        if known.passing is not None:
            # As time passes sources last less long: one that would just do is too short a second after this.
            self._draft.wake(self._draft.now + (known.passing - item.need) + timedelta(seconds=1))
        sentence = answer.sentence
        if answer.timed:
            sentence = sentence.replace(_NEED, format_duration(item.need))
        earliest = answer.earliest
        promised = self._found.promised.get(id(item))
        if promised is not None:
            since, source = promised
            sentence = (
                f"nodes of {source} are kept for it; the last of them is free about {format_instant(since)}"
            )
            earliest = since if earliest is None else min(earliest, since)
        for pod in item.pods:
            self._draft.hold(pod, answer.code, sentence, earliest)

    def _recall(self, item: Item) -> _Known | None:
        for known in self._known.get(item.kind, ()):
            if known.shortest < item.need <= known.longest:
                return known
        return None

    def _work_out(self, item: Item) -> _Known:
        answers = [_ask(self._draft, item, one, self._found) for one in self._draft.templates.values()]
        best = max(answers, key=lambda answer: answer.closeness, default=None)
        if best is None:
            best = Answer(0, "impossible", "there is no compute pool")
        less, more, passing = self._slack(item)
        need = item.need
        known = _Known(need - less, need + more, None if passing is None else need + passing, best)
        self._known.setdefault(item.kind, []).append(known)
        return known

    def _slack(self, item: Item) -> tuple[timedelta, timedelta, timedelta | None]:
        """By how much less and more time an item could ask for and still meet the same sources that last.

        And by how much more it could until the next of those that are there, and last less long as time passes.
        """
        less = more = timedelta(days=365)
        passing: timedelta | None = None
        for template, ends in self._ends():
            needed = time_needed(item.terms, template.pool)
            for start, end, passes in ends:
                until = useful_until(item, end, template.pool)
                if until is not None:
                    spare = until - start - needed
                    if spare < timedelta(0):
                        less = min(less, -spare)
                        continue
                    more = min(more, spare)
                    if passes and (passing is None or spare < passing):
                        passing = spare
        return less, more, passing

    def _ends(self) -> list[tuple[PoolTemplate, set[_Met]]]:
        """For each pool: every possible start with an end that a pod could meet there."""
        if self._pairs is None:
            self._pairs = [(one, self._ends_in(one)) for one in self._draft.templates.values()]
        return self._pairs

    def _ends_in(self, template: PoolTemplate) -> set[_Met]:
        context, found, now = self._draft, self._found, self._draft.now
        here = {(group.end, True) for group in found.groups.values() if group.template is template}
        # Money that nobody spends runs out ever later: its end moves on with the time.
        mine = [one for one in found.openings if one.template is template]
        here |= {(end_of_opening(context, one), one.purse is None) for one in mine}
        met = {(start, end, passes) for end, passes in here for start in (now, now + BOOT)}
        return met | {
            (one.start + BOOT, _end_of(one, template.pool), False) for one in _coming(context, template)
        }


def _ask(context: DecisionContext, item: Item, template: PoolTemplate, found: Rooms) -> Answer:
    pool = template.pool
    misfit = _known_misfit(context, item, template)
    if misfit is not None:
        return misfit
    if pool.spec.limits is None:
        return Answer(5, "limit", f"pool {pool.name} has no limits, and without limits it launches nothing")
    if item.gang is not None and (most := _most_at_once(context, template)) < len(item.pods):
        limited = pool.spec.limits.nodes is not None and most == pool.spec.limits.nodes
        what = f"the limits of pool {pool.name} allow" if limited else f"a source of pool {pool.name} has"
        sentence = f"its gang needs {len(item.pods)} nodes at once, more than the {most:g} {what}"
        return Answer(32, "limit" if limited else "gang", sentence)
    coming = _next_reservation(context, item, template)
    earliest = coming.start + BOOT if coming is not None else None
    later = f"; block {coming.id} starts {format_instant(coming.start)}" if coming is not None else ""
    words = {refusal(context, item, one) for one in found.openings if one.template is template}
    answer = _closest(context, item, pool, words, found)
    return replace(answer, sentence=answer.sentence + later, earliest=answer.earliest or earliest)


def _closest(
    context: DecisionContext, item: Item, pool: ComputePool, words: set[str | None], found: Rooms
) -> Answer:
    if None in words and item.gang is not None:
        return _gang_too_large(item, pool, found)
    if None in words and item.shape.sociable:
        return Answer(
            27,
            "held",
            f"its rules about other pods (affinity, spread, ports) leave no place in pool {pool.name}",
        )
    if None in words and item.terms.overflow and any(one.purse for one in found.openings if one.pool is pool):
        sentence = (
            f"the money for overflow of pool {pool.name} would not last until it and what runs there are done"
        )
        return Answer(29, "budget", sentence)
    if _too_large(context, item, pool, words, found):
        daemons = tuple(pair for pair in found.daemons[pool.name].items() if pair[0] != names.PODS)
        asked = f"it asks for {_asks(item.pods[0])}, more than a node of pool {pool.name} has"
        return Answer(33, "impossible", f"{asked} beside its daemon pods, which take {_amounts(daemons)}")
    if "limit" in words:
        return Answer(30, "limit", f"pool {pool.name} has reached its limits ({_limits(pool)})")
    if "resting" in words:
        until = min(
            one.resting_until for one in found.openings if one.pool is pool and one.resting_until is not None
        )
        return Answer(
            29, "no-capacity",
            f"EC2 has no capacity for pool {pool.name} now; next try {format_instant(until)}", until,
        )  # fmt: skip
    if "money" in words and item.terms.overflow:
        return Answer(29, "budget", f"the overflow caps or the budget of pool {pool.name} are used up")
    kept = _kept_from(context, item, pool, found)
    if kept is not None:
        whom = f"a gang that has waited longer, from {format_instant(kept)}"
        return Answer(28, "held", f"the free nodes of pool {pool.name} are kept for {whom}")
    if _busy(context, item, pool, found):
        if not _free_too_short(item, pool, found):
            return Answer(28, "no-capacity", f"every node pool {pool.name} can have is taken")
        need, timed = _need(item, pool)
        sentence = f"it needs {need}; what is free in pool {pool.name} ends sooner, and what lasts that long is taken"
        return Answer(28, "held", sentence, timed=timed)
    if "time" in words or _too_short(item, pool, found):
        need, timed = _need(item, pool)
        return Answer(
            26, "held", f"it needs {need} and nothing in pool {pool.name} lasts that long", timed=timed
        )
    if "full" in words:
        return Answer(28, "no-capacity", f"every node pool {pool.name} can have is taken")
    if "opt-in" in words:
        return Answer(25, "held", f"pool {pool.name} has only overflow capacity now, and it did not opt in")
    if not (context.world.ledger_ok and context.world.cloud_ok):
        return Answer(24, "held", "AWS or the ledger cannot be reached, so nothing is launched")
    return Answer(20, "no-capacity", f"pool {pool.name} has no active capacity")


def _too_large(
    context: DecisionContext, item: Item, pool: ComputePool, words: set[str | None], found: Rooms
) -> bool:
    """It fits no node the pool could launch once its daemon pods run there, and none that it has."""
    if "size" not in words or words - {"size", "selector", "namespace", "pinned"}:
        return False
    daemons = found.daemons[pool.name]
    kinds = {
        view.facts.kind.name: view.facts.kind
        for view in context.views
        if view.pool is pool and view.facts.kind
    }
    return not any(kind.free_beside(daemons).fits(item.shape.requests) for kind in kinds.values())


def _most_at_once(context: DecisionContext, template: PoolTemplate) -> float:
    """The most nodes one source of the pool could ever give at one time, its limits included."""
    pool, limits = template.pool, template.pool.spec.limits
    most = 0.0
    for wanted in pool.spec.sources:
        if wanted.type in ("block", "odcr"):
            counts = [one.count for one in usable_reservations(context, pool, wanted) if one.state in _ALIVE]
            most = max(most, max(counts, default=0))
        else:
            most = float("inf")
    capped = limits.nodes if limits is not None and limits.nodes is not None else float("inf")
    return min(most, capped)


def _gang_too_large(item: Item, pool: ComputePool, found: Rooms) -> Answer:
    """One of its pods would find a node, all of them together do not."""
    count = len(item.pods)
    kinds = [one for one in found.openings if one.pool is pool]
    if not any(one.allowance.allows(one.kind, count) for one in kinds):
        sentence = f"its gang needs {count} nodes at once, more than the limits of pool {pool.name} leave"
        return Answer(31, "limit", f"{sentence} ({_limits(pool)})")
    return Answer(28, "gang", f"no source of pool {pool.name} has the {count} nodes its gang needs at once")


def _known_misfit(context: DecisionContext, item: Item, template: PoolTemplate) -> Answer | None:
    """It follows from documents and the shape alone, so it is worked out once."""
    known, key = context.memory.misfits, (template.pool.name, id(item.shape), item.pods[0].namespace)
    if key not in known:
        if len(known) > 10_000:
            known.clear()
        known[key] = (
            _misfit(context, item, template),
            item.shape,
        )  # kept alive, so that its identity stays its own
    return known[key][0]


def _misfit(context: DecisionContext, item: Item, template: PoolTemplate) -> Answer | None:
    """The pool could never run it, whatever capacity it had."""
    pod, pool, shape = item.pods[0], template.pool, item.shape
    if not pool.spec.serves(pod.namespace):
        return Answer(1, "impossible", f"pool {pool.name} does not serve namespace {pod.namespace}")
    for taint in template.taints:
        if taint.effect != "PreferNoSchedule" and not tolerates(shape.tolerations, taint):
            return Answer(2, "impossible", f"it does not tolerate the taint {taint.key} of pool {pool.name}")
    source = Source(SourceKind.ON_DEMAND)
    zones = sorted(context.spec.platform.spec.subnets) or [""]
    labelled = [
        kind
        for kind in template.kinds.values()
        if any(admits(shape, template.labels(source, kind, zone), template.taints) for zone in zones)
    ]
    if not labelled:
        wanted = ", ".join(f"{key}={value}" for key, value in shape.node_selector)
        return Answer(0, "impossible", f"no pool has nodes with the labels it selects ({wanted})")
    if not any(Resources(kind.allocatable).fits(shape.requests) for kind in labelled):
        return Answer(
            3, "impossible", f"it asks for {_asks(pod)}, more than any node of pool {pool.name} has"
        )
    return None


def _coming(context: DecisionContext, template: PoolTemplate) -> list[Reservation]:
    """Reservations the pool may use that have not started."""
    return [
        one
        for wanted in template.pool.spec.sources
        if wanted.type in ("block", "odcr")
        for one in usable_reservations(context, template.pool, wanted)
        if one.state in (ReservationState.SCHEDULED, ReservationState.PAYMENT_PENDING)
        and one.instance_type in template.kinds
    ]


def _next_reservation(context: DecisionContext, item: Item, template: PoolTemplate) -> Reservation | None:
    """The first reservation still to start that would last long enough for it."""
    pool = template.pool
    good = [
        one
        for one in _coming(context, template)
        if one.count >= len(item.pods) and lasts(item, _end_of(one, pool), pool, one.start + BOOT)
    ]
    return min(good, key=lambda one: (one.start, one.id), default=None)


def _end_of(one: Reservation, pool: ComputePool) -> End:
    deadline = deadline_of(one, pool.spec.provisioner)
    return End(deadline, deadline - SHORTEST_LEAD if deadline else None)


def _busy(context: DecisionContext, item: Item, pool: ComputePool, found: Rooms) -> bool:
    """Some room would do for it, if it were free."""
    return any(
        group.template is not None and group.template.pool is pool and may_use(context, item, group)
        for group in found.groups.values()
    )


def _kept_from(context: DecisionContext, item: Item, pool: ComputePool, found: Rooms) -> datetime | None:
    """From when room that would do for it is promised to a gang."""
    return min(
        (
            room.claimed_from
            for group in found.groups.values()
            if group.template is not None and group.template.pool is pool and may_use(context, item, group)
            for room in group.rooms
            if room.claimed_by is not None
            and room.claimed_from is not None
            and room.free.fits(item.shape.requests)
        ),
        default=None,
    )


def _need(item: Item, pool: ComputePool) -> tuple[str, bool]:
    """How long it is taken to need, and whether that is its own word, to be filled in for each."""
    needed = time_needed(item.terms, pool)
    own = needed == time_needed(item.terms, None) or item.terms.expected is None
    return (_NEED, True) if own else (format_duration(needed), False)


def _free_too_short(item: Item, pool: ComputePool, found: Rooms) -> bool:
    """Ready room is free that would suit it but for the time."""
    return item.gated and any(
        group.stage is Stage.READY
        and group.template is not None
        and group.template.pool is pool
        and admits(item.shape, group.labels, group.taints)
        and (item.terms.overflow or not group.overflow)
        and any(room.free.fits(item.shape.requests) for room in group.rooms)
        for group in found.groups.values()
    )


def _too_short(item: Item, pool: ComputePool, found: Rooms) -> bool:
    """There is room that would suit it but for the time."""
    return any(
        group.template is not None
        and group.template.pool is pool
        and admits(item.shape, group.labels, group.taints)
        and (item.terms.overflow or not group.overflow)
        for group in found.groups.values()
    )


def _limits(pool: ComputePool) -> str:
    limits = pool.spec.limits
    assert limits is not None
    written = limits.model_dump(by_alias=True, exclude_none=True)
    return ", ".join(f"{name} {value}" for name, value in written.items())


def _asks(pod: Pod) -> str:
    return _amounts(pod.shape.requests)


def _amounts(amounts: Amounts) -> str:
    words = {"cpu": format_cpu, "memory": format_memory}
    return ", ".join(f"{words.get(name, str)(value)} {name}" for name, value in amounts if value)
