"""The packer keeps affinity and anti-affinity, with existing pods and among pending ones."""

from __future__ import annotations

import pytest

from tests.packer import problems as make
from tests.packer.problems import HOST, ZONE, problem, unplaced_ids, where, zones_of

RACK = "example.com/rack"
ZONES = [make.option("m", "a", price=1.0), make.option("m", "b", price=1.0), make.option("m", "c", price=1.0)]


def with_anti_affinity(key=HOST, app="x", **rest):
    """Pods labelled app=x with an anti-affinity to app=`app`."""
    return {"labels": {"app": "x"}, "anti_affinity": (make.term(key, app=app),), **rest}


def with_affinity(key=ZONE, app="x", **rest):
    return {"affinity": (make.term(key, app=app),), **rest}


# --- affinity ---------------------------------------------------------------------------------------------


def test_pods_with_affinity_to_their_own_kind_share_a_zone():
    stated = problem(make.replicas(25, cpu=1000, labels={"app": "x"}, **with_affinity()), [], ZONES)
    assert len(set(zones_of(stated))) == 1
    assert unplaced_ids(stated) == set()


def test_pods_with_affinity_to_their_own_kind_join_existing_ones():
    there = make.existing(
        "n1", "b", existing_pods=(make.running(labels={"app": "x"}),), free={"cpu": 0, "pods": 0}
    )
    stated = problem(
        make.replicas(3, labels={"app": "x"}, **with_affinity()), [there, make.existing("n2", "a")], ZONES
    )
    assert zones_of(stated) == ["b", "b", "b"]


def test_a_matching_existing_pod_elsewhere_keeps_a_pod_from_being_the_first_of_its_kind():
    there = make.existing(
        "n1", "b", existing_pods=(make.running(labels={"app": "x"}),), free={"cpu": 0, "pods": 0}
    )
    assert where(
        problem([make.pending(labels={"app": "x"}, **with_affinity())], [there, make.existing("n2", "a")])
    ) == ["-"]


def test_pods_with_affinity_to_their_own_kind_go_to_a_zone_with_room_for_all():
    scarce = [make.option("m", "a", price=0.1, stock="few"), make.option("m", "b", price=1.0)]
    stated = problem(
        make.replicas(4, cpu=9000, labels={"app": "x"}, **with_affinity()), [], scarce, stocks={"few": 1}
    )
    assert zones_of(stated) == ["b"] * 4


def test_a_pod_with_affinity_follows_another_pending_pod():
    follower, leader = (
        make.pending("follower", **with_affinity(app="y")),
        make.pending("leader", labels={"app": "y"}, volume_zones=("b",)),
    )
    assert zones_of(problem([follower, leader], [], ZONES)) == ["b", "b"]


def test_an_affinity_of_several_terms_needs_one_pod_that_matches_them_all():
    """As kube-scheduler counts: two pods that match one term each do not do."""
    wants = make.pending(affinity=(make.term(ZONE, app="x"), make.term(HOST, team="red")))
    apart = (make.running(labels={"app": "x"}), make.running(labels={"team": "red"}))
    both = (make.running(labels={"app": "x", "team": "red"}),)
    assert where(problem([wants], [make.existing("n1", existing_pods=apart)])) == ["-"]
    assert where(problem([wants], [make.existing("n1", existing_pods=both)])) == ["n1"]


def test_no_pod_is_in_the_namespaces_of_every_term():
    elsewhere = (make.term(ZONE, app="x"), make.term(ZONE, namespaces=("other",), app="x"))
    wants = make.pending(labels={"app": "x"}, affinity=elsewhere)
    there = (make.running(labels={"app": "x"}), make.running(labels={"app": "x"}, namespace="other"))
    assert where(problem([wants], [make.existing("n1", existing_pods=there)])) == ["-"]


def test_a_pod_is_the_first_of_its_kind_for_all_its_terms_or_for_none():
    """A match counts for the zone although its node has no rack: there is a first already."""
    wants = make.pending(
        labels={"app": "x"}, affinity=(make.term(ZONE, app="x"), make.term(RACK, app="x")), gpus=1
    )
    first = make.existing("n1", existing_pods=(make.running(labels={"app": "x"}),))
    racked = make.existing("n2", labels={RACK: "r1"}, free={"cpu": 1000, "pods": 1, "nvidia.com/gpu": 1})
    assert where(problem([wants], [first, racked])) == ["-"]
    assert where(problem([wants], [racked])) == ["n2"]


def test_a_pod_is_not_the_first_of_its_kind_where_others_of_it_may_be_bound_before():
    """Only the others could go elsewhere; bound first, they keep the pod from any host without one of them."""
    one_each = {"pods": 1}
    first = make.pending("first", gpus=1, labels={"app": "x"}, **with_affinity(HOST))
    other = make.pending("other", labels={"app": "x"}, host_ports=(("TCP", 80, ""),))
    offered = [make.option("g", gpus=1, capacity=one_each), make.option("m", capacity=one_each, price=0.1)]
    assert unplaced_ids(problem([first, other], [], offered)) == {"first"}
    assert unplaced_ids(problem([first], [], offered)) == set()


