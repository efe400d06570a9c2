"""A pod that fits nowhere preempts pods of lower priority: as few as will do, and with their whole grace."""

from __future__ import annotations

from tests.sim.zoned_cluster import HOST, ZonedCluster, shape, term

HALF, WHOLE = shape(gpus=4), shape(gpus=8)


def test_a_higher_priority_pod_replaces_a_lower_one_after_its_grace() -> None:
    simulated = ZonedCluster(a=1)
    simulated.bind_directly("low", "a1", WHOLE, grace="10m")
    assert simulated.schedule("high", WHOLE, priority=5) == ""
    assert simulated.node_of("low") == "a1"  # it is given its time
    assert [(line.about, line.sentence) for line in simulated.journal_lines("pod-preempted")] == [
        ("default/low", f"from {simulated.node('i-a1').name}: preempted by default/high")
    ]
    simulated.pass_time("10m")
    assert simulated.node_of("high") == "a1"
    assert simulated.pod("uid-default-low") is None


def test_pods_of_equal_or_higher_priority_stay() -> None:
    simulated = ZonedCluster(a=2)
    simulated.bind_directly("equal", "a1", WHOLE, priority=5)
    simulated.bind_directly("higher", "a2", WHOLE, priority=9)
    assert simulated.schedule("high", WHOLE, priority=5) == ""
    simulated.pass_time("10m")
    assert (simulated.node_of("equal"), simulated.node_of("higher"), simulated.node_of("high")) == (
        "a1",
        "a2",
        "",
    )


def test_no_pod_is_preempted_where_it_would_not_help() -> None:
    simulated = ZonedCluster(a=1)
    simulated.bind_directly("low", "a1", HALF)
    simulated.bind_directly("high-too", "a1", HALF, priority=9)
    assert simulated.schedule("high", WHOLE, priority=5) == ""
    assert not simulated.journal_lines("pod-preempted")


def test_preempts_the_lowest_priorities_and_no_more_than_needed() -> None:
    simulated = ZonedCluster(a=1)
    for name, priority in (("zero", 0), ("one", 1), ("two", 2), ("three", 3)):
        simulated.bind_directly(name, "a1", shape(gpus=2), priority=priority)
    simulated.schedule("high", HALF, priority=5)
    simulated.pass_time("1m")
    assert {line.about for line in simulated.journal_lines("pod-preempted")} == {
        "default/zero",
        "default/one",
    }
    assert simulated.node_of("high") == "a1"


def test_preempts_on_the_node_whose_victims_have_the_lowest_priority() -> None:
    simulated = ZonedCluster(a=2)
    simulated.bind_directly("middle", "a1", WHOLE, priority=3)
    simulated.bind_directly("low", "a2", WHOLE, priority=1)
    simulated.schedule("high", WHOLE, priority=5)
    simulated.pass_time("1m")
    assert simulated.node_of("high") == "a2"


def test_resources_freed_by_preemption_are_kept_for_the_nominated_pod() -> None:
    simulated = ZonedCluster(a=1)
    simulated.bind_directly("slow", "a1", HALF, grace="20m")
    simulated.bind_directly("quick", "a1", HALF, grace="1s")
    simulated.schedule("high", WHOLE, priority=5)
    assert simulated.node_of("quick") == ""
    assert simulated.schedule("sneaky", HALF) == ""  # half the node is free, but not for it
    simulated.pass_time("20m")
    assert simulated.node_of("high") == "a1"


def test_two_pods_preempt_on_two_nodes_at_once() -> None:
    simulated = ZonedCluster(a=2)
    simulated.bind_directly("low-1", "a1", WHOLE, grace="10m")
    simulated.bind_directly("low-2", "a2", WHOLE, grace="10m")
    simulated.create_pod("high-1", WHOLE, priority=5)
    simulated.create_pod("high-2", WHOLE, priority=5)
    simulated.pass_time("5s")
    assert len(simulated.journal_lines("pod-preempted")) == 2
    simulated.pass_time("10m")
    assert {simulated.node_of("high-1"), simulated.node_of("high-2")} == {"a1", "a2"}


def test_a_disruption_budget_is_respected_where_another_node_will_do() -> None:
    """Though the service came last and has lost least."""
    simulated = ZonedCluster(a=2)
    simulated.bind_directly("low", "a1", WHOLE)
    simulated.pass_time("1h")
    simulated.serve("chat", replicas=1, minAvailable=1, gpus=8)
    simulated.pass_time("1m")
    simulated.schedule("high", WHOLE, priority=5)
    simulated.pass_time("1m")
    assert simulated.node_of("high") == "a1"


def test_pods_protected_by_a_budget_are_kept_before_pods_of_higher_priority() -> None:
    simulated = ZonedCluster(a=1)
    simulated.serve("chat", replicas=1, minAvailable=1, gpus=4)
    simulated.bind_directly("low", "a1", HALF, priority=1)
    simulated.schedule("high", HALF, priority=5)
    simulated.pass_time("1m")
    assert simulated.node_of("high") == "a1"
    assert [line.about for line in simulated.journal_lines("pod-preempted")] == ["default/low"]


def test_preemption_breaks_a_disruption_budget_where_nothing_else_would_help() -> None:
    simulated = ZonedCluster(a=1)
    simulated.serve("chat", replicas=1, minAvailable=1, gpus=8)
    simulated.pass_time("1m")
    simulated.schedule("high", WHOLE, priority=5)
    simulated.pass_time("1m")
    assert simulated.node_of("high") == "a1"


def test_a_lower_priority_pod_that_breaks_its_anti_affinity_is_preempted_too() -> None:
    simulated = ZonedCluster(a=1)
    simulated.bind_directly("noisy", "a1", shape(labels={"app": "y"}))
    simulated.schedule("high", shape(anti_affinity=(term(HOST, app="y"),)), priority=5)
    simulated.pass_time("1m")
    assert simulated.node_of("high") == "a1"
    assert simulated.pod("uid-default-noisy") is None


def test_a_preempted_job_is_made_again_and_loses_no_attempt() -> None:
    simulated = ZonedCluster(a=1)
    simulated.run_job("train-1", backoffLimit=0)
    simulated.schedule("high", WHOLE, priority=5)
    simulated.pass_time("1m")
    assert simulated.state_of("train-1") == "pending"
    assert simulated.cluster.jobs["train-1"].restarts == 1
