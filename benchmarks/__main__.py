"""`python -m benchmarks pack|decide`: how fast and how well pods are packed, on workloads anybody can repeat.

Exit codes: 0 done, 1 a placement breaks a rule, 2 a mistake in the arguments.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from tidemill.model.errors import SpecError

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

    Fails if a placement breaks a rule.
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
    "--running", type=click.IntRange(min=0), default=50_000, show_default=True, help="Pods on the nodes."
)
@click.option("--pending", type=click.IntRange(min=0), default=1_000, show_default=True, help="Pending pods.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def decide(nodes: int, running: int, pending: int, as_json: bool) -> None:
    """Time one whole decision on a large cluster: the first, and one that follows it."""
    from benchmarks.decision import report

    click.echo(report(nodes, running, pending, as_json=as_json))


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


def main(arguments: Sequence[str]) -> int:
    """Run a command; a mistake in the arguments is one line on stderr."""
    try:
        return bench.main(list(arguments), prog_name="python -m benchmarks", standalone_mode=False) or 0
    except click.ClickException as mistake:
        click.echo(f"error: {mistake.format_message()}", err=True)
    except SpecError as mistake:
        click.echo(f"error: {mistake}", err=True)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
