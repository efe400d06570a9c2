"""`tidemill plan-blocks`: what the purchase planner would buy at one instant of a rehearsal, and why. Buys nothing."""

from __future__ import annotations

import click

from tidemill.cli.status import instant_options


@click.command(short_help="Show which blocks the planner would buy, and why.")
@click.argument("files", nargs=-1, required=True, metavar="SCENARIO…")
@instant_options
def plan_blocks(files: tuple[str, ...], at: str | None, seed: int, as_json: bool) -> None:
    """Show the cheapest blocks that cover the demand of the plans: what to buy, the runner-up, what would change it.

    Buys nothing. Plays SCENARIO (YAML files) to --at, searches its market and plans everything again at that instant.
    Where a block ends and its capacity is still needed, it shows four ways to avoid downtime, with their prices.
    """
    from tidemill.cli.loading import load_scenario
    from tidemill.cli.playback import observe_and_decide, reservation_names, run_until
    from tidemill.cli.status import parse_at, print_json, print_text
    from tidemill.cli.terminal import progress
    from tidemill.decide.read_models import NO_SOLVER, solver_installed
    from tidemill.model.errors import SpecError
    from tidemill.render.display_names import DisplayNames
    from tidemill.render.outlook_text import outlook_text
    from tidemill.report.purchase_outlook import outlook
    from tidemill.sim.scenario.rehearsal import Rehearsal

    if not solver_installed():  # said before the rehearsal runs
        raise SpecError(NO_SOLVER)
    spec, document = load_scenario(files)
    rehearsal = Rehearsal(spec, document, seed)
    run_until(rehearsal, parse_at(at, document))
    world, _ = observe_and_decide(rehearsal)
    with progress("Searching") as show:
        result = outlook(spec, world, rehearsal.cloud, show)
    if as_json:
        print_json(document.name, seed, result.as_json())
        return
    windows = {intent.id: intent.window for intent in rehearsal.ledger.purchases()}
    blocks = {
        block.id: windows[block.intent_id] for block in world.reservations if block.intent_id in windows
    }
    names = DisplayNames({**blocks, **windows, **reservation_names(rehearsal)})
    print_text(document.name, seed, names.both(result.at), outlook_text(result, names))
