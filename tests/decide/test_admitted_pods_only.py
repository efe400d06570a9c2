"""Pools whose nodes take only admitted pods: gated pods need nothing, others are told what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.decide import builders as given
from tests.decide.builders import of, pool, spec, why, world
from tidemill.decide import decide
from tidemill.decide.context import DecisionContext
from tidemill.decide.scheduler_rules import tolerates
from tidemill.model.labels import Taint
from tidemill.model.plan import Admit, Launch, StartDrain
from tidemill.model.pods import Workload
from tidemill.model.reasons import DrainKind
from tidemill.spec import names
from tidemill.wording import sentence

HELD = Taint(names.TAINT_HELD)
ADMITTED_ONLY = spec(pool(admittedPodsOnly=True))
BLOCK = given.block(ends_in="24h", count=2)


def held_node(id: str = "i-1", **fields):
    return given.node(id, taints=(HELD,), **fields)


@pytest.mark.requirement("PE-17")
def test_a_gated_pod_needs_no_toleration_because_admission_adds_it():
    plan = decide(ADMITTED_ONLY, world(BLOCK, held_node(), given.pod(gpus=8, expected="1h")))
    assert [admit.pods for admit in of(plan, Admit)] == [("uid-train-1",)]


def test_a_gang_is_admitted_whole_onto_such_nodes():
    waiting = given.gang(size=2, expected="1h")
    plan = decide(ADMITTED_ONLY, world(BLOCK, held_node("i-1"), held_node("i-2"), waiting))
    (admit,) = of(plan, Admit)
    assert len(admit.pods) == 2


def test_a_gated_pod_is_launched_for():
    one = spec(given.hourly_pool("p5", "p5.48xlarge", admittedPodsOnly=True))
    assert of(decide(one, world(given.pod(gpus=8, expected="1h"))), Launch)


def test_an_ungated_pod_without_the_toleration_takes_no_room_and_is_told_what_to_do():
    stranger = given.replica("web-1", gpus=8)
    waiting = given.pod(gpus=8, expected="1h")
    plan = decide(ADMITTED_ONLY, world(BLOCK, held_node(), stranger, waiting))
    assert [admit.pods for admit in of(plan, Admit)] == [("uid-train-1",)]
    told = sentence(why(plan, stranger).reason)
    assert told == (
        "pool p5 takes only pods that Tidemill admits; label its namespace or its workload"
        " tidemill.dev/managed: true and create it again"
    )


def test_an_ungated_pod_with_the_toleration_takes_room_there():
    service = given.replica("web-1", gpus=8, tolerates=[names.TAINT_HELD], created_at=given.ago("1h"))
    plan = decide(ADMITTED_ONLY, world(BLOCK, held_node(), service, given.pod(gpus=8, expected="1h")))
    assert not of(plan, Admit)
    assert not any(unmet.pod == "uid-web-1" for unmet in plan.unmet)


@pytest.mark.parametrize(("taints", "drifted"), [((), True), ((HELD,), False)])
def test_a_node_from_before_the_setting_has_drifted(taints: tuple[Taint, ...], drifted: bool):
    one = spec(given.hourly_pool("p5", "p5.48xlarge", admittedPodsOnly=True))
    node = given.node(source=given.ON_DEMAND, taints=taints)
    drains = of(decide(one, world(node, given.replica(on=node))), StartDrain)
    assert [drain.reason.kind for drain in drains] == ([DrainKind.DRIFTED_TAINT] if drifted else [])


def test_a_service_whose_pods_got_the_toleration_when_they_were_made_can_move_to_such_nodes():
    """Its template does not show what the API server adds at CREATE."""
    here = held_node("i-1")
    pods = [given.replica(f"chat-{n}", here, gpus=4, tolerates=[names.TAINT_HELD]) for n in range(2)]
    shape = given.replica(gpus=4).shape
    chat = Workload("Deployment/chat", "ml", replicas=2, ready=2, shape=shape, terms=pods[0].terms)
    there = world(BLOCK, given.block("cr-2", ends_in="90h"), here, pods, chat)
    assert tolerates(DecisionContext(ADMITTED_ONLY, there).workloads[chat.name].shape.tolerations, HELD)
    strangers = [replace(pod, shape=shape) for pod in pods]
    elsewhere = world(BLOCK, given.block("cr-2", ends_in="90h"), here, strangers, chat)
    assert DecisionContext(ADMITTED_ONLY, elsewhere).workloads[chat.name] is chat
