"""After every tick: where each node is in its life, for `kubectl describe node`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tidemill.controller.loop import TickReport
from tidemill.report.node_phases import NodePhase, node_phases


class Publisher(Protocol):
    """`kube.node_phases.NodePhasePublisher`: neither waits nor raises."""

    def tell(self, phases: Iterable[NodePhase]) -> None: ...


class PhaseReporter:
    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._nodes: object = None

    def report(self, report: TickReport) -> None:
        """Phases follow from the nodes; deadlines move with the pods there, and are told with the next change."""
        if report.tick is None or report.tick.world.nodes is self._nodes:
            return
        self._nodes = report.tick.world.nodes
        self._publisher.tell(node_phases(report.spec, report.tick.world))
