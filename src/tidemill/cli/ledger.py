"""`tidemill ledger`: print a ledger; and `ledger rebuild`: make a lost ledger again from what AWS shows."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemill.cli.session import AWS, FILES, JSON, SIM, YES
from tidemill.cli.terminal import console, table
from tidemill.model.errors import OutcomeUnknown, Refused

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tidemill.model.purchases import PurchaseIntent
    from tidemill.ports import Ledger
    from tidemill.store.rebuild import Rebuilt
    from tidemill.store.sql import AuditLine, SqlLedger

LATEST = 20


class _ShowFirst(click.Group):
    """`tidemill ledger ADDRESS` means `tidemill ledger show ADDRESS`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ShowFirst)
def ledger() -> None:
    """Print a ledger, or rebuild a lost one.

    `tidemill ledger ADDRESS` is short for `tidemill ledger show ADDRESS`.
    """


@ledger.command()
@click.argument("address", envvar="TIDEMILL_LEDGER")
@click.option("--of", "subject", metavar="ID", help="Only this intent or instance, with its full history.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object: everything, with the full audit trail.",
)
def show(address: str, subject: str | None, as_json: bool) -> None:
    """List intents, approvals, money and the audit trail.

    ADDRESS is the address of the engine's ledger, such as sqlite:////var/lib/tidemill/ledger.db or
    postgresql://tidemill@db/ledger. Default: TIDEMILL_LEDGER. Nothing is changed.
    """
    from tidemill.engine.clock import WallClock
    from tidemill.store.open_ledger import read_ledger

    now = WallClock().now()
    opened = read_ledger(address)
    try:
        if as_json:
            click.echo(json.dumps(_document(opened, subject, now), indent=2))
        else:
            _print(opened, subject, now)
    finally:
        opened.close()


