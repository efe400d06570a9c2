"""Rules about other pods: host ports, affinity, anti-affinity and topology spread, bound pod by pod."""

from __future__ import annotations

import pytest

from tests.sim.cluster_builder import HOST, ZONE, Town, shape, spread, term
from tests.sim.rehearsal_builder import BLOCK
from tidemill.model.capacity import Source, SourceKind
from tidemill.model.labels import Expression, Toleration
from tidemill.model.pods import PodTerm

APART = shape(anti_affinity=(term(HOST, app="x"),))
APART_BY_ZONE = shape(anti_affinity=(term(ZONE, app="x"),))
PLAIN = shape()
OTHER = shape(labels={"app": "y"})
ONLY_A = ((ZONE, "us-west-2a"),)


# --- host ports ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (("TCP", 80, ""), False),
        (("TCP", 81, ""), True),
        (("UDP", 80, ""), True),
        (("TCP", 80, "10.0.0.2"), False),
    ],
)
def test_a_host_port_is_given_once(wanted: tuple[str, int, str], fits: bool) -> None:
    town = Town(a=1)
    town.settle("web", "a1", shape(host_ports=(("TCP", 80, ""),)))
    assert bool(town.place("other", shape(host_ports=(wanted,)))) is fits
    if not fits:
        assert "1 node(s) didn't have free ports for the requested pod ports" in town.says("other")


def test_ports_on_two_addresses_do_not_clash() -> None:
    town = Town(a=1)
    town.settle("web", "a1", shape(host_ports=(("TCP", 80, "10.0.0.1"),)))
    assert town.place("other", shape(host_ports=(("TCP", 80, "10.0.0.2"),))) == "a1"


# --- anti-affinity ------------------------------------------------------------------------------------


def test_keeps_away_from_hosts_where_those_it_minds_are() -> None:
    town = Town(a=2)
    assert {town.place("one", APART), town.place("two", APART)} == {"a1", "a2"}
    assert town.place("three", APART) == ""
    assert "2 node(s) didn't match pod anti-affinity rules" in town.says("three")


def test_keeps_away_from_whole_zones() -> None:
    town = Town(a=2, b=1)
    town.settle("one", "a1")
    assert town.place("two", APART_BY_ZONE) == "b1"


def test_a_pod_that_is_there_keeps_others_off_though_they_mind_nothing() -> None:
    town = Town(a=1)
    town.settle("hermit", "a1", APART)
    assert town.place("guest", PLAIN) == ""
    assert "1 node(s) didn't satisfy existing pods anti-affinity rules" in town.says("guest")
    assert town.place("stranger", OTHER) == "a1"


def test_a_pod_that_is_leaving_still_keeps_others_off() -> None:
    town = Town(a=1)
    hermit = town.settle("hermit", "a1", APART, grace="10m")
    town.cluster.evict(hermit.uid)
    assert town.place("guest", PLAIN) == ""
    town.pass_time("10m")
    assert town.where("guest") == "a1"


def test_a_term_means_its_own_namespace_unless_it_names_others() -> None:
    town = Town(a=1)
    town.settle("one", "a1", namespace="elsewhere")
    assert town.place("two", APART) == "a1"
    assert town.place("three", shape(anti_affinity=(term(HOST, "elsewhere", app="x"),))) == ""


def test_a_key_the_node_does_not_have_keeps_nobody_apart() -> None:
    town = Town(a=1)
    town.settle("one", "a1")
    assert town.place("two", shape(anti_affinity=(term("rack", app="x"),))) == "a1"


# --- affinity -----------------------------------------------------------------------------------------


def test_goes_where_its_company_is() -> None:
    town = Town(a=1, b=2)
    town.settle("db", "b1", OTHER, grace="1s")
    town.settle("filler", "b1", shape(cpu=150, labels={"app": "z"}))
    assert town.place("web", shape(cpu=50, affinity=(term(ZONE, app="y"),))) == "b2"


def test_waits_for_its_company_and_follows_it() -> None:
    town = Town(a=1, b=1)
    assert town.place("web", shape(affinity=(term(HOST, app="y"),))) == ""
    assert "2 node(s) didn't match pod affinity rules" in town.says("web")
    town.settle("db", "b1", OTHER)
    assert town.where("web") == "b1"


def test_the_first_of_a_kind_that_wants_its_own_kind_may_start_anywhere() -> None:
    town = Town(a=1, b=1)
    together = shape(cpu=100, affinity=(term(ZONE, app="x"),))
    assert town.place("one", together) == "a1"
    assert town.place("two", together) == ""  # a1 is full, and zone b is not where the first one is
    assert "1 node(s) didn't match pod affinity rules" in town.says("two")


def test_one_pod_must_be_all_the_company_that_several_terms_want() -> None:
    town = Town(a=1)
    town.settle("db", "a1", shape(labels={"app": "y"}))
    town.settle("cache", "a1", shape(labels={"role": "cache"}))
    both = shape(affinity=(term(ZONE, app="y"), term(ZONE, role="cache")))
    assert town.place("web", both) == ""
    town.settle("combined", "a1", shape(labels={"app": "y", "role": "cache"}))
    assert town.where("web") == "a1"


# --- topology spread ----------------------------------------------------------------------------------


