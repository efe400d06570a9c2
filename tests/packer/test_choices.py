"""What the packer chooses where several solutions are sound: priority, existing nodes, rank, price."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.packer import problems as make
from tests.packer.problems import ZONE, kind_of, problem, sound, unplaced_ids, where

# --- which pods first -------------------------------------------------------------------------------------


def test_the_pod_with_the_higher_priority_gets_the_last_node():
    pods = [
        make.pending("low", cpu=9000),
        make.pending("high", cpu=2000, priority=5),
        make.pending("mid", cpu=9000, priority=1),
    ]
    assert unplaced_ids(problem(pods, [make.existing()])) == {"low", "mid"}
    assert unplaced_ids(problem(pods, [make.existing(), make.existing("n2")])) == {"low"}


def test_of_equal_pods_the_oldest_gets_the_last_node():
    pods = [
        make.pending("young", cpu=6000, pending_since=200.0),
        make.pending("old", cpu=6000, pending_since=100.0),
    ]
    assert unplaced_ids(problem(pods, [make.existing()])) == {"young"}
    alike = [replace(pods[0], id="young"), replace(pods[0], id="old", pending_since=100.0)]  # of one template
    assert unplaced_ids(problem(alike, [make.existing()])) == {"young"}


def test_a_pod_that_fits_nowhere_does_not_block_smaller_ones():
    pods = [make.pending("giant", cpu=99_000, priority=9), *make.replicas(3)]
    assert unplaced_ids(problem(pods, [make.existing()], [make.option("m")])) == {"giant"}


def test_the_pod_with_one_choice_gets_it_before_a_pod_with_two():
    prepaid = make.option("block", price=0.0, stock="cr-1", rank=(0,))
    hourly = make.option("hourly", price=1.0, group="hourly", rank=(1,))
    pods = [make.pending("modest", cpu=9000, refuses=["hourly"]), make.pending("eager", cpu=9000)]
    for order in (pods, pods[::-1]):
        assert unplaced_ids(problem(order, [], [prepaid, hourly], stocks={"cr-1": 1})) == set()


# --- existing nodes first ---------------------------------------------------------------------------------


@pytest.mark.requirement("PE-3")
def test_a_node_is_opened_only_for_pods_that_fit_on_no_existing_node():
    assert kind_of(problem(make.replicas(3, cpu=4000), [make.existing()], [make.option("m", price=0.0)])) == [
        "n1",
        "n1",
        "m",
    ]


def test_a_node_on_its_way_is_used_before_a_new_one():
    coming = make.existing("coming", rank=(1,))
    new = make.option("m", rank=(2,))
    assert where(problem(make.replicas(2, cpu=5000), [coming], [new])) == ["coming", "coming"]


def test_existing_nodes_are_used_in_the_order_of_their_rank():
    existing_nodes = [
        make.existing("hourly", rank=(2,)),
        make.existing("block", rank=(0,)),
        make.existing("odcr", rank=(1,)),
    ]
    assert where(problem(make.replicas(3, cpu=6000), existing_nodes)) == ["block", "odcr", "hourly"]


def test_a_small_pod_goes_to_the_fullest_node_that_fits():
    existing_nodes = [make.existing("empty"), make.existing("nearly-full", free={"cpu": 150, "pods": 9})]
    assert where(problem([make.pending(cpu=100)], existing_nodes)) == ["nearly-full"]


# --- then rank, then price --------------------------------------------------------------------------------


def test_a_lower_rank_is_used_up_before_the_next_whatever_the_price():
    first = make.option("first", price=9.0, rank=(0,), stock="few")
    offered = [make.option("second", price=1.0, rank=(1,)), first]
    assert kind_of(problem(make.replicas(3, cpu=9000), [], offered, stocks={"few": 2})) == [
        "first",
        "first",
        "second",
    ]


def test_prepaid_capacity_goes_first_and_the_rest_overflows():
    block = make.gpus("block", 8, 0.0, stock="cr-1", rank=(0,), group="block")
    hourly = make.gpus("hourly", 8, 50.0, rank=(1,))
    pods = [*make.replicas(3, gpus=8, cpu=1), make.pending("long", gpus=8, cpu=1, refuses=["block"])]
    got = kind_of(problem(pods, [], [hourly, block], stocks={"cr-1": 2}))
    assert sorted(got[:3]) == ["block", "block", "hourly"]
    assert got[3] == "hourly"


@pytest.mark.requirement("PE-4")
def test_the_cheapest_type_that_fits_is_opened_whatever_the_order_of_the_offers():
    types = [make.gpus("one", 1, 1.0), make.gpus("four", 4, 5.0), make.gpus("eight", 8, 9.0)]
    for offered in (types, types[::-1]):
        assert kind_of(problem([make.pending(gpus=1)], [], offered)) == ["one"]
        assert kind_of(problem([make.pending(gpus=3)], [], offered)) == ["four"]
        assert kind_of(problem([make.pending(gpus=5)], [], offered)) == ["eight"]


@pytest.mark.requirement("PE-4")
@pytest.mark.parametrize("of", [{"budget": "pool"}, {"stock": "few"}, {"taints": ()}])
def test_the_cheapest_is_taken_among_pools_and_sources_of_one_rank(of):
    dear, cheap = make.option("dear", price=5.0, **of), make.option("cheap", price=1.0)
    for offered in ([dear, cheap], [cheap, dear]):
        stated = problem([make.pending()], [], offered, stocks={"few": 9}, budgets={"pool": {}})
        assert kind_of(stated) == ["cheap"]


@pytest.mark.requirement("PE-4")
def test_the_cheapest_zone_is_taken_where_any_will_do():
    assert where(
        problem([make.pending()], [], [make.option("m", "a", price=2.0), make.option("m", "b", price=1.0)])
    ) == ["m@b:0"]


@pytest.mark.requirement("PE-4")
def test_at_the_same_price_the_fewest_gpus_are_wasted():
    types = [make.gpus("eight", 8, 0.0), make.gpus("two", 2, 0.0), make.gpus("four", 4, 0.0)]
    assert kind_of(problem([make.pending(gpus=2)], [], types)) == ["two"]
    stocked = [replace(instance_type, stock=instance_type.name) for instance_type in types]
    assert kind_of(
        problem([make.pending(gpus=2)], [], stocked, stocks={"two": 1, "four": 1, "eight": 1})
    ) == ["two"]


@pytest.mark.requirement("PE-4")
def test_one_larger_node_where_it_is_cheaper_than_two_small_ones():
    pods = make.replicas(2, cpu=6000)
    assert kind_of(
        problem(pods, [], [make.option("s", cpu=6000, price=3.0), make.option("l", cpu=12_000, price=5.0)])
    ) == [
        "l",
        "l",
    ]
    assert kind_of(
        problem(pods, [], [make.option("s", cpu=6000, price=2.0), make.option("l", cpu=12_000, price=5.0)])
    ) == [
        "s",
        "s",
    ]


def test_small_pods_fill_the_gaps_of_large_ones():
    pods = [*make.replicas(4, "large", cpu=7000), *make.replicas(12, "small", cpu=1000)]
    assert len(sound(problem(pods, [], [make.option("m")])).opened) == 4


# --- stocks and limits ------------------------------------------------------------------------------------


def test_a_stock_shared_by_several_options_is_not_exceeded():
    offered = [
        make.option("s", "a", cpu=1000, stock="cr"),
        make.option("l", "a", stock="cr", price=2.0),
        make.option("s", "b", cpu=1000, stock="cr"),
    ]
    stated = problem(
        [*make.replicas(3, cpu=1000), *make.replicas(3, "large", cpu=10_000)], [], offered, stocks={"cr": 4}
    )
    assert len(sound(stated).opened) == 4


def test_a_stock_that_is_used_up_sends_the_rest_to_the_next_source():
    offered = [make.option("first", stock="few"), make.option("second", price=3.0)]
    assert sorted(kind_of(problem(make.replicas(3, cpu=9000), [], offered, stocks={"few": 1}))) == [
        "first", "second", "second",
    ]  # fmt: skip


@pytest.mark.requirement("PE-5")
@pytest.mark.parametrize("limit", ["cpu", "memory", "nvidia.com/gpu", "nodes"])
def test_a_limit_is_not_exceeded_by_one_batch(limit):
    one = make.option("m", budget="pool", consumes={limit: 3})
    for left, opened in ((9, 3), (8, 2), (2, 0), (0, 0), (-5, 0)):
        stated = problem(make.replicas(5, cpu=9000), [], [one], budgets={"pool": {limit: left}})
        assert len(sound(stated).opened) == opened


@pytest.mark.requirement("PE-5")
def test_a_limit_holds_over_all_zones_and_types_of_a_pool():
    offered = [
        make.option(name, zone, cpu=cpu, price=cpu / 1000, budget="pool", consumes={"cpu": cpu})
        for name, cpu in (("s", 2000), ("l", 8000))
        for zone in "abc"
    ]
    pods = [
        *make.replicas(9, cpu=2000, volume_zones=("a",)),
        *make.replicas(9, "b", cpu=2000, volume_zones=("b",)),
    ]
    stated = problem(pods, [], offered, budgets={"pool": {"cpu": 20_000}})
    assert len(sound(stated).unplaced) == 8


@pytest.mark.requirement("PE-5")
def test_within_a_limit_a_smaller_type_is_taken_though_it_is_dearer():
    offered = [
        make.option("large", cpu=8000, price=1.0, budget="pool", consumes={"cpu": 8000}),
        make.option("small", cpu=2000, price=2.0, budget="pool", consumes={"cpu": 2000}),
    ]
    assert kind_of(problem([make.pending(cpu=1000)], [], offered, budgets={"pool": {"cpu": 4000}})) == [
        "small"
    ]


@pytest.mark.requirement("PE-5")
@pytest.mark.parametrize("gang", [None, "gang"])
@pytest.mark.parametrize(("left", "opened"), [(1999, 0), (2000, 1), (3000, 1), (5000, 2), (6000, 2)])
def test_a_larger_type_that_is_cheaper_does_not_lead_beyond_the_limit(gang, left, opened):
    offered = [
        make.option("large", cpu=3000, price=0.5, budget="pool", consumes={"cpu": 3000}),
        make.option("small", cpu=2000, price=1.0, budget="pool", consumes={"cpu": 2000}),
    ]
    pods = (
        make.replicas(2, cpu=1600)
        if gang is None
        else [make.pending(f"g{n}", cpu=1600, gang=f"g{n}", size=1) for n in range(2)]
    )
    assert len(sound(problem(pods, [], offered, budgets={"pool": {"cpu": left}})).opened) == opened


@pytest.mark.requirement("PE-5")
def test_a_node_does_not_grow_into_a_type_beyond_the_limit():
    offered = [
        make.option(name, cpu=cpu, price=price, budget="pool", consumes={"cpu": cpu})
        for name, cpu, price in (("one", 1000, 0.5), ("two", 2000, 0.0), ("three", 3000, 0.0))
    ]
    pods = [make.pending("gang", cpu=100, gang="gang", size=1), *make.replicas(2, cpu=500)]
    stated = problem(pods, [], offered, budgets={"pool": {"cpu": 1000}})
    assert sorted(kind_of(stated)) == ["-", "one", "one"]


@pytest.mark.requirement("PE-5")
def test_a_pool_at_its_limit_sends_the_rest_to_the_next_pool():
    offered = [
        make.option("first", rank=(0,), budget="p1", consumes={"nodes": 1}),
        make.option("second", rank=(1,), budget="p2", consumes={"nodes": 1}, price=9.0),
    ]
    stated = problem(
        make.replicas(4, cpu=9000), [], offered, budgets={"p1": {"nodes": 1}, "p2": {"nodes": 2}}
    )
    assert kind_of(stated) == ["first", "second", "second", "-"]


def test_a_limit_that_does_not_name_a_resource_does_not_limit_it():
    one = make.option("m", budget="pool", consumes={"cpu": 10_000, "nodes": 1})
    assert (
        unplaced_ids(problem(make.replicas(3, cpu=9000), [], [one], budgets={"pool": {"memory": 1}})) == set()
    )


# --- edge cases -------------------------------------------------------------------------------------------


def test_without_pods_no_node_is_opened():
    assert sound(problem([], [make.existing()], [make.option("m")])).opened == []
    assert where(problem([make.pending()])) == ["-"]


def test_every_unplaced_pod_has_a_reason():
    reasons = list(sound(problem(make.replicas(2), [], [])).unplaced.values())
    assert len(reasons) == 2
    assert all(reasons)


def test_a_zone_named_by_a_selector_is_opened():
    stated = problem([make.pending(selector={ZONE: "c"})], [], [make.option("m", zone) for zone in "abc"])
    assert where(stated) == ["m@c:0"]
