"""Publishes the phase of each node: an annotation and a condition, for people. The engine reads neither.

A thread of its own writes what changed, the newest word for each node: a tick never waits, and an API server that is
away costs nothing but news.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from tidemill.engine.clock import MappedClock
from tidemill.kube.api import KubeApi
from tidemill.model.errors import Gone, TidemillError
from tidemill.report.node_phases import NodePhase
from tidemill.spec import names
from tidemill.spec.units import format_instant

_LOG = logging.getLogger(__name__)
_STRATEGIC = "application/strategic-merge-patch+json"
_PER_S = 20.0  # of two thousand nodes every one is told within two minutes of a start
_RETRY_S = 5.0


class NodePhasePublisher:
    def __init__(self, api: KubeApi, clock: MappedClock) -> None:
        self._api, self._clock = api, clock
        self._told: dict[str, NodePhase] = {}
        self._due: dict[str, NodePhase] = {}
        self._trouble = ""  # why the last one was not written
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-phases", daemon=True)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._news.set()

    def tell(self, phases: Iterable[NodePhase]) -> None:
        """Neither waits nor raises. Of a node that is not named any more nothing is known."""
        current = {phase.node: phase for phase in phases}
        with self._lock:
            self._told = {name: phase for name, phase in self._told.items() if name in current}
            self._due = {name: phase for name, phase in current.items() if self._told.get(name) != phase}
            if self._due:
                self._news.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._news.wait()
            pause_s = self.step()
            self._stopping.wait(pause_s)

    def step(self) -> float:
        """Writes one of those that are due; returns how long to pause."""
        with self._lock:
            due = next(iter(self._due.values()), None)
            if due is None:
                self._news.clear()
                return 0.0
        try:
            self._write(due)
        except Gone:
            pass  # the next tick does not name it any more
        except TidemillError as error:
            self._failed(due, str(error))
            return _RETRY_S
        with self._lock:
            self._trouble = ""
            self._told[due.node] = due
            if self._due.get(due.node) == due:
                del self._due[due.node]
        return 1 / _PER_S

    def _failed(self, due: NodePhase, why: str) -> None:
        """It is said once, and others have their turn before this one is tried again."""
        if not self._trouble:
            _LOG.warning("cannot publish the phase of %s: %s; trying again", due.node, why)
        self._trouble = why
        with self._lock:
            if self._due.get(due.node) == due:
                self._due[due.node] = self._due.pop(due.node)

    def _write(self, phase: NodePhase) -> None:
        body = {
            "metadata": {"annotations": {names.NODE_PHASE: phase.phase}},
            "status": {"conditions": [self._condition(phase)]},
        }
        path = f"/api/v1/nodes/{phase.node}/status"
        self._api.send("PATCH", path, msgspec.json.encode(body), content_type=_STRATEGIC)

    def _condition(self, phase: NodePhase) -> dict[str, str]:
        now = format_instant(datetime.now(UTC).replace(microsecond=0))
        until = ""
        if phase.deadline is not None:
            until = f"{'; ' if phase.why else ''}empty by {format_instant(self._wall(phase.deadline))}"
        return {
            "type": names.CONDITION_TAKES_PODS,
            "status": "True" if phase.takes_pods else "False",
            "reason": phase.phase.title().replace("-", ""),
            "message": f"{phase.why}{until}" or f"it takes pods of pool {phase.pool}",
            "lastTransitionTime": now,
            "lastHeartbeatTime": now,
        }

    def _wall(self, instant: datetime) -> datetime:
        return self._clock.to_wall(instant).replace(microsecond=0)
