"""By when a source must be empty, how early its drain starts; both follow the end that is true now."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.decide.builders import (
    NOW,
    ON_DEMAND,
    ago,
    ahead,
    block,
    daemon,
    node,
    of,
    pod,
    pool,
    replica,
    spec,
    world,
)
from tidemill.decide import decide
from tidemill.decide.deadlines import deadline_of, kill_at
from tidemill.model.plan import AnnounceEnd, AnnounceNodeEnd, StartDrain
from tidemill.model.pods import DisruptionBudget, Pod
from tidemill.spec.compute_pool import Provisioner
from tidemill.spec.units import parse_duration
from tidemill.wording import sentence

DEADLINES = [
    ("native", False, "30m"),
    ("asg", False, "40m"),
    ("managed", False, "40m"),
    ("karpenter", False, "40m"),
    ("native", True, "60m"),
    ("asg", True, "70m"),
    ("managed", True, "60m"),
    ("karpenter", True, "60m"),
]


@pytest.mark.requirement("CB-10", "CB-15")
@pytest.mark.parametrize(("provisioner", "ultraserver", "before_end"), DEADLINES)
def test_the_deadline_is_the_earlier_of_ec2s_and_the_provisioners(
    provisioner: str, ultraserver: bool, before_end: str
):
    one = block(ends_in="10h", ultraserver=ultraserver)
    assert deadline_of(one, Provisioner(provisioner)) == ahead("10h") - parse_duration(before_end)


@pytest.mark.requirement("CB-10")
def test_ec2_kills_half_an_hour_before_the_end_and_ultraservers_an_hour_before():
    assert kill_at(block(ends_in="10h")) == ahead("9h30m")
    assert kill_at(block(ends_in="10h", ultraserver=True)) == ahead("9h")
    assert kill_at(block(kind="odcr", ends_in=None)) is None


@pytest.mark.requirement("CB-10")
@pytest.mark.parametrize(("provisioner", "ultraserver", "before_end"), DEADLINES)
def test_an_idle_node_starts_to_drain_ten_minutes_before_its_deadline(
    provisioner: str, ultraserver: bool, before_end: str
):
    documents = spec(pool(provisioner=provisioner))
    there = [block(ends_in="10h", ultraserver=ultraserver), node(provisioner=provisioner)]
    drain_from = ahead("10h") - parse_duration(before_end) - timedelta(minutes=10)
    early = decide(documents, world(there, now=drain_from - timedelta(seconds=1)))
    assert not of(early, StartDrain)
    assert early.wake_at == drain_from
    (started,) = of(decide(documents, world(there, now=drain_from)), StartDrain)
    assert started.node == "node-i-1"


@pytest.mark.requirement("CB-10")
def test_a_node_ends_as_it_was_launched_even_if_its_pool_changed_provisioner():
    there = world(block(ends_in="49m"), node(provisioner="managed"))
    assert of(decide(spec(pool(provisioner="native")), there), StartDrain)


@pytest.mark.requirement("CB-10")
def test_a_node_whose_pool_was_removed_still_ends_well():
    there = world(block(ends_in="39m"), node(pool="gone"))
    assert of(decide(spec(pool("other")), there), StartDrain)


@pytest.mark.requirement("CB-10")
def test_nodes_of_a_source_drain_together_with_the_lead_of_the_slowest_pod_among_them():
    slow, idle = node("i-1"), node("i-2")
    there = world(block(ends_in="59m"), slow, idle, pod(on=slow, grace="26m"))
    assert [one.node for one in of(decide(spec(), there), StartDrain)] == ["node-i-1", "node-i-2"]


# --- the lead -----------------------------------------------------------------------------------------


HERE = node()


def lead(*pods: Pod, budget: DisruptionBudget | None = None, **drain: Any) -> timedelta:
    """How long before the deadline the node these pods run on starts to drain."""
    there = world(block(ends_in="24h"), HERE, *pods, *([budget] if budget else []))
    wake_at = decide(spec(pool(drain=drain)), there).wake_at
    assert wake_at is not None
    return ahead("23h30m") - wake_at


def running(name: str = "train-1", **fields: Any) -> Pod:
    return pod(name, on=HERE, **fields)


@pytest.mark.requirement("CB-10")
@pytest.mark.parametrize(
    ("pods", "settings", "expected"),
    [
        ([], {}, "10m"),
        ([running(grace="30s")], {}, "10m"),
        # grace + 90 s until the signal arrives + 2 min margin
        ([running(grace="10m")], {}, "13m30s"),
        ([running(grace="10m"), running("b", grace="1m")], {}, "13m30s"),
        ([running(grace="10m", checkpoint_every="1h", checkpoint_time="5m")], {}, "18m30s"),
        # a pod that never checkpoints is given no time for it
        ([running(grace="10m", checkpoint_time="5m")], {}, "13m30s"),
        (
            [running(grace="10m", checkpoint_every="1h", checkpoint_time="5m")],
            {"checkpoint": False},
            "13m30s",
        ),
        ([], {"lead": "45m"}, "45m"),
        ([], {"lead": "1m"}, "10m"),
        ([running(grace="30m")], {"lead": "20m"}, "33m30s"),
    ],
)
def test_the_lead_is_the_largest_need_of_the_pods_and_never_under_ten_minutes(pods, settings, expected):
    assert lead(*pods, **settings) == parse_duration(expected)


@pytest.mark.requirement("CB-10")
def test_daemon_pods_need_no_lead():
    assert lead(daemon("agent", HERE, grace="2h")) == timedelta(minutes=10)


@pytest.mark.requirement("CB-10", "CB-9")
@pytest.mark.parametrize(
    ("min_available", "expected"), [(3, "38m"), (2, "20m"), (1, "20m"), (0, "11m"), (4, "38m")]
)
def test_a_service_under_a_budget_moves_in_waves_that_wait_for_their_replacements(min_available, expected):
    replicas = [replica(f"chat-{place}", on=HERE, grace="1m", load="7m") for place in range(4)]
    budget = DisruptionBudget("Deployment/chat", min_available, allowed=4 - min_available)
    # a wave: 1 min grace + 7 min load + 1 min to start; 2 min margin at the end
    assert lead(*replicas, budget=budget) == parse_duration(expected)


@pytest.mark.requirement("CB-10")
def test_a_service_without_a_budget_moves_at_once():
    replicas = [replica(f"chat-{place}", on=HERE, grace="1m", load="7m") for place in range(4)]
    assert lead(*replicas) == timedelta(minutes=10)


@pytest.mark.requirement("CB-10")
def test_a_pool_can_ask_for_a_longer_lead():
    there = world(block(ends_in="80m"), node())
    assert of(decide(spec(pool(drain={"lead": "50m"})), there), StartDrain)
    assert not of(decide(spec(pool()), there), StartDrain)


# --- the end that is true now -------------------------------------------------------------------------


@pytest.mark.requirement("CB-7")
def test_an_extension_that_is_not_paid_changes_nothing():
    here = node()
    pending = block(ends_in="39m", extension_pending_to=ahead("3d"))
    plan = decide(spec(), world(pending, here, pod(on=here, ends_at=ahead("9m"))))
    assert of(plan, StartDrain)
    assert not of(plan, AnnounceEnd)


@pytest.mark.requirement("CB-7")
def test_a_paid_extension_moves_the_drain_and_the_pods_are_told():
    here, told = node(), pod(gpus=8, on=node(), ends_at=ahead("9m"))
    plan = decide(spec(), world(block(ends_in="24h39m"), here, told))
    assert not of(plan, StartDrain)
    (announced,) = of(plan, AnnounceEnd)
    assert (announced.pod, announced.ends_at) == (told.uid, ahead("24h9m"))
    assert "moved" in sentence(announced.reason)
    assert plan.wake_at == ahead("23h59m")


@pytest.mark.requirement("CB-10")
def test_a_pod_learns_its_end_as_soon_as_it_runs_and_only_once():
    here = node()
    (announced,) = of(decide(spec(), world(block(ends_in="10h"), here, pod(on=here))), AnnounceEnd)
    assert announced.ends_at == ahead("9h30m")
    again = world(block(ends_in="10h"), here, pod(on=here, ends_at=ahead("9h30m")))
    assert not of(decide(spec(), again), AnnounceEnd)


@pytest.mark.requirement("CB-10")
def test_nodes_of_a_reservation_nobody_sees_stay_until_the_end_they_were_told():
    assert not of(decide(spec(), world(node())), StartDrain)
    for told, drained in ((ahead("5h"), False), (ahead("1m"), True), (ago("1h"), True)):
        plan = decide(spec(), world(node(ends_at=told)))
        assert bool(of(plan, StartDrain)) is drained


@pytest.mark.requirement("CB-14")
def test_a_reservation_without_an_end_is_never_drained_for_time():
    odcr = block("cr-o", kind="odcr", ends_in=None)
    plan = decide(spec(pool(sources=[{"type": "odcr"}])), world(odcr, node(source=odcr.source)))
    assert not of(plan, StartDrain)
    assert plan.wake_at is None or plan.wake_at > NOW


@pytest.mark.requirement("PE-17")
def test_an_instance_that_aws_announces_to_end_is_drained_before_that():
    retiring = node(ends_in="3h")
    documents, there = spec(), world(block(ends_in="48h"), retiring, pod(on=retiring, grace="20m"))
    plan = decide(documents, there)
    assert [one.ends_at for one in of(plan, AnnounceEnd)] == [ahead("3h")]
    assert plan.wake_at == ahead("3h") - timedelta(minutes=23, seconds=30)


@pytest.mark.requirement("CB-16")
@pytest.mark.parametrize(
    ("knows", "told"),
    [("9h30m", []), ("9h29m", []), ("9h20m", ["9h30m"]), ("33h30m", ["9h30m"]), (None, [])],
)
def test_a_node_that_ends_by_itself_is_told_when_its_end_moves(knows: str | None, told: list[str]):
    """One without an agent of its own carries no end, and is not told."""
    here = node(ends_at=ahead(knows) if knows else None)
    plan = decide(spec(), world(block(ends_in="10h"), here))
    assert [one.ends_at for one in of(plan, AnnounceNodeEnd)] == [ahead(at) for at in told]


@pytest.mark.requirement("CB-16")
def test_an_agent_that_knows_no_end_is_told_it():
    """Bottlerocket and Karpenter give their nodes no file with the end."""
    plan = decide(spec(), world(block(ends_in="10h"), node(deadline_agent=True)))
    assert [one.ends_at for one in of(plan, AnnounceNodeEnd)] == [ahead("9h30m")]
    hourly = node(source=ON_DEMAND, deadline_agent=True)
    assert not of(decide(spec(), world(hourly)), AnnounceNodeEnd)
