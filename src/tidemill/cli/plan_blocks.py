"""`tidemill plan-blocks`: what the purchase planner would buy at an instant, and why. Reads only."""

from __future__ import annotations

import click

from tidemill.cli.status import instant_options


@click.command(short_help="Show which blocks the planner would buy, and why.")
@click.argument("files", nargs=-1, required=True, metavar="SCENARIO…")
@instant_options
def plan_blocks(files: tuple[str, ...], at: str | None, seed: int, as_json: bool) -> None:
    """Show the cheapest cover of the plans' demand: what to buy, the runner-up, what would change it. Buys nothing.

    With SCENARIO (YAML files): a rehearsal is played to --at, its market is searched, and everything is planned anew at
    that instant. Each place where one block ends and is still needed is told with the four ways to zero downtime and
    their prices. Needs the extra `plan`: pip install 'tidemill[plan]'.
    """
    from tidemill.cli.loading import load_scenario
    from tidemill.cli.playback import called, glimpse, run_until
    from tidemill.cli.progress import progress
    from tidemill.cli.status import instant, print_json_of, print_text
    from tidemill.decide.purchasing.planner.mip_solver import without_solver
    from tidemill.model.errors import SpecError
    from tidemill.render.names import Names
    from tidemill.render.outlook_text import outlook_text
    from tidemill.report.purchase_outlook import outlook
    from tidemill.sim.scenario.rehearsal import Rehearsal

    if missing := without_solver():
        raise SpecError(missing)
    spec, document = load_scenario(files)
    rehearsal = Rehearsal(spec, document, seed)
    run_until(rehearsal, instant(at, document))
    world, _ = glimpse(rehearsal)
    with progress("Searching") as show:
        told = outlook(spec, world, rehearsal.cloud, show)
    if as_json:
        print_json_of(document.name, seed, told.as_json())
        return
    bought = {intent.id: intent.window for intent in rehearsal.ledger.purchases()}
    blocks = {one.id: bought[one.intent_id] for one in world.reservations if one.intent_id in bought}
    names = Names({**blocks, **bought, **called(rehearsal)})
    print_text(document.name, seed, names.both(told.at), outlook_text(told, names))
