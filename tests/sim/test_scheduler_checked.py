"""The simulated scheduler judged by the solver's checker, on random small clusters.

Sound: what it bound breaks no rule. Complete: what it left waiting would break one wherever it went. Spread rules
are about pods of the same template only, because the checker judges the end and the scheduler each step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.zoned_cluster import HOST, ZONE, ZonedCluster, labels_in, shape, spread, term
from tidemill.bench.checker.check import check
from tidemill.decide.packer.problem import ExistingNode, ExistingPods, PendingPod, Problem, Solution
from tidemill.model.pods import Pod, PodShape
from tidemill.spec import names

APPS = "xyz"
KEYS = st.sampled_from([ZONE, HOST])
TERMS = st.builds(lambda key, app: term(key, app=app), KEYS, st.sampled_from(APPS))


def maybe(strategy: st.SearchStrategy[Any], often: int) -> st.SearchStrategy[tuple[Any, ...]]:
    """Nothing, `often` times out of `often` + 1."""
    return st.one_of(*[st.just(())] * often, st.tuples(strategy))


@st.composite
def template(draw: st.DrawFn, app: str) -> PodShape:
    rule = st.builds(
        lambda key, skew, least: spread(key, skew, app, min_domains=least),
        KEYS, st.integers(1, 2), st.integers(1, 4),
    )  # fmt: skip
    return shape(
        draw(st.sampled_from([1, 40, 90])),
        labels={"app": app},
        affinity=draw(maybe(TERMS, 3)),
        anti_affinity=draw(maybe(TERMS, 3)),
        spread=draw(maybe(rule, 1)),
        host_ports=draw(maybe(st.sampled_from([("TCP", 80, ""), ("TCP", 80, "10.0.0.1")]), 4)),
        node_terms=draw(maybe(st.just(labels_in(**{ZONE: "us-west-2a"})), 6)),
        volume_zones=draw(maybe(st.just("us-west-2b"), 8)),
        preferred_anti_affinity=draw(maybe(st.tuples(st.integers(1, 100), TERMS), 2)),
    )


def existing_nodes(simulated: ZonedCluster, existing_pods: dict[str, list[Pod]]) -> tuple[ExistingNode, ...]:
    """Every node with what its daemons leave, less what these existing_pods take."""
    found = []
    for node in simulated.cluster.view().nodes:
        daemons = [pod for pod in simulated.cluster.pods_on(node.name) if pod.daemon]
        there = existing_pods.get(node.name, [])
        free = dict(node.allocatable)
        for pod in (*daemons, *there):
            for name, count in (*pod.shape.requests, (names.PODS, 1)):
                free[name] = free.get(name, 0) - count
        settled = tuple(ExistingPods(pod.shape, pod.namespace) for pod in there)
        found.append(
            ExistingNode(node.name, dict(node.labels), free, existing_pods=settled, taints=node.taints)
        )
    return tuple(found)


@settings(max_examples=120)
@given(
    st.tuples(*[template(app) for app in APPS]),
    st.lists(st.integers(0, 2), min_size=1, max_size=9),
    st.tuples(st.integers(1, 2), st.integers(0, 2), st.integers(0, 1)),
)
def test_every_bound_pod_keeps_every_rule_and_every_waiting_pod_would_break_one(
    templates: tuple[PodShape, ...], order: list[int], zones: tuple[int, int, int]
) -> None:
    simulated = ZonedCluster(a=zones[0], b=zones[1], c=zones[2])
    for number, which in enumerate(order):
        simulated.create_pod(f"p{number}", templates[which])
    simulated.pass_time("2m")
    pods = [pod for pod in simulated.cluster.pods.values() if not pod.daemon]
    bound, waiting = [pod for pod in pods if pod.node], [pod for pod in pods if not pod.node]
    by_node: dict[str, list[Pod]] = {}
    for pod in bound:
        by_node.setdefault(pod.node, []).append(pod)

    empty = existing_nodes(simulated, {})
    stated = Problem(tuple(PendingPod(pod.name, pod.shape) for pod in bound), empty)
    numbers = {place.name: number for number, place in enumerate(empty)}
    solution = Solution()
    for index, pod in enumerate(bound):
        solution.existing.setdefault(numbers[pod.node], []).append(index)
    assert check(stated, solution) == []

    settled = existing_nodes(simulated, by_node)
    for pod in waiting:
        alone = replace(stated, pods=(PendingPod(pod.name, pod.shape),), nodes=settled)
        for number, place in enumerate(settled):
            assert check(alone, Solution({number: [0]})), f"{pod.name} waits, and {place.name} would do"
