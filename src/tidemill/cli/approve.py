"""`tidemill approve`: a person's yes or no to a proposed purchase. Who they are is AWS's word, not their own."""

from __future__ import annotations

import json
from typing import Any

import click

from tidemill.cli.purchase_summary import summary_lines
from tidemill.cli.session import JSON, YES, Session, with_session
from tidemill.cli.terminal import confirmed, console, table
from tidemill.decide.purchasing.approval import not_granted
from tidemill.model.errors import Refused, SpecError
from tidemill.model.purchases import PurchaseIntent, PurchaseState, Verdict
from tidemill.offer_search.proposal import expired
from tidemill.store.decisions import record_verdict, with_verdict
from tidemill.store.rows import document
from tidemill.wording.purchases import purchase_sentence


@click.command(short_help="Approve or refuse proposed purchases.")
@click.argument("intent_ids", nargs=-1, metavar="[INTENT…]")
@click.option("--refuse", is_flag=True, help="Say no. One no is enough.")
@click.option("--note", default="", help="Why; kept with the word.")
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
    """Approve INTENT… (tp-…), or refuse it; without any, list those that wait.

    An approval binds what is shown: type, count, window, zones and the highest fee, until it expires. A no is taken
    until it is submitted, from an approved one too. Your identity is what AWS says it is; whoever proposed a purchase
    cannot approve it, and sessions of one role count as one person.
    """
    if not intent_ids and refuse:
        raise SpecError("say which INTENT to refuse; without --refuse those that wait are listed")
    if not intent_ids:
        _print_waiting(session, as_json)
        return
    made, failed = [], False
    for intent_id in dict.fromkeys(intent_ids):
        try:
            made.append(_decide(session, intent_id, approved=not refuse, note=note, yes=yes))
        except (Refused, SpecError) as error:
            if len(intent_ids) == 1:
                raise
            failed = True
            click.echo(f"error: {error}", err=True)
    _print_decided(session, made, as_json)
    if failed:
        ctx.exit(1)


def _decide(session: Session, intent_id: str, *, approved: bool, note: str, yes: bool) -> PurchaseIntent:
    intent = session.purchase(intent_id)
    for line in summary_lines(session.spec, intent, None, session.ledger.spending(session.now())):
        click.echo(line, err=True)
    click.echo(f"You are {session.who}.", err=True)

    # Beforehand: whoever may not decide is told before being asked, not after.
    now = session.now()
    verdict = Verdict(session.who, now, approved, note)
    with_verdict(session.spec.platform, intent, verdict, session.ledger.spending(now))
    if approved and not confirmed("Approve it?", yes=yes):
        raise Refused("you said neither yes nor no: nothing was written down; --refuse says no")
    return record_verdict(
        session.ledger,
        session.spec.platform,
        intent,
        who=session.who,
        approved=approved,
        at=session.now(),
        note=note,
    )


def _print_decided(session: Session, made: list[PurchaseIntent], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"purchases": [document(one) for one in made]}, indent=2))
        return
    for one in made:
        if one.state is PurchaseState.APPROVED and _is_granted(session, one):
            click.echo(f"{one.id} is approved. The engine buys it, or you do: tidemill buy {one.id}")
        elif one.state is PurchaseState.REFUSED:
            click.echo(f"{one.id} is refused.")
        else:
            click.echo(f"{one.id} has your yes; {_waits_for(session, one)}")


# --- those that wait ----------------------------------------------------------------------------------


def _print_waiting(session: Session, as_json: bool) -> None:
    waiting = [one for one in session.ledger.purchases() if _waits(session, one)]
    if as_json:
        click.echo(json.dumps({"waiting": [_row(session, one) for one in waiting]}, indent=2))
        return
    if not waiting:
        click.echo("no purchase waits for approval")
        return
    made = table("id", "what", "from", "until", "at most", "proposed by", "waits", "expires (UTC)")
    for one in waiting:
        envelope = one.envelope
        what = (
            f"{f'extend {one.extends}: ' if one.extends else ''}{envelope.count} x {envelope.instance_type}"
        )
        made.add_row(
            one.id, what, f"{envelope.earliest_start:%Y-%m-%d %H:%M}", f"{envelope.earliest_end:%Y-%m-%d %H:%M}",
            f"${envelope.max_fee_usd:,}", one.proposer, _waits_for(session, one),
            f"{envelope.expires_at:%Y-%m-%d %H:%M}",
        )  # fmt: skip
    console().print(made)


def _row(session: Session, intent: PurchaseIntent) -> dict[str, Any]:
    return {**document(intent), "waits_for": _waits_for(session, intent)}


def _waits(session: Session, intent: PurchaseIntent) -> bool:
    """Also what was approved once, and is not enough for the policy of today."""
    approved = intent.state is PurchaseState.APPROVED
    return intent.state is PurchaseState.PROPOSED or (approved and not _is_granted(session, intent))


def _is_granted(session: Session, intent: PurchaseIntent) -> bool:
    return not_granted(session.spec.platform, intent, session.ledger.spending(session.now())) is None


def _waits_for(session: Session, intent: PurchaseIntent) -> str:
    if expired(intent, session.now()):
        return "it has expired"
    spending = session.ledger.spending(session.now())
    why_not = not_granted(session.spec.platform, intent, spending)
    return "it may be bought" if why_not is None else purchase_sentence(why_not)
