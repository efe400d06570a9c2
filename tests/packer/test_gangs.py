"""The packer places gangs whole or not at all, in one zone and on one source, and they block no smaller pods."""

from __future__ import annotations

import pytest

from tests.packer import problems as make
from tests.packer.problems import HOST, SOURCE, ZONE, problem, sound, unplaced_ids, where

pytestmark = pytest.mark.requirement("PE-11")


def gang(count, name="gang", size=None, each=8, cpu=1, **rest):
    """Members that take a whole node of eight GPUs by default."""
    return make.replicas(count, name, gang=name, size=size or count, gpus=each, cpu=cpu, **rest)


def block(zone="a", source="cr-1", price=0.0, name="p5", **rest):
    return make.gpus(name, 8, price, zone, labels={SOURCE: source}, stock=source, efa=32, **rest)


def node(name, zone="a", source="cr-1", free=8, **rest):
    held = {"cpu": 96_000, "nvidia.com/gpu": free, "vpc.amazonaws.com/efa": 32, "pods": 50}
    return make.existing(name, zone, labels={SOURCE: source}, free=held, **rest)


# --- all members or none ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("stock", "placed"), [(4, 4), (5, 4), (3, 0), (0, 0)])
def test_a_gang_runs_whole_or_not_at_all(stock, placed):
    stated = problem(gang(4), [], [block()], stocks={"cr-1": stock})
    assert len(stated.pods) - len(sound(stated).unplaced) == placed


def test_a_gang_with_missing_members_waits():
    assert unplaced_ids(problem(gang(3, size=4), [], [block()], stocks={"cr-1": 9})) == {
        "gang0",
        "gang1",
        "gang2",
    }


def test_a_gang_that_does_not_fit_does_not_block_smaller_pods():
    single = make.replicas(3, "single", gpus=8, cpu=1)
    stated = problem([*gang(4), *single], [], [block()], stocks={"cr-1": 3})
    assert unplaced_ids(stated) == {"gang0", "gang1", "gang2", "gang3"}
    smaller = problem([*gang(4), *gang(3, "other")], [], [block()], stocks={"cr-1": 3})
    assert unplaced_ids(smaller) == {"gang0", "gang1", "gang2", "gang3"}


def test_of_two_gangs_that_do_not_both_fit_one_runs_whole():
    stated = problem([*gang(3, "one"), *gang(3, "two")], [], [block()], stocks={"cr-1": 5})
    assert unplaced_ids(stated) in ({"one0", "one1", "one2"}, {"two0", "two1", "two2"})


def test_the_gang_with_the_higher_priority_goes_first_then_the_older_one():
    two = [*gang(2, "low"), *gang(2, "high", priority=1)]
    assert unplaced_ids(problem(two, [], [block()], stocks={"cr-1": 2})) == {"low0", "low1"}
    two = [*gang(2, "young", pending_since=9.0), *gang(2, "old", pending_since=1.0)]
    assert unplaced_ids(problem(two, [], [block()], stocks={"cr-1": 3})) == {"young0", "young1"}


def test_a_single_pod_of_a_higher_priority_goes_before_a_gang():
    pods = [*gang(2), make.pending("urgent", gpus=8, cpu=1, priority=9)]
    assert unplaced_ids(problem(pods, [], [block()], stocks={"cr-1": 2})) == {"gang0", "gang1"}


def test_gangs_of_one_name_in_two_namespaces_are_two():
    pods = [*gang(2, namespace="one"), *gang(2, namespace="two")]
    assert len(unplaced_ids(problem(pods, [], [block()], stocks={"cr-1": 3}))) == 2


# --- one zone, one source ---------------------------------------------------------------------------------


def test_a_gang_is_not_split_over_zones():
    halves = [block("a", "cr-1"), block("b", "cr-2")]
    assert len(unplaced_ids(problem(gang(4), [], halves, stocks={"cr-1": 2, "cr-2": 2}))) == 4
    assert set(where(problem(gang(4), [], halves, stocks={"cr-1": 3, "cr-2": 4}))) == {
        f"p5@b:{n}" for n in range(4)
    }


def test_a_gang_is_not_split_over_sources():
    halves = [block(source="cr-1"), block(source="cr-2")]
    assert len(unplaced_ids(problem(gang(4), [], halves, stocks={"cr-1": 2, "cr-2": 3}))) == 4
    assert unplaced_ids(problem(gang(4), [], halves, stocks={"cr-1": 2, "cr-2": 4})) == set()
    existing_nodes = [node("n1"), node("n2"), node("n3", source="cr-2")]
    assert len(unplaced_ids(problem(gang(3), existing_nodes))) == 3


def test_a_gang_uses_existing_nodes_and_opens_the_rest():
    existing_nodes = [node("n1"), node("n2", "b", "cr-2"), node("n3")]
    stated = problem(gang(4), existing_nodes, [block(), block("b", "cr-2")], stocks={"cr-1": 2, "cr-2": 3})
    assert sorted(where(stated)) == ["n1", "n3", "p5@a:0", "p5@a:1"]


def test_a_gang_may_use_several_types_of_one_source():
    types = [
        make.gpus("p5", 8, 10.0, stock="p5", labels={SOURCE: "odcr"}),
        make.gpus("p4", 8, 12.0, stock="p4", labels={SOURCE: "odcr"}),
    ]
    assert sorted(word[:2] for word in where(problem(gang(4), [], types, stocks={"p5": 2, "p4": 2}))) == [
        "p4", "p4", "p5", "p5",
    ]  # fmt: skip


