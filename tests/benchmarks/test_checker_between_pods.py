"""The checker on rules between pods: topology spread, affinity and anti-affinity, both ways."""

from __future__ import annotations

import pytest

from tests.benchmarks import problems as make
from tests.benchmarks.problems import HOST, ZONE, fault_kinds, having, problem
from tidemill.model.labels import Taint, Toleration
from tidemill.model.pods import PodTerm, Spread

ZONES = [make.existing("a1", "a"), make.existing("b1", "b"), make.existing("c1", "c")]


def web(number: int, **rest):
    return make.pending(f"web{number}", labels={"app": "web"}, **rest)


def spread_pods(count: int, **rest):
    return [web(n, spread=(make.spread(ZONE, {"app": "web"}, **rest),)) for n in range(count)]


# --- spread -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "found"),
    [("a1 b1 c1 a1", []), ("a1 b1 c1 -", []), ("a1 a1 b1 c1", []), ("a1 a1 b1 b1", ["spread"])],
)
def test_zones_may_differ_by_the_skew_and_no_more(where, found):
    assert fault_kinds(problem(spread_pods(4), ZONES), where) == found


def test_a_larger_skew_allows_more():
    assert fault_kinds(problem(spread_pods(4, skew=2), ZONES), "a1 a1 b1 b1") == []
    assert fault_kinds(problem(spread_pods(3, skew=2), ZONES), "a1 a1 a1") == ["spread"]


def test_a_zone_that_only_an_option_has_counts_as_empty():
    replicas = spread_pods(4)
    assert fault_kinds(problem(replicas, ZONES[:2]), "a1 a1 b1 b1") == []
    assert fault_kinds(problem(replicas, ZONES[:2], [make.option("m", "c")]), "a1 a1 b1 b1") == ["spread"]
    assert fault_kinds(problem(replicas, ZONES[:2], [make.option("m", "c")]), "a1 a1 b1 m") == []


def test_existing_pods_are_counted_in_their_namespace():
    crowded = make.existing("a1", "a", existing_pods=(make.running(3, labels={"app": "web"}),))
    assert fault_kinds(problem(spread_pods(1), [crowded, ZONES[1]]), "a1") == ["spread"]
    assert fault_kinds(problem(spread_pods(1), [crowded, ZONES[1]]), "b1") == []
    assert fault_kinds(problem(spread_pods(1, skew=3), [crowded, ZONES[1]]), "a1") == ["spread"]
    assert fault_kinds(problem(spread_pods(1, skew=4), [crowded, ZONES[1]]), "a1") == []
    elsewhere = make.existing(
        "a1", "a", existing_pods=(make.running(3, namespace="other", labels={"app": "web"}),)
    )
    assert fault_kinds(problem(spread_pods(1), [elsewhere, ZONES[1]]), "a1") == []


def test_a_spread_that_matches_other_pods_counts_them_and_not_the_pod_itself():
    watcher = make.pending("watcher", spread=(make.spread(ZONE, {"app": "web"}),))
    others = [web(0), web(1)]
    assert fault_kinds(problem([watcher, *others], ZONES), "a1 b1 c1") == []
    assert fault_kinds(problem([watcher, *others], ZONES), "a1 a1 b1") == []  # one beside it, none in c
    assert fault_kinds(problem([watcher, *others], ZONES), "a1 a1 a1") == ["spread"]
    # The other zone exceeds the skew, and its own does not.
    assert fault_kinds(problem([watcher, *others], ZONES), "b1 a1 a1") == []


def test_a_pod_without_the_rule_counts_and_is_not_limited():
    assert fault_kinds(problem([*spread_pods(1), web(8), web(9)], ZONES), "a1 a1 a1") == ["spread"]
    assert fault_kinds(problem([*spread_pods(1), web(8), web(9)], ZONES), "a1 b1 b1") == []


def test_a_soft_spread_is_not_checked():
    assert fault_kinds(problem(spread_pods(3, hard=False), ZONES), "a1 a1 a1") == []


def test_a_node_without_the_topology_label_takes_no_spread_pod():
    bare = make.existing("x1", zone=None)
    assert fault_kinds(problem(spread_pods(1), [bare]), "x1") == ["spread"]
    assert fault_kinds(problem([web(0)], [bare]), "x1") == []


def test_a_node_that_lacks_another_topology_label_of_the_pod_does_not_count():
    both = (make.spread(ZONE, {"app": "web"}), make.spread("rack", {"app": "web"}))
    racked = [make.existing("a1", "a", labels={"rack": "1"}), make.existing("b1", "b")]
    assert fault_kinds(problem([web(n, spread=both) for n in range(2)], racked), "a1 a1") == []
    racked[1] = make.existing("b1", "b", labels={"rack": "2"})
    assert fault_kinds(problem([web(n, spread=both) for n in range(2)], racked), "a1 a1") == ["spread"]


