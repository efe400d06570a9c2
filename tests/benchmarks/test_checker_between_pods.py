"""The checker on rules between pods: topology spread, affinity and anti-affinity, both ways."""

from __future__ import annotations

import pytest

from tests.benchmarks.problems import (
    HOST,
    ZONE,
    existing,
    having,
    kinds,
    option,
    pending,
    problem,
    running,
    spread,
    term,
)
from tidemill.model.labels import Taint, Toleration
from tidemill.model.pods import PodTerm, Spread

ZONES = [existing("a1", "a"), existing("b1", "b"), existing("c1", "c")]


def web(number: int, **rest):
    return pending(f"web{number}", labels={"app": "web"}, **rest)


def dealt(count: int, **rest):
    return [web(n, spread=(spread(ZONE, {"app": "web"}, **rest),)) for n in range(count)]


# --- spread -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "found"),
    [("a1 b1 c1 a1", []), ("a1 b1 c1 -", []), ("a1 a1 b1 c1", []), ("a1 a1 b1 b1", ["spread"])],
)
def test_zones_may_differ_by_the_skew_and_no_more(where, found):
    assert kinds(problem(dealt(4), ZONES), where) == found


def test_a_larger_skew_allows_more():
    assert kinds(problem(dealt(4, skew=2), ZONES), "a1 a1 b1 b1") == []
    assert kinds(problem(dealt(3, skew=2), ZONES), "a1 a1 a1") == ["spread"]


def test_a_zone_that_only_a_flavour_could_bring_counts_as_empty():
    replicas = dealt(4)
    assert kinds(problem(replicas, ZONES[:2]), "a1 a1 b1 b1") == []
    assert kinds(problem(replicas, ZONES[:2], [option("m", "c")]), "a1 a1 b1 b1") == ["spread"]
    assert kinds(problem(replicas, ZONES[:2], [option("m", "c")]), "a1 a1 b1 m") == []


def test_residents_are_counted_in_their_namespace():
    crowded = existing("a1", "a", existing_pods=(running(3, labels={"app": "web"}),))
    assert kinds(problem(dealt(1), [crowded, ZONES[1]]), "a1") == ["spread"]
    assert kinds(problem(dealt(1), [crowded, ZONES[1]]), "b1") == []
    assert kinds(problem(dealt(1, skew=3), [crowded, ZONES[1]]), "a1") == ["spread"]  # all three of them
    assert kinds(problem(dealt(1, skew=4), [crowded, ZONES[1]]), "a1") == []
    elsewhere = existing("a1", "a", existing_pods=(running(3, namespace="other", labels={"app": "web"}),))
    assert kinds(problem(dealt(1), [elsewhere, ZONES[1]]), "a1") == []


def test_who_carries_a_constraint_on_others_is_bound_by_their_count_not_its_own():
    watcher = pending("watcher", spread=(spread(ZONE, {"app": "web"}),))
    others = [web(0), web(1)]
    assert kinds(problem([watcher, *others], ZONES), "a1 b1 c1") == []
    assert kinds(problem([watcher, *others], ZONES), "a1 a1 b1") == []  # one beside it, none in c
    assert kinds(problem([watcher, *others], ZONES), "a1 a1 a1") == ["spread"]
    assert kinds(problem([watcher, *others], ZONES), "b1 a1 a1") == []  # full elsewhere is not its matter


def test_a_pod_without_the_constraint_counts_and_is_not_bound():
    assert kinds(problem([*dealt(1), web(8), web(9)], ZONES), "a1 a1 a1") == ["spread"]
    assert kinds(problem([*dealt(1), web(8), web(9)], ZONES), "a1 b1 b1") == []


def test_a_soft_constraint_binds_nobody():
    assert kinds(problem(dealt(3, hard=False), ZONES), "a1 a1 a1") == []


def test_a_node_without_the_key_is_no_place_for_a_spread_pod():
    bare = existing("x1", zone=None)
    assert kinds(problem(dealt(1), [bare]), "x1") == ["spread"]
    assert kinds(problem([web(0)], [bare]), "x1") == []


