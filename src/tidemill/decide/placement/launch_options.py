"""Nodes that could still be launched: from which source, of which type, how many, at what price, until when.

Nothing is opened past a pool's limits, an overflow cap or what a reservation holds, in-flight launches
counted; a source that just failed rests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b

from tidemill.catalog import InstanceType
from tidemill.decide.context import DecisionContext
from tidemill.decide.deadlines import NO_END, SHORTEST_LEAD, End, pod_lead
from tidemill.decide.failed_starts import FailedStarts, PoolType
from tidemill.decide.launches import InFlight
from tidemill.decide.overflow import hourly_rate, limited_source, money_left_usd, money_runs_out_at
from tidemill.decide.pool_templates import PoolTemplate
from tidemill.model.capacity import Reservation, ReservationState, Source, SourceKind
from tidemill.model.nodes import Node
from tidemill.model.plan import Launch
from tidemill.model.pods import Pod
from tidemill.model.purchases import LaunchIntent
from tidemill.model.reasons import DrainKind, LaunchReason
from tidemill.model.resources import Resources
from tidemill.model.world import World
from tidemill.spec import Spec, names
from tidemill.spec.compute_pool import Allowance, ComputePool, SourceSpec, matching_types
from tidemill.spec.usable_blocks import refusal

# To boot, and to be of some use.
LEAST_RUN = timedelta(minutes=30)
# A scheduled action fires within seconds, and no event tells of it where the group is empty.
LOOK_AFTER_SCALE_DOWN = timedelta(seconds=30)
_NO_HOURLY_CAP = 1e9  # dollars an hour, where only the month's budget is the limit
CostKey = tuple[str, SourceKind]  # hourly money is counted by pool and kind of source


@dataclass(slots=True, eq=False)
class Stock:
    """How many more instances a source has, shared by every pool that may use it."""

    left: float


@dataclass(slots=True, eq=False)
class HourlyCap:
    """The hourly money one source of a pool may still commit, shared by all its types and zones."""

    source: SourceSpec
    pool: str
    kind: SourceKind
    hourly_left_usd: float
    added_usd_h: float = 0.0  # by nodes that this plan launches


@dataclass(slots=True, eq=False)
class LaunchOption:
    """A kind of node that could be launched: so many more of a type, from a source, in a zone."""

    template: PoolTemplate
    source: Source
    kind: InstanceType
    zone: str
    stock: Stock
    usd_h: float
    order: tuple[int, int]
    allowance: Allowance
    free: Resources
    reservation: Reservation | None = None
    hourly_cap: HourlyCap | None = None  # set: its money is limited
    resting_until: datetime | None = None
    failure: str = ""  # why it rests: the label of the error
    failing_since: datetime | None = None  # no launch came to anything since
    gangs_rest_until: datetime | None = None  # so few came of what was asked for that gangs do not ask again
    failed_starts: FailedStarts | None = None  # its nodes never become Ready: one is tried alone
    trial: Stock | None = None  # ... of all that the pool could launch of the type; set with `failed_starts`
    opened: int = 0
    end: End | None = None  # of its reservation, once it was asked for

    @property
    def pool(self) -> ComputePool:
        return self.template.pool

    @property
    def overflow(self) -> bool:
        """Paid by the hour beside prepaid capacity: pods opt in."""
        return self.template.overflow[self.source.kind] is not None

    @property
    def till(self) -> CostKey:
        return (self.template.pool.name, self.source.kind)

    @property
    def left(self) -> float:
        return self.stock.left if self.trial is None else min(self.stock.left, self.trial.left)

    @property
    def labels(self) -> Mapping[str, str]:
        return self.template.labels(self.source, self.kind, self.zone)

    def rests(self, now: datetime) -> bool:
        return self.resting_until is not None and self.resting_until > now

    def open(self) -> None:
        self._count(+1)

    def close(self) -> None:
        self._count(-1)

    def _count(self, sign: int) -> None:
        self.opened += sign
        self.stock.left -= sign
        if self.trial is not None:
            self.trial.left -= sign
        self.allowance.take(self.kind, sign)
        if self.hourly_cap is not None:
            self.hourly_cap.added_usd_h += sign * self.usd_h


def find_launch_options(
    context: DecisionContext,
    in_flight: InFlight,
    allowances: Mapping[str, Allowance],
    daemons: Mapping[str, Mapping[str, int]],
) -> list[LaunchOption]:
    """In no order of preference: `pack` ranks them for each item."""
    if not (context.world.ledger_ok and context.world.cloud_ok):
        return []
    found: list[LaunchOption] = []
    stocks = {
        reservation.source: Stock(reservation.available - in_flight.on(reservation.source))
        for reservation in context.world.reservations
    }
    for name, template in context.templates.items():
        if name in context.refused_pools:
            continue
        for wanted in template.pool.spec.sources:
            if wanted.type in ("block", "odcr"):
                found += _reserved(context, template, wanted, stocks, allowances[name], daemons[name])
            else:
                found += hourly_options(context, template, wanted, allowances[name], daemons[name])
    trials: dict[PoolType, Stock] = {}
    for option in found:
        spot = (option.source, option.kind.name, option.zone)
        option.resting_until = in_flight.resting.get(spot)
        option.failure = in_flight.failure.get(spot, "")
        failing = in_flight.failing.get(spot)
        if failing is not None:
            option.failing_since = failing.failing_since or failing.written_at
        option.gangs_rest_until = in_flight.gangs_rest.get((option.pool.name, option.source))
        _try_alone(option, in_flight, trials)
        context.wake(option.resting_until)
        context.wake(option.gangs_rest_until)
    return found


def _try_alone(option: LaunchOption, in_flight: InFlight, trials: dict[PoolType, Stock]) -> None:
    key = (option.pool.name, option.kind.name)
    failed = in_flight.failed_starts.get(key)
    if failed is None or not failed.tried_alone:
        return
    option.failed_starts = failed
    option.trial = trials.setdefault(key, Stock(0 if failed.tried_now else 1))
    until = failed.rests_until(option.source.kind)
    option.resting_until = max(until, option.resting_until or until)


def _reserved(
    context: DecisionContext, template: PoolTemplate, wanted: SourceSpec, stocks: Mapping[Source, Stock],
    allowance: Allowance, daemons: Mapping[str, int],
) -> list[LaunchOption]:  # fmt: skip
    return [
        LaunchOption(
            template, reservation.source, template.kinds[reservation.instance_type], reservation.zone,
            stocks[reservation.source], 0.0, template.order(reservation.source), allowance,
            template.kinds[reservation.instance_type].free_beside(daemons), reservation=reservation,
        )
        for reservation in usable_reservations(context, template.pool, wanted)
        if reservation.instance_type in template.kinds and reservation.state is ReservationState.ACTIVE
    ]  # fmt: skip


def hourly_options(
    context: DecisionContext,
    template: PoolTemplate,
    wanted: SourceSpec,
    allowance: Allowance,
    daemons: Mapping[str, int],
) -> list[LaunchOption]:
    pool = template.pool
    source = Source(SourceKind(wanted.type))
    limited, hourly_cap = template.limited[source.kind], None
    if limited is not None:
        left_usd_h = _NO_HOURLY_CAP
        if template.overflow[source.kind] is not None or limited.max_hourly_usd is not None:
            running = hourly_rate(context.spec, context.world, pool.name, source.kind)
            left_usd_h = (limited.max_hourly_usd or 0.0) - running
        hourly_cap = HourlyCap(limited, pool.name, source.kind, left_usd_h)
    zones = [zone for zone in sorted(context.spec.platform.spec.subnets) if _is_allowed(zone, pool, wanted)]
    return [
        LaunchOption(
            template, source, kind, zone, Stock(float("inf")), context.spec.catalog.usd_h(kind.name, source.kind),
            template.order(source), allowance, kind.free_beside(daemons), hourly_cap=hourly_cap,
        )
        for kind in template.kinds.values()
        if kind.on_demand_usd_h is not None  # without a price no cap can be kept
        for zone in zones
    ]  # fmt: skip


def _is_allowed(zone: str, pool: ComputePool, wanted: SourceSpec) -> bool:
    return all(not zones or zone in zones for zones in (wanted.zones, pool.spec.requirements.zones))


def usable_reservations(context: DecisionContext, pool: ComputePool, wanted: SourceSpec) -> list[Reservation]:
    """Reservations of this kind that the pool may use, in an order that does not depend on who listed them.

    Always ours by the owner tag; where the pool names ids or tags, only those of them, and of ids also what was bought
    for it. A pool tag on a reservation keeps other pools off it.
    """
    known = context.usable.get((pool.name, id(wanted)))
    if known is not None:
        return known
    usable = [
        reservation
        for reservation in context.world.reservations
        if is_usable(reservation, pool, wanted, context.owner)
    ]
    usable.sort(key=lambda one: (one.start, one.id))
    context.usable[pool.name, id(wanted)] = usable
    return usable


def is_usable(one: Reservation, pool: ComputePool, wanted: SourceSpec, owner: str) -> bool:
    return (
        one.owner == owner
        and one.kind.value == wanted.type
        and (not one.pool or one.pool == pool.name)
        and refusal(pool, wanted, owner=owner, zone=one.zone, tags=one.tags, id_=one.id) is None
    )


def end_of_option(
    context: DecisionContext,
    option: LaunchOption,
    added_usd_h: float | None = None,
    all_added_usd_h: float | None = None,
) -> End:
    """As `DecisionContext.end_of`, but where money is the limit it counts what would be added (one node)."""
    pool, hourly_cap = option.pool, option.hourly_cap
    if hourly_cap is None:
        if option.end is None:
            option.end = _until_scaled_down(context, option)
        return option.end
    extra = hourly_cap.added_usd_h + (option.usd_h if added_usd_h is None else added_usd_h)
    return money_end(context, pool.name, hourly_cap.kind, extra, all_added_usd_h)


def _until_scaled_down(context: DecisionContext, option: LaunchOption) -> End:
    """The end of its source, or that of the group it would be launched in, if a scheduled action empties it before."""
    pool, reservation = option.pool, option.reservation
    end = context.end_of(option.source, pool.name, pool.spec.provisioner)
    emptied = dict(reservation.scale_downs).get(pool.name) if reservation is not None else None
    if emptied is None or end.deadline is None or end.drain_from is None or emptied >= end.deadline:
        return end
    context.wake(max(emptied, context.now) + LOOK_AFTER_SCALE_DOWN)
    return End(emptied, emptied - (end.deadline - end.drain_from))


def money_end(
    context: DecisionContext,
    pool: str,
    kind: SourceKind,
    extra_usd_h: float,
    all_extra_usd_h: float | None = None,
) -> End:
    """The drain begins as early as it does on the nodes that the source has: else a node would be launched that has to
    leave before anything runs on it."""
    out = money_runs_out_at(context.spec, context.world, pool, kind, extra_usd_h, all_extra_usd_h)
    as_it_is = context.end_of(Source(kind), pool, context.spec.pools[pool].spec.provisioner)
    if out is None:
        return NO_END
    if as_it_is.deadline is None or as_it_is.drain_from is None:  # what runs now has money without an end
        return End(out, out - max(SHORTEST_LEAD, context.spec.pools[pool].spec.drain.lead or SHORTEST_LEAD))
    return End(out, out - (as_it_is.deadline - as_it_is.drain_from))


def money_allows(context: DecisionContext, option: LaunchOption) -> bool:
    hourly_cap = option.hourly_cap
    if hourly_cap is None:
        return True
    if (
        hourly_cap.added_usd_h + option.usd_h > hourly_cap.hourly_left_usd + 1e-6
    ):  # sums of prices are not exact
        return False
    return (
        min(money_left_usd(context.spec, context.world, hourly_cap.source, hourly_cap.pool, hourly_cap.kind))
        > 0
    )


def affordable_usd_h(spec: Spec, world: World, pool: ComputePool, source: SourceSpec) -> float | None:
    """How many dollars an hour all nodes of a source may cost, so that none has to be drained for want of money before
    it ran for a while. 0: not one more node, not even of the cheapest type. None: no money is its limit."""
    kind = SourceKind(source.type)
    if limited_source(spec, pool, kind) is None:
        return None
    nodes = [
        node
        for node in world.nodes
        if node.instance is not None and node.instance.pool == pool.name and node.instance.source.kind is kind
    ]
    if any(_is_drained_for_money(node) for node in nodes):
        return 0.0
    drain = pool.spec.drain
    leads = (pod_lead(pod, checkpoint=drain.checkpoint) for pod in _affected(world, pool, kind, nodes))
    lasts_h = (LEAST_RUN + max(SHORTEST_LEAD, drain.lead or SHORTEST_LEAD, *leads)).total_seconds() / 3600
    cap_left, budget_left = money_left_usd(spec, world, source, pool.name, kind)
    own_rate = hourly_rate(spec, world, pool.name, kind)
    others_rate = hourly_rate(spec, world, None, None) - own_rate
    most = min(cap_left / lasts_h, budget_left / lasts_h - others_rate)
    rates = [type_.usd_h(kind) for type_ in matching_types(spec.catalog, pool.spec.requirements)]
    if most < own_rate + min(filter(None, rates), default=0.0) or most <= 0:
        return 0.0
    # Money gets less all the time. In steps, so that a limit made from it does not change all the time.
    return float(2.0 ** math.floor(math.log2(most)))


def _is_drained_for_money(node: Node) -> bool:
    why = node.kube.drain_reason if node.kube is not None else None
    return why is not None and why.kind is DrainKind.MONEY_ENDS


def _affected(world: World, pool: ComputePool, kind: SourceKind, nodes: Iterable[Node]) -> Iterator[Pod]:
    """Pods that decide how early the source is drained: those on its nodes, and those that may come to them."""
    for node in nodes:
        bound = world.pods_by_node.get(node.kube.name, ()) if node.kube is not None else ()
        yield from (pod for pod in bound if not pod.daemon)
    labels = {**pool.spec.labels, names.LABEL_POOL: pool.name}
    for pod in world.pods:
        if (
            not pod.node
            and pod.pinned_to in ("", kind.value)
            and not pod.daemon
            and all(labels.get(key, value) == value for key, value in pod.shape.node_selector)
        ):
            yield pod


def plan_launch(
    context: DecisionContext, option: LaunchOption, count: int, reason: LaunchReason, least: int = 1
) -> None:
    pool = option.pool
    where = f"{pool.name}|{option.source.label}|{option.kind.name}|{option.zone}"
    key = f"{context.owner}|{where}|{context.now.isoformat()}|{len(context.actions)}"
    intent = LaunchIntent(
        id="ti-" + blake2b(key.encode(), digest_size=9).hexdigest(),
        pool=pool.name,
        source=option.source,
        instance_type=option.kind.name,
        zone=option.zone,
        count=count,
        provisioner=pool.spec.provisioner.value,
        written_at=context.now,
        least=least,
        failing_since=option.failing_since,
    )
    context.do(Launch(intent, reason))
