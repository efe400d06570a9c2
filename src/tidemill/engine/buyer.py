"""The one place that buys: search again, check everything again, write the intent, call EC2, write the outcome.

The engine and the command line buy through it alike. Any doubt before the call buys nothing; any doubt after it is
written down as such, and never resolved by calling again. Neither call of EC2 takes a token, so nothing here retries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from tidemill.decide.read_models import (
    cost_for_purchase_usd,
    fee_to_approve_usd,
    is_as_approved,
    not_granted,
    over_budget,
    reduces_shortage,
    why_not_wanted,
    why_offer_unusable,
    window_named,
)
from tidemill.engine.ownership import held_beside, unread_of_ours
from tidemill.model.capacity import LIVE_STATES, Reservation
from tidemill.model.ec2_facts import grid_at_or_after
from tidemill.model.errors import (
    NoCapacity,
    NotAllowed,
    OutcomeUnknown,
    PortError,
    Refused,
    Retryable,
    SpecError,
    Throttled,
    label,
)
from tidemill.model.offers import (
    ExtensionOffer,
    ExtensionQuery,
    ExtensionSearch,
    Offer,
    OfferQuery,
    OfferSearch,
)
from tidemill.model.purchase_reasons import PurchaseReason, ReasonKind
from tidemill.model.purchases import NOT_SUBMITTED, Caps, Envelope, PurchaseIntent, PurchaseState
from tidemill.ports import Clock, Cloud, Ledger
from tidemill.spec import Spec
from tidemill.spec.usable_blocks import bought_tags
from tidemill.wording.purchases import purchase_sentence

# Nothing uses an older answer. Every query is about other dates, so old answers would pile up.
KEPT = timedelta(hours=12)
_NO_CAPACITY = frozenset({ReasonKind.NO_OFFER, ReasonKind.DEARER_THAN_APPROVED})

Query = TypeVar("Query")
Found = TypeVar("Found")


class _NotBought(Exception):
    """A check before the call said no. `submit` records the reason and raises it as Refused or NoCapacity."""

    def __init__(self, reason: PurchaseReason) -> None:
        super().__init__(reason.kind.value)
        self.reason = reason


def _nothing_lacks(pool: str) -> Sequence[str]:
    return ()


class Buyer:
    def __init__(
        self, spec: Spec, clock: Clock, cloud: Cloud, ledger: Ledger,
        lacks: Callable[[str], Sequence[str]] = _nothing_lacks,
    ) -> None:  # fmt: skip
        """`lacks`: what the documents lack, by name of a pool, before a node of it could be launched for real."""
        self._spec, self._clock, self._cloud, self._ledger = spec, clock, cloud, ledger
        self._lacks = lacks
        # Dated answers. They are lost in a restart, and then asked for again.
        self.searches: dict[OfferQuery, OfferSearch] = {}
        self.extension_searches: dict[ExtensionQuery, ExtensionSearch] = {}

    # --- searching ----------------------------------------------------------------------------------

    def search(self, query: OfferQuery) -> str:
        """A refusal of EC2 is an answer too: it is not asked for again at once. A missing permission is no answer."""
        offers, refused = _answer(self._cloud.search_offers, query)
        now = self._clock.now()
        self.searches = {asked: one for asked, one in self.searches.items() if now - one.at < KEPT}
        self.searches[query] = OfferSearch(query, now, offers)
        return refused or f"{len(offers)} offers"

    def search_extensions(self, query: ExtensionQuery) -> str:
        """As `search`. If a missing permission counted as "no offers", a new block would be bought instead."""
        offers, refused = _answer(self._cloud.search_extensions, query)
        self.extension_searches[query] = ExtensionSearch(query, self._clock.now(), offers, refused)
        return refused or f"{len(offers)} offers"

    # --- buying -------------------------------------------------------------------------------------

    def submit(self, intent: PurchaseIntent) -> str:
        """Buy what was approved. Refused or NoCapacity: nothing was bought; OutcomeUnknown: it may have been.

        The reason why nothing was bought is recorded, so that it is not tried again at every tick.
        """
        try:
            return self._submit(intent)
        except _NotBought as no:
            self._record_why_not(intent, no.reason)
            sentence, code = purchase_sentence(no.reason), no.reason.code or no.reason.kind.value
            error = NoCapacity if no.reason.kind in _NO_CAPACITY else Refused
            raise error(sentence, code=code) from None
        except (Refused, NoCapacity) as no:
            self._record_why_not(intent, _refused_by_aws(no))
            raise

    def _record_why_not(self, intent: PurchaseIntent, reason: PurchaseReason) -> None:
        held = next((purchase for purchase in self._ledger.purchases() if purchase.id == intent.id), None)
        if held is not None and held.state in NOT_SUBMITTED and held == intent:
            self._move(held, held.state, reason)

    def _submit(self, intent: PurchaseIntent) -> str:
        self._check_ledger()
        if (pause := self._ledger.pause()) is not None:  # it may be newer than the decision
            raise Retryable(f"{pause.who} paused the engine; end it with: tidemill resume", code="paused")
        if lacks := self._lacks(intent.pool):  # what nobody could use is not bought
            kind = ReasonKind.POOL_CANNOT_LAUNCH
            raise _NotBought(PurchaseReason(kind, name=intent.pool, expected="; ".join(lacks)))
        if self._clock.now() >= intent.envelope.expires_at:
            raise _NotBought(PurchaseReason(ReasonKind.APPROVAL_EXPIRED, at=intent.envelope.expires_at))
        self._check_money(intent, intent.envelope.max_fee_usd)
        shown = self._held_and_expected(intent)
        now = self._clock.now()
        if (not_wanted := why_not_wanted(self._spec, intent, shown, now)) is not None:
            return self._void(intent, not_wanted)
        best = self._best_offer(intent, self._usable_offers(intent, shown), shown)
        if not is_as_approved(self._spec, shown, best, intent, now):
            kind = ReasonKind.WORSE_THAN_APPROVED
            return self._void(intent, PurchaseReason(kind, fee_usd=best.fee_usd, at=best.start))
        self._check_money(intent, best.fee_usd)
        if intent.state is PurchaseState.PROPOSED:
            reason = PurchaseReason(ReasonKind.APPROVED_BY_POLICY)
            intent = self._move(intent, PurchaseState.APPROVED, reason)
        submitted = replace(
            intent, state=PurchaseState.SUBMITTED, state_at=self._clock.now(), fee_usd=best.fee_usd,
            offer_id=best.id, start=best.start, end=best.end, reason=None, note="",
        )  # fmt: skip
        try:
            self._ledger.advance(intent, submitted, caps=self._caps(intent))
        except Refused as no:
            reason = PurchaseReason(ReasonKind.REFUSED_BY_LEDGER, code=no.code or label(no), detail=str(no))
            raise _NotBought(reason) from no
        return self._call(submitted, best)

    def _void(self, intent: PurchaseIntent, reason: PurchaseReason) -> str:
        self._move(intent, PurchaseState.VOIDED, reason)
        return f"not bought: {purchase_sentence(reason)}"

    def _caps(self, intent: PurchaseIntent) -> Caps:
        """The ledger checks these again as it writes: two buyers at once must not both find the budget unspent."""
        platform, plan = self._spec.platform, self._spec.plans.get(intent.plan)
        own = plan.spec.budget if plan is not None else None
        unasked = not_granted(platform, replace(intent, verdicts=())) is None
        granted = platform.spec.approval.mode != "auto" or not unasked
        return Caps(
            platform.spec.budget.monthly_usd,
            None if granted else platform.spec.approval.auto_monthly_usd,
            own.monthly_usd or None if own is not None else None,
        )

    def _check_ledger(self) -> None:
        """A ledger that forgets, or that belongs to another platform, would lead to buying twice."""
        if not self._ledger.durable:
            raise _NotBought(PurchaseReason(ReasonKind.LEDGER_IN_MEMORY))
        mine = self._spec.platform.spec.deployment
        theirs = self._ledger.deployment
        if theirs != mine:
            kind = ReasonKind.LEDGER_OF_ANOTHER_DEPLOYMENT
            raise _NotBought(PurchaseReason(kind, name=theirs, expected=mine))

    def _check_money(self, intent: PurchaseIntent, fee_usd: int) -> None:
        spending = self._ledger.spending(self._clock.now())
        plan = self._spec.plans.get(intent.plan)
        window = window_named(plan, intent.window)
        why_not = not_granted(self._spec.platform, intent, spending)
        why_not = why_not or over_budget(self._spec.platform, plan, window, fee_usd, spending)
        if why_not is not None:
            raise _NotBought(why_not)

    def _held_and_expected(self, intent: PurchaseIntent) -> list[Reservation]:
        """What AWS shows now, and what other purchases may still bring: somebody else may have bought meanwhile."""
        mine, purchases = self._spec.platform.spec.deployment, self._ledger.purchases()
        listed, adoptions = self._cloud.reservations(), self._ledger.adoptions()
        if unread := unread_of_ours(listed, purchases, adoptions, mine):
            ids, kind = tuple(one.id for one in unread), ReasonKind.RESERVATIONS_UNREAD
            raise _NotBought(PurchaseReason(kind, reservation_ids=ids, detail=unread[0].unread))
        known = {purchase.id for purchase in purchases} | {adoption.reservation_id for adoption in adoptions}
        unknown = sorted(
            block.id
            for block in listed
            if block.owner == mine
            and block.intent_id
            and block.state in LIVE_STATES
            # The tag of this intent is on a block already: another ledger made the same purchase under the same id.
            and (block.intent_id == intent.id or not {block.id, block.intent_id} & known)
        )
        if unknown:
            kind = ReasonKind.BOUGHT_FROM_ANOTHER_LEDGER
            raise _NotBought(PurchaseReason(kind, reservation_ids=tuple(unknown), name=mine))
        return held_beside(intent, listed, self._ledger, mine, self._clock.now())

    def _call(self, submitted: PurchaseIntent, offer: Offer | ExtensionOffer) -> str:
        try:
            ids, fee_usd = self._purchase(submitted, offer)
        except (NoCapacity, Refused, Throttled) as error:
            # A definite no. Any other error may have bought it.
            none = {"fee_usd": 0, "start": None, "end": None}
            self._move(submitted, PurchaseState.APPROVED, _refused_by_aws(error), **none)
            raise
        except PortError as error:
            reason = PurchaseReason(
                ReasonKind.ANSWER_UNKNOWN, code=error.code, detail=str(error), request_id=error.request_id
            )
            self._move(submitted, PurchaseState.UNKNOWN, reason)
            unknown = OutcomeUnknown(str(error), code=error.code)
            unknown.request_id = error.request_id
            raise unknown from error
        self._move(submitted, PurchaseState.CONFIRMED, None, reservation_ids=ids, fee_usd=fee_usd)
        return f"{'extended' if submitted.extends else 'bought'} {', '.join(ids)} for ${fee_usd:,}"

    def _purchase(
        self, submitted: PurchaseIntent, offer: Offer | ExtensionOffer
    ) -> tuple[tuple[str, ...], int]:
        if isinstance(offer, ExtensionOffer):
            made = self._cloud.purchase_extension(offer.id, offer.reservation_id)
            return (made.reservation_id,), made.fee_usd
        blocks = self._cloud.purchase(
            offer.id, bought_tags(self._spec.platform, submitted.pool, submitted.id)
        )
        return tuple(sorted(block.id for block in blocks)), offer.fee_usd

    # --- the offer ----------------------------------------------------------------------------------

    def _best_offer(
        self, intent: PurchaseIntent, fitting: Sequence[Offer | ExtensionOffer], shown: list[Reservation]
    ) -> Offer | ExtensionOffer:
        """The best offer inside the envelope, by what it comes to for its demand and not by its fee alone. If there are
        only dearer ones, it goes back to approval."""
        inside = [offer for offer in fitting if offer.fee_usd <= intent.envelope.max_fee_usd]
        if inside:
            now = self._clock.now()
            costs = {
                offer.id: cost_for_purchase_usd(self._spec, shown, offer, intent, now) for offer in inside
            }
            return min(inside, key=lambda offer: (costs[offer.id], offer.start, offer.id))
        if intent.state is not PurchaseState.APPROVED or not fitting:
            raise _NotBought(PurchaseReason(ReasonKind.NO_OFFER))
        cheapest_usd = min(offer.fee_usd for offer in fitting)
        reason = PurchaseReason(ReasonKind.DEARER_THAN_APPROVED, fee_usd=cheapest_usd)
        envelope = self._wider_envelope(intent, cheapest_usd)
        self._move(intent, PurchaseState.PROPOSED, reason, envelope=envelope, verdicts=())
        raise _NotBought(reason)

    def _wider_envelope(self, intent: PurchaseIntent, fee_usd: int) -> Envelope:
        platform, plan = self._spec.platform, self._spec.plans.get(intent.plan)
        most_usd = fee_to_approve_usd(platform, plan, window_named(plan, intent.window), fee_usd)
        expires_at = self._clock.now() + platform.spec.approval.expires_after
        expires_at = max(intent.envelope.expires_at, expires_at)
        return replace(intent.envelope, max_fee_usd=most_usd, expires_at=expires_at)

    def _usable_offers(
        self, intent: PurchaseIntent, held: list[Reservation]
    ) -> Sequence[Offer | ExtensionOffer]:
        """Those that its pool could use and that leave its demand less short, whatever their fee."""
        fitting = self._fitting_offers(intent)
        unusable = {offer.id: why_offer_unusable(self._spec, intent.pool, offer, held) for offer in fitting}
        if fitting and None not in unusable.values():
            raise _NotBought(next(why for why in unusable.values() if why is not None))
        return [
            offer
            for offer in fitting
            if unusable[offer.id] is None
            and (not intent.plan or reduces_shortage(self._spec, held, offer, intent, self._clock.now()))
        ]

    def _fitting_offers(self, intent: PurchaseIntent) -> Sequence[Offer | ExtensionOffer]:
        """Every offer that serves, whatever its fee."""
        envelope = intent.envelope
        if intent.extends:
            query = ExtensionQuery(intent.extends, envelope.duration)
            return [
                offer
                for offer in self._cloud.search_extensions(query)
                if offer.start == envelope.latest_start and offer.end >= envelope.earliest_end
            ]
        now = self._clock.now()
        # A start-now block begins at an odd minute, within the hour, and ends on the grid after its duration. No later
        # end is asked for: an answer has six offers, and cheaper ones that start too late would take their places.
        soonest = max(envelope.earliest_start, now) + timedelta(hours=1)
        latest_end = max(
            envelope.latest_start + envelope.duration, grid_at_or_after(soonest + envelope.duration)
        )
        asked = OfferQuery(
            envelope.instance_type,
            envelope.count,
            envelope.duration,
            max(envelope.earliest_start, now),
            latest_end,
            envelope.zones,
        )
        return [offer for offer in self._cloud.search_offers(asked) if _serves(offer, envelope)]

    def _move(
        self, intent: PurchaseIntent, state: PurchaseState, reason: PurchaseReason | None, **changes: Any
    ) -> PurchaseIntent:
        after = replace(intent, state=state, state_at=self._clock.now(), reason=reason, note="", **changes)
        self._ledger.advance(intent, after)
        return after


def _answer(search: Callable[[Query], Iterable[Found]], query: Query) -> tuple[tuple[Found, ...], str]:
    """The offers, and why EC2 refused to answer: also for a question that it does not know. A missing permission is
    raised."""
    try:
        return tuple(search(query)), ""
    except NotAllowed:
        raise
    except (Refused, SpecError) as no:
        return (), str(no)


def _serves(offer: Offer, envelope: Envelope) -> bool:
    return (
        offer.instance_type == envelope.instance_type
        and offer.count == envelope.count
        and envelope.earliest_start <= offer.start <= envelope.latest_start
        and offer.end >= envelope.earliest_end
        and (not envelope.zones or offer.zone in envelope.zones)
    )


def _refused_by_aws(error: PortError | Refused) -> PurchaseReason:
    code, request = error.code or label(error), error.request_id
    return PurchaseReason(ReasonKind.REFUSED_BY_AWS, code=code, detail=str(error), request_id=request)
