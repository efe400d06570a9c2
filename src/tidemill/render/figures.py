"""How figures are written for people: money, hours, percentages, durations and instants.

The same for the terminal and the pages. Nothing depends on the locale, the time zone or the clock of the machine.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

# strftime's %b and %a follow the locale of the process; a report must not.
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
NOTHING = "–"


def usd(amount: float) -> str:
    """Whole dollars; cents only below $100."""
    sign = "-" if amount < 0 else ""
    return f"{sign}${abs(amount):,.2f}" if 0 < abs(amount) < 100 else f"{sign}${abs(amount):,.0f}"


def hours(amount: float) -> str:
    """One decimal below 100, none above."""
    return f"{amount:,.1f}" if 0 < abs(amount) < 100 else f"{amount:,.0f}"


def share(part: float, whole: float) -> float:
    """Between 0 and 1; 0 where there is no whole."""
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 0.0


def percent(part: float, whole: float) -> str:
    """0 % and 100 % only when they are exact."""
    if whole <= 0:
        return NOTHING
    value = 100 * part / whole
    if 0 < value < 1:
        return "<1 %"
    if 99 < value < 100:
        return ">99 %"
    return f"{value:.0f} %"


def span(length: timedelta) -> str:
    """The two largest units, cut off and never rounded up: `1d 4h`, `38m 12s`, `0s`."""
    left = int(abs(length).total_seconds())
    parts: list[str] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if parts or count:
            parts.append(f"{count}{unit}")
        if len(parts) == 2:
            break
    shown = " ".join(part for part in parts if not part.startswith("0")) or "0s"
    return f"-{shown}" if length < timedelta(0) and shown != "0s" else shown


def day(at: datetime) -> str:
    at = at.astimezone(UTC)
    return f"{at.day} {_MONTHS[at.month - 1]}"


def short_instant(at: datetime | None) -> str:
    """Day and minute in UTC, cut off and not rounded."""
    return NOTHING if at is None else f"{day(at)} {at.astimezone(UTC):%H:%M}"


def exact_instant(at: datetime | None) -> str:
    return NOTHING if at is None else f"{day(at)} {at.astimezone(UTC):%H:%M:%S}"


def counted(number: int, one: str, many: str = "") -> str:
    """`1 job`, `2,000 jobs`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
