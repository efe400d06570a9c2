"""`python -m benchmarks pack|decide`: how fast and how well pods are packed, on workloads anybody can repeat."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from benchmarks.packing_run import Packing

DEFAULT_PODS = 5_000
FAULTS_SHOWN = 5
COLUMNS = ("mix", "solver", "pods", "pods/s", "nodes", "$/h", "bound", "over", "unplaced", "checked")


@click.group()
def bench() -> None:
    """Measure the packing of pods, and check what comes out."""


@bench.command()
@click.option(
    "--pods", type=click.IntRange(min=1), default=DEFAULT_PODS, show_default=True, help="How many pods."
)
@click.option(
    "--mix", "mixes", multiple=True, metavar="NAME", help="Which mix; repeat for several. Default: all."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the pods that are drawn.")
@click.option(
    "--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="Time the best of so many."
)
@click.option("--solver", type=click.Choice(["tidemill", "first-fit"]), default="tidemill", show_default=True)
@click.option("--reference", is_flag=True, help="Run plain first-fit beside it. Slow: it tries every node.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def pack(
    ctx: click.Context,
    pods: int,
    mixes: tuple[str, ...],
    seed: int,
    repeat: int,
    solver: str,
    reference: bool,
    as_json: bool,
) -> None:
    """Pack the pods of a mix into nodes; time it, check every rule, compare the price with a lower bound.

    Fails if an answer breaks a rule.
    """
    from benchmarks.mixes import MIXES
    from benchmarks.packing_run import measure

    solvers = tuple(dict.fromkeys((solver, "first-fit"))) if reference else (solver,)
    results: list[Packing] = []
    for mix in mixes or MIXES:
        results += measure(mix, pods, seed=seed, repeat=repeat, solvers=solvers)
    if as_json:
        documents = [_document(result) for result in results]
        click.echo(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))
    else:
        _print_table(results)
    broken = [fault for result in results for fault in result.faults]
    if broken:
        sentences = "; ".join(fault.sentence for fault in broken[:FAULTS_SHOWN])
        click.echo(f"error: {len(broken)} rules are broken: {sentences}", err=True)
        ctx.exit(1)


@bench.command()
@click.option("--nodes", type=click.IntRange(min=1), default=5_000, show_default=True)
@click.option(
    "--running", type=click.IntRange(min=0), default=50_000, show_default=True, help="Pods on them."
)
@click.option(
    "--pending", type=click.IntRange(min=0), default=1_000, show_default=True, help="Pods that wait."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def decide(nodes: int, running: int, pending: int, as_json: bool) -> None:
    """Time one whole decision on a large cluster: the first, and one that follows it."""
    import resource

    from benchmarks.decision import measure

    timing = asdict(measure(nodes, running, pending))
    timing["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    if as_json:
        click.echo(json.dumps(timing, indent=2))
    else:
        for name, value in timing.items():
            click.echo(f"{name:>10}  {value:,}")


def _document(result: Packing) -> dict[str, Any]:
    document = asdict(result)
    document["faults"] = document["faults"][:FAULTS_SHOWN]
    return document


def _print_table(results: Iterable[Packing]) -> None:
    from tidemill.cli.terminal import console, table

    words = ("mix", "solver", "checked")
    made = table(*COLUMNS, right=tuple(heading for heading in COLUMNS if heading not in words))
    for result in results:
        made.add_row(*_cells(result))
    console().print(made)


def _cells(result: Packing) -> tuple[str, ...]:
    over = (
        f"{result.price / result.lower_bound - 1:+.1%}" if result.lower_bound and not result.unplaced else "-"
    )
    return (
        result.mix,
        result.solver,
        f"{result.pods:,}",
        f"{result.pods_per_s:,.0f}",
        f"{result.nodes:,}",
        f"{result.price:,.2f}",
        f"{result.lower_bound:,.2f}",
        over,
        f"{result.unplaced:,}" + (f" ({result.overlooked:,} placeable)" if result.overlooked else ""),
        "sound" if result.checked else f"{len(result.faults)} faults",
    )


if __name__ == "__main__":
    bench()
