"""`tidemill bench`: how fast and how well pods are packed on this machine, on workloads that anybody can repeat."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tidemill.bench.packing_run import Packing

SIZES = (5_000, 20_000, 100_000)
FAULTS_SHOWN = 5
COLUMNS = (
    "mix",
    "solver",
    "pods",
    "pods/s",
    "of smallest",
    "nodes",
    "$/h",
    "over bound",
    "unplaced",
    "checked",
)
WORDS = ("mix", "solver", "checked")


@click.group(short_help="Measure how fast and how well pods are packed.")
def bench() -> None:
    """Measure how fast and how well pods are packed on this machine, and check what comes out."""


@bench.command(short_help="Pack the pods of some mixes and check the result.")
@click.option(
    "--pods", "sizes", type=click.IntRange(min=1), multiple=True, default=SIZES, show_default=True,
    metavar="COUNT", help="How many pods; repeat for several sizes.",
)  # fmt: skip
@click.option(
    "--mix", "mixes", multiple=True, metavar="NAME", help="A mix of pods; repeat for several. Default: all."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the random pods.")
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Take the fastest of so many runs.",
)
@click.option("--solver", type=click.Choice(["tidemill", "first-fit"]), default="tidemill", show_default=True)
@click.option("--reference", is_flag=True, help="Also run plain first fit. Slow: it tries every node.")
@click.option(
    "--compare", "before", type=click.Path(path_type=Path), metavar="CHECKOUT",
    help="Also run the packer of another checkout of Tidemill on the same pods.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def pack(
    ctx: click.Context,
    sizes: tuple[int, ...],
    mixes: tuple[str, ...],
    seed: int,
    repeat: int,
    solver: str,
    reference: bool,
    before: Path | None,
    as_json: bool,
) -> None:
    """Pack the pods of some mixes into nodes; time it, check every rule, compare the price with a lower bound.

    Speed is pods for each second of CPU time, beside the speed of the same mix at the smallest size. Exit code 1: a
    placement breaks a rule. All mixes at all sizes take some minutes, most of them for the bounds.
    """
    from tidemill.bench.mixes import MIXES, named
    from tidemill.bench.packing_run import measure
    from tidemill.cli.terminal import progress

    solvers = tuple(dict.fromkeys((solver, "first-fit"))) if reference else (solver,)
    runs = [(mix, pods) for mix in named(mixes) or MIXES for pods in sorted(set(sizes))]
    results: list[Packing] = []
    done, total = 0, sum(pods for _, pods in runs)
    with progress("packing") as show:
        for mix, pods in runs:
            results += measure(mix, pods, seed=seed, repeat=repeat, solvers=solvers, before=before)
            done += pods
            if show is not None:
                show(done / total)
    if as_json:
        click.echo(json.dumps({"packings": _documents(results)}, indent=2))
    else:
        _print_table(results)
    broken = [fault for result in results for fault in result.faults]
    if broken:
        sentences = "; ".join(fault.sentence for fault in broken[:FAULTS_SHOWN])
        click.echo(f"error: {len(broken)} rules are broken: {sentences}", err=True)
        ctx.exit(1)


def _speed_shares(results: Iterable[Packing]) -> Iterable[tuple[Packing, float]]:
    """Each with its speed over that of its mix at the smallest size, which is measured first."""
    first: dict[tuple[str, str], float] = {}
    for result in results:
        yield (
            result,
            result.pods_per_cpu_s / first.setdefault((result.mix, result.solver), result.pods_per_cpu_s),
        )


def _documents(results: list[Packing]) -> list[dict[str, Any]]:
    return [
        asdict(result)
        | {
            "faults": [asdict(fault) for fault in result.faults[:FAULTS_SHOWN]],
            "speed_share": round(share, 4),
            "over_bound": result.over_bound,
        }
        for result, share in _speed_shares(results)
    ]


def _print_table(results: list[Packing]) -> None:
    from tidemill.cli.terminal import console, table

    made = table(*COLUMNS, right=tuple(heading for heading in COLUMNS if heading not in WORDS))
    for result, share in _speed_shares(results):
        made.add_row(
            result.mix,
            result.solver,
            f"{result.pods:,}",
            f"{result.pods_per_cpu_s:,.0f}",
            f"{share:.0%}",
            f"{result.nodes:,}",
            f"{result.price:,.2f}",
            f"{result.over_bound:+.1%}" if result.over_bound is not None else "-",
            f"{result.unplaced:,}" + (f" ({result.overlooked:,} placeable)" if result.overlooked else ""),
            _judgement(result),
        )
    console().print(made)


def _judgement(result: Packing) -> str:
    if not result.judged:
        return "-"
    return "sound" if result.checked else f"{len(result.faults)} faults"
