"""Plan -> ports: one Outcome per action, and one failing action never stops the others.

Order matters inside an action, never between actions: an intent is written before its call, and what came
of the call is written after it. A crash between the two is what the next decision reconciles.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from tidemill.decide.blocks import not_granted, over_budget, window_of
from tidemill.errors import (
    Gone,
    NoCapacity,
    OutcomeUnknown,
    PortError,
    Refused,
    Retryable,
    TidemillError,
    label,
)
from tidemill.plan import (
    Action,
    Admit,
    AnnounceEnd,
    CancelDrain,
    Evict,
    ForceDelete,
    Launch,
    MarkReady,
    Outcome,
    Plan,
    ProposePurchase,
    Recreate,
    RemoveNode,
    RequestCheckpoint,
    SearchOffers,
    SettleLaunch,
    SettlePurchase,
    StartDrain,
    SubmitPurchase,
    Terminate,
)
from tidemill.ports import Clock, Cloud, Cluster, Ledger
from tidemill.spec import Spec, names
from tidemill.world import (
    Envelope,
    LaunchIntent,
    LaunchState,
    Offer,
    OfferQuery,
    OfferSearch,
    PurchaseIntent,
    PurchaseState,
)

# A start-now block begins at an odd minute and ends on the grid, up to a day later than its length says.
GRID_STEP = timedelta(days=1)


class Actor:
    def __init__(self, spec: Spec, clock: Clock, cloud: Cloud, cluster: Cluster, ledger: Ledger) -> None:
        self._spec = spec
        self._clock, self._cloud, self._cluster, self._ledger = clock, cloud, cluster, ledger
        self.searches: dict[OfferQuery, OfferSearch] = {}  # dated; lost in a restart, then asked again

    def carry_out(self, plan: Plan) -> tuple[Outcome, ...]:
        return tuple(self._attempt(action) for action in plan.actions)

    def _attempt(self, action: Action) -> Outcome:
        try:
            return Outcome(action, detail=self._do(action))
        except Gone as gone:
            return Outcome(action, detail=f"already gone: {gone}")
        except TidemillError as error:
            return Outcome(action, label(error), str(error))

    def _do(self, action: Action) -> str:
        cluster = self._cluster
        match action:
            case SearchOffers(query):
                return self._search(query)
            case ProposePurchase(intent):
                self._ledger.propose(intent)
            case SubmitPurchase(intent):
                return self._buy(intent)
            case SettlePurchase(intent, outcome, ids, fee_usd, reason):
                settled = self._move(
                    intent, PurchaseState(outcome), reservation_ids=ids, fee_usd=fee_usd, note=reason
                )
                self._ledger.advance(intent, settled)
            case Launch(intent):
                return self._launch(intent)
            case SettleLaunch(intent_id):
                self._settle(intent_id)
            case Admit(pods, source_label, ends_at, pool=pool):
                for pod in pods:
                    cluster.admit(pod, source_label, ends_at, pool)
            case MarkReady(node):
                cluster.mark_ready(node)
            case StartDrain(node, reason):
                cluster.start_drain(node, reason)
            case CancelDrain(node):
                cluster.cancel_drain(node)
            case AnnounceEnd(pod, ends_at):
                cluster.announce_end(pod, ends_at)
            case RequestCheckpoint(pod):
                cluster.request_checkpoint(pod)
            case Evict(pod):
                if not cluster.evict(pod):
                    raise Refused("a disruption budget forbids it now")
            case ForceDelete(pod, grace_s):
                cluster.delete(pod, grace_s, disruption=True)
            case Recreate(pod):
                cluster.delete(pod, None, disruption=True)
            case Terminate(instance_id):
                self._cloud.terminate(instance_id)
            case RemoveNode(node):
                cluster.remove_node(node)
            case _:
                assert_never(action)
        return ""

    # --- launches ---

    def _launch(self, intent: LaunchIntent) -> str:
        now = self._clock.now()
        intent = replace(intent, state=LaunchState.WRITTEN, state_at=now)
        self._ledger.write_launch(intent)
        tags = (
            (names.TAG_OWNER, self._spec.platform.spec.deployment),
            (names.TAG_POOL, intent.pool),
            (names.TAG_INTENT, intent.id),
            (names.TAG_PROVISIONER, intent.provisioner),
        )
        try:
            ids = tuple(self._cloud.launch(intent, tags))
        except OutcomeUnknown:
            raise  # stays written: the same id is tried again, and cannot launch twice
        except PortError as error:
            self._ledger.write_launch(replace(intent, state=LaunchState.FAILED, failure=label(error)))
            raise
        self._ledger.write_launch(replace(intent, state=LaunchState.LAUNCHED, instance_ids=ids))
        return f"{len(ids)} of {intent.count}: {', '.join(ids)}"

    def _settle(self, intent_id: str) -> None:
        for intent in self._ledger.launches():
            if intent.id == intent_id:
                self._ledger.write_launch(
                    replace(intent, state=LaunchState.SETTLED, state_at=self._clock.now())
                )

    # --- purchases ---

    def _search(self, query: OfferQuery) -> str:
        offers = tuple(self._cloud.search_offers(query))
        self.searches[query] = OfferSearch(query, self._clock.now(), offers)
        return f"{len(offers)} offers"

    def _buy(self, intent: PurchaseIntent) -> str:
        """Search again, check the money again, write, call, write. Any doubt before the call buys nothing."""
        plan = self._spec.plans.get(intent.plan)
        why_not = not_granted(self._spec.platform, intent)
        if why_not is not None:
            raise Refused(why_not)
        offer = self._best_offer(intent)
        if offer is None:
            again = self._move(intent, PurchaseState.APPROVED, note="no offer inside its envelope")
            self._ledger.advance(intent, again)
            raise NoCapacity("no offer inside its envelope")
        spent_usd = self._ledger.spending(self._clock.now()).total_usd
        window = window_of(plan, intent.window)
        why_not = over_budget(self._spec.platform, plan, window, offer.fee_usd, spent_usd)
        if why_not is not None:
            raise Refused(why_not)
        note = f"offer {offer.id}, ${offer.fee_usd:,}"
        submitted = self._move(intent, PurchaseState.SUBMITTED, fee_usd=offer.fee_usd, note=note)
        self._ledger.advance(intent, submitted)
        return self._call(submitted, offer)

    def _call(self, submitted: PurchaseIntent, offer: Offer) -> str:
        tags = (
            (names.TAG_OWNER, self._spec.platform.spec.deployment),
            (names.TAG_POOL, submitted.pool),
            (names.TAG_INTENT, submitted.id),
        )
        try:
            made = self._cloud.purchase(offer.id, tags)
        except (NoCapacity, Retryable) as error:
            # Only a definite no is a no; everything else may have bought it.
            if not isinstance(error, OutcomeUnknown):
                again = self._move(submitted, PurchaseState.APPROVED, fee_usd=0, note=f"not bought: {error}")
                self._ledger.advance(submitted, again)
                raise
            unknown = self._move(submitted, PurchaseState.UNKNOWN, note="the call's outcome is unknown")
            self._ledger.advance(submitted, unknown)
            raise
        ids = tuple(sorted(one.id for one in made))
        fee_usd = sum(one.fee_usd for one in made)
        confirmed = self._move(
            submitted, PurchaseState.CONFIRMED, reservation_ids=ids, fee_usd=fee_usd, note=""
        )
        self._ledger.advance(submitted, confirmed)
        return f"bought {', '.join(ids)} for ${fee_usd:,}"

    def _best_offer(self, intent: PurchaseIntent) -> Offer | None:
        envelope = intent.envelope
        query = OfferQuery(
            envelope.instance_type,
            envelope.count,
            envelope.duration,
            max(envelope.earliest_start, self._clock.now()),
            envelope.latest_start + envelope.duration + GRID_STEP,
            envelope.zones,
        )
        inside = [offer for offer in self._cloud.search_offers(query) if _is_inside(offer, envelope)]
        return min(inside, key=lambda offer: (offer.fee_usd, offer.start, offer.id), default=None)

    def _move(self, intent: PurchaseIntent, state: PurchaseState, **changes: object) -> PurchaseIntent:
        now: datetime = self._clock.now()
        return replace(intent, state=state, state_at=now, **changes)  # type: ignore[arg-type]


def _is_inside(offer: Offer, envelope: Envelope) -> bool:
    return (
        offer.instance_type == envelope.instance_type
        and offer.count == envelope.count
        and offer.fee_usd <= envelope.max_fee_usd
        and envelope.earliest_start <= offer.start <= envelope.latest_start
        and offer.end >= envelope.earliest_end
        and (not envelope.zones or offer.zone in envelope.zones)
    )
