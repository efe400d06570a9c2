"""`tidemill rehearse`: run a scenario in virtual time and report the outcome."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from tidemill.cli import EXIT_FAILED, EXIT_NOT_SERVED
from tidemill.cli.loading import load_scenario
from tidemill.model.errors import InvariantViolated, SpecError
from tidemill.sim.scenario.outcome import Outcome
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.sim.scenario.tally import tally


@click.command(short_help="Run a scenario in virtual time.")
@click.argument("scenario", nargs=-1, required=True, metavar="SCENARIO…")
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of all random draws."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Also write an HTML report to this file."
)
@click.pass_context
def rehearse(
    ctx: click.Context, scenario: tuple[str, ...], seed: int, as_json: bool, html: Path | None
) -> None:
    """Rehearse SCENARIO (YAML files, or `demo`).

    The production engine runs the whole scenario on a simulated AWS and a simulated cluster. The same files and seed
    give the same result. The verdict has three parts: safe (no invariant was violated), served (services up, jobs done,
    demand windows covered) and worth it (cheaper than the same work on demand). Exits 1 if it is not safe, 6 if it is
    safe but not served. Whether it is worth it does not change the exit code.
    """
    if html is not None and not html.parent.is_dir():  # check before the rehearsal, not after it
        raise SpecError(f"cannot write {html}: there is no folder {html.parent}; create it first")
    if html is not None and html.resolve() in {Path(name).resolve() for name in scenario}:
        raise SpecError(f"{html} is a scenario file; name another file for the report")
    spec, document = load_scenario(scenario)
    rehearsal = Rehearsal(spec, document, seed)
    outcome = run(rehearsal, scenario)
    if html is not None:
        from tidemill.render.rehearsal_page import page

        _write(html, page(outcome))
    if as_json:
        click.echo(json.dumps(outcome.as_json(), indent=2))
    else:
        _print_summary(outcome)
        if html is not None:
            click.echo(f"Report: {html}")
    if not outcome.verdict.safe:
        ctx.exit(EXIT_FAILED)
    if not outcome.verdict.served:
        ctx.exit(EXIT_NOT_SERVED)


def run(rehearsal: Rehearsal, files: tuple[str, ...]) -> Outcome:
    """Run to the end or to the first violation, with a progress bar on a terminal."""
    from tidemill.cli.terminal import progress

    began = time.perf_counter()
    violation: InvariantViolated | None = None
    try:
        with progress("Rehearsing") as show:
            rehearsal.run(show)
    except InvariantViolated as caught:
        violation = caught
    wall_s = time.perf_counter() - began
    return tally(rehearsal, scenario=" ".join(files), files=files, wall_s=wall_s, violation=violation)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SpecError(f"cannot write {path}: {error.strerror or error}") from error


def _print_summary(outcome: Outcome) -> None:
    from rich.console import Console

    from tidemill.render.rehearsal_text import summary

    console = Console()
    console.print(summary(outcome, console.width, console.is_terminal))
