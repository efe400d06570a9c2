"""Equal bins are one class in the index, and a bin that changes moves to another class."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.packer import problems as make
from tests.packer.problems import HOST, faults, problem, sound
from tidemill.bench.mixes import build
from tidemill.decide.packer import bins
from tidemill.decide.packer.bins import Bin, BinIndex, blocked_bits
from tidemill.decide.packer.packing_state import PackingState
from tidemill.decide.packer.pod_groups import group_pods
from tidemill.decide.packer.supply import Supply

SITE = ((), ("a",))


def a_bin(number: int, *free: int, blocked: int = 0) -> Bin:
    bin = Bin(number, SITE, free)
    bin.blocked = blocked
    return bin


def test_bins_with_the_same_free_vector_are_one_class():
    index = BinIndex((1, 0))
    for number in range(3):
        index.add(a_bin(number, 500, 10))
    index.add(a_bin(3, 400, 10))
    assert sorted(len(bins.variants[0]) for bins in index.classes.values()) == [1, 3]


def test_the_tightest_classes_that_have_enough_come_first():
    index = BinIndex((1, 0))
    for number, free in enumerate((500, 100, 300)):
        index.add(a_bin(number, free, 10))
    assert [bins.free[0] for bins in index.tightest(0, 200, 5)] == [300, 500]
    index.add(a_bin(3, 250, 10))  # the order is kept up to date
    assert [bins.free[0] for bins in index.tightest(0, 200, 5)] == [250, 300, 500]
    assert [bins.free[0] for bins in index.roomiest(0)] == [500, 300, 250, 100]


@settings(max_examples=50, derandomize=True, database=None)
@given(st.lists(st.integers(0, 5), max_size=8))
def test_the_bits_a_bin_keeps_up_to_date_equal_those_worked_out_from_scratch(order):
    stated = problem(
        [
            make.pending("one", labels={"app": "x"}, anti_affinity=(make.term(HOST, app="x"),)),
            make.pending("two", labels={"app": "x"}),
            make.pending("few", labels={"app": "y"}, spread=(make.spread(HOST, {"app": "y"}, skew=2),)),
            make.pending("any", labels={"app": "y"}),
            make.pending("shy", labels={"app": "z"}, anti_affinity=(make.term(HOST, app="y"),)),
            make.pending("free"),
        ],
        options=(make.option(cpu=10_000),),
    )
    grouped = group_pods(stated)
    supply = Supply(stated, grouped)
    bin = PackingState(supply, grouped.weights).new_bin(grouped.groups[0], supply.option_groups[0], 0)
    for number in order:
        group = grouped.groups[number]
        allowed = all(
            bin.counts.get(counter, 0) + own <= limit for counter, limit, own in group.host_limits
        ) and all(bin.counts.get(c, 0) < bin.limits[c] for c in group.host_counted_by if c in bin.limits)
        assert (not bin.blocked & group.blocked_by) == allowed
        bin.count_pods(group, 1)
        assert bin.blocked == blocked_bits(bin, grouped.thresholds)


def test_nodes_opened_as_copies_count_against_the_limits():
    stated = problem(
        make.replicas(9),
        options=(
            make.option(
                "free", capacity={"cpu": 3000, "pods": 2}, price=0.0, budget="p", consumes={"cpu": 3000}
            ),
            make.option(
                "dear", capacity={"cpu": 4000, "pods": 10}, price=3.6, budget="p", consumes={"cpu": 4000}
            ),
        ),
        budgets={"p": {"cpu": 12_000}},
    )
    assert faults(stated) == []  # the limits are checked again when a node grows


def test_pods_with_a_zone_spread_are_all_placed_in_an_uneven_cluster():
    assert not sound(build("cluster", 1_000)).unplaced


def test_all_existing_nodes_are_tried_before_one_is_opened():
    full = [
        make.existing(f"n{number}", free={"cpu": 1000 + number, "memory": 0, "pods": 10})
        for number in range(60)
    ]
    roomy = make.existing("roomy", free={"cpu": 5000, "memory": 100, "pods": 10})
    stated = problem(
        [make.pending(requests={"cpu": 100, "memory": 50})],
        nodes=(*full, roomy),
        options=(make.option(capacity={"cpu": 9000, "memory": 100, "pods": 10}),),
    )
    assert list(sound(stated).existing) == [60]


def test_a_class_with_room_is_found_behind_many_that_lack_something_else():
    index = BinIndex((1, 2, 0))
    for number in range(100):
        index.add(a_bin(number, 300 + number, 0, 10))  # enough of the first dimension and none of the second
    index.add(a_bin(100, 900, 500, 10))
    index.add(a_bin(101, 700, 200, 10))
    assert [bins.free[0] for bins in index.fullest(((0, 300), (1, 100), (2, 1)), 24)] == [700, 900]


def test_a_pod_finds_the_new_node_with_room_among_hundreds_that_are_full_of_memory():
    hosts = [make.pending(f"host-{n}", requests={"cpu": 10, "memory": 1000 - n % 7}, labels={"app": "x"},
                          anti_affinity=(make.term(HOST, app="x"),)) for n in range(300)]  # fmt: skip
    roomy = make.pending("roomy", requests={"cpu": 900, "memory": 10}, labels={"app": "x"},
                         anti_affinity=(make.term(HOST, app="x"),))  # fmt: skip
    small = make.pending("small", requests={"cpu": 90, "memory": 500})
    stated = problem(
        [*hosts, roomy, small], options=(make.option(capacity={"cpu": 1000, "memory": 1000, "pods": 9}),)
    )
    assert len(sound(stated).opened) == 301


@settings(max_examples=30, derandomize=True, database=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=300), st.integers(0, 80)
)
def test_an_order_in_blocks_is_that_of_a_sorted_list_whatever_comes_and_goes(frees, wanted):
    was, bins._BLOCK = bins._BLOCK, 4
    try:
        index = BinIndex((1, 1, 0))
        index.fullest(((0, 1), (1, 1), (2, 1)), 1)  # from now on it is kept up to date
        there: dict[int, Bin] = {}
        for number, (cpu, memory) in enumerate(frees):
            there[number] = a_bin(number, cpu, memory, 10)
            index.add(there[number])
            if number % 3 == 2:
                index.remove(there.pop(number // 2)) if number // 2 in there else None
        found = [one.free for one in index.fullest(((0, wanted), (1, 0), (2, 1)), 1_000)]
        expected = sorted({sum(bin.free[:2]) for bin in there.values() if sum(bin.free[:2]) >= wanted})
        assert sorted(found) == sorted({bin.free for bin in there.values() if sum(bin.free[:2]) >= wanted})
        assert list(dict.fromkeys(sum(free[:2]) for free in found)) == expected
        assert len(list(index.roomiest(0))) == len({bin.free for bin in there.values()})
    finally:
        bins._BLOCK = was
