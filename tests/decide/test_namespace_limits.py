"""GPU caps per namespace: never exceeded, also within one decision, and nobody else waits for who is over them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import settings
from hypothesis import strategies as st

from tests.decide import builders as given
from tests.decide.builders import ON_DEMAND, ago, of, spec, why, world
from tidemill.decide import decide
from tidemill.model.plan import Admit, Evict, Launch, Plan, RequestCheckpoint
from tidemill.model.pods import Pod
from tidemill.model.reasons import HoldKind
from tidemill.model.world import World
from tidemill.spec import names
from tidemill.wording import sentence

pytestmark = pytest.mark.requirement("PE-20")


def limit(gpus: int, *namespaces: str) -> dict[str, object]:
    return {"namespaces": list(namespaces or ("team-a",)), "gpus": gpus}


def capped(*limits: dict[str, object], **fields: object):
    return spec(given.pool(), namespaceLimits=list(limits or [limit(8)]), **fields)


def jobs(count: int, namespace: str, gpus: int = 1, **fields) -> list[Pod]:
    """Pods of one template: they share one shape object."""
    first = given.pod(gpus=gpus, namespace=namespace, expected="1h", **fields)
    named = ((f"{namespace}-{n}", f"Job/{namespace}-{n}") for n in range(count))
    return [replace(first, name=name, uid=f"uid-{name}", workload=job) for name, job in named]


def admitted(plan: Plan, there: World) -> Counter[str]:
    """GPUs by namespace."""
    pods = {pod.uid: pod for pod in there.pods}
    found: Counter[str] = Counter()
    for action in of(plan, Admit):
        for uid in action.pods:
            found[pods[uid].namespace] += gpus_of(pods[uid])
    return found


def gpus_of(pod: Pod) -> int:
    return dict(pod.shape.requests).get(names.NVIDIA_GPU, 0)


def nodes(count: int):
    return [given.node(f"i-{n}") for n in range(count)]


def test_no_more_than_the_cap_is_admitted_in_one_decision_and_the_rest_is_told_why():
    there = world(given.block(), nodes(2), pods := jobs(12, "team-a"))
    plan = decide(capped(limit(8)), there)
    assert admitted(plan, there) == {"team-a": 8}
    waiting = [pod for pod in pods if pod.uid in {one.pod for one in plan.unmet}]
    assert len(waiting) == 4
    told = why(plan, waiting[0])
    assert (told.code, told.reason.kind) == ("limit", HoldKind.NAMESPACE_LIMIT_REACHED)
    assert "namespace team-a uses 8 of the 8 GPUs" in sentence(told.reason)


def test_running_pods_and_admitted_pods_without_a_node_are_counted():
    one, two = nodes(2)
    running = given.pod("runs", gpus=4, namespace="team-a", on=one, expected="9h")
    promised = given.pod("promised", gpus=2, namespace="team-a", gated=False, pinned_to="cr-1", expected="1h")
    there = world(given.block(), one, two, running, promised, jobs(8, "team-a"))
    assert admitted(decide(capped(limit(8)), there), there) == {"team-a": 2}


def test_pods_on_a_node_that_is_being_emptied_are_not_counted():
    old = given.node("i-old", phase="draining")
    leaving = given.pod("leaves", gpus=8, namespace="team-a", on=old)
    there = world(given.block(), old, nodes(1), leaving, jobs(1, "team-a", gpus=8))
    assert admitted(decide(capped(limit(8)), there), there) == {"team-a": 8}


def test_a_flood_from_one_namespace_leaves_the_room_to_another_in_the_same_decision():
    flood, late = jobs(100, "team-a", created_at=ago("1h")), jobs(8, "team-b", created_at=ago("1m"))
    there = world(given.block(), nodes(2), flood, late)
    assert admitted(decide(capped(limit(8)), there), there) == {"team-a": 8, "team-b": 8}


def test_namespaces_of_one_entry_share_it_and_a_namespace_in_two_keeps_both():
    there = world(given.block(), nodes(4), jobs(8, "team-a"), jobs(8, "team-b"), jobs(8, "team-c"))
    plan = decide(capped(limit(10, "team-a", "team-b"), limit(3, "team-b"), limit(5, "team-c")), there)
    found = admitted(plan, there)
    assert found["team-a"] + found["team-b"] == 10
    assert found["team-b"] <= 3
    assert found["team-c"] == 5


def test_a_job_that_asks_for_more_than_its_namespace_may_have_is_told_that_it_never_will():
    gang = given.gang(size=2, gpus=8, namespace="team-a", expected="1h")
    plan = decide(capped(limit(8)), world(given.block(), nodes(2), gang))
    told = why(plan, gang[0])
    assert (told.code, told.reason.kind) == ("impossible", HoldKind.OVER_NAMESPACE_LIMIT)
    assert "asks for 16 GPUs at once" in sentence(told.reason)


def test_a_gang_that_waits_for_nodes_holds_no_share_of_its_namespace():
    """Its gang would use the whole cap, and finds no room: the small ones behind it start."""
    gang = given.gang(size=4, gpus=8, namespace="team-a", expected="1h", created_at=ago("1h"))
    there = world(given.block(count=2), nodes(2), gang, jobs(4, "team-a"))
    assert admitted(decide(capped(limit(32)), there), there) == {"team-a": 4}


def test_nothing_is_launched_for_pods_over_the_cap():
    hourly = given.hourly_pool("p5", "p5.48xlarge")
    there = world(jobs(6, "team-a", gpus=8, created_at=ago("1m")))
    plan = decide(spec(hourly, namespaceLimits=[limit(16)]), there)
    assert sum(launch.intent.count for launch in of(plan, Launch)) == 2


def test_nobody_is_asked_to_leave_for_a_pod_over_the_cap():
    (there,) = nodes(1)
    low = given.pod(
        "low", gpus=8, namespace="team-b", on=there, checkpoint_every="10m", workload="Job/low", ready=True
    )
    high = given.pod("high", gpus=8, namespace="team-a", priority=1000, expected="1h", created_at=ago("1h"))
    open_ = decide(capped(limit(8)), world(given.block(), there, low, high))
    assert of(open_, RequestCheckpoint) or of(open_, Evict)
    held = decide(capped(limit(4)), world(given.block(), there, low, high))
    assert not of(held, RequestCheckpoint)
    assert not of(held, Evict)


def test_nodes_are_not_kept_for_a_job_over_the_cap():
    """Without a cap the first in the queue is promised the nodes; held by its namespace it is not, and others pass."""
    one, two = nodes(2)
    busy = given.pod("busy", gpus=8, namespace="team-b", on=one, expected="3h")
    gang = given.gang(size=2, gpus=8, namespace="team-a", expected="1h", created_at=ago("1h"))
    long = given.pod("long", gpus=8, namespace="team-b", expected="9h")
    there = world(given.block(), one, two, busy, gang, long)
    assert not admitted(decide(spec(given.pool()), there), there)["team-b"]
    assert admitted(decide(capped(limit(8)), there), there)["team-b"] == 8


NAMESPACES = ("team-a", "team-b", "team-c")


@st.composite
def crowds(draw):
    """A flood of one namespace, a few pods of others, some nodes, and caps."""
    flood = jobs(
        draw(st.integers(0, 40)), "team-a", gpus=draw(st.sampled_from([1, 2, 4, 8])), created_at=ago("2h")
    )
    others = jobs(
        draw(st.integers(0, 6)), "team-b", gpus=draw(st.sampled_from([1, 2, 8])), created_at=ago("1h")
    )
    gangs = [
        pod
        for number in range(draw(st.integers(0, 2)))
        for pod in given.gang(
            f"g{number}", draw(st.integers(2, 3)), gpus=draw(st.sampled_from([4, 8])), expected="1h",
            namespace=draw(st.sampled_from(NAMESPACES)),
        )
    ]  # fmt: skip
    there = nodes(draw(st.integers(1, 4)))
    running = [
        given.pod(f"r{number}", gpus=draw(st.integers(1, 8)), namespace=draw(st.sampled_from(NAMESPACES)), on=node)
        for number, node in enumerate(there)
        if draw(st.booleans())
    ]  # fmt: skip
    limits = draw(
        st.lists(
            st.builds(
                lambda gpus, which: limit(gpus, *which),
                st.integers(0, 24),
                st.sets(st.sampled_from(NAMESPACES), min_size=1),
            ),
            min_size=1,
            max_size=3,
        )
    )
    return limits, world(given.block(), there, running, flood, others, gangs)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@hypothesis_given(crowds())
def test_no_cap_is_ever_exceeded(crowd):
    limits, there = crowd
    plan = decide(capped(*limits), there)
    new = admitted(plan, there)
    for one in limits:
        used = sum(gpus_of(pod) for pod in there.pods if pod.node and pod.namespace in one["namespaces"])
        added = sum(new[namespace] for namespace in one["namespaces"])
        assert added == 0 or used + added <= one["gpus"]
    told = {one.pod for one in plan.unmet} | {uid for action in of(plan, Admit) for uid in action.pods}
    assert {pod.uid for pod in there.pods if not pod.node} <= told


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@hypothesis_given(st.integers(1, 3), st.integers(9, 60), st.sampled_from([1, 2, 4, 8]), st.integers(1, 8))
def test_a_flood_never_starves_another_namespace(count, size, gpus, others):
    """Half of the GPUs are the flood's at most, so what others ask for of the other half they get, however many came
    before them."""
    half = count * 8
    there = world(
        given.block(),
        nodes(2 * count),
        jobs(size, "team-a", gpus=gpus, created_at=ago("3h")),
        jobs(others, "team-b", created_at=ago("1m")),
    )
    found = admitted(decide(capped(limit(half)), there), there)
    assert found["team-b"] == others
    assert found["team-a"] == min(half // gpus * gpus, size * gpus)


def test_ungated_pods_over_the_cap_get_no_node():
    hourly = given.hourly_pool("p5", "p5.48xlarge")
    pods = jobs(2, "team-a", gpus=8, gated=False, created_at=ago("1m"))
    plan = decide(spec(hourly, namespaceLimits=[limit(8)]), world(pods))
    assert sum(launch.intent.count for launch in of(plan, Launch)) == 1
    assert ON_DEMAND in {launch.intent.source for launch in of(plan, Launch)}
