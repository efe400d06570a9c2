"""`tidemill buy` and `extend`: what it is and what it costs, a question, an intent, and the one place that spends.

An offer or an extension becomes an intent in the ledger; who must approve is said; what may be bought is submitted
through the same Buyer as the engine's. An outcome nobody knows is told as such, and never answered by trying again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import click

from tidemill.cli.offer_cache import CachedOffer, cached_offer
from tidemill.cli.pool_capacity import limit_warning, pool_for
from tidemill.cli.purchase_summary import purchase_document, summary_lines
from tidemill.cli.session import JSON, YES, Session, with_session
from tidemill.cli.settle import confirm_from_aws
from tidemill.cli.terminal import confirmed
from tidemill.decide.purchasing.approval import not_granted, over_budget
from tidemill.engine.ownership import with_true_owners
from tidemill.model.capacity import OVER_STATES, Reservation
from tidemill.model.ec2_facts import is_legal_duration, nearest_legal_durations
from tidemill.model.errors import NoCapacity, OutcomeUnknown, PortError, Refused, SpecError
from tidemill.model.offers import ExtensionQuery, Offer
from tidemill.model.purchase_reasons import PurchaseReason, ReasonKind
from tidemill.model.purchases import IN_DOUBT, NOT_SUBMITTED, PurchaseIntent, PurchaseState
from tidemill.offer_search.proposal import (
    block_intent,
    earlier_attempts,
    expired,
    expired_requests,
    extension_intent,
    is_live,
    open_extension_of_same_block,
    same_block,
    similar_block,
    similar_purchase,
)
from tidemill.offer_search.request import held_by_date, over_date_limit
from tidemill.spec.units import format_duration, parse_duration
from tidemill.wording.purchases import purchase_sentence


@click.command(short_help="Buy an offer, or an intent that is approved.")
@click.argument("what", metavar="OFFER|INTENT")
@click.option("--pool", metavar="NAME", help="The pool that will use it; needed where several could.")
@click.option("--another", is_flag=True, help="Buy it although the same was bought, or may have been.")
@YES
@JSON
@with_session
def buy(session: Session, what: str, pool: str | None, another: bool, yes: bool, as_json: bool) -> None:
    """Buy OFFER (cb-…, as `tidemill offers` shows it), or INTENT (tp-…) that is approved.

    Shows what it is, what it costs and who must approve, and asks. --yes skips the question, never the approval.
    A block cannot be cancelled or refunded. Exits 1 where nothing was bought, 4 where nobody knows.
    """
    if what.startswith("tp-"):
        _buy_intent(session, what, yes=yes, as_json=as_json)
    elif what.startswith("cb-"):
        _buy_offer(session, what, pool, another=another, yes=yes, as_json=as_json)
    elif what.startswith("cr-"):
        raise SpecError(
            f"{what} is bought already: `tidemill extend` buys time on it, `tidemill adopt` takes it in"
        )
    else:
        raise SpecError(
            f"'{what}' is neither an offer (cb-…) nor an intent (tp-…); find offers: tidemill offers"
        )


@click.command(short_help="Buy more time on a block.")
@click.argument("block", metavar="BLOCK")
@click.option("--by", metavar="TIME", required=True, help="1d to 14d, then whole weeks up to 182d.")
@click.option("--another", is_flag=True, help="Although the same was bought before, or may have been.")
@YES
@JSON
@with_session
def extend(session: Session, block: str, by: str, another: bool, yes: bool, as_json: bool) -> None:
    """Buy more time on BLOCK (cr-…): its nodes stay, nothing boots and nothing moves.

    EC2 sells it from 56 days to 1 hour before the end, one extension at a time, if it has the capacity. The end moves
    only when it is paid. Shows, asks and needs approval as `tidemill buy` does.
    """
    found = _our_block(session, block)
    offers = session.cloud.search_extensions(ExtensionQuery(block, _extension_length(by)))
    if not offers:
        raise NoCapacity(
            f"EC2 sells no {by} more of {block} now. A new block can follow it: tidemill offers "
            f"{found.instance_type} --count {found.count} --duration {by} --start {found.end:%Y-%m-%d}"
        )
    offer = min(offers, key=lambda one: (one.fee_usd, one.id))

    def intent(attempt: int) -> PurchaseIntent:
        return extension_intent(
            session.spec.platform, found, offer, proposer=session.who, now=session.now(), attempt=attempt
        )

    _propose_and_buy(
        session, PurchaseRequest(offer.id, offer.fee_usd, intent), another=another, yes=yes, as_json=as_json
    )


# --- an offer -----------------------------------------------------------------------------------------


def _buy_offer(
    session: Session, offer_id: str, pool: str | None, *, another: bool, yes: bool, as_json: bool
) -> None:
    noted = cached_offer(offer_id)
    if noted is None:
        raise SpecError(f"{offer_id} is not an offer you were shown lately; search again: tidemill offers")
    offer = _search_again(session, noted)
    used_by = pool_for(session, offer, pool)
    why_not = over_date_limit(held_by_date(session.cloud.reservations()), offer.count, offer.start, offer.end)
    if why_not:
        raise Refused(why_not)
    if short := limit_warning(session, used_by, offer, our_reservations(session)):
        click.echo(f"warning: {short}", err=True)

    def intent(attempt: int) -> PurchaseIntent:
        return block_intent(
            session.spec.platform, offer, noted.question.duration, pool=used_by, proposer=session.who,
            now=session.now(),
            attempt=attempt,
        )  # fmt: skip

    wanted = PurchaseRequest(offer.id, offer.fee_usd, intent, typed=offer_id)
    _propose_and_buy(session, wanted, another=another, yes=yes, as_json=as_json)


def _search_again(session: Session, noted: CachedOffer) -> Offer:
    """What EC2 says of it now: a note of it is no more than a hint."""
    seen = noted.offer
    alike = [one for one in session.cloud.search_offers(noted.question.query) if same_block(seen, one)]
    if not alike:
        raise NoCapacity(f"{seen.id} is no longer sold; search again: tidemill offers {seen.instance_type}")
    offer = min(alike, key=lambda one: (one.id != seen.id, one.fee_usd, one.id))
    if offer.id != seen.id:
        click.echo(f"{seen.id} is gone; the same block is sold as {offer.id}", err=True)
    if offer.fee_usd != seen.fee_usd:
        click.echo(f"its fee is ${offer.fee_usd:,} now, not ${seen.fee_usd:,}", err=True)
    return offer


# --- the same way for both ----------------------------------------------------------------------------


def _propose_and_buy(
    session: Session, wanted: PurchaseRequest, *, another: bool, yes: bool, as_json: bool
) -> None:
    platform, spending = session.spec.platform, session.ledger.spending(session.now())
    if platform.spec.approval.mode == "propose":
        raise Refused("the Platform only proposes and buys nothing: set approval.mode to one, two or auto")
    intent = check_duplicate(session, wanted, another=another)
    if why_not := over_budget(platform, None, None, wanted.fee_usd, spending):
        raise Refused(purchase_sentence(why_not), code=why_not.kind)
    print_summary(session, intent, wanted.fee_usd)
    if not confirmed("Extend it?" if intent.extends else "Buy it?", yes=yes):
        raise Refused("not bought: you said no")
    void_expired(session, expired_requests(session.ledger.purchases(), intent, session.now()))
    session.ledger.propose(intent)
    waits = not_granted(platform, intent, spending)
    if waits is None:
        submit(session, intent, as_json=as_json)
    else:
        said = f"{intent.id} is proposed; {purchase_sentence(waits)}: tidemill approve {intent.id}"
        print_result(session, intent, wanted.fee_usd, said, as_json)


# --- an intent ----------------------------------------------------------------------------------------


def _buy_intent(session: Session, intent_id: str, *, yes: bool, as_json: bool) -> None:
    intent = session.purchase(intent_id)
    if intent.state in IN_DOUBT:
        settled = confirm_from_aws(session, intent)
        ids = ", ".join(settled.reservation_ids)
        print_result(
            session,
            settled,
            None,
            f"{intent_id} was bought: AWS shows {ids}. Nothing was bought again",
            as_json,
        )
        return
    if intent.state not in NOT_SUBMITTED:
        came = f": {', '.join(intent.reservation_ids)}" if intent.reservation_ids else ""
        raise Refused(f"{intent_id} is {intent.state.value}{came}; there is nothing left to buy")
    if expired(intent, session.now()):
        by = format_duration(intent.envelope.duration)
        again = f"extend {intent.extends} --by {by}" if intent.extends else "offers"
        raise Refused(f"{intent_id} has expired and cannot be bought; propose it again: tidemill {again}")
    if why_not := not_granted(session.spec.platform, intent, session.ledger.spending(session.now())):
        raise Refused(f"{intent_id} may not be bought: {purchase_sentence(why_not)}", code=why_not.kind)
    print_summary(session, intent, None)
    if not confirmed("Buy it?", yes=yes):
        raise Refused("not bought: you said no")
    submit(session, intent, as_json=as_json)


# --- a block to extend --------------------------------------------------------------------------------


def _our_block(session: Session, block: str) -> Reservation:
    found = next((one for one in our_reservations(session) if one.id == block), None)
    if found is None:
        raise SpecError(f"AWS shows no block '{block}'; list them: tidemill blocks")
    if found.owner != session.deployment:
        raise Refused(f"{block} is not ours; take it in first: tidemill adopt {block}")
    return found


def _extension_length(written: str) -> timedelta:
    try:
        found = parse_duration(written)
    except ValueError as error:
        raise SpecError(f"--by: {error}") from None
    if not is_legal_duration(found):
        nearest = " and ".join(format_duration(one) for one in nearest_legal_durations(found))
        raise SpecError(f"--by: EC2 does not sell {written}; the nearest it sells: {nearest}")
    return found


# --- duplicate_check ---


@dataclass(frozen=True, slots=True)
class PurchaseRequest:
    """`intent` makes the intent of the n-th time this offer is asked for."""

    offer_id: str
    fee_usd: int
    intent: Callable[[int], PurchaseIntent]
    typed: str = ""  # the id it was asked for by, where EC2 sells it under another by now


def check_duplicate(session: Session, wanted: PurchaseRequest, *, another: bool) -> PurchaseIntent:
    """Refused where it was asked for before, or the like of it is there or may be, under whatever id."""
    purchases, now = session.ledger.purchases(), session.now()
    before = earlier_attempts(session.spec.platform, purchases, wanted.offer_id)
    for asked in (before, earlier_attempts(session.spec.platform, purchases, wanted.typed)):
        if asked and is_live(asked[-1], now) and not another:
            raise Refused(_duplicate_message(asked[-1]))
    intent = wanted.intent(len(before))
    if (same := open_extension_of_same_block(purchases, intent, now)) is not None:
        raise Refused(_duplicate_message(same))
    if not another:
        _check_no_equal_block(session, purchases, intent)
    return intent


def _check_no_equal_block(
    session: Session, purchases: Sequence[PurchaseIntent], intent: PurchaseIntent
) -> None:
    like = similar_purchase(purchases, intent, session.now())
    if like is not None and like.state in IN_DOUBT:
        raise Refused(
            f"{like.id} may have bought the same and nobody knows yet: look with `tidemill settle {like.id}` "
            "first; --another buys beside it"
        )
    if like is not None:
        raise Refused(_duplicate_message(like))
    held = similar_block(_live_blocks(session), intent)
    if held is not None:
        raise Refused(f"{held.id} is the same, at the same time, and ours; --another buys a second one")


def _live_blocks(session: Session) -> list[Reservation]:
    return [
        one
        for one in our_reservations(session)
        if one.owner == session.deployment and one.state not in OVER_STATES
    ]


def void_expired(session: Session, gone: Iterable[PurchaseIntent]) -> None:
    for one in gone:
        reason = PurchaseReason(ReasonKind.REPLACED)
        session.ledger.advance(
            one, replace(one, state=PurchaseState.VOIDED, state_at=session.now(), reason=reason)
        )


def _duplicate_message(intent: PurchaseIntent) -> str:
    beside = "" if intent.extends else "; --another asks for a second one"
    if intent.state is PurchaseState.CONFIRMED:
        ids = ", ".join(intent.reservation_ids)
        return f"{intent.id} bought this already: {ids}; --another buys a second one"
    if intent.state in NOT_SUBMITTED:
        verb = "approve" if intent.state is PurchaseState.PROPOSED else "buy"
        said = f"{intent.id} asks for this already and is {intent.state.value}: tidemill {verb} {intent.id}"
        return f"{said}{beside}"
    return f"{intent.id} may have bought this, and nobody knows yet: tidemill settle {intent.id}"


def our_reservations(session: Session) -> list[Reservation]:
    ledger = session.ledger
    return list(
        with_true_owners(
            session.cloud.reservations(),
            ledger.purchases(),
            ledger.adoptions(),
            session.deployment,
            session.now(),
        )
    )


# --- submit ---


def print_summary(session: Session, intent: PurchaseIntent, fee_usd: int | None) -> None:
    for line in summary_lines(session.spec, intent, fee_usd, session.ledger.spending(session.now())):
        click.echo(line, err=True)


def print_result(
    session: Session, intent: PurchaseIntent, fee_usd: int | None, sentence: str, as_json: bool
) -> None:
    if as_json:
        told = {**purchase_document(session.spec, intent, fee_usd), "said": sentence}
        click.echo(json.dumps(told, indent=2))
    else:
        click.echo(sentence)


def submit(session: Session, intent: PurchaseIntent, *, as_json: bool) -> None:
    try:
        said = session.buyer().submit(intent)
    except NoCapacity as error:
        after = session.purchase(intent.id)
        again = "approve" if after.state.value == "proposed" and intent.state.value == "approved" else "buy"
        raise NoCapacity(
            f"nothing was bought: {error}. {intent.id} stays: tidemill {again} {intent.id}"
        ) from error
    except (PortError, KeyboardInterrupt) as error:
        if not _may_have_been_bought(session, intent.id):
            raise
        raise OutcomeUnknown(outcome_unknown_message(intent.id)) from error
    after = session.purchase(intent.id)
    print_result(
        session, after, after.fee_usd, f"{intent.id}: {said}. Follow it with: tidemill blocks", as_json
    )


def _may_have_been_bought(session: Session, intent_id: str) -> bool:
    """Whether the call may have been made. A ledger that does not answer cannot say no."""
    try:
        return session.purchase(intent_id).state in IN_DOUBT
    except PortError:
        return True


def outcome_unknown_message(intent_id: str) -> str:
    return (
        f"nobody knows whether {intent_id} was bought: AWS did not answer. It is not submitted again, and its fee "
        f"counts as spent. AWS shows a purchase within minutes: `tidemill settle {intent_id}` looks for it. Do not buy "
        "the same again before that"
    )
