"""What holds in every world: one plan whatever the order, a reason for everyone, honest sleep."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.decide.builders import of
from tests.decide.worlds import SPEC, worlds
from tidemill.decide import Memory, decide
from tidemill.model.plan import Action, Admit, Launch, Plan, Terminate
from tidemill.model.pods import Pod, PodPhase
from tidemill.model.world import World


def essence(action: Action) -> object:
    """An action without the id of a fresh launch, which also counts the actions before it."""
    if isinstance(action, Launch):
        return ("launch", replace(action.intent, id="-"))
    if isinstance(action, Admit):
        return ("admit", frozenset(action.pods), action.source_label)
    return type(action), tuple(
        getattr(action, field.name) for field in fields(action) if field.name != "reason"
    )


def essences(plan: Plan) -> Counter:
    return Counter(essence(action) for action in plan.actions)


def copied(there: World) -> World:
    """The same facts in new objects, so that nothing can be remembered by identity."""
    pods = tuple(replace(pod) for pod in there.pods)
    index: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node:
            index.setdefault(pod.node, []).append(pod)
    return replace(
        there,
        pods=pods,
        nodes=tuple(replace(node) for node in there.nodes),
        reservations=tuple(replace(reservation) for reservation in there.reservations),
        pods_by_node={name: tuple(bound) for name, bound in index.items()},
    )


@given(there=worlds())
def test_the_same_world_gives_the_same_plan(there: World):
    memory = Memory()
    first = decide(SPEC, there, memory)
    assert decide(SPEC, there, memory) == first
    assert decide(SPEC, copied(there), memory) == first


@given(there=worlds(), minutes=st.sampled_from((1, 9, 31, 200)))
def test_what_is_remembered_changes_nothing_later(there: World, minutes: int):
    """With the same objects some time later, and with copies of them that nothing is remembered of."""
    memory = Memory()
    decide(SPEC, there, memory)
    later = replace(there, now=there.now + timedelta(minutes=minutes))
    assert decide(SPEC, later, memory) == decide(SPEC, copied(later))


@given(there=worlds(), random=st.randoms(use_true_random=False))
def test_the_order_in_which_the_world_is_listed_does_not_matter(there: World, random):
    def shuffled(things: tuple) -> tuple:
        return tuple(random.sample(things, len(things)))

    mixed = replace(
        there,
        pods=shuffled(there.pods),
        nodes=shuffled(there.nodes),
        reservations=shuffled(there.reservations),
        launches=shuffled(there.launches),
        pods_by_node={name: shuffled(bound) for name, bound in there.pods_by_node.items()},
    )
    assert essences(decide(SPEC, mixed)) == essences(decide(SPEC, there))


def waits(one: Pod) -> bool:
    return (
        one.phase is PodPhase.PENDING
        and not one.node
        and not one.held_by_others
        and one.deleting_until is None
        and not one.daemon
    )


@pytest.mark.requirement("PE-13")
@given(there=worlds())
def test_every_gated_pod_is_admitted_or_has_one_reason(there: World):
    plan = decide(SPEC, there)
    admitted = {uid for action in of(plan, Admit) for uid in action.pods}
    told = Counter(unmet.pod for unmet in plan.unmet)
    assert all(count == 1 for count in told.values())
    for pod in there.pods:
        if waits(pod) and pod.gated:
            assert (pod.uid in admitted) != (pod.uid in told), pod.full_name
        elif not waits(pod):
            assert pod.uid not in told, pod.full_name


@given(there=worlds())
def test_nobody_is_admitted_twice_and_gangs_only_whole(there: World):
    plan = decide(SPEC, there)
    admitted = Counter(uid for action in of(plan, Admit) for uid in action.pods)
    assert all(count == 1 for count in admitted.values())
    for pod in there.pods:
        if pod.gang is not None and pod.uid in admitted:
            members = [other for other in there.pods if other.gang == pod.gang]
            assert len(members) == pod.gang.size
            assert all(other.uid in admitted for other in members)


@given(there=worlds())
def test_admitted_pods_fit_the_nodes_they_are_pinned_to(there: World):
    """Summed over a source: what is admitted asks for no more GPUs than its Ready nodes have free."""
    plan = decide(SPEC, there)
    wanted: Counter = Counter()
    by_uid = {pod.uid: pod for pod in there.pods}
    for action in of(plan, Admit):
        for uid in action.pods:
            wanted[action.source_label] += dict(by_uid[uid].shape.requests).get("nvidia.com/gpu", 0)
    free: Counter = Counter()
    for node in there.nodes:
        if node.instance is not None and node.kube is not None and node.instance.owner == "tides":
            bound = there.pods_by_node.get(node.kube.name, ())
            used = sum(dict(each.shape.requests).get("nvidia.com/gpu", 0) for each in bound)
            free[node.instance.source.label] += max(
                0, dict(node.kube.allocatable).get("nvidia.com/gpu", 0) - used
            )
    for label, gpus in wanted.items():
        assert gpus <= free[label]


@pytest.mark.requirement("PE-23")
@given(there=worlds())
def test_no_action_ever_names_a_strangers_instance(there: World):
    theirs = {
        node.key for node in there.nodes if node.instance is not None and node.instance.owner != "tides"
    }
    names = {node.name for node in there.nodes if node.key in theirs}
    plan = decide(SPEC, there)
    assert not theirs & {action.instance_id for action in of(plan, Terminate)}
    assert not names & {getattr(action, "node", "") for action in plan.actions}


# Most random worlds ask for something at once; those that sleep are what this is about.
@settings(max_examples=25, suppress_health_check=[HealthCheck.filter_too_much])
@given(there=worlds(), share=st.floats(0.01, 0.99))
def test_nothing_new_is_decided_before_wake_at(there: World, share: float):
    """A sleeping engine misses nothing: the same facts at any instant before `wake_at` ask for nothing."""
    plan = decide(SPEC, there)
    assume(not plan.actions and plan.wake_at is not None)
    assert plan.wake_at is not None
    between = there.now + (plan.wake_at - there.now) * share
    assert not decide(SPEC, replace(there, now=between)).actions


def in_namespaces(there: World) -> World:
    """The same world as an adapter of a real cluster names its workloads: `Kind/namespace/name`."""

    def named(workload: str) -> str:
        kind, slash, name = workload.partition("/")
        return f"{kind}/ml/{name}" if slash else workload

    renamed = copied(
        replace(there, pods=tuple(replace(pod, workload=named(pod.workload)) for pod in there.pods))
    )
    return replace(
        renamed,
        workloads=tuple(replace(one, name=named(one.name), pair=named(one.pair)) for one in there.workloads),
        budgets=tuple(replace(one, workload=named(one.workload)) for one in there.budgets),
    )


def without_namespaces(plan: Plan) -> Counter:
    return Counter(str(essence(action)).replace("/ml/", "/") for action in plan.actions)


@given(there=worlds())
def test_the_name_of_a_workload_is_opaque(there: World):
    assert without_namespaces(decide(SPEC, in_namespaces(there))) == without_namespaces(decide(SPEC, there))
