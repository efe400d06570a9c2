"""Which alerts hold at one tick: what a person must decide, and what went or will go wrong.

A pure function of what one tick saw, decided and did. Nearly all are read off facts that outlive the engine (intents,
reservations, the plan's warnings), so a restarted engine finds the same alerts under the same keys; only what was
forced in this very tick is reported once. `notify` keeps which alerts were sent already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from tidemill.model.alerts import Alert, AlertKind, Severity
from tidemill.model.labels import Pairs
from tidemill.model.plan import ForceDelete, Outcome, Plan, SettlePurchase, SubmitPurchase, Terminate
from tidemill.model.pods import Pod
from tidemill.model.purchase_reasons import NOTHING_BOUGHT
from tidemill.model.purchases import NOT_SUBMITTED, Envelope, PurchaseIntent, PurchaseState
from tidemill.model.reasons import TerminateKind
from tidemill.model.warning_reasons import PinMustMove, ServiceShort
from tidemill.model.world import World
from tidemill.report.alerts_of_blocks import about_blocks, not_filled
from tidemill.spec import Spec
from tidemill.spec.platform import Approval
from tidemill.spec.units import format_duration, format_instant
from tidemill.wording import sentence
from tidemill.wording.purchases import purchase_note

# Pods named in one alert; above that only their number is given.
NAMED = 10
# An alert about a failed payment ends after this long: by then the demand is covered in another way.
FAILED_FOR = timedelta(days=7)
_MAY_BE_TOLD = (*NOT_SUBMITTED, PurchaseState.UNKNOWN, PurchaseState.FAILED)


def alerts(spec: Spec, world: World, plan: Plan, outcomes: Iterable[Outcome]) -> tuple[Alert, ...]:
    """Each key once; of two with the same key, the first."""
    done = tuple(outcomes)
    found: dict[str, Alert] = {}
    for purchase in (
        *_about_purchases(spec, world, plan, done),
        *about_blocks(spec, world),
        *not_filled(plan),
        *_about_services(plan),
        *_about_pins(plan),
        *_never_joined(world, plan, done),
        *_forced(world, done),
    ):
        found.setdefault(purchase.key, purchase)
    return tuple(found.values())


# --- purchases ----------------------------------------------------------------------------------------


def _about_purchases(spec: Spec, world: World, plan: Plan, done: tuple[Outcome, ...]) -> Iterator[Alert]:
    open_ = [purchase for purchase in world.purchases if purchase.state in _MAY_BE_TOLD]
    if not open_:
        return
    moving = {
        action.intent.id for action in plan.actions if isinstance(action, SubmitPurchase | SettlePurchase)
    }
    gone = {
        outcome.action.intent.id
        for outcome in done
        if isinstance(outcome.action, SubmitPurchase) and outcome.error == "no-capacity"
    }
    why_not = {warning.about: sentence(warning.reason) for warning in plan.warnings}
    for intent in open_:
        match intent.state:
            case PurchaseState.PROPOSED if intent.id not in moving:
                yield _approval_waiting(spec.platform.spec.approval, intent, why_not.get(intent.id, ""))
            case PurchaseState.APPROVED if intent.id in gone or _bought_nothing(intent):
                yield _offer_gone(intent)
            case PurchaseState.APPROVED if intent.id in why_not and intent.id not in moving:
                yield _held_back(intent, why_not[intent.id])
            case PurchaseState.UNKNOWN:
                yield _unknown(intent)
            case PurchaseState.FAILED if _is_unanswered(intent, world):
                yield _payment_failed(intent, world.now)


def _bought_nothing(intent: PurchaseIntent) -> bool:
    return intent.reason is not None and intent.reason.kind in NOTHING_BOUGHT


def _approval_waiting(policy: Approval, intent: PurchaseIntent, why: str) -> Alert:
    envelope = intent.envelope
    until = format_instant(min(envelope.expires_at, envelope.latest_start))
    fee = f"${envelope.max_fee_usd:,}"
    approvers = ", ".join(policy.approvers) or f"anyone who may approve, but {intent.proposer}"
    if policy.mode == "propose":
        step = f"This platform only proposes: buy it by hand or set approval.mode, by {until}."
    else:
        step = f"Approve it with `tidemill approve {intent.id}` by {until}, or it is void."
    return Alert(
        f"approval-waiting/{intent.id}/{format_instant(envelope.expires_at)}",
        AlertKind.APPROVAL_WAITING,
        Severity.WARNING,
        intent.id,
        f"A purchase of at most {fee} waits for approval",
        step,
        (
            *_what(intent),
            ("highest fee", fee),
            ("who may approve", approvers),
            ("until", until),
            *((("why it waits", why),) if why else ()),
        ),
    )


def _held_back(intent: PurchaseIntent, why: str) -> Alert:
    """It is approved and not bought: a ceiling or a budget forbids it."""
    until = format_instant(min(intent.envelope.expires_at, intent.envelope.latest_start))
    return Alert(
        f"approval-waiting/{intent.id}/held-back",
        AlertKind.APPROVAL_WAITING,
        Severity.ERROR,
        intent.id,
        "An approved purchase is held back",
        f"Raise the ceiling it meets by {until}, or it is void: {why}.",
        (*_what(intent), ("highest fee", f"${intent.envelope.max_fee_usd:,}"), ("until", until)),
    )


def _offer_gone(intent: PurchaseIntent) -> Alert:
    until = format_instant(min(intent.envelope.expires_at, intent.envelope.latest_start))
    return Alert(
        f"offer-gone/{intent.id}",
        AlertKind.OFFER_GONE,
        Severity.ERROR,
        intent.id,
        "EC2 offers nothing inside an approved envelope",
        f"It is tried again until {until}; if that is too late, widen the plan's window, zones or fee.",
        (
            *_what(intent),
            ("highest fee", f"${intent.envelope.max_fee_usd:,}"),
            ("last answer", purchase_note(intent)),
        ),
    )


def _unknown(intent: PurchaseIntent) -> Alert:
    return Alert(
        f"purchase-unknown/{intent.id}",
        AlertKind.PURCHASE_UNKNOWN,
        Severity.CRITICAL,
        intent.id,
        "Nobody knows whether a purchase was made",
        "It is not repeated. Look in the EC2 console for what it may have bought, and say which it was with"
        f" `tidemill settle {intent.id}`.",
        (*_what(intent), ("fee", f"${intent.fee_usd:,}"), ("offer", intent.offer_id or "not noted")),
    )


def _payment_failed(intent: PurchaseIntent, now: datetime) -> Alert:
    what = (
        f"extension of {intent.extends}" if intent.extends else f"block {', '.join(intent.reservation_ids)}"
    )
    plan_b = "The block ends as it was" if intent.extends else "The block will not come"
    return Alert(
        f"payment-failed/{intent.id}",
        AlertKind.PAYMENT_FAILED,
        Severity.CRITICAL,
        intent.id,
        f"The payment of the {what} failed",
        f"{plan_b}: put the account's payment in order, and approve what is proposed in its place.",
        (*_what(intent), ("failed at", format_instant(intent.state_at or now))),
    )


def _is_unanswered(intent: PurchaseIntent, world: World) -> bool:
    """No alert if a person settled it as not bought, or if a later purchase for the same window is confirmed."""
    since = intent.state_at or intent.proposed_at
    if not intent.reservation_ids or world.now >= min(since + FAILED_FOR, intent.envelope.earliest_end):
        return False
    return not any(
        (purchase.plan, purchase.window, purchase.state)
        == (intent.plan, intent.window, PurchaseState.CONFIRMED)
        and purchase.proposed_at > intent.proposed_at
        for purchase in world.purchases
    )


def _what(intent: PurchaseIntent) -> Pairs:
    envelope = intent.envelope
    asked = f"extend {intent.extends} by" if intent.extends else f"{_blocks(envelope)} for"
    where = f"{intent.plan}/{intent.window}" if intent.plan else "asked for by hand"
    return (
        ("purchase", intent.id),
        ("pool", intent.pool),
        ("demand", where),
        ("what", f"{asked} {format_duration(envelope.duration)}"),
        ("starts by", format_instant(envelope.latest_start)),
    )


def _blocks(envelope: Envelope) -> str:
    return f"{envelope.count} x {envelope.instance_type}"


# --- services and pods --------------------------------------------------------------------------------


def _about_services(plan: Plan) -> Iterator[Alert]:
    """Services that will have too few replicas, before it happens."""
    for warning in plan.warnings:
        short = warning.reason
        if not isinstance(short, ServiceShort):
            continue
        ends = format_instant(short.deadline)
        text = sentence(short)
        yield Alert(
            f"service-short/{warning.about}/{ends}",
            AlertKind.SERVICE_SHORT,
            Severity.ERROR,
            warning.about,
            f"{warning.about} will be short of replicas",
            f"{text[:1].upper()}{text[1:].rstrip('.')}.",
            (("service", warning.about), ("must have moved by", ends)),
        )


def _about_pins(plan: Plan) -> Iterator[Alert]:
    """Paid blocks that their pool may not use, because it is pinned to others."""
    for warning in plan.warnings:
        pin = warning.reason
        if not isinstance(pin, PinMustMove):
            continue
        text, ends = sentence(pin), format_instant(pin.ends) if pin.ends is not None else ""
        yield Alert(
            f"pin-unused/{warning.about}/{pin.block}",
            AlertKind.PIN_UNUSED,
            Severity.ERROR,
            pin.block,
            f"{pin.block} is paid for, and its pool may not use it",
            f"{text[:1].upper()}{text[1:].rstrip('.')}.",
            (
                ("pool", warning.about),
                ("block", pin.block),
                ("pin it to", ", ".join(pin.ids)),
                *((("the last pinned block must be empty", ends),) if ends else ()),
            ),
        )


def _never_joined(world: World, plan: Plan, done: tuple[Outcome, ...]) -> Iterator[Alert]:
    """Nodes that boot and never join are paid for and of no use. One alert a day for a pool and its source: the next
    ones will not join either."""
    late = {
        action.instance_id: action.reason
        for action in plan.actions
        if isinstance(action, Terminate) and action.reason.kind is TerminateKind.NEVER_JOINED
    }
    if not late:
        return
    printed = {
        outcome.action.instance_id: outcome.detail
        for outcome in done
        if isinstance(outcome.action, Terminate) and outcome.detail
    }
    by_source: dict[tuple[str, str, str], list[str]] = {}
    for instance in (node.instance for node in world.nodes if node.key in late):
        if instance is not None:
            place = (instance.pool, instance.source.label, instance.provisioner)
            by_source.setdefault(place, []).append(instance.id)
    for (pool, source, provisioner), ids in sorted(by_source.items()):
        shown = ", ".join(sorted(ids)[:NAMED]) + (f" and {len(ids) - NAMED} more" if len(ids) > NAMED else "")
        yield Alert(
            f"nodes-never-join/{pool}/{source}/{world.now:%Y-%m-%d}",
            AlertKind.NODES_NEVER_JOIN,
            Severity.ERROR,
            pool,
            f"{len(ids)} {'node' if len(ids) == 1 else 'nodes'} of pool {pool} never joined the cluster",
            "The next ones may not join either: look at the node role's access entry, the subnets' way to the API"
            " server and the image. If none does, one node is tried at a time, after rests of up to an hour.",
            (
                ("pool", pool),
                ("source", source),
                ("provisioner", provisioner),
                ("instances", shown),
                *((f"console of {id_}", printed[id_]) for id_ in sorted(ids)[:1] if id_ in printed),
            ),
            lasts=False,
        )


def _forced(world: World, done: tuple[Outcome, ...]) -> Iterator[Alert]:
    """One alert for all pods of one source in one tick: a large block must not page two hundred times."""
    forced = [
        outcome.action for outcome in done if isinstance(outcome.action, ForceDelete) and not outcome.error
    ]
    if not forced:
        return
    pods = {pod.uid: pod for pod in world.pods}
    sources = {node.name: node.instance.source.label for node in world.nodes if node.instance is not None}
    by_source: dict[str, list[tuple[Pod, ForceDelete]]] = {}
    for action in forced:
        pod = pods.get(action.pod)
        if pod is not None:
            by_source.setdefault(sources.get(pod.node, pod.node), []).append((pod, action))
    for source, taken in sorted(by_source.items()):
        yield _forced_from(source, taken, world)


def _forced_from(source: str, taken: list[tuple[Pod, ForceDelete]], world: World) -> Alert:
    names = [f"{pod.full_name} ({action.grace_s} s)" for pod, action in taken]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    teams = sorted({pod.terms.team for pod, _ in taken if pod.terms.team})
    end = next((reservation.end for reservation in world.reservations if reservation.id == source), None)
    facts = [
        ("source", source),
        ("pods, with the grace that was left", ", ".join(names[:NAMED]) + more),
        ("why", sentence(taken[0][1].reason)),
    ]
    facts += [("teams", ", ".join(teams))] if teams else []
    facts += [("source ends", format_instant(end))] if end is not None else []
    return Alert(
        f"forced-eviction/{source}/{format_instant(world.now)}",
        AlertKind.FORCED_EVICTION,
        Severity.ERROR,
        source,
        f"{len(taken)} {'pod was' if len(taken) == 1 else 'pods were'} deleted by force on {source}",
        "Its time was up and it had not left: see that it restarted from its checkpoint, and raise the pool's"
        " drain.lead or loosen the disruption budget that held it.",
        tuple(facts),
        lasts=False,
    )
