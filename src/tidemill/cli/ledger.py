"""`tidemill ledger`: what a ledger says, for people and for programs. It looks in and changes nothing."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tidemill.store.sql import AuditLine, SqlLedger
    from tidemill.world import PurchaseIntent

WIDTH_WITHOUT_TERMINAL = 140  # a pipe must not cut what a person greps for
LATEST = 20


@click.command()
@click.argument("address", envvar="TIDEMILL_LEDGER")
@click.option("--of", "subject", metavar="ID", help="Only this intent or instance, with its whole history.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: everything, the whole audit trail too.")
def ledger(address: str, subject: str | None, as_json: bool) -> None:
    """List intents, approvals, money and the audit trail.

    ADDRESS is that of the engine's ledger, such as sqlite:////var/lib/tidemill/ledger.db or
    postgresql://tidemill@db/ledger; it may be in the environment as TIDEMILL_LEDGER. Nothing is changed.
    """
    from tidemill.store.opening import WallClock, read_ledger

    now = WallClock().now()
    opened = read_ledger(address)
    try:
        if as_json:
            click.echo(json.dumps(_document(opened, subject, now), indent=2))
        else:
            _print(opened, subject, now)
    finally:
        opened.close()


def _document(ledger: SqlLedger, subject: str | None, now: datetime) -> dict[str, Any]:
    from tidemill.store.rows import document

    spending = ledger.spending(now)
    return {
        **document(ledger.whose()),
        "at": now.isoformat(),
        "month": {
            "fees_usd": spending.fees_usd,
            "hourly": [
                {"pool": pool, "kind": kind.value, "usd": round(usd, 2)}
                for (pool, kind), usd in spending.hourly_usd
            ],
        },
        "purchases": [document(one) for one in ledger.purchases() if subject in (None, one.id)],
        "launches": [document(one) for one in ledger.launches() if subject in (None, one.id)],
        "running": [document(one) for one in ledger.metered() if subject in (None, one.instance_id)],
        "audit": [document(one) for one in ledger.audit(subject)],
    }


def _print(ledger: SqlLedger, subject: str | None, now: datetime) -> None:
    console = _console()
    trail = ledger.audit(subject)
    if subject is None:
        _print_summary(console, ledger, now)
    elif not trail:
        console.print(f"this ledger knows nothing of {subject}")
    purchases = [one for one in ledger.purchases() if subject in (None, one.id)]
    if purchases:
        console.print(_purchases(purchases))
    shown = trail if subject is not None else trail[-LATEST:]
    if shown:
        left_out = len(trail) - len(shown)
        console.print(
            _trail(shown, f"Audit trail, {left_out} earlier left out" if left_out else "Audit trail")
        )


def _print_summary(console: Console, ledger: SqlLedger, now: datetime) -> None:
    whose, spending = ledger.whose(), ledger.spending(now)
    place = ", ".join(one for one in (whose.account, whose.region, whose.cluster) if one)
    console.print(f"Ledger of {whose.deployment} ({place})")
    hourly_usd = spending.total_usd - spending.fees_usd
    console.print(f"{now:%B %Y} so far: ${spending.fees_usd:,} in fees, ${hourly_usd:,.2f} by the hour")
    launches, running = ledger.launches(), ledger.metered()
    console.print(
        f"{len(launches)} launches open or lately failed, {len(running)} instances paid by the hour"
    )


def _purchases(purchases: list[PurchaseIntent]) -> Table:
    table = _table("Purchases", "id", "state", "since", "for", "what", "fee", "said", "came of it")
    for one in purchases:
        envelope = one.envelope
        days = envelope.duration.total_seconds() / 86_400
        what = f"{envelope.count} x {envelope.instance_type}, {days:g} d"
        fee = f"${one.fee_usd:,}" if one.fee_usd else f"at most ${envelope.max_fee_usd:,}"
        said = ", ".join(f"{said.who}: {'yes' if said.approved else 'no'}" for said in one.verdicts)
        came = ", ".join(one.reservation_ids)
        what = f"extend {one.extends}: {what}" if one.extends else what
        table.add_row(
            one.id, one.state.value, _at(one.state_at or one.proposed_at), f"{one.plan}/{one.window}", what,
            fee, said, came,
        )  # fmt: skip
    return table


def _trail(lines: tuple[AuditLine, ...], title: str) -> Table:
    table = _table(title, "at", "who", "what", "id", "changed")
    for one in lines:
        table.add_row(_at(one.at), one.who, one.what, one.subject, _changes(one))
    return table


def _changes(line: AuditLine) -> str:
    """The state from and to; of what has none, the fields that differ."""
    before, after = line.before or {}, line.after
    if "state" in after:
        return f"{before['state']} -> {after['state']}" if before else str(after["state"])
    differs = [name for name, value in after.items() if before.get(name) != value]
    return f"changed {', '.join(differs)}" if before else "new"


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S}"


def _table(title: str, *columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    return (
        console
        if console.is_terminal
        else Console(highlight=False, markup=False, width=WIDTH_WITHOUT_TERMINAL)
    )
