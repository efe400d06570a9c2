"""Who is before whom in line: what is promised already, then priority, then how long it has waited."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from tidemill.decide.context import DecisionContext
from tidemill.decide.placement.queue import QueueItem

# Among equals in priority, whoever has waited longer than one of these goes before whoever has not. Within such a
# class the large go before the small, which is what packs well. Everybody grows older at the same instants.
AGES = (timedelta(minutes=30), timedelta(hours=2), timedelta(hours=8))
BIRTHDAY = timedelta(minutes=30)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def last_birthday(now: datetime) -> datetime:
    return now - (now - _EPOCH) % BIRTHDAY


def birthday_from(due: datetime) -> datetime:
    """The first one at which whoever is due then has reached that age."""
    birthday = last_birthday(due)
    return birthday if birthday == due else birthday + BIRTHDAY


def levels(context: DecisionContext, items: Sequence[QueueItem]) -> list[int]:
    """What is promised already first, then priority, then how long it has waited, in few classes."""
    keys = []
    birthday = last_birthday(context.now)
    old, older, oldest = (birthday - age for age in AGES)
    first: list[datetime | None] = [None] * (len(AGES) + 1)  # of those in each class, who came first
    for item in items:
        came = item.pods[0].created_at
        waited = (came <= old) + (came <= older) + (came <= oldest)
        known = first[waited]
        if known is None or came < known:
            first[waited] = came
        promised, rest_of_gang, priority = item.turn[:3]
        keys.append((promised, rest_of_gang, priority, -waited))
    if len(items) > 1:  # who is alone in line need not grow old
        for eldest, age in zip(first, AGES, strict=False):
            context.wake(birthday_from(eldest + age) if eldest is not None else None)
    order = {key: -number for number, key in enumerate(sorted(set(keys)))}
    return [order[key] for key in keys]
