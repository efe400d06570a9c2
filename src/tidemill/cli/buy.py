"""`tidemill buy` and `extend`: show what it is and what it costs, ask, propose it in the ledger, submit it.

An offer or an extension becomes a purchase intent. Duplicates are refused. What may be bought is submitted through the
engine's Buyer, the one place that spends money. If nobody knows the outcome, the message says so, and nothing is
submitted a second time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import click

from tidemill.cli.offer_cache import CachedOffer, cached_offer
from tidemill.cli.pool_capacity import limit_warning, pool_for
from tidemill.cli.purchase_summary import purchase_document, summary_lines
from tidemill.cli.session import JSON, YES, Session, with_session
from tidemill.cli.settle import confirm_from_aws
from tidemill.cli.terminal import confirmed
from tidemill.decide.read_models import not_granted, over_budget, why_not_wanted
from tidemill.engine.ownership import held_beside, with_true_owners
from tidemill.model.capacity import OVER_STATES, Reservation
from tidemill.model.ec2_facts import is_legal_duration
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
from tidemill.spec.units import format_duration, nearest_sold_durations, parse_duration
from tidemill.wording.purchases import purchase_sentence


@click.command(short_help="Buy an offer, or an approved intent.")
@click.argument("what", metavar="OFFER|INTENT")
@click.option("--pool", metavar="NAME", help="The pool that will use it. Needed if several pools could.")
@click.option("--another", is_flag=True, help="Buy it even if the same was bought, or may have been.")
@YES
@JSON
@with_session
def buy(session: Session, what: str, pool: str | None, another: bool, yes: bool, as_json: bool) -> None:
    """Buy OFFER (cb-…, from `tidemill offers`), or INTENT (tp-…) that is approved.

    Shows what it is, what it costs and who must approve it, then asks. --yes skips the question, not the approval.
    A block cannot be cancelled or refunded.

    Exits 0 if it was bought, or proposed and waits for approval; 1 if it was not bought; 2 if what was asked for makes
    no sense, such as a block that no pool can use; 3 if AWS denies a permission; 4 if nobody knows whether it was
    bought.
    """
    if what.startswith("tp-"):
        _buy_intent(session, what, yes=yes, as_json=as_json)
    elif what.startswith("cb-"):
        _buy_offer(session, what, pool, another=another, yes=yes, as_json=as_json)
    elif what.startswith("cr-"):
        raise SpecError(
            f"{what} is a block that is bought already; to buy more time on it: tidemill extend {what} --by TIME; to "
            f"use it: tidemill adopt {what}"
        )
    else:
        raise SpecError(
            f"'{what}' is neither an offer (cb-…) nor an intent (tp-…); find offers with: tidemill offers"
        )


@click.command(short_help="Buy more time on a block.")
@click.argument("block", metavar="BLOCK")
@click.option("--by", metavar="TIME", required=True, help="1d to 14d, then whole weeks up to 182d.")
@click.option("--another", is_flag=True, help="Buy it even if the same was bought, or may have been.")
@YES
@JSON
@with_session
def extend(session: Session, block: str, by: str, another: bool, yes: bool, as_json: bool) -> None:
    """Buy more time on BLOCK (cr-…). Its nodes stay: nothing boots and nothing moves.

    EC2 sells extensions from 56 days to 1 hour before the end of a block, one at a time, if it has the capacity. The
    end moves when the extension is paid. Shows, asks and needs approval like `tidemill buy`.
    """
    reservation = _our_block(session, block)
    offers = session.cloud.search_extensions(ExtensionQuery(block, _extension_length(by)))
    if not offers:
        raise NoCapacity(
            f"EC2 sells no extension of {block} by {by} now; search for a block that follows it: tidemill "
            f"offers {reservation.instance_type} --count {reservation.count} --duration {by} "
            f"--start {reservation.end:%Y-%m-%d}"
        )
    offer = min(offers, key=lambda extension: (extension.fee_usd, extension.id))

    def intent(attempt: int) -> PurchaseIntent:
        return extension_intent(
            session.spec.platform, reservation, offer, proposer=session.who, now=session.now(), attempt=attempt
        )  # fmt: skip

    request = PurchaseRequest(offer.id, offer.fee_usd, intent)
    _propose_and_buy(session, request, another=another, yes=yes, as_json=as_json)


def _our_block(session: Session, block: str) -> Reservation:
    reservation = next((known for known in our_reservations(session) if known.id == block), None)
    if reservation is None:
        raise SpecError(f"AWS shows no block '{block}'; list them with: tidemill blocks")
    if reservation.owner != session.deployment:
        raise Refused(f"{block} does not belong to this deployment; adopt it first: tidemill adopt {block}")
    return reservation


def _extension_length(written: str) -> timedelta:
    try:
        length = parse_duration(written)
    except ValueError as error:
        raise SpecError(f"--by: {error}") from None
    if not is_legal_duration(length):
        nearest = nearest_sold_durations(length)
        raise SpecError(f"--by: EC2 does not sell {written}; the nearest it sells: {nearest}")
    return length


# --- an offer -----------------------------------------------------------------------------------------


def _buy_offer(
    session: Session, offer_id: str, pool: str | None, *, another: bool, yes: bool, as_json: bool
) -> None:
    cached = cached_offer(offer_id)
    if cached is None:
        raise SpecError(f"{offer_id} is not among the offers you were shown; search again: tidemill offers")
    if sold_in := cached.question.region:
        here = session.spec.platform.spec.region
        raise SpecError(
            f"{offer_id} is sold in {sold_in}, and the platform runs in {here}: its nodes could not join; search here,"
            f" or write a Platform for {sold_in}"
        )
    offer = _search_again(session, cached)
    blocks = our_reservations(session)
    used_by = pool_for(session, offer, pool, blocks)
    why_not = over_date_limit(held_by_date(session.cloud.reservations()), offer.count, offer.start, offer.end)
    if why_not:
        raise Refused(why_not)
    if warning := limit_warning(session, used_by, offer, blocks):
        click.echo(f"warning: {warning}", err=True)

    def intent(attempt: int) -> PurchaseIntent:
        return block_intent(
            session.spec.platform, offer, cached.question.duration, pool=used_by, proposer=session.who,
            now=session.now(), attempt=attempt,
        )  # fmt: skip

    request = PurchaseRequest(offer.id, offer.fee_usd, intent, typed=offer_id)
    _propose_and_buy(session, request, another=another, yes=yes, as_json=as_json)


def _search_again(session: Session, cached: CachedOffer) -> Offer:
    """What EC2 sells now. The cached offer only says what to search for."""
    seen = cached.offer
    alike = [offer for offer in session.cloud.search_offers(cached.question.query) if same_block(seen, offer)]
    if not alike:
        raise NoCapacity(f"{seen.id} is no longer sold; search again: tidemill offers {seen.instance_type}")
    offer = min(alike, key=lambda offer: (offer.id != seen.id, offer.fee_usd, offer.id))
    if offer.id != seen.id:
        click.echo(f"{seen.id} is gone; EC2 now sells the same block as {offer.id}", err=True)
    if offer.fee_usd != seen.fee_usd:
        click.echo(f"its fee is ${offer.fee_usd:,} now, not ${seen.fee_usd:,}", err=True)
    return offer


# --- propose and buy ----------------------------------------------------------------------------------


def _propose_and_buy(
    session: Session, request: PurchaseRequest, *, another: bool, yes: bool, as_json: bool
) -> None:
    platform, spending = session.spec.platform, session.books.spending(session.now())
    if platform.spec.approval.mode == "propose":
        raise Refused(
            "the Platform's approval.mode is propose, so nothing is bought; set it to one, two or auto"
        )
    intent = check_duplicate(session, request, another=another)
    if why_not := over_budget(platform, None, None, request.fee_usd, spending):
        raise Refused(purchase_sentence(why_not), code=why_not.kind)
    _print_summary(session, intent, request.fee_usd)
    if not confirmed("Extend it?" if intent.extends else "Buy it?", yes=yes):
        raise Refused("not bought: you said no")
    for stale in expired_requests(session.books.purchases(), intent, session.now()):
        voided = replace(
            stale,
            state=PurchaseState.VOIDED,
            state_at=session.now(),
            reason=PurchaseReason(ReasonKind.REPLACED),
        )
        session.ledger.advance(stale, voided)
    session.ledger.propose(intent)
    waits = not_granted(platform, intent, spending)
    if waits is None:
        _submit(session, intent, as_json=as_json)
    else:
        sentence = f"{intent.id} is proposed; {purchase_sentence(waits)}: tidemill approve {intent.id}"
        _print_result(session, intent, request.fee_usd, sentence, as_json)


# --- an intent ----------------------------------------------------------------------------------------


def _buy_intent(session: Session, intent_id: str, *, yes: bool, as_json: bool) -> None:
    intent = session.purchase(intent_id)
    if intent.state in IN_DOUBT:
        settled = confirm_from_aws(session, intent)
        ids = ", ".join(settled.reservation_ids)
        sentence = f"{intent_id} was bought: AWS shows {ids}. Nothing was bought again"
        _print_result(session, settled, None, sentence, as_json)
        return
    if intent.state not in NOT_SUBMITTED:
        ids = f": {', '.join(intent.reservation_ids)}" if intent.reservation_ids else ""
        raise Refused(f"{intent_id} is {intent.state.value}{ids}; there is nothing left to buy")
    if expired(intent, session.now()):
        by = format_duration(intent.envelope.duration)
        again = f"extend {intent.extends} --by {by}" if intent.extends else "offers"
        raise Refused(f"{intent_id} has expired and cannot be bought; propose it again: tidemill {again}")
    held = held_beside(intent, session.cloud.reservations(), session.books, session.deployment, session.now())
    if not_wanted := why_not_wanted(session.spec, intent, held, session.now()):
        raise Refused(f"{intent_id} is not bought: {purchase_sentence(not_wanted)}", code=not_wanted.kind)
    if why_not := not_granted(session.spec.platform, intent, session.books.spending(session.now())):
        raise Refused(f"{intent_id} may not be bought: {purchase_sentence(why_not)}", code=why_not.kind)
    _print_summary(session, intent, None)
    if not confirmed("Buy it?", yes=yes):
        raise Refused("not bought: you said no")
    _submit(session, intent, as_json=as_json)


# --- duplicates ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PurchaseRequest:
    """What a person asks to buy. `intent(n)` makes the intent of the n-th request for the same offer."""

    offer_id: str
    fee_usd: int
    intent: Callable[[int], PurchaseIntent]
    typed: str = ""  # the offer id the person typed, if EC2 sells the block under another id now


def check_duplicate(session: Session, request: PurchaseRequest, *, another: bool) -> PurchaseIntent:
    """The intent to propose. Refused: the same was asked for, is held, or may have been bought.

    EC2 sells the same block under ever new ids, so comparing ids is not enough. `another` allows a second one.
    """
    purchases, now = session.books.purchases(), session.now()
    before = earlier_attempts(session.spec.platform, purchases, request.offer_id)
    for earlier in (before, earlier_attempts(session.spec.platform, purchases, request.typed)):
        if earlier and is_live(earlier[-1], now) and not another:
            raise Refused(_duplicate_message(earlier[-1]))
    intent = request.intent(len(before))
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
            f"{like.id} may have bought the same, and its outcome is unknown; look first: tidemill settle {like.id}; "
            "or buy a second one with --another"
        )
    if like is not None:
        raise Refused(_duplicate_message(like))
    live = [
        block
        for block in our_reservations(session)
        if block.owner == session.deployment and block.state not in OVER_STATES
    ]
    held = similar_block(live, intent)
    if held is not None:
        raise Refused(
            f"this deployment already holds {held.id}, the same block at the same time; buy a second one with --another"
        )


def _duplicate_message(intent: PurchaseIntent) -> str:
    if intent.state is PurchaseState.CONFIRMED:
        ids = ", ".join(intent.reservation_ids)
        return f"{intent.id} bought this already: {ids}; buy a second one with --another"
    if intent.state in NOT_SUBMITTED:
        verb = "approve" if intent.state is PurchaseState.PROPOSED else "buy"
        second = "" if intent.extends else "; ask for a second one with --another"
        asked = f"{intent.id} asks for this already and is {intent.state.value}"
        return f"{asked}: tidemill {verb} {intent.id}{second}"
    return f"{intent.id} may have bought this, and its outcome is unknown: tidemill settle {intent.id}"


def our_reservations(session: Session) -> list[Reservation]:
    """All reservations of the account, each with the owner that the ledger knows."""
    ledger = session.books
    shown = session.cloud.reservations()
    return list(
        with_true_owners(shown, ledger.purchases(), ledger.adoptions(), session.deployment, session.now())
    )


# --- submit -------------------------------------------------------------------------------------------


def _submit(session: Session, intent: PurchaseIntent, *, as_json: bool) -> None:
    try:
        answer = session.buyer().submit(intent)
    except NoCapacity as error:
        after = session.purchase(intent.id)
        again = "approve" if after.state.value == "proposed" and intent.state.value == "approved" else "buy"
        raise NoCapacity(
            f"nothing was bought: {error}. {intent.id} stays open: tidemill {again} {intent.id}"
        ) from error
    except (PortError, KeyboardInterrupt) as error:
        if not _may_have_been_bought(session, intent.id):
            raise
        raise OutcomeUnknown(
            f"nobody knows whether {intent.id} was bought: {_what_aws_said(error)}. It is not submitted again, and"
            f" its fee counts as spent. AWS shows a purchase within minutes; look for it: tidemill settle {intent.id}."
            " Do not buy the same again before that"
        ) from error
    after = session.purchase(intent.id)
    if after.state is not PurchaseState.CONFIRMED:
        raise Refused(f"{intent.id}: {answer}", code=after.reason.kind if after.reason else "")
    sentence = f"{intent.id}: {answer}. Follow it with: tidemill blocks"
    _print_result(session, after, after.fee_usd, sentence, as_json)


def _what_aws_said(error: BaseException) -> str:
    """AWS's code and sentence, and the id of the call for its support."""
    if not isinstance(error, PortError) or not error.code:
        return "AWS did not answer"
    return f"{error}{f', request id {error.request_id}' if error.request_id else ''}"


def _may_have_been_bought(session: Session, intent_id: str) -> bool:
    """Whether the call may have been made. If the ledger cannot be read, yes."""
    try:
        return session.purchase(intent_id).state in IN_DOUBT
    except PortError:
        return True


def _print_summary(session: Session, intent: PurchaseIntent, fee_usd: int | None) -> None:
    for line in summary_lines(session.spec, intent, fee_usd, session.books.spending(session.now())):
        click.echo(line, err=True)


def _print_result(
    session: Session, intent: PurchaseIntent, fee_usd: int | None, sentence: str, as_json: bool
) -> None:
    if as_json:
        document = {**purchase_document(session.spec, intent, fee_usd), "said": sentence}
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(sentence)
