"""A pod that fits nowhere sends less important ones away: as few as will do, and with their whole grace."""

from __future__ import annotations

from tests.sim.cluster_builder import HOST, Town, shape, term

HALF, WHOLE = shape(gpus=4), shape(gpus=8)


def test_a_more_important_pod_takes_the_place_of_a_lesser_one_after_its_grace() -> None:
    town = Town(a=1)
    town.settle("low", "a1", WHOLE, grace="10m")
    assert town.place("high", WHOLE, priority=5) == ""
    assert town.where("low") == "a1"  # it is given its time
    assert [(line.about, line.sentence) for line in town.told("pod-preempted")] == [
        ("default/low", f"from {town.node('i-a1').name}: preempted by default/high")
    ]
    town.pass_time("10m")
    assert town.where("high") == "a1"
    assert town.pod("uid-default-low") is None


def test_pods_of_equal_or_higher_priority_stay() -> None:
    town = Town(a=2)
    town.settle("equal", "a1", WHOLE, priority=5)
    town.settle("higher", "a2", WHOLE, priority=9)
    assert town.place("high", WHOLE, priority=5) == ""
    town.pass_time("10m")
    assert (town.where("equal"), town.where("higher"), town.where("high")) == ("a1", "a2", "")


def test_nobody_is_sent_away_where_it_would_not_help() -> None:
    town = Town(a=1)
    town.settle("low", "a1", HALF)
    town.settle("high-too", "a1", HALF, priority=9)
    assert town.place("high", WHOLE, priority=5) == ""
    assert not town.told("pod-preempted")


def test_sends_away_the_least_important_and_no_more_than_needed() -> None:
    town = Town(a=1)
    for name, priority in (("zero", 0), ("one", 1), ("two", 2), ("three", 3)):
        town.settle(name, "a1", shape(gpus=2), priority=priority)
    town.place("high", HALF, priority=5)
    town.pass_time("1m")
    assert {line.about for line in town.told("pod-preempted")} == {"default/zero", "default/one"}
    assert town.where("high") == "a1"


def test_prefers_the_node_whose_victims_matter_least() -> None:
    town = Town(a=2)
    town.settle("middle", "a1", WHOLE, priority=3)
    town.settle("low", "a2", WHOLE, priority=1)
    town.place("high", WHOLE, priority=5)
    town.pass_time("1m")
    assert town.where("high") == "a2"


def test_the_room_that_is_freed_is_kept_for_whom_it_was_freed() -> None:
    town = Town(a=1)
    town.settle("slow", "a1", HALF, grace="20m")
    town.settle("quick", "a1", HALF, grace="1s")
    town.place("high", WHOLE, priority=5)
    assert town.where("quick") == ""
    assert town.place("sneaky", HALF) == ""  # half the node is free, but not for it
    town.pass_time("20m")
    assert town.where("high") == "a1"


def test_two_in_need_free_two_nodes_at_once() -> None:
    town = Town(a=2)
    town.settle("low-1", "a1", WHOLE, grace="10m")
    town.settle("low-2", "a2", WHOLE, grace="10m")
    town.make("high-1", WHOLE, priority=5)
    town.make("high-2", WHOLE, priority=5)
    town.pass_time("5s")
    assert len(town.told("pod-preempted")) == 2
    town.pass_time("10m")
    assert {town.where("high-1"), town.where("high-2")} == {"a1", "a2"}


def test_a_disruption_budget_is_respected_where_another_node_will_do() -> None:
    """Though the service came last and has lost least."""
    town = Town(a=2)
    town.settle("low", "a1", WHOLE)
    town.pass_time("1h")
    town.serve("chat", replicas=1, minAvailable=1, gpus=8)
    town.pass_time("1m")
    town.place("high", WHOLE, priority=5)
    town.pass_time("1m")
    assert town.where("high") == "a1"


def test_on_one_node_the_budget_protects_before_rank_does() -> None:
    town = Town(a=1)
    town.serve("chat", replicas=1, minAvailable=1, gpus=4)
    town.settle("low", "a1", HALF, priority=1)
    town.place("high", HALF, priority=5)
    town.pass_time("1m")
    assert town.where("high") == "a1"
    assert [line.about for line in town.told("pod-preempted")] == ["default/low"]


def test_a_budget_does_not_protect_where_nothing_else_will_do() -> None:
    town = Town(a=1)
    town.serve("chat", replicas=1, minAvailable=1, gpus=8)
    town.pass_time("1m")
    town.place("high", WHOLE, priority=5)
    town.pass_time("1m")
    assert town.where("high") == "a1"


def test_a_lesser_pod_it_cannot_stand_is_sent_away_too() -> None:
    town = Town(a=1)
    town.settle("noisy", "a1", shape(labels={"app": "y"}))
    town.place("high", shape(anti_affinity=(term(HOST, app="y"),)), priority=5)
    town.pass_time("1m")
    assert town.where("high") == "a1"
    assert town.pod("uid-default-noisy") is None


def test_a_preempted_job_is_made_again_and_loses_no_attempt() -> None:
    town = Town(a=1)
    town.run_job("train-1", backoffLimit=0)
    town.place("high", WHOLE, priority=5)
    town.pass_time("1m")
    assert town.state_of("train-1") == "pending"
    assert town.cluster.jobs["train-1"].restarts == 1
