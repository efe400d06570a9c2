"""`tidemill approve`: a person approves or refuses a proposed purchase. AWS says who the person is."""

from __future__ import annotations

import json

import click

from tidemill.cli.purchase_summary import summary_lines
from tidemill.cli.session import JSON, YES, Session, with_session
from tidemill.cli.terminal import confirmed, console, table
from tidemill.decide.read_models import not_granted
from tidemill.model.errors import Refused, SpecError
from tidemill.model.purchases import PurchaseIntent, PurchaseState, Verdict
from tidemill.offer_search.proposal import expired
from tidemill.store.decisions import record_verdict, with_verdict
from tidemill.store.rows import document
from tidemill.wording.purchases import purchase_sentence


@click.command(short_help="Approve or refuse proposed purchases.")
@click.argument("intent_ids", nargs=-1, metavar="[INTENT…]")
@click.option("--refuse", is_flag=True, help="Refuse instead. One refusal is enough.")
@click.option("--note", default="", help="The reason; kept in the ledger.")
@YES
@JSON
@with_session
@click.pass_context
def approve(
    ctx: click.Context,
    session: Session,
    intent_ids: tuple[str, ...],
    refuse: bool,
    note: str,
    yes: bool,
    as_json: bool,
) -> None:
    """Approve or refuse INTENT… (tp-…). Without INTENT, list the purchases that wait for approval.

    An approval covers what is shown: type, count, window, zones and the highest fee, until it expires. You can refuse
    an intent until it is submitted, even after it was approved. AWS says who you are. The proposer of a purchase
    cannot approve it, and all sessions of one role count as one person.
    """
    if not intent_ids and refuse:
        raise SpecError("--refuse needs an INTENT; list those that wait with: tidemill approve")
    if not intent_ids:
        _print_waiting(session, as_json)
        return
    decided_intents, failed = [], False
    for intent_id in dict.fromkeys(intent_ids):
        try:
            decided_intents.append(_decide(session, intent_id, approved=not refuse, note=note, yes=yes))
        except (Refused, SpecError) as error:
            if len(intent_ids) == 1:
                raise
            failed = True
            click.echo(f"error: {error}", err=True)
    _print_decided(session, decided_intents, as_json)
    if failed:
        ctx.exit(1)


def _decide(session: Session, intent_id: str, *, approved: bool, note: str, yes: bool) -> PurchaseIntent:
    intent = session.purchase(intent_id)
    for line in summary_lines(session.spec, intent, None, session.books.spending(session.now())):
        click.echo(line, err=True)
    click.echo(f"You are {session.who}.", err=True)

    # Check before asking: a person who may not decide should not be asked.
    now = session.now()
    verdict = Verdict(session.who, now, approved, note)
    listed = session.cloud.reservations() if approved else ()
    with_verdict(session.books, session.spec, intent, verdict, listed)
    if approved and not confirmed("Approve it?", yes=yes):
        raise Refused("not approved: you did not say yes; nothing was recorded. To refuse it, add --refuse")
    return record_verdict(
        session.ledger,
        session.spec,
        intent,
        who=session.who,
        approved=approved,
        at=session.now(),
        listed=listed,
        note=note,
    )


def _print_decided(session: Session, decided_intents: list[PurchaseIntent], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"purchases": [document(intent) for intent in decided_intents]}, indent=2))
        return
    for intent in decided_intents:
        if intent.state is PurchaseState.APPROVED and _is_granted(session, intent):
            click.echo(f"{intent.id} is approved. The engine buys it, or you do: tidemill buy {intent.id}")
        elif intent.state is PurchaseState.REFUSED:
            click.echo(f"{intent.id} is refused.")
        else:
            click.echo(f"{intent.id} has your approval; {_waits_for(session, intent)}")


# --- what waits for approval ----------------------------------------------------------------------------------


def _print_waiting(session: Session, as_json: bool) -> None:
    waiting = [intent for intent in session.books.purchases() if _waits(session, intent)]
    if as_json:
        click.echo(
            json.dumps(
                {
                    "waiting": [
                        {**document(intent), "waits_for": _waits_for(session, intent)} for intent in waiting
                    ]
                },
                indent=2,
            )
        )
        return
    if not waiting:
        click.echo("no purchase waits for approval")
        return
    rows = table("id", "what", "from", "until", "at most", "proposed by", "waits", "expires (UTC)")
    for intent in waiting:
        envelope = intent.envelope
        what = f"{f'extend {intent.extends}: ' if intent.extends else ''}{envelope.count} x {envelope.instance_type}"
        rows.add_row(
            intent.id, what, f"{envelope.earliest_start:%Y-%m-%d %H:%M}", f"{envelope.earliest_end:%Y-%m-%d %H:%M}",
            f"${envelope.max_fee_usd:,}", intent.proposer, _waits_for(session, intent),
            f"{envelope.expires_at:%Y-%m-%d %H:%M}",
        )  # fmt: skip
    console().print(rows)


def _waits(session: Session, intent: PurchaseIntent) -> bool:
    """Also true for an approved intent, if today's approval policy asks for more."""
    approved = intent.state is PurchaseState.APPROVED
    return intent.state is PurchaseState.PROPOSED or (approved and not _is_granted(session, intent))


def _is_granted(session: Session, intent: PurchaseIntent) -> bool:
    return not_granted(session.spec.platform, intent, session.books.spending(session.now())) is None


def _waits_for(session: Session, intent: PurchaseIntent) -> str:
    if expired(intent, session.now()):
        return "it has expired"
    spending = session.books.spending(session.now())
    why_not = not_granted(session.spec.platform, intent, spending)
    return "it may be bought" if why_not is None else purchase_sentence(why_not)
