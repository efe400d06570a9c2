"""`tidemill buy` and `extend`: what it is and what it costs, a question, an intent, and the one place that spends.

An offer or an extension becomes an intent in the ledger; who must approve is said; what may be bought is submitted
through the same Buyer as the engine's. An outcome nobody knows is told as such, and never answered by trying again.
"""

from __future__ import annotations

from datetime import timedelta

import click

from tidemill.cli.confirm import confirmed
from tidemill.cli.duplicate_check import Wanted, first_time, shown, void
from tidemill.cli.offer_cache import Noted, recall
from tidemill.cli.pool_capacity import more_than_limits, pool_for
from tidemill.cli.session import JSON, YES, Desk, at_the_desk
from tidemill.cli.settle import look_again
from tidemill.cli.submit import show, submit, tell
from tidemill.decide.purchasing.approval import not_granted, over_budget
from tidemill.model.capacity import Reservation
from tidemill.model.ec2_facts import is_legal_duration, nearest_legal_durations
from tidemill.model.errors import NoCapacity, Refused, SpecError
from tidemill.model.offers import ExtensionQuery, Offer
from tidemill.model.purchases import PurchaseIntent, PurchaseState
from tidemill.offer_search.proposal import (
    block_intent,
    expired,
    extension_intent,
    lapsed,
    same_block,
)
from tidemill.offer_search.request import crowded, held_by_date
from tidemill.spec.units import format_duration, parse_duration


@click.command(short_help="Buy an offer, or an intent that is approved.")
@click.argument("what", metavar="OFFER|INTENT")
@click.option("--pool", metavar="NAME", help="The pool that will use it; needed where several could.")
@click.option("--another", is_flag=True, help="Buy it although the same was bought, or may have been.")
@YES
@JSON
@at_the_desk
def buy(desk: Desk, what: str, pool: str | None, another: bool, yes: bool, as_json: bool) -> None:
    """Buy OFFER (cb-…, as `tidemill offers` shows it), or INTENT (tp-…) that is approved.

    Shows what it is, what it costs and who must approve, and asks. --yes skips the question, never the approval.
    A block cannot be cancelled or refunded. Exits 1 where nothing was bought, 4 where nobody knows.
    """
    if what.startswith("tp-"):
        _buy_intent(desk, what, yes=yes, as_json=as_json)
    elif what.startswith("cb-"):
        _buy_offer(desk, what, pool, another=another, yes=yes, as_json=as_json)
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
@at_the_desk
def extend(desk: Desk, block: str, by: str, another: bool, yes: bool, as_json: bool) -> None:
    """Buy more time on BLOCK (cr-…): its nodes stay, nothing boots and nothing moves.

    EC2 sells it from 56 days to 1 hour before the end, one extension at a time, if it has the capacity. The end moves
    only when it is paid. Shows, asks and needs approval as `tidemill buy` does.
    """
    found = _ours(desk, block)
    offers = desk.cloud.search_extensions(ExtensionQuery(block, _length(by)))
    if not offers:
        raise NoCapacity(
            f"EC2 sells no {by} more of {block} now. A new block can follow it: tidemill offers "
            f"{found.instance_type} --count {found.count} --duration {by} --start {found.end:%Y-%m-%d}"
        )
    offer = min(offers, key=lambda one: (one.fee_usd, one.id))

    def intent(attempt: int) -> PurchaseIntent:
        return extension_intent(
            desk.spec.platform, found, offer, proposer=desk.who, now=desk.now(), attempt=attempt
        )

    _propose_and_buy(desk, Wanted(offer.id, offer.fee_usd, intent), another=another, yes=yes, as_json=as_json)


# --- an offer -----------------------------------------------------------------------------------------


def _buy_offer(
    desk: Desk, offer_id: str, pool: str | None, *, another: bool, yes: bool, as_json: bool
) -> None:
    noted = recall(offer_id)
    if noted is None:
        raise SpecError(f"{offer_id} is not an offer you were shown lately; search again: tidemill offers")
    offer = _offered_again(desk, noted)
    used_by = pool_for(desk, offer, pool)
    why_not = crowded(held_by_date(desk.cloud.reservations()), offer.count, offer.start, offer.end)
    if why_not:
        raise Refused(why_not)
    if short := more_than_limits(desk, used_by, offer, shown(desk)):
        click.echo(f"warning: {short}", err=True)

    def intent(attempt: int) -> PurchaseIntent:
        return block_intent(
            desk.spec.platform, offer, noted.question.duration, pool=used_by, proposer=desk.who, now=desk.now(),
            attempt=attempt,
        )  # fmt: skip

    wanted = Wanted(offer.id, offer.fee_usd, intent, typed=offer_id)
    _propose_and_buy(desk, wanted, another=another, yes=yes, as_json=as_json)


