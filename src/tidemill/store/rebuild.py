"""Rebuilds a lost ledger from what AWS still shows: the tags of reservations and the history of extensions.

What was bought is found; who approved it, and what was proposed or refused, is gone. Where something must be guessed it
errs towards "bought, and this month": so nothing is bought a second time. EC2 lists no block for long after its end,
nor an instance: what those cost this month only a person can say (`spent_besides`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidemill.decide.read_models import intent_id, window_name
from tidemill.model.capacity import NEVER_CAME_STATES, UNKNOWN_START, Reservation
from tidemill.model.offers import Extension, ExtensionState, Offer
from tidemill.model.planner_result import PlannedPurchase
from tidemill.model.purchase_reasons import PurchaseReason, ReasonKind
from tidemill.model.purchases import Envelope, PurchaseIntent, PurchaseState
from tidemill.spec import Spec
from tidemill.spec.capacity_plan import CapacityPlan
from tidemill.store.months import bounds

# More attempts than a window ever has: each follows a refusal, and those are hours apart.
_ATTEMPTS = 200


@dataclass(frozen=True, slots=True)
class Rebuilt:
    purchases: tuple[PurchaseIntent, ...]
    tagged: tuple[Reservation, ...]  # with our owner tag and no intent: adopted once, or tagged by anybody
    unread: tuple[Reservation, ...] = ()  # that cannot be read: recorded by their tags, or perhaps ours


def rebuild(
    spec: Spec,
    reservations: Iterable[Reservation],
    extensions: Iterable[Extension],
    *,
    who: str,
    now: datetime,
) -> Rebuilt:
    """What the ledger should hold. Nothing is written yet."""
    owner, known = spec.platform.spec.deployment, tuple(reservations)
    ours = [reservation for reservation in known if reservation.owner == owner]
    bought: dict[str, list[Reservation]] = {}
    for our in ours:
        if our.intent_id:
            bought.setdefault(our.intent_id, []).append(our)
    asked = tuple(extensions)
    found: dict[str, PurchaseIntent] = {}
    for id_, blocks in bought.items():
        for intent in _with_its_window(spec, _block(spec, id_, blocks, asked, who, now)):
            if intent.state is not PurchaseState.VOIDED or intent.id not in found:
                found[intent.id] = intent  # a purchase is certain; another attempt may have listed it as lost
    blocks_of = {our.id: our for our in ours if our.intent_id}
    for asked_for in asked:
        if asked_for.reservation_id in blocks_of:
            extension = _extension(spec, asked_for, blocks_of[asked_for.reservation_id], who)
            found[extension.id] = extension
    doubtful = tuple(one for one in known if one.unread and (one.owner == owner or not one.tags_known))
    return Rebuilt(tuple(found.values()), tuple(our for our in ours if not our.intent_id), doubtful)


def spent_besides(spec: Spec, usd: int, *, who: str, now: datetime) -> PurchaseIntent:
    """What a person says was paid this month for what AWS no longer lists: money without a block."""
    first, _ = bounds(now)
    envelope = Envelope(
        instance_type="", count=0, duration=timedelta(0), earliest_start=first, latest_start=first,
        earliest_end=first, zones=(), max_fee_usd=usd, expires_at=first,
    )  # fmt: skip
    return PurchaseIntent(
        id=intent_id(spec.platform.spec.deployment, "rebuilt", "spent", f"{now:%Y-%m}"),
        plan="",
        pool="",
        window="",
        envelope=envelope,
        proposer=who,
        proposed_at=now,
        state=PurchaseState.CONFIRMED,
        state_at=now,
        fee_usd=usd,
        reason=PurchaseReason(ReasonKind.REBUILT_SPENDING, name=who),
    )


# --- blocks -------------------------------------------------------------------------------------------


def _block(
    spec: Spec,
    id_: str,
    blocks: list[Reservation],
    extensions: tuple[Extension, ...],
    who: str,
    now: datetime,
) -> PurchaseIntent:
    """One purchase. A purchase of UltraServers makes several blocks. Of one that cannot be read, what can be."""
    first = blocks[0]
    start = now if first.start == UNKNOWN_START else first.start
    end = first.end or start  # a block has an end, unless its record cannot be read
    unpaid = all(block.state in NEVER_CAME_STATES and not block.unread for block in blocks)
    fee_usd, guessed = (0, False) if unpaid else _fee_usd(spec, blocks, extensions)
    envelope = Envelope(
        instance_type=first.instance_type,
        count=sum(block.count for block in blocks),
        duration=end - start,
        earliest_start=start,
        latest_start=start,
        earliest_end=end,
        zones=(first.zone,) if first.zone else (),
        max_fee_usd=fee_usd,
        expires_at=start,
    )
    return PurchaseIntent(
        id=id_,
        plan="",
        pool=first.pool,
        window="",
        envelope=envelope,
        proposer=who,
        proposed_at=now,
        state=PurchaseState.FAILED if unpaid else PurchaseState.CONFIRMED,
        # AWS does not say when it was bought. A block that began before this month was; others count in this month.
        state_at=start if start < bounds(now)[0] else now,
        reservation_ids=tuple(sorted(block.id for block in blocks)),
        fee_usd=fee_usd,
        reason=PurchaseReason(ReasonKind.REBUILT_FROM_TAGS, fee_estimated=guessed),
    )


def _fee_usd(spec: Spec, blocks: list[Reservation], extensions: tuple[Extension, ...]) -> tuple[int, bool]:
    """The fee without extensions, and whether it is an estimate from the catalog."""
    ids = {block.id for block in blocks}
    total_usd = sum(block.fee_usd for block in blocks)
    guessed = not total_usd
    if guessed:
        total_usd = sum(_list_price_usd(spec, block) for block in blocks)
    paid_usd = sum(
        extension.fee_usd
        for extension in extensions
        if extension.reservation_id in ids and _is_paid(extension)
    )
    return max(0, total_usd - paid_usd), guessed


def _list_price_usd(spec: Spec, block: Reservation) -> int:
    """0 where the catalog knows no price."""
    kind = spec.catalog.types.get(block.instance_type)
    if kind is None or kind.block_usd_h is None or block.end is None:
        return 0
    return round(kind.block_usd_h * block.count * ((block.end - block.start) / timedelta(hours=1)))


# --- what it was for ----------------------------------------------------------------------------------


def _with_its_window(spec: Spec, intent: PurchaseIntent) -> list[PurchaseIntent]:
    """The id of an intent follows from plan, window and attempt, so its window can be found again. Earlier attempts
    left no trace; they are recorded as voided, so that the next attempt gets a new id."""
    owner = spec.platform.spec.deployment
    for plan in spec.plans.values():
        for window in _names(plan, intent):
            ids = [intent_id(owner, plan.name, window, str(attempt)) for attempt in range(_ATTEMPTS)]
            if intent.id in ids:
                intent = replace(intent, plan=plan.name, window=window)
                gone = replace(
                    intent, state=PurchaseState.VOIDED, reservation_ids=(), fee_usd=0,
                    reason=PurchaseReason(ReasonKind.REBUILT_LOST_ATTEMPT),
                )  # fmt: skip
                return [*(replace(gone, id=id_) for id_ in ids[: ids.index(intent.id)]), intent]
    return [intent]


def _names(plan: CapacityPlan, intent: PurchaseIntent) -> list[str]:
    """Names of windows in the plan: as written, or for a calendar as `window_name` gives them."""
    if plan.spec.calendar is None:
        return [window.name for window in plan.spec.demand]
    bound = intent.envelope
    offer = Offer(
        "",
        bound.instance_type,
        (*bound.zones, "")[0],
        bound.count,
        bound.earliest_start,
        bound.earliest_end,
        0,
    )
    return [
        window_name(PlannedPurchase(plan.name, intent.pool, offer, bound.duration, bound.earliest_start, 0.0))
    ]


# --- extensions ---------------------------------------------------------------------------------------


def _extension(spec: Spec, one: Extension, block: Reservation, who: str) -> PurchaseIntent:
    """The history knows it by its offer. The old id is lost, so it gets one that follows from the offer."""
    failed = one.state is ExtensionState.PAYMENT_FAILED
    return PurchaseIntent(
        id=intent_id(spec.platform.spec.deployment, "rebuilt", one.offer_id),
        plan="",
        pool=block.pool,
        window="",
        envelope=Envelope.of_extension(block, one.asked_at, one.end, one.fee_usd, one.asked_at),
        proposer=who,
        proposed_at=one.asked_at,
        state=PurchaseState.FAILED if failed else PurchaseState.CONFIRMED,
        state_at=one.asked_at,
        reservation_ids=(block.id,),
        fee_usd=0 if failed else one.fee_usd,
        reason=PurchaseReason(ReasonKind.REBUILT_FROM_HISTORY),
        extends=block.id,
        offer_id=one.offer_id,
    )


def _is_paid(extension: Extension) -> bool:
    return extension.state is ExtensionState.PAYMENT_SUCCEEDED
