"""Equal nodes are looked at once: they are found together, and whoever changes moves to where it belongs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.mixes import build
from tests.solver.problems import HOST, ask, asks, faults, flavour, place, problem, sound, spread, term
from tidemill.decide.packer.bin_index import Shelf
from tidemill.decide.packer.bins import Bin, refused_by
from tidemill.decide.packer.filler import Filler
from tidemill.decide.packer.pod_groups import gather
from tidemill.decide.packer.supply import Ground

SITE = ((), ("a",))


def a_bin(number: int, *free: int, refuses: int = 0) -> Bin:
    one = Bin(number, SITE, free)
    one.refuses = refuses
    return one


def test_bins_with_the_same_room_are_one_lot():
    shelf = Shelf()
    for number in range(3):
        shelf.add(a_bin(number, 500, 10))
    shelf.add(a_bin(3, 400, 10))
    assert sorted(len(lot.kinds[0]) for lot in shelf.lots.values()) == [1, 3]


def test_the_tightest_lots_that_have_enough_come_first():
    shelf = Shelf()
    for number, free in enumerate((500, 100, 300)):
        shelf.add(a_bin(number, free, 10))
    assert [lot.free[0] for lot in shelf.tightest(0, 200, 5)] == [300, 500]
    shelf.add(a_bin(3, 250, 10))  # the order is kept up to date
    assert [lot.free[0] for lot in shelf.tightest(0, 200, 5)] == [250, 300, 500]
    assert [lot.free[0] for lot in shelf.roomiest(0)] == [500, 300, 250, 100]


def test_a_shelf_knows_when_every_bin_refuses_somebody():
    shelf, lenient = Shelf(), a_bin(0, 500, 10)
    shelf.add(lenient)
    shelf.add(a_bin(1, 500, 10, refuses=0b1))
    assert shelf.puts_up_with(0b1)
    shelf.remove(lenient)
    assert not shelf.puts_up_with(0b1)
    assert shelf.puts_up_with(0b10)


@settings(max_examples=50, derandomize=True, database=None)
@given(st.lists(st.integers(0, 5), max_size=8))
def test_what_a_bin_refuses_as_pods_come_is_what_it_refuses_when_asked_from_scratch(order):
    stated = problem(
        [
            ask("one", labels={"app": "x"}, anti_affinity=(term(HOST, app="x"),)),
            ask("two", labels={"app": "x"}),
            ask("few", labels={"app": "y"}, spread=(spread(HOST, {"app": "y"}, skew=2),)),
            ask("any", labels={"app": "y"}),
            ask("shy", labels={"app": "z"}, anti_affinity=(term(HOST, app="y"),)),
            ask("free"),
        ],
        flavours=(flavour(cpu=10_000),),
    )
    found = gather(stated)
    ground = Ground(stated, found)
    one = Filler(ground, found.weights).draft_node(found.crowds[0], ground.strata[0], 0)
    for number in order:
        crowd = found.crowds[number]
        content = all(
            one.counts.get(counter, 0) + own <= cap for counter, cap, own in crowd.host_caps
        ) and all(one.counts.get(c, 0) < one.caps[c] for c in crowd.host_moves if c in one.caps)
        assert (not one.refuses & crowd.minds) == content
        one.meet(crowd, 1)
        assert one.refuses == refused_by(one, found.steps)


def test_opening_many_alike_leaves_room_in_the_limits_for_nobody_else():
    stated = problem(
        asks(9),
        flavours=(
            flavour("free", capacity={"cpu": 3000, "pods": 2}, price=0.0, budget="p", consumes={"cpu": 3000}),
            flavour(
                "dear", capacity={"cpu": 4000, "pods": 10}, price=3.6, budget="p", consumes={"cpu": 4000}
            ),
        ),
        budgets={"p": {"cpu": 12_000}},
    )
    assert faults(stated) == []  # growing a node is asked of the limits as they are by then


def test_a_lopsided_cluster_leaves_nobody_who_is_spread_without_a_zone():
    assert not sound(build("cluster", 1_000)).unplaced


def test_nodes_that_are_there_are_all_looked_at_before_one_is_opened():
    full = [place(f"n{number}", free={"cpu": 1000 + number, "memory": 0, "pods": 10}) for number in range(60)]
    roomy = place("roomy", free={"cpu": 5000, "memory": 100, "pods": 10})
    stated = problem(
        [ask(requests={"cpu": 100, "memory": 50})],
        places=(*full, roomy),
        flavours=(flavour(capacity={"cpu": 9000, "memory": 100, "pods": 10}),),
    )
    assert list(sound(stated).existing) == [60]