def test_a_chain_of_affinities_ends_up_in_one_zone():
    chain = [
        make.pending("third", labels={"app": "z"}, **with_affinity(app="y")),
        make.pending("second", labels={"app": "y"}, **with_affinity(app="x")),
        make.pending("first", labels={"app": "x"}, volume_zones=("c",)),
    ]
    assert zones_of(problem(chain, [], ZONES)) == ["c", "c", "c"]


def test_a_pod_whose_affinity_matches_no_pod_stays_unplaced():
    stated = problem(
        [make.pending("follower", **with_affinity(app="y")), make.pending("other", labels={"app": "x"})],
        [],
        ZONES,
    )
    assert unplaced_ids(stated) == {"follower"}


def test_a_pod_with_affinity_to_an_existing_pod_goes_to_its_zone():
    there = make.existing(
        "n1", "c", existing_pods=(make.running(labels={"app": "y"}),), free={"cpu": 0, "pods": 0}
    )
    assert where(problem([make.pending(**with_affinity(app="y"))], [there], ZONES)) == ["m@c:0"]


def test_affinity_does_not_match_pods_of_another_namespace():
    there = make.existing("n1", "c", existing_pods=(make.running(namespace="other", labels={"app": "y"}),))
    assert where(problem([make.pending(**with_affinity(app="y"))], [there], ZONES)) == ["-"]
    looked = {"affinity": (make.term(ZONE, ("other",), app="y"),)}
    assert zones_of(problem([make.pending(**looked)], [there], ZONES)) == ["c"]


def test_host_affinity_means_the_same_node():
    there = [make.existing("n1"), make.existing("n2", existing_pods=(make.running(labels={"app": "y"}),))]
    assert where(problem([make.pending(**with_affinity(HOST, "y"))], there, ZONES)) == ["n2"]
    full = [
        make.existing("n1"),
        make.existing("n2", existing_pods=there[1].existing_pods, free={"cpu": 0, "pods": 0}),
    ]
    assert where(problem([make.pending(**with_affinity(HOST, "y"))], full, ZONES)) == ["-"]


def test_host_affinity_may_be_met_by_another_pending_pod():
    pods = [
        make.pending("follower", **with_affinity(HOST, "y")),
        make.pending("leader", cpu=5000, labels={"app": "y"}),
    ]
    stated = problem(pods, [make.existing("n1", free={"cpu": 1000, "pods": 9})], [make.option("m")])
    assert where(stated) == ["m@a:0", "m@a:0"]


def test_pods_with_host_affinity_to_their_own_kind_share_one_node():
    kin = {"labels": {"app": "x"}, **with_affinity(HOST)}
    assert set(where(problem(make.replicas(4, cpu=1000, **kin), [], ZONES))) == {
        where(problem(make.replicas(4, **kin), [], ZONES))[0]
    }
    workload = problem(make.replicas(12, cpu=1000, **kin), [], ZONES)
    # Ten fit on the node. On a second node they would not be the first of their kind.
    assert len(unplaced_ids(workload)) == 2


def test_pods_with_host_affinity_to_their_own_kind_join_an_existing_pod():
    there = [
        make.existing("n1"),
        make.existing("n2", existing_pods=(make.running(labels={"app": "x"}),), free={"cpu": 150, "pods": 9}),
    ]
    stated = problem(make.replicas(2, labels={"app": "x"}, **with_affinity(HOST)), there, ZONES)
    assert sorted(where(stated)) == ["-", "n2"]


def test_every_affinity_term_must_be_met():
    there = [
        make.existing("n1", "a", existing_pods=(make.running(labels={"app": "x"}),)),
        make.existing("n2", "b", existing_pods=(make.running(labels={"app": "x", "tier": "db"}),)),
    ]
    both = (make.term(ZONE, app="x"), make.term(ZONE, tier="db"))
    assert where(problem([make.pending(affinity=both)], there)) == ["n2"]
    assert where(problem([make.pending(affinity=both)], there[:1])) == ["-"]


def test_a_node_without_the_topology_label_meets_no_affinity():
    there = make.existing("n1", "a", existing_pods=(make.running(labels={"app": "x"}),))
    assert where(problem([make.pending(**with_affinity(RACK))], [there])) == ["-"]
    assert where(
        problem([make.pending(labels={"app": "x"}, **with_affinity(RACK))], [make.existing("n2")])
    ) == ["-"]