def test_a_node_that_lacks_another_of_the_keys_does_not_count():
    both = (spread(ZONE, {"app": "web"}), spread("rack", {"app": "web"}))
    racked = [existing("a1", "a", labels={"rack": "1"}), existing("b1", "b")]
    assert kinds(problem([web(n, spread=both) for n in range(2)], racked), "a1 a1") == []
    racked[1] = existing("b1", "b", labels={"rack": "2"})
    assert kinds(problem([web(n, spread=both) for n in range(2)], racked), "a1 a1") == ["spread"]


@pytest.mark.parametrize(("domains", "found"), [(2, []), (3, []), (4, ["spread"])])
def test_too_few_domains_make_the_least_count_zero(domains, found):
    stated = problem(dealt(6, min_domains=domains), ZONES)
    assert kinds(stated, "a1 a1 b1 b1 c1 c1") == found


def test_hosts_hold_up_to_the_skew_where_another_could_be_opened():
    hosted = [web(n, spread=(spread(HOST, {"app": "web"}),)) for n in range(4)]
    two = [existing("n1"), existing("n2")]
    assert kinds(problem(hosted, two), "n1 n1 n2 n2") == []  # nothing can be opened: the least is 2
    assert kinds(problem(hosted, two, [option("m")]), "n1 n1 n2 n2") == ["spread"]
    assert kinds(problem(hosted, two, [option("m")]), "n1 n2 m:1 m:2") == []


def test_a_flavour_the_pod_could_never_use_opens_no_host_for_it():
    pinned = [
        web(n, spread=(spread(HOST, {"app": "web"}),), node_selector=(("pool", "old"),)) for n in range(4)
    ]
    two = [existing("n1", labels={"pool": "old"}), existing("n2", labels={"pool": "old"})]
    assert kinds(problem(pinned, two, [option("m")]), "n1 n1 n2 n2") == []


def test_node_affinity_narrows_the_domains_and_the_counts_unless_told_otherwise():
    def picky(honor):
        rule = spread(ZONE, {"app": "web"}, honor_affinity=honor)
        return [web(n, spread=(rule,), node_terms=(having(ZONE, "a", "b"),)) for n in range(4)]

    assert kinds(problem(picky(True), ZONES), "a1 a1 b1 b1") == []
    assert kinds(problem(picky(False), ZONES), "a1 a1 b1 b1") == ["spread"]
    on_old = existing("a2", "a", labels={"old": "yes"}, existing_pods=(running(5, labels={"app": "web"}),))
    fussy = web(
        0, spread=(spread(ZONE, {"app": "web"}),), node_terms=(having("old", operator="DoesNotExist"),)
    )
    assert kinds(problem([fussy], [*ZONES, on_old]), "a1") == []  # five on a node that does not count


def test_taints_narrow_the_domains_only_when_told_to():
    closed = existing("c1", "c", taints=(Taint("k"),))
    for honor, tolerations, found in (
        (False, (), ["spread"]),
        (True, (), []),
        (True, (Toleration("k", "Exists"),), ["spread"]),
    ):
        replicas = [
            web(n, spread=(spread(ZONE, {"app": "web"}, honor_taints=honor),), tolerations=tolerations)
            for n in range(4)
        ]
        assert kinds(problem(replicas, [*ZONES[:2], closed]), "a1 a1 b1 b1") == found


def test_match_label_keys_count_only_pods_of_the_same_revision():
    def of(revision, number):
        rule = Spread(ZONE, having("app", "web"), match_label_keys=("rev", "absent"))
        return pending(f"{revision}{number}", labels={"app": "web", "rev": revision}, spread=(rule,))

    replicas = [of("1", 0), of("1", 1), of("2", 0), of("2", 1)]
    assert kinds(problem(replicas, ZONES[:2]), "a1 b1 a1 b1") == []
    assert kinds(problem(replicas, ZONES[:2]), "a1 a1 b1 b1") == ["spread"]


def test_an_empty_selector_counts_everybody_of_the_namespace():
    replicas = [pending("a", spread=(spread(ZONE),)), pending("b"), pending("c", namespace="other")]
    assert kinds(problem(replicas, ZONES[:2]), "a1 a1 b1") == ["spread"]
    assert kinds(problem(replicas, ZONES[:2]), "a1 b1 a1") == []


