"""The packer keeps topology spread over zones, hosts and any label, existing pods included."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.packer import problems as make
from tests.packer.problems import HOST, ZONE, faults, having, problem, sound, unplaced_ids, where, zones_of
from tidemill.model.labels import Taint, Toleration
from tidemill.model.pods import Spread

RACK = "example.com/rack"
ZONES = [make.option("m", zone, price=price) for zone, price in (("a", 1.0), ("b", 2.0), ("c", 3.0))]


def spread_pods(count, key=ZONE, labels=None, over=None, **rest):
    """Pods labelled app=x with a spread over app=x."""
    rules = (make.spread(key, {"app": "x"}, **rest),)
    return make.replicas(count, labels={"app": "x", **(labels or {})}, spread=rules, **(over or {}))


def there(zone, count, labels=None, **rest):
    workload = (make.running(count, labels=labels or {"app": "x"}),) if count else ()
    return make.existing(f"{zone}1", zone, existing_pods=workload, **rest)


def pods_per_zone(stated):
    """How many pods each zone got."""
    return dict(Counter(zones_of(stated)))


@pytest.mark.parametrize("count", [1, 3, 4, 8])
def test_pods_are_spread_over_zones_although_one_is_cheaper(count):
    got = pods_per_zone(problem(spread_pods(count), [], ZONES))
    assert sum(got.values()) == count
    assert "-" not in got
    assert max(got.values()) - (min(got.values()) if len(got) == 3 else 0) <= 1


def test_pods_go_to_the_zone_with_fewer_existing_pods():
    stated = problem(spread_pods(4), [there("a", 5), there("b", 3), there("c", 3)])
    assert pods_per_zone(stated) == {"b": 2, "c": 2}


def test_an_uneven_cluster_is_filled_up_to_the_skew_and_no_further():
    stated = problem(spread_pods(3), [there("a", 9), there("b", 0, free={"cpu": 200, "pods": 9})])
    assert pods_per_zone(stated) == {"b": 2, "-": 1}


def test_a_larger_skew_is_used_where_a_zone_is_full():
    existing_nodes = [there("a", 0), there("b", 0, free={"cpu": 100, "pods": 9})]
    assert pods_per_zone(problem(spread_pods(5, skew=2), existing_nodes)) == {"a": 3, "b": 1, "-": 1}
    assert pods_per_zone(problem(spread_pods(5), existing_nodes)) == {"a": 2, "b": 1, "-": 2}


def test_an_empty_zone_that_could_be_opened_limits_the_others():
    scarce = [ZONES[0], make.option("m", "b", stock="none")]
    assert pods_per_zone(problem(spread_pods(4), [], scarce, stocks={"none": 0})) == {"a": 1, "-": 3}


def test_pods_without_the_rule_count_by_their_labels():
    loud = make.replicas(4, "loud", cpu=9000, labels={"app": "x"}, selector={ZONE: "a"})
    stated = problem([*loud, *spread_pods(4)], [], ZONES)
    assert unplaced_ids(stated) == set()


def test_a_zone_that_a_pods_selector_leaves_out_does_not_count():
    only = {"node_terms": (having(ZONE, "a", "b"),)}
    assert pods_per_zone(problem(spread_pods(4, over=only), [], ZONES)) == {"a": 2, "b": 2}


def test_a_zone_left_out_by_the_selector_counts_where_the_rule_says_so():
    narrow = {"selector": {ZONE: "a"}}
    assert pods_per_zone(problem(spread_pods(3, over=narrow, honor_affinity=False), [], ZONES)) == {
        "a": 1,
        "-": 2,
    }
    assert pods_per_zone(problem(spread_pods(3, over=narrow), [], ZONES)) == {"a": 3}


def test_a_tainted_zone_counts_unless_the_rule_honours_taints():
    tainted = [ZONES[0], make.option("m", "b", taints=(Taint("gpu"),))]
    assert pods_per_zone(problem(spread_pods(3), [], tainted)) == {"a": 1, "-": 2}
    assert pods_per_zone(problem(spread_pods(3, honor_taints=True), [], tainted)) == {"a": 3}
    tolerant = {"tolerations": (Toleration("gpu", "Exists"),)}
    assert pods_per_zone(problem(spread_pods(4, over=tolerant), [], tainted)) == {"a": 2, "b": 2}


def test_with_fewer_domains_than_min_domains_each_holds_only_the_skew():
    assert pods_per_zone(problem(spread_pods(4, min_domains=3), [], ZONES[:2])) == {"a": 1, "b": 1, "-": 2}
    assert pods_per_zone(problem(spread_pods(4, min_domains=2), [], ZONES[:2])) == {"a": 2, "b": 2}


def test_match_label_keys_count_only_the_same_revision():
    rule = Spread(ZONE, make.spread(ZONE, {"app": "x"}).selector, 1, match_label_keys=("rev",))
    new = make.replicas(2, labels={"app": "x", "rev": "2"}, spread=(rule,))
    old = [there("a", 0), there("b", 5, {"app": "x", "rev": "1"})]
    assert pods_per_zone(problem(new, old)) == {"a": 1, "b": 1}
    plain = make.replicas(2, labels={"app": "x", "rev": "2"}, spread=(make.spread(ZONE, {"app": "x"}),))
    assert pods_per_zone(problem(plain, old)) == {"a": 2}


def test_a_soft_spread_keeps_no_pod_unplaced():
    assert unplaced_ids(problem(spread_pods(5, hard=False), [there("a", 0)], [])) == set()


def test_hosts_hold_no_more_than_the_skew_where_another_could_be_opened():
    solution = sound(problem(spread_pods(6, HOST, skew=2), [], [make.option("m")]))
    assert sorted(len(node.pods) for node in solution.opened) == [2, 2, 2]


def test_full_hosts_do_not_keep_pods_from_new_ones():
    existing_nodes = [
        make.existing("n1", existing_pods=(make.running(3, labels={"app": "x"}),)),
        make.existing("n2"),
    ]
    assert sorted(where(problem(spread_pods(3, HOST), existing_nodes, [make.option("m")]))) == [
        "m@a:0",
        "m@a:1",
        "n2",
    ]


def test_hosts_are_filled_evenly_where_no_more_can_be_opened():
    existing_nodes = [make.existing(f"n{n}", labels={HOST: f"n{n}"}) for n in range(3)]
    assert sorted(Counter(where(problem(spread_pods(7, HOST), existing_nodes))).values()) == [2, 2, 3]


def test_spread_over_any_label():
    racks = [make.existing(f"n{n}", labels={RACK: f"r{n % 2}"}) for n in range(4)]
    got = Counter(int(word[1]) % 2 for word in where(problem(spread_pods(6, RACK), racks)))
    assert got == {0: 3, 1: 3}


def test_a_node_without_the_topology_label_takes_no_spread_pods():
    assert where(
        problem(spread_pods(1, RACK), [make.existing("n1"), make.existing("n2", labels={RACK: "r"})])
    ) == ["n2"]
    assert where(problem(spread_pods(1, RACK), [make.existing("n1")])) == ["-"]


def test_zones_and_hosts_at_once():
    both = (make.spread(ZONE, {"app": "x"}), make.spread(HOST, {"app": "x"}))
    stated = problem(make.replicas(6, labels={"app": "x"}, spread=both), [], ZONES)
    assert pods_per_zone(stated) == {"a": 2, "b": 2, "c": 2}
    assert len(set(where(stated))) == 6


def test_a_pod_whose_spread_counts_other_pods_goes_where_they_are_few():
    apart = make.pending(labels={"app": "y"}, spread=(make.spread(ZONE, {"app": "x"}),))
    assert where(problem([apart], [there("a", 3), there("b", 1)])) == ["b1"]
    assert where(problem([apart], [there("a", 3), there("b", 1, free={"cpu": 0, "pods": 0})])) == ["-"]


@pytest.mark.parametrize("start", [0, 1, 2])
def test_others_do_not_fill_the_zone_of_a_pod_with_too_few_domains(start):
    """With fewer zones than min_domains the lowest count is zero: one pod more than the skew is too many."""
    minding = make.replicas(
        2, "minding", labels={"app": "y"}, spread=(make.spread(ZONE, {"app": "x"}, min_domains=3),)
    )
    others = make.replicas(6, "other", labels={"app": "x"}, cpu=3000)
    assert faults(problem([*others, *minding], [there("a", start), make.existing("n2", "b")])) == []
    assert (
        faults(problem([*minding, *others], [there("a", start), make.existing("n2", "b")], ZONES[:2])) == []
    )


def test_pods_that_only_one_zone_takes_may_be_ahead_of_the_pods_that_will_level_the_counts():
    """Zone b alone has few enough of `b`. Pods of `g` with a rule about `b` must go there, the others elsewhere."""
    nodes = [
        make.existing(
            f"n{zone}", zone, free={"cpu": 10_000_000, "pods": 10_000},
            existing_pods=(make.running(5, labels={"app": "b"}),) if zone != "b" else (),
        )
        for zone in "abc"
    ]  # fmt: skip
    watch = make.replicas(
        3, "x", requests={"cpu": 900}, labels={"app": "x"}, spread=(make.spread(ZONE, {"app": "g"}),)
    )
    bound = make.replicas(
        200, "bound", requests={"cpu": 500}, labels={"app": "g"}, spread=(make.spread(ZONE, {"app": "b"}),)
    )
    free = make.replicas(400, "free", requests={"cpu": 100}, labels={"app": "g"})
    stated = problem([*watch, *bound, *free], nodes)
    assert sound(stated).unplaced == {}
