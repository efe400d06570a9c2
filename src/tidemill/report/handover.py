"""One hand-over before it happens: for each service on a block, how it will move, when, and what would go wrong.

A read model of what the engine itself reckons with. Nothing is decided and nothing is formatted here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tidemill.decide.read_models import (
    DecisionContext,
    ServiceForecast,
    at_once,
    deadline_of,
    forecast,
    mitigations,
    pins_that_must_move,
)
from tidemill.model.pods import Method
from tidemill.model.world import World
from tidemill.report.rows import plain
from tidemill.spec import Spec
from tidemill.spec.compute_pool import Provisioner
from tidemill.wording import sentence
from tidemill.wording.handover import requirement_sentence


@dataclass(frozen=True, slots=True)
class MoveStep:
    at: datetime
    what: str


@dataclass(frozen=True, slots=True)
class WayOut:
    """`usd` None: there is no such way, and `words` say why. `offer` empty: reckoned, EC2 has not offered it."""

    means: str
    usd: float | None
    offer: str
    words: str


@dataclass(frozen=True, slots=True)
class ServiceMove:
    service: str
    namespace: str
    pool: str
    method: str  # as it asks
    in_effect: str  # as it will be done
    lacking: tuple[str, ...]  # what the method it asks for needs; empty: nothing
    replicas: int
    leaving: int
    minimum: int  # 0: nobody asks for one, and nothing is promised
    boot_s: int
    boot_basis: str  # measured, declared or default
    load_s: int
    load_basis: str
    needed_overlap_s: int
    overlap_s: int | None  # None: nothing takes over
    bridged: bool  # by nodes paid by the hour
    short: bool
    short_from: datetime | None
    short_s: int | None  # None: not short, or until something comes that is not known of
    steps: tuple[MoveStep, ...]
    ways: tuple[WayOut, ...]


@dataclass(frozen=True, slots=True)
class HandOverReport:
    at: datetime
    before: str
    after: str  # empty: whatever lasts
    ends: datetime | None  # when `before` must be empty
    after_starts: datetime | None
    services: tuple[ServiceMove, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        written: dict[str, Any] = plain(self)
        return written


def hand_over(spec: Spec, world: World, before: str, after: str = "") -> HandOverReport:
    """`before` and `after` are reservation ids that the world knows."""
    context = DecisionContext(spec, world)
    held, follows = context.reservations[before], context.reservations.get(after)
    found = forecast(context, only=before, onto=(after,) if after else ())
    pool = spec.pools.get(held.pool)
    provisioner = pool.spec.provisioner if pool is not None else Provisioner.NATIVE
    return HandOverReport(
        at=world.now,
        before=before,
        after=after,
        ends=deadline_of(held, provisioner),
        after_starts=follows.start if follows is not None else None,
        services=tuple(_move(context, one) for one in found),
        notes=tuple(
            f"pool {template.pool.name}: {sentence(reason)}"
            for template in context.templates.values()
            for reason in pins_that_must_move(context, template)
        ),
    )


def _move(context: DecisionContext, one: ServiceForecast) -> ServiceMove:
    short = one.short
    return ServiceMove(
        service=one.workload.name,
        namespace=one.workload.namespace,
        pool=one.pool,
        method=one.method.value,
        in_effect=one.in_effect.value,
        lacking=tuple(requirement_sentence(requirement) for requirement in one.lacking),
        replicas=one.workload.replicas,
        leaving=one.leaving,
        minimum=one.minimum,
        boot_s=_seconds(one.boot.length),
        boot_basis=one.boot.basis,
        load_s=_seconds(one.load.length),
        load_basis=one.load.basis,
        needed_overlap_s=_seconds(one.needed),
        overlap_s=_seconds(one.overlap) if one.overlap is not None else None,
        bridged=one.bridged,
        short=short is not None,
        short_from=short.since if short is not None else None,
        short_s=_seconds(short.lasts) if short is not None and short.lasts is not None else None,
        steps=tuple(sorted(_steps(one), key=lambda step: step.at)),
        ways=tuple(WayOut(way.means, way.usd, way.offer, way.words) for way in mitigations(context, one)),
    )


def _seconds(length: timedelta) -> int:
    return int(length.total_seconds())


def _steps(one: ServiceForecast) -> Iterator[MoveStep]:
    after, workload = one.successor, one.workload
    yield MoveStep(one.drain_from, f"the nodes of {one.block.id} take nothing new")
    if after is not None and not one.bridged:
        yield MoveStep(after.start, f"{after.id} starts and its nodes are launched")
    if one.ready_from is not None:
        if not one.bridged:
            yield MoveStep(one.ready_from, "the first of them takes pods")
        begins = max(one.drain_from, one.ready_from)
        if one.short is None or begins < one.short.since:
            yield MoveStep(begins, _begin(one))
    if one.short is not None:
        yield MoveStep(one.short.since, f"{workload.name} falls below {one.minimum}")
        if one.short.lasts is not None:
            yield MoveStep(
                one.short.since + one.short.lasts, f"{workload.name} has {one.minimum} ready again"
            )
    elif one.moved_by is not None:
        yield MoveStep(one.moved_by, f"the last is Ready elsewhere, and {one.block.id} is left")
    yield MoveStep(one.deadline, f"{one.block.id} must be empty")


def _begin(one: ServiceForecast) -> str:
    workload, method = one.workload, one.in_effect
    count = at_once(workload, method, one.leaving, workload.replicas - one.minimum)
    match method:
        case Method.ROLLOUT:
            return f"its template is touched: {count} new at a time, an old one goes for each that is Ready"
        case Method.SCALE:
            return f"{count} more replicas come up; when they are Ready, those on {one.block.id} go"
        case Method.PAIRED:
            return f"{workload.pair} comes up with {workload.replicas}; when they are Ready, {workload.name} goes to 0"
    return f"its replicas are evicted, {count} at a time, each when the one before is Ready elsewhere"
