"""`tidemill ledger`: what a ledger says, for people and for programs; and `ledger rebuild`, where it was lost."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemill.cli.session import AWS, FILES, JSON, SIM, YES
from tidemill.cli.terminal import console, table
from tidemill.model.errors import Refused

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tidemill.model.purchases import PurchaseIntent
    from tidemill.store.rebuild import Rebuilt
    from tidemill.store.sql import AuditLine, SqlLedger

LATEST = 20


class _ShowFirst(click.Group):
    """`tidemill ledger ADDRESS` shows it; the word in between need not be written."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ShowFirst)
def ledger() -> None:
    """What the ledger says, and how to make it anew.

    `tidemill ledger ADDRESS` is short for `tidemill ledger show ADDRESS`.
    """


@ledger.command()
@click.argument("address", envvar="TIDEMILL_LEDGER")
@click.option("--of", "subject", metavar="ID", help="Only this intent or instance, with its whole history.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: everything, the whole audit trail too.")
def show(address: str, subject: str | None, as_json: bool) -> None:
    """List intents, approvals, money and the audit trail.

    ADDRESS is that of the engine's ledger, such as sqlite:////var/lib/tidemill/ledger.db or
    postgresql://tidemill@db/ledger; it may be in the environment as TIDEMILL_LEDGER. Nothing is changed.
    """
    from tidemill.store.open_ledger import WallClock, read_ledger

    now = WallClock().now()
    opened = read_ledger(address)
    try:
        if as_json:
            click.echo(json.dumps(_document(opened, subject, now), indent=2))
        else:
            _print(opened, subject, now)
    finally:
        opened.close()


@ledger.command(short_help="Make a lost ledger anew from AWS.")
@click.argument("address", envvar="TIDEMILL_LEDGER")
@FILES
@SIM
@AWS
@click.option("--adopt-tagged", is_flag=True, help="Adopt what carries our owner tag and no intent.")
@click.option(
    "--spent-usd", type=click.IntRange(min=0), metavar="N",
    help="Spent this month on what AWS no longer lists: blocks that ended, instances paid by the hour.",
)  # fmt: skip
@YES
@JSON
def rebuild(
    address: str, files: tuple[str, ...], sim: Path | None, aws: bool, adopt_tagged: bool, spent_usd: int | None,
    yes: bool, as_json: bool,
) -> None:  # fmt: skip
    """Make the ledger at ADDRESS anew from what AWS shows: tags of reservations, history of extensions.

    What carries our owner tag and an intent was bought and is written down so; what carries the owner tag alone is
    listed, and adopted only with --adopt-tagged: anybody may write a tag. Who approved what is not to be found
    again, nor the money for blocks that ended and for instances by the hour: take it from the bill and say it with
    --spent-usd, or the budget of the month has as much more room. A ledger that holds purchases is not lost, and is
    refused.
    """
    from tidemill.cli.session import open_session
    from tidemill.cli.terminal import confirmed
    from tidemill.model.purchases import Adoption
    from tidemill.store.rebuild import rebuild as rebuilt_from
    from tidemill.store.rebuild import spent_besides

    session = open_session(files, sim, address, aws=aws)
    try:
        found = rebuilt_from(
            session.spec,
            session.cloud.reservations(),
            session.cloud.extensions(),
            who=session.who,
            now=session.now(),
        )
        _check_empty(session.ledger, found)
        if spent_usd is not None:
            besides = spent_besides(session.spec, spent_usd, who=session.who, now=session.now())
            found = replace(found, purchases=(*found.purchases, besides))
        _print_found(found, adopt_tagged)
        if spent_usd is None:
            click.echo(_MISSING_COSTS, err=True)
        if not confirmed("Write this down?", yes=yes):
            raise Refused("nothing was written down: you said no")
        for intent in found.purchases:
            _write(session.ledger, intent)
        for one in found.tagged if adopt_tagged else ():
            session.ledger.adopt(Adoption(one.id, one.pool, session.who, session.now()))
        _print_rebuilt(found, adopt_tagged, as_json)
    finally:
        session.close()


_MISSING_COSTS = (
    "warning: AWS no longer lists blocks that ended, nor what ran by the hour. What they cost this month is missing "
    "here, and the monthly budget has as much more room: take it from the bill and say it with "
    "--spent-usd N (0: nothing)"
)


def _write(ledger: SqlLedger, intent: PurchaseIntent) -> None:
    """Known from a rebuild that was interrupted, it stays; a sum that is said anew takes the place of the old."""
    ledger.propose(intent)
    held = next(one for one in ledger.purchases() if one.id == intent.id)
    if not held.reservation_ids and held.state.value == "confirmed" and held.fee_usd != intent.fee_usd:
        ledger.advance(held, replace(held, fee_usd=intent.fee_usd, reason=intent.reason))


