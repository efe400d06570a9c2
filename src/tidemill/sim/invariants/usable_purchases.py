"""12: what is bought can be used by the pool it is bought for: judged when proposed, when approved and when submitted.

An approval binds an envelope, so every zone inside it must be one the pool may use. Limits count the pool's other
blocks: a block must fit beside them for at least half of its life, which leaves room for the overlap of a hand-over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from tidemill.model.capacity import LIVE_STATES, SourceKind
from tidemill.model.purchases import Envelope, PurchaseIntent, PurchaseState
from tidemill.sim.invariants.capacity import NO_LIMITS_GIVEN
from tidemill.sim.invariants.truth import Findings, Truth
from tidemill.spec import names
from tidemill.spec.compute_pool import ComputePool, SourceSpec, matches


@dataclass(frozen=True, slots=True)
class _Block:
    """A block as it is, or as its envelope lets it be: then in any of the zones, with the tags a purchase carries."""

    instance_type: str
    count: int
    zones: tuple[str, ...]
    tags: dict[str, str]
    ids: tuple[str, ...]  # empty: not bought yet
    intent_id: str
    start: datetime
    end: datetime


class UsablePurchases:
    def __init__(self) -> None:
        self._intents: tuple[PurchaseIntent, ...] = ()
        self._judged: set[tuple[str, int, Envelope]] = set()
        self._bought = self._extended = 0

    def check(self, truth: Truth) -> Findings:
        intents = truth.ledger.purchases()
        if intents != self._intents:
            self._intents = intents
            for intent in intents:
                yield from self._judge_intent(truth, intent)
        yield from self._judge_bought(truth)

    def _judge_intent(self, truth: Truth, intent: PurchaseIntent) -> Findings:
        """Once as proposed and once at every yes, although it may have been bought since, at the same instant."""
        yeses = sum(verdict.approved for verdict in intent.verdicts)
        step, pool = (intent.id, yeses, intent.envelope), truth.spec.pools.get(intent.pool)
        if step in self._judged or pool is None or (not yeses and intent.state is not PurchaseState.PROPOSED):
            return
        self._judged.add(step)
        block: _Block | None = _of_envelope(truth, intent)
        bound = intent.envelope
        if intent.extends:  # the time that it adds to the block
            block = _of_reservation(truth, intent.extends, (bound.latest_start, bound.earliest_end))
        if block is not None and (why := _why_unusable(truth, pool, block)):
            yield 12, (intent.id, pool.name, f"{'approved' if yeses else 'proposed'}: {why}")

    def _judge_bought(self, truth: Truth) -> Findings:
        """As AWS sold it, by the ids and the tags that it has there."""
        new, self._bought = truth.cloud.purchases[self._bought :], len(truth.cloud.purchases)
        sold: list[tuple[str, tuple[datetime, datetime] | None]] = [
            (id_, None) for purchase in new if purchase.intent_id for id_ in purchase.reservation_ids
        ]
        extended, self._extended = (
            truth.cloud.bought_extensions[self._extended :],
            len(truth.cloud.bought_extensions),
        )
        ours = {intent.extends for intent in truth.ledger.purchases()}  # people extend by hand what they like
        sold += [
            (extension.reservation_id, (extension.start, extension.to))
            for extension in extended
            if extension.reservation_id in ours
        ]
        for id_, added in sold:
            reservation = truth.cloud.reservation(id_)
            pool = truth.spec.pools.get(reservation.pool) if reservation is not None else None
            block = _of_reservation(truth, id_, added)
            if pool is not None and block is not None and (why := _why_unusable(truth, pool, block)):
                yield 12, (id_, pool.name, f"submitted: {why}")


def _of_envelope(truth: Truth, intent: PurchaseIntent) -> _Block:
    """Before it has an id, over the time that any block inside the envelope must cover."""
    bound, platform = intent.envelope, truth.spec.platform.spec
    tags = {  # as a purchase writes them
        **platform.tags,
        names.TAG_OWNER: platform.deployment,
        names.TAG_POOL: intent.pool,
        names.TAG_INTENT: intent.id,
    }
    zones = bound.zones or tuple(platform.subnets)
    return _Block(
        bound.instance_type, bound.count, zones, tags, (), intent.id, bound.latest_start, bound.earliest_end
    )


def _of_reservation(truth: Truth, id_: str, added: tuple[datetime, datetime] | None = None) -> _Block | None:
    """Over its whole life, or over the time that an extension adds to it."""
    held = truth.cloud.reservation(id_)
    if held is None or held.end is None:
        return None
    start, end = added or (held.start, held.end)
    return _Block(
        held.instance_type,
        held.count,
        (held.zone,),
        dict(held.tags),
        (held.id,),
        held.intent_id,
        start,
        end,
    )


def _why_unusable(truth: Truth, pool: ComputePool, block: _Block) -> str:
    """What of its pool's document keeps its nodes away; empty: nothing."""
    kind, wanted = truth.spec.catalog.types[block.instance_type], pool.spec.requirements
    if not matches(kind, wanted):
        return f"the pool's requirements do not allow {kind.name}"
    sources = [source for source in pool.spec.sources if source.type == SourceKind.BLOCK.value]
    if not sources:
        return "the pool has no block source"
    bought = _is_bought_for(truth, pool, block)
    for zone in block.zones:
        if wanted.zones and zone not in wanted.zones:
            return f"the pool's requirements do not allow zone {zone}"
        if zone not in truth.spec.platform.spec.subnets:
            return f"the platform has no subnet in {zone}"
        if not any(_takes(source, block, zone, bought=bought) for source in sources):
            return f"no block source of the pool takes it in {zone}"
    return _over_limits(truth, pool, block)


