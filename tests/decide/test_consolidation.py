"""Fewer or cheaper nodes for the same pods, and everything that must not be moved for it (PE-7, PE-8)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.decide import builders as given
from tests.decide.builders import DRIFTED, ON_DEMAND, ago, of, spec, world
from tidemill.decide import decide
from tidemill.model.labels import Expression
from tidemill.model.nodes import Node
from tidemill.model.plan import Launch, Plan, StartDrain
from tidemill.model.pods import DisruptionBudget, Pod, PodTerm
from tidemill.spec import Spec, names
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("PE-7")
UNDERUSED = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "5m"}


def documents(*types: str, **disruption: Any) -> Spec:
    return spec(given.hourly_pool("g6", *types, disruption={**UNDERUSED, **disruption}))


def g6(id: str, kind: str = "g6.12xlarge", **fields: Any) -> Node:
    fields = {"last_pod_event_at": ago("20m"), "joined": "3h", "launched": "4h", **fields}
    return given.node(id, source=ON_DEMAND, pool="g6", instance_type=kind, **fields)


def resumable(name: str, on: Node, **fields: Any) -> Pod:
    fields = {"gpus": 1, "expected": "40h", "checkpoint_every": "10m", "checkpoint_time": "1m", **fields}
    return given.pod(name, on=on, **fields)


def chat(name: str, on: Node, **fields: Any) -> Pod:
    return given.replica(name, on, **{"gpus": 1, **fields})


def drained(plan: Plan) -> set[str]:
    return {started.node for started in of(plan, StartDrain)}


def launched(plan: Plan) -> list[str]:
    return [launch.intent.instance_type for launch in of(plan, Launch)]


def half_empty(**fields: Any) -> tuple[Node, Node, list[Pod]]:
    """Two nodes of four GPUs with one pod each: one node would do."""
    one, two = g6("i-1"), g6("i-2")
    return one, two, [resumable("a", one, **fields), resumable("b", two, **fields)]


def test_a_node_whose_pods_fit_elsewhere_goes():
    one, two, pods = half_empty()
    plan = decide(documents(), world(one, two, pods))
    assert len(drained(plan)) == 1
    assert not launched(plan)
    (started,) = of(plan, StartDrain)
    assert sentence(started.reason) == "its pods fit on other nodes: saves $4.60 an hour"


def test_when_empty_moves_nobody():
    one, two, pods = half_empty()
    plan = decide(spec(given.hourly_pool(disruption={"consolidateAfter": "5m"})), world(one, two, pods))
    assert not plan.actions


def test_several_small_nodes_give_way_to_one_cheaper():
    nodes = [g6(f"i-{number}", "g6.16xlarge") for number in range(2)]  # 3.40 each, for one GPU each
    pods = [resumable(f"p-{number}", on) for number, on in enumerate(nodes)]
    plan = decide(documents("g6.16xlarge", "g6.12xlarge"), world(nodes, pods))
    assert launched(plan) == ["g6.12xlarge"]  # 4.60 for both
    assert not drained(plan)  # not before the new one is there


def test_the_old_ones_go_once_the_new_one_is_ready():
    nodes = [g6(f"i-{number}", "g6.16xlarge") for number in range(2)]
    pods = [resumable(f"p-{number}", on) for number, on in enumerate(nodes)]
    fresh = g6("i-new", joined="3m", launched="8m", last_pod_event_at=None)
    plan = decide(documents("g6.16xlarge", "g6.12xlarge"), world(nodes, fresh, pods))
    assert drained(plan) == {one.name for one in nodes}
    coming = replace(fresh, kube=None)
    plan = decide(documents("g6.16xlarge", "g6.12xlarge"), world(nodes, coming, pods))
    assert not plan.actions


def test_one_node_gives_way_to_a_cheaper_one():
    large = g6("i-1", "g6.48xlarge")
    plan = decide(documents(), world(large, resumable("a", large)))
    assert launched(plan) == ["g6.xlarge"]
    assert "replaces node node-i-1: saves $12.55 an hour" in sentence(of(plan, Launch)[0].reason)


def test_nothing_moves_to_a_node_that_costs_the_same():
    one = g6("i-1", "g6.xlarge")
    plan = decide(
        documents("g6.xlarge"),
        world(one, g6("i-2", "g6.xlarge", last_pod_event_at=ago("2m")), resumable("a", one)),
    )
    assert (
        not plan.actions
    )  # the empty one goes by itself in a while, and moving the pod onto it would save nothing


def test_a_node_that_just_changed_is_left_alone():
    one, two = g6("i-1", last_pod_event_at=ago("4m")), g6("i-2", last_pod_event_at=ago("4m"))
    plan = decide(documents(), world(one, two, resumable("a", one), resumable("b", two)))
    assert not plan.actions
    assert plan.wake_at is not None
    assert plan.wake_at <= world().now + timedelta(minutes=1)


def test_prepaid_nodes_are_not_emptied_for_nothing():
    disrupted = spec(given.pool(disruption=UNDERUSED))
    one, two = given.node("i-1", joined="3h"), given.node("i-2", joined="3h")
    pods = [resumable("a", one), resumable("b", two)]
    assert not drained(decide(disrupted, world(given.block(count=2), one, two, pods)))


# --- what must not move -------------------------------------------------------------------------------


def test_work_that_would_begin_again_is_not_moved():
    one, two = g6("i-1"), g6("i-2")
    assert not decide(
        documents(), world(one, two, given.pod("a", on=one, gpus=1), given.pod("b", on=two, gpus=1))
    ).actions
    known = [given.pod("a", on=one, gpus=1, expected="9h"), given.pod("b", on=two, gpus=1, expected="9h")]
    assert not decide(documents(), world(one, two, known)).actions


@pytest.mark.requirement("PE-8")
@pytest.mark.parametrize("mark", [True, timedelta(hours=1)])
def test_do_not_disrupt_is_not_moved(mark: bool | timedelta):
    one, two, pods = half_empty(do_not_disrupt=mark)
    assert not drained(decide(documents(), world(one, two, pods)))
    assert not launched(decide(documents(), world(one, two, pods)))


@pytest.mark.requirement("PE-8")
def test_do_not_disrupt_for_a_while_ends():
    one, two, pods = half_empty(do_not_disrupt=timedelta(minutes=29))  # they started half an hour ago
    assert drained(decide(documents(), world(one, two, pods)))


def test_a_pod_that_nobody_would_create_again_is_not_moved():
    one, two, pods = half_empty(workload="")
    assert not decide(documents(), world(one, two, pods)).actions


def test_a_budget_of_the_service_is_respected():
    one, two, three = g6("i-1"), g6("i-2"), g6("i-3")
    pods = [chat("c-1", one), chat("c-2", two), chat("c-3", three)]
    there = world(one, two, three, pods)
    assert drained(decide(documents(), there))
    tight = DisruptionBudget("Deployment/chat", min_available=3, allowed=0)
    assert not decide(documents(), replace(there, budgets=(tight,))).actions
    roomy = DisruptionBudget("Deployment/chat", min_available=2, allowed=1)
    assert len(drained(decide(documents(), replace(there, budgets=(roomy,))))) == 1


def test_the_only_replica_of_a_service_stays():
    one, two = g6("i-1"), g6("i-2")
    only = decide(documents("g6.12xlarge"), world(one, chat("c-1", one)))
    assert not only.actions
    both = decide(documents(), world(one, two, chat("c-1", one), resumable("b", two)))
    assert drained(both) == {two.name}


def test_replicas_that_keep_apart_stay_apart():
    apart = (PodTerm(names.LABEL_HOSTNAME, (Expression("app", "In", ("chat",)),)),)
    one, two = g6("i-1", "g6.xlarge"), g6("i-2", "g6.12xlarge")

    def alone(name: str, on: Node) -> Pod:
        made = chat(name, on)
        return replace(made, shape=replace(made.shape, labels=(("app", "chat"),), anti_affinity=apart))

    pods = [alone("c-1", one), alone("c-2", two)]
    plan = decide(documents("g6.xlarge", "g6.12xlarge"), world(one, two, pods))
    assert not drained(plan)  # the large one has room for both, but they may not meet
    assert launched(plan) == ["g6.xlarge"]


# --- when it pays -------------------------------------------------------------------------------------


def test_a_move_that_pays_back_after_the_job_is_done_is_not_made():
    """Ten minutes of work done twice cost more than the few minutes of a node that would be saved."""
    one, two, soon_done = half_empty(expected="35m")  # started 30 minutes ago
    assert not decide(documents(), world(one, two, soon_done)).actions
    one, two, long = half_empty(expected="4h")
    assert drained(decide(documents(), world(one, two, long)))


def test_a_pool_where_something_is_going_is_left_alone():
    one, two, pods = half_empty()
    leaving = g6("i-3", draining_since=ago("2m"), drain_reason=DRIFTED)
    assert not drained(decide(documents(), world(one, two, leaving, resumable("c", leaving), pods)))


def test_nothing_goes_while_somebody_is_being_given_room():
    one, two, pods = half_empty()
    assert not drained(decide(documents(), world(one, two, pods, given.pod("new", gpus=1))))


def test_the_same_question_is_not_asked_twice():
    """And the answer is the same as without a memory."""
    one = g6("i-1", "g6.xlarge")
    there = world(one, resumable("a", one))
    papers = documents("g6.xlarge")
    assert decide(papers, there) == decide(papers, there) == decide(documents("g6.xlarge"), there)


def test_as_many_nodes_as_possible_go_at_once():
    nodes = [g6(f"i-{number}") for number in range(6)]
    pods = [resumable(f"p-{number}", on) for number, on in enumerate(nodes)]
    assert (
        len(drained(decide(documents("g6.12xlarge"), world(nodes, pods)))) == 4
    )  # six pods on two nodes of four