def test_spreads_over_zones_pod_by_pod() -> None:
    town = Town(a=3, b=1, c=1)
    even = shape(spread=(spread(ZONE),))
    zones = [town.place(f"p{number}", even)[0] for number in range(6)]
    assert sorted(zones[:3]) == ["a", "b", "c"]
    assert sorted(zones[3:]) == ["a", "b", "c"]


def test_waits_rather_than_crowd_a_zone() -> None:
    town = Town(a=1, b=1)
    town.settle("filler", "b1", shape(cpu=190, labels={"app": "z"}))
    even = shape(cpu=4, spread=(spread(ZONE),))
    assert town.place("one", even) == "a1"
    assert town.place("two", even) == ""
    assert "1 Insufficient cpu, 1 node(s) didn't match pod topology spread constraints." in town.says("two")
    assert town.place("looser", shape(cpu=4, spread=(spread(ZONE, 2),))) == "a1"


def test_a_pod_that_comes_elsewhere_lets_the_next_one_in() -> None:
    town = Town(a=1, b=1)
    town.settle("one", "a1")
    even = shape(spread=(spread(ZONE, honor_affinity=False),), node_selector=ONLY_A)
    assert town.place("two", even) == ""
    town.settle("three", "b1")
    assert town.where("two") == "a1"


def test_only_zones_its_own_selector_allows_count_unless_told_otherwise() -> None:
    town = Town(a=1, b=1)
    town.settle("one", "a1")
    assert town.place("two", shape(spread=(spread(ZONE),), node_selector=ONLY_A)) == "a1"


def test_a_pin_counts_as_a_selector() -> None:
    town = Town(a=1)
    town.ready_nodes("i-b1", zone="us-west-2b", source=Source(SourceKind.ON_DEMAND))
    town.settle("one", "a1")
    pod = town.make("two", shape(spread=(spread(ZONE),)), gated=True)
    town.cluster.admit(pod.uid, BLOCK.label, None)
    town.pass_time("20s")
    assert town.where("two") == "a1"


def test_tainted_nodes_count_unless_taints_are_honoured() -> None:
    town = Town(a=1)
    town.ready_nodes("i-b1", zone="us-west-2b", pool="g6", kind="g6.48xlarge")
    town.settle("one", "a1")
    assert town.place("two", shape(spread=(spread(ZONE),))) == ""
    assert town.place("three", shape(spread=(spread(ZONE, honor_taints=True),))) == "a1"
    tolerant = shape(spread=(spread(ZONE, honor_taints=True),), tolerations=(Toleration(operator="Exists"),))
    assert town.place("four", tolerant) == "b1"


def test_too_few_domains_count_as_one_that_is_empty() -> None:
    town = Town(a=1, b=1)
    even = shape(spread=(spread(ZONE, min_domains=3),))
    assert {town.place("one", even), town.place("two", even)} == {"a1", "b1"}
    assert town.place("three", even) == ""
    town.ready_nodes("i-c1", zone="us-west-2c")
    assert town.where("three") == "c1"


def test_match_label_keys_count_only_its_own_revision() -> None:
    town = Town(a=1, b=1)
    town.settle("old", "a1", shape(labels={"app": "x", "rev": "1"}))
    by_rev = spread(ZONE, match_label_keys=("rev",), honor_affinity=False)
    assert (
        town.place("same", shape(labels={"app": "x", "rev": "1"}, spread=(by_rev,), node_selector=ONLY_A))
        == ""
    )
    assert (
        town.place("new", shape(labels={"app": "x", "rev": "2"}, spread=(by_rev,), node_selector=ONLY_A))
        == "a1"
    )


def test_pods_that_are_leaving_do_not_count_for_a_spread() -> None:
    town = Town(a=1, b=1)
    leaving = town.settle("one", "a1", grace="1h")
    town.settle("filler", "b1", shape(cpu=190, labels={"app": "z"}))
    even = shape(cpu=4, spread=(spread(ZONE),))
    assert town.place("two", even) == ""
    town.cluster.evict(leaving.uid)
    town.pass_time("20s")
    assert town.where("two") == "a1"


def test_nodes_without_the_key_are_no_place_for_it() -> None:
    town = Town(a=1)
    assert town.place("one", shape(spread=(spread("rack"),))) == ""
    assert "topology spread constraints (missing required label)" in town.says("one")


def test_a_pod_that_its_own_rule_does_not_mean_adds_nothing() -> None:
    town = Town(a=1, b=1)
    town.settle("one", "a1")
    watcher = shape(labels={"app": "y"}, spread=(spread(ZONE),), node_selector=ONLY_A)
    counted_over_both = shape(
        labels={"app": "y"},
        spread=(spread(ZONE, honor_affinity=False),),
        node_selector=ONLY_A,
    )
    assert town.place("watcher", watcher) == "a1"
    assert town.place("second", counted_over_both) == "a1"


def test_a_selector_with_other_operators_is_understood() -> None:
    town = Town(a=2)
    town.settle("one", "a1")
    selector = (Expression("app", "Exists"), Expression("app", "NotIn", ("y",)))
    loner = shape(anti_affinity=(PodTerm(HOST, selector),))
    assert town.place("two", loner) == "a2"
