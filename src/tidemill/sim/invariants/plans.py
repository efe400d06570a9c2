"""6 and 10: the same world gives the same plan, and nothing is done to one object for ever.

A livelock rarely repeats one plan word for word: it drains, replaces and drains again. So what is counted is
how often one kind of thing was done to one object (or to one job, whose pods have new names each time).
"""

from __future__ import annotations

from collections import defaultdict, deque
from datetime import datetime, timedelta

from tidemill.engine import Tick
from tidemill.plan import Action, Outcome
from tidemill.sim.invariants.truth import Findings, Truth
from tidemill.world import Pod

# 6: deciding twice at every tick would double the run. Plans with several actions, whose order could differ,
# are always decided twice; of the others a sample, by a prime that follows no rhythm.
DECIDE_TWICE_EVERY = 37
# 10: more often than this within the hour is a loop. What legitimately repeats does so every ten minutes.
REPEAT_BOUND = 15
REPEAT_SPAN = timedelta(hours=1)
# What failed this way may be tried again; a success, or a refusal asked for again, may not.
MAY_REPEAT = ("retryable", "outcome-unknown", "no-capacity")


class Plans:
    def __init__(self) -> None:
        self._ticks = 0
        self._done: defaultdict[tuple[str, str], deque[datetime]] = defaultdict(deque)

    def check(self, truth: Truth, tick: Tick) -> Findings:
        self._ticks += 1
        twice = self._ticks % DECIDE_TWICE_EVERY == 1 or len(tick.plan.actions) > 1
        if twice and truth.decide(truth.spec, tick.world) != tick.plan:
            yield 6, (f"tick {self._ticks}",)
        if tick.outcomes:
            pods = {pod.uid: pod for pod in tick.world.pods}
            for outcome in tick.outcomes:
                yield from self._count(outcome, tick.world.now, pods)

    def _count(self, outcome: Outcome, now: datetime, pods: dict[str, Pod]) -> Findings:
        if outcome.error in MAY_REPEAT:
            return
        for about, size in _objects(outcome.action, pods):
            times = self._done[type(outcome.action).__name__, about]
            times.append(now)
            while times[0] < now - REPEAT_SPAN:
                times.popleft()
            if len(times) > REPEAT_BOUND * size:
                yield 10, (type(outcome.action).__name__, about, f"{len(times)} times within the hour")


def _objects(action: Action, pods: dict[str, Pod]) -> list[tuple[str, int]]:
    """What an action is done to, and how many pods share that name."""
    if hasattr(action, "query"):
        return [(f"{action.query.count} x {action.query.instance_type} for {action.query.duration}", 1)]
    if hasattr(action, "intent"):
        # Launches follow demand and have no object that lasts; that they are wanted is what 2 and 7 watch.
        return [(action.intent.window, 1)] if hasattr(action.intent, "window") else [(action.intent.id, 1)]
    if hasattr(action, "intent_id"):
        return [(action.intent_id, 1)]
    if hasattr(action, "pods"):
        return [_job_of(pods.get(uid), uid) for uid in action.pods]
    if hasattr(action, "pod"):
        return [_job_of(pods.get(action.pod), action.pod)]
    return [(getattr(action, "node", "") or getattr(action, "instance_id", ""), 1)]


def _job_of(pod: Pod | None, uid: str) -> tuple[str, int]:
    """Pods of a job come back under new names; replicas of a service are many, and each is its own object."""
    if pod is None or not pod.workload.startswith("Job/"):
        return uid, 1
    return pod.workload, pod.gang.size if pod.gang is not None else 1
