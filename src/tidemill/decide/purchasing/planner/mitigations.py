"""The four ways to hand over from block A to block B without downtime, and what each costs.

Scheduled blocks lie on the 11:30 UTC grid, so two of them overlap by 0 or by whole days. Zero downtime is a day more of
the successor, a day's extension of the predecessor, a block that starts now, or a bridge on demand. The planner prices
them over a whole calendar, a hand-over for one service; both use `price`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from tidemill.model.capacity import Reservation
from tidemill.model.ec2_facts import DAY
from tidemill.model.offers import Offer
from tidemill.model.planner_reasons import MitigationNote

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
