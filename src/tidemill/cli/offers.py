"""`tidemill offers`: what EC2 would sell, over several types, counts, lengths, zones and starts in one search."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from tidemill.catalog.price_comparison import BlockPrice, block_price
from tidemill.cli.offer_cache import cache_offers
from tidemill.cli.pool_capacity import limit_warnings
from tidemill.cli.session import JSON, Session, with_session
from tidemill.cli.terminal import console, progress, table
from tidemill.model.ec2_facts import DAY, FARTHEST_START
from tidemill.model.errors import Refused, Retryable, SpecError
from tidemill.offer_search.alternatives import Alternative, SearchScope, search_alternatives
from tidemill.offer_search.request import (
    OfferQuestion,
    OfferRequest,
    StartWindow,
    check_request,
    held_by_date,
    is_sold,
    no_start_fits,
)
from tidemill.offer_search.search import BURST, REQUESTS_PER_S, FoundOffer, OfferSearcher, TokenBucket
from tidemill.spec.compute_pool import matching_types
from tidemill.spec.problem import suggestion
from tidemill.spec.units import format_duration, format_instant, parse_duration, parse_instant

if TYPE_CHECKING:
    from rich.table import Table

    from tidemill.offer_search.search import FoundOffer

EXIT_FAILED, EXIT_INTERRUPTED = 1, 130
SHOWN_PER_CHANGE = 3


@click.command(short_help="Search for Capacity Blocks.")
@click.argument("types", nargs=-1, metavar="[TYPE…]")
@click.option("--count", "counts", default="1", show_default=True, metavar="N[,N…]", help="Instances.")
@click.option(
    "--duration", "durations", default="1d", show_default=True, metavar="TIME[,TIME…]",
    help="1d to 14d, then whole weeks up to 182d.",
)  # fmt: skip
@click.option("--from", "from_", metavar="WHEN", help="Earliest start: a date or an instant. Default: now.")
@click.option("--to", metavar="WHEN", help="Latest start. Default: 8 weeks ahead, the most EC2 sells.")
@click.option("--start", "days", metavar="DATE[,DATE…]", help="Only blocks that start on these dates.")
@click.option("--zone", "zones", multiple=True, metavar="ZONE", help="Ask for these zones, each apart.")
@click.option("--pool", metavar="NAME", help="Types of this pool, where none is named.")
@click.option(
    "--max-requests", type=click.IntRange(min=1), default=60, show_default=True,
    help="The most requests to EC2 that one search may come to.",
)  # fmt: skip
@JSON
@with_session
@click.pass_context
def offers(
    ctx: click.Context, session: Session, types: tuple[str, ...], counts: str, durations: str, from_: str | None,
    to: str | None, days: str | None, zones: tuple[str, ...], pool: str | None, max_requests: int, as_json: bool,
) -> None:  # fmt: skip
    """Search for Capacity Blocks of TYPE…, the cheapest per GPU-hour first.

    Every combination of types, counts, durations, zones and start dates is one request to EC2, at most
    --max-requests in all. Where nothing is sold, the nearest that is: other lengths, zones, days, fewer instances,
    other types with the same accelerator. Buy one with `tidemill buy ID`.
    """
    now = session.now()
    wish = OfferRequest(
        types or types_of(session, pool), parse_counts(counts), parse_durations(durations),
        start_windows(now, from_, to, days),
        tuple((zone,) for zone in zones) or (tuple(sorted(session.spec.platform.spec.subnets)),),
    )  # fmt: skip
    check_request(wish, session.spec.catalog, now)
    check_zones(session, zones)
    for why_not in limit_warnings(session, wish.types, wish.counts, pool):
        click.echo(f"warning: `tidemill buy` will refuse some of these: {why_not}", err=True)
    questions = questions_within_quota(session, wish, now)
    if len(questions) > max_requests:
        raise SpecError(too_many_requests(wish, len(questions), max_requests))
    search = _Search(session, questions, max_requests)
    search.run()
    search.remember()
    if as_json:
        click.echo(json.dumps(search.as_json(), indent=2))
    else:
        search.show()
    if search.interrupted:
        ctx.exit(EXIT_INTERRUPTED)
    if search.failed or not search.found:
        ctx.exit(EXIT_FAILED)


class _Search:
    """One search and what came of it, also where somebody stopped it half-way."""

    def __init__(self, session: Session, questions: Sequence[OfferQuestion], max_requests: int) -> None:
        self._session, self._questions = session, questions
        bucket = TokenBucket(REQUESTS_PER_S, BURST, clock=time.monotonic, pause=time.sleep)
        self._shopper = OfferSearcher(session.cloud, bucket, max_requests)
        self.alternatives: list[Alternative] = []
        self.tried: list[str] = []
        self.interrupted = False
        self.failed = ""  # what AWS said when it answered no more
        self.found: tuple[FoundOffer, ...] = ()

    def run(self) -> None:
        try:
            with progress("Searching") as show:
                self._shopper.ask_all(
                    self._questions,
                    lambda: show(self._shopper.asked / len(self._questions)) if show else None,
                )
        except KeyboardInterrupt:
            self.interrupted = True
        except Retryable as error:
            self.failed = str(error)
        self.found = tuple(sorted(self._shopper.found, key=self._price_first))
        if not (self.found or self.interrupted or self.failed):
            self._look_around()

    def _look_around(self) -> None:
        zones = tuple(sorted(self._session.spec.platform.spec.subnets))
        around = SearchScope(self._session.spec.catalog, zones, self._session.now())
        try:
            for change, found in search_alternatives(self._shopper, self._questions, around):
                self.alternatives += found
                self.tried += [change] if change not in self.tried else []
        except KeyboardInterrupt:
            self.interrupted = True
        except Retryable as error:
            self.failed = str(error)

    def remember(self) -> None:
        shown = [*self.found, *(one.found for one in self.alternatives)]
        if shown:
            cache_offers(shown, self._session.now())

    def _price_first(self, one: FoundOffer) -> tuple[float, datetime, int, str]:
        """To the cent, as it is shown: fees are whole dollars, so the rest is rounding."""
        cents = round(price_of(self._session, one).usd_per_gpu_h, 2)
        return cents, one.offer.start, one.offer.fee_usd, one.offer.id

    def as_json(self) -> dict[str, Any]:
        return {
            "at": format_instant(self._session.now()),
            "region": self._session.spec.platform.spec.region,
            "requests": self._shopper.asked,
            "interrupted": self.interrupted,
            "failed": self.failed,
            "refused": self._shopper.refused,
            "offers": [offer_json(self._session, one) for one in self.found],
            "alternatives": [
                {**offer_json(self._session, one.found), "change": one.change} for one in self.alternatives
            ],
            "tried": self.tried,
        }

    def show(self) -> None:
        screen = console()
        if self.interrupted or self.failed:
            why = self.failed or "interrupted"
            asked = f"{self._shopper.asked} of {len(self._questions)} searches"
            click.echo(f"{why}; found so far, after {asked}:", err=True)
        for no in self._shopper.refused:
            click.echo(f"EC2 does not take the question: {no}", err=True)
        if self.found:
            screen.print(offer_table(self._session, self.found))
            screen.print(self._footer(len(self.found)))
        elif self.tried or not (self.interrupted or self.failed):
            screen.print(f"EC2 sells no such block now ({_searches(self._shopper.asked)} made).")
            self._show_alternatives()

    def _footer(self, count: int) -> str:
        lists = {one.kind: one.as_of for one in self._session.spec.catalog.price_lists}
        return (
            f"{count} offers, {_searches(self._shopper.asked)} made. On-demand prices of "
            f"{lists.get('on-demand', 'no known date')}. First come, first served: tidemill buy ID"
        )

    def _show_alternatives(self) -> None:
        screen = console()
        if not self.tried:
            screen.print("Nothing else was tried: raise --max-requests to look for the nearest alternatives.")
            return
        screen.print(f"Tried: {'; '.join(self.tried)}.")
        if not self.alternatives:
            screen.print(
                "None of these is sold either. Try again later: what EC2 sells changes by the minute."
            )
            return
        screen.print("\nThe nearest that is sold:")
        for change in self.tried:
            near = [one.found for one in self.alternatives if one.change == change]
            if near:
                screen.print(f"\n{change}:")
                screen.print(
                    offer_table(self._session, sorted(near, key=self._price_first)[:SHOWN_PER_CHANGE])
                )


def _searches(number: int) -> str:
    return f"{number} {'request' if number == 1 else 'requests'}"


# --- offer_rows ---


def price_of(session: Session, one: FoundOffer) -> BlockPrice:
    offer = one.offer
    kind = session.spec.catalog.types[offer.instance_type]
    return block_price(kind, offer.count, offer.end - offer.start, offer.fee_usd)


def percent(share: float | None) -> str:
    return "" if share is None else f"{share:+.0%}"


def offer_table(session: Session, found: Sequence[FoundOffer]) -> Table:
    made = table(
        "id", "type", "zone", "count", "start (UTC)", "end", "hours", "fee", "$/GPU-h", "to on-demand",
        right=("count", "hours", "fee", "$/GPU-h", "to on-demand"),
    )  # fmt: skip
    for one in found:
        offer, price = one.offer, price_of(session, one)
        made.add_row(
            offer.id, offer.instance_type, offer.zone, str(offer.count), f"{offer.start:%Y-%m-%d %H:%M}",
            f"{offer.end:%Y-%m-%d %H:%M}", f"{price.hours:.1f}".removesuffix(".0"), f"${offer.fee_usd:,}",
            f"{price.usd_per_gpu_h:.2f}", percent(price.against_on_demand) or "-",
        )  # fmt: skip
    return made


def offer_json(session: Session, one: FoundOffer) -> dict[str, Any]:
    offer, price = one.offer, price_of(session, one)
    return {
        "id": offer.id,
        "type": offer.instance_type,
        "zone": offer.zone,
        "count": offer.count,
        "asked_duration": format_duration(one.question.duration),
        "start": format_instant(offer.start),
        "end": format_instant(offer.end),
        "hours": round(price.hours, 2),
        "fee_usd": offer.fee_usd,
        "usd_per_gpu_h": round(price.usd_per_gpu_h, 4),
        "on_demand_usd_per_gpu_h": price.on_demand_usd_per_gpu_h,
        "against_on_demand": None if price.against_on_demand is None else round(price.against_on_demand, 4),
        "ultraserver": offer.ultraserver,
    }


# --- offer_options ---


def types_of(session: Session, pool: str | None) -> tuple[str, ...]:
    if pool is None:
        raise SpecError("name a type, such as p5.48xlarge, or a pool with --pool")
    found = session.pool(pool)
    kinds = matching_types(session.spec.catalog, found.spec.requirements)
    sold = tuple(one.name for one in kinds if is_sold(one))
    if not sold:
        raise SpecError(f"no type that pool {pool} allows is sold as Capacity Blocks")
    return sold


def parse_counts(written: str) -> tuple[int, ...]:
    parts = [part.strip() for part in written.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise SpecError(f"--count: '{written}' is not a number, or several with commas between them")
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
            raise SpecError("--start names dates, --from and --to a window: give one or the other")
        whole_days = [_parse_when("--start", day.strip()) for day in days.split(",")]
        return tuple(StartWindow(max(day, now), day + DAY - timedelta(seconds=1)) for day in whole_days)
    earliest = max(_parse_when("--from", from_), now) if from_ is not None else now
    latest = now + FARTHEST_START if to is None else _parse_when("--to", to, end_of_day=True)
    return (StartWindow(earliest, latest),)


def _parse_when(option: str, written: str, *, end_of_day: bool = False) -> datetime:
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


def check_zones(session: Session, zones: tuple[str, ...]) -> None:
    known = session.spec.platform.spec.subnets
    for zone in zones if known else ():
        if zone not in known:
            raise SpecError(f"the Platform has no subnet in '{zone}'; {suggestion(zone, known)}")


def questions_within_quota(session: Session, wish: OfferRequest, now: datetime) -> tuple[OfferQuestion, ...]:
    """Without those that would make too many on a date whenever they start."""
    held = held_by_date(session.cloud.reservations())
    questions, why = [], ""
    for question in wish.questions():
        crowded = no_start_fits(held, question, now)
        why = crowded or why
        if not crowded:
            questions.append(question)
    if not questions:
        raise Refused(why)
    if why:
        click.echo(f"warning: some combinations were left out: {why}", err=True)
    return tuple(questions)


def too_many_requests(wish: OfferRequest, needed: int, allowed: int) -> str:
    parts = (
        (len(wish.types), "types"), (len(wish.counts), "counts"), (len(wish.durations), "durations"),
        (len(wish.starts), "starts"), (len(wish.zones), "zones"),
    )  # fmt: skip
    product = " x ".join(f"{number} {name}" for number, name in parts if number > 1)
    return (
        f"this needs {needed} requests ({product}), more than --max-requests {allowed}: "
        f"name fewer, or allow more with --max-requests {needed}"
    )
