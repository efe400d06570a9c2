"""Quantities are exact, and requests are summed as the scheduler sums them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.kube.quantities import amount_of, parse_quantity, pod_requests


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "2", 2000),
        ("cpu", "250m", 250),
        ("cpu", "0.1", 100),
        ("cpu", "100u", 1),  # rounded up, as the scheduler does
        ("cpu", "1n", 1),
        ("memory", "1Gi", 1 << 30),
        ("memory", "1.5Gi", 3 << 29),
        ("memory", "1e3", 1000),
        ("memory", "1E", 10**18),
        ("memory", "128974848", 128974848),
        ("memory", "129M", 129_000_000),
        ("memory", "100m", 1),  # a tenth of a byte
        ("nvidia.com/gpu", "8", 8),
        ("cpu", "0", 0),
        ("cpu", ".5", 500),
        ("memory", "1Ei", 1 << 60),
    ],
)
def test_reads_quantities_exactly(resource, text, amount):
    assert amount_of(resource, text) == amount


@pytest.mark.parametrize(
    "text", ["", "x", "1Q", "-1", "1 Gi", "0x10", "1e", "9" * 60, "1e300", "1e41", "8Ei"]
)
def test_refuses_what_is_no_quantity(text):
    with pytest.raises(ValueError):
        amount_of("memory", text)


@given(
    whole=st.integers(0, 10**9),
    milli=st.integers(0, 999),
    suffix=st.sampled_from(
        [("", 1), ("k", 10**3), ("Mi", 1 << 20), ("Gi", 1 << 30), ("m", Fraction(1, 1000))]
    ),
)
def test_rounds_up_what_is_written(whole, milli, suffix):
    name, factor = suffix
    exact = (whole + Fraction(milli, 1000)) * factor
    read = parse_quantity(f"{whole}.{milli:03d}{name}")
    assert read - 1 < exact <= read


def _asks(**requests: str):
    return (requests, None)


def test_containers_add_up():
    asked = pod_requests([_asks(cpu="1", memory="1Gi"), _asks(cpu="500m")])
    assert asked == (("cpu", 1500), ("memory", 1 << 30))


def test_the_largest_init_container_counts_where_it_is_more():
    asked = pod_requests([_asks(cpu="1")], [(_asks(cpu="3"), False), (_asks(cpu="2", memory="1"), False)])
    assert asked == (("cpu", 3000), ("memory", 1))


def test_sidecars_run_on_beside_containers_and_later_init_containers():
    sidecar = (_asks(cpu="1"), True)
    assert pod_requests([_asks(cpu="2")], [sidecar]) == (("cpu", 3000),)
    # Started before the init container, so beside it; one started after it is not.
    assert pod_requests([_asks(cpu="2")], [sidecar, (_asks(cpu="4"), False)]) == (("cpu", 5000),)
    assert pod_requests([_asks(cpu="2")], [(_asks(cpu="4"), False), sidecar]) == (("cpu", 4000),)


def test_a_limit_without_a_request_is_the_request():
    assert pod_requests([({"cpu": "1"}, {"cpu": "2", "nvidia.com/gpu": "8"})]) == (
        ("cpu", 1000),
        ("nvidia.com/gpu", 8),
    )


def test_the_pods_own_requests_take_the_place_of_the_sum_and_overhead_comes_on_top():
    asked = pod_requests(
        [_asks(cpu="1", **{"nvidia.com/gpu": "2"})], (), _asks(cpu="4", memory="1Gi"), {"cpu": "250m"}
    )
    assert asked == (("cpu", 4250), ("memory", 1 << 30), ("nvidia.com/gpu", 2))


def test_two_hundred_containers():
    assert pod_requests([_asks(cpu="10m")] * 200) == (("cpu", 2000),)
