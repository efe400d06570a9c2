"""`tidemill catalog`: instance types, what pods get of them, and what they cost at which date."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from tidemill.catalog import Catalog, InstanceType, PriceList, load
from tidemill.catalog.fitting import fitting
from tidemill.catalog.sizing import GIB, whole_node_request
from tidemill.cli.catalog_cache import catalog_of, regions
from tidemill.cli.catalog_refresh import refresh
from tidemill.cli.fits import fits_document, fits_table, in_words, parse_requests, suggestion, usd_h, why_none
from tidemill.cli.tables import console, table
from tidemill.model.errors import SpecError
from tidemill.model.resources import Amounts, amount

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


@click.group(invoke_without_command=True)
@click.option(
    "--region", metavar="NAME", help="As refreshed for this region, where it is. Default: as shipped."
)
@click.option("--family", help="Only this family, for example p5 or g6e.")
@click.option("--type", "type_name", metavar="NAME", help="Only this type, for example p5.48xlarge.")
@click.option(
    "--fits",
    "requests",
    metavar="REQUESTS",
    help="Only types that hold such a pod, cheapest first: gpu=1,cpu=4,memory=24Gi (also efa, neuron).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def catalog(
    ctx: click.Context, region: str | None, family: str | None, type_name: str | None, requests: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """List instance types, what pods get of them, and prices.

    Prices are dollars per instance-hour; those of Capacity Blocks are paid up front for the whole block. The
    whole-node request is what one replica that has the node to itself should ask for.

    With --fits: where such a pod fits beside the usual daemon pods, how many of them, what one costs when the
    node is full of them, and how many GPUs no further one could use. The arrow is the suggestion.

    What is shown ships with Tidemill, or was refreshed for the region, whichever is newer.
    """
    if ctx.invoked_subcommand is not None:
        ctx.obj = region
        return
    shown = catalog_of(region) if region else load()
    if region and shown.region != region:
        click.echo(f"note: nothing newer was refreshed for '{region}': this is as shipped", err=True)
    chosen = _choose(shown, family, type_name)
    wanted = None if requests is None else parse_requests(requests)
    if as_json:
        body = _types(chosen) if wanted is None else fits_document(chosen, wanted)
        click.echo(json.dumps({**_dates(shown), **body}, indent=2))
    elif wanted is None:
        _print_table(shown, chosen)
    else:
        _print_fits(shown, chosen, wanted)


def _choose(known: Catalog, family: str | None, type_name: str | None) -> list[InstanceType]:
    types = known.types.values()
    if type_name is not None and type_name not in known.types:
        raise SpecError(_unknown("instance type", type_name, known.types))
    families = dict.fromkeys(t.family for t in types)
    if family is not None and family not in families:
        raise SpecError(_unknown("family", family, families))
    chosen = [t for t in types if family in (None, t.family) and type_name in (None, t.name)]
    if not chosen:
        raise SpecError(f"{type_name} is not of family {family}")
    return chosen


def _unknown(what: str, written: str, known: Collection[str]) -> str:
    near = get_close_matches(written, known, n=1, cutoff=0.4)
    hint = f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(known)}"
    return f"unknown {what} '{written}'; {hint}"


def _dates(known: Catalog) -> dict[str, Any]:
    return {
        "types_as_of": known.types_as_of,
        "types_source": known.types_source,
        "region": known.region,
        "prices_as_of": known.prices_as_of,
        "price_lists": [
            {"kind": p.kind, "as_of": p.as_of, "region": p.region, "source": p.source}
            for p in known.price_lists
        ],
    }


def _types(types: Sequence[InstanceType]) -> dict[str, Any]:
    return {
        "types": [
            {
                **asdict(t),
                "allocatable": dict(t.allocatable),
                "whole_node_request": dict(whole_node_request(t)),
            }
            for t in types
        ],
    }


def _print_table(known: Catalog, types: Sequence[InstanceType]) -> None:
    shown_on = console()
    shown_on.print(_table(types))
    if any(t.ultraserver for t in types):
        shown_on.print("* sold only in UltraServers; the share of one instance", style="dim")
    _print_source(shown_on, known)
    for price_list in known.price_lists:
        _print_dates(shown_on, price_list)


def _print_fits(known: Catalog, types: Sequence[InstanceType], wanted: Amounts) -> None:
    shown_on = console()
    fits = fitting(types, wanted)
    shown_on.print(f"A pod of {in_words(wanted)}:", end="\n\n" if fits else " ")
    if not fits:
        shown_on.print(f"{why_none(types, wanted)}.")
        return
    shown_on.print(fits_table(fits, shown_on.width))
    shown_on.print(f"\n{suggestion(fits)}", soft_wrap=True)
    for price_list in known.price_lists:
        if price_list.kind == "on-demand":
            _print_dates(shown_on, price_list)


def _print_source(shown_on: Console, known: Catalog) -> None:
    where = f" in {known.region}, refreshed" if known.region else ", as shipped"
    shown_on.print(f"types of {known.types_as_of}{where}: {known.types_source}", style="dim")
    if not known.region and (others := regions()):
        shown_on.print(f"refreshed for {', '.join(others)}: --region shows it", style="dim")


def _print_dates(shown_on: Console, price_list: PriceList) -> None:
    where = "" if price_list.region == "not stated" else f" in {price_list.region}"
    said = f"{price_list.kind} prices of {price_list.as_of}{where}: {price_list.source}"
    shown_on.print(said, style="dim")


def _table(types: Sequence[InstanceType]) -> Table:
    figures = ("GPU GiB", "vCPU", "GiB", "EFA", "NVMe GB", "block $/h", "on-demand $/h")
    made = table("type", "accelerators", *figures, "whole-node request", right=figures)
    for t, following in zip(types, [*types[1:], None], strict=True):
        generation_ends = following is None or t.generation != following.generation
        made.add_row(*_cells(t), end_section=generation_ends)
    return made


def _cells(t: InstanceType) -> tuple[str, ...]:
    accelerator = t.accelerator
    return (
        t.name,
        f"{accelerator.count} x {accelerator.model}" if accelerator else "-",
        f"{accelerator.memory_mib / 1024:.0f}" if accelerator else "-",
        str(t.vcpus),
        str(t.memory_mib // 1024),
        str(t.efa or "-"),
        str(t.nvme_gb or "-"),
        usd_h(t.block_usd_h) + ("*" if t.ultraserver else ""),
        usd_h(t.on_demand_usd_h),
        _request(whole_node_request(t)),
    )


def _request(request: Amounts) -> str:
    return f"{amount(request, 'cpu') / 1000:g} CPU / {amount(request, 'memory') // GIB} GiB"


catalog.add_command(refresh)