def test_any_label_can_be_a_domain():
    racks = [
        existing("n1", labels={"rack": "1"}),
        existing("n2", labels={"rack": "1"}),
        existing("n3", labels={"rack": "2"}),
    ]
    replicas = [web(n, spread=(spread("rack", {"app": "web"}),)) for n in range(2)]
    assert kinds(problem(replicas, racks), "n1 n3") == []
    assert kinds(problem(replicas, racks), "n1 n2") == ["spread"]


# --- anti-affinity ----------------------------------------------------------------------------------------


def loner(number, key=HOST, **rest):
    return web(number, anti_affinity=(term(key, app="web"),), **rest)


def test_pods_that_avoid_each_other_are_on_different_hosts():
    stated = problem([loner(0), loner(1)], ZONES, [option("m")])
    assert kinds(stated, "a1 a1") == ["anti-affinity"]
    assert kinds(stated, "m:1 m:1") == ["anti-affinity"]
    assert kinds(stated, "a1 b1") == []
    assert kinds(stated, "m:1 m:2") == []


def test_a_wider_domain_keeps_them_further_apart():
    two_in_a = [existing("a1", "a"), existing("a2", "a"), existing("b1", "b")]
    stated = problem([loner(0, ZONE), loner(1, ZONE)], two_in_a)
    assert kinds(stated, "a1 a2") == ["anti-affinity"]
    assert kinds(stated, "a1 b1") == []


def test_one_who_avoids_the_other_is_enough():
    stated = problem([pending("shy", anti_affinity=(term(HOST, app="web"),)), web(1)], ZONES)
    assert kinds(stated, "a1 a1") == ["anti-affinity"]
    assert kinds(stated, "a1 b1") == []


def test_who_does_not_avoid_itself_may_be_there_twice():
    shy = [pending(f"shy{n}", anti_affinity=(term(HOST, app="web"),)) for n in range(2)]
    assert kinds(problem(shy, ZONES), "a1 a1") == []


def test_residents_are_avoided_and_avoid():
    avoided = existing("n1", existing_pods=(running(labels={"app": "web"}),))
    assert kinds(problem([loner(0)], [avoided, existing("n2")]), "n1") == ["anti-affinity"]
    assert kinds(problem([loner(0)], [avoided, existing("n2")]), "n2") == []
    avoiding = existing("n1", "a", existing_pods=(running(anti_affinity=(term(ZONE, app="web"),)),))
    stated = problem([web(0), pending("other")], [avoiding, existing("n2", "a"), existing("n3", "b")])
    assert kinds(stated, "n2 -") == ["anti-affinity"]  # in the same zone
    assert kinds(stated, "n3 n1") == []


def test_residents_that_quarrel_among_themselves_are_nobodys_fault():
    both = (running(2, labels={"app": "web"}, anti_affinity=(term(HOST, app="web"),)),)
    assert kinds(problem([pending("other")], [existing("n1", existing_pods=both)]), "n1") == []


def test_anti_affinity_reaches_only_the_namespaces_it_names():
    other = web(1, namespace="other")
    assert kinds(problem([loner(0), other], ZONES), "a1 a1") == []
    wide = web(0, anti_affinity=(PodTerm(HOST, having("app", "web"), ("default", "other")),))
    assert kinds(problem([wide, other], ZONES), "a1 a1") == ["anti-affinity"]


def test_on_a_node_without_the_key_nobody_is_met():
    bare = existing("x1", zone=None)
    assert kinds(problem([loner(0, ZONE), loner(1, ZONE)], [bare]), "x1 x1") == []


# --- affinity ---------------------------------------------------------------------------------------------


def friend(number, key=ZONE, **rest):
    return web(number, affinity=(term(key, app="web"),), **rest)


def follower(name="follower", key=ZONE, **labels):
    return pending(name, affinity=(term(key, **(labels or {"app": "web"})),))


def test_a_follower_is_where_those_are_whom_it_follows():
    two_in_a = [existing("a1", "a"), existing("a2", "a"), existing("b1", "b")]
    stated = problem([follower(), web(1)], two_in_a)
    assert kinds(stated, "a2 a1") == []
    assert kinds(stated, "b1 a1") == ["affinity"]
    assert kinds(problem([follower(key=HOST), web(1)], two_in_a), "a2 a1") == ["affinity"]


