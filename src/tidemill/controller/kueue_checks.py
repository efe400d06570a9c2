"""Tells Kueue why a Workload waits for our check, and that we answer for the check at all.

In a thread of its own, seconds behind the ticks: what lets a Workload start is an action of the engine, not this.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from tidemill.controller.loop import TickReport
from tidemill.controller.worker import Worker
from tidemill.kube.workload_checks import WorkloadChecks
from tidemill.model.errors import TidemillError
from tidemill.model.plan import Unmet
from tidemill.spec.units import format_instant
from tidemill.wording import sentence

EVERY_S = 2.0
CALM_S = 20.0  # between two messages to one Workload
# What can never run gives its quota back, and is asked about again: documents may have changed.
AGAIN_AFTER_S = 600

log = structlog.stdlib.get_logger("tidemill.controller.kueue")


class KueueReporter(Worker):
    """A reporter, and the thread that writes. Only who leads writes."""

    def __init__(
        self, checks: WorkloadChecks, leads: Callable[[], bool], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__("kueue-checks")
        self._checks, self._leads, self._now_s = checks, leads, now_s
        self._waiting: dict[str, Unmet] = {}  # by uid of the Job
        self._told_s: dict[str, float] = {}
        self._trouble = ""

    def report(self, report: TickReport) -> None:
        if report.tick is None:
            return
        waiting: dict[str, Unmet] = {}
        for one in report.tick.plan.unmet:
            job, dot, _ = one.pod.partition(".")
            if dot:
                waiting.setdefault(job, one)
        self._waiting = waiting

    def _run(self) -> None:
        while not self._stopping.wait(EVERY_S):
            if self._leads():
                self.step()

    def step(self) -> None:
        try:
            self._checks.activate()
            for job, unmet in tuple(self._waiting.items()):
                self._tell(job, unmet)
            self._trouble = ""
        except TidemillError as error:
            if str(error) != self._trouble:
                log.warning("cannot tell Kueue; trying again", why=str(error))
            self._trouble = str(error)
        except Exception:
            log.exception("cannot tell Kueue")

    def _tell(self, job: str, unmet: Unmet) -> None:
        if self._now_s() - self._told_s.get(job, float("-inf")) < CALM_S:
            return
        message = told(unmet)
        after_s = AGAIN_AFTER_S if unmet.code == "impossible" else 0
        if self._checks.tell(job, message, after_s):
            if len(self._told_s) > 10_000:
                self._told_s.clear()
            self._told_s[job] = self._now_s()


def told(unmet: Unmet) -> str:
    text = sentence(unmet.reason)
    earliest = f"; earliest start: {format_instant(unmet.earliest)}" if unmet.earliest is not None else ""
    return f"{text[:1].upper()}{text[1:]}{earliest}"
