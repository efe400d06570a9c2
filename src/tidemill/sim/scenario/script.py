"""Schedules a scenario on the timeline: jobs, services, decisions, extensions and faults.

Everything random is drawn when the rehearsal begins, one stream per line of the scenario, so that nothing the engine
does can change what happens to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from random import Random
from typing import ParamSpec, Protocol

from tidemill.model.errors import Refused
from tidemill.sim.cloud.account_faults import strike_account
from tidemill.sim.cloud.cloud import SimCloud
from tidemill.sim.cluster.cluster import SimCluster
from tidemill.sim.timeline import Journal, Timeline, stream, whole_seconds
from tidemill.spec.faults import FaultKind
from tidemill.spec.node_class import AmiTerm
from tidemill.spec.scenario import Arrivals, Fault, JobStream, RandomDuration, RandomFaults, Scenario
from tidemill.spec.units import format_duration

P = ParamSpec("P")


class Simulation(Protocol):
    """What a scenario acts on: the rehearsal."""

    timeline: Timeline
    journal: Journal
    cloud: SimCloud
    cluster: SimCluster

    def crash_engine(self, step: str) -> None: ...
    def keep_engine_away(self, duration: timedelta) -> None: ...
    def throttle_cloud(self, duration: timedelta) -> None: ...
    def record_verdict(self, window: str, by: str, approved: bool, note: str) -> None: ...
    def roll_image(self, node_class: str, ami: AmiTerm) -> None: ...


def schedule_scenario(scenario: Scenario, seed: int, simulation: Simulation) -> None:
    start = simulation.timeline.now()
    spec = scenario.spec
    for line in spec.jobs:
        _schedule_jobs(line, seed, simulation, start, start + spec.duration)
    for service in spec.services:
        simulation.timeline.at(start + service.start, _call(simulation.cluster.start_service, service))
        if service.until is not None:
            simulation.timeline.at(
                start + service.until, _call(simulation.cluster.stop_service, service.name)
            )
    for word in spec.decisions:
        approved = word.verdict == "approve"
        simulation.timeline.at(
            start + word.at, _call(simulation.record_verdict, word.window, word.by, approved, word.note)
        )
    for extension in spec.extensions:
        simulation.timeline.at(start + extension.at, _extend(simulation, extension.block, extension.by,
                          extension.payment == "succeeds", extension.settles_after))  # fmt: skip
    for roll in spec.rolls:
        simulation.timeline.at(start + roll.at, _call(simulation.roll_image, roll.node_class, roll.ami))
    for fault in (*spec.faults, *draw_faults(spec.random_faults, seed, spec.duration)):
        simulation.timeline.at(start + fault.at, _call(strike_fault, simulation, fault))


def _call(what: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Callable[[], None]:
    return lambda: (what(*args, **kwargs), None)[1]


def _schedule_jobs(
    line: JobStream, seed: int, simulation: Simulation, start: datetime, end: datetime
) -> None:
    draw = stream(seed, "jobs", line.name)
    for number, at in enumerate(arrivals(line.arrivals, draw, end - start), start=1):
        duration = draw_duration(line.duration, draw)
        simulation.timeline.at(
            start + at, _call(simulation.cluster.submit_job, line, f"{line.name}-{number}", duration)
        )


def arrivals(rule: Arrivals, draw: Random, horizon: timedelta) -> list[timedelta]:
    """Offsets from the start, in order, in whole seconds."""
    until = min(rule.until or horizon, horizon)
    times = (at for at in _arrival_times(rule, draw, until) if at < until)
    return list(islice(times, rule.count))


def _arrival_times(rule: Arrivals, draw: Random, until: timedelta) -> Iterator[timedelta]:
    if rule.at:
        yield from sorted(rule.at)
        return
    at = rule.start
    if rule.every is not None:
        while at < until:
            yield at
            at += max(rule.every, timedelta(seconds=1))
        return
    assert rule.per_hour is not None
    while at < until:
        at += whole_seconds(draw.expovariate(rule.per_hour) * 3600)
        yield at


def draw_duration(spread: RandomDuration, draw: Random) -> timedelta:
    if spread.fixed is not None:
        return max(spread.fixed, timedelta(seconds=1))
    if spread.uniform is not None:
        low, high = spread.uniform
        return whole_seconds(draw.uniform(low.total_seconds(), high.total_seconds()))
    shape = spread.lognormal
    assert shape is not None
    drawn = whole_seconds(shape.median.total_seconds() * draw.lognormvariate(0, shape.sigma))
    return min(drawn, shape.max) if shape.max is not None else drawn


def draw_faults(rule: RandomFaults | None, seed: int, horizon: timedelta) -> list[Fault]:
    if rule is None:
        return []
    draw = stream(seed, "faults")
    first, last = rule.start.total_seconds(), (rule.until or horizon).total_seconds()
    faults = []
    for _ in range(rule.count):
        kind = draw.choice(rule.kinds)
        at = timedelta(seconds=draw.randint(int(first), max(int(first), int(last) - 1)))
        step = draw.choice(CRASH_STEPS) if kind is FaultKind.ENGINE_CRASH else ""
        faults.append(Fault(at=at, fault=kind, duration=timedelta(minutes=draw.randint(1, 30)), step=step))
    return sorted(faults, key=lambda fault: fault.at)


CRASH_STEPS = (
    "", "before:launch", "after:launch", "before:write_launch", "after:write_launch", "before:purchase",
    "after:purchase", "before:advance", "after:advance", "before:admit", "after:admit", "after:evict",
    "after:start_drain", "after:terminate",
)  # fmt: skip


def _extend(
    simulation: Simulation, block: str, by: timedelta, pays: bool, settles: timedelta
) -> Callable[[], None]:
    def extend() -> None:
        try:
            simulation.cloud.extend(block, by, payment_succeeds=pays, settles_after=settles)
        except Refused as refused:
            asked = f"the extension by {format_duration(by)} was refused"
            simulation.journal.add("extension-refused", block, f"{asked}: {refused}")

    return extend


def strike_fault(simulation: Simulation, fault: Fault) -> None:
    """One fault of the scenario, when its time has come."""
    cluster, kind, count, duration, target = (
        simulation.cluster,
        fault.fault,
        fault.count,
        fault.duration,
        fault.target,
    )
    struck: tuple[str, ...] = ()
    match kind:
        case FaultKind.LATE_JOIN:
            cluster.late_join(count, duration, target)
        case FaultKind.NEVER_JOINS:
            cluster.never_join(count, target)
        case FaultKind.GPUS_NEVER_REGISTER:
            cluster.gpus_never_register(count, target)
        case FaultKind.GPU_FAILS:
            struck = tuple(filter(None, (cluster.fail_gpu(target) for _ in range(count))))
        case FaultKind.ENGINE_CRASH:
            simulation.crash_engine(fault.step)
        case FaultKind.ENGINE_ABSENT:
            simulation.keep_engine_away(duration)
        case FaultKind.THROTTLE:
            simulation.throttle_cloud(duration)
        case _:
            notice = max(duration, timedelta(hours=2)) if kind is FaultKind.RETIREMENT else duration
            call = "purchase" if target == "purchase" else fault.call  # as it was written before `call`
            struck = strike_account(simulation.cloud, kind, count, notice, target, call)
    where = f" on {target}" if target else ""
    hit = f": {', '.join(struck)}" if struck else ""
    text = f"{kind} x{count} for {format_duration(duration)}{where}{hit}"
    simulation.journal.add("fault", kind, text, hit=struck)
