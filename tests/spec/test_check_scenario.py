"""Checks of a scenario: lines that would never happen get a warning."""

from __future__ import annotations

import pytest

from tests.spec.conftest import Reader
from tests.spec.documents import NODE_CLASS, block, joined, messages, plan, pool, scenario, window
from tidemill.ports import Account, Cloud, Cluster, Ledger
from tidemill.sim.scenario.script import CRASH_STEPS
from tidemill.spec.check.scenario import CRASH_STEPS as ACCEPTED_STEPS
from tidemill.spec.check.scenario import ENGINE_CALLS

BLOCK_POOL = pool("sources: [{type: block}]")


@pytest.mark.parametrize(
    "line",
    [
        "faults: [{at: 30d, fault: node-dies}]",
        "randomFaults: {count: 1, kinds: [node-dies], from: 30d}",
        "services: [{name: s, replicas: 2, from: 30d}]",
        "jobs: [{name: j, arrivals: {at: [1h, 30d]}, duration: {fixed: 1h}}]",
        "jobs: [{name: j, arrivals: {every: 1h, from: 30d}, duration: {fixed: 1h}}]",
    ],
)
def test_warns_of_a_line_after_the_end_of_the_scenario(read: Reader, line: str) -> None:
    (problem,) = read(scenario(line)).problems
    assert (problem.code, problem.severity) == ("never", "warning")
    assert problem.message == (
        "this never happens: 30d is not before the end of the scenario, which lasts 30d"
    )
    assert messages(read(scenario(line.replace("30d", "29d")))) == []


def test_warns_of_decisions_and_extensions_after_the_end(read: Reader) -> None:
    late = scenario(
        f"reservations: [{block()}]",
        "decisions: [{at: 31d, window: run-1, verdict: approve}]",
        "extensions: [{at: 32d, block: a, by: 7d}]",
    )
    problems = read(joined(NODE_CLASS, BLOCK_POOL, plan(window()), late)).problems
    assert [(each.code, each.message.split()[3]) for each in problems] == [("never", "31d"), ("never", "32d")]


def test_no_warning_of_a_block_after_the_end_of_the_scenario(read: Reader) -> None:
    assert messages(read(scenario(f"reservations: [{block(more='from: 40d')}]"))) == []


@pytest.mark.parametrize(
    "line",
    [
        "services: [{name: s, replicas: 2, from: 2h, until: 2h}]",
        "jobs: [{name: j, arrivals: {every: 1h, from: 2h, until: 1h}, duration: {fixed: 1h}}]",
    ],
)
def test_refuses_a_line_that_ends_before_it_begins(read: Reader, line: str) -> None:
    (problem,) = read(scenario(line)).errors
    assert problem.message.endswith("'until' must be after 'from'")


def test_warns_of_a_window_that_is_over_when_the_scenario_begins(read: Reader) -> None:
    gone = window(start="2026-11-10T11:30:00Z", end="2026-11-16T00:00:00Z")
    (problem,) = read(joined(NODE_CLASS, BLOCK_POOL, plan(gone), scenario())).problems
    assert (problem.code, problem.severity) == ("never", "warning")
    assert problem.message.startswith("window 'run-1' ends before the scenario begins")
    running = window(start="2026-11-10T11:30:00Z", end="2026-11-16T11:30:00Z")
    assert messages(read(joined(NODE_CLASS, BLOCK_POOL, plan(running), scenario()))) == []


@pytest.mark.parametrize(("lead", "warned"), [("24h", True), ("30h", True), ("23h", False)])
def test_warns_of_a_drain_lead_as_long_as_the_block(read: Reader, lead: str, warned: bool) -> None:
    slow = pool("sources: [{type: block}]", f"drain: {{lead: {lead}}}")
    played = scenario(f"reservations: [{block(duration='1d', more='pool: training')}]")
    problems = read(joined(NODE_CLASS, slow, played)).problems
    assert [each.code for each in problems] == (["never"] if warned else [])


def test_refuses_a_crash_at_a_step_the_engine_does_not_have(read: Reader) -> None:
    (problem,) = read(scenario("faults: [{at: 1h, fault: engine-crash, step: 'after:purchas'}]")).errors
    assert problem.message == "the engine has no step 'after:purchas'; did you mean 'after:purchase'?"
    assert messages(read(scenario("faults: [{at: 1h, fault: engine-crash, step: 'before:launch'}]"))) == []


def test_the_crash_steps_are_the_calls_of_the_ports() -> None:
    """Both ways: a call that is added to a port becomes a step a scenario may name."""
    public = {
        name for port in (Account, Cloud, Cluster, Ledger) for name in vars(port) if not name.startswith("_")
    }
    assert set(ENGINE_CALLS) == public - {"durable", "deployment"}  # facts about the ledger, not calls
    assert {step for step in CRASH_STEPS if step} <= ACCEPTED_STEPS


@pytest.mark.parametrize("limits", ["{nodes: 2}", "{gpus: 23}", "{cpu: 384}"])
def test_a_block_of_more_nodes_than_the_limits_of_its_pools_is_warned_of(read: Reader, limits: str) -> None:
    block_pool = pool("sources: [{type: block}]", limits=limits)
    for of in ("pool: training", ""):
        played = scenario(f"reservations: [{block('b', duration='3d', more=of)}]")
        (warning,) = read(joined(NODE_CLASS, block_pool, played)).warnings
        assert (
            "the limits of pool 'training' allow 2 x p5.48xlarge, and this one has 4: the others are paid for and never"
            " run; raise 'limits'"
        ) in warning.message
    enough = pool("sources: [{type: block}]", limits="{nodes: 4}")
    assert not read(joined(NODE_CLASS, enough, played)).problems
