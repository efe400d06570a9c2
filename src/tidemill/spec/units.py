"""Durations, quantities and instants as people write them, parsed into base units and printed back.

`5m`, `36h`, `14d`, `1h30m`; `180`, `250m` (CPU, to milli); `1700Gi` (memory, to bytes); RFC 3339 instants.
A number without a unit is not a duration, and a time without a zone is not an instant: both are errors that say what
to write instead.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from tidemill.model.ec2_facts import nearest_legal_durations

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_CPU = re.compile(r"(\d+(?:\.\d+)?)(m?)")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P|)")
_MEMORY_FACTOR = {
    "": 1,
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip
# Far wider than any plan, so that sums of accepted values never overflow.
_YEARS = range(2000, 2201)
_LONGEST = timedelta(days=100 * 365)


def parse_duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        raise ValueError(f"{value!r} has no unit; write a duration such as '5m', '36h' or '14d'")
    match = _DURATION.fullmatch(value)
    if not value or match is None:
        raise ValueError(f"'{value}' is not a duration; write '30s', '5m', '36h', '14d' or '1h30m'")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    seconds += 60 * (minutes + 60 * (hours + 24 * days))
    if seconds > _LONGEST.total_seconds():  # before the timedelta, which overflows at a few more digits
        raise ValueError(f"'{value}' is longer than 100 years")
    return timedelta(seconds=seconds)


def parse_length(value: Any) -> timedelta:
    """A duration longer than 0s."""
    duration = parse_duration(value)
    if not duration:
        raise ValueError("must be longer than 0s")
    return duration


def nearest_sold_durations(duration: timedelta) -> str:
    """For a message about a duration that EC2 does not sell: `175d and 182d`."""
    return " and ".join(format_duration(nearest) for nearest in nearest_legal_durations(duration))


def format_duration(value: timedelta) -> str:
    """The shortest exact spelling: 90 minutes is `1h30m`, 14 days `14d`."""
    left = int(value.total_seconds())
    if left <= 0:
        return "0s"
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def parse_cpu(value: Any) -> int:
    """To milli-CPU."""
    match = None if isinstance(value, bool) else _CPU.fullmatch(str(value))
    if match is None:
        raise ValueError(f"{value!r} is not a CPU quantity; write '180', '0.5' or '250m'")
    number, milli = match.groups()
    return _rounded(float(number) * (1 if milli else 1000))


def _rounded(amount: float) -> int:
    if amount == float("inf"):  # hundreds of digits; round() would raise OverflowError
        raise ValueError("the number is too large")
    return round(amount)


def format_cpu(milli: int) -> str:
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def parse_memory(value: Any) -> int:
    """To bytes."""
    match = None if isinstance(value, bool) else _MEMORY.fullmatch(str(value))
    if match is None:
        raise ValueError(f"{value!r} is not a memory quantity; write '1700Gi', '512Mi' or a number of bytes")
    number, unit = match.groups()
    return _rounded(float(number) * _MEMORY_FACTOR[unit])


def format_memory(size: int) -> str:
    for unit in ("Ti", "Gi", "Mi", "Ki"):
        if size and size % _MEMORY_FACTOR[unit] == 0:
            return f"{size // _MEMORY_FACTOR[unit]}{unit}"
    return str(size)


def parse_instant(value: Any) -> datetime:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"'{value}' is not an instant; write '2026-11-16T11:30:00Z'") from None
    if not isinstance(value, datetime):
        raise ValueError(f"{value!r} is not an instant; write '2026-11-16T11:30:00Z'")
    if value.tzinfo is None:
        raise ValueError(f"'{value.isoformat()}' has no time zone; write '{value.isoformat()}Z' for UTC")
    if value.year not in _YEARS:
        raise ValueError(f"'{value.isoformat()}' is outside the years {_YEARS[0]} to {_YEARS[-1]}")
    return value.astimezone(UTC)


def format_instant(value: datetime) -> str:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


_IN_TAINT = "%Y%m%dT%H%M%SZ"  # a taint's value has no colons


def instant_in_taint(value: datetime) -> str:
    return value.astimezone(UTC).strftime(_IN_TAINT)


def read_instant_in_taint(text: str) -> datetime | None:
    """None: somebody else wrote it."""
    try:
        return datetime.strptime(text, _IN_TAINT).replace(tzinfo=UTC)
    except ValueError:
        return None


def parse_positive_int(value: Any) -> Any:
    """Refuse booleans, which pydantic would accept as 0 and 1."""
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is not a number")
    return value


def _quantity(text: re.Pattern[str]) -> dict[str, Any]:
    return {
        "anyOf": [{"type": "number"}, {"type": "string"}],
        "pattern": f"^{text.pattern}$",
        "x-kubernetes-int-or-string": True,
    }


_DURATION_SCHEMA = {"type": "string", "pattern": f"^{_DURATION.pattern}$", "minLength": 2, "maxLength": 40}

Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(_DURATION_SCHEMA),
]
Length = Annotated[
    timedelta,
    BeforeValidator(parse_length),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(_DURATION_SCHEMA),
]
CpuMilli = Annotated[
    int,
    BeforeValidator(parse_cpu),
    PlainSerializer(format_cpu, return_type=str),
    WithJsonSchema(_quantity(_CPU)),
]
MemoryBytes = Annotated[
    int,
    BeforeValidator(parse_memory),
    PlainSerializer(format_memory, return_type=str),
    WithJsonSchema(_quantity(_MEMORY)),
]
Instant = Annotated[
    datetime,
    BeforeValidator(parse_instant),
    PlainSerializer(format_instant, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Count = Annotated[int, BeforeValidator(parse_positive_int)]
