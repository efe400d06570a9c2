"""`tidemill handover A B --dry-run`: how services would move from one block to the next, before they do.

The engine hands over by itself when the time comes. This verb only looks.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from tidemill.model.errors import SpecError

if TYPE_CHECKING:
    from tidemill.sim.scenario.rehearsal import Rehearsal

BY_ITSELF = (
    "The engine hands over by itself: it starts early enough for the method of each service, and nothing has to be"
    " asked for. Add --dry-run to see how it will go."
)


@click.command(short_help="Show how services will move from one block to the next.")
@click.argument("before", metavar="A")
@click.argument("after", metavar="[B]", required=False, default="")
@click.option(
    "-f", "--file", "files", multiple=True, envvar="TIDEMILL_FILES", metavar="FILE",
    help="Documents with a Scenario, or `demo`. May be given several times.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True, help="Show it. Without this nothing is shown, and nothing is ever done."
)
@click.option(
    "--at",
    metavar="TIME",
    help="How far to play, such as 26h. Default: until a service runs on A and is ready.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Draws everything random."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def handover(
    before: str, after: str, files: tuple[str, ...], dry_run: bool, at: str | None, seed: int, as_json: bool
) -> None:
    """Show how services will move from block A to block B (names or reservation ids).

    For each service on A: its method and what that lacks, its minimum, the overlap it needs and has, when each step
    happens, for how long it would be short, and what would help at which price. Without B: to whatever lasts.
    """
    if not dry_run:
        click.echo(json.dumps({"dry_run": False, "said": BY_ITSELF}) if as_json else BY_ITSELF)
        return
    if not files:
        raise SpecError("there is nothing to look at: name documents with a Scenario, -f FILE, or -f demo")
    from tidemill.cli.playback import called, glimpse
    from tidemill.render.handover_text import hand_over_text
    from tidemill.render.names import Names
    from tidemill.report.handover import hand_over

    rehearsal = _played(files, before, at, seed)
    first, second = _block(rehearsal, before), _block(rehearsal, after) if after else ""
    if first == second:
        raise SpecError(f"'{before}' and '{after}' are the same block")
    world, _ = glimpse(rehearsal)
    report = hand_over(rehearsal.spec, world, first, second)
    if as_json:
        head = {"simulated": True, "scenario": rehearsal.scenario.name, "seed": seed}
        click.echo(json.dumps({**head, **report.as_json()}, indent=2))
        return
    names = Names(called(rehearsal))
    click.echo(f"SIMULATED  {rehearsal.scenario.name}, seed {seed}, {names.both(world.now)}\n")
    click.echo(hand_over_text(report, names))


def _played(files: tuple[str, ...], before: str, at: str | None, seed: int) -> Rehearsal:
    from tidemill.cli.loading import load_scenario
    from tidemill.cli.playback import run_until
    from tidemill.cli.status import instant
    from tidemill.sim.scenario.rehearsal import Rehearsal

    spec, document = load_scenario(files)
    rehearsal = Rehearsal(spec, document, seed)
    if at is None:
        _until_it_serves(rehearsal, _block(rehearsal, before))
    else:
        run_until(rehearsal, instant(at, document))
    return rehearsal


def _block(rehearsal: Rehearsal, written: str) -> str:
    """The id of a reservation by its name in the scenario, or by its id."""
    names = rehearsal.cloud.names
    ids = {one.id for one in rehearsal.cloud.all_reservations()}
    if written in names:
        return names[written]
    if written in ids:
        return written
    from tidemill.spec.problem import suggestion

    raise SpecError(f"there is no block '{written}'; {suggestion(written, sorted({*names, *ids}))}")


def _until_it_serves(rehearsal: Rehearsal, block: str) -> None:
    """Until every replica on the block is ready, or as long as the scenario lasts if none ever is."""
    on = rehearsal.cluster
    while rehearsal.step():
        nodes = {node.name for node in on.nodes.values() if node.source == block}
        here = [pod for pod in on.pods.values() if pod.node in nodes and not pod.daemon and not pod.pinned_to]
        if here and all(pod.ready for pod in here):
            return
