"""`tidemill costs`: what a ledger says everything cost so far, by pool and team. It looks in and changes nothing."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tidemill.report.costs import Costs


@click.command()
@click.argument("address", envvar="TIDEMILL_LEDGER")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def costs(address: str, as_json: bool) -> None:
    """Show what everything cost so far, by pool and team: GPU-hours used and idle, money, and the price on demand.

    ADDRESS is that of the engine's ledger, such as sqlite:////var/lib/tidemill/ledger.db; it may be in the environment
    as TIDEMILL_LEDGER. Fees are spread over the hours they pay for; idle hours are charged to the block's pool. What
    is paid by the hour counts as used. Nothing is changed.
    """
    from tidemill.cli.region_catalog import catalog_of
    from tidemill.report.costs import rounded
    from tidemill.report.ledger_costs import ledger_costs
    from tidemill.store.open_ledger import WallClock, read_ledger

    ledger, now = read_ledger(address), WallClock().now()
    try:
        catalog = catalog_of(ledger.whose().region)
        told = rounded(
            ledger_costs(catalog, ledger.purchases(), ledger.block_hours(), ledger.cost_lines(), now)
        )
    finally:
        ledger.close()
    if as_json:
        body = {"at": now.isoformat(), "prices_as_of": catalog.prices_as_of}
        click.echo(
            json.dumps({**body, "pools": _plain(told, "pools"), "teams": _plain(told, "teams")}, indent=2)
        )
    else:
        _print(told, catalog.prices_as_of)


def _plain(told: Costs, name: str) -> list[dict[str, object]]:
    return [asdict(one) for one in getattr(told, name)]


def _print(told: Costs, prices_as_of: str) -> None:
    from tidemill.cli.terminal import console, table
    from tidemill.render.figures import usd
    from tidemill.render.rehearsal_costs import cost_rows

    out = console()
    if not told.pools:
        out.print("this ledger knows of no costs")
        return
    figures = ("GPU-hours", "idle", "cost", "on demand", "saved")
    rows = table("charged to", "name", *figures, right=figures)
    for row in cost_rows(told):
        rows.add_row(row.kind, row.name, row.used_h, row.idle_h, row.usd, row.on_demand, row.saving)
    out.print(rows)
    outside_usd = sum(one.outside_usd for one in told.pools)
    out.print(
        f"{usd(told.total_usd)} in all, of which {usd(outside_usd)} for hours to come or that nobody saw"
    )
    out.print(f"prices on demand of {prices_as_of}")
