"""`tidemill costs`: what everything cost so far, by pool and team, from a ledger. Nothing is changed."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tidemill.report.costs import Costs


@click.command()
@click.argument("address", envvar="TIDEMILL_LEDGER")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def costs(address: str, as_json: bool) -> None:
    """Show what everything cost so far, by pool and team: GPU-hours used and idle, money, and the on-demand price.

    ADDRESS is the address of the engine's ledger, such as sqlite:////var/lib/tidemill/ledger.db. Default:
    TIDEMILL_LEDGER. A fee is spread over the hours it pays for; idle hours are charged to the block's pool. Hours of
    on-demand and spot instances count as used. Nothing is changed.
    """
    from tidemill.cli.region_catalog import catalog_of
    from tidemill.report.costs import rounded
    from tidemill.report.ledger_costs import ledger_costs
    from tidemill.store.open_ledger import WallClock, read_ledger

    ledger, now = read_ledger(address), WallClock().now()
    try:
        catalog = catalog_of(ledger.owner().region)
        totals = rounded(
            ledger_costs(catalog, ledger.purchases(), ledger.block_hours(), ledger.cost_lines(), now)
        )
    finally:
        ledger.close()
    if as_json:
        body = {"at": now.isoformat(), "prices_as_of": catalog.prices_as_of}
        click.echo(
            json.dumps({**body, "pools": _plain(totals, "pools"), "teams": _plain(totals, "teams")}, indent=2)
        )
    else:
        _print(totals, catalog.prices_as_of)


def _plain(totals: Costs, name: str) -> list[dict[str, object]]:
    return [asdict(line) for line in getattr(totals, name)]


def _print(totals: Costs, prices_as_of: str) -> None:
    from tidemill.cli.terminal import console, table
    from tidemill.render.cost_rows import cost_rows
    from tidemill.render.figures import usd

    out = console()
    if not totals.pools:
        out.print("this ledger has no costs")
        return
    figures = ("GPU-hours", "idle", "cost", "on demand", "saved")
    rows = table("charged to", "name", *figures, right=figures)
    for row in cost_rows(totals):
        rows.add_row(row.kind, row.name, row.used_h, row.idle_h, row.usd, row.on_demand, row.saving)
    out.print(rows)
    outside_usd = sum(pool.outside_usd for pool in totals.pools)
    out.print(
        f"{usd(totals.total_usd)} in total, of which {usd(outside_usd)} for hours to come or not observed"
    )
    out.print(f"on-demand prices of {prices_as_of}")
