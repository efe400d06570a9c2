"""The phases of nodes are told when the nodes changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tests.decide.builders import block, node, spec, world
from tidemill.controller.loop import TickReport
from tidemill.controller.node_phases import PhaseReporter
from tidemill.engine.loop import Tick
from tidemill.model.plan import Plan
from tidemill.model.world import World
from tidemill.report.node_phases import NodePhase


class Published:
    def __init__(self) -> None:
        self.told: list[list[str]] = []

    def tell(self, phases: Iterable[NodePhase]) -> None:
        self.told.append([f"{phase.node} {phase.phase}" for phase in phases])


def ticked(there: World | None) -> TickReport:
    tick = None if there is None else Tick(there, Plan(), (), there.now)
    return TickReport(1, spec(), (), tick, 0.1)


def test_phases_are_told_when_the_nodes_changed_and_not_of_a_tick_that_saw_nothing() -> None:
    published = Published()
    reporter = PhaseReporter(published)
    there = world(block(), node("i-1", "registering"))
    for seen in (there, None, replace(there), world(block(), node("i-1", "ready"))):
        reporter.report(ticked(seen))
    assert published.told == [["node-i-1 registering"], ["node-i-1 ready"]]