@pytest.mark.parametrize(("domains", "found"), [(2, []), (3, []), (4, ["spread"])])
def test_with_fewer_domains_than_min_domains_the_lowest_count_is_zero(domains, found):
    stated = problem(spread_pods(6, min_domains=domains), ZONES)
    assert fault_kinds(stated, "a1 a1 b1 b1 c1 c1") == found


def test_hosts_hold_up_to_the_skew_where_another_could_be_opened():
    hosted = [web(n, spread=(make.spread(HOST, {"app": "web"}),)) for n in range(4)]
    two = [make.existing("n1"), make.existing("n2")]
    assert fault_kinds(problem(hosted, two), "n1 n1 n2 n2") == []  # nothing can be opened: the least is 2
    assert fault_kinds(problem(hosted, two, [make.option("m")]), "n1 n1 n2 n2") == ["spread"]
    assert fault_kinds(problem(hosted, two, [make.option("m")]), "n1 n2 m:1 m:2") == []


def test_an_option_that_the_pod_may_not_use_brings_no_empty_host():
    pinned = [
        web(n, spread=(make.spread(HOST, {"app": "web"}),), node_selector=(("pool", "old"),))
        for n in range(4)
    ]
    two = [make.existing("n1", labels={"pool": "old"}), make.existing("n2", labels={"pool": "old"})]
    assert fault_kinds(problem(pinned, two, [make.option("m")]), "n1 n1 n2 n2") == []


def test_node_affinity_narrows_the_domains_and_the_counts_unless_told_otherwise():
    def selective(honor):
        rule = make.spread(ZONE, {"app": "web"}, honor_affinity=honor)
        return [web(n, spread=(rule,), node_terms=(having(ZONE, "a", "b"),)) for n in range(4)]

    assert fault_kinds(problem(selective(True), ZONES), "a1 a1 b1 b1") == []
    assert fault_kinds(problem(selective(False), ZONES), "a1 a1 b1 b1") == ["spread"]
    on_old = make.existing(
        "a2", "a", labels={"old": "yes"}, existing_pods=(make.running(5, labels={"app": "web"}),)
    )
    fussy = web(
        0, spread=(make.spread(ZONE, {"app": "web"}),), node_terms=(having("old", operator="DoesNotExist"),)
    )
    assert fault_kinds(problem([fussy], [*ZONES, on_old]), "a1") == []  # five on a node that does not count


def test_taints_narrow_the_domains_only_when_told_to():
    closed = make.existing("c1", "c", taints=(Taint("k"),))
    for honor, tolerations, found in (
        (False, (), ["spread"]),
        (True, (), []),
        (True, (Toleration("k", "Exists"),), ["spread"]),
    ):
        replicas = [
            web(n, spread=(make.spread(ZONE, {"app": "web"}, honor_taints=honor),), tolerations=tolerations)
            for n in range(4)
        ]
        assert fault_kinds(problem(replicas, [*ZONES[:2], closed]), "a1 a1 b1 b1") == found


def test_match_label_keys_count_only_pods_of_the_same_revision():
    def of(revision, number):
        rule = Spread(ZONE, having("app", "web"), match_label_keys=("rev", "absent"))
        return make.pending(f"{revision}{number}", labels={"app": "web", "rev": revision}, spread=(rule,))

    replicas = [of("1", 0), of("1", 1), of("2", 0), of("2", 1)]
    assert fault_kinds(problem(replicas, ZONES[:2]), "a1 b1 a1 b1") == []
    assert fault_kinds(problem(replicas, ZONES[:2]), "a1 a1 b1 b1") == ["spread"]


def test_an_empty_selector_counts_every_pod_of_the_namespace():
    replicas = [
        make.pending("a", spread=(make.spread(ZONE),)),
        make.pending("b"),
        make.pending("c", namespace="other"),
    ]
    assert fault_kinds(problem(replicas, ZONES[:2]), "a1 a1 b1") == ["spread"]
    assert fault_kinds(problem(replicas, ZONES[:2]), "a1 b1 a1") == []


def test_any_label_can_be_a_domain():
    racks = [
        make.existing("n1", labels={"rack": "1"}),
        make.existing("n2", labels={"rack": "1"}),
        make.existing("n3", labels={"rack": "2"}),
    ]
    replicas = [web(n, spread=(make.spread("rack", {"app": "web"}),)) for n in range(2)]
    assert fault_kinds(problem(replicas, racks), "n1 n3") == []
    assert fault_kinds(problem(replicas, racks), "n1 n2") == ["spread"]


