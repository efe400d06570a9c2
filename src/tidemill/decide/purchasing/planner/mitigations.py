"""The four ways to hand over from block A to block B without downtime, and what each costs.

Scheduled blocks lie on the 11:30 UTC grid, so two of them overlap by 0 or by whole days. Zero downtime is a day more of
the successor, a day's extension of the predecessor, a block that starts now, or a bridge on demand. The planner prices
them over a whole calendar, a hand-over for one service; both use `price`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from tidemill.model.capacity import Reservation
from tidemill.model.ec2_facts import DAY, round_up_duration
from tidemill.model.offers import Offer
from tidemill.model.planner_reasons import MitigationNote, MitigationNoteKind

MitigationKind = Literal[
    "a-day-more-of-b", "a-days-extension-of-a", "a-start-now-block", "an-on-demand-bridge"
]
# US dollars, the id of the offer (empty: there is none), and what would be done.
Option = tuple[float, str, MitigationNote]


@dataclass(frozen=True, slots=True)
class Mitigation:
    """One way to zero downtime. `usd` is None where there is none; `offer` is empty where the price is estimated
    from a rate and EC2 has not offered it."""

    means: MitigationKind
    usd: float | None
    offer: str
    note: MitigationNote | None  # None: nothing is known


def price(
    kind: MitigationKind,
    options: Iterable[Option] = (),
    *,
    estimate: tuple[float | None, MitigationNote | None] = (None, None),
    impossible: MitigationNote | None = None,
) -> Mitigation:
    """The cheapest option; without one the estimate; `impossible` says why there can be neither."""
    if impossible is not None:
        return Mitigation(kind, None, "", impossible)
    best = min(options, key=lambda option: option[:2], default=None)
    if best is None:
        return Mitigation(kind, estimate[0], "", estimate[1])
    return Mitigation(kind, *best)


@dataclass(frozen=True, slots=True)
class MoreTime:
    """An offer that lets a block last longer, and what it costs more."""

    usd: float
    offer: str
    by: timedelta


def long_enough(offers: Iterable[MoreTime], days: int) -> list[MoreTime]:
    """Offers of so many days more. None, where all are longer than the shortest that EC2 sells for it: they would be
    the price of weeks."""
    enough = [one for one in offers if one.by >= days * DAY]
    shortest = round_up_duration(days * DAY)
    return enough if any(one.by == shortest for one in enough) else []


def at_the_nearest_rate(
    offers: Sequence[MoreTime], days: int
) -> tuple[float | None, MitigationNote | None] | None:
    """So many days at the rate of the extension that is nearest in length; None: EC2 showed none."""
    wanted = days * DAY
    nearest = min(
        (one for one in offers if one.by > timedelta(0)),
        key=lambda one: (abs(one.by - wanted), one.usd),
        default=None,
    )
    if nearest is None:
        return None
    note = MitigationNote(
        MitigationNoteKind.RATE_OF_EXTENSION, offer=nearest.offer, days=round(nearest.by / DAY)
    )
    return nearest.usd * (wanted / nearest.by), note


def cheapest_first(mitigations: Iterable[Mitigation]) -> tuple[Mitigation, ...]:
    """Those that do not exist come last."""
    return tuple(sorted(mitigations, key=lambda one: (one.usd is None, one.usd or 0.0)))


def block_usd_day(block: Offer | Reservation) -> float:
    """What a day of it costs, at the rate it was or would be bought at."""
    assert block.end is not None
    return block.fee_usd * (DAY / (block.end - block.start))


def bridge_usd(usd_h: float, count: int, gap: timedelta, warm_up: timedelta) -> float:
    """The bridge is warm when A stops, and so is paid for while it warms up."""
    return usd_h * count * ((gap + warm_up) / timedelta(hours=1))
