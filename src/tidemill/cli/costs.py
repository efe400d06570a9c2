"""`tidemill costs`: what everything cost so far, by pool and team, from a ledger. Nothing is changed."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidemill.cli.kube_session import LiveChoice, live_options
from tidemill.cli.session import DEFAULT_LEDGER, clock_and_name, open_account
from tidemill.model.errors import SpecError

if TYPE_CHECKING:
    from tidemill.catalog import Catalog
    from tidemill.report.costs import Costs
    from tidemill.report.ledger_costs import NotCounted
    from tidemill.store.sql import SqlLedger


@click.command()
@live_options
@click.argument("address", metavar="[ADDRESS]", envvar="TIDEMILL_LEDGER", default=DEFAULT_LEDGER)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    envvar="TIDEMILL_FILES",
    metavar="FILE|DIR",
    type=click.Path(),
    help="With --kube: the engine's documents.",
)
@click.option(
    "--sim", envvar="TIDEMILL_SIM", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help="The ledger is of the simulated AWS account in this file: its clock says which hours are past.",
)  # fmt: skip
def costs(
    address: str, as_json: bool, files: tuple[str, ...], sim: Path | None, live: LiveChoice | None
) -> None:
    """Show what everything cost so far, by pool and team: GPU-hours used and idle, money, and the on-demand price.

    ADDRESS is the address of the engine's ledger, such as sqlite:////var/lib/tidemill/ledger.db. Default:
    TIDEMILL_LEDGER, else the file that the other verbs use, tidemill-ledger.db in this folder. A fee is spread over
    the hours it pays for; idle hours are charged to the block's pool. Hours of on-demand and spot instances count as
    used. With --kube --aws: also what the running instances cost. Nothing is changed.
    """
    if live is not None:
        _show_live(replace(live, ledger_url=address), files, as_json=as_json)
        return
    from tidemill.cli.region_catalog import catalog_of
    from tidemill.store.open_ledger import read_ledger

    ledger, now = read_ledger(address), _now(sim)
    try:
        catalog = catalog_of(ledger.owner().region)
        totals, left_out = _totals(ledger, catalog, now), _left_out(ledger, catalog, now)
    finally:
        ledger.close()
    if as_json:
        click.echo(json.dumps(_document(totals, left_out, catalog, now), indent=2))
    else:
        _print(totals, left_out, catalog.prices_as_of)


def _now(sim: Path | None) -> datetime:
    """A simulated account has a time of its own; by another clock a past block would be one to come."""
    return open_account(sim).now() if sim is not None and sim.name else clock_and_name()[0].now()


def _totals(ledger: SqlLedger, catalog: Catalog, now: datetime) -> Costs:
    from tidemill.report.ledger_costs import ledger_costs

    return ledger_costs(catalog, ledger.purchases(), ledger.block_hours(), ledger.cost_lines(), now)


def _left_out(ledger: SqlLedger, catalog: Catalog, now: datetime) -> NotCounted:
    from tidemill.report.ledger_costs import not_counted

    return not_counted(catalog, ledger.purchases(), ledger.block_hours(), ledger.adoptions(), now)


def _document(totals: Costs, left_out: NotCounted, catalog: Catalog, now: datetime) -> dict[str, object]:
    from tidemill.report.costs import rounded
    from tidemill.report.savings import savings

    head = {"at": now.isoformat(), "prices_as_of": catalog.prices_as_of, "not_counted": asdict(left_out)}
    shown, saved = rounded(totals), asdict(savings(totals))
    return {**head, "pools": _plain(shown, "pools"), "teams": _plain(shown, "teams"), "savings": saved}


def _show_live(live: LiveChoice, files: tuple[str, ...], *, as_json: bool) -> None:
    from tidemill.cli.live import live_session, look
    from tidemill.render.figures import usd

    with live_session(files, live) as session:
        if session.sql is None:
            raise SpecError("there is no ledger yet, so no costs; name the engine's ledger")
        catalog, now = session.spec.catalog, session.now()
        totals, money = _totals(session.sql, catalog, now), look(session).status.money
        left_out = _left_out(session.sql, catalog, now)
        if as_json:
            running = {"usd_per_hour": money.usd_per_hour, "month_hourly_usd": money.hourly_usd}
            document = {**session.head(), **_document(totals, left_out, catalog, now), "running": running}
            click.echo(json.dumps(document, indent=2))
            return
        _print(totals, left_out, catalog.prices_as_of)
        click.echo(
            f"running now: {usd(money.usd_per_hour)} an hour for instances paid by the hour; {usd(money.hourly_usd)} of"
            " them this month"
        )


def _plain(totals: Costs, name: str) -> list[dict[str, object]]:
    return [asdict(line) for line in getattr(totals, name)]


def _print(totals: Costs, left_out: NotCounted, prices_as_of: str) -> None:
    from tidemill.cli.terminal import console, table
    from tidemill.render.cost_rows import cost_rows
    from tidemill.render.figures import usd
    from tidemill.render.savings_text import comparison_lines
    from tidemill.report.costs import rounded
    from tidemill.report.savings import savings

    out = console()
    if left_out.without_fee:
        ids = ", ".join(left_out.without_fee)
        out.print(f"adopted, so their fee is not in this ledger and counts as $0: {ids}")
    if not totals.pools:
        out.print("this ledger has no costs")
        return
    figures = ("GPU-hours", "idle", "cost", "on demand", "saved")
    rows = table("charged to", "name", *figures, right=figures)
    for row in cost_rows(rounded(totals)):
        rows.add_row(row.kind, row.name, row.used_h, row.idle_h, row.usd, row.on_demand, row.saving)
    out.print(rows)
    outside_usd = sum(pool.outside_usd for pool in totals.pools)
    out.print(
        f"{usd(totals.total_usd)} in total, of which {usd(outside_usd)} for hours to come or not observed"
    )
    for line in comparison_lines(savings(totals)):
        out.print(line)
    if left_out.unobserved_gpu_hours:
        out.print(
            f"{left_out.unobserved_gpu_hours:,.0f} GPU-hours of blocks ({usd(left_out.unobserved_usd)}) are past and no"
            " engine observed them: they are in neither column, and were most likely idle"
        )
    out.print(f"on-demand prices of {prices_as_of}")
