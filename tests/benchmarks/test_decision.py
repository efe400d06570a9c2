"""The engine can really decide about the large cluster that decisions are timed on."""

from benchmarks.decision import a_little_later, measure, spec, world
from tidemill.decide import decide
from tidemill.model.plan import Admit


def test_every_pending_pod_gets_a_node_or_a_reason():
    timing = measure(nodes=40, running=200, pending=60)
    assert timing.actions + timing.unmet >= 60


def test_what_is_remembered_between_two_decisions_changes_no_decision():
    documents = spec(40)
    first = world(documents, 40, 200, 60)
    decide(documents, first)
    later = a_little_later(first, changes=20)
    assert decide(documents, later) == decide(spec(40), later)


def test_pods_are_admitted_only_where_they_fit():
    documents = spec(10)
    there = world(documents, 10, 30, 100)
    plan = decide(documents, there)
    gpus = {pod.uid: dict(pod.shape.requests).get("nvidia.com/gpu", 0) for pod in there.pods}
    used = sum(gpus[pod.uid] for pod in there.pods if pod.node)
    admitted = sum(gpus[uid] for action in plan.actions if isinstance(action, Admit) for uid in action.pods)
    assert used + admitted <= 10 * 4
