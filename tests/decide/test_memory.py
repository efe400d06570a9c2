"""What is remembered between decisions changes how fast a plan comes, never the plan: both are made side by side."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import rehearsal as month
from benchmarks.vopr.generate import as_text, generate
from tests.decide import builders
from tests.decide.builders import block, pool, spec, world
from tests.decide.purchases import buying, intent
from tests.decide.worlds import SPEC, worlds
from tidemill.decide import Memory, decide
from tidemill.decide.placement.explain import Explainer
from tidemill.decide.purchasing import window_proposals
from tidemill.decide.purchasing.window_coverage import first_gap
from tidemill.decide.queue_item import QueueItem
from tidemill.model.changes import changed
from tidemill.model.errors import InvariantViolated
from tidemill.model.plan import Plan
from tidemill.model.world import World
from tidemill.sim.scenario.rehearsal import Rehearsal
from tidemill.spec import Spec
from tidemill.spec.read import load


class SideBySide:
    """Decides with a memory and from nothing; the two plans must be one."""

    def __init__(self) -> None:
        self.memory, self.decided = Memory(), 0

    def __call__(self, documents: Spec, there: World) -> Plan:
        remembered, fresh = decide(documents, there, self.memory), decide(documents, there)
        assert remembered == fresh
        self.decided += 1
        return remembered


@settings(max_examples=60, deadline=None)
@given(
    pair=st.tuples(worlds(), worlds()),
    steps=st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 60), st.integers(0, 3)), min_size=2, max_size=6
    ),
)
def test_a_plan_does_not_follow_from_what_is_remembered(
    pair: tuple[World, World], steps: list[tuple[int, int, int]]
):
    """The same worlds again and again, later, and with some of their pods and nodes gone."""
    side_by_side, minutes = SideBySide(), 0
    for which, passed, gone in steps:
        minutes += passed
        there = pair[which]
        pods = there.pods[gone:]
        bound = {
            name: tuple(pod for pod in on_node if pod in pods) for name, on_node in there.pods_by_node.items()
        }
        nodes = there.nodes[: len(there.nodes) - gone // 2]
        later = there.now + timedelta(minutes=minutes)
        side_by_side(SPEC, replace(there, now=later, pods=pods, nodes=nodes, pods_by_node=bound))


@pytest.mark.parametrize(("nodes", "jobs", "seed"), [(8, 60, 1), (16, 90, 2)])
def test_every_tick_of_a_busy_rehearsal_is_decided_the_same_from_nothing(nodes: int, jobs: int, seed: int):
    side_by_side = SideBySide()
    Rehearsal(month.spec(nodes), month.scenario(2, nodes, jobs), seed, decide=side_by_side).run()
    assert side_by_side.decided > jobs


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, 4, 5, 6])  # 3 draws documents that are refused
def test_every_tick_of_a_drawn_platform_is_decided_the_same_from_nothing(seed: int, tmp_path: Path):
    file = tmp_path / "platform.yaml"
    file.write_text(as_text(generate(seed, days=3, mistakes=0)), encoding="utf-8")
    loaded = load([file])
    assert loaded.spec is not None
    assert loaded.scenario is not None
    side_by_side = SideBySide()
    with suppress(InvariantViolated):  # that is judged elsewhere
        Rehearsal(loaded.spec, loaded.scenario, seed, decide=side_by_side).run()
    assert side_by_side.decided


@settings(max_examples=60, deadline=None)
@given(
    blocks=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 10), st.integers(1, 4)), max_size=3),
    state=st.sampled_from(["", "proposed", "confirmed", "refused"]),
    hours=st.lists(st.integers(0, 50), min_size=2, max_size=9),
)
def test_a_window_that_asked_for_nothing_asks_when_it_would_without_memory(
    blocks: list[tuple[int, int, int]], state: str, hours: list[int]
):
    """The same reservations and purchases, later and later: two days before the window until it is over."""
    held = [
        block(f"cr-{number}", starts_in=f"{starts}d", ends_in=f"{starts + days}d", count=count)
        for number, (starts, days, count) in enumerate(blocks)
    ]
    documents, side_by_side = buying(), SideBySide()
    there = world(held, *([intent(state)] if state else []))
    for passed in accumulate(hours):
        side_by_side(documents, replace(there, now=there.now + timedelta(hours=passed)))


def test_a_window_at_rest_is_looked_at_again_when_its_coverage_may_change(monkeypatch: pytest.MonkeyPatch):
    looked: list[timedelta] = []
    look = first_gap

    def looking(*about: Any) -> Any:
        looked.append(about[-1] - builders.NOW)
        return look(*about)

    monkeypatch.setattr(window_proposals, "first_gap", looking)
    memory, documents = Memory(), buying()
    there = world(block(starts_in="1d", ends_in="10d", count=4))
    for hour in range(0, 72, 6):
        decide(documents, replace(there, now=there.now + timedelta(hours=hour)), memory)
    # At first, as its block may count from, and as block and window begin.
    assert looked == [timedelta(hours=hour) for hour in (0, 24, 48)]


def test_a_queue_that_did_not_change_is_not_told_again(monkeypatch: pytest.MonkeyPatch):
    told: list[str] = []
    tell = Explainer._told

    def telling(self: Explainer, item: QueueItem, known: Any) -> Any:
        told.append(item.pods[0].name)
        return tell(self, item, known)

    monkeypatch.setattr(Explainer, "_told", telling)
    memory, documents = Memory(), spec(pool())
    waiting = [builders.pod(f"p{number}", gpus=8) for number in range(4)]
    decide(documents, world(*waiting[:3]), memory)
    plan = decide(documents, world(*waiting), memory)
    assert told == ["p0", "p1", "p2", "p3"]
    assert [unmet.pod for unmet in plan.unmet] == [pod.uid for pod in waiting]


def test_what_changed_between_two_readings():
    a, b, c, d, e = (object() for _ in range(5))
    assert changed([a, b, c], [a, b, c]) == ([], [])
    assert changed([], [a]) == ([], [a])
    assert changed([a, b, c], [b, c, d]) == ([a], [d])
    assert changed([a, b, c, d], [a, e, c]) == ([b, d], [e])
