"""The checker's affinity rule compared with exhaustive search over all binding orders."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.benchmarks.problems import HOST, ZONE, existing, pending, problem, running, term
from tidemill.bench.checker.check import check
from tidemill.decide.packer.problem import Solution

HOSTS = (("n0", "a"), ("n1", "a"), ("n2", "b"))
LABELS = st.sampled_from([{"app": "x"}, {"app": "y"}, {"app": "x", "tier": "t"}])
TERMS = st.sampled_from([term(ZONE, app="x"), term(ZONE, app="y"), term(HOST, app="x"), term(ZONE, tier="t")])
AFFINITIES = st.one_of(st.just(()), st.tuples(TERMS), st.tuples(TERMS, TERMS))


def binds(stated, where, order) -> bool:
    """Whether the scheduler would bind the pods in this order, by its InterPodAffinity filter."""
    bound = [(r.shape, n) for n, p in enumerate(stated.nodes) for r in p.existing_pods]
    for index in order:
        shape, host = stated.pods[index].shape, where[index]
        mates = [(other, n) for other, n in bound if all(chosen(t, other) for t in shape.affinity)]
        met = all(any(domain(t, n) == domain(t, host) for _, n in mates) for t in shape.affinity)
        first = not mates and all(chosen(t, shape) for t in shape.affinity)
        if not (met or first):
            return False
        bound.append((shape, host))
    return True


def chosen(wanted, shape) -> bool:
    return all(dict(shape.labels).get(e.key) in e.values for e in wanted.selector)


def domain(wanted, host: int) -> str:
    return HOSTS[host][wanted.topology_key == ZONE]


@settings(max_examples=300)
@given(
    st.lists(st.tuples(LABELS, AFFINITIES, st.integers(0, 2)), min_size=1, max_size=4),
    st.lists(st.tuples(LABELS, st.integers(0, 2)), max_size=2),
)
def test_affinity_holds_exactly_if_some_binding_order_works(pods, settled):
    existing_pods = [
        tuple(running(labels=labels) for labels, host in settled if host == number)
        for number in range(len(HOSTS))
    ]
    nodes = [
        existing(name, zone, existing_pods=there)
        for (name, zone), there in zip(HOSTS, existing_pods, strict=True)
    ]
    stated = problem(
        [pending(f"p{n}", labels=labels, affinity=terms) for n, (labels, terms, _) in enumerate(pods)], nodes
    )
    where = [host for _, _, host in pods]
    solution = Solution()
    for index, host in enumerate(where):
        solution.existing.setdefault(host, []).append(index)
    possible = any(binds(stated, where, order) for order in permutations(range(len(pods))))
    assert {fault.kind for fault in check(stated, solution)} == (set() if possible else {"affinity"})
