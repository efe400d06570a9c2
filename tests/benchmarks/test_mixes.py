"""The mixes are what they claim to be: Karpenter's numbers, shares, sharing of objects, reached limits."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from tests.benchmarks.problems import HOST, ZONE
from tidemill.bench.first_fit import first_fit
from tidemill.bench.mixes import MIXES, build
from tidemill.bench.mixes.end_times import refused
from tidemill.model.errors import SpecError
from tidemill.model.resources import amount

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize("mix", MIXES)
def test_a_mix_has_the_number_of_pods_asked_for_and_is_the_same_every_time(mix):
    assert len(build(mix, 203).pods) == 203
    assert build(mix, 203, seed=7) == build(mix, 203, seed=7)


def test_another_seed_draws_other_pods():
    assert build("karpenter", 50, seed=1).pods != build("karpenter", 50, seed=2).pods


def test_an_unknown_mix_is_an_error_that_lists_the_mixes():
    with pytest.raises(SpecError, match="unknown mix 'karpentr'; there are: karpenter, preferences"):
        build("karpentr", 5)


def test_karpenters_types_come_in_five_offerings_at_one_price():
    options = build("karpenter", 5).options
    assert len(options) == 2_000
    fifth = [f for f in options if f.name == "fake-it-4"]
    assert [(f.labels["karpenter.sh/capacity-type"], f.labels[ZONE]) for f in fifth] == [
        ("spot", "test-zone-1"),
        ("spot", "test-zone-2"),
        ("on-demand", "test-zone-1"),
        ("on-demand", "test-zone-2"),
        ("on-demand", "test-zone-3"),
    ]
    assert [f.price for f in fifth] == [pytest.approx(0.1 * 5 + 0.1 * 10 * 2**30 / 1e9)] * 5
    assert fifth[0].capacity == {"cpu": 4_900, "memory": 10 * 2**30 - 10 * 2**20, "pods": 50}
    assert fifth[0].labels["size"] == "large"
    assert fifth[0].labels["special"] == "optional"
    fourth = next(f for f in options if f.name == "fake-it-3")
    assert fourth.labels["size"] == "small"
    assert "special" not in fourth.labels


def groups(replicas) -> Counter:
    def group(shape):
        if shape.spread:
            return f"spread {shape.spread[0].topology_key}"
        return "together" if shape.affinity else "apart" if shape.anti_affinity else "generic"

    return Counter(group(pending.shape) for pending in replicas)


def test_karpenters_pods_are_of_five_groups_and_the_rest_is_generic():
    found = groups(build("karpenter", 503).pods)
    each = dict.fromkeys([f"spread {ZONE}", f"spread {HOST}", "together", "apart"], 100)
    assert found == {**each, "generic": 103}


def test_without_the_anchor_nothing_forces_hosts_open():
    found = groups(build("no-anchor", 500).pods)
    assert found["apart"] == 0
    assert found["generic"] == 200


def test_pods_of_one_template_share_one_shape():
    replicas = build("one-label", 2_000).pods
    assert (
        len({id(pending.shape) for pending in replicas})
        == len({pending.shape for pending in replicas})
        <= 150
    )
    assert {dict(pending.shape.labels).get("my-label", "a") for pending in replicas} == {"a"}


def test_shapes_has_no_two_pods_alike():
    replicas = build("shapes", 1_000).pods
    assert len({pending.shape.requests for pending in replicas}) > 990
    assert max(amount(pending.shape.requests, "cpu") for pending in replicas) <= 4_000


def test_preferences_are_one_template_without_rules():
    (shape,) = {pending.shape for pending in build("preferences", 400).pods}
    assert [weight for weight, _ in shape.preferred_anti_affinity] == [10, 1]
    assert not shape.anti_affinity
    assert not shape.node_terms


def test_gpu_pods_come_in_their_shares_with_gangs_among_the_largest():
    stated = build("gpu", 2_000)
    gpus = Counter(amount(pending.shape.requests, GPU) for pending in stated.pods)
    assert gpus == {1: 1_000, 2: 400, 4: 300, 8: 300}
    gangs = Counter((pending.gang.name, pending.gang.size) for pending in stated.pods if pending.gang)
    assert all(size == members for (_, size), members in gangs.items())
    assert {size for _, size in gangs} == {2, 4, 8, 16}
    assert all(
        amount(pending.shape.requests, "vpc.amazonaws.com/efa") for pending in stated.pods if pending.gang
    )
    assert {f.group for f in stated.options if f.stock} == {"cr-short", "cr-long"}
    assert {pending.refuses for pending in stated.pods} == {frozenset(), frozenset({"cr-short"})}
    assert all(f.price > 0 for f in stated.options if not f.stock)


@pytest.mark.parametrize(
    ("usable", "fits"),
    [("307m", True), ("306m", False)],  # 7 minutes to boot, 4 h of work, 1 h to leave: to the minute
)
def test_a_pod_refuses_a_source_that_ends_before_it_would_be_gone(usable, fits):
    lasts = {"block": timedelta(minutes=int(usable[:-1]))}
    refuses = refused(timedelta(hours=4), timedelta(hours=1), lasts)
    assert refuses == (frozenset() if fits else frozenset({"block"}))


def test_a_pod_refuses_only_the_sources_that_end_too_soon():
    lasts = {"short": timedelta(hours=3), "long": timedelta(hours=9)}
    assert refused(timedelta(hours=4), timedelta(0), lasts) == {"short"}
    assert refused(timedelta(hours=4), timedelta(0), {}) == frozenset()


def test_pools_with_long_pods_refuse_the_short_blocks_of_every_pool():
    refusals = {len(pending.refuses) for pending in build("pools", 200).pods}
    assert refusals == {0, 8, 16}  # 1 h, 24 h and 100 h beside blocks of 12 h and 60 h in eight pools


def test_the_cluster_exists_and_is_partly_full():
    stated = build("cluster", 10)
    assert len(stated.nodes) == 5_000
    assert {existing.labels[ZONE] for existing in stated.nodes} == {
        "test-zone-1",
        "test-zone-2",
        "test-zone-3",
    }
    fullness = sorted(_fullness(existing) for existing in stated.nodes)
    assert fullness[-1] <= 0.95
    assert fullness[100] > 0.35  # the smallest types cannot always be filled
    for existing in stated.nodes:
        loners = [running for running in existing.existing_pods if running.shape.anti_affinity]
        assert sum(running.count for running in loners) <= 1


def _fullness(existing) -> float:
    cpus = int(existing.labels["integer"])
    capacity = {"cpu": cpus * 1000 - 100, "memory": cpus * 2 * 2**30 - 10 * 2**20, "pods": cpus * 10}
    return max(1 - int(existing.free[name]) / capacity[name] for name in capacity)


def test_two_of_the_eight_pools_reach_their_limits_in_the_middle_of_the_batch():
    stated = build("pools", 600)
    assert len(stated.budgets) == 8
    assert len(stated.stocks) == 24
    spent: Counter = Counter()
    for node in first_fit(stated).opened:
        spent[node.option.budget] += node.option.consumes["cpu"]
    reached = [pool for pool, limits in stated.budgets.items() if spent[pool] > 0.9 * limits["cpu"]]
    assert reached == ["pool-0", "pool-2"]
    assert spent["pool-7"] > 0
