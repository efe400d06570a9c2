"""The solver on the rules between pods: affinity and anti-affinity, with residents and among those that wait."""

from __future__ import annotations

import pytest

from tests.solver.problems import (
    HOST,
    ZONE,
    ask,
    asks,
    flavour,
    left_out,
    place,
    problem,
    resident,
    term,
    where,
    zones_of,
)

RACK = "example.com/rack"
ZONES = [flavour("m", "a", price=1.0), flavour("m", "b", price=1.0), flavour("m", "c", price=1.0)]


def apart(key=HOST, app="x", **rest):
    """Labelled app=x, and apart from app=`app`."""
    return {"labels": {"app": "x"}, "anti_affinity": (term(key, app=app),), **rest}


def near(key=ZONE, app="x", **rest):
    return {"affinity": (term(key, app=app),), **rest}


# --- affinity ---------------------------------------------------------------------------------------------


def test_pods_that_want_their_own_kind_share_a_zone():
    stated = problem(asks(25, cpu=1000, labels={"app": "x"}, **near()), [], ZONES)
    assert len(set(zones_of(stated))) == 1
    assert left_out(stated) == set()


def test_their_own_kind_is_joined_where_it_is_already():
    there = place("n1", "b", residents=(resident(labels={"app": "x"}),), free={"cpu": 0, "pods": 0})
    stated = problem(asks(3, labels={"app": "x"}, **near()), [there, place("n2", "a")], ZONES)
    assert zones_of(stated) == ["b", "b", "b"]


def test_a_resident_elsewhere_keeps_a_pod_from_being_the_first_of_its_kind():
    there = place("n1", "b", residents=(resident(labels={"app": "x"}),), free={"cpu": 0, "pods": 0})
    assert where(problem([ask(labels={"app": "x"}, **near())], [there, place("n2", "a")])) == ["-"]


def test_pods_that_want_their_own_kind_go_where_all_of_them_find_room():
    scarce = [flavour("m", "a", price=0.1, stock="few"), flavour("m", "b", price=1.0)]
    stated = problem(asks(4, cpu=9000, labels={"app": "x"}, **near()), [], scarce, stocks={"few": 1})
    assert zones_of(stated) == ["b"] * 4


def test_a_pod_follows_another_that_waits_too():
    follower, leader = (
        ask("follower", **near(app="y")),
        ask("leader", labels={"app": "y"}, volume_zones=("b",)),
    )
    assert zones_of(problem([follower, leader], [], ZONES)) == ["b", "b"]


def test_a_chain_of_followers_ends_up_together():
    chain = [
        ask("third", labels={"app": "z"}, **near(app="y")),
        ask("second", labels={"app": "y"}, **near(app="x")),
        ask("first", labels={"app": "x"}, volume_zones=("c",)),
    ]
    assert zones_of(problem(chain, [], ZONES)) == ["c", "c", "c"]


def test_a_follower_of_nobody_waits():
    stated = problem([ask("follower", **near(app="y")), ask("other", labels={"app": "x"})], [], ZONES)
    assert left_out(stated) == {"follower"}


def test_a_follower_of_a_resident_goes_to_its_zone():
    there = place("n1", "c", residents=(resident(labels={"app": "y"}),), free={"cpu": 0, "pods": 0})
    assert where(problem([ask(**near(app="y"))], [there], ZONES)) == ["m@c:0"]


def test_company_in_another_namespace_is_none():
    there = place("n1", "c", residents=(resident(namespace="other", labels={"app": "y"}),))
    assert where(problem([ask(**near(app="y"))], [there], ZONES)) == ["-"]
    looked = {"affinity": (term(ZONE, ("other",), app="y"),)}
    assert zones_of(problem([ask(**looked)], [there], ZONES)) == ["c"]


def test_company_on_the_host_means_that_very_node():
    there = [place("n1"), place("n2", residents=(resident(labels={"app": "y"}),))]
    assert where(problem([ask(**near(HOST, "y"))], there, ZONES)) == ["n2"]
    full = [place("n1"), place("n2", residents=there[1].residents, free={"cpu": 0, "pods": 0})]
    assert where(problem([ask(**near(HOST, "y"))], full, ZONES)) == ["-"]


def test_company_on_the_host_may_come_with_a_pod_that_waits():
    pods = [ask("follower", **near(HOST, "y")), ask("leader", cpu=5000, labels={"app": "y"})]
    stated = problem(pods, [place("n1", free={"cpu": 1000, "pods": 9})], [flavour("m")])
    assert where(stated) == ["m@a:0", "m@a:0"]


def test_pods_that_want_their_own_kind_on_the_host_share_one_node():
    kin = {"labels": {"app": "x"}, **near(HOST)}
    assert set(where(problem(asks(4, cpu=1000, **kin), [], ZONES))) == {
        where(problem(asks(4, **kin), [], ZONES))[0]
    }
    crowd = problem(asks(12, cpu=1000, **kin), [], ZONES)
    assert len(left_out(crowd)) == 2  # ten fit on the node; for a second node they would not be the first


