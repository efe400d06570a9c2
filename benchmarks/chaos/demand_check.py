"""Whether a sale was needed, and how much of it: what was missing for all windows of its type at that moment.

Errs on the engine's side: windows are not told apart, so what any of them lacks counts for whichever was bought for.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise

from benchmarks.chaos.drawn_run import ULTRASERVER, DrawnRun
from benchmarks.chaos.sales import HeldCapacity, Sale
from tidemill.model.ec2_facts import DAY, LONGEST_BLOCK, SMALLEST_ULTRASERVER, round_up_duration
from tidemill.spec.capacity_plan import CapacityPlan, DemandWindow

# Blocks begin and end on a grid of one day, so each end may lie that far beyond what is needed.


def was_covered(drawn: DrawnRun, sale: Sale, held: list[HeldCapacity]) -> bool:
    """Nothing was missing from this sale's start to the end of the window it was for; without one, to its own end."""
    window = _window(drawn, sale)
    start = sale.start if window is None else max(window.start, sale.start)
    end = sale.end if window is None else window.end
    return not any(lacks for _, _, lacks in _lacking(drawn, sale, held, start, end))


def was_wasteful(drawn: DrawnRun, sale: Sale, held: list[HeldCapacity]) -> bool:
    """Less than half of it, in time and count, was missing; and it was more than EC2's lengths and grid force."""
    bought = (sale.end - sale.start) * sale.count
    useful = timedelta(0)
    for here, there, lacks in _lacking(drawn, sale, held, sale.start, sale.end):
        useful += (there - here) * min(lacks, sale.count)
    return useful * 2 < bought and bought > _forced(drawn, sale, held)


def _forced(drawn: DrawnRun, sale: Sale, held: list[HeldCapacity]) -> timedelta:
    """The smallest block that covers, in one piece, all that its window lacked; a day at each end for the grid."""
    window, plan = _window(drawn, sale), _plan(drawn)
    first, last = (sale.start, sale.end) if window is None else (window.start, window.end)
    gaps = [gap for gap in _lacking(drawn, sale, held, max(first, sale.at), last) if gap[2]]
    if not gaps:
        return timedelta(0)
    span = gaps[-1][1] - gaps[0][0] + plan.spec.overlap + DAY
    count = max(lacks for _, _, lacks in gaps)
    if sale.extends:  # EC2 extends a block as a whole; twice what is missing may be all that is sold
        count = min(sale.count, 2 * count)
    if sale.type_ == ULTRASERVER:
        count = -(-count // SMALLEST_ULTRASERVER) * SMALLEST_ULTRASERVER
    return ((round_up_duration(span) or LONGEST_BLOCK) + DAY) * count


def _lacking(
    drawn: DrawnRun, sale: Sale, held: list[HeldCapacity], start: datetime, end: datetime
) -> Iterator[tuple[datetime, datetime, int]]:
    """From instant to instant, how many instances of the type were missing as far as was known at the sale."""
    windows = [one for one in _plan(drawn).spec.demand if one.instance_type == sale.type_]
    there = [one for one in held if one.type_ == sale.type_ and one.counts_at(sale)]
    turns = {start, end, *(at for one in there for at in (one.start, one.end))}
    turns |= {at for window in windows for at in (window.start, window.end)}
    for here, then in pairwise(sorted(at for at in turns if start <= at <= end)):
        wanted = sum(window.instances for window in windows if window.start <= here < window.end)
        counted = sum(one.count for one in there if one.start <= here < one.end)
        yield here, then, max(0, wanted - counted)


def _plan(drawn: DrawnRun) -> CapacityPlan:
    (plan,) = drawn.spec.plans.values()
    return plan


def _window(drawn: DrawnRun, sale: Sale) -> DemandWindow | None:
    if sale.intent is None:
        return None
    return next(one for one in _plan(drawn).spec.demand if one.name == sale.intent.window)
