"""`tidemill catalog`: instance types, what pods can use of them, and their prices. `--fits`: types that hold a pod."""

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
    "--region",
    metavar="NAME",
    help="The refreshed catalog of this region, if there is one. Default: as shipped.",
)
@click.option("--category", metavar="NAME", help="Only this category, for example p or m.")
@click.option("--family", help="Only this family, for example p5 or g6e.")
@click.option("--type", "type_name", metavar="NAME", help="Only this type, for example p5.48xlarge.")
@click.option(
    "--fits",
    "requests",
    metavar="REQUESTS",
    help="Only types that hold this pod, cheapest first: gpu=1,cpu=4,memory=24Gi (also efa, neuron).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def catalog(
    ctx: click.Context, region: str | None, category: str | None, family: str | None, type_name: str | None,
    requests: str | None, as_json: bool,
) -> None:  # fmt: skip
    """List instance types, what pods can use of them, and prices.

    Types without accelerators are listed where --category, --family or --type names them, or with --fits.

    Prices are dollars per instance-hour; a Capacity Block is paid up front for its whole time. The whole-node request
    is what a pod should request to get a node for itself.

    With --fits: which types hold such a pod besides the usual daemon pods, how many of them, what one costs on a full
    node, and how many GPUs stay unused. The arrow marks the suggestion.

    The data ships with Tidemill, or was refreshed for the region, whichever is newer.
    """
    if ctx.invoked_subcommand is not None:
        ctx.obj = region
        return
    shown = catalog_of(region) if region else load()
    if region and shown.region != region:
        click.echo(
            f"note: there is no newer refreshed catalog for '{region}'; this is the shipped one", err=True
        )
    wanted = None if requests is None else parse_requests(requests)
    chosen = _choose(shown, category, family, type_name)
    if wanted is None and not (category or family or type_name):
        chosen = [t for t in chosen if t.accelerator is not None]
    if as_json:
        body = _types(chosen) if wanted is None else fits_document(chosen, wanted)
        click.echo(json.dumps({**_dates(shown), **body}, indent=2))
    elif wanted is None:
        _print_table(shown, chosen)
    else:
        _print_fits(shown, chosen, wanted)


def _choose(
    known: Catalog, category: str | None, family: str | None, type_name: str | None
) -> list[InstanceType]:
    types = known.types.values()
    for what, written, there in (
        ("instance type", type_name, list(known.types)),
        ("family", family, list(dict.fromkeys(t.family for t in types))),
        ("category", category, list(dict.fromkeys(t.category for t in types))),
    ):
        if written is not None and written not in there:
            raise SpecError(_unknown(what, written, there))
    chosen = [
        t
        for t in types
        if category in (None, t.category) and family in (None, t.family) and type_name in (None, t.name)
    ]
    if not chosen:
        raise SpecError("no type is all of that; leave one of --type, --family and --category out")
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
    stdout = console()
    stdout.print(_table(types))
    if any(t.ultraserver for t in types):
        stdout.print("* sold only in UltraServers; the price is the share of one instance", style="dim")
    _print_source(stdout, known)
    for price_list in known.price_lists:
        _print_dates(stdout, price_list)


def _print_fits(known: Catalog, types: Sequence[InstanceType], wanted: Amounts) -> None:
    stdout = console()
    fits = fitting(types, wanted)
    stdout.print(f"A pod of {requests_text(wanted)}:", end="\n\n" if fits else " ")
    if not fits:
        stdout.print(f"{why_nothing_fits(types, wanted)}.")
        return
    stdout.print(fits_table(fits[:_MOST_SHOWN], stdout.width))
    if len(fits) > _MOST_SHOWN:
        more = len(fits) - _MOST_SHOWN
        stdout.print(
            f"and {more} dearer types; narrow with --category or --family, or see all with --json",
            style="dim",
        )
    stdout.print(f"\n{suggestion_text(fits)}", soft_wrap=True)
    for price_list in known.price_lists:
        if price_list.kind == "on-demand":
            _print_dates(stdout, price_list)


def _print_source(stdout: Console, known: Catalog) -> None:
    where = f" in {known.region}, refreshed" if known.region else ", as shipped"
    stdout.print(f"types of {known.types_as_of}{where}: {known.types_source}", style="dim")
    if not known.region and (others := regions()):
        stdout.print(f"refreshed for {', '.join(others)}; show it with --region", style="dim")


