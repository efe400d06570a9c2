"""`tidemill handover A B --dry-run`: how services will move from one block to the next.

The engine hands over by itself when the time comes. This verb shows the plan and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import click

from tidemill.cli.kube_session import LiveChoice, live_options
from tidemill.model.errors import SpecError

if TYPE_CHECKING:
    from tidemill.sim.scenario.rehearsal import Rehearsal

BY_ITSELF = (
    "The engine hands over by itself and starts early enough for each service's method; there is nothing to start by"
    " hand. Add --dry-run to see the steps."
)


@click.command(short_help="Show how services will move from one block to the next.")
@click.argument("before", metavar="A")
@click.argument("after", metavar="[B]", required=False, default="")
@click.option(
    "-f", "--file", "files", multiple=True, envvar="TIDEMILL_FILES", metavar="FILE",
    help="Documents with a Scenario, or `demo`; with --kube: the engine's documents. May be given several times.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show the steps. This verb never changes anything.")
@click.option(
    "--at",
    metavar="TIME",
    help="How far to play, such as 26h. Default: until the services on A are ready.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of all random draws."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@live_options
def handover(
    before: str, after: str, files: tuple[str, ...], dry_run: bool, at: str | None, seed: int, as_json: bool,
    live: LiveChoice | None,
) -> None:  # fmt: skip
    """Show how services will move from block A to block B (reservation ids, or names as `status` shows them).

    For each service on A: its method and what is missing for a better one, its minimum replicas, the overlap it needs
    and has, the time of each step, how long it would be below its minimum, and what would help at which price.
    Without B: services move to any capacity that lasts longer than A. With --kube --aws: in the running cluster now.
    """
    if not dry_run:
        click.echo(json.dumps({"dry_run": False, "said": BY_ITSELF}) if as_json else BY_ITSELF)
        return
    if not files:
        raise SpecError("no documents; name files with a Scenario: -f FILE, or -f demo")
    if live is not None:
        if at is not None:
            raise SpecError("--at works with scenarios only; --kube always shows the cluster as it is now")
        _show_live(files, before, after, live, as_json=as_json)
        return
    from tidemill.cli.playback import block_names, observe_and_decide
    from tidemill.render.display_names import DisplayNames
    from tidemill.render.handover_text import hand_over_text
    from tidemill.report.handover import hand_over

    rehearsal = _rehearsed(files, before, at, seed)
    first, second = _block(rehearsal, before), _block(rehearsal, after) if after else ""
    if first == second:
        raise SpecError(f"'{before}' and '{after}' are the same block")
    world, _ = observe_and_decide(rehearsal)
    report = hand_over(rehearsal.spec, world, first, second)
    if as_json:
        head = {"simulated": True, "scenario": rehearsal.scenario.name, "seed": seed}
        click.echo(json.dumps({**head, **report.as_json()}, indent=2))
        return
    names = DisplayNames(block_names(rehearsal))
    click.echo(f"SIMULATED  {rehearsal.scenario.name}, seed {seed}, {names.both(world.now)}\n")
    click.echo(hand_over_text(report, names))


def _show_live(files: tuple[str, ...], before: str, after: str, live: LiveChoice, *, as_json: bool) -> None:
    from tidemill.cli.live import live_session, look, show
    from tidemill.render.handover_text import hand_over_text
    from tidemill.report.handover import hand_over

    with live_session(files, live) as session:
        view = look(session)
        known = {name: row.id for row in view.status.blocks for name in (row.id, row.name)}
        first, second = _known_block(before, known), _known_block(after, known) if after else ""
        if first == second:
            raise SpecError(f"'{before}' and '{after}' are the same block")
        report = hand_over(session.spec, view.world, first, second)
        show(view, report.as_json(), lambda: hand_over_text(report, view.names), as_json=as_json)


def _known_block(written: str, known: Mapping[str, str], windows: Collection[str] = ()) -> str:
    if written in known:
        return known[written]
    from tidemill.spec.problem import suggestion

    names = sorted({*known, *windows})
    hint = suggestion(written, names) if names else "AWS shows no block of this deployment"
    raise SpecError(f"there is no block '{written}'; {hint}")


def _rehearsed(files: tuple[str, ...], before: str, at: str | None, seed: int) -> Rehearsal:
    from tidemill.cli.loading import load_scenario
    from tidemill.cli.playback import run_until
    from tidemill.cli.status import parse_at
    from tidemill.sim.scenario.rehearsal import Rehearsal

    spec, document = load_scenario(files)
    rehearsal = Rehearsal(spec, document, seed)
    if at is None:
        _run_until_known(rehearsal, before)
        _run_until_ready(rehearsal, _block(rehearsal, before))
    else:
        run_until(rehearsal, parse_at(at, document))
    return rehearsal


def _block(rehearsal: Rehearsal, written: str) -> str:
    """A reservation's id, from its id or the name that `status` shows: of the scenario, or of its demand window."""
    known = _names(rehearsal)
    if written in _windows(rehearsal) and written not in known:
        raise SpecError(f"no block is bought for the window '{written}' by then")
    return _known_block(written, known, _windows(rehearsal))


def _names(rehearsal: Rehearsal) -> dict[str, str]:
    ids = {block.id: block.id for block in rehearsal.cloud.all_reservations()}
    bought = {
        intent.window: id_ for intent in rehearsal.ledger.purchases() for id_ in intent.reservation_ids[:1]
    }
    return {**ids, **bought, **rehearsal.cloud.names}


def _windows(rehearsal: Rehearsal) -> set[str]:
    return {window.name for plan in rehearsal.spec.plans.values() for window in plan.spec.demand}


def _run_until_known(rehearsal: Rehearsal, written: str) -> None:
    """A block that is bought in the scenario has no name before that."""
    windows = _windows(rehearsal)
    while written in windows and written not in _names(rehearsal) and rehearsal.step():
        pass


def _run_until_ready(rehearsal: Rehearsal, block: str) -> None:
    """Play until every pod on the block is ready; to the end of the scenario if that never happens."""
    cluster = rehearsal.cluster
    while rehearsal.step():
        nodes = {node.name for node in cluster.nodes.values() if node.source == block}
        here = [
            pod for pod in cluster.pods.values() if pod.node in nodes and not pod.daemon and not pod.pinned_to
        ]
        if here and all(pod.ready for pod in here):
            return