@ledger.command(short_help="Rebuild a lost ledger from AWS.")
@click.argument("address", envvar="TIDEMILL_LEDGER")
@FILES
@SIM
@AWS
@click.option("--adopt-tagged", is_flag=True, help="Adopt blocks that have our owner tag and no intent tag.")
@click.option(
    "--spent-usd", type=click.IntRange(min=0), metavar="N",
    help="Dollars spent this month on what AWS no longer lists: ended blocks, instances paid by the hour.",
)  # fmt: skip
@YES
@JSON
def rebuild(
    address: str, files: tuple[str, ...], sim: Path | None, aws: bool, adopt_tagged: bool, spent_usd: int | None,
    yes: bool, as_json: bool,
) -> None:  # fmt: skip
    """Rebuild the ledger at ADDRESS from what AWS shows: tags of reservations, history of extensions.

    A block with our owner tag and an intent tag is recorded as bought. A block with the owner tag alone is listed, and
    adopted only with --adopt-tagged, because anybody can write a tag. AWS does not know who approved what, nor what
    ended blocks and hourly instances cost this month. Take that sum from the bill and pass it with --spent-usd, or the
    monthly budget will be too large by it. A ledger that holds purchases is refused: it is not lost.
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
        _check_empty(session.books, found)
        if spent_usd is not None:
            besides = spent_besides(session.spec, spent_usd, who=session.who, now=session.now())
            found = replace(found, purchases=(*found.purchases, besides))
        _print_found(found, adopt_tagged)
        if spent_usd is None:
            click.echo(_MISSING_COSTS, err=True)
        if not confirmed("Record this?", yes=yes):
            raise Refused("nothing was recorded: you said no")
        for intent in found.purchases:
            _write(session.ledger, intent)
        for block in found.tagged if adopt_tagged else ():
            session.ledger.adopt(Adoption(block.id, block.pool, session.who, session.now()))
        _print_rebuilt(found, adopt_tagged, as_json)
        _check_all_read(found)
    finally:
        session.close()


def _check_all_read(found: Rebuilt) -> None:
    """OutcomeUnknown: everything that could be told is recorded, and something is in doubt."""
    if not found.unread:
        return
    sentences = []
    for one in found.unread:
        recorded = (
            "recorded by its tags, check its fee"
            if one.intent_id
            else "not recorded: its tags do not say why"
        )
        sentences.append(f"{one.id} cannot be read ({one.unread}): {recorded}")
    raise OutcomeUnknown("; ".join(sentences) + ". Nothing is bought until it can be read")


_MISSING_COSTS = (
    "warning: AWS no longer lists ended blocks and hourly instances, so their cost of this month is missing, and the "
    "monthly budget is too large by it; take the sum from the bill and pass it with --spent-usd N (0: nothing)"
)


def _write(ledger: SqlLedger, intent: PurchaseIntent) -> None:
    """An intent from an interrupted rebuild stays; a new --spent-usd replaces the old one."""
    ledger.propose(intent)
    held = next(known for known in ledger.purchases() if known.id == intent.id)
    if not held.reservation_ids and held.state.value == "confirmed" and held.fee_usd != intent.fee_usd:
        ledger.advance(held, replace(held, fee_usd=intent.fee_usd, reason=intent.reason))


def _check_empty(ledger: Ledger, found: Rebuilt) -> None:
    """Refused unless the ledger is empty, or holds only what an interrupted rebuild wrote."""
    from tidemill.model.purchase_reasons import REBUILT

    tagged = {block.id for block in found.tagged}
    adoptions = [adoption.reservation_id for adoption in ledger.adoptions() if not adoption.given_up]
    held = [
        intent.id
        for intent in ledger.purchases()
        if intent.reason is None or intent.reason.kind not in REBUILT
    ]
    held += [reservation_id for reservation_id in adoptions if reservation_id not in tagged]
    if held:
        some = f"{', '.join(held[:3])}{', …' if held[3:] else ''}"
        raise Refused(f"this ledger is not lost: it holds {some}; name the address of a new one")


def _print_found(found: Rebuilt, adopt_tagged: bool) -> None:
    from tidemill.wording.purchases import purchase_note

    for intent in found.purchases:
        ids = ", ".join(intent.reservation_ids)
        what = f"extension of {intent.extends}" if intent.extends else f"{ids}, {intent.plan or 'no'} plan"
        what = what if intent.envelope.count else "no block"
        click.echo(
            f"  {intent.id}  {intent.state.value}  {what}, ${intent.fee_usd:,}  ({purchase_note(intent)})",
            err=True,
        )
    for reservation in found.tagged:
        then = "adopted" if adopt_tagged else "not adopted; to adopt it, add --adopt-tagged"
        click.echo(f"  {reservation.id}  has our owner tag and no intent tag: {then}", err=True)


def _print_rebuilt(found: Rebuilt, adopt_tagged: bool, as_json: bool) -> None:
    from tidemill.store.rows import document

    tagged = [block.id for block in found.tagged]
    adopted, left = (tagged, []) if adopt_tagged else ([], tagged)
    if as_json:
        body = {
            "purchases": [document(intent) for intent in found.purchases],
            "adopted": adopted,
            "left_alone": left,
        }
        click.echo(json.dumps(body, indent=2))
        return
    rest = f"; not adopted: {', '.join(left)}" if left else ""
    click.echo(f"{len(found.purchases)} purchases recorded, {len(adopted)} blocks adopted{rest}")


def _document(ledger: SqlLedger, subject: str | None, now: datetime) -> dict[str, Any]:
    from tidemill.store.rows import document

    spending = ledger.spending(now)
    return {
        **document(ledger.owner()),
        "at": now.isoformat(),
        "month": {
            "fees_usd": spending.fees_usd,
            "hourly": [
                {"pool": pool, "kind": kind.value, "usd": round(usd, 2)}
                for (pool, kind), usd in spending.hourly_usd
            ],
        },
        "purchases": [document(intent) for intent in ledger.purchases() if subject in (None, intent.id)],
        "launches": [document(launch) for launch in ledger.launches() if subject in (None, launch.id)],
        "running": [document(meter) for meter in ledger.metered() if subject in (None, meter.instance_id)],
        "audit": [document(line) for line in ledger.audit(subject)],
    }


def _print(ledger: SqlLedger, subject: str | None, now: datetime) -> None:
    stdout = console()
    trail = ledger.audit(subject)
    if subject is None:
        _print_summary(stdout, ledger, now)
    elif not trail:
        stdout.print(f"this ledger has no entry for {subject}")
    purchases = [intent for intent in ledger.purchases() if subject in (None, intent.id)]
    if purchases:
        stdout.print(_purchases(purchases))
    shown = trail if subject is not None else trail[-LATEST:]
    if shown:
        left_out = len(trail) - len(shown)
        stdout.print(
            _trail(shown, f"Audit trail, without {left_out} earlier entries" if left_out else "Audit trail")
        )


def _print_summary(stdout: Console, ledger: SqlLedger, now: datetime) -> None:
    owner, spending = ledger.owner(), ledger.spending(now)
    place = ", ".join(filter(None, (owner.account, owner.region, owner.cluster)))
    stdout.print(f"Ledger of {owner.deployment} ({place})")
    hourly_usd = spending.total_usd - spending.fees_usd
    stdout.print(f"{now:%B %Y} so far: ${spending.fees_usd:,} in fees, ${hourly_usd:,.2f} by the hour")
    launches, running = ledger.launches(), ledger.metered()
    from tidemill.model.purchases import LaunchState

    failed = sum(launch.state is LaunchState.FAILED for launch in launches)
    opened = sum(launch.in_flight > 0 for launch in launches)
    stdout.print(
        f"launches: {opened} open, {failed} failed within an hour; {len(running)} instances paid by the hour"
    )


def _purchases(purchases: list[PurchaseIntent]) -> Table:
    rows = table("id", "state", "since", "for", "what", "fee", "decisions", "bought", title="Purchases")
    for intent in purchases:
        envelope = intent.envelope
        days = envelope.duration.total_seconds() / 86_400
        what = f"{envelope.count} x {envelope.instance_type}, {days:g} d"
        fee = f"${intent.fee_usd:,}" if intent.fee_usd else f"at most ${envelope.max_fee_usd:,}"
        decisions = ", ".join(
            f"{verdict.who}: {'yes' if verdict.approved else 'no'}" for verdict in intent.verdicts
        )
        bought = ", ".join(intent.reservation_ids)
        what = f"extend {intent.extends}: {what}" if intent.extends else what
        what = what if envelope.count else "other spending"
        rows.add_row(
            intent.id, intent.state.value, _at(intent.state_at or intent.proposed_at),
            f"{intent.plan}/{intent.window}" if intent.plan else "by hand", what,
            fee, decisions, bought,
        )  # fmt: skip
    return rows


def _trail(lines: tuple[AuditLine, ...], title: str) -> Table:
    rows = table("at", "who", "what", "id", "changed", title=title)
    for line in lines:
        rows.add_row(_at(line.at), line.who, line.what, line.subject, _changes(line))
    return rows


def _changes(line: AuditLine) -> str:
    """The old and new state; without a state, the fields that changed."""
    before, after = line.before or {}, line.after
    if "state" in after:
        return f"{before['state']} -> {after['state']}" if before else str(after["state"])
    differs = [name for name, value in after.items() if before.get(name) != value]
    return f"changed {', '.join(differs)}" if before else "new"


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S}"
