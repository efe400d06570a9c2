"""`tidemill status`, `plan` and `why`: one instant, looked at.

The instant is what a running `tidemill up` shows, or, with files, the one a rehearsal has reached at `--at`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tidemill.model.errors import SpecError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tidemill.cli.snapshot_file import Look
    from tidemill.render.names import Names
    from tidemill.spec.scenario import Scenario

F = TypeVar("F", bound=Callable[..., Any])


def instant_options(verb: F) -> F:
    """What says which instant is meant."""
    at = click.option(
        "--at", metavar="TIME", help="With files: how far to play, such as 26h. Default: the start."
    )
    seed = click.option(
        "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="With files."
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
    return at(seed(as_json(verb)))


@click.command(short_help="Show pools, nodes, blocks and what is waiting.")
@click.argument("files", nargs=-1, metavar="[SCENARIO…]")
@instant_options
def status(files: tuple[str, ...], at: str | None, seed: int, as_json: bool) -> None:
    """Show pools, blocks, nodes, what waits and the money.

    Without files: the instant a running `tidemill up` shows. With SCENARIO (YAML files, or `demo`): the
    instant a rehearsal has reached at --at.
    """
    from tidemill.render.status_text import status_text

    look = _look(files, at, seed)
    if as_json:
        _print_json(look, look.status.as_json())
    else:
        _print(look, status_text(look.status, _names(look)))


@click.command(short_help="Show what the engine would do next, and why.")
@click.argument("files", nargs=-1, metavar="[SCENARIO…]")
@instant_options
@click.option("--aws", is_flag=True, help="What would change in the account that your credentials reach.")
def plan(files: tuple[str, ...], at: str | None, seed: int, as_json: bool, aws: bool) -> None:
    """Show what the engine would do next, with its reasons, and what waits. Nothing is done.

    Templates, groups, node groups and Karpenter's objects that are not as the documents and the blocks want them are
    listed: what would be created, changed and removed.

    Without files: at the instant a running `tidemill up` shows. With SCENARIO (YAML files, or `demo`): at the
    instant a rehearsal has reached at --at. With --aws the files are documents, and what would change in the account
    is shown; pods are not looked at.
    """
    from tidemill.render.status_text import plan_text

    if aws:
        from tidemill.cli.plan_account import plan_account

        if at is not None:
            raise SpecError("--at is for scenarios: an account is looked at as it is now")
        if not files:
            raise SpecError("name the documents that the account is compared with: tidemill plan --aws FILE…")
        plan_account(files, as_json=as_json)
        return
    look = _look(files, at, seed)
    if as_json:
        _print_json(look, look.next.as_json())
    else:
        _print(look, plan_text(look.next))


@click.command(short_help="Say in one sentence why a pod is pending.")
@click.argument("pod", metavar="POD")
@click.argument("files", nargs=-1, metavar="[SCENARIO…]")
@instant_options
def why(pod: str, files: tuple[str, ...], at: str | None, seed: int, as_json: bool) -> None:
    """Say why POD waits, or where it runs and until when; and the cheapest type that would hold it.

    POD is a name, namespace/name, or the beginning of one. The name of a job, a job stream or a service stands
    for the first of its pods that waits. Without files: at the instant a running `tidemill up` shows. With
    SCENARIO (YAML files, or `demo`): at the instant a rehearsal reached at --at.
    """
    from tidemill.cli.find_pod import find
    from tidemill.render.price_text import price_words
    from tidemill.render.status_text import why_text
    from tidemill.report.rows import plain

    if not files and Path(pod).is_file():
        raise SpecError(f"{pod} is a file: name the pod before it, tidemill why POD {pod}")
    look = _look(files, at, seed)
    found, others_wait = find(pod, look.pods)
    if as_json:
        _print_json(look, {"at": plain(look.status.at), "pod": plain(found)})
    else:
        click.echo(why_text(found, _names(look)))
        if priced := price_words(found.price):
            click.echo(priced)
        if others_wait:
            click.echo(f"{others_wait} more {'pod' if others_wait == 1 else 'pods'} of {pod} wait too.")


# --- which instant ------------------------------------------------------------------------------------


def _look(files: tuple[str, ...], at: str | None, seed: int) -> Look:
    if files:
        return _rehearsed(files, at, seed)
    if at is not None:
        raise SpecError("--at needs a scenario to play: name a file, or `demo`")
    from tidemill.cli.snapshot_file import read

    look = read()
    if look is None:
        raise SpecError(
            "there is nothing to look at: start `tidemill up` in another terminal, or name a scenario and an "
            "instant, for example: tidemill status demo --at 12h25m"
        )
    return look


def _rehearsed(files: tuple[str, ...], at: str | None, seed: int) -> Look:
    from tidemill.cli.loading import load_scenario
    from tidemill.cli.playback import run_until
    from tidemill.cli.snapshot_file import look
    from tidemill.sim.scenario.rehearsal import Rehearsal

    spec, document = load_scenario(files)
    until = instant(at, document)
    rehearsal = Rehearsal(spec, document, seed)
    run_until(rehearsal, until)
    return look(rehearsal, document.name)


def instant(at: str | None, scenario: Scenario) -> datetime:
    """`26h` from the scenario's start, or an instant such as 2026-11-17T11:00:00Z."""
    from tidemill.spec.units import format_duration, format_instant, parse_duration, parse_instant

    start, end = scenario.spec.start, scenario.spec.start + scenario.spec.duration
    if at is None:
        return start
    try:
        found = parse_instant(at) if "T" in at else start + parse_duration(at)
    except ValueError as error:
        raise SpecError(f"--at: {error}") from error
    if not start <= found <= end:
        lasts = f"{format_duration(scenario.spec.duration)} from {format_instant(start)}"
        raise SpecError(f"--at: '{at}' is outside the scenario, which lasts {lasts}")
    return found.replace(microsecond=0)


# --- printing -----------------------------------------------------------------------------------------


def _names(look: Look) -> Names:
    from tidemill.render.names import Names

    return Names({row.id: row.name for row in look.status.blocks})


def _print(look: Look, body: RenderableType) -> None:
    print_text(look.scenario, look.seed, _names(look).both(look.status.at), body)


def print_text(scenario: str, seed: int, at: str, body: RenderableType) -> None:
    from tidemill.cli.tables import console

    shown_on = console()
    shown_on.print(f"SIMULATED  {scenario}, seed {seed}, {at}\n", style="bright_black")
    shown_on.print(body)


def _print_json(look: Look, body: dict[str, Any]) -> None:
    print_json_of(look.scenario, look.seed, body)


def print_json_of(scenario: str, seed: int, body: dict[str, Any]) -> None:
    head = {"simulated": True, "scenario": scenario, "seed": seed}
    click.echo(json.dumps({**head, **body}, indent=2))
