"""Who in the queue may use which nodes, and who could fit at all: what the packer need not be asked.

Items that differ only in how long they run refuse the same groups, up to the next end that one of them would reach.
So the questions are asked of lanes, and of the few classes in a lane, and seldom of every item.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import End
from tidemill.decide.packer.problem import NodeOption
from tidemill.decide.placement.candidate_nodes import BOOT, Stage
from tidemill.decide.placement.eligibility import barred, pool_refusal, rests_for_gangs
from tidemill.decide.placement.feasibility_filter import CandidateRoom, FeasibilityFilter
from tidemill.decide.placement.launch_options import LaunchOption
from tidemill.decide.placement.queue import Queue
from tidemill.decide.queue_item import POD_START, Lane, QueueItem, expected_run, lasts, useful_until


class LaunchGroup(NamedTuple):
    """Launch options that end together, one of them, and that end."""

    name: str
    launch: LaunchOption
    end: End


class QueueFilter:
    """For one problem. Equal questions are answered once."""

    def __init__(
        self,
        context: DecisionContext,
        room: CandidateRoom,
        launch_groups: Collection[LaunchGroup],
        options: Sequence[NodeOption],
    ) -> None:
        self._context, self._room = context, room
        self._launch_groups, self._options = launch_groups, options
        self._refused: dict[tuple[object, ...], frozenset[str]] = {}
        self._filters: dict[tuple[frozenset[str], tuple[int, ...]], FeasibilityFilter] = {}
        self._stays: dict[tuple[object, ...], list[timedelta]] = {}
        self._sets: dict[frozenset[str], frozenset[str]] = {}
        self._begin = [hold.since for hold in room.holds]  # in order
        turns = (hold.beyond.turn for hold in room.holds if hold.beyond is not None)
        self._last_turn: tuple[object, ...] = max(turns, default=())  # of those for whom room is kept
        longest = (template.pool.spec.max_expected_duration for template in context.templates.values())
        self._accepted_duration = min(longest, default=timedelta.max)  # that every pool accepts as it is

    # --- who may fit ---

    def that_may_fit(self, queue: Queue) -> list[QueueItem]:
        """In the order of the queue. Of items that ask for the same only as many as could fit."""
        by_size: dict[tuple[int, int], list[Lane]] = {}
        for lane in queue.lanes.values():
            if self._could_fit(lane):
                first = lane.items[0]
                by_size.setdefault((id(first.shape), len(first.pods)), []).append(lane)
        found: list[QueueItem] = []
        for lanes in by_size.values():
            if len(lanes) == 1:
                found += self._first_in(lanes[0])
            else:
                together = sorted((item for lane in lanes for item in lane.items), key=attrgetter("turn"))
                found += self._first_of(together)
        found.sort(key=attrgetter("turn"))
        return found

    def _first_in(self, lane: Lane) -> Iterable[QueueItem]:
        """The same as `_first_of` its items, without looking at those who refuse all that has room, and no longer than
        somebody can be found."""
        first, stays = lane.items[0], self._stays_of(lane.items[0])
        shortest, longest = bisect_left(stays, lane.shortest.need), bisect_left(stays, lane.longest.need)
        if not first.alike or (shortest == longest and self._room.holds):
            return self._first_of(lane.items)
        if shortest == longest:
            return lane.items[: self._filter(self.refuses(first), ()).most(first)]
        most: dict[int, int] = {}  # by how many stays are too short
        to_find = below = 0
        for place in range(shortest, longest + 1):
            up_to = lane.count_up_to(stays[place]) if place < len(stays) else len(lane.items)
            if up_to > below:
                one = lane.item_at(below)
                most[place] = self._filter(self.refuses(one), ()).most(one)
                to_find += min(most[place], up_to - below)
            below = up_to
        able = (item for item in lane.items if most[bisect_left(stays, item.need)])
        return islice(self._first_of(able), to_find if not self._room.holds else None)

    def _first_of(self, items: Iterable[QueueItem]) -> Iterator[QueueItem]:
        """Of items with one shape and size, in the order of the queue: those that are not behind as many equal ones as
        could fit. A hold only takes room away: where none is left without it, nobody needs to know of it."""
        ahead: dict[int, int] = {}  # by identity of the filter: items let through
        for item in items:
            refuses = self.refuses(item)
            if not self._filter(refuses, ()).most(item):
                continue
            own = self._filter(refuses, self.holds_for(item))
            count = ahead.get(id(own), 0)
            if count < own.most(item):
                ahead[id(own)] = count + 1
                yield item

    def _could_fit(self, lane: Lane) -> bool:
        """Whether any of its items may fit: what the shortest refuses all refuse, and no hold is in the way of one
        that would not be in the way of the first to be done, were it the first in the queue."""
        shortest = lane.shortest
        holds: tuple[int, ...] = ()
        if self._room.holds:
            holds = self.holds_for(shortest, lane.items[0].turn, lane.first_done)
        return self._filter(self.refuses(shortest), holds).most(shortest) > 0

    def _filter(self, refuses: frozenset[str], holds: tuple[int, ...]) -> FeasibilityFilter:
        known = self._filters.get((refuses, holds))
        if known is None:
            rooms = (
                (group, self._room.of(group, holds))
                for group in self._room.with_nodes
                if self._room.names[id(group)] not in refuses
            )
            allowed = (option for option in self._options if option.group not in refuses)
            known = self._filters[refuses, holds] = FeasibilityFilter(rooms, allowed)
        return known

    # --- which groups an item refuses, and which holds it leaves room for ---

    def refuses(self, item: QueueItem) -> frozenset[str]:
        """Items that differ only in how long they run refuse the same, up to the next end they would reach."""
        if self._says_how_long(item):
            key = (item.standing, bisect_left(self._stays_of(item), item.need))
        else:  # each pool decides how long it is assumed to run
            key = (item.standing, id(item.terms))
        known = self._refused.get(key)
        if known is None:
            known = frozenset(self._refused_groups(item))
            known = self._refused[key] = self._sets.setdefault(known, known)
        return known

    def _says_how_long(self, item: QueueItem) -> bool:
        expected = item.terms.expected
        return expected is not None and expected <= self._accepted_duration

    def _stays_of(self, item: QueueItem) -> list[timedelta]:
        """What divides items like it into those that refuse the same."""
        if not self._says_how_long(item):
            return []
        known = self._stays.get(item.standing)
        if known is None:
            known = self._stays[item.standing] = self._longest_stays(item)
        return known

    def _refused_groups(self, item: QueueItem) -> Iterator[str]:
        context = self._context
        for group in self._room.groups:
            if barred(context, item, group):
                yield self._room.names[id(group)]
        for name, launch, end in self._launch_groups:
            late = not lasts(item, end, launch.pool, context.now + BOOT)
            opted_out = launch.overflow and not item.terms.overflow
            rests = rests_for_gangs(context, item, launch)
            if late or opted_out or rests or pool_refusal(item, launch) is not None:
                yield name

    def _longest_stays(self, item: QueueItem) -> list[timedelta]:
        """How long such an item could stay in each group that ends, in order."""
        now = self._context.now
        ends = [
            (group.end, group.template.pool, now if group.stage is Stage.READY else now + BOOT)
            for group in self._room.groups
            if group.template is not None
        ]
        ends += [(end, launch.pool, now + BOOT) for _, launch, end in self._launch_groups]
        stays = {
            until - start for end, pool, start in ends if (until := useful_until(item, end, pool)) is not None
        }
        return sorted(stays)

    def holds_for(
        self, item: QueueItem, turn: tuple[object, ...] = (), at_least: timedelta = timedelta.max
    ) -> tuple[int, ...]:
        """The holds that an item must leave room for: those that begin before it is done. Or, for all items of its
        lane: of the first `turn`, and if one ran no longer than `at_least`, its load included."""
        holds = self._room.holds
        if not item.gated or not holds:
            return ()
        if not turn and self._says_how_long(item) and item.turn > self._last_turn:
            done = self._context.now + POD_START + item.terms.load + (item.terms.expected or timedelta(0))
            return tuple(range(bisect_left(self._begin, done)))
        numbers = []
        for number, hold in enumerate(holds):
            if hold.beyond is not None and (turn or item.turn) <= hold.beyond.turn:
                continue
            template = hold.group.template
            run = expected_run(item.terms, template.pool if template is not None else None)
            if run is None:
                numbers.append(number)
                continue
            if self._context.now + POD_START + min(at_least, item.terms.load + run) > hold.since:
                numbers.append(number)
        return tuple(numbers)