def test_affinity_works_on_any_topology_label():
    there = [
        make.existing("n1", labels={RACK: "r1"}),
        make.existing("n2", labels={RACK: "r2"}),
        make.existing(
            "n3",
            labels={RACK: "r2"},
            existing_pods=(make.running(labels={"app": "x"}),),
            free={"cpu": 0, "pods": 0},
        ),
    ]
    assert where(problem([make.pending(**with_affinity(RACK))], there)) == ["n2"]


# --- anti-affinity ----------------------------------------------------------------------------------------


def test_pods_with_host_anti_affinity_get_a_node_each():
    assert (
        len(
            set(
                where(
                    problem(
                        make.replicas(5, **with_anti_affinity()),
                        [make.existing(), make.existing("n2")],
                        [make.option("m")],
                    )
                )
            )
        )
        == 5
    )
    assert sorted(
        where(problem(make.replicas(3, **with_anti_affinity()), [make.existing(), make.existing("n2")]))
    ) == [
        "-",
        "n1",
        "n2",
    ]


def test_pods_with_zone_anti_affinity_get_a_zone_each():
    stated = problem(make.replicas(4, **with_anti_affinity(ZONE)), [make.existing("n1", "a")], ZONES)
    assert zones_of(stated) == ["-", "a", "b", "c"]


def test_zone_anti_affinity_skips_a_zone_without_room():
    scarce = [make.option("m", "a", stock="none"), *ZONES[1:]]
    assert zones_of(
        problem(make.replicas(2, **with_anti_affinity(ZONE)), [], scarce, stocks={"none": 0})
    ) == [
        "b",
        "c",
    ]
    hosts = problem(make.replicas(4, **with_anti_affinity()), [], scarce, stocks={"none": 0})
    assert unplaced_ids(hosts) == set()


def test_anti_affinity_to_an_existing_pod_keeps_pods_off_its_node():
    there = [make.existing("n1", existing_pods=(make.running(labels={"app": "x"}),)), make.existing("n2")]
    assert where(problem(make.replicas(1, **with_anti_affinity()), there)) == ["n2"]
    assert where(problem(make.replicas(1, **with_anti_affinity(ZONE)), there)) == ["-"]
    assert where(problem(make.replicas(1, **with_anti_affinity(ZONE)), there, ZONES)) in (
        ["m@b:0"],
        ["m@c:0"],
    )


def test_the_anti_affinity_of_an_existing_pod_keeps_pods_off_its_node():
    wary = {"anti_affinity": (make.term(HOST, app="x"),), "labels": {"app": "y"}}
    there = [make.existing("n1", existing_pods=(make.running(**wary),)), make.existing("n2")]
    assert where(problem([make.pending(labels={"app": "x"})], there)) == ["n2"]
    assert where(problem([make.pending(labels={"app": "z"})], there[:1])) == ["n1"]
    zonal = make.existing(
        "n1", existing_pods=(make.running(labels={"app": "y"}, anti_affinity=(make.term(ZONE, app="x"),)),)
    )
    assert where(
        problem([make.pending(labels={"app": "x"})], [zonal, make.existing("n2"), make.existing("n3", "b")])
    ) == ["n3"]


def test_the_anti_affinity_of_an_existing_pod_is_about_its_own_namespace():
    wary = make.running(namespace="other", anti_affinity=(make.term(HOST, app="x"),))
    assert where(problem([make.pending(labels={"app": "x"})], [make.existing(existing_pods=(wary,))])) == [
        "n1"
    ]
    assert where(
        problem(
            [make.pending(labels={"app": "x"}, namespace="other")], [make.existing(existing_pods=(wary,))]
        )
    ) == ["-"]


@pytest.mark.parametrize("key", [HOST, ZONE])
@pytest.mark.parametrize("first", ["loud", "quiet"])
def test_anti_affinity_works_both_ways_between_pending_pods(key, first):
    pods = [
        make.pending("loud", cpu=900 if first == "loud" else 100, labels={"app": "loud"}),
        make.pending("quiet", cpu=500, labels={"app": "quiet"}, anti_affinity=(make.term(key, app="loud"),)),
    ]
    there = [make.existing("n1", "a"), make.existing("n2", "b")]
    assert sorted(where(problem(pods, there))) == ["n1", "n2"]
    assert len(unplaced_ids(problem(pods, there[:1]))) == 1


def test_pods_with_anti_affinity_to_others_only_share_a_node():
    pods = make.replicas(5, labels={"app": "x"}, anti_affinity=(make.term(HOST, app="y"),))
    assert len(set(where(problem(pods, [], [make.option("m")])))) == 1


def test_a_node_without_the_topology_label_breaks_no_anti_affinity():
    assert where(problem(make.replicas(3, **with_anti_affinity(RACK)), [make.existing()])) == ["n1"] * 3


def test_anti_affinity_works_on_any_topology_label():
    racks = [make.existing(f"n{n}", labels={RACK: f"r{n // 2}"}) for n in range(4)]
    assert len(unplaced_ids(problem(make.replicas(3, **with_anti_affinity(RACK)), racks))) == 1