def _takes(source: SourceSpec, block: _Block, zone: str, *, bought: bool) -> bool:
    """A source that lists ids takes those, and what is `bought` for its pool: the pin moves on to it."""
    named = bool(block.ids) and set(block.ids) <= set(source.ids)
    return (
        (not source.zones or zone in source.zones)
        and (not source.ids or named or bought)
        and source.tags.items() <= block.tags.items()
    )


def _is_bought_for(truth: Truth, pool: ComputePool, block: _Block) -> bool:
    """By its tags, which are all that a program without our ledger sees: ours, this pool's, and of a purchase."""
    told = block.tags
    ours = told.get(names.TAG_OWNER) == truth.owner and told.get(names.TAG_POOL) == pool.name
    return ours and told.get(names.TAG_INTENT, "") != ""


def _over_limits(truth: Truth, pool: ComputePool, block: _Block) -> str:
    limits = pool.spec.limits or NO_LIMITS_GIVEN
    caps = (limits.cpu, limits.memory, limits.gpus, limits.nodes)
    others = [
        held
        for held in truth.cloud.all_reservations()
        if held.kind is SourceKind.BLOCK
        and held.pool == pool.name
        and held.owner == truth.owner
        and held.state in LIVE_STATES
        and held.id not in block.ids
        and (not block.intent_id or held.intent_id != block.intent_id)
        and held.end is not None
        and held.start < block.end
        and held.end > block.start
    ]
    edges = sorted(
        {block.start, block.end, *_inside(block, [at for held in others for at in (held.start, held.end)])}
    )
    fits = timedelta(0)
    for since, until in pairwise(edges):
        beside = [
            held for held in others if held.start <= since and held.end is not None and held.end > since
        ]
        nodes = [(block.instance_type, block.count), *((held.instance_type, held.count) for held in beside)]
        if all(cap is None or total <= cap for cap, total in zip(caps, _sums(truth, nodes), strict=True)):
            fits += until - since
    if fits >= (block.end - block.start) / 2:
        return ""
    return f"{block.count} x {block.instance_type} do not fit the pool's limits, beside {len(others)} other blocks"


def _inside(block: _Block, instants: Iterable[datetime | None]) -> list[datetime]:
    return [at for at in instants if at is not None and block.start < at < block.end]


def _sums(truth: Truth, nodes: Iterable[tuple[str, int]]) -> tuple[int, int, int, int]:
    kinds = [(truth.spec.catalog.types[name], count) for name, count in nodes]
    return (
        sum(kind.vcpus * 1000 * count for kind, count in kinds),
        sum(kind.memory_mib * 2**20 * count for kind, count in kinds),
        sum(kind.gpus * count for kind, count in kinds),
        sum(count for _, count in kinds),
    )
