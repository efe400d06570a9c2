"""`tidemill settle`: record the outcome of a purchase whose outcome is unknown. AWS is asked first, then a person.

"AWS does not show it" does not mean "not bought": EC2 may list a purchase late. So "not bought" is accepted only with a
note that says how the person knows, and only after an hour. A purchase that EC2 confirmed can be settled too, if AWS
does not show it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

import click

from tidemill.cli.session import JSON, YES, Session, with_session
from tidemill.cli.terminal import confirmed
from tidemill.model.capacity import NEVER_CAME_STATES, Reservation
from tidemill.model.errors import OutcomeUnknown, PortError, Refused, SpecError
from tidemill.model.offers import Extension, ExtensionState
from tidemill.model.purchase_reasons import PurchaseReason, ReasonKind
from tidemill.model.purchases import IN_DOUBT, Adoption, PurchaseIntent, PurchaseState
from tidemill.spec import names
from tidemill.store.rows import document
from tidemill.wording.purchases import purchase_note

# EC2 has listed purchases up to 45 minutes late. This errs on the long side: waiting costs little, and a "not bought"
# that comes too early buys the same block twice.
NOT_BOUGHT_AFTER = timedelta(minutes=60)


@click.command(short_help="Find and record the outcome of an unanswered purchase.")
@click.argument("intent_id", metavar="INTENT")
@click.option("--bought", "bought", multiple=True, metavar="CR-ID", help="It bought this reservation.")
@click.option("--not-bought", is_flag=True, help="You checked that nothing was bought.")
@click.option("--note", default="", help="How you know. Needed with --not-bought.")
@YES
@JSON
@with_session
def settle(
    session: Session,
    intent_id: str,
    bought: tuple[str, ...],
    not_bought: bool,
    note: str,
    yes: bool,
    as_json: bool,
) -> None:
    """Find out the outcome of INTENT (tp-…) that was submitted and not answered, or confirmed and not shown by AWS.

    Without options it looks for the purchase at AWS, by its tag or in the history of extensions, and records what it
    finds, also a failed payment. If AWS shows nothing, you say what happened with --bought or --not-bought; it is
    recorded with your identity. --not-bought is accepted from one hour after the submit; --bought corrects it later.
    """
    if bought and not_bought:
        raise SpecError("give --bought or --not-bought, not both")
    intent = session.purchase(intent_id)
    if intent.state not in (*IN_DOUBT, PurchaseState.CONFIRMED, PurchaseState.FAILED):
        raise Refused(
            f"{intent_id} is {intent.state.value}: its outcome is known, there is nothing to settle"
        )
    if intent.state is PurchaseState.CONFIRMED:
        settled = _settle_confirmed(session, intent, not_bought, note, yes=yes)
    elif bought:
        settled = _record_bought(session, intent, bought, note, yes=yes)
    elif not_bought and intent.state in IN_DOUBT and not reservations_made_by(session, intent):
        settled = _record_not_bought(session, intent, note, yes=yes)
    else:
        settled = confirm_from_aws(session, intent)
        settled = _record_unpaid(session, settled) if state_at_aws(session, settled) == "unpaid" else settled
    _print_settled(settled, as_json)


def _print_settled(settled: PurchaseIntent, as_json: bool) -> None:
    came = f": {', '.join(settled.reservation_ids)}, ${settled.fee_usd:,}" if settled.reservation_ids else ""
    sentence = f"{settled.id} is {settled.state.value}{came} ({purchase_note(settled)})"
    if as_json:
        click.echo(
            json.dumps(
                {"intent": document(settled), "state": settled.state.value, "said": sentence}, indent=2
            )
        )
    else:
        click.echo(sentence)


# --- what AWS shows -----------------------------------------------------------------------------------


def confirm_from_aws(session: Session, intent: PurchaseIntent) -> PurchaseIntent:
    """The settled intent, if AWS shows what it bought; OutcomeUnknown if not."""
    made = reservations_made_by(session, intent)
    if intent.state is PurchaseState.FAILED and (not made or state_at_aws(session, intent) == "unpaid"):
        raise Refused(
            f"{intent.id} is failed, and AWS shows no block of it; if it bought one, add --bought cr-…"
        )
    if not made:
        raise OutcomeUnknown(_still_unknown(session, intent))
    kind = ReasonKind.FOUND_IN_HISTORY if intent.extends else ReasonKind.FOUND_BY_TAG
    return _confirm(session, intent, made, PurchaseReason(kind, reservation_ids=made))


def reservations_made_by(session: Session, intent: PurchaseIntent) -> tuple[str, ...]:
    """The reservations that it bought, or the one it extended, as far as AWS shows them."""
    if intent.extends:
        return (intent.extends,) if _in_history(session, intent) else ()
    return tuple(sorted(block.id for block in session.cloud.reservations() if block.intent_id == intent.id))


def _may_be_it(session: Session, intent: PurchaseIntent) -> tuple[str, ...]:
    """Reservations that cannot be read and may be what it bought: not even their tags can be read."""
    if intent.extends:
        return ()
    known = {id_ for other in session.books.purchases() for id_ in other.reservation_ids}
    return tuple(
        one.id
        for one in session.cloud.reservations()
        if one.unread and not one.tags_known and one.id not in known and one.intent_id in ("", intent.id)
    )


def state_at_aws(session: Session, intent: PurchaseIntent) -> Literal["there", "unpaid", "missing"]:
    """What AWS shows of the purchase now."""
    if intent.extends:
        unpaid = [
            extension.state is ExtensionState.PAYMENT_FAILED for extension in _in_history(session, intent)
        ]
    else:
        unpaid = [
            block.state in NEVER_CAME_STATES and not block.unread
            for block in session.cloud.reservations()
            if block.intent_id == intent.id or block.id in intent.reservation_ids
        ]
    if not unpaid:
        return "missing"
    return "unpaid" if all(unpaid) else "there"


def _in_history(session: Session, intent: PurchaseIntent) -> list[Extension]:
    return [
        extension
        for extension in session.cloud.extensions()
        if intent.offer_id and extension.offer_id == intent.offer_id
    ]


def _still_unknown(session: Session, intent: PurchaseIntent) -> str:
    since = intent.state_at or intent.proposed_at
    text = f"AWS does not show {intent.id}, submitted {since:%Y-%m-%d %H:%M:%S} UTC"
    if intent.reason is not None and intent.reason.detail:
        text += f" ({purchase_note(intent)})"
    if session.now() < since + NOT_BOUGHT_AFTER:
        return (
            f"{text}, yet. It may still be bought: look again in some minutes, and do not buy the same again"
        )
    return (
        f"{text}. It may still be bought: look in the EC2 console and the bill, then record what you found: tidemill "
        f"settle {intent.id} --bought cr-… or --not-bought --note HOW-YOU-KNOW"
    )


# --- confirmed by EC2 ---------------------------------------------------------------------------------


def _settle_confirmed(
    session: Session, intent: PurchaseIntent, not_bought: bool, note: str, *, yes: bool
) -> PurchaseIntent:
    """EC2 confirmed it. Its payment may have failed since, or EC2 does not list it."""
    ids = ", ".join(intent.reservation_ids)
    seen = state_at_aws(session, intent)
    if seen == "unpaid":
        return _record_unpaid(session, intent)
    if seen == "there":
        raise Refused(f"{intent.id} is confirmed and AWS shows {ids}: there is nothing to settle")
    if intent.envelope.earliest_end <= session.now():
        raise Refused(
            f"{intent.id} was bought and has ended, so EC2 no longer lists {ids}; its fee stays spent"
        )
    if not not_bought:
        raise OutcomeUnknown(
            f"EC2 confirmed {intent.id} ({ids}) but does not list it. Its fee counts as spent. Look in the EC2 console "
            f"and the bill; if it is not there: tidemill settle {intent.id} --not-bought --note HOW-YOU-KNOW"
        )
    click.echo(
        f"warning: EC2 answered that it sold {ids} for ${intent.fee_usd:,}. Only the bill can prove otherwise.",
        err=True,
    )
    return _record_not_bought(session, intent, note, yes=yes)


def _record_unpaid(session: Session, intent: PurchaseIntent) -> PurchaseIntent:
    reason = PurchaseReason(ReasonKind.PAYMENT_FAILED)
    return _advance(session, intent, PurchaseState.FAILED, reason, fee_usd=0)


# --- what a person found ----------------------------------------------------------------------------------


def _record_bought(
    session: Session, intent: PurchaseIntent, ids: tuple[str, ...], note: str, *, yes: bool
) -> PurchaseIntent:
    shown = {block.id: block for block in session.cloud.reservations()}
    for id_ in ids:
        _check_reservation(session, intent, id_, shown.get(id_))
    if not confirmed(f"Record that {intent.id} bought {', '.join(ids)}?", yes=yes):
        raise Refused("nothing was recorded: you said no")
    reason = PurchaseReason(ReasonKind.FOUND_BY_PERSON, name=session.who)
    settled = _confirm(session, intent, tuple(sorted(set(ids))), reason, note)
    for id_ in () if intent.extends else ids:
        if shown[id_].intent_id != intent.id:  # its tag is missing, so the ledger records the owner
            session.ledger.adopt(Adoption(id_, intent.pool, session.who, session.now()))
            _tag(session, intent, id_)
    return settled


def _check_reservation(session: Session, intent: PurchaseIntent, id_: str, found: Reservation | None) -> None:
    if found is None:
        raise SpecError(f"AWS shows no reservation '{id_}'; list them with: tidemill blocks")
    if intent.extends:
        if id_ != intent.extends:
            raise Refused(f"{intent.id} extends {intent.extends}, not {id_}; name {intent.extends}")
        return
    other = next(
        (
            known.id
            for known in session.books.purchases()
            if known.id != intent.id and id_ in known.reservation_ids
        ),
        "",
    )
    other = other or (found.intent_id if found.intent_id != intent.id else "")
    if other:
        raise Refused(f"{id_} was bought by {other}, not by {intent.id}")
    if found.owner not in ("", session.deployment):
        raise Refused(f"{id_} belongs to deployment {found.owner}")
    envelope = intent.envelope
    if found.unread:
        return  # the person has looked at it
    if found.instance_type != envelope.instance_type or (envelope.zones and found.zone not in envelope.zones):
        wanted = f"{envelope.instance_type} in {' or '.join(envelope.zones)}"
        raise Refused(f"{id_} is {found.instance_type} in {found.zone}; {intent.id} asked for {wanted}")


def _tag(session: Session, intent: PurchaseIntent, id_: str) -> None:
    tags = (
        (names.TAG_OWNER, session.deployment),
        (names.TAG_POOL, intent.pool),
        (names.TAG_INTENT, intent.id),
    )
    try:
        session.cloud.tag_reservation(id_, tags)
    except (Refused, PortError) as error:
        click.echo(f"warning: {id_} is ours, but could not be tagged: {error}", err=True)


def _record_not_bought(session: Session, intent: PurchaseIntent, note: str, *, yes: bool) -> PurchaseIntent:
    if not note:
        raise SpecError(
            "--not-bought needs --note: write how you know, for example from the bill or CloudTrail"
        )
    due = (intent.state_at or intent.proposed_at) + NOT_BOUGHT_AFTER
    if doubtful := _may_be_it(session, intent):
        raise Refused(
            f"AWS lists {', '.join(doubtful)} with a record that cannot be read: it may be what {intent.id} bought."
            f" Look at it in the EC2 console; if it is: tidemill settle {intent.id} --bought {doubtful[0]}"
        )
    if session.now() < due:
        raise Refused(
            f"EC2 may list a purchase up to an hour late, so --not-bought is accepted from {due:%Y-%m-%d %H:%M:%S} UTC "
            "on; try again then"
        )
    click.echo(
        f"If {intent.id} was bought after all, its demand will be bought twice, for up to "
        f"${intent.envelope.max_fee_usd:,}.", err=True,
    )  # fmt: skip
    if not confirmed("Record that nothing was bought?", yes=yes):
        raise Refused("nothing was recorded: you said no")
    if intent.state is PurchaseState.SUBMITTED:
        intent = _advance(session, intent, PurchaseState.UNKNOWN, PurchaseReason(ReasonKind.ANSWER_LOST))
    reason = PurchaseReason(ReasonKind.NOT_BOUGHT_SAYS_PERSON, name=session.who)
    return _advance(session, intent, PurchaseState.FAILED, reason, fee_usd=0, note=note)


def _confirm(
    session: Session, intent: PurchaseIntent, ids: tuple[str, ...], reason: PurchaseReason, note: str = ""
) -> PurchaseIntent:
    """The state's time stays: the fee counts in the month of the submit."""
    after = replace(
        intent, state=PurchaseState.CONFIRMED, reservation_ids=ids, fee_usd=_fee_usd(session, intent, ids),
        reason=reason, note=note,
    )  # fmt: skip
    session.ledger.advance(intent, after)
    return after


def _fee_usd(session: Session, intent: PurchaseIntent, ids: tuple[str, ...]) -> int:
    """The recorded fee; a failed purchase has none, so AWS's figure, or the highest fee that was approved."""
    if intent.extends:
        shown_usd = sum(extension.fee_usd for extension in _in_history(session, intent))
    else:
        shown_usd = sum(block.fee_usd for block in session.cloud.reservations() if block.id in ids)
    return intent.fee_usd or shown_usd or intent.envelope.max_fee_usd


def _advance(
    session: Session, intent: PurchaseIntent, state: PurchaseState, reason: PurchaseReason, **changes: Any
) -> PurchaseIntent:
    after = replace(intent, state=state, state_at=session.now(), reason=reason, **{"note": "", **changes})
    session.ledger.advance(intent, after)
    return after