def test_pods_that_want_their_own_kind_on_the_host_join_the_resident():
    there = [
        place("n1"),
        place("n2", residents=(resident(labels={"app": "x"}),), free={"cpu": 150, "pods": 9}),
    ]
    stated = problem(asks(2, labels={"app": "x"}, **near(HOST)), there, ZONES)
    assert sorted(where(stated)) == ["-", "n2"]


def test_every_term_must_be_met():
    there = [
        place("n1", "a", residents=(resident(labels={"app": "x"}),)),
        place("n2", "b", residents=(resident(labels={"app": "x", "tier": "db"}),)),
    ]
    both = (term(ZONE, app="x"), term(ZONE, tier="db"))
    assert where(problem([ask(affinity=both)], there)) == ["n2"]
    assert where(problem([ask(affinity=both)], there[:1])) == ["-"]


def test_a_node_without_the_label_offers_no_company():
    there = place("n1", "a", residents=(resident(labels={"app": "x"}),))
    assert where(problem([ask(**near(RACK))], [there])) == ["-"]
    assert where(problem([ask(labels={"app": "x"}, **near(RACK))], [place("n2")])) == ["-"]


def test_company_is_kept_on_any_label():
    there = [
        place("n1", labels={RACK: "r1"}),
        place("n2", labels={RACK: "r2"}),
        place(
            "n3", labels={RACK: "r2"}, residents=(resident(labels={"app": "x"}),), free={"cpu": 0, "pods": 0}
        ),
    ]
    assert where(problem([ask(**near(RACK))], there)) == ["n2"]


# --- anti-affinity ----------------------------------------------------------------------------------------


def test_pods_that_avoid_each_other_get_a_node_each():
    assert len(set(where(problem(asks(5, **apart()), [place(), place("n2")], [flavour("m")])))) == 5
    assert sorted(where(problem(asks(3, **apart()), [place(), place("n2")]))) == ["-", "n1", "n2"]


def test_pods_that_avoid_each_other_in_a_zone_get_a_zone_each():
    stated = problem(asks(4, **apart(ZONE)), [place("n1", "a")], ZONES)
    assert zones_of(stated) == ["-", "a", "b", "c"]


def test_a_zone_without_room_is_no_reason_to_give_up_on_the_others():
    scarce = [flavour("m", "a", stock="none"), *ZONES[1:]]
    assert zones_of(problem(asks(2, **apart(ZONE)), [], scarce, stocks={"none": 0})) == ["b", "c"]
    hosts = problem(asks(4, **apart()), [], scarce, stocks={"none": 0})
    assert left_out(hosts) == set()


def test_a_resident_that_is_avoided_keeps_them_off():
    there = [place("n1", residents=(resident(labels={"app": "x"}),)), place("n2")]
    assert where(problem(asks(1, **apart()), there)) == ["n2"]
    assert where(problem(asks(1, **apart(ZONE)), there)) == ["-"]
    assert where(problem(asks(1, **apart(ZONE)), there, ZONES)) in (["m@b:0"], ["m@c:0"])


def test_a_resident_that_avoids_keeps_them_off_though_they_do_not_mind():
    wary = {"anti_affinity": (term(HOST, app="x"),), "labels": {"app": "y"}}
    there = [place("n1", residents=(resident(**wary),)), place("n2")]
    assert where(problem([ask(labels={"app": "x"})], there)) == ["n2"]
    assert where(problem([ask(labels={"app": "z"})], there[:1])) == ["n1"]
    zonal = place("n1", residents=(resident(labels={"app": "y"}, anti_affinity=(term(ZONE, app="x"),)),))
    assert where(problem([ask(labels={"app": "x"})], [zonal, place("n2"), place("n3", "b")])) == ["n3"]


def test_a_residents_aversion_is_of_its_own_namespace():
    wary = resident(namespace="other", anti_affinity=(term(HOST, app="x"),))
    assert where(problem([ask(labels={"app": "x"})], [place(residents=(wary,))])) == ["n1"]
    assert where(problem([ask(labels={"app": "x"}, namespace="other")], [place(residents=(wary,))])) == ["-"]


@pytest.mark.parametrize("key", [HOST, ZONE])
@pytest.mark.parametrize("first", ["loud", "quiet"])
def test_aversion_works_both_ways_between_pods_that_wait(key, first):
    pods = [
        ask("loud", cpu=900 if first == "loud" else 100, labels={"app": "loud"}),
        ask("quiet", cpu=500, labels={"app": "quiet"}, anti_affinity=(term(key, app="loud"),)),
    ]
    there = [place("n1", "a"), place("n2", "b")]
    assert sorted(where(problem(pods, there))) == ["n1", "n2"]
    assert len(left_out(problem(pods, there[:1]))) == 1


def test_those_who_avoid_others_but_not_each_other_share_a_node():
    pods = asks(5, labels={"app": "x"}, anti_affinity=(term(HOST, app="y"),))
    assert len(set(where(problem(pods, [], [flavour("m")])))) == 1


def test_a_node_without_the_label_is_in_nobodys_way():
    assert where(problem(asks(3, **apart(RACK)), [place()])) == ["n1"] * 3


def test_aversion_on_any_label():
    racks = [place(f"n{n}", labels={RACK: f"r{n // 2}"}) for n in range(4)]
    assert len(left_out(problem(asks(3, **apart(RACK)), racks))) == 1
