"""Which types hold a pod, in which order, and what a pod costs on each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemill.catalog import load
from tidemill.catalog.fitting import cheapest, cheapest_when_full, fitting
from tidemill.catalog.sizing import USUAL_DAEMONS
from tidemill.model.resources import amount

TYPES = load().types
GPU, GIB = "nvidia.com/gpu", 2**30
pytestmark = pytest.mark.requirement("PE-16")


def names(fits):
    return [fit.type.name for fit in fits]


def of_family(family):
    return [one for one in TYPES.values() if one.family == family]


def test_types_that_hold_the_pod_are_listed_cheapest_first():
    found = fitting(of_family("g6"), (("cpu", 4_000), ("memory", 24 * GIB), (GPU, 1)))
    assert names(found)[:2] == ["g6.2xlarge", "g6.4xlarge"]
    assert "g6.xlarge" not in names(found)


def test_types_without_a_known_price_come_last_and_are_never_suggested():
    found = fitting(TYPES.values(), ((GPU, 8),))
    assert names(found)[-1] == "p5e.48xlarge"
    assert cheapest(found).type.name == "g6.48xlarge"
    assert cheapest(fitting([TYPES["p5e.48xlarge"]], ((GPU, 8),))) is None


def test_the_price_of_a_pod_is_the_node_price_divided_by_the_pods_that_fit():
    (found,) = fitting([TYPES["g6.12xlarge"]], (("memory", 70 * GIB), (GPU, 1)))
    assert (found.pods, found.stranded) == (2, 2)  # memory for two, GPUs for four
    assert found.usd_h_per_pod == pytest.approx(TYPES["g6.12xlarge"].on_demand_usd_h / 2)


def test_daemons_take_their_resources_before_the_pod():
    kind = TYPES["g6.xlarge"]
    all_of_it = amount(kind.allocatable, "memory")
    daemons = amount(USUAL_DAEMONS, "memory")
    assert fitting([kind], (("memory", all_of_it - daemons),))
    assert not fitting([kind], (("memory", all_of_it - daemons + 1),))
    assert fitting([kind], (("memory", all_of_it),), daemons=())


def test_the_pod_limit_of_a_node_counts():
    kind = TYPES["g6.xlarge"]
    (found,) = fitting([kind], (("cpu", 1),))
    assert found.pods == amount(kind.allocatable, "pods") - amount(USUAL_DAEMONS, "pods")


def test_of_equal_prices_the_type_that_strands_fewer_gpus_is_suggested():
    four = TYPES["g6.12xlarge"]
    alone = replace(TYPES["g6.16xlarge"], on_demand_usd_h=four.on_demand_usd_h)
    assert names(fitting([four, alone], (("cpu", 40_000), (GPU, 1)))) == ["g6.16xlarge", "g6.12xlarge"]


def test_many_pods_may_be_cheaper_on_a_larger_type():
    found = fitting(TYPES.values(), (("cpu", 2_000), ("memory", 70 * GIB), (GPU, 1)))
    assert cheapest(found).type.name == "g6.8xlarge"
    assert cheapest_when_full(found).type.name == "g6.24xlarge"


def test_a_type_without_the_requested_device_is_left_out():
    assert names(fitting(of_family("g6"), (("vpc.amazonaws.com/efa", 2), (GPU, 1)))) == []
    with_neuron = fitting(TYPES.values(), (("aws.amazon.com/neuron", 1),))
    assert {fit.type.category for fit in with_neuron} == {"trn"}