def _check_empty(ledger: SqlLedger, found: Rebuilt) -> None:
    """Empty, or begun to be rebuilt by somebody who was interrupted: that can be gone on with."""
    from tidemill.model.purchase_reasons import REBUILT

    tagged = {one.id for one in found.tagged}
    undone = {one.reservation_id for one in ledger.adoptions() if one.given_up}
    held = [one.id for one in ledger.purchases() if one.reason is None or one.reason.kind not in REBUILT]
    held += [one.reservation_id for one in ledger.adoptions() if one.reservation_id not in tagged | undone]
    if held:
        raise Refused(f"this ledger is not lost: it holds {', '.join(held[:3])}{', …' if held[3:] else ''}")


def _print_found(found: Rebuilt, adopt_tagged: bool) -> None:
    from tidemill.wording.purchases import purchase_note

    for one in found.purchases:
        ids = ", ".join(one.reservation_ids)
        what = f"extension of {one.extends}" if one.extends else f"{ids}, {one.plan or 'no'} plan"
        what = what if one.envelope.count else "no block"
        click.echo(
            f"  {one.id}  {one.state.value}  {what}, ${one.fee_usd:,}  ({purchase_note(one)})", err=True
        )
    for reservation in found.tagged:
        then = "adopted" if adopt_tagged else "left alone: --adopt-tagged takes it in"
        click.echo(f"  {reservation.id}  our owner tag and no intent: {then}", err=True)


def _print_rebuilt(found: Rebuilt, adopt_tagged: bool, as_json: bool) -> None:
    from tidemill.store.rows import document

    adopted = [one.id for one in found.tagged] if adopt_tagged else []
    left = [one.id for one in found.tagged if one.id not in adopted]
    if as_json:
        told = {
            "purchases": [document(one) for one in found.purchases],
            "adopted": adopted,
            "left_alone": left,
        }
        click.echo(json.dumps(told, indent=2))
        return
    alone = f"; left alone: {', '.join(left)}" if left else ""
    click.echo(f"{len(found.purchases)} purchases written down, {len(adopted)} blocks adopted{alone}")


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
    shown_on = console()
    trail = ledger.audit(subject)
    if subject is None:
        _print_summary(shown_on, ledger, now)
    elif not trail:
        shown_on.print(f"this ledger knows nothing of {subject}")
    purchases = [one for one in ledger.purchases() if subject in (None, one.id)]
    if purchases:
        shown_on.print(_purchases(purchases))
    shown = trail if subject is not None else trail[-LATEST:]
    if shown:
        left_out = len(trail) - len(shown)
        shown_on.print(
            _trail(shown, f"Audit trail, {left_out} earlier left out" if left_out else "Audit trail")
        )


def _print_summary(shown_on: Console, ledger: SqlLedger, now: datetime) -> None:
    whose, spending = ledger.whose(), ledger.spending(now)
    place = ", ".join(one for one in (whose.account, whose.region, whose.cluster) if one)
    shown_on.print(f"Ledger of {whose.deployment} ({place})")
    hourly_usd = spending.total_usd - spending.fees_usd
    shown_on.print(f"{now:%B %Y} so far: ${spending.fees_usd:,} in fees, ${hourly_usd:,.2f} by the hour")
    launches, running = ledger.launches(), ledger.metered()
    shown_on.print(
        f"{len(launches)} launches open or lately failed, {len(running)} instances paid by the hour"
    )


def _purchases(purchases: list[PurchaseIntent]) -> Table:
    made = table("id", "state", "since", "for", "what", "fee", "said", "came of it", title="Purchases")
    for one in purchases:
        envelope = one.envelope
        days = envelope.duration.total_seconds() / 86_400
        what = f"{envelope.count} x {envelope.instance_type}, {days:g} d"
        fee = f"${one.fee_usd:,}" if one.fee_usd else f"at most ${envelope.max_fee_usd:,}"
        said = ", ".join(f"{said.who}: {'yes' if said.approved else 'no'}" for said in one.verdicts)
        came = ", ".join(one.reservation_ids)
        what = f"extend {one.extends}: {what}" if one.extends else what
        what = what if envelope.count else "spent besides"
        made.add_row(
            one.id, one.state.value, _at(one.state_at or one.proposed_at),
            f"{one.plan}/{one.window}" if one.plan else "by hand", what,
            fee, said, came,
        )  # fmt: skip
    return made


def _trail(lines: tuple[AuditLine, ...], title: str) -> Table:
    made = table("at", "who", "what", "id", "changed", title=title)
    for one in lines:
        made.add_row(_at(one.at), one.who, one.what, one.subject, _changes(one))
    return made


def _changes(line: AuditLine) -> str:
    """The state from and to; of what has none, the fields that differ."""
    before, after = line.before or {}, line.after
    if "state" in after:
        return f"{before['state']} -> {after['state']}" if before else str(after["state"])
    differs = [name for name, value in after.items() if before.get(name) != value]
    return f"changed {', '.join(differs)}" if before else "new"


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S}"
