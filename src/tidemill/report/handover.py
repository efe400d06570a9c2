"""A hand-over before it happens: for each service on a block, how and when it will move, and what could go wrong.

A read model of the engine's own forecast. Nothing is decided and nothing is formatted here.
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
    inherits_pin,
    mitigations,
    pins_that_must_move,
)
from tidemill.model.pods import Method
from tidemill.model.world import World
from tidemill.report.rows import plain
from tidemill.spec import Spec
from tidemill.spec.compute_pool import Provisioner
from tidemill.wording import sentence
from tidemill.wording.handover import inherited_pin_sentence, requirement_sentence
from tidemill.wording.planning import mitigation_sentence


@dataclass(frozen=True, slots=True)
class MoveStep:
    at: datetime
    what: str


@dataclass(frozen=True, slots=True)
class WayOut:
    """A mitigation. `usd` None: not available, and `words` say why. `offer` empty: an estimate without an offer
    from EC2."""

    means: str
    usd: float | None
    offer: str
    words: str


@dataclass(frozen=True, slots=True)
class ServiceMove:
    service: str
    namespace: str
    pool: str
    method: str  # as the service asks
    in_effect: str  # what will be used
    lacking: tuple[str, ...]  # what the requested method needs and does not have
    replicas: int
    leaving: int
    minimum: int  # 0: the service has none
    boot_s: int
    boot_basis: str  # measured, declared or default
    load_s: int
    load_basis: str
    needed_overlap_s: int
    overlap_s: int | None  # None: nothing takes over
    bridged: bool  # by on-demand nodes
    short: bool
    short_from: datetime | None
    short_s: int | None  # None: not short, or the end is not known
    steps: tuple[MoveStep, ...]
    ways: tuple[WayOut, ...]
    moved_by: datetime | None = None  # when the last replica is Ready elsewhere; None: short, or not known


@dataclass(frozen=True, slots=True)
class HandOverReport:
    at: datetime
    before: str
    after: str  # empty: any capacity that lasts
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
        services=tuple(_move(context, service) for service in found),
        notes=tuple(_notes(context)),
    )


def _notes(context: DecisionContext) -> Iterator[str]:
    for template in context.templates.values():
        pool = template.pool
        if inherited_by := tuple(block.id for block in inherits_pin(context, template)):
            yield f"pool {pool.name}: {inherited_pin_sentence(pool.spec.pinned_to, inherited_by)}"
        for reason in pins_that_must_move(context, template):
            yield f"pool {pool.name}: {sentence(reason)}"


def _move(context: DecisionContext, service: ServiceForecast) -> ServiceMove:
    short = service.short
    return ServiceMove(
        service=service.workload.name,
        namespace=service.workload.namespace,
        pool=service.pool,
        method=service.method.value,
        in_effect=service.in_effect.value,
        lacking=tuple(requirement_sentence(requirement) for requirement in service.lacking),
        replicas=service.workload.replicas,
        leaving=service.leaving,
        minimum=service.minimum,
        boot_s=_seconds(service.boot.length),
        boot_basis=service.boot.basis,
        load_s=_seconds(service.load.length),
        load_basis=service.load.basis,
        needed_overlap_s=_seconds(service.needed),
        overlap_s=_seconds(service.overlap) if service.overlap is not None else None,
        bridged=service.bridged,
        short=short is not None,
        short_from=short.since if short is not None else None,
        short_s=_seconds(short.lasts) if short is not None and short.lasts is not None else None,
        moved_by=service.moved_by if short is None else None,
        steps=tuple(sorted(_steps(service), key=lambda step: step.at)),
        ways=tuple(
            WayOut(way.means, way.usd, way.offer, mitigation_sentence(way.note))
            for way in mitigations(context, service)
        ),
    )


def _seconds(length: timedelta) -> int:
    return int(length.total_seconds())


def _steps(service: ServiceForecast) -> Iterator[MoveStep]:
    after, workload = service.successor, service.workload
    yield MoveStep(service.drain_from, f"the nodes of {service.block.id} accept no new pods")
    if after is not None and not service.bridged:
        yield MoveStep(after.start, f"{after.id} starts and its nodes are launched")
    if service.ready_from is not None:
        if not service.bridged:
            yield MoveStep(service.ready_from, "the first of them accepts pods")
        begins = max(service.drain_from, service.ready_from)
        if service.short is None or begins < service.short.since:
            yield MoveStep(begins, _begin(service))
    if service.short is not None:
        yield MoveStep(service.short.since, f"{workload.name} falls below {service.minimum}")
        if service.short.lasts is not None:
            yield MoveStep(
                service.short.since + service.short.lasts,
                f"{workload.name} has {service.minimum} ready again",
            )
    elif service.moved_by is not None:
        yield MoveStep(
            service.moved_by, f"the last replica is Ready elsewhere; {service.block.id} is empty of it"
        )
    yield MoveStep(service.deadline, f"{service.block.id} must be empty")


def _begin(service: ServiceForecast) -> str:
    workload, method = service.workload, service.in_effect
    count = at_once(workload, method, service.leaving, workload.replicas - service.minimum)
    match method:
        case Method.ROLLOUT:
            return f"its rollout is restarted, {count} new replicas at a time; an old one ends when a new one is Ready"
        case Method.SCALE:
            return f"{count} more replicas start; when they are Ready, those on {service.block.id} end"
        case Method.PAIRED:
            return f"{workload.pair} scales to {workload.replicas}; when they are Ready, {workload.name} scales to 0"
    return f"its replicas are evicted, {count} at a time, each when the one before is Ready elsewhere"
