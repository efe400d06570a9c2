"""6 and 10: the same world gives the same plan, and nothing is done to one object for ever.

A livelock rarely repeats one plan word for word: it drains, replaces and drains again. So what is counted is
how often one kind of thing was done to one object (or to one workload, whose pods have new names each time),
and how many nodes of one source were given back without ever having been used.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import replace
from datetime import datetime, timedelta

from tidemill.engine.loop import Tick
from tidemill.model.plan import Action, Launch, Plan, SearchExtensions, SearchOffers, StartDrain
from tidemill.model.world import World
from tidemill.sim.invariants.truth import Findings, Truth

# 6: deciding twice at every tick would double the run. Plans with several actions, whose order could differ,
# are always decided twice; of the others a sample, every so many (a prime, to follow no pattern).
DECIDE_TWICE_EVERY = 101
# 10: more often than this within the hour is a loop. What legitimately repeats does so every ten minutes.
REPEAT_BOUND = 15
REPEAT_SPAN = timedelta(hours=1)
# So many unused nodes, or three times a reservation's size, or a quarter of those launched, or as many as pods started
# meanwhile (which may have got a place that came free sooner), given back within a day: launched for nothing.
UNUSED_BOUND = 15
UNUSED_SPAN = timedelta(days=1)
# What failed this way may be tried again; a success, or a refusal asked for again, may not.
MAY_REPEAT = ("retryable", "outcome-unknown", "no-capacity", "not-yet")


class Plans:
    def __init__(self) -> None:
        self._ticks = 0
        self._done: defaultdict[tuple[str, str], deque[datetime]] = defaultdict(deque)

    def check(self, truth: Truth, tick: Tick) -> Findings:
        self._ticks += 1
        twice = (self._ticks - 1) % DECIDE_TWICE_EVERY == 0 or len(tick.plan.actions) > 1
        if twice and not _is_as_good(tick.plan, truth.decide(truth.spec, tick.world)):
            yield 6, (f"tick {self._ticks}",)
        if tick.outcomes:
            for outcome in tick.outcomes:
                if outcome.error not in MAY_REPEAT:
                    yield from self._count(truth, outcome.action, tick.world)
                    yield from self._given_back(truth, tick, outcome.action)

    def _count(self, truth: Truth, action: Action, world: World) -> Findings:
        kind = type(action).__name__
        for about in _objects(truth, action, world):
            times = self._noted(kind, about, world.now, REPEAT_SPAN)
            if times <= REPEAT_BOUND:
                continue
            size = sum(pod.workload == about for pod in world.pods)
            if times > REPEAT_BOUND * max(1, size):
                yield 10, (kind, about, f"{times} times within the hour")

    def _given_back(self, truth: Truth, tick: Tick, action: Action) -> Findings:
        if isinstance(action, Launch):
            source = f"{action.intent.pool} on {action.intent.source.label}"
            for _ in range(action.intent.count):
                self._noted("launched", source, tick.world.now, UNUSED_SPAN)
        if not isinstance(action, StartDrain):
            return
        node = next((observed for observed in tick.world.nodes if observed.name == action.node), None)
        if node is None or node.instance is None or node.kube is None or node.kube.last_pod_event_at:
            return
        if node.kube.check == "failed" or truth.soon_over(node.instance.id, tick.world.now):
            return
        source = f"{node.instance.pool} on {node.instance.source.label}"
        times = self._noted("unused", source, tick.world.now, UNUSED_SPAN)
        held = truth.cloud.reservation(node.instance.source.id)
        launched = len(self._done["launched", source])  # of many, some come too late for whom they were meant
        if times > max(UNUSED_BOUND, launched // 4, 3 * held.count if held else 0) and (
            times > truth.pods_started(node.instance.pool, tick.world.now - UNUSED_SPAN)
        ):
            yield 10, (source, f"{times} nodes given back unused within a day")

    def _noted(self, kind: str, about: str, now: datetime, span: timedelta) -> int:
        times = self._done[kind, about]
        times.append(now)
        while times[0] < now - span:
            times.popleft()
        return len(times)


def _is_as_good(acted_on: Plan, fresh: Plan) -> bool:
    """Equal; but the plan of an unchanged world is kept, and may wake sooner than one made now would."""
    if replace(acted_on, wake_at=None) != replace(fresh, wake_at=None):
        return False
    sooner = acted_on.wake_at is not None and (fresh.wake_at is None or acted_on.wake_at <= fresh.wake_at)
    return sooner or acted_on.wake_at == fresh.wake_at


def _objects(truth: Truth, action: Action, world: World) -> list[str]:
    """What an action is done to."""
    if isinstance(action, SearchExtensions):
        return [f"{action.query.reservation_id} for {action.query.duration}"]
    if isinstance(action, SearchOffers):
        query = action.query  # another day is another question
        return [
            f"{query.count} x {query.instance_type} for {query.duration} until {query.latest_end:%Y-%m-%d}"
        ]
    if hasattr(action, "intent"):
        return [getattr(action.intent, "window", action.intent.id)]
    if hasattr(action, "intent_id"):
        return [action.intent_id]
    if hasattr(action, "pods"):
        return [_work_of(truth, world, uid) for uid in action.pods]
    if hasattr(action, "pod"):
        return [_work_of(truth, world, action.pod)]
    named = (getattr(action, key, "") for key in ("node", "instance_id", "workload"))
    return [next(filter(None, named), "")]


def _work_of(truth: Truth, world: World, uid: str) -> str:
    """Pods come back under new names; what they work for keeps its own."""
    pod = truth.cluster.pods.get(uid) or next((pod for pod in world.pods if pod.uid == uid), None)
    return pod.workload if pod is not None and pod.workload else uid
