"""16: the money in every view adds up: to the ledger's, and the ledger's to what the simulated AWS charged.

Fees must agree to the dollar once a purchase is settled. Hours are metered from what the engine sees, so each instance
may be off by the minutes between AWS's record and a tick, and by the time in which the engine could not look. Spot
instances of a type whose spot price the catalog does not have are counted at the on-demand price, on the high side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from tidemill.engine.loop import Tick
from tidemill.model.capacity import SourceKind
from tidemill.model.purchases import IN_DOUBT, MAY_COST, PurchaseIntent, PurchaseState
from tidemill.report import status
from tidemill.report.costs import Costs
from tidemill.report.holdings import HoldingRecords, holdings
from tidemill.report.ledger_costs import ledger_costs
from tidemill.report.rows import Status
from tidemill.report.savings import Savings
from tidemill.sim.cloud.instances import InstanceHistory
from tidemill.sim.invariants.truth import Findings, Truth
from tidemill.store.months import month_of

# After a payment is settled, or an answer was lost, the engine finds out at one of its next looks.
SETTLED_FOR = timedelta(hours=2)
CENT = 0.01
# An instance is seen at the next tick, at the latest after ten minutes; both its start and its end.
SEEN_WITHIN = timedelta(minutes=20)
HOURLY = (SourceKind.SPOT, SourceKind.ON_DEMAND)
_HOUR = timedelta(hours=1)


class ReportedMoney:
    def check(self, truth: Truth, tick: Tick) -> Findings:
        now = truth.now()
        if truth.able_for(now - SETTLED_FOR, now) < SETTLED_FOR or not _all_settled(truth, now):
            return
        for intent, fee_usd in _sold(truth):
            counted = intent.fee_usd if intent.state in MAY_COST else 0
            if counted != fee_usd:
                yield 16, (intent.id, f"the ledger counts ${counted:,}, AWS charged ${fee_usd:,}")
        fees = sum(
            fee
            for intent, fee in _sold(truth)
            if intent.state_at and month_of(intent.state_at) == month_of(now)
        )
        shown = status(truth.spec, tick.world, tick.plan)
        for view, usd in _fees_in_views(truth, tick, shown):
            if abs(usd - fees) > CENT:
                yield 16, (view, f"fees of ${usd:,.2f}, AWS charged ${fees:,.2f} this month")
        yield from _check_blocks(truth, tick, shown)
        yield from _check_costs(truth, now)


def check_found(truth: Truth) -> Findings:
    """A purchase whose answer was lost is found once AWS shows it: until then its money is in doubt."""
    doubted = {intent.id for intent in truth.ledger.purchases() if intent.state in IN_DOUBT}
    for purchase in truth.cloud.purchases if doubted else ():
        settled = purchase.settled_at
        if purchase.intent_id not in doubted or not purchase.paid or settled is None:
            continue
        if truth.able_for(settled, truth.now()) > SETTLED_FOR:
            yield 16, (purchase.intent_id, *purchase.reservation_ids, "bought, and nobody looked")


def _all_settled(truth: Truth, now: datetime) -> bool:
    """No purchase is in doubt, and none was made or paid within the last hours."""
    made = [purchase.settled_at or now for purchase in truth.cloud.purchases]
    made += [extension.settled_at or now for extension in truth.cloud.bought_extensions]
    return all(at <= now - SETTLED_FOR for at in made) and not any(
        intent.state in IN_DOUBT for intent in truth.ledger.purchases()
    )


def _sold(truth: Truth) -> Iterator[tuple[PurchaseIntent, int]]:
    """Every purchase of the ledger that AWS knows of, with what AWS charged for it."""
    charged: dict[str, int] = {}
    for purchase in truth.cloud.purchases:
        if purchase.intent_id:
            fee_usd = purchase.fee_usd if purchase.paid else 0
            charged[purchase.intent_id] = charged.get(purchase.intent_id, 0) + fee_usd
    longer = {
        (extension.reservation_id, extension.offer_id): extension.fee_usd if extension.paid else 0
        for extension in truth.cloud.bought_extensions
        if extension.offer_id
    }
    for intent in truth.ledger.purchases():
        fee = longer.get((intent.extends, intent.offer_id)) if intent.extends else charged.get(intent.id)
        if fee is not None:
            yield intent, fee
        elif intent.state is PurchaseState.CONFIRMED:
            yield intent, 0


def _fees_in_views(truth: Truth, tick: Tick, shown: Status) -> Iterator[tuple[str, float]]:
    """This month's, wherever they are shown."""
    now, spending = truth.now(), truth.ledger.spending(truth.now())
    yield "ledger", spending.fees_usd
    if month_of(tick.world.now) == month_of(now):
        yield "metrics", tick.world.spending.fees_usd
        yield "status", shown.money.fees_usd


