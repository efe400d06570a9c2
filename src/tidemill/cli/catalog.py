"""`tidemill catalog`: instance types, what pods get of them, and what they cost at which date."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from tidemill.catalog import Catalog, InstanceType, PriceList, load
from tidemill.catalog.fitting import Fit, cheapest, cheapest_when_full, fitting
from tidemill.catalog.sizing import GIB, USUAL_DAEMONS, whole_node_request
from tidemill.cli.region_catalog import catalog_of, refresh, regions
from tidemill.cli.terminal import console, table
from tidemill.model.errors import SpecError
from tidemill.model.resources import Amounts, amount
from tidemill.spec import names
from tidemill.spec.units import format_cpu, format_memory, parse_cpu, parse_memory

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
    shown_on.print(f"A pod of {requests_text(wanted)}:", end="\n\n" if fits else " ")
    if not fits:
        shown_on.print(f"{why_nothing_fits(types, wanted)}.")
        return
    shown_on.print(fits_table(fits, shown_on.width))
    shown_on.print(f"\n{suggestion_text(fits)}", soft_wrap=True)
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

# --- fits ---


_FITS_EXAMPLE = 'write it like "gpu=1,cpu=4,memory=24Gi", with efa= or neuron= where they are needed'
_RESOURCES = {
    "gpu": names.NVIDIA_GPU,
    "cpu": names.CPU,
    "memory": names.MEMORY,
    "efa": names.EFA,
    "neuron": names.NEURON,
}
_KEYS = {resource: word for word, resource in _RESOURCES.items()}
_LABELS = {"gpu": "GPU", "cpu": "CPU", "memory": "memory", "efa": "EFA", "neuron": "Neuron"}
_WIDE_TABLE = 96  # columns from which the table has room for what is left


def parse_requests(written: str) -> Amounts:
    """`gpu=1,cpu=4,memory=24Gi`; Kubernetes' own resource names are understood too."""
    wanted: dict[str, int] = {}
    for part in written.split(","):
        word, sign, value = (piece.strip() for piece in part.partition("="))
        if not (word and sign and value):
            raise SpecError(f"--fits: '{part.strip()}' is not a resource and an amount; {_FITS_EXAMPLE}")
        resource = word if word in _KEYS else _RESOURCES.get(word)
        if resource is None:
            near = get_close_matches(word, _RESOURCES, n=1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise SpecError(f"--fits: unknown resource '{word}'; {hint}{_FITS_EXAMPLE}")
        if resource in wanted:
            raise SpecError(f"--fits: '{word}' is there twice")
        wanted[resource] = _parse_amount(word, resource, value)
    if not any(wanted.values()):
        raise SpecError(f"--fits: a pod that asks for nothing fits everywhere; {_FITS_EXAMPLE}")
    return tuple(sorted(wanted.items()))


def _parse_amount(word: str, resource: str, value: str) -> int:
    try:
        if resource == names.CPU:
            return parse_cpu(value)
        if resource == names.MEMORY:
            return parse_memory(value)
    except ValueError as error:
        raise SpecError(f"--fits: {word}: {error}") from None
    if not (value.isascii() and value.isdigit()):
        raise SpecError(f"--fits: {word}: '{value}' is not a whole number of devices; write '{word}=1'")
    return int(value)


def requests_text(requests: Amounts) -> str:
    """`1 GPU, 4 CPU, 24Gi memory`: accelerators first, as people say it."""
    wanted = dict(requests)
    return ", ".join(
        f"{_format_amount(resource, wanted[resource])} {_LABELS[word]}"
        for word, resource in _RESOURCES.items()
        if wanted.get(resource)
    )


def _format_amount(resource: str, value: int) -> str:
    if resource == names.CPU:
        return format_cpu(value)
    return format_memory(value) if resource == names.MEMORY else str(value)


def why_nothing_fits(types: Sequence[InstanceType], requests: Amounts) -> str:
    """One sentence: which request is larger than any of these types can meet, or that it is their sum."""
    rooms = [one.free_beside(dict(USUAL_DAEMONS)) for one in types]
    for resource, wanted in sorted(requests, key=lambda one: list(_KEYS).index(one[0])):
        most = max(has.get(resource, 0) for has in rooms)
        if wanted > most:
            largest = format_memory(most // GIB * GIB) if resource == names.MEMORY else most
            told = format_cpu(most) if resource == names.CPU else str(largest)
            asked, word = _format_amount(resource, wanted), _LABELS[_KEYS[resource]]
            return f"no type holds it: it asks for {asked} {word} and the most any has for pods is {told}"
    return "no type holds it: some have enough of each resource, none of all of them at once"


def fits_document(types: Sequence[InstanceType], requests: Amounts) -> dict[str, Any]:
    fits = fitting(types, requests)
    alone, full = cheapest(fits), cheapest_when_full(fits)
    return {
        "request": dict(requests),
        "daemons": dict(USUAL_DAEMONS),
        "suggestion": alone.type.name if alone else None,
        "cheapest_when_full": full.type.name if full else None,
        "reason": "" if fits else why_nothing_fits(types, requests),
        "fits": [
            {
                "type": fit.type.name,
                "suggested": fit is alone,
                "on_demand_usd_h": fit.usd_h,
                "pods": fit.pods,
                "usd_h_per_pod": None if fit.usd_h_per_pod is None else round(fit.usd_h_per_pod, 6),
                "gpus_stranded": fit.stranded,
                "left": dict(fit.left),
            }
            for fit in fits
        ],
    }


def fits_table(fits: Sequence[Fit], width: int) -> Table:
    from tidemill.render.fitting_table import ruled

    table = ruled()
    table.add_column("", no_wrap=True)
    table.add_column("type", no_wrap=True)
    table.add_column("accelerators", no_wrap=True)
    for heading in ("$/h", "pods", "$/h a pod", "stranded"):
        table.add_column(heading, justify="right", no_wrap=True)
    if width >= _WIDE_TABLE:
        table.add_column("left when full", no_wrap=True)
    alone = cheapest(fits)
    for fit in fits:
        cells = _fit_cells(fit, fit is alone)[: len(table.columns)]
        table.add_row(*cells, style="bold" if fit is alone else "")
    return table


def _fit_cells(fit: Fit, suggested: bool) -> tuple[str, ...]:
    accelerator = fit.type.accelerator
    return (
        "→" if suggested else "",
        fit.type.name,
        f"{accelerator.count} x {accelerator.model}" if accelerator else "-",
        usd_h(fit.usd_h),
        str(fit.pods),
        usd_h(fit.usd_h_per_pod),
        str(fit.stranded or "-"),
        f"{amount(fit.left, 'cpu') // 100 / 10:g} CPU / {amount(fit.left, 'memory') // GIB} GiB",
    )


def usd_h(price: float | None) -> str:
    """Tenths of a cent: list prices have them, and small types differ by little more."""
    return "-" if price is None else f"{price:.3f}"


def suggestion_text(fits: Sequence[Fit]) -> str:
    """What to take, and where another is the better choice for many such pods."""
    alone, full = cheapest(fits), cheapest_when_full(fits)
    if alone is None or full is None:
        return "No on-demand price is known for any of them, so none is suggested."
    said = f"→ {alone.type.name}: the cheapest on demand that holds one, ${usd_h(alone.usd_h)} an hour."
    if full.usd_h_per_pod is not None and full.usd_h_per_pod < (alone.usd_h_per_pod or 0.0):
        each = usd_h(full.usd_h_per_pod)
        said += f"\n  For {full.pods} at once {full.type.name} is cheaper: ${each} a pod when full."
    return said
