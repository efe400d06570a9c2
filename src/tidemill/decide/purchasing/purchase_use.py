"""How much of an open purchase would be used, should others have covered its window meanwhile; and when time alone may
change the answer.

A plan is kept until the instant it names: what follows from the clock must be named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.decide.purchasing.coverage import MAX_OVERSIZE
from tidemill.decide.purchasing.window_coverage import coverage_changes_at, missing_instances, window_named
from tidemill.model.capacity import Reservation
from tidemill.model.ec2_facts import DAY, LEGAL_DURATIONS, LONGEST_BLOCK, round_up_duration
from tidemill.model.purchases import PurchaseIntent
from tidemill.spec import Spec


@dataclass(frozen=True, slots=True)
class _Use:
    """What would be used of a purchase, in instances times hours."""

    used: timedelta
    wanted: timedelta  # all of it
    least: timedelta  # the least that is sold for the same
    rate: int  # so many times as fast as time passes, less would be used
    spare: timedelta  # when so much time has passed, less is sold for it

    @property
    def is_little(self) -> bool:
        return self.used * 2 < self.wanted and self.wanted > self.least

    @property
    def changes_in(self) -> timedelta | None:
        """In how long it may have become little; None: not by waiting."""
        if not self.rate:
            return None
        if self.used * 2 >= self.wanted:
            return (self.used - self.wanted / 2) / self.rate + timedelta(seconds=1)
        return self.spare


def _use(
    spec: Spec, reservations: Iterable[Reservation], intent: PurchaseIntent, now: datetime
) -> _Use | None:
    plan = spec.plans.get(intent.plan)
    window = window_named(plan, intent.window)
    if plan is None or window is None:
        return None
    steps, bound = missing_instances(spec, reservations, intent.pool, window, now), intent.envelope
    if not steps:
        return None  # covered altogether, which `still_missing` says
    count = max(step.amount for step in steps)
    kind = spec.catalog.types.get(bound.instance_type)
    if intent.extends or (kind is not None and kind.ultraserver):  # sold as a whole
        count = min(bound.count, MAX_OVERSIZE * count)
    span = steps[-1].end - steps[0].start + plan.spec.overlap + DAY
    sold = round_up_duration(span) or LONGEST_BLOCK
    shorter = max((length for length in LEGAL_DURATIONS if length < span), default=timedelta(0))
    return _Use(
        used=sum(((step.end - step.start) * min(step.amount, bound.count) for step in steps), timedelta(0)),
        wanted=bound.duration * bound.count,
        least=(sold + DAY) * count,
        rate=min(steps[0].amount, bound.count) if steps[0].start <= now else 0,
        spare=span - shorter,
    )


def is_mostly_covered(
    spec: Spec, reservations: Iterable[Reservation], intent: PurchaseIntent, now: datetime
) -> bool:
    """Somebody covered most of its window meanwhile: less than half of it would be used, and less is sold.

    Errs on the side of buying: a day at each end is EC2's grid, and a block is extended as a whole.
    """
    use = _use(spec, reservations, intent, now)
    return use is not None and use.is_little


def missing_changes_at(
    spec: Spec, reservations: Iterable[Reservation], intent: PurchaseIntent, now: datetime
) -> Iterator[datetime]:
    """When `still_missing` and `is_mostly_covered` may answer differently of the same blocks."""
    held = list(reservations)
    plan = spec.plans.get(intent.plan)
    window = window_named(plan, intent.window)
    if window is not None:
        yield from coverage_changes_at(spec, held, intent.pool, window)
    elif plan is not None and plan.spec.calendar is not None:
        yield from (block.end for block in held if block.end is not None)
    use = _use(spec, held, intent, now)
    if use is not None and use.changes_in is not None:
        yield now + use.changes_in
