"""What a person typed after `tidemill offers`, as a wish: numbers, lengths, dates, zones and the types of a pool."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from tidemill.cli.session import Desk
from tidemill.model.ec2_facts import DAY, FARTHEST_START
from tidemill.model.errors import Refused, SpecError
from tidemill.offer_search.request import (
    Question,
    StartWindow,
    Wish,
    held_by_date,
    is_sold,
    never_fits,
)
from tidemill.spec.compute_pool import matching_types
from tidemill.spec.problem import suggestion
from tidemill.spec.units import parse_duration, parse_instant

if TYPE_CHECKING:
    from tidemill.spec.compute_pool import ComputePool


def types_of(desk: Desk, pool: str | None) -> tuple[str, ...]:
    if pool is None:
        raise SpecError("name a type, such as p5.48xlarge, or a pool with --pool")
    found = pool_named(desk, pool)
    kinds = matching_types(desk.spec.catalog, found.spec.requirements)
    sold = tuple(one.name for one in kinds if is_sold(one))
    if not sold:
        raise SpecError(f"no type that pool {pool} allows is sold as Capacity Blocks")
    return sold


def pool_named(desk: Desk, name: str) -> ComputePool:
    found = desk.spec.pools.get(name)
    if found is None:
        raise SpecError(f"there is no pool '{name}'; {suggestion(name, desk.spec.pools)}")
    return found


def numbers(written: str) -> tuple[int, ...]:
    parts = [part.strip() for part in written.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise SpecError(f"--count: '{written}' is not a number, or several with commas between them")
    return tuple(dict.fromkeys(int(part) for part in parts))


def lengths(written: str) -> tuple[timedelta, ...]:
    try:
        return tuple(dict.fromkeys(parse_duration(part.strip()) for part in written.split(",")))
    except ValueError as error:
        raise SpecError(f"--duration: {error}") from None


def starts(now: datetime, from_: str | None, to: str | None, days: str | None) -> tuple[StartWindow, ...]:
    if days is not None:
        if from_ is not None or to is not None:
            raise SpecError("--start names dates, --from and --to a window: give one or the other")
        whole_days = [_when("--start", day.strip()) for day in days.split(",")]
        return tuple(StartWindow(max(day, now), day + DAY - timedelta(seconds=1)) for day in whole_days)
    earliest = max(_when("--from", from_), now) if from_ is not None else now
    latest = now + FARTHEST_START if to is None else _when("--to", to, end_of_day=True)
    return (StartWindow(earliest, latest),)


def _when(option: str, written: str, *, end_of_day: bool = False) -> datetime:
    """A date such as 2026-11-20 (UTC; as a latest start all of that day), or an instant."""
    try:
        if "T" in written:
            return parse_instant(written)
        day = datetime.strptime(written, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise SpecError(
            f"{option}: '{written}' is not a date such as 2026-11-20, nor an instant such as 2026-11-20T11:30:00Z"
        ) from None
    return day + timedelta(days=1, seconds=-1) if end_of_day else day


def check_zones(desk: Desk, zones: tuple[str, ...]) -> None:
    known = desk.spec.platform.spec.subnets
    for zone in zones if known else ():
        if zone not in known:
            raise SpecError(f"the Platform has no subnet in '{zone}'; {suggestion(zone, known)}")


def with_room(desk: Desk, wish: Wish, now: datetime) -> tuple[Question, ...]:
    """Without those that would make too many on a date whenever they start."""
    held = held_by_date(desk.cloud.reservations())
    questions, why = [], ""
    for question in wish.questions():
        crowded = never_fits(held, question, now)
        why = crowded or why
        if not crowded:
            questions.append(question)
    if not questions:
        raise Refused(why)
    if why:
        click.echo(f"warning: some combinations were left out: {why}", err=True)
    return tuple(questions)


def too_many(wish: Wish, needed: int, allowed: int) -> str:
    parts = (
        (len(wish.types), "types"), (len(wish.counts), "counts"), (len(wish.durations), "durations"),
        (len(wish.starts), "starts"), (len(wish.zones), "zones"),
    )  # fmt: skip
    product = " x ".join(f"{number} {name}" for number, name in parts if number > 1)
    return (
        f"this needs {needed} requests ({product}), more than --max-requests {allowed}: "
        f"name fewer, or allow more with --max-requests {needed}"
    )