def _print_dates(stdout: Console, price_list: PriceList) -> None:
    where = "" if price_list.region == "not stated" else f" in {price_list.region}"
    text = f"{price_list.kind} prices of {price_list.as_of}{where}: {price_list.source}"
    stdout.print(text, style="dim")


def _table(types: Sequence[InstanceType]) -> Table:
    figures = ("GPU GiB", "vCPU", "GiB", "EFA", "NVMe GB", "block $/h", "on-demand $/h")
    rows = table("type", "accelerators", *figures, "whole-node request", right=figures)
    for t, following in zip(types, [*types[1:], None], strict=True):
        generation_ends = following is None or t.generation != following.generation
        rows.add_row(*_cells(t), end_section=generation_ends)
    return rows


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
    return f"{amount(request, 'cpu') / 1000:g} CPU / {amount(request, 'memory') / GIB:g} GiB"


catalog.add_command(refresh)

# --- --fits -------------------------------------------------------------------------------------------


_FITS_EXAMPLE = 'write it like "gpu=1,cpu=4,memory=24Gi", with efa= or neuron= if needed'
_RESOURCES = {
    "gpu": names.NVIDIA_GPU,
    "cpu": names.CPU,
    "memory": names.MEMORY,
    "efa": names.EFA,
    "neuron": names.NEURON,
}
_KEYS = {resource: word for word, resource in _RESOURCES.items()}
_LABELS = {"gpu": "GPU", "cpu": "CPU", "memory": "memory", "efa": "EFA", "neuron": "Neuron"}
_MOST_SHOWN = 40  # every type with accelerators, and the cheaper ones of the others
_WIDE_TABLE = 96  # columns from which there is space for the last column


def parse_requests(written: str) -> Amounts:
    """Parse `gpu=1,cpu=4,memory=24Gi`; the resource names of Kubernetes work too."""
    wanted: dict[str, int] = {}
    for part in written.split(","):
        word, sign, value = (piece.strip() for piece in part.partition("="))
        if not (word and sign and value):
            raise SpecError(f"--fits: '{part.strip()}' is not RESOURCE=AMOUNT; {_FITS_EXAMPLE}")
        resource = word if word in _KEYS else _RESOURCES.get(word)
        if resource is None:
            near = get_close_matches(word, _RESOURCES, n=1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise SpecError(f"--fits: unknown resource '{word}'; {hint}{_FITS_EXAMPLE}")
        if resource in wanted:
            raise SpecError(f"--fits: '{word}' is there twice; write it once")
        wanted[resource] = _parse_amount(word, resource, value)
    if not any(wanted.values()):
        raise SpecError(f"--fits: the pod requests nothing; {_FITS_EXAMPLE}")
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
    """`1 GPU, 4 CPU, 24Gi memory`, accelerators first."""
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
    """One sentence: the request that no type can meet alone, or that no type meets all of them."""
    rooms = [instance_type.free_beside(dict(USUAL_DAEMONS)) for instance_type in types]
    for resource, wanted in sorted(requests, key=lambda request: list(_KEYS).index(request[0])):
        most = max(has.get(resource, 0) for has in rooms)
        if wanted > most:
            largest = format_memory(most // GIB * GIB) if resource == names.MEMORY else most
            most_text = format_cpu(most) if resource == names.CPU else str(largest)
            asked, word = _format_amount(resource, wanted), _LABELS[_KEYS[resource]]
            return f"no type holds it: it requests {asked} {word}, and no type has more than {most_text} for pods"
    return "no type holds it: for each resource some type has enough, but no type has enough of all"


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
    for heading in ("$/h", "pods", "$/h per pod", "unused GPUs"):
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
    """With tenths of a cent: small types differ by little more."""
    return "-" if price is None else f"{price:.3f}"


def suggestion_text(fits: Sequence[Fit]) -> str:
    """The cheapest type for one pod, and the cheaper one per pod when there are many."""
    alone, full = cheapest(fits), cheapest_when_full(fits)
    if alone is None or full is None:
        return "No on-demand price is known for these types, so none is suggested."
    text = f"→ {alone.type.name}: the cheapest on-demand type that holds one, ${usd_h(alone.usd_h)} per hour."
    if full.usd_h_per_pod is not None and full.usd_h_per_pod < (alone.usd_h_per_pod or 0.0):
        each = usd_h(full.usd_h_per_pod)
        text += f"\n  For {full.pods} such pods {full.type.name} is cheaper: ${each} per pod and hour on a full node."
    return text
