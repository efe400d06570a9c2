"""Amounts of resources: adding and removing pods, and how many more find room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemill.model.resources import PODS, Resources

NAMES = ("cpu", "memory", "nvidia.com/gpu")
requests = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 50)).map(lambda d: tuple(sorted(d.items())))
nodes = st.dictionaries(st.sampled_from((*NAMES, PODS)), st.integers(0, 500)).map(Resources)


@given(nodes, requests)
def test_as_many_pods_fit_as_can_be_subtracted_one_by_one(free, pod):
    fitting, left = free.count_fitting(pod), Resources(free)
    for _ in range(fitting):
        assert left.fits(pod)
        left.subtract_pod(pod)
    assert not left.fits(pod)


@given(nodes, requests)
def test_adding_a_pod_back_restores_what_was_free(free, pod):
    left = Resources(free)
    left.subtract_pod(pod)
    left.add_pod(pod)
    assert {name: count for name, count in left.items() if count} == {
        name: count for name, count in free.items() if count
    }


@given(nodes, nodes)
def test_raise_to_takes_the_larger_amount_of_each_resource(one, other):
    raised = Resources(one)
    raised.raise_to(other.items())
    assert all(raised.get(name, 0) == max(one.get(name, 0), other.get(name, 0)) for name in (*one, *other))


def test_a_node_that_lists_no_pods_takes_none():
    assert not Resources(cpu=1000).fits((("cpu", 1),))