def _offered_again(desk: Desk, noted: Noted) -> Offer:
    """What EC2 says of it now: a note of it is no more than a hint."""
    seen = noted.offer
    alike = [one for one in desk.cloud.search_offers(noted.question.query) if same_block(seen, one)]
    if not alike:
        raise NoCapacity(f"{seen.id} is no longer sold; search again: tidemill offers {seen.instance_type}")
    offer = min(alike, key=lambda one: (one.id != seen.id, one.fee_usd, one.id))
    if offer.id != seen.id:
        click.echo(f"{seen.id} is gone; the same block is sold as {offer.id}", err=True)
    if offer.fee_usd != seen.fee_usd:
        click.echo(f"its fee is ${offer.fee_usd:,} now, not ${seen.fee_usd:,}", err=True)
    return offer


# --- the same way for both ----------------------------------------------------------------------------


def _propose_and_buy(desk: Desk, wanted: Wanted, *, another: bool, yes: bool, as_json: bool) -> None:
    platform, spending = desk.spec.platform, desk.ledger.spending(desk.now())
    if platform.spec.approval.mode == "propose":
        raise Refused("the Platform only proposes and buys nothing: set approval.mode to one, two or auto")
    intent = first_time(desk, wanted, another=another)
    if why_not := over_budget(platform, None, None, wanted.fee_usd, spending):
        raise Refused(why_not)
    show(desk, intent, wanted.fee_usd)
    if not confirmed("Extend it?" if intent.extends else "Buy it?", yes=yes):
        raise Refused("not bought: you said no")
    void(desk, lapsed(desk.ledger.purchases(), intent, desk.now()))
    desk.ledger.propose(intent)
    waits = not_granted(platform, intent, spending)
    if waits is None:
        submit(desk, intent, as_json=as_json)
    else:
        said = f"{intent.id} is proposed; {waits}: tidemill approve {intent.id}"
        tell(desk, intent, wanted.fee_usd, said, as_json)


# --- an intent ----------------------------------------------------------------------------------------


def _buy_intent(desk: Desk, intent_id: str, *, yes: bool, as_json: bool) -> None:
    intent = desk.purchase(intent_id)
    if intent.state in (PurchaseState.SUBMITTED, PurchaseState.UNKNOWN):
        settled = look_again(desk, intent)
        ids = ", ".join(settled.reservation_ids)
        tell(
            desk, settled, None, f"{intent_id} was bought: AWS shows {ids}. Nothing was bought again", as_json
        )
        return
    if intent.state not in (PurchaseState.PROPOSED, PurchaseState.APPROVED):
        came = f": {', '.join(intent.reservation_ids)}" if intent.reservation_ids else ""
        raise Refused(f"{intent_id} is {intent.state.value}{came}; there is nothing left to buy")
    if expired(intent, desk.now()):
        by = format_duration(intent.envelope.duration)
        again = f"extend {intent.extends} --by {by}" if intent.extends else "offers"
        raise Refused(f"{intent_id} has expired and cannot be bought; propose it again: tidemill {again}")
    if why_not := not_granted(desk.spec.platform, intent, desk.ledger.spending(desk.now())):
        raise Refused(f"{intent_id} may not be bought: {why_not}")
    show(desk, intent, None)
    if not confirmed("Buy it?", yes=yes):
        raise Refused("not bought: you said no")
    submit(desk, intent, as_json=as_json)


# --- a block to extend --------------------------------------------------------------------------------


def _ours(desk: Desk, block: str) -> Reservation:
    found = next((one for one in shown(desk) if one.id == block), None)
    if found is None:
        raise SpecError(f"AWS shows no block '{block}'; list them: tidemill blocks")
    if found.owner != desk.deployment:
        raise Refused(f"{block} is not ours; take it in first: tidemill adopt {block}")
    return found


def _length(written: str) -> timedelta:
    try:
        found = parse_duration(written)
    except ValueError as error:
        raise SpecError(f"--by: {error}") from None
    if not is_legal_duration(found):
        nearest = " and ".join(format_duration(one) for one in nearest_legal_durations(found))
        raise SpecError(f"--by: EC2 does not sell {written}; the nearest it sells: {nearest}")
    return found
