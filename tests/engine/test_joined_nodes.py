"""Instances and Kubernetes nodes, joined reading after reading: only what changed, and as if all were joined anew."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.decide.builders import NOW, node
from tidemill.engine.joined_nodes import JoinedNodes
from tidemill.model.nodes import Instance, InstanceState, KubeNode
from tidemill.spec import names

IDS = ["i-1", "i-2", "i-3", "i-4"]


@st.composite
def readings(draw: st.DrawFn) -> list[tuple[list[Instance], list[KubeNode]]]:
    """Readings in which most of what is read stays the same object."""
    instances = {id_: _instance(id_) for id_ in IDS}
    kubes = {f"node-{id_}": _kube(id_) for id_ in IDS[:3]}
    kubes["stranger"] = replace(_kube("i-9"), name="stranger", instance_id="")
    kubes["older"] = replace(_kube("i-1"), name="older", joined_at=NOW - timedelta(days=3))
    found = []
    for step in range(draw(st.integers(2, 8))):
        for name in draw(st.sets(st.sampled_from(sorted(kubes)), max_size=2)) if kubes else ():
            match draw(st.sampled_from(["pods", "pods", "pods", "not ready", "other instance", "gone"])):
                case "pods":
                    kubes[name] = replace(kubes[name], last_pod_event_at=NOW + timedelta(minutes=step))
                case "not ready":
                    kubes[name] = replace(kubes[name], ready=not kubes[name].ready)
                case "other instance":
                    kubes[name] = replace(kubes[name], instance_id=draw(st.sampled_from(IDS)))
                case _:
                    del kubes[name]
        if draw(st.integers(0, 3)) == 0:
            id_ = draw(st.sampled_from(IDS))
            if id_ in instances and draw(st.booleans()):
                del instances[id_]
            else:
                instances[id_] = replace(_instance(id_), state=draw(st.sampled_from(list(InstanceState))))
        found.append((list(instances.values()), list(kubes.values())))
    return found


def _instance(id_: str) -> Instance:
    instance = node(id_).instance
    assert instance is not None
    return instance


def _kube(id_: str) -> KubeNode:
    kube = node(id_).kube
    assert kube is not None
    return kube


@settings(max_examples=200, deadline=None)
@given(found=readings(), minutes=st.integers(0, 6))
def test_what_is_joined_from_changes_is_what_is_joined_from_everything(
    found: list[tuple[list[Instance], list[KubeNode]]], minutes: int
):
    """The other one is given a new list of instances each time, so that it joins all of them."""
    from_changes, from_everything = JoinedNodes("tides"), JoinedNodes("tides")
    last: list[Instance] = []
    for number, (instances, kubes) in enumerate(found):
        last = last if last == instances else instances
        now = NOW + number * timedelta(minutes=minutes)
        one = from_changes.join(last, tuple(kubes), now)
        other = from_everything.join(list(instances), tuple(kubes), now)
        assert one.nodes == other.nodes
        assert list(one.changed) == list(other.changed)
        assert set(one.gone) == set(other.gone)


def test_a_node_that_did_not_change_stays_the_same_object_when_another_did():
    joined, instances = JoinedNodes("tides"), [_instance(id_) for id_ in IDS]
    kubes = tuple(_kube(id_) for id_ in IDS)
    before = joined.join(instances, kubes, NOW).nodes
    moved = replace(kubes[1], last_pod_event_at=NOW)
    answer = joined.join(instances, (kubes[0], moved, *kubes[2:]), NOW)
    assert [one is other for one, other in zip(before, answer.nodes, strict=True)] == [
        True,
        False,
        True,
        True,
    ]
    assert list(answer.changed) == [answer.nodes[1]]
    assert answer.nodes[1].kube is moved


def test_a_node_of_a_pool_that_joined_before_its_instance_is_listed_is_looked_at_again_for_a_minute():
    joined = JoinedNodes("tides")
    ours = replace(_kube("i-1"), joined_at=NOW, labels=((names.LABEL_POOL, "p5"),))
    stranger = replace(_kube("i-2"), joined_at=NOW, labels=())
    joined.join([], (stranger,), NOW)
    assert not joined.awaits_listing(NOW)
    joined.join([], (ours, stranger), NOW)
    assert joined.awaits_listing(NOW + timedelta(seconds=59))
    assert not joined.awaits_listing(NOW + timedelta(seconds=61))
    joined.join([_instance("i-1")], (ours, stranger), NOW)
    assert not joined.awaits_listing(NOW)
