"""Who is next and does not fit gets the nodes that come free for it soonest; nobody is stopped for it (PE-11)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.decide.builders import (
    ON_DEMAND,
    ago,
    ahead,
    block,
    gang,
    hourly_pool,
    node,
    of,
    pod,
    spec,
    why,
    world,
)
from tidemill.decide import decide
from tidemill.model.nodes import Node
from tidemill.model.plan import Admit
from tidemill.model.pods import Pod, PodPhase
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("PE-11")


def old(pods: list[Pod], age: str = "20m") -> list[Pod]:
    return [replace(one, created_at=ago(age)) for one in pods]


def busy(name: str, on: Node, *, expected: str | None, started: str = "30m") -> Pod:
    one = pod(name, gpus=8, expected=expected) if expected is not None else pod(name, gpus=8)
    return replace(
        one,
        gated=False,
        pinned_to="cr-1",
        node=on.name,
        phase=PodPhase.RUNNING,
        started_at=ago(started),
        ready=True,
    )


def admitted(plan: object) -> set[str]:
    return {uid for action in of(plan, Admit) for uid in action.pods}  # type: ignore[arg-type]


def test_a_node_that_comes_free_is_kept_for_an_old_gang():
    free, taken = node("i-1"), node("i-2")
    runs = busy("runs", taken, expected="90m")  # until an hour from now
    newcomer = pod("newcomer", gpus=8, expected="4h")
    there = world(block(count=2), free, taken, runs, old(gang(size=2, expected="2h")), newcomer)
    plan = decide(spec(), there)
    assert not admitted(plan)
    assert "nodes of cr-1 are kept for it" in sentence(why(plan, there.pods[1]).reason)
    assert why(plan, there.pods[1]).earliest == ahead("1h")
    assert "for a larger job that came before" in sentence(why(plan, newcomer).reason)


def test_a_gang_that_just_came_holds_nobody_back():
    free, taken = node("i-1"), node("i-2")
    newcomer = pod("newcomer", gpus=8, expected="4h")
    there = world(block(count=2), free, taken, busy("runs", taken, expected="90m"), gang(size=2), newcomer)
    assert admitted(decide(spec(), there)) == {newcomer.uid}


def test_work_that_is_done_by_then_fills_the_gap():
    free, taken = node("i-1"), node("i-2")
    quick, slow = pod("quick", gpus=8, expected="30m"), pod("slow", gpus=8, expected="3h")
    there = world(
        block(count=2),
        free,
        taken,
        busy("runs", taken, expected="90m"),
        old(gang(size=2, expected="2h")),
        slow,
        quick,
    )
    assert admitted(decide(spec(), there)) == {quick.uid}


def test_whoever_is_before_it_in_line_is_not_held_back():
    free, taken = node("i-1"), node("i-2")
    urgent = pod("urgent", gpus=8, expected="4h", priority=10)
    there = world(block(count=2), free, taken, busy("runs", taken, expected="90m"), old(gang(size=2)), urgent)
    assert admitted(decide(spec(), there)) == {urgent.uid}


def test_nodes_whose_work_has_no_known_end_are_not_waited_for():
    free, taken = node("i-1"), node("i-2")
    newcomer = pod("newcomer", gpus=8, expected="4h")
    endless = busy("endless", taken, expected=None)
    there = world(block(count=2), free, taken, endless, old(gang(size=2, expected="2h")), newcomer)
    assert admitted(decide(spec(), there)) == {newcomer.uid}


def test_a_block_that_would_end_too_soon_by_then_is_not_kept():
    free, taken = node("i-1"), node("i-2")
    newcomer = pod("newcomer", gpus=8, expected="1h")
    there = world(
        block(count=2, ends_in="5h"), free, taken, busy("runs", taken, expected="90m"),
        old(gang(size=2, expected="4h")), newcomer,
    )  # fmt: skip
    assert admitted(decide(spec(), there)) == {newcomer.uid}


def test_only_as_many_nodes_are_kept_as_the_gang_needs():
    nodes = [node(f"i-{number}") for number in range(1, 5)]
    newcomers = [pod(f"newcomer-{number}", gpus=8, expected="4h") for number in range(3)]
    runs = [busy(f"runs-{number}", on, expected=expected) for number, (on, expected) in
            enumerate(zip(nodes[2:], ("60m", "3h"), strict=True))]  # fmt: skip
    # Two are free now, the third in half an hour: the gang of three waits for those, nothing is left over.
    there = world(block(count=4), *nodes, runs, old(gang(size=3, expected="2h")), newcomers)
    assert not admitted(decide(spec(), there))
    # A gang of two fits at once, and then nothing needs to be kept for it.
    there = world(block(count=4), *nodes, runs, old(gang(size=2, expected="2h")), newcomers)
    assert len(admitted(decide(spec(), there))) == 2


def test_a_free_node_that_the_gang_does_not_need_by_then_takes_longer_work():
    nodes = [node(f"i-{number}") for number in range(1, 4)]
    runs = [busy(f"runs-{on.name}", on, expected="90m") for on in nodes[1:]]
    newcomer = pod("newcomer", gpus=8, expected="4h")
    # In an hour two nodes come free together: they are enough for the gang of two, without the one that is free now.
    there = world(block(count=3), *nodes, runs, old(gang(size=2, expected="2h")), newcomer)
    plan = decide(spec(), there)
    assert admitted(plan) == {newcomer.uid}
    assert why(plan, there.pods[2]).earliest == ahead("1h")


def hourly(id: str, joined: str) -> Node:
    return node(id, source=ON_DEMAND, pool="hourly", joined=joined)


@pytest.mark.parametrize(
    ("idle_for", "policy", "kept"),
    [
        (
            "1m",
            "WhenEmpty",
            False,
        ),  # it would be given back after five minutes, and another launched for the job
        ("1m", "Never", True),
        (None, "WhenEmpty", True),  # in use: it is up anyway
    ],
)
def test_an_idle_node_by_the_hour_is_kept_for_a_gang_only_for_as_long_as_it_stays(
    idle_for: str | None, policy: str, kept: bool
):
    two = hourly_pool(
        "hourly", "p5.48xlarge", limits={"nodes": 2}, disruption={"consolidationPolicy": policy}
    )
    free, taken = hourly("i-1", idle_for or "55m"), hourly("i-2", "55m")
    runs = [replace(busy("runs", taken, expected="90m"), pinned_to="on-demand")]  # until an hour from now
    if idle_for is None:
        short = running("short", free, 1, expected="50m")
        runs.append(replace(short, pinned_to="on-demand"))
    newcomer = pod("newcomer", gpus=1, expected="4h")
    there = world(free, taken, runs, old(gang(size=2, expected="2h")), newcomer)
    plan = decide(spec(two), there)
    assert (newcomer.uid not in admitted(plan)) == kept


def test_a_gang_becomes_old_by_itself():
    free, taken = node("i-1"), node("i-2")
    fresh = [replace(one, created_at=ago("3m")) for one in gang(size=2, expected="2h")]
    there = world(block(count=2), free, taken, busy("runs", taken, expected="90m"), fresh)
    assert decide(spec(), there).wake_at == ahead("7m")  # ten minutes after it came


def running(name: str, on: Node, gpus: int, *, expected: str, started: str = "30m") -> Pod:
    return replace(busy(name, on, expected=expected, started=started), shape=pod(name, gpus=gpus).shape)


def test_what_is_free_of_a_partly_used_node_is_kept_for_a_job_of_the_whole_node():
    partly = node("i-1")
    runs = running("runs", partly, 2, expected="90m")  # until an hour from now
    whole = old([pod("whole", gpus=8, expected="2h")])
    quick, slow = pod("quick", gpus=1, expected="30m"), pod("slow", gpus=1, expected="3h")
    there = world(block(count=1), partly, runs, whole, slow, quick)
    plan = decide(spec(), there)
    assert admitted(plan) == {quick.uid}
    assert "nodes of cr-1 are kept for it" in sentence(why(plan, whole[0]).reason)
    assert why(plan, whole[0]).earliest == ahead("1h")
    assert "for a larger job that came before" in sentence(why(plan, slow).reason)


def test_a_gang_is_kept_partly_used_nodes_as_well():
    nodes = [node("i-1"), node("i-2")]
    runs = [running(f"runs-{on.name}", on, 1, expected="90m") for on in nodes]
    slow = pod("slow", gpus=1, expected="3h")
    there = world(block(count=2), *nodes, runs, old(gang(size=2, expected="2h")), slow)
    assert not admitted(decide(spec(), there))


def test_what_fits_beside_the_job_that_is_next_starts():
    partly = node("i-1")
    runs = running("runs", partly, 4, expected="90m")
    half = old([pod("half", gpus=6, expected="2h")])
    slow = [pod(f"slow-{number}", gpus=1, expected="3h") for number in range(3)]
    there = world(block(count=1), partly, runs, half, slow)
    # Of eight, six are kept from the instant on at which they are free: two are left for longer work.
    assert len(admitted(decide(spec(), there))) == 2


def test_small_jobs_that_came_before_it_are_not_held_back():
    partly = node("i-1")
    runs = running("runs", partly, 2, expected="90m")
    before = old([pod("before", gpus=1, expected="3h")], "40m")
    whole = old([pod("whole", gpus=8, expected="2h")])
    there = world(block(count=1), partly, runs, before, whole)
    assert admitted(decide(spec(), there)) == {before[0].uid}