# --- anti-affinity ----------------------------------------------------------------------------------------


def exclusive(number, key=HOST, **rest):
    return web(number, anti_affinity=(make.term(key, app="web"),), **rest)


def test_pods_with_host_anti_affinity_are_on_different_hosts():
    stated = problem([exclusive(0), exclusive(1)], ZONES, [make.option("m")])
    assert fault_kinds(stated, "a1 a1") == ["anti-affinity"]
    assert fault_kinds(stated, "m:1 m:1") == ["anti-affinity"]
    assert fault_kinds(stated, "a1 b1") == []
    assert fault_kinds(stated, "m:1 m:2") == []


def test_zone_anti_affinity_keeps_pods_in_different_zones():
    two_in_a = [make.existing("a1", "a"), make.existing("a2", "a"), make.existing("b1", "b")]
    stated = problem([exclusive(0, ZONE), exclusive(1, ZONE)], two_in_a)
    assert fault_kinds(stated, "a1 a2") == ["anti-affinity"]
    assert fault_kinds(stated, "a1 b1") == []


def test_anti_affinity_of_one_pod_is_enough():
    stated = problem([make.pending("shy", anti_affinity=(make.term(HOST, app="web"),)), web(1)], ZONES)
    assert fault_kinds(stated, "a1 a1") == ["anti-affinity"]
    assert fault_kinds(stated, "a1 b1") == []


def test_a_pod_whose_anti_affinity_does_not_match_itself_may_be_there_twice():
    shy = [make.pending(f"shy{n}", anti_affinity=(make.term(HOST, app="web"),)) for n in range(2)]
    assert fault_kinds(problem(shy, ZONES), "a1 a1") == []


def test_anti_affinity_works_both_ways_with_existing_pods():
    avoided = make.existing("n1", existing_pods=(make.running(labels={"app": "web"}),))
    assert fault_kinds(problem([exclusive(0)], [avoided, make.existing("n2")]), "n1") == ["anti-affinity"]
    assert fault_kinds(problem([exclusive(0)], [avoided, make.existing("n2")]), "n2") == []
    avoiding = make.existing(
        "n1", "a", existing_pods=(make.running(anti_affinity=(make.term(ZONE, app="web"),)),)
    )
    stated = problem(
        [web(0), make.pending("other")], [avoiding, make.existing("n2", "a"), make.existing("n3", "b")]
    )
    assert fault_kinds(stated, "n2 -") == ["anti-affinity"]  # in the same zone
    assert fault_kinds(stated, "n3 n1") == []


def test_anti_affinity_between_existing_pods_is_no_fault():
    both = (make.running(2, labels={"app": "web"}, anti_affinity=(make.term(HOST, app="web"),)),)
    assert (
        fault_kinds(problem([make.pending("other")], [make.existing("n1", existing_pods=both)]), "n1") == []
    )


def test_anti_affinity_reaches_only_the_namespaces_it_names():
    other = web(1, namespace="other")
    assert fault_kinds(problem([exclusive(0), other], ZONES), "a1 a1") == []
    wide = web(0, anti_affinity=(PodTerm(HOST, having("app", "web"), ("default", "other")),))
    assert fault_kinds(problem([wide, other], ZONES), "a1 a1") == ["anti-affinity"]


def test_a_node_without_the_topology_label_breaks_no_anti_affinity():
    bare = make.existing("x1", zone=None)
    assert fault_kinds(problem([exclusive(0, ZONE), exclusive(1, ZONE)], [bare]), "x1 x1") == []


# --- affinity ---------------------------------------------------------------------------------------------


def affine_to_own_kind(number, key=ZONE, **rest):
    return web(number, affinity=(make.term(key, app="web"),), **rest)


def affine_to(name="follower", key=ZONE, **labels):
    return make.pending(name, affinity=(make.term(key, **(labels or {"app": "web"})),))


def test_a_pod_with_affinity_is_in_the_zone_of_a_matching_pod():
    two_in_a = [make.existing("a1", "a"), make.existing("a2", "a"), make.existing("b1", "b")]
    stated = problem([affine_to(), web(1)], two_in_a)
    assert fault_kinds(stated, "a2 a1") == []
    assert fault_kinds(stated, "b1 a1") == ["affinity"]
    assert fault_kinds(problem([affine_to(key=HOST), web(1)], two_in_a), "a2 a1") == ["affinity"]


def test_affinity_that_no_pod_matches_is_a_fault():
    assert fault_kinds(problem([affine_to()], ZONES), "a1") == ["affinity"]
    assert fault_kinds(problem([affine_to()], ZONES), "-") == []


