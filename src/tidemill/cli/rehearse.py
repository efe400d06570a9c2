"""`tidemill rehearse`: run a scenario in virtual time and report the outcome."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path

import click

from tidemill.cli import EXIT_FAILED, EXIT_NOT_SERVED
from tidemill.cli.kube_session import CONTEXT, KUBECONFIG, LiveChoice
from tidemill.cli.loading import load_scenario, load_spec
from tidemill.cli.session import LEDGER
from tidemill.cli.terminal import duration_s
from tidemill.model.errors import InvariantViolated, SpecError
from tidemill.sim.scenario.outcome import Outcome
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.sim.scenario.tally import tally


@click.command(short_help="Run a scenario in virtual time.")
@click.argument("scenario", nargs=-1, metavar="SCENARIO…")
@click.option(
    "--from", "recording", metavar="DIR|FILE", type=click.Path(exists=True, path_type=Path),
    help="Begin with what a recording saw; without SCENARIO by the documents that were recorded.",
)  # fmt: skip
@click.option("--at", metavar="TIME", help="With --from: which instant. Default: the last.")
@click.option(
    "--from-live", is_flag=True,
    help="Begin with what is true in the cluster and the account now. They are only read.",
)  # fmt: skip
@click.option(
    "--for", "length_s", callback=duration_s, metavar="TIME",
    help="With --from and --from-live: how long to play. Default: as SCENARIO says, or 24h.",
)  # fmt: skip
@KUBECONFIG
@CONTEXT
@LEDGER
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of all random draws."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Also write an HTML report to this file."
)
@click.pass_context
def rehearse(
    ctx: click.Context, scenario: tuple[str, ...], recording: Path | None, at: str | None, from_live: bool,
    length_s: float | None, kubeconfig: str | None, context: str | None, ledger_url: str, seed: int, as_json: bool,
    html: Path | None,
) -> None:  # fmt: skip
    """Rehearse SCENARIO (YAML files, or `demo`).

    The production engine runs the whole scenario on a simulated AWS and a simulated cluster. The same files and seed
    give the same result. The verdict has three parts: safe (no invariant was violated), served (services up, jobs done,
    demand windows covered) and worth it (cheaper than the same work on demand). Exits 1 if it is not safe, 6 if it is
    safe but not served. Whether it is worth it does not change the exit code.

    With --from or --from-live it begins with the blocks, nodes, running and waiting pods of that instant; SCENARIO may
    then be documents without a Scenario, and nothing new arrives. What is not as it was is listed on stderr.
    """
    live = LiveChoice(kubeconfig, context, ledger_url) if from_live else None
    if html is not None and not html.parent.is_dir():  # check before the rehearsal, not after it
        raise SpecError(f"cannot write {html}: there is no folder {html.parent}; create it first")
    if html is not None and html.resolve() in {Path(name).resolve() for name in scenario}:
        raise SpecError(f"{html} is a scenario file; name another file for the report")
    rehearsal = _open(scenario, recording, at, live, length_s, seed)
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


def _open(
    files: tuple[str, ...], recording: Path | None, at: str | None, live: LiveChoice | None,
    length_s: float | None, seed: int,
) -> Rehearsal:  # fmt: skip
    if recording is None and live is None:
        if not files:
            raise SpecError("name a SCENARIO (YAML files, or `demo`), or begin with --from or --from-live")
        if at is not None or length_s is not None:
            raise SpecError(
                "--at and --for go with --from or --from-live; a Scenario says its own start and duration"
            )
        spec, document = load_scenario(files)
        return Rehearsal(spec, document, seed)
    from tidemill.cli.beginning import begin_live, begin_recorded, print_not_carried_over, scenario_from

    if recording is not None and live is not None:
        raise SpecError("--from and --from-live are two beginnings; leave one out")
    if live is not None and not files:
        raise SpecError("--from-live needs the documents: tidemill rehearse --from-live FILE…")
    given, written = load_spec(files) if files else (None, None)
    if recording is not None:
        spec, beginning = begin_recorded(recording, at)
        spec = given if given is not None else spec
    else:
        assert live is not None
        spec, beginning = begin_live(files, live)
    length = None if length_s is None else timedelta(seconds=length_s)
    scenario = scenario_from(beginning.world.now, length, written)
    rehearsal = Rehearsal(spec, scenario, seed, initial=beginning)
    print_not_carried_over(rehearsal.not_carried_over)
    return rehearsal


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
