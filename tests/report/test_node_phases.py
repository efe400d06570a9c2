"""What people are shown of each node: its phase, what it waits for, and when it must be empty."""

from __future__ import annotations

from tests.decide.builders import DRAINED, ahead, block, node, spec, world
from tidemill.report.node_phases import node_phases


def test_every_node_that_joined_has_a_phase_and_says_what_it_waits_for() -> None:
    there = world(
        block(ends_in="10h", count=5),
        node("i-1", "launched"),
        node("i-2", "joined"),
        node("i-3", "registering"),
        node("i-4", "verifying"),
        node("i-5", "ready"),
    )
    rows = node_phases(spec(), there)
    assert [(row.node, row.phase, row.takes_pods, row.why) for row in rows] == [
        ("node-i-2", "joined", False, "it is not Ready yet"),
        ("node-i-3", "registering", False, "its accelerators are not registered yet"),
        ("node-i-4", "verifying", False, "its node check is not done yet"),
        ("node-i-5", "ready", True, ""),
    ]
    assert {row.deadline for row in rows} == {ahead("9h30m")}


def test_a_draining_node_says_why_and_a_silent_one_takes_no_pods() -> None:
    rows = node_phases(
        spec(), world(block(), node("i-1", "draining", drain_reason=DRAINED), node("i-2", ready=False))
    )
    assert rows[0].phase == "draining"
    assert "cr-1" in rows[0].why
    assert not rows[1].takes_pods


def test_nodes_of_others_are_not_named() -> None:
    assert node_phases(spec(), world(node("i-1", owner="somebody"))) == ()