def test_a_gang_goes_where_it_is_cheapest():
    offered = [block("a", "od-a", 20.0), block("b", "od-b", 10.0)]
    stated = problem(gang(2), [], offered, stocks={"od-a": 9, "od-b": 9})
    assert set(where(stated)) == {"p5@b:0", "p5@b:1"}


def test_a_gang_takes_a_lower_rank_before_a_lower_price():
    offered = [block("a", "cr-1", 20.0, rank=(0,)), block("b", "cr-2", 10.0, rank=(1,))]
    stated = problem(gang(2), [], offered, stocks={"cr-1": 9, "cr-2": 9})
    assert set(where(stated)) == {"p5@a:0", "p5@a:1"}


# --- what gang members request ----------------------------------------------------------------------------


def test_a_gang_that_asks_for_efa_gets_nodes_that_have_it():
    plain = make.gpus("plain", 8, 1.0, labels={SOURCE: "od"})
    stated = problem(gang(2, efa=32), [], [plain, block(price=9.0)], stocks={"cr-1": 9})
    assert set(where(stated)) == {"p5@a:0", "p5@a:1"}
    assert len(unplaced_ids(problem(gang(2, efa=32), [], [plain]))) == 2


def test_members_share_nodes_where_they_fit():
    stated = problem(gang(4, each=4), [], [block()], stocks={"cr-1": 2})
    assert len(sound(stated).opened) == 2


def test_a_leader_and_its_workers_are_one_gang():
    leader = make.pending("leader", gang="gang", size=4, cpu=4000)
    workers = gang(3, size=4)
    stated = problem([leader, *workers], [], [block()], stocks={"cr-1": 3})
    assert unplaced_ids(stated) == set()
    assert len(unplaced_ids(problem([leader, *workers], [], [block()], stocks={"cr-1": 2}))) == 4
    existing_nodes = [node("n1"), node("n2"), node("n3")]
    assert unplaced_ids(problem([leader, *workers], existing_nodes)) == set()


def test_leader_and_workers_do_not_count_the_same_stock_twice():
    leader, workers = make.pending("leader", gang="gang", size=3, gpus=8, cpu=9), gang(2, size=3)
    assert len(unplaced_ids(problem([leader, *workers], [], [block()], stocks={"cr-1": 2}))) == 3


def test_gang_members_with_anti_affinity_get_a_node_each():
    alone = {"labels": {"job": "x"}, "anti_affinity": (make.term(HOST, job="x"),)}
    stated = problem(gang(3, each=1, **alone), [], [block()], stocks={"cr-1": 3})
    assert len(set(where(stated))) == 3
    assert len(unplaced_ids(problem(gang(3, each=1, **alone), [], [block()], stocks={"cr-1": 2}))) == 3


def test_gang_members_with_the_same_host_port_get_a_node_each():
    stated = problem(gang(3, each=1, host_ports=(("TCP", 29500, ""),)), [], [block()], stocks={"cr-1": 3})
    assert len(set(where(stated))) == 3


def test_a_gang_waits_when_it_refuses_the_only_block():
    ending = block(group="ends-soon")
    assert unplaced_ids(problem(gang(2), [], [ending], stocks={"cr-1": 2})) == set()
    assert len(unplaced_ids(problem(gang(2, refuses=["ends-soon"]), [], [ending], stocks={"cr-1": 2}))) == 2


@pytest.mark.requirement("PE-5")
def test_a_gang_stays_within_the_limits_or_waits():
    limited = block(budget="pool", consumes={"gpus": 8})
    for left, waiting in ((24, 0), (23, 3)):
        stated = problem(gang(3), [], [limited], stocks={"cr-1": 9}, budgets={"pool": {"gpus": left}})
        assert len(sound(stated).unplaced) == waiting


# --- gangs and other pods ---------------------------------------------------------------------------------


def test_single_pods_use_what_a_gang_leaves_on_its_nodes():
    pods = [*gang(2, each=6), *make.replicas(2, "single", gpus=2, cpu=1)]
    assert len(sound(problem(pods, [], [block()], stocks={"cr-1": 9})).opened) == 2


def test_pods_with_anti_affinity_to_a_gang_keep_off_its_nodes_and_zones():
    for key, offered in ((HOST, [block()]), (ZONE, [block(), block("b", "cr-2")])):
        wary = make.replicas(2, "wary", cpu=1, anti_affinity=(make.term(key, job="x"),))
        stated = problem(
            [*gang(2, each=1, labels={"job": "x"}), *wary], [], offered, stocks={"cr-1": 9, "cr-2": 9}
        )
        assert unplaced_ids(stated) == set()


def test_a_gang_with_anti_affinity_keeps_off_the_nodes_of_others():
    existing_nodes = [node("n1", existing_pods=(make.running(labels={"job": "x"}),)), node("n2")]
    for key, placed in ((HOST, True), (ZONE, False)):
        stated = problem(gang(2, each=1, anti_affinity=(make.term(key, job="x"),)), existing_nodes)
        assert (unplaced_ids(stated) == set()) is placed


def test_gang_members_count_for_the_spread_of_other_pods():
    dealt = make.replicas(4, "web", cpu=1, labels={"app": "x"}, spread=(make.spread(ZONE, {"app": "x"}),))
    offered = [block(), make.option("m", "b")]
    stated = problem([*gang(4, labels={"app": "x"}), *dealt], [], offered, stocks={"cr-1": 9})
    assert [word[:3] for word in where(stated)][4:] == ["m@b"] * 4
