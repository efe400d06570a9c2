"""What became of a scenario under an engine, and how a wrong engine is told from the right one."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b

from benchmarks.vopr.judge import TooSlow, cpu_limited
from tests.mutation.scenarios import SCENARIOS
from tests.sim.scenario_builder import PreparedScenario
from tidemill.decide import decide as the_decision
from tidemill.engine.loop import Decide
from tidemill.model.errors import InvariantViolated
from tidemill.sim.scenario.tally import tally

# A right engine needs a tenth of a second for each of them.
CPU_LIMIT_S = 10.0
# Dearer than the right engine by more than this is a clear difference; so is less than it.
COST_DIFFERS = 0.05


@dataclass(frozen=True)
class Result:
    """`wrong`: the invariant, the exception or the time that ended it; empty: it ran to its end."""

    wrong: str
    unserved: tuple[tuple[str, tuple[str, ...]], ...] = ()
    worth_it: bool | None = None
    total_usd: float = 0.0
    finished: int = 0
    kinds: tuple[str, ...] = ()  # of the actions that were taken
    digest: str = ""  # of all actions, in order, with their instants
    told: str = ""  # of what people are told: why pods wait, and of what is warned

    def killed_by(self, right: Result) -> str:
        """How it is told from the right engine; empty: no check tells it."""
        if self.wrong:
            return self.wrong
        if self.unserved != right.unserved:
            return "not served"
        if self.worth_it != right.worth_it:
            return "worth it"
        if self.finished < right.finished:
            return "fewer jobs done"
        if self.total_usd > right.total_usd * (1 + COST_DIFFERS) + 1:
            return "cost"
        return ""


def judge(prepared: PreparedScenario, decide: Decide = the_decision) -> Result:
    rehearsal = prepared.prepare(decide=decide)
    try:
        with _quiet(), cpu_limited(CPU_LIMIT_S):
            rehearsal.run()
            outcome = tally(rehearsal, scenario="mutant", wall_s=0.0)
    except InvariantViolated as violated:
        return Result(f"invariant {violated.number}")
    except TooSlow:
        return Result("too slow")
    except Exception as error:
        return Result(f"crash: {type(error).__name__}")
    verdict = outcome.verdict
    done = [(row.at, row.action, row.error) for row in rehearsal.done]
    return Result(
        "",
        tuple((row.kind, row.names) for row in verdict.unserved),
        verdict.worth_it,
        outcome.cost_usd["total"],
        sum(job.state == "finished" for job in outcome.jobs),
        tuple(sorted({type(row.action).__name__ for row in rehearsal.done})),
        _digest(done),
        _digest(
            [
                outcome.warnings,
                outcome.alerts,
                [(row.name, row.reason) for row in outcome.jobs],
                outcome.services,
            ]
        ),
    )


def _digest(value: object) -> str:
    return blake2b(repr(value).encode(), digest_size=8).hexdigest()


@contextmanager
def _quiet() -> Iterator[None]:
    """A wrong engine logs every failure."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def right_results() -> dict[str, Result]:
    return {name: judge(prepared) for name, prepared in SCENARIOS.items()}


@dataclass(frozen=True)
class Fate:
    """`by` is empty for a survivor; `differs`: where it did or said other things than the right engine."""

    by: str
    scenario: str = ""
    differs: str = ""


def fate(rights: dict[str, Result], names: Iterable[str], decide: Callable[[], Decide]) -> Fate:
    """Over the scenarios in turn, until one tells it from the right engine."""
    acts = says = ""
    for name in names:
        result = judge(SCENARIOS[name], decide())
        if by := result.killed_by(rights[name]):
            return Fate(by, name, "other actions")
        acts = acts or ("other actions" if result.digest != rights[name].digest else "")
        says = says or ("other words" if result.told != rights[name].told else "")
    return Fate("", differs=acts or says)


def apart(work: Callable[[], Fate]) -> Fate:
    """In a process of its own, so that nothing of a mutant outlives it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            found = work()
        except BaseException as error:
            found = Fate(f"crash: {type(error).__name__}")
        os.write(writing, pickle.dumps(found))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        told = answer.read()
    os.waitpid(child, 0)
    return pickle.loads(told) if told else Fate("crash: the process ended")
