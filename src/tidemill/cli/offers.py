"""`tidemill offers`: the Capacity Blocks that EC2 sells, over several types, counts, durations, zones and dates."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from tidemill.catalog.price_comparison import BlockPrice, block_price
from tidemill.cli.offer_cache import cache_offers
from tidemill.cli.offer_options import (
    check_zones,
    parse_counts,
    parse_durations,
    questions_within_quota,
    start_windows,
    too_many_requests,
    types_of,
)
from tidemill.cli.offer_regions import (
    as_asked,
    bought_at_home,
    catalog_for,
    home,
    others,
    region_of,
    regions_of,
    unanswered_lines,
    zones_by_region,
)
from tidemill.cli.pool_capacity import unusable_warnings
from tidemill.cli.session import JSON, Session, with_session
from tidemill.cli.terminal import console, progress, table
from tidemill.model.ec2_facts import MAX_OFFERS
from tidemill.model.errors import Retryable, SpecError
from tidemill.offer_search.request import (
    OfferQuestion,
    OfferRequest,
    check_request,
)
from tidemill.offer_search.search import (
    BURST,
    REQUESTS_PER_S,
    Alternative,
    FoundOffer,
    OfferSearcher,
    SearchScope,
    TokenBucket,
    search_alternatives,
)
from tidemill.spec.units import format_duration, format_instant

if TYPE_CHECKING:
    from rich.table import Table

    from tidemill.offer_search.search import FoundOffer

EXIT_FAILED, EXIT_INTERRUPTED = 1, 130
SHOWN_PER_CHANGE = 3


@click.command(short_help="Search for Capacity Blocks.")
@click.argument("types", nargs=-1, metavar="[TYPE…]")
@click.option(
    "--count", "counts", default="1", show_default=True, metavar="N[,N…]", help="How many instances."
)
@click.option(
    "--duration", "durations", default="1d", show_default=True, metavar="TIME[,TIME…]",
    help="1d to 14d, then whole weeks up to 182d.",
)  # fmt: skip
@click.option("--from", "from_", metavar="WHEN", help="Earliest start, a date or an instant. Default: now.")
@click.option("--to", metavar="WHEN", help="Latest start. Default: in 8 weeks, the latest that EC2 sells.")
@click.option("--start", "days", metavar="DATE[,DATE…]", help="Only blocks that start on these dates.")
@click.option("--zone", "zones", multiple=True, metavar="ZONE", help="Search this zone. Repeatable.")
@click.option(
    "--region", "named_regions", multiple=True, metavar="NAME[,NAME…]",
    help="Search these regions. Default: the Platform's, the only one to buy in. Repeatable.",
)  # fmt: skip
@click.option("--all-regions", is_flag=True, help="Search every region where AWS documents Capacity Blocks.")
@click.option("--pool", metavar="NAME", help="Search the types of this pool, if no TYPE is named.")
@click.option(
    "--max-requests", type=click.IntRange(min=1), default=60, show_default=True,
    help="The most requests to EC2 for one search.",
)  # fmt: skip
@JSON
@with_session
@click.pass_context
def offers(
    ctx: click.Context, session: Session, types: tuple[str, ...], counts: str, durations: str, from_: str | None,
    to: str | None, days: str | None, zones: tuple[str, ...], named_regions: tuple[str, ...], all_regions: bool,
    pool: str | None, max_requests: int, as_json: bool,
) -> None:  # fmt: skip
    """Search for Capacity Blocks of TYPE…, the cheapest per GPU-hour first.

    Each combination of types, counts, durations, zones, start dates and regions is one request to EC2, at most
    --max-requests in all. A region that does not answer is named, and the others are shown. If EC2 sells none of them,
    it shows the nearest that EC2 does sell: other durations, zones or days, fewer instances, other types with the same
    accelerator. Buy one of the Platform's region with `tidemill buy ID`.
    """
    now = session.now()
    regions = regions_of(session, named_regions, every=all_regions)
    here, elsewhere = zones_by_region(session, regions, zones)
    request = OfferRequest(
        types or types_of(session, pool), parse_counts(counts), parse_durations(durations),
        start_windows(now, from_, to, days),
        tuple((zone,) for zone in here) or (tuple(sorted(session.spec.platform.spec.subnets)),),
        as_asked(session, regions), elsewhere,
    )  # fmt: skip
    check_request(request, session.spec.catalog, now)
    check_zones(session, here)
    at_home = home(session) in regions
    for why_not in unusable_warnings(session, request.types, request.counts, here, pool) if at_home else ():
        click.echo(f"warning: `tidemill buy` will refuse some of these offers: {why_not}", err=True)
    questions = questions_within_quota(session, request, now)
    if len(questions) > max_requests:
        raise SpecError(too_many_requests(request, len(questions), max_requests))
    search = _Search(session, questions, max_requests, regions)
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
    """One search and its results; an interrupted search keeps what it found so far."""

    def __init__(
        self,
        session: Session,
        questions: Sequence[OfferQuestion],
        max_requests: int,
        regions: tuple[str, ...],
    ) -> None:
        self._session, self._questions, self._regions = session, questions, regions
        bucket = TokenBucket(REQUESTS_PER_S, BURST, clock=time.monotonic, pause=time.sleep)
        self._searcher = OfferSearcher(session.cloud, bucket, max_requests, others(session, regions))
        self.alternatives: list[Alternative] = []
        self.tried: list[str] = []
        self.interrupted = False
        self.failed = ""  # the error that ended the search
        self.found: tuple[FoundOffer, ...] = ()

    def run(self) -> None:
        try:
            with progress("Searching") as show:
                self._searcher.ask_all(
                    self._questions,
                    lambda: show(self._searcher.asked / len(self._questions)) if show else None,
                )
        except KeyboardInterrupt:
            self.interrupted = True
        except Retryable as error:
            self.failed = str(error)
        self.found = tuple(sorted(self._searcher.found, key=self._price_first))
        if not (self.found or self.interrupted or self.failed):
            self._search_alternatives()

    def _search_alternatives(self) -> None:
        zones = tuple(sorted(self._session.spec.platform.spec.subnets))
        around = SearchScope(self._session.spec.catalog, zones, self._session.now())
        try:
            for change, found in search_alternatives(self._searcher, self._questions, around):
                self.alternatives += found
                self.tried += [change] if change not in self.tried else []
        except KeyboardInterrupt:
            self.interrupted = True
        except Retryable as error:
            self.failed = str(error)

    def remember(self) -> None:
        shown = [*self.found, *(alternative.found for alternative in self.alternatives)]
        if shown:
            cache_offers(shown, self._session.now())

    def _price_first(self, found: FoundOffer) -> tuple[float, datetime, int, str]:
        """Sort key: the price in whole cents, as shown; fees are whole dollars, so the rest is rounding."""
        cents = round(price_of(self._session, found).usd_per_gpu_h, 2)
        return cents, found.offer.start, found.offer.fee_usd, found.offer.id

    def as_json(self) -> dict[str, Any]:
        return {
            "at": format_instant(self._session.now()),
            "region": home(self._session),
            "regions": list(self._regions),
            "unanswered": {
                region or home(self._session): str(error)
                for region, error in self._searcher.unanswered.items()
            },
            "requests": self._searcher.asked,
            "cut_short": self._searcher.cut_short,
            "interrupted": self.interrupted,
            "failed": self.failed,
            "refused": self._searcher.refused,
            "offers": [offer_json(self._session, found) for found in self.found],
            "alternatives": [
                {**offer_json(self._session, other.found), "change": other.change}
                for other in self.alternatives
            ],
            "tried": self.tried,
        }

    def show(self) -> None:
        screen = console()
        if self.interrupted or self.failed:
            why = self.failed or "interrupted"
            asked = f"{self._searcher.asked} of {len(self._questions)} searches"
            click.echo(f"{why}; found so far, after {asked}:", err=True)
        for line in unanswered_lines(self._session, self._searcher.unanswered):
            click.echo(line, err=True)
        for refusal in self._searcher.refused:
            click.echo(f"EC2 rejects the request: {refusal}", err=True)
        if self.found:
            screen.print(offer_table(self._session, self.found, self._regions))
            screen.print(self._footer(len(self.found)))
            if only_here := bought_at_home(self._session, self.found):
                screen.print(only_here)
            if self._searcher.cut_short:
                screen.print(
                    f"EC2 answers a request with at most {MAX_OFFERS} offers, the cheapest, so there may be more; to"
                    " see those of certain days: --start DATE,DATE"
                )
        elif self.tried or not (self.interrupted or self.failed):
            screen.print(f"EC2 sells no such block now ({_requests(self._searcher.asked)} made).")
            self._show_alternatives()

    def _footer(self, count: int) -> str:
        # The first list of a kind is that of types with accelerators.
        lists = self._session.spec.catalog.price_lists
        date = next((prices.as_of for prices in lists if prices.kind == "on-demand"), "an unknown date")
        return (
            f"{count} offers, {_requests(self._searcher.asked)} made. On-demand prices of {date}."
            " Buy one with: tidemill buy ID"
        )

    def _show_alternatives(self) -> None:
        screen = console()
        if not self.tried:
            screen.print("No alternatives were searched; raise --max-requests to search them.")
            return
        screen.print(f"Tried: {'; '.join(self.tried)}.")
        if not self.alternatives:
            screen.print(
                "EC2 sells none of these either. Try again later: what it sells changes by the minute."
            )
            return
        screen.print("\nThe nearest that EC2 sells:")
        for change in self.tried:
            near = [other.found for other in self.alternatives if other.change == change]
            if near:
                screen.print(f"\n{change}:")
                nearest = sorted(near, key=self._price_first)[:SHOWN_PER_CHANGE]
                screen.print(offer_table(self._session, nearest, self._regions))
        if only_here := bought_at_home(self._session, [other.found for other in self.alternatives]):
            screen.print(only_here)


def _requests(number: int) -> str:
    return f"{number} {'request' if number == 1 else 'requests'}"


# --- offers as rows -----------------------------------------------------------------------------------


def price_of(session: Session, found: FoundOffer) -> BlockPrice:
    offer = found.offer
    kind = catalog_for(session, found).types[offer.instance_type]
    return block_price(kind, offer.count, offer.end - offer.start, offer.fee_usd)


def offer_table(session: Session, offers: Sequence[FoundOffer], regions: Sequence[str]) -> Table:
    """With a column for the region where several were searched, or another than the Platform's."""
    shows_region = tuple(regions) != (home(session),)
    rows = table(
        "id", "type", *(("region",) if shows_region else ()), "zone", "count", "start (UTC)", "end", "hours", "fee",
        "$/GPU-h", "to on-demand",
        right=("count", "hours", "fee", "$/GPU-h", "to on-demand"),
    )  # fmt: skip
    for found in offers:
        offer, price = found.offer, price_of(session, found)
        share = price.against_on_demand
        rows.add_row(
            offer.id, offer.instance_type, *((region_of(session, found),) if shows_region else ()),
            offer.zone, str(offer.count), f"{offer.start:%Y-%m-%d %H:%M}",
            f"{offer.end:%Y-%m-%d %H:%M}", f"{price.hours:.1f}".removesuffix(".0"), f"${offer.fee_usd:,}",
            f"{price.usd_per_gpu_h:.2f}", "-" if share is None else f"{share:+.0%}",
        )  # fmt: skip
    return rows


def offer_json(session: Session, found: FoundOffer) -> dict[str, Any]:
    offer, price = found.offer, price_of(session, found)
    return {
        "id": offer.id,
        "type": offer.instance_type,
        "region": region_of(session, found),
        "zone": offer.zone,
        "count": offer.count,
        "asked_duration": format_duration(found.question.duration),
        "start": format_instant(offer.start),
        "end": format_instant(offer.end),
        "hours": round(price.hours, 2),
        "fee_usd": offer.fee_usd,
        "usd_per_gpu_h": round(price.usd_per_gpu_h, 4),
        "on_demand_usd_per_gpu_h": price.on_demand_usd_per_gpu_h,
        "against_on_demand": None if price.against_on_demand is None else round(price.against_on_demand, 4),
        "ultraserver": offer.ultraserver,
    }