def test_a_follower_of_nobody_is_not_placed():
    assert kinds(problem([follower()], ZONES), "a1") == ["affinity"]
    assert kinds(problem([follower()], ZONES), "-") == []


def test_residents_are_company_in_their_namespace_only():
    home = existing("a1", "a", existing_pods=(running(labels={"app": "web"}),))
    assert kinds(problem([follower()], [home, ZONES[1]]), "a1") == []
    assert kinds(problem([follower()], [home, ZONES[1]]), "b1") == ["affinity"]
    foreign = existing("a1", "a", existing_pods=(running(namespace="other", labels={"app": "web"}),))
    assert kinds(problem([follower()], [foreign]), "a1") == ["affinity"]


def test_the_first_of_its_kind_needs_nobody_and_the_others_join_it():
    assert kinds(problem([friend(0)], ZONES), "b1") == []
    trio = problem([friend(0), friend(1), friend(2)], ZONES)
    assert kinds(trio, "b1 b1 b1") == []
    assert kinds(trio, "b1 b1 c1") == ["affinity"]


def test_two_companies_of_one_kind_could_never_both_begin():
    four = problem([friend(n) for n in range(4)], ZONES)
    assert kinds(four, "a1 a1 b1 b1") == ["affinity"]  # each has company, but the third came to an empty zone


def test_nobody_is_the_first_where_a_resident_already_is():
    home = existing("a1", "a", existing_pods=(running(labels={"app": "web"}),))
    assert kinds(problem([friend(0)], [home, ZONES[1]]), "b1") == ["affinity"]
    assert kinds(problem([friend(0)], [home, ZONES[1]]), "a1") == []


def test_two_companies_are_fine_where_each_has_something_to_join():
    homes = [existing(f"{z}1", z, existing_pods=(running(labels={"app": "web"}),)) for z in "ab"]
    assert kinds(problem([friend(n) for n in range(4)], homes), "a1 a1 b1 b1") == []
    assert kinds(problem([friend(0), friend(1), web(2), web(3)], ZONES), "a1 b1 a1 b1") == []


def test_the_first_may_come_before_those_who_need_nobody():
    # Bound first, it was alone in the cluster; that others came elsewhere later does not make it wrong.
    assert kinds(problem([friend(0), web(1)], ZONES), "a1 b1") == []


def test_two_that_only_want_each_other_never_begin():
    left = pending("left", labels={"side": "l"}, affinity=(term(ZONE, side="r"),))
    right = pending("right", labels={"side": "r"}, affinity=(term(ZONE, side="l"),))
    assert kinds(problem([left, right], ZONES), "a1 a1") == ["affinity"]


def test_a_chain_of_followers_is_bound_link_by_link():
    second = pending("second", labels={"app": "mid"}, affinity=(term(ZONE, app="web"),))
    third = pending("third", affinity=(term(ZONE, app="mid"),))
    assert kinds(problem([third, second, friend(0)], ZONES), "a1 a1 a1") == []
    assert kinds(problem([third, second, friend(0)], ZONES), "b1 a1 a1") == ["affinity"]


def test_company_must_match_every_term_at_once():
    both = pending("both", affinity=(term(ZONE, app="web"), term(ZONE, tier="front")))
    apart = [web(1), pending("front", labels={"tier": "front"})]
    assert kinds(problem([both, *apart], ZONES), "a1 a1 a1") == ["affinity"]
    one = pending("one", labels={"app": "web", "tier": "front"})
    assert kinds(problem([both, one], ZONES), "a1 a1") == []


def test_affinity_needs_a_node_that_has_the_key():
    bare = existing("x1", zone=None)
    assert kinds(problem([friend(0), web(1)], [bare]), "x1 x1") == ["affinity"]


def test_affinity_on_opened_nodes_is_by_their_own_host():
    stated = problem([friend(0, HOST), friend(1, HOST)], [], [option("m")])
    assert kinds(stated, "m:1 m:1") == []
    assert kinds(stated, "m:1 m:2") == ["affinity"]
