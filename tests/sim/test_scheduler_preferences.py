"""Preferences of pods, where several nodes pass the filters."""

from __future__ import annotations

from tests.sim.zoned_cluster import HOST, ZONE, ZonedCluster, labels_in, shape, spread, term
from tidemill.model.labels import Toleration

ZONE_B = (labels_in(**{ZONE: "us-west-2b"}),)
OTHER = shape(labels={"app": "y"})


def test_prefers_nodes_of_its_affinity_to_fuller_ones() -> None:
    simulated = ZonedCluster(a=1, b=1)
    simulated.bind_directly("filler", "a1", shape(cpu=100))
    assert simulated.schedule("plain") == "a1"
    assert simulated.schedule("picky", shape(preferred_nodes=((1, ZONE_B[0]),))) == "b1"


def test_the_preference_with_more_weight_wins() -> None:
    simulated = ZonedCluster(a=1, b=1)
    likes = ((10, labels_in(**{ZONE: "us-west-2a"})), (90, ZONE_B[0]))
    assert simulated.schedule("picky", shape(preferred_nodes=likes)) == "b1"


def test_a_preference_that_cannot_be_met_keeps_no_pod_waiting() -> None:
    simulated = ZonedCluster(a=1)
    assert simulated.schedule("picky", shape(preferred_nodes=((100, ZONE_B[0]),))) == "a1"
    assert simulated.schedule("friendly", shape(preferred_affinity=((100, term(ZONE, app="gone")),))) == "a1"
    assert simulated.schedule("shy", shape(preferred_anti_affinity=((100, term(ZONE, app="x")),))) == "a1"


def test_prefers_to_be_with_or_away_from_others() -> None:
    simulated = ZonedCluster(a=1, b=1, c=1)
    simulated.bind_directly("db", "b1", OTHER)
    assert simulated.schedule("friend", shape(preferred_affinity=((50, term(ZONE, app="y")),))) == "b1"
    simulated.bind_directly("filler", "b1", shape(cpu=100, labels={"app": "z"}))
    assert simulated.schedule("shy", shape(preferred_anti_affinity=((50, term(HOST, app="y")),))) == "a1"


def test_preferences_of_bound_pods_count_too() -> None:
    simulated = ZonedCluster(a=1, b=1)
    simulated.bind_directly("filler", "a1", shape(cpu=100, labels={"app": "z"}))
    simulated.bind_directly(
        "host", "b1", shape(labels={"app": "y"}, preferred_affinity=((50, term(ZONE, app="x")),))
    )
    assert simulated.schedule("guest") == "b1"
    assert simulated.schedule("stranger", shape(labels={"app": "w"})) == "a1"


def test_soft_spread_is_a_preference_and_keeps_no_pod_waiting() -> None:
    simulated = ZonedCluster(a=2, b=1)
    soft = shape(cpu=60, spread=(spread(ZONE, hard=False),))
    places = [simulated.schedule(f"p{number}", soft) for number in range(6)]
    assert [where[0] for where in places[:4]] == ["a", "b", "a", "b"]
    assert all(places)


def test_avoids_nodes_with_prefer_no_schedule_taints() -> None:
    simulated = ZonedCluster(taints=[{"key": "tired", "effect": "PreferNoSchedule"}], a=1)
    simulated.ready_nodes("i-b1", pool="g6", kind="g6.48xlarge")
    on_gpus = Toleration("nvidia.com/gpu", "Exists")
    guest, tolerant = (
        shape(tolerations=(on_gpus,)),
        shape(tolerations=(on_gpus, Toleration("tired", "Exists"))),
    )
    simulated.bind_directly("filler", "a1", shape(cpu=100))
    assert simulated.schedule("guest", guest) == "b1"
    assert simulated.schedule("tolerant", tolerant) == "a1"