def _check_blocks(truth: Truth, tick: Tick, shown: Status) -> Findings:
    """`tidemill blocks` and the blocks of `status`: what each was paid for, its extensions included."""
    world, books = tick.world, HoldingRecords(truth.ledger.purchases(), truth.ledger.adoptions())
    listed = holdings(truth.spec, world.reservations, (), books, world.now)
    for view, rows in (("blocks", listed), ("status", shown.blocks)):
        fees = {row.id: row.fee_usd for row in rows}
        for purchase in truth.cloud.purchases:
            ids = purchase.reservation_ids
            if not purchase.intent_id or not fees.keys() >= set(ids):
                continue
            usd = purchase.fee_usd if purchase.paid else 0
            usd += sum(
                extension.fee_usd
                for extension in truth.cloud.bought_extensions
                if extension.paid and extension.reservation_id in ids
            )
            told = sum(fees[id_] for id_ in ids)
            # The fee of an UltraServer is divided over its blocks in whole dollars.
            if abs(told - usd) >= len(ids):
                yield 16, (view, f"{', '.join(ids)} for ${told:,}, AWS charged ${usd:,}")


def _check_costs(truth: Truth, now: datetime) -> Findings:
    """`tidemill costs`: everything so far, fees and hours."""
    lines, purchases = truth.ledger.cost_lines(), truth.ledger.purchases()
    shown = ledger_costs(truth.spec.catalog, purchases, truth.ledger.block_hours(), lines, now)
    fees = sum(fee for intent, fee in _sold(truth))
    billed = allowed = 0.0
    for history in truth.cloud.instance_histories.values():
        if (
            history.now.owner == truth.owner
            and history.now.source.kind in HOURLY
            and history.running_at is not None
        ):
            until, usd_h = history.shutting_down_at or now, _known_rate(truth, history)
            billed += usd_h * max(0.0, (until - history.running_at) / _HOUR)
            blind = until - history.now.launched_at - truth.able_for(history.now.launched_at, until)
            allowed += usd_h * ((SEEN_WITHIN + blind) / _HOUR)
    if abs(shown.total_usd - fees - billed) > CENT + allowed:
        yield 16, ("costs", f"${shown.total_usd:,.2f} in total, AWS charged ${fees + billed:,.2f}")
    parts = sum(pool.used_usd + pool.idle_usd + pool.outside_usd for pool in shown.pools)
    teams = sum(team.usd for team in shown.teams)
    if abs(parts - shown.total_usd) > CENT or abs(teams - shown.used_usd) > CENT:
        yield 16, ("costs", f"its pools add up to ${parts:,.2f} and its teams to ${teams:,.2f}")


def check_summary(
    cost_usd: Mapping[str, float], costs: Costs, money: Savings, paid_blocks_usd: float
) -> Findings:
    """The summary of a rehearsal, made at its end: the bill, its parts, the shares of pools and the savings."""
    parts = cost_usd["blocks"] + cost_usd["on_demand"] + cost_usd["spot"]
    for about, shown, expected in (
        ("its parts", parts, cost_usd["total"]),
        ("its blocks", cost_usd["blocks"], paid_blocks_usd),
        ("pools and what is paid for other hours", costs.total_usd, cost_usd["total"]),
        (
            "what is compared and what is paid for other hours",
            money.paid_usd + money.ahead_usd,
            cost_usd["total"],
        ),
        (
            "what was saved, by pool",
            sum(pool.saving_usd or 0.0 for pool in costs.pools),
            money.saved_usd or 0.0,
        ),
    ):
        if abs(shown - expected) > 5 * CENT:
            yield 16, ("summary", f"{about}: ${shown:,.2f} of ${expected:,.2f}")


def _known_rate(truth: Truth, history: InstanceHistory) -> float:
    kind = truth.spec.catalog.types[history.now.instance_type]
    unknown = history.now.source.kind is SourceKind.SPOT and kind.spot_usd_h is None
    return (kind.on_demand_usd_h or 0.0) if unknown else history.usd_h
