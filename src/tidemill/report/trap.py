"""A trap, and what the rules that find them may look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from tidemill.catalog import Catalog
from tidemill.model.capacity import LIVE_STATES, Reservation
from tidemill.report.instance_endings import by_reservation
from tidemill.report.survey import ScalingGroup, Survey

# Not over, and not failed.


@dataclass(frozen=True, slots=True)
class Trap:
    """Something that will go wrong, and what to do about it. `code` is stable."""

    code: str
    about: str  # a reservation or a group
    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class Scene:
    survey: Survey
    catalog: Catalog

    @property
    def now(self) -> datetime:
        return self.survey.at

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        return self.survey.reservations or ()

    def aimed(self) -> Iterator[tuple[ScalingGroup, Reservation]]:
        """Every group with every reservation that it launches into and that is still to be used."""
        groups = by_reservation(self.survey.groups)
        for reservation in self.reservations:
            if reservation.state in LIVE_STATES:
                for group in groups.get(reservation.id, ()):
                    yield group, reservation


def written(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M}"
