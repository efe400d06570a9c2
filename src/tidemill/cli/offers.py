"""`tidemill offers`: what EC2 would sell, over several types, counts, lengths, zones and starts in one search."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from tidemill.cli.offer_cache import remember
from tidemill.cli.offer_options import check_zones, lengths, numbers, starts, too_many, types_of, with_room
from tidemill.cli.offer_rows import offer_json, offer_table, price_of
from tidemill.cli.pool_capacity import unheld
from tidemill.cli.progress import progress
from tidemill.cli.session import JSON, Desk, at_the_desk
from tidemill.cli.tables import console
from tidemill.model.errors import Retryable, SpecError
from tidemill.offer_search.alternatives import Alternative, Surroundings, look_around
from tidemill.offer_search.request import Question, Wish, check
from tidemill.offer_search.search import BURST, REQUESTS_PER_S, Found, Shopper, TokenBucket
from tidemill.spec.units import format_instant

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
@at_the_desk
@click.pass_context
def offers(
    ctx: click.Context, desk: Desk, types: tuple[str, ...], counts: str, durations: str, from_: str | None,
    to: str | None, days: str | None, zones: tuple[str, ...], pool: str | None, max_requests: int, as_json: bool,
) -> None:  # fmt: skip
    """Search for Capacity Blocks of TYPE…, the cheapest per GPU-hour first.

    Every combination of types, counts, durations, zones and start dates is one request to EC2, at most
    --max-requests in all. Where nothing is sold, the nearest that is: other lengths, zones, days, fewer instances,
    other types with the same accelerator. Buy one with `tidemill buy ID`.
    """
    now = desk.now()
    wish = Wish(
        types or types_of(desk, pool), numbers(counts), lengths(durations), starts(now, from_, to, days),
        tuple((zone,) for zone in zones) or (tuple(sorted(desk.spec.platform.spec.subnets)),),
    )  # fmt: skip
    check(wish, desk.spec.catalog, now)
    check_zones(desk, zones)
    for why_not in unheld(desk, wish.types, wish.counts, pool):
        click.echo(f"warning: `tidemill buy` will refuse some of these: {why_not}", err=True)
    questions = with_room(desk, wish, now)
    if len(questions) > max_requests:
        raise SpecError(too_many(wish, len(questions), max_requests))
    search = _Search(desk, questions, max_requests)
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

    def __init__(self, desk: Desk, questions: Sequence[Question], max_requests: int) -> None:
        self._desk, self._questions = desk, questions
        bucket = TokenBucket(REQUESTS_PER_S, BURST, clock=time.monotonic, pause=time.sleep)
        self._shopper = Shopper(desk.cloud, bucket, max_requests)
        self.alternatives: list[Alternative] = []
        self.tried: list[str] = []
        self.interrupted = False
        self.failed = ""  # what AWS said when it answered no more
        self.found: tuple[Found, ...] = ()

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
        zones = tuple(sorted(self._desk.spec.platform.spec.subnets))
        around = Surroundings(self._desk.spec.catalog, zones, self._desk.now())
        try:
            for change, found in look_around(self._shopper, self._questions, around):
                self.alternatives += found
                self.tried += [change] if change not in self.tried else []
        except KeyboardInterrupt:
            self.interrupted = True
        except Retryable as error:
            self.failed = str(error)

    def remember(self) -> None:
        shown = [*self.found, *(one.found for one in self.alternatives)]
        if shown:
            remember(shown, self._desk.now())

    def _price_first(self, one: Found) -> tuple[float, datetime, int, str]:
        """To the cent, as it is shown: fees are whole dollars, so the rest is rounding."""
        cents = round(price_of(self._desk, one).usd_per_gpu_h, 2)
        return cents, one.offer.start, one.offer.fee_usd, one.offer.id

    def as_json(self) -> dict[str, Any]:
        return {
            "at": format_instant(self._desk.now()),
            "region": self._desk.spec.platform.spec.region,
            "requests": self._shopper.asked,
            "interrupted": self.interrupted,
            "failed": self.failed,
            "refused": self._shopper.refused,
            "offers": [offer_json(self._desk, one) for one in self.found],
            "alternatives": [
                {**offer_json(self._desk, one.found), "change": one.change} for one in self.alternatives
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
            screen.print(offer_table(self._desk, self.found))
            screen.print(self._footer(len(self.found)))
        elif self.tried or not (self.interrupted or self.failed):
            screen.print(f"EC2 sells no such block now ({_searches(self._shopper.asked)} made).")
            self._show_alternatives()

    def _footer(self, count: int) -> str:
        lists = {one.kind: one.as_of for one in self._desk.spec.catalog.price_lists}
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
                screen.print(offer_table(self._desk, sorted(near, key=self._price_first)[:SHOWN_PER_CHANGE]))


def _searches(number: int) -> str:
    return f"{number} {'request' if number == 1 else 'requests'}"
