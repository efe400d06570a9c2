"""`tidemill settle`: what became of a purchase in doubt. AWS is asked first; then a person's word.

Not found is not "not bought": EC2 may show a purchase late. So a no is taken only from somebody who says how they
made sure, and only after a while. A purchase that EC2 confirmed is in doubt too, where AWS shows nothing of it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

import click

from tidemill.cli.confirm import confirmed
from tidemill.cli.session import JSON, YES, Desk, at_the_desk
from tidemill.model.capacity import Reservation, ReservationState
from tidemill.model.errors import OutcomeUnknown, PortError, Refused, SpecError
from tidemill.model.offers import Extension, ExtensionState
from tidemill.model.purchases import Adoption, PurchaseIntent, PurchaseState
from tidemill.spec import names
from tidemill.store.rows import document

# EC2 has been seen to list a purchase up to 45 minutes late. This errs on the long side: waiting costs little, and a
# no that comes too early buys the same a second time.
NOT_BEFORE = timedelta(minutes=60)
_UNANSWERED = (PurchaseState.SUBMITTED, PurchaseState.UNKNOWN)
_NEVER_CAME = (ReservationState.PAYMENT_FAILED, ReservationState.FAILED, ReservationState.CANCELLED)


@click.command(short_help="Say what became of a purchase in doubt.")
@click.argument("intent_id", metavar="INTENT")
@click.option("--bought", "bought", multiple=True, metavar="CR-ID", help="It made this reservation.")
@click.option("--not-bought", is_flag=True, help="You made sure that nothing was bought.")
@click.option("--note", default="", help="How you know. Needed with --not-bought.")
@YES
@JSON
@at_the_desk
def settle(
    desk: Desk, intent_id: str, bought: tuple[str, ...], not_bought: bool, note: str, yes: bool, as_json: bool
) -> None:
    """Find out what became of INTENT (tp-…): submitted and not answered, or confirmed and not to be seen at AWS.

    Alone it looks for it at AWS, by its tag or in the history of extensions, and writes down what it finds, a payment
    that failed too. Where AWS shows nothing, --bought and --not-bought are your word, kept with your identity in the
    audit trail. A no is taken an hour after the submit; one that proved wrong is set right with --bought.
    """
    if bought and not_bought:
        raise SpecError("it was bought or it was not: give --bought or --not-bought, not both")
    intent = desk.purchase(intent_id)
    if intent.state not in (*_UNANSWERED, PurchaseState.CONFIRMED, PurchaseState.FAILED):
        raise Refused(f"{intent_id} is {intent.state.value}: there is no doubt about it")
    if intent.state is PurchaseState.CONFIRMED:
        settled = _confirmed(desk, intent, not_bought, note, yes=yes)
    elif bought:
        settled = _bought(desk, intent, bought, note, yes=yes)
    elif not_bought and intent.state in _UNANSWERED and not made_by(desk, intent):
        settled = _not_bought(desk, intent, note, yes=yes)
    else:
        settled = look_again(desk, intent)
        settled = _unpaid(desk, settled) if at_aws(desk, settled) == "unpaid" else settled
    _tell(settled, as_json)


def _tell(settled: PurchaseIntent, as_json: bool) -> None:
    came = f": {', '.join(settled.reservation_ids)}, ${settled.fee_usd:,}" if settled.reservation_ids else ""
    sentence = f"{settled.id} is {settled.state.value}{came} ({settled.note})"
    if as_json:
        click.echo(
            json.dumps(
                {"intent": document(settled), "state": settled.state.value, "said": sentence}, indent=2
            )
        )
    else:
        click.echo(sentence)


# --- what AWS shows -----------------------------------------------------------------------------------


def look_again(desk: Desk, intent: PurchaseIntent) -> PurchaseIntent:
    """Settled, if AWS shows what it made; OutcomeUnknown if it does not."""
    made = made_by(desk, intent)
    if intent.state is PurchaseState.FAILED and (not made or at_aws(desk, intent) == "unpaid"):
        raise Refused(f"{intent.id} is failed, and AWS shows nothing else; if it made a block: --bought cr-…")
    if not made:
        raise OutcomeUnknown(_still_unknown(desk, intent))
    where = "in the history of" if intent.extends else "by its tag:"
    return _confirm(desk, intent, made, f"found {where} {', '.join(made)}")


def made_by(desk: Desk, intent: PurchaseIntent) -> tuple[str, ...]:
    """The reservations it made, or the one it extended, as far as AWS shows them."""
    if intent.extends:
        return (intent.extends,) if _in_history(desk, intent) else ()
    return tuple(sorted(one.id for one in desk.cloud.reservations() if one.intent_id == intent.id))


def at_aws(desk: Desk, intent: PurchaseIntent) -> Literal["there", "unpaid", "missing"]:
    """What AWS shows of it now."""
    if intent.extends:
        asked = _in_history(desk, intent)
        unpaid = [one.state is ExtensionState.PAYMENT_FAILED for one in asked]
    else:
        made = [
            one
            for one in desk.cloud.reservations()
            if one.intent_id == intent.id or one.id in intent.reservation_ids
        ]
        unpaid = [one.state in _NEVER_CAME for one in made]
    if not unpaid:
        return "missing"
    return "unpaid" if all(unpaid) else "there"


def _in_history(desk: Desk, intent: PurchaseIntent) -> list[Extension]:
    return [one for one in desk.cloud.extensions() if intent.offer_id and one.offer_id == intent.offer_id]


def _still_unknown(desk: Desk, intent: PurchaseIntent) -> str:
    since = intent.state_at or intent.proposed_at
    told = f"AWS shows nothing of {intent.id}, submitted {since:%Y-%m-%d %H:%M:%S} UTC"
    if desk.now() < since + NOT_BEFORE:
        return f'{told}, yet. That is not "not bought": look again in some minutes. Do not buy the same again'
    return (
        f'{told}. Not found is not "not bought": look in the EC2 console and the bill, then say `tidemill settle '
        f"{intent.id} --bought cr-…` or `--not-bought --note HOW-YOU-KNOW`"
    )


# --- confirmed, and yet ---------------------------------------------------------------------------------


def _confirmed(
    desk: Desk, intent: PurchaseIntent, not_bought: bool, note: str, *, yes: bool
) -> PurchaseIntent:
    """EC2 sold it. Its payment may have failed since, or nobody has seen it."""
    ids = ", ".join(intent.reservation_ids)
    seen = at_aws(desk, intent)
    if seen == "unpaid":
        return _unpaid(desk, intent)
    if seen == "there":
        raise Refused(f"{intent.id} is confirmed and AWS shows {ids}: there is no doubt about it")
    if intent.envelope.earliest_end <= desk.now():
        raise Refused(f"{intent.id} was bought and is over: EC2 no longer lists {ids}. Its fee stays spent")
    if not not_bought:
        raise OutcomeUnknown(
            f"EC2 confirmed {intent.id} ({ids}) and does not list it. Its fee counts as spent. Look in the EC2 console "
            f"and the bill; if there is nothing: tidemill settle {intent.id} --not-bought --note HOW-YOU-KNOW"
        )
    click.echo(
        f"warning: EC2 itself answered that it sold {ids} for ${intent.fee_usd:,}. Only the bill proves otherwise.",
        err=True,
    )
    return _not_bought(desk, intent, note, yes=yes)


def _unpaid(desk: Desk, intent: PurchaseIntent) -> PurchaseIntent:
    said = "AWS says that its payment failed or that it never came: there is no block, and no fee"
    return _move(desk, intent, PurchaseState.FAILED, fee_usd=0, note=said)


# --- a person's word ----------------------------------------------------------------------------------


def _bought(
    desk: Desk, intent: PurchaseIntent, ids: tuple[str, ...], note: str, *, yes: bool
) -> PurchaseIntent:
    shown = {one.id: one for one in desk.cloud.reservations()}
    for id_ in ids:
        _check_it_can_be(desk, intent, id_, shown.get(id_))
    if not confirmed(f"Write down that {intent.id} made {', '.join(ids)}?", yes=yes):
        raise Refused("nothing was written down: you said no")
    said = f"{desk.who} found it{f': {note}' if note else ''}"
    settled = _confirm(desk, intent, tuple(sorted(set(ids))), said)
    for id_ in () if intent.extends else ids:
        if shown[id_].intent_id != intent.id:  # its tag was lost: the ledger says whose it is
            desk.ledger.adopt(Adoption(id_, intent.pool, desk.who, desk.now()))
            _tag(desk, intent, id_)
    return settled


def _check_it_can_be(desk: Desk, intent: PurchaseIntent, id_: str, found: Reservation | None) -> None:
    if found is None:
        raise SpecError(f"AWS shows no reservation '{id_}'")
    if intent.extends:
        if id_ != intent.extends:
            raise Refused(f"{intent.id} would extend {intent.extends}, not {id_}")
        return
    other = next(
        (one.id for one in desk.ledger.purchases() if one.id != intent.id and id_ in one.reservation_ids), ""
    )
    other = other or (found.intent_id if found.intent_id != intent.id else "")
    if other:
        raise Refused(f"{id_} was made by {other}, not by {intent.id}")
    if found.owner not in ("", desk.deployment):
        raise Refused(f"{id_} belongs to deployment {found.owner}")
    envelope = intent.envelope
    if found.instance_type != envelope.instance_type or (envelope.zones and found.zone not in envelope.zones):
        wanted = f"{envelope.instance_type} in {' or '.join(envelope.zones)}"
        raise Refused(f"{id_} is {found.instance_type} in {found.zone}; {intent.id} asked for {wanted}")


def _tag(desk: Desk, intent: PurchaseIntent, id_: str) -> None:
    tags = ((names.TAG_OWNER, desk.deployment), (names.TAG_POOL, intent.pool), (names.TAG_INTENT, intent.id))
    try:
        desk.cloud.tag_reservation(id_, tags)
    except (Refused, PortError) as error:
        click.echo(f"warning: {id_} is ours, and could not be tagged so: {error}", err=True)


def _not_bought(desk: Desk, intent: PurchaseIntent, note: str, *, yes: bool) -> PurchaseIntent:
    if not note:
        raise SpecError("--not-bought needs --note: say how you made sure, such as the bill or CloudTrail")
    due = (intent.state_at or intent.proposed_at) + NOT_BEFORE
    if desk.now() < due:
        raise Refused(
            f"EC2 may show a purchase most of an hour late, and a no before that buys it twice: it is taken from "
            f"{due:%Y-%m-%d %H:%M:%S} UTC on"
        )
    click.echo(
        f"If {intent.id} was bought after all, its demand will be bought a second time, for up to "
        f"${intent.envelope.max_fee_usd:,}.", err=True,
    )  # fmt: skip
    if not confirmed("Write down that nothing was bought?", yes=yes):
        raise Refused("nothing was written down: you said no")
    if intent.state is PurchaseState.SUBMITTED:
        intent = _move(
            desk, intent, PurchaseState.UNKNOWN, note="the call's answer was lost; it is not repeated"
        )
    said = f"{desk.who} made sure that nothing was bought: {note}"
    return _move(desk, intent, PurchaseState.FAILED, fee_usd=0, note=said)


def _confirm(desk: Desk, intent: PurchaseIntent, ids: tuple[str, ...], note: str) -> PurchaseIntent:
    """Its money left when it was submitted, so that is the month it counts in."""
    after = replace(
        intent, state=PurchaseState.CONFIRMED, reservation_ids=ids, fee_usd=_fee_usd(desk, intent, ids), note=note
    )  # fmt: skip
    desk.ledger.advance(intent, after)
    return after


def _fee_usd(desk: Desk, intent: PurchaseIntent, ids: tuple[str, ...]) -> int:
    """A failed one has none any more: AWS's figure, or the most it may have been."""
    if intent.extends:
        told_usd = sum(one.fee_usd for one in _in_history(desk, intent))
    else:
        told_usd = sum(one.fee_usd for one in desk.cloud.reservations() if one.id in ids)
    return intent.fee_usd or told_usd or intent.envelope.max_fee_usd


def _move(desk: Desk, intent: PurchaseIntent, state: PurchaseState, **changes: Any) -> PurchaseIntent:
    after = replace(intent, state=state, state_at=desk.now(), **changes)
    desk.ledger.advance(intent, after)
    return after
