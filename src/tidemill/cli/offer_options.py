"""The options of `tidemill offers` as a search: types, counts, durations, starts and zones, within EC2's quotas."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from tidemill.cli.session import Session
from tidemill.model.ec2_facts import DAY, FARTHEST_START
from tidemill.model.errors import Refused, SpecError
from tidemill.offer_search.request import (
    OfferQuestion,
    OfferRequest,
    StartWindow,
    held_by_date,
    is_sold,
    no_start_fits,
)
from tidemill.spec.compute_pool import matching_types
from tidemill.spec.problem import suggestion
from tidemill.spec.units import parse_duration, parse_instant


def types_of(session: Session, pool: str | None) -> tuple[str, ...]:
    if pool is None:
        raise SpecError("no type; name one, such as p5.48xlarge, or a pool with --pool")
    allowed = matching_types(session.spec.catalog, session.pool(pool).spec.requirements)
    sold = tuple(instance_type.name for instance_type in allowed if is_sold(instance_type))
    if not sold:
        raise SpecError(f"EC2 sells Capacity Blocks of no type that pool {pool} allows; name a TYPE it sells")
    return sold


def parse_counts(written: str) -> tuple[int, ...]:
    parts = [part.strip() for part in written.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise SpecError(f"--count: '{written}' is not a number; write for example 4, or several: 2,4")
    return tuple(dict.fromkeys(int(part) for part in parts))


def parse_durations(written: str) -> tuple[timedelta, ...]:
    try:
        return tuple(dict.fromkeys(parse_duration(part.strip()) for part in written.split(",")))
    except ValueError as error:
        raise SpecError(f"--duration: {error}") from None


def start_windows(
    now: datetime, from_: str | None, to: str | None, days: str | None
) -> tuple[StartWindow, ...]:
    if days is not None:
        if from_ is not None or to is not None:
            raise SpecError("--start names dates, --from and --to name a window; give one or the other")
        whole_days = [_parse_when("--start", day.strip()) for day in days.split(",")]
        return tuple(StartWindow(max(day, now), day + DAY - timedelta(seconds=1)) for day in whole_days)
    earliest = max(_parse_when("--from", from_), now) if from_ is not None else now
    latest = now + FARTHEST_START if to is None else _parse_when("--to", to, end_of_day=True)
    return (StartWindow(earliest, latest),)


def _parse_when(option: str, written: str, *, end_of_day: bool = False) -> datetime:
    """A date such as 2026-11-20 (UTC; as the latest start, the end of that day), or an instant."""
    try:
        if "T" in written:
            return parse_instant(written)
        day = datetime.strptime(written, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise SpecError(
            f"{option}: '{written}' is not a date; write for example 2026-11-20 or 2026-11-20T11:30:00Z"
        ) from None
    return day + timedelta(days=1, seconds=-1) if end_of_day else day


def check_zones(session: Session, zones: tuple[str, ...]) -> None:
    known = session.spec.platform.spec.subnets
    for zone in zones if known else ():
        if zone not in known:
            raise SpecError(f"the Platform has no subnet in '{zone}'; {suggestion(zone, known)}")


def questions_within_quota(
    session: Session, request: OfferRequest, now: datetime
) -> tuple[OfferQuestion, ...]:
    """The searches, without those that would exceed EC2's instances per date however early or late they start."""
    held = held_by_date(session.cloud.reservations())
    questions, why = [], ""
    for question in request.questions():
        # What is held in other regions is not known here.
        over_quota = "" if question.region else no_start_fits(held, question, now)
        why = over_quota or why
        if not over_quota:
            questions.append(question)
    if not questions:
        raise Refused(why)
    if why:
        click.echo(f"warning: some combinations are not searched: {why}", err=True)
    return tuple(questions)


def too_many_requests(request: OfferRequest, needed: int, allowed: int) -> str:
    parts = (
        (len(request.types), "types"), (len(request.counts), "counts"), (len(request.durations), "durations"),
        (len(request.starts), "starts"), (len(request.zones), "zones"), (len(request.regions), "regions"),
    )  # fmt: skip
    product = " x ".join(f"{number} {name}" for number, name in parts if number > 1)
    return (
        f"this search needs {needed} requests ({product}), more than --max-requests {allowed}; "
        f"name fewer, or allow more with --max-requests {needed}"
    )
