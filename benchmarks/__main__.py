"""`python -m benchmarks decide`: the time of a whole decision. Exit codes: 0 done, 2 a mistake in the arguments."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from tidemill.model.errors import SpecError


@click.group()
def bench() -> None:
    """Measure a whole decision; `tidemill bench` measures packing."""


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