def test_existing_pods_meet_affinity_in_their_namespace_only():
    home = make.existing("a1", "a", existing_pods=(make.running(labels={"app": "web"}),))
    assert fault_kinds(problem([affine_to()], [home, ZONES[1]]), "a1") == []
    assert fault_kinds(problem([affine_to()], [home, ZONES[1]]), "b1") == ["affinity"]
    foreign = make.existing(
        "a1", "a", existing_pods=(make.running(namespace="other", labels={"app": "web"}),)
    )
    assert fault_kinds(problem([affine_to()], [foreign]), "a1") == ["affinity"]


def test_the_first_of_its_kind_needs_no_other_and_the_rest_join_it():
    assert fault_kinds(problem([affine_to_own_kind(0)], ZONES), "b1") == []
    trio = problem([affine_to_own_kind(0), affine_to_own_kind(1), affine_to_own_kind(2)], ZONES)
    assert fault_kinds(trio, "b1 b1 b1") == []
    assert fault_kinds(trio, "b1 b1 c1") == ["affinity"]


def test_two_groups_of_one_kind_in_two_zones_could_not_both_be_first():
    four = problem([affine_to_own_kind(n) for n in range(4)], ZONES)
    # Each has a matching pod in its zone, but the third was bound to an empty zone.
    assert fault_kinds(four, "a1 a1 b1 b1") == ["affinity"]


def test_no_pod_is_the_first_of_its_kind_where_an_existing_pod_matches():
    home = make.existing("a1", "a", existing_pods=(make.running(labels={"app": "web"}),))
    assert fault_kinds(problem([affine_to_own_kind(0)], [home, ZONES[1]]), "b1") == ["affinity"]
    assert fault_kinds(problem([affine_to_own_kind(0)], [home, ZONES[1]]), "a1") == []


def test_two_groups_of_one_kind_are_fine_where_each_has_a_pod_to_join():
    homes = [make.existing(f"{z}1", z, existing_pods=(make.running(labels={"app": "web"}),)) for z in "ab"]
    assert fault_kinds(problem([affine_to_own_kind(n) for n in range(4)], homes), "a1 a1 b1 b1") == []
    assert (
        fault_kinds(
            problem([affine_to_own_kind(0), affine_to_own_kind(1), web(2), web(3)], ZONES), "a1 b1 a1 b1"
        )
        == []
    )


def test_the_first_of_its_kind_may_be_bound_before_pods_without_affinity():
    # Bound first, it was alone in the cluster; that others came elsewhere later does not make it wrong.
    assert fault_kinds(problem([affine_to_own_kind(0), web(1)], ZONES), "a1 b1") == []


def test_two_pods_that_only_match_each_other_are_never_bound():
    left = make.pending("left", labels={"side": "l"}, affinity=(make.term(ZONE, side="r"),))
    right = make.pending("right", labels={"side": "r"}, affinity=(make.term(ZONE, side="l"),))
    assert fault_kinds(problem([left, right], ZONES), "a1 a1") == ["affinity"]


def test_a_chain_of_affinities_is_bound_one_by_one():
    second = make.pending("second", labels={"app": "mid"}, affinity=(make.term(ZONE, app="web"),))
    third = make.pending("third", affinity=(make.term(ZONE, app="mid"),))
    assert fault_kinds(problem([third, second, affine_to_own_kind(0)], ZONES), "a1 a1 a1") == []
    assert fault_kinds(problem([third, second, affine_to_own_kind(0)], ZONES), "b1 a1 a1") == ["affinity"]


def test_a_pod_must_match_every_affinity_term_at_once():
    both = make.pending("both", affinity=(make.term(ZONE, app="web"), make.term(ZONE, tier="front")))
    apart = [web(1), make.pending("front", labels={"tier": "front"})]
    assert fault_kinds(problem([both, *apart], ZONES), "a1 a1 a1") == ["affinity"]
    one = make.pending("one", labels={"app": "web", "tier": "front"})
    assert fault_kinds(problem([both, one], ZONES), "a1 a1") == []


def test_affinity_needs_a_node_with_the_topology_label():
    bare = make.existing("x1", zone=None)
    assert fault_kinds(problem([affine_to_own_kind(0), web(1)], [bare]), "x1 x1") == ["affinity"]


def test_affinity_on_opened_nodes_is_by_their_own_host():
    stated = problem([affine_to_own_kind(0, HOST), affine_to_own_kind(1, HOST)], [], [make.option("m")])
    assert fault_kinds(stated, "m:1 m:1") == []
    assert fault_kinds(stated, "m:1 m:2") == ["affinity"]
