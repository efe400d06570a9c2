"""The mixes are what they claim to be: Karpenter's numbers, shares, sharing of objects, reached limits."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from benchmarks.first_fit import first_fit
from benchmarks.mixes import MIXES, build
from benchmarks.mixes.end_times import refused
from tests.bench.problems import HOST, ZONE
from tidemill.model.errors import SpecError
from tidemill.model.resources import amount

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize("mix", MIXES)
def test_a_mix_has_so_many_pods_and_is_the_same_every_time(mix):
    assert len(build(mix, 203).asks) == 203
    assert build(mix, 203, seed=7) == build(mix, 203, seed=7)


def test_another_seed_draws_other_pods():
    assert build("karpenter", 50, seed=1).asks != build("karpenter", 50, seed=2).asks


def test_an_unknown_mix_is_the_users_mistake():
    with pytest.raises(SpecError, match="unknown mix 'karpentr'; there are: karpenter, preferences"):
        build("karpentr", 5)


def test_karpenters_types_come_in_five_offerings_at_one_price():
    flavours = build("karpenter", 5).flavours
    assert len(flavours) == 2_000
    fifth = [f for f in flavours if f.name == "fake-it-4"]
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
    fourth = next(f for f in flavours if f.name == "fake-it-3")
    assert fourth.labels["size"] == "small"
    assert "special" not in fourth.labels


def groups(asks) -> Counter:
    def group(shape):
        if shape.spread:
            return f"spread {shape.spread[0].topology_key}"
        return "together" if shape.affinity else "apart" if shape.anti_affinity else "generic"

    return Counter(group(ask.shape) for ask in asks)


def test_karpenters_pods_are_of_five_groups_and_the_rest_is_generic():
    found = groups(build("karpenter", 503).asks)
    each = dict.fromkeys([f"spread {ZONE}", f"spread {HOST}", "together", "apart"], 100)
    assert found == {**each, "generic": 103}


def test_without_the_anchor_nothing_forces_hosts_open():
    found = groups(build("no-anchor", 500).asks)
    assert found["apart"] == 0
    assert found["generic"] == 200


def test_pods_of_one_template_share_one_shape():
    asks = build("one-label", 2_000).asks
    assert len({id(ask.shape) for ask in asks}) == len({ask.shape for ask in asks}) <= 150
    assert {dict(ask.shape.labels).get("my-label", "a") for ask in asks} == {"a"}


def test_shapes_has_no_two_pods_alike():
    asks = build("shapes", 1_000).asks
    assert len({ask.shape.requests for ask in asks}) > 990
    assert max(amount(ask.shape.requests, "cpu") for ask in asks) <= 4_000


def test_preferences_are_one_template_with_wishes_only():
    (shape,) = {ask.shape for ask in build("preferences", 400).asks}
    assert [weight for weight, _ in shape.preferred_anti_affinity] == [10, 1]
    assert not shape.anti_affinity
    assert not shape.node_terms


def test_gpu_pods_come_in_their_shares_with_gangs_among_the_largest():
    stated = build("gpu", 2_000)
    gpus = Counter(amount(ask.shape.requests, GPU) for ask in stated.asks)
    assert gpus == {1: 1_000, 2: 400, 4: 300, 8: 300}
    gangs = Counter((ask.gang.name, ask.gang.size) for ask in stated.asks if ask.gang)
    assert all(size == members for (_, size), members in gangs.items())
    assert {size for _, size in gangs} == {2, 4, 8, 16}
    assert all(amount(ask.shape.requests, "vpc.amazonaws.com/efa") for ask in stated.asks if ask.gang)
    assert {f.group for f in stated.flavours if f.stock} == {"cr-short", "cr-long"}
    assert {ask.refuses for ask in stated.asks} == {frozenset(), frozenset({"cr-short"})}
    assert all(f.price > 0 for f in stated.flavours if not f.stock)


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
    refusals = {len(ask.refuses) for ask in build("pools", 200).asks}
    assert refusals == {0, 8, 16}  # 1 h, 24 h and 100 h beside blocks of 12 h and 60 h in eight pools


def test_the_cluster_is_there_and_partly_full():
    stated = build("cluster", 10)
    assert len(stated.places) == 5_000
    assert {place.labels[ZONE] for place in stated.places} == {"test-zone-1", "test-zone-2", "test-zone-3"}
    fullness = sorted(_fullness(place) for place in stated.places)
    assert fullness[-1] <= 0.95
    assert fullness[100] > 0.35  # the smallest types cannot always be filled
    for place in stated.places:
        loners = [resident for resident in place.residents if resident.shape.anti_affinity]
        assert sum(resident.count for resident in loners) <= 1


def _fullness(place) -> float:
    cpus = int(place.labels["integer"])
    capacity = {"cpu": cpus * 1000 - 100, "memory": cpus * 2 * 2**30 - 10 * 2**20, "pods": cpus * 10}
    return max(1 - int(place.free[name]) / capacity[name] for name in capacity)


def test_two_of_the_eight_pools_reach_their_limits_in_the_middle_of_the_batch():
    stated = build("pools", 600)
    assert len(stated.budgets) == 8
    assert len(stated.stocks) == 24
    spent: Counter = Counter()
    for node in first_fit(stated).opened:
        spent[node.flavour.budget] += node.flavour.consumes["cpu"]
    reached = [pool for pool, limits in stated.budgets.items() if spent[pool] > 0.9 * limits["cpu"]]
    assert reached == ["pool-0", "pool-2"]
    assert spent["pool-7"] > 0
