"""Why a pod waits, and the earliest instant at which it could run (PE-13).

The question is asked of every pool; the pool that comes closest gives the answer, which is kept for all pods like it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain, repeat

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import End
from tidemill.decide.placement.candidate_nodes import BOOT, Candidates
from tidemill.decide.placement.launch_options import end_of_option
from tidemill.decide.placement.pool_explanation import Explanation, coming, end_of, explain_pool
from tidemill.decide.placement.queue import Queue
from tidemill.decide.pool_templates import PoolTemplate
from tidemill.decide.queue_item import Lane, QueueItem, time_needed, useful_until
from tidemill.model.capacity import PREPAID
from tidemill.model.plan import Unmet
from tidemill.model.reasons import HoldKind, HoldReason

# An end, the starts before it, and whether the time between them shrinks as time passes.
_Met = tuple[End, tuple[datetime, ...], bool]


@dataclass(frozen=True, slots=True)
class _Known:
    """An answer, for whom it stands (by how long they need), and up to which need for sources that are there now."""

    shortest: timedelta
    longest: timedelta
    passing: timedelta | None
    answer: Explanation
    reason: HoldReason


class _Reasons:
    """Equal reasons are one object from decision to decision: what a pod is told is then compared by identity."""

    def __init__(self) -> None:
        self._known: dict[HoldReason, HoldReason] = {}

    def interned(self, reason: HoldReason) -> HoldReason:
        if len(self._known) > 10_000:
            self._known.clear()
        return self._known.setdefault(reason, reason)


class Explainer:
    """One answer serves every item of a kind for which the same sources last long enough."""

    def __init__(self, context: DecisionContext, candidates: Candidates) -> None:
        self._context, self._candidates = context, candidates
        self._known: dict[tuple[object, ...], list[_Known]] = {}
        self._pairs: list[tuple[PoolTemplate, set[_Met]]] | None = None
        self._reasons = context.memory.of(_Reasons)
        self._with_need: dict[tuple[int, timedelta], HoldReason] = {}  # by identity of the shared reason

    def explain(self, queue: Queue, placed: set[QueueItem]) -> None:
        """Of every item that found no place and is not pinned to one."""
        told: dict[QueueItem, tuple[Unmet, ...]] = {}
        for lane in queue.lanes.values():
            items = lane.items
            if placed and not placed.isdisjoint(items):
                items = [item for item in items if item not in placed]
            if items and not items[0].pinned_to:
                self._tell(lane, items)
                told.update(lane.told)
        for item, (since, source) in self._candidates.promised.items():
            if item in told:
                told[item] = self._kept(item, told[item], since, source)
        for item in placed:
            told.pop(item, None)
        self._context.explained = chain.from_iterable(map(told.get, queue.items, repeat(())))

    def _tell(self, lane: Lane, items: list[QueueItem]) -> None:
        """If one answer serves all of them, those who were told it before need not be told again."""
        known = self._recall(items[0]) or self._work_out(items[0])
        one_for_all = known.shortest < lane.shortest.need and lane.longest.need <= known.longest
        if not one_for_all:
            lane.answer = None
            for item in items:
                lane.told[item] = self._told(item, self._recall(item) or self._work_out(item))
            return
        answer = (known.answer.code, known.reason, known.answer.earliest, known.answer.own_need)
        if lane.answer != answer:
            lane.answer, lane.told = answer, {}
        for item in [item for item in items if item not in lane.told]:
            lane.told[item] = self._told(item, known)
        longest = lane.longest.need if items is lane.items else max(item.need for item in items)
        self._wake(known, longest)

    def _wake(self, known: _Known, need: timedelta) -> None:
        """As time passes sources last less long: one that would just do is too short a second after this."""
        if known.passing is not None:
            self._context.wake(self._context.now + (known.passing - need) + timedelta(seconds=1))

    def _told(self, item: QueueItem, known: _Known) -> tuple[Unmet, ...]:
        answer = known.answer
        self._wake(known, item.need)
        reason = self._with_own_need(known.reason, item.need) if answer.own_need else known.reason
        return tuple(self._context.unmet_of(pod, answer.code, reason, answer.earliest) for pod in item.pods)

    def _kept(
        self, item: QueueItem, told: tuple[Unmet, ...], since: datetime, source: str
    ) -> tuple[Unmet, ...]:
        """Nodes are kept for it: that is what it waits for."""
        reason = HoldReason(HoldKind.KEPT_FOR_IT, name=source, at=since)
        return tuple(
            self._context.unmet_of(pod, one.code, reason, min(since, one.earliest or since))
            for pod, one in zip(item.pods, told, strict=True)
        )

    def _with_own_need(self, shared: HoldReason, need: timedelta) -> HoldReason:
        known = self._with_need.get((id(shared), need))
        if known is None:
            known = self._reasons.interned(replace(shared, need=need))
            self._with_need[(id(shared), need)] = known
        return known

    def _recall(self, item: QueueItem) -> _Known | None:
        for known in self._known.get(item.kind, ()):
            if known.shortest < item.need <= known.longest:
                return known
        return None

    def _work_out(self, item: QueueItem) -> _Known:
        answers = [
            explain_pool(self._context, item, template, self._candidates)
            for template in self._context.templates.values()
        ]
        best = max(answers, key=lambda answer: answer.closeness, default=None)
        if best is None:
            best = Explanation(0, "impossible", HoldReason(HoldKind.NO_POOL))
        less, more, passing = self._slack(item)
        need = item.need
        until = None if passing is None else need + passing
        known = _Known(need - less, need + more, until, best, self._reasons.interned(best.reason))
        self._known.setdefault(item.kind, []).append(known)
        return known

    def _slack(self, item: QueueItem) -> tuple[timedelta, timedelta, timedelta | None]:
        """By how much less and more time an item could ask for and still meet the same sources that last.

        And by how much more it could until the next of those that are there, and last less long as time passes.
        """
        less = more = timedelta(days=365)
        passing: timedelta | None = None
        for template, ends in self._ends():
            needed = time_needed(item.terms, template.pool)
            for end, starts, passes in ends:
                until = useful_until(item, end, template.pool)
                for start in starts if until is not None else ():
                    assert until is not None
                    spare = until - start - needed
                    if spare < timedelta(0):
                        less = min(less, -spare)
                        continue
                    more = min(more, spare)
                    if passes and (passing is None or spare < passing):
                        passing = spare
        return less, more, passing

    def _ends(self) -> list[tuple[PoolTemplate, set[_Met]]]:
        """For each pool: every end that a pod could meet there, with its possible starts."""
        if self._pairs is None:
            self._pairs = [
                (template, self._ends_in(template)) for template in self._context.templates.values()
            ]
        return self._pairs

    def _ends_in(self, template: PoolTemplate) -> set[_Met]:
        context, candidates, now = self._context, self._candidates, self._context.now
        # Money that nobody spends runs out ever later: its end moves on with the time. While it is spent, its figures
        # move, and nothing that was decided by them is used again.
        mine = (group for group in candidates.groups.values() if group.template is template)
        here = {(group.end, group.source.kind in PREPAID) for group in mine}
        options = [option for option in candidates.launch_options if option.template is template]
        here |= {(end_of_option(context, option), option.hourly_cap is None) for option in options}
        met = {(end, (now, now + BOOT), passes) for end, passes in here}
        return met | {
            (end_of(reservation, template.pool), (reservation.start + BOOT,), False)
            for reservation in coming(context, template)
        }
