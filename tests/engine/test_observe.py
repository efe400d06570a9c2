"""One look at everything: joined up per node, and honest about what could not be read."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.decide.builders import NOW, block, daemon, node, pod, spec
from tests.engine.ports import Outside
from tidemill.engine.observe import Observer
from tidemill.model.capacity import ReservationState
from tidemill.model.errors import Retryable
from tidemill.model.nodes import InstanceState, KubeNode, Node
from tidemill.model.purchases import Adoption


@pytest.fixture
def outside() -> Outside:
    made = Outside(spec())
    made.cloud.held = [block()]
    made.has(node("i-1"), node("i-2", "launched"))
    return made


def kube_of(instance_id: str) -> KubeNode:
    kube = node(instance_id).kube
    assert kube is not None
    return kube


def observer(outside: Outside) -> Observer:
    return Observer(outside.clock, outside.cloud, outside.cluster, outside.books, "tides")


def test_an_instance_and_its_kubernetes_node_are_one_node(outside: Outside):
    seen = {one.key: one for one in observer(outside).look().nodes}
    assert seen["i-1"].kube is not None
    assert seen["i-1"].kube.name == "node-i-1"
    assert seen["i-2"].kube is None


def test_a_kubernetes_node_without_an_instance_is_still_seen(outside: Outside):
    outside.cluster.nodes.append(Node(None, node("i-9").kube))
    assert {one.key for one in observer(outside).look().nodes} == {"i-1", "i-2", "node-i-9"}


def test_every_node_without_an_instance_is_seen(outside: Outside):
    """Nodes of other clouds name no instance; they are all there, and none takes the place of another."""
    for number in range(3):
        kube = replace(kube_of("i-9"), name=f"kwok-{number}", instance_id="")
        outside.cluster.nodes.append(Node(None, kube))
    seen = observer(outside).look().nodes
    assert [one.key for one in seen] == ["i-1", "i-2", "kwok-0", "kwok-1", "kwok-2"]


@pytest.mark.parametrize("older_first", [False, True])
def test_of_two_nodes_that_name_one_instance_the_newest_counts_and_the_other_stands_alone(
    outside: Outside, older_first: bool
):
    older = replace(kube_of("i-1"), name="was-i-1", joined_at=NOW - timedelta(days=3))
    outside.cluster.nodes.insert(0 if older_first else 1, Node(None, older))
    seen = {one.key: one for one in observer(outside).look().nodes}
    assert seen["i-1"].name == "node-i-1"
    assert seen["was-i-1"].instance is None


def test_an_instance_that_a_list_leaves_out_is_there_while_its_node_is_ready(outside: Outside):
    eyes = observer(outside)
    before = eyes.look().nodes[0]
    del outside.cloud.running["i-1"]
    eyes.look()
    outside.clock.pass_time(minutes=9)
    seen = {one.key: one for one in eyes.look().nodes}
    assert seen["i-1"] is before
    outside.clock.pass_time(minutes=2)
    assert {one.key for one in eyes.look().nodes} == {"i-2", "node-i-1"}


def test_an_instance_that_is_left_out_counts_for_nothing_once_its_node_is_not_ready(outside: Outside):
    eyes = observer(outside)
    eyes.look()
    del outside.cloud.running["i-1"]
    outside.cluster.nodes[0] = Node(None, replace(kube_of("i-1"), ready=False))
    assert {one.key for one in eyes.look().nodes} == {"i-2", "node-i-1"}


def test_an_instance_that_was_seen_to_end_has_ended_as_long_as_its_node_lingers(outside: Outside):
    eyes = observer(outside)
    eyes.look()
    outside.cloud.running["i-1"] = replace(outside.cloud.running["i-1"], state=InstanceState.TERMINATED)
    eyes.look()
    del outside.cloud.running["i-1"]
    outside.clock.pass_time(hours=30)
    seen = {one.key: one for one in eyes.look().nodes}
    ended = seen["i-1"].instance
    assert ended is not None
    assert ended.state is InstanceState.TERMINATED
    del outside.cluster.nodes[0]
    assert {one.key for one in eyes.look().nodes} == {"i-2"}


def test_a_new_list_that_says_the_same_changes_nothing(outside: Outside):
    eyes = observer(outside)
    before = eyes.look().nodes
    outside.cloud.running = {key: replace(one) for key, one in outside.cloud.running.items()}
    assert eyes.look().nodes is before


def test_pods_are_found_by_the_node_they_are_bound_to(outside: Outside):
    outside.cluster.pods = [pod("a", on=node("i-1")), pod("b")]
    seen = observer(outside).look()
    assert {name: [one.name for one in pods] for name, pods in seen.pods_by_node.items()} == {
        "node-i-1": ["a"]
    }
    assert len(seen.pods) == 2


def test_when_aws_cannot_be_reached_the_last_known_facts_stand_and_it_is_said(outside: Outside):
    eyes = observer(outside)
    before = eyes.look()
    outside.cloud.away = True
    seen = eyes.look()
    assert (before.cloud_ok, seen.cloud_ok, seen.ledger_ok) == (True, False, True)
    assert (seen.reservations, seen.nodes) == (before.reservations, before.nodes)
    outside.cloud.away = False
    assert eyes.look().cloud_ok


def test_half_an_answer_from_aws_is_no_answer(outside: Outside):
    eyes = observer(outside)
    eyes.look()
    outside.cloud.held = []
    outside.cloud.fail("instances", Retryable("throttled"))
    seen = eyes.look()
    assert not seen.cloud_ok
    assert [reservation.id for reservation in seen.reservations] == ["cr-1"]


def test_what_the_cluster_says_is_new_even_while_aws_is_away(outside: Outside):
    eyes = observer(outside)
    eyes.look()
    outside.cloud.away = True
    outside.cluster.nodes[1] = node("i-2")
    joined = {one.key: one for one in eyes.look().nodes}["i-2"]
    assert joined.kube is not None


def test_when_the_ledger_cannot_be_read_it_is_said(outside: Outside):
    eyes = observer(outside)
    eyes.look()
    outside.books.away = True
    seen = eyes.look()
    assert (seen.ledger_ok, seen.cloud_ok) == (False, True)


@pytest.mark.parametrize("port", ["cloud", "books", "cluster"])
def test_without_a_first_look_there_is_no_world(outside: Outside, port: str):
    getattr(outside, port).away = True
    with pytest.raises(Retryable):
        observer(outside).look()


def test_a_cluster_that_cannot_be_read_is_never_guessed(outside: Outside):
    eyes = observer(outside)
    eyes.look()
    outside.cluster.away = True
    with pytest.raises(Retryable):
        eyes.look()


def test_an_unchanged_node_is_the_same_object(outside: Outside):
    eyes = observer(outside)
    first, second = eyes.look().nodes, eyes.look().nodes
    assert [one is other for one, other in zip(first, second, strict=True)] == [True, True]
    outside.cluster.nodes[0] = node("i-1", check="failed")
    third = eyes.look().nodes
    assert [one is other for one, other in zip(first, third, strict=True)] == [False, True]


def test_what_daemons_took_is_remembered_after_the_node_is_gone(outside: Outside):
    here = node("i-1")
    outside.cluster.pods = [daemon("agent", here, cpu="2", memory="3Gi"), pod("work", on=here, cpu="9")]
    look = observer(outside).look
    (seen,) = look().overheads
    assert (seen.pool, seen.instance_type, seen.seen_at) == ("p5", "p5.48xlarge", NOW)
    assert dict(seen.taken) == {"cpu": 2000, "memory": 3 << 30, "pods": 1}
    outside.clock.pass_time(hours=5)
    outside.cloud.running.clear()
    outside.cluster.nodes, outside.cluster.pods = [], []
    (remembered,) = look().overheads
    assert remembered == replace(seen, seen_at=NOW + timedelta(hours=5))


def test_a_block_that_is_missing_from_a_list_is_still_there(outside: Outside):
    """Lists are eventually consistent: what lived a moment ago is not bought again because one left it out."""
    looks = observer(outside)
    assert [reservation.id for reservation in looks.look().reservations] == ["cr-1"]
    outside.cloud.held = []
    outside.clock.pass_time(minutes=30)
    assert [reservation.id for reservation in looks.look().reservations] == ["cr-1"]
    outside.clock.pass_time(minutes=31)
    assert looks.look().reservations == ()


@pytest.mark.requirement("CB-4")
def test_an_adopted_block_that_a_list_leaves_out_is_counted_on_by_an_engine_that_just_started(
    outside: Outside,
):
    outside.cloud.held = [replace(block(ends_in="3h"), owner="", intent_id="")]
    outside.books.adopt(Adoption("cr-1", "p5", "ana", NOW))
    observer(outside).look()
    outside.cloud.held = []
    later = observer(outside)
    (one,) = later.look().reservations
    assert (one.id, one.owner, one.pool, one.listed, one.available) == ("cr-1", "tides", "p5", False, 0)
    assert (one.end, one.state) == (NOW + timedelta(hours=3), ReservationState.ACTIVE)
    outside.clock.pass_time(hours=2)
    assert later.look().reservations == (one,)
    outside.clock.pass_time(hours=1)
    assert later.look().reservations == ()


def test_what_is_remembered_of_an_adopted_block_follows_its_end_and_never_moves_back(outside: Outside):
    outside.books.adopt(Adoption("cr-1", "p5", "ana", NOW))
    looks = observer(outside)
    for ends_in, remembered in (("3h", 3), ("27h", 27), ("3h", 27)):
        outside.cloud.held = [block(ends_in=ends_in)]
        looks.look()
        (kept,) = outside.books.adoptions()
        assert kept.shown is not None
        assert kept.shown.end == NOW + timedelta(hours=remembered)


def test_an_adopted_block_that_was_never_paid_is_not_counted_on(outside: Outside):
    outside.books.adopt(Adoption("cr-1", "p5", "ana", NOW))
    outside.cloud.held = [replace(block(), state=ReservationState.PAYMENT_FAILED)]
    observer(outside).look()
    outside.cloud.held = []
    assert observer(outside).look().reservations == ()


def test_a_word_that_was_taken_back_makes_a_block_a_strangers_again(outside: Outside):
    outside.cloud.held = [replace(block(), owner="tides", intent_id="")]
    adoption = Adoption("cr-1", "p5", "ana", NOW)
    outside.books.adopt(adoption)
    looks = observer(outside)
    assert looks.look().reservations[0].owner == "tides"
    outside.books.adopt(replace(adoption, given_up=True))
    assert looks.look().reservations[0].owner == ""


def test_pods_with_equal_shapes_share_one_shape_whoever_read_them(outside: Outside):
    twin = pod("b", on=node("i-1"))
    twin = replace(twin, shape=replace(twin.shape))  # equal, and another object
    outside.cluster.pods = [pod("a", on=node("i-1")), twin]
    eyes = observer(outside)
    first, second = eyes.look(), eyes.look()
    assert first.pods[0].shape is first.pods[1].shape
    assert [one.shape for one in first.pods_by_node["node-i-1"]] == [first.pods[0].shape] * 2
    assert all(one.shape is first.pods[0].shape for one in first.pods_by_node["node-i-1"])
    # ... and what did not change keeps its identity.
    assert all(one is other for one, other in zip(first.pods, second.pods, strict=True))
    assert {id(one) for one in first.pods_by_node["node-i-1"]} <= {id(one) for one in first.pods}


def test_a_shape_that_differs_stays_another_one(outside: Outside):
    outside.cluster.pods = [pod("a"), pod("b", gpus=1)]
    seen = observer(outside).look()
    assert seen.pods[0].shape != seen.pods[1].shape


def test_pods_and_nodes_that_are_gone_are_forgotten(outside: Outside):
    eyes = observer(outside)
    template, twin = pod("a").shape, replace(pod("a").shape)
    for number in range(50):
        outside.cluster.pods = [
            replace(pod("a"), shape=template),
            replace(pod("b", on=node(f"i-{number}")), shape=twin),
        ]
        world = eyes.look()
        assert world.pods[0].shape is world.pods[1].shape
    assert len(eyes._shapes._given) == 2
    assert len(eyes._shapes._by_node) == 1


def test_equal_shapes_stay_one_when_more_shapes_come_than_are_remembered(outside: Outside, monkeypatch):
    monkeypatch.setattr("tidemill.engine.observe._MAX_SHAPES", 2)
    eyes = observer(outside)
    for _ in range(3):
        outside.cluster.pods = [pod(f"p{gpus}", gpus=gpus) for gpus in (1, 2, 3, 4)]
        outside.cluster.pods.append(replace(pod("again", gpus=1), shape=replace(pod("again", gpus=1).shape)))
        world = eyes.look()
        assert world.pods[0].shape is world.pods[-1].shape
